"""`doctor`: what is wrong with the set-up, and what to do."""

from __future__ import annotations

import argparse
from typing import Any

from .common import command, console, print_json, table

_STYLE = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


def add(commands: Any) -> None:
    """Add the command."""
    command(
        commands,
        "doctor",
        "find what is wrong with the CUDA set-up, and say the remedy",
        _doctor,
        ("", "--json"),
        "Look at Python, the kernel table, driver, CuPy, NVRTC, headers, GPUs, cache and disk, and say what to do "
        "about what is wrong.  Exit code 1 = there is a problem.",
    )


def _doctor(options: argparse.Namespace) -> int:
    from ..diagnosis import Status, diagnose

    found = list(diagnose())
    problems = sum(check.status is Status.PROBLEM for check in found)
    if options.json:
        print_json({"problems": problems, "checks": [check.to_dict() for check in found]})
        return 1 if problems else 0
    from rich.text import Text

    out = console()
    rows = table("", "", "")
    rows.show_header = False
    for check in found:
        detail = Text(check.detail)
        if check.remedy:
            detail.append(f"\n→ {check.remedy}", style="bold")
        rows.add_row(Text(check.status.value, style=_STYLE[check.status.value]), check.name, detail)
    out.print(rows)
    warnings = sum(check.status is Status.WARNING for check in found)
    out.print(f"{problems} problems, {warnings} warnings")
    return 1 if problems else 0
