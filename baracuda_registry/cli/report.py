"""`report`: one page about everything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .common import command, nbytes, print_json, track

_DESCRIPTION = """\
Write one self-contained HTML page: every SKU and variant with source and resources, the coverage matrix, measured
performance, and which variant wins where.  Resources are shown of what is compiled already; --compile does that first.
Benchmark results are those of the checkout's benchmarks/results, or the files given.
"""


def add(commands: Any) -> None:
    """Add the command."""
    reporting = command(
        commands,
        "report",
        "write one HTML page about the registry",
        _report,
        ("-o report.html", "-o report.html --device H200 --device 'RTX 4090' --arch sm_90,sm_89 --compile"),
        _DESCRIPTION,
    )
    reporting.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE")
    reporting.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="GPUs of the selection maps (default: H200, A100, RTX 4090)",
    )
    reporting.add_argument(
        "--arch", default="sm_90", help="resources for these architectures (default: %(default)s)"
    )
    reporting.add_argument("--compile", action="store_true", help="compile what is not compiled yet for them")
    reporting.add_argument(
        "--bench", action="append", type=Path, metavar="FILE", help="benchmark results; repeatable"
    )


def _report(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..compile_all import capability_named, compile_jobs, jobs
    from ..errors import InvalidProblem
    from ..inspect.names import device_named
    from ..report import assemble, gather
    from ..report.benchmarks import default_files, read

    held = registry()
    devices = [device_named(name) for name in options.device or ("H200", "A100", "RTX 4090")]
    architectures = [f"sm_{capability_named(text)}" for text in options.arch.split(",")]
    results: list[dict[str, Any]] = []
    for path in options.bench if options.bench is not None else default_files():
        try:
            results.append(read(path))
        except InvalidProblem as error:
            if options.bench is not None:
                raise
            print(f"left out: {error}", file=sys.stderr)
    results.sort(key=lambda result: -len(result["rows"]))
    if options.compile:
        work = jobs(held, architectures)
        for _ in track(compile_jobs(held, work), "compiling", len(work)):
            pass

    def progress(items: Sequence[Any], what: str) -> Iterable[Any]:
        return track(items, what, len(items))

    catalog, sources = gather(held, devices, results, architectures, progress)
    page = assemble(catalog, sources).encode()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_bytes(page)
    if options.json:
        counts = {name: len(catalog[name]) for name in ("skus", "variants", "maps", "benchmarks")}
        print_json({"file": str(options.output), "bytes": len(page), **counts})
    else:
        print(f"{options.output}: {nbytes(len(page))}")
    return 0
