"""The README's code runs as printed: on the host here, on the GPU under `make test-gpu`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import baracuda_registry as br
from baracuda_registry import measured
from baracuda_registry.plans.base import forget_plans

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def _run(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "import torch" in block:
        pytest.importorskip("torch")
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_block_on_the_host(
    index: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(br.Device, "current", staticmethod(br.Device.host))
    _run(BLOCKS[index], capsys)


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_block_on_the_gpu(
    index: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What a block measures must not choose for the tests that follow.
    monkeypatch.setattr(measured, "user_path", lambda name: tmp_path / f"{name}.json")
    _run(BLOCKS[index], capsys)
    measured.forget()
    forget_plans()


def test_readme_shows_each_seed_plan() -> None:
    text = "\n".join(BLOCKS)
    for plan in ("LpPool1dBackwardPlan", "GroupNormBackwardPlan", "DequantizePerGroupBackwardPlan"):
        assert f"{plan}.select" in text


def test_commands_of_the_first_screen_exist() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
