"""Write `generated/`, or check that it is what the tables and templates say.

Only files that changed are written (so that time stamps and caches stay), and files that no table accounts for are
removed.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .families import OPS
from .render import ROOT, render_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m codegen`; 0 = done or up to date, 1 = `--check` found a difference."""
    parser = argparse.ArgumentParser(
        prog="python -m codegen", description="Generate CUDA sources and their manifest."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; print a diff and exit 1 if anything differs"
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "generated", help="folder to write (default: generated/)"
    )
    options = parser.parse_args(arguments)
    files = render_all(OPS)
    if options.check:
        difference = diff(files, options.output)
        sys.stdout.write(difference)
        return 1 if difference else 0
    written, removed = write(files, options.output)
    print(f"{len(files)} files: {written} written, {removed} removed, {len(files) - written} unchanged")
    return 0


def write(files: Mapping[str, str], output: Path) -> tuple[int, int]:
    """Bring the folder to the given content; returns how many files were written and removed."""
    written = 0
    for name, text in files.items():
        path = output / name
        data = text.encode()
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            written += 1
    stale = [path for path in _existing(output) if path.relative_to(output).as_posix() not in files]
    for path in stale:
        path.unlink()
        for parent in path.parents:
            if parent == output or any(parent.iterdir()):
                break
            parent.rmdir()
    return written, len(stale)


def diff(files: Mapping[str, str], output: Path) -> str:
    """Unified diff from the folder to the given content; empty when they agree."""
    have = {
        path.relative_to(output).as_posix(): path.read_text(encoding="utf-8") for path in _existing(output)
    }
    lines: list[str] = []
    for name in sorted(have.keys() | files.keys()):
        old, new = have.get(name, ""), files.get(name, "")
        if old != new:
            lines += difflib.unified_diff(
                old.splitlines(keepends=True),
                new.splitlines(keepends=True),
                f"generated/{name}" if name in have else "/dev/null",
                f"rendered/{name}" if name in files else "/dev/null",
            )
    return "".join(lines)


def _existing(output: Path) -> list[Path]:
    return [path for path in output.rglob("*") if path.suffix in (".cu", ".json") and path.is_file()]
