"""The command line: `python -m baracuda_registry`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import BaracudaError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 = done, 1 = done with findings, 2 = bad input or set-up."""
    parser = argparse.ArgumentParser(
        prog="python -m baracuda_registry", description="Inspect and compile the registry's kernel variants."
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True)
    compiling = commands.add_parser(
        "compile", help="compile variants ahead of time and report their resources"
    )
    compiling.add_argument(
        "--arch", help="architectures, comma-separated (default: all that the variants name)"
    )
    compiling.add_argument(
        "-o", "--output", type=Path, help="folder for the cubins (usable as BARACUDA_CUBIN_DIR)"
    )
    compiling.add_argument("--json", type=Path, metavar="FILE", help="write the resource report there")
    options = parser.parse_args(arguments)
    try:
        return _compile(options)
    except BaracudaError as error:
        if options.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; what was compiled is kept", file=sys.stderr)
        return 2


def _compile(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from .catalog import registry
    from .compile_all import compile_jobs, jobs, report

    table = registry()
    work = jobs(table, options.arch.split(",") if options.arch else None)
    console = Console(stderr=True)
    made = compile_jobs(table, work, options.output)
    results = list(track(made, "compiling", total=len(work), console=console))
    rows = report(results)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    spilled = [row for row in rows if row["spill_store_bytes"] or row["spill_load_bytes"]]
    warned = [row for row in rows if row["warnings"]]
    summary = Table(title=f"{len(work)} cubins, {len(rows)} kernels")
    for heading in (
        "architecture",
        "cubins",
        "kernels",
        "most registers",
        "most static shared",
        "spilling",
        "warnings",
    ):
        summary.add_column(heading, justify="left" if heading == "architecture" else "right")
    for architecture in sorted({job.architecture for job in work}, key=lambda name: (len(name), name)):
        mine = [row for row in rows if row["architecture"] == architecture]
        summary.add_row(
            architecture,
            str(sum(job.architecture == architecture for job in work)),
            str(len(mine)),
            str(max((row["registers"] for row in mine), default=0)),  # type: ignore[type-var]
            str(max((row["shared_bytes"] for row in mine), default=0)),  # type: ignore[type-var]
            str(sum(row in spilled for row in mine)),
            str(sum(row in warned for row in mine)),
        )
    Console().print(summary)
    for row in spilled:
        console.print(
            f"spills: {row['symbol']} on {row['architecture']}, {row['spill_store_bytes']} B", soft_wrap=True
        )
    for symbol, warning in sorted({(str(row["symbol"]), str(w)) for row in warned for w in row["warnings"]}):  # type: ignore[attr-defined]
        console.print(f"warning: {symbol}: {warning}", soft_wrap=True)
    return 1 if spilled or warned else 0
