"""The documentation's code runs as printed, its commands succeed, and its guide to adding an operation works literally."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import baracuda_registry as br
from baracuda_registry import cli

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
HEAVY = {"report"}
"""Commands that other tests run and that take long."""


class Block(NamedTuple):
    """A fenced block with the comment that stands before it."""

    page: str
    comment: str
    language: str
    text: str


def _load_pages() -> Any:
    spec = importlib.util.spec_from_file_location("docs_pages", DOCS / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = _load_pages()


def blocks(page: str, text: str) -> list[Block]:
    found = re.findall(r"(?:^<!-- (.*?) -->\n)?^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [Block(page, *parts) for parts in found]


WRITTEN = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
GENERATED = {f"ops/{name}.md": PAGES.op_page(entry) for name, entry in br.inspect.OPS.items()}
EVERY = [block for page, text in {**WRITTEN, **GENERATED}.items() for block in blocks(page, text)]
ADDING = blocks("adding.md", WRITTEN["adding.md"])
OWN = [block for block in EVERY if block.page != "adding.md"]
COMMANDS = [
    (block.page, line.removeprefix("$ ").strip())
    for block in OWN
    if block.language == "console"
    for line in block.text.splitlines()
]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {block.language for block in EVERY} <= {"python", "console", "sh", "cuda"}
    assert len([block for block in OWN if block.language == "python"]) >= 15
    for block in EVERY:
        if block.language == "console":
            assert all(line.startswith("$ baracuda-registry ") for line in block.text.splitlines())


@pytest.mark.parametrize("block", [b for b in OWN if b.language == "python"], ids=lambda b: b.page)
def test_python_runs(
    block: Block, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(br.Device, "current", staticmethod(br.Device.host))
    exec(compile(block.text, block.page, "exec"), {"__name__": "docs"})
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "line"), list(dict.fromkeys(COMMANDS)))
def test_command_succeeds(
    page: str, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    from baracuda_registry.cli.main import build_parser

    assert build_parser().parse_args(words).command == words[0]
    if words[0] not in HEAVY:
        assert cli.main(words) == 0


def test_shell_lines_name_things_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    for block in EVERY:
        if block.language != "sh":
            continue
        for line in block.text.splitlines():
            if line.startswith("make "):
                assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line
            elif line.startswith("python -m "):
                assert importlib.util.find_spec(line.split()[2]) is not None, line
            else:
                match = re.match(r"pip install 'baracuda-registry\[([\w,]+)\]'", line)
                assert match is not None, line
                assert all(f"\n{extra} = [" in project for extra in match[1].split(","))


def test_links_between_pages_lead_somewhere() -> None:
    generated = set(GENERATED) | {"ops/index.md", "reference/index.md"}
    for page, text in {**WRITTEN, **GENERATED}.items():
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            name = os.path.normpath(os.path.join(os.path.dirname(page), target))
            assert (DOCS / name).is_file() or name in generated, (page, target)
        listed = re.search(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
        for name in re.findall(r"^([a-z]\S*)$", listed[1] if listed else "", re.MULTILINE):
            assert f"{name}.md" in WRITTEN or f"{name}.md" in generated, (page, name)


def test_op_pages_say_what_the_registry_says() -> None:
    for name, entry in br.inspect.OPS.items():
        text = GENERATED[f"ops/{name}.md"]
        for sku in br.registry().skus(op=entry.op):
            for variant in br.registry().variants(sku):
                if sku.element.value == "f32" and f"`{variant.design}`" in text:
                    assert variant.summary in text
        for field in entry.fields():
            assert re.search(rf"\| `{field}` \|[^|]*\| \S", text), f"{name}: {field} has no meaning"


def test_reference_covers_what_is_public() -> None:
    modules = {name for names in PAGES.REFERENCE.values() for name in names}
    for name in br.__all__:
        if name not in ("__version__", "functional"):
            assert getattr(br, name).__module__.removeprefix("baracuda_registry.") in modules, name


# Adding an operation ------------------------------------------------------------------------------------------------


def _apply(copy: Path, block: Block) -> None:
    """Do to the copy what the comment before a block says."""
    action, _, rest = block.comment.partition(": ")
    if action == "write":
        path = copy / rest
        path.write_text(block.text, encoding="utf-8")
        return
    name, _, marked = rest.partition(", ")
    path = copy / name
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    mark = marked.partition(": ")[2]
    (at,) = [index for index, line in enumerate(lines) if line.startswith(mark)]
    if action == "insert":
        lines[at + 1 : at + 1] = [block.text]
    else:
        assert action == "replace"
        lines[at] = block.text
    path.write_text("".join(lines), encoding="utf-8")


def test_adding_an_operation_and_a_type_works_as_written(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("baracuda_registry", "codegen", "templates", "generated", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_cubins"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    environment = {**os.environ, "PYTHONPATH": str(copy)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    shown = ""
    for block in ADDING:
        if block.language == "sh":
            if "make generate" in block.text:
                run("-m", "codegen")
            if "make check" in block.text:
                run("-m", "codegen", "--check")
                run("-m", "ruff", "check", "codegen", "baracuda_registry")
        elif block.comment == "run in the copy":
            if block.language == "python":
                run("-c", block.text)
            for line in block.text.splitlines() if block.language == "console" else ():
                shown = run("-m", "baracuda_registry", *shlex.split(line)[2:])
        else:
            _apply(copy, block)
    assert "4 right, 0 wrong" in shown
    proof = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_dequantize_per_tensor.py")
    assert re.search(r"24 passed", proof)
