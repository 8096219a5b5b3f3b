"""`compile`: cubins ahead of time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .common import add_filters, command, console, filters_of, nbytes, no_variants, print_json, table, track

_DESCRIPTION = """\
Compile variants ahead of time and report their resources.  The folder of -o can be BARACUDA_CUBIN_DIR, or be shipped
in a wheel as baracuda_registry/_cubins; with BARACUDA_JIT=0 nothing else is then ever compiled.  An architecture stands
for the devices of its compute capability (sm_90 and sm_90a alike bring all that runs on 9.0), and need not be one that
the variants name.  An interrupted run goes on where it stopped.  Exit code 1 = something spills or warns.
"""


def add(commands: Any) -> None:
    """Add the command."""
    compiling = command(
        commands,
        "compile",
        "compile variants ahead of time and report their resources",
        _compile,
        ("--arch sm_80,sm_90a,sm_100 -o cubins", "--op group_norm --element bf16 --arch sm_90 --json"),
        _DESCRIPTION,
    )
    add_filters(compiling)
    compiling.add_argument(
        "--arch", help="architectures, comma-separated (default: all that the variants name)"
    )
    compiling.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for the cubins")
    compiling.add_argument(
        "--report", type=Path, metavar="FILE", help="write the resource report there, as JSON"
    )


def _compile(options: argparse.Namespace) -> int:
    from .. import compile_all
    from ..catalog import registry
    from ..inspect.records import matching

    held = registry()
    found = matching(held, **filters_of(options))
    if not found:
        raise no_variants(options)
    architectures = [text.strip() for text in options.arch.split(",")] if options.arch else None
    work = compile_all.jobs(held, architectures, found)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
    made = compile_all.compile_jobs(held, work, options.output)
    results = list(track(made, "compiling", len(work)))
    rows: list[dict[str, Any]] = compile_all.report(results)
    if options.report is not None:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(json.dumps(rows, indent=1) + "\n")
    spilled = [row for row in rows if row["spill_store_bytes"] or row["spill_load_bytes"]]
    warned = [row for row in rows if row["warnings"]]
    if options.json:
        print_json(rows)
        return 1 if spilled or warned else 0
    numbers = ("cubins", "size", "kernels", "regs ≤", "shared ≤", "spill", "warn")
    summary = table("arch", *numbers, title=f"{len(work)} cubins, {len(rows)} kernels", right=numbers)
    for architecture in sorted({job.architecture for job in work}, key=lambda name: (len(name), name)):
        mine = [row for row in rows if row["architecture"] == architecture]
        cubins = [made for job, made in results if job.architecture == architecture]
        summary.add_row(
            architecture,
            str(len(cubins)),
            nbytes(sum(len(made.cubin) for made in cubins)),
            str(len(mine)),
            str(max((row["registers"] for row in mine), default=0)),
            nbytes(max((row["shared_bytes"] for row in mine), default=0)),
            str(sum(row in spilled for row in mine)),
            str(sum(row in warned for row in mine)),
        )
    out = console()
    out.print(summary)
    for row in spilled:
        out.print(
            f"spills: {row['symbol']} on {row['architecture']}, {row['spill_store_bytes']} B", soft_wrap=True
        )
    for symbol, warning in sorted({(str(row["symbol"]), str(w)) for row in warned for w in row["warnings"]}):
        out.print(f"warning: {symbol}: {warning}", soft_wrap=True, markup=False)
    return 1 if spilled or warned else 0
