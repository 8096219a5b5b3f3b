"""`python -m benchmarks`: measure, check and write the results of this machine's GPU.

The file is written after every case, and a case that is in it already, for the same sources and peers, is not measured
again: an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import baracuda_registry as br

from . import environment, results, shapes
from .case import ITEM_BYTES, TINY_BYTES, Case
from .results import Report, Row

COMPILED = ("torch.compile", "liger")
"""Peers that are compiled for every shape."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--suite", choices=("core", "full"), default="core")
    made.add_argument("--families", default="norm,pool,quant")
    made.add_argument("--dtypes", default=",".join(ITEM_BYTES))
    made.add_argument(
        "--match",
        default="",
        help="only cases in whose `op dtype shape parameters` this regular expression is found",
    )
    made.add_argument(
        "--peers", type=peer_names, default="eager,compile,liger", help="eager, compile, liger, or none; what is not installed is left out"
    )  # fmt: skip
    made.add_argument("--variants", action="store_true", help="time every eligible variant too")
    made.add_argument(
        "--host", action=argparse.BooleanOptionalAction, default=True, help="the host cost of a call"
    )
    made.add_argument("--again", action="store_true", help="measure also what the output file has already")
    made.add_argument("--budget", type=float, default=0, help="stop starting cases after this many seconds")
    made.add_argument(
        "--workers", type=int, default=max(1, min(12, (os.cpu_count() or 1) - 2)), help="compile ahead on so many cores"
    )  # fmt: skip
    made.add_argument(
        "--compile-limit",
        type=float,
        default=240,
        help="seconds for compiling peers ahead, at most half the budget; the rest goes without",
    )
    made.add_argument("--seed", type=int, default=None, help="of the data; default: a fresh one, recorded")
    made.add_argument("--commit", default=None, help="recorded instead of asking git (a copy without .git)")
    made.add_argument(
        "-o", "--output", type=Path, default=None, help="file; default benchmarks/results/GPU-SUITE.json"
    )
    return made


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases that the options ask for."""
    cases = shapes.cases(options.suite, tuple(options.families.split(",")), tuple(options.dtypes.split(",")))
    return [case for case in cases if re.search(options.match, case.key)]


def peer_names(text: str) -> tuple[str, ...]:
    """Names in the results of the peers on the command line."""
    wanted = [] if text == "none" else text.split(",")
    for name in wanted:
        if name not in results.PEERS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(results.PEERS)}")
    return tuple(results.PEERS[name] for name in wanted)


def store(report: Report, row: Row) -> None:
    """Put a case into the report, in place of an older one."""
    report["cases"] = [old for old in report["cases"] if old["case"] != row["case"]] + [row]
    report["failures"] = [old for old in report["failures"] if old["case"] != row["case"]]


def store_failure(report: Report, failure: Row) -> None:
    """Put a case that could not be measured into the report."""
    report["failures"] = [old for old in report["failures"] if old["case"] != failure["case"]] + [failure]


def main() -> int:
    """Measure the chosen cases; 1 if a result is wrong or a case failed, 2 without a GPU or with a damaged file."""
    options = parser().parse_args()
    device = br.Device.current()
    if device.is_host:
        print("benchmarks need an NVIDIA GPU", file=sys.stderr)
        return 2
    gpu = device.name.replace("NVIDIA ", "").replace(" ", "_").lower()
    output = options.output or environment.ROOT / "benchmarks" / "results" / f"{gpu}-{options.suite}.json"
    try:
        report = results.load(output) if output.is_file() else results.new()
    except results.ResultsError as error:
        print(f"{error}; name another file with -o", file=sys.stderr)
        return 2
    return measure(options, device, report, output)


def measure(options: argparse.Namespace, device: br.Device, report: Report, output: Path) -> int:
    """Measure into a report, which is written after every case."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from . import host, peers, problems, timing

    started = time.perf_counter()
    console = Console(width=190, highlight=False)
    seed = int.from_bytes(os.urandom(4), "little") if options.seed is None else options.seed
    parameters = {
        "suite": options.suite,
        "rounds": timing.ROUNDS,
        "target_seconds": timing.TARGET_SECONDS,
        "l2_multiple": problems.L2_MULTIPLE,
        "tiny_bytes": TINY_BYTES,
        "tiny_sets": problems.TINY_SETS,
        "peers": list(options.peers),
        "absent": {name: reason for name in options.peers if (reason := peers.missing(name))},
        "seed": seed,
    }
    run = environment.new_run(device, parameters, options.commit)
    cases = chosen(options)
    todo = [
        case
        for case in cases
        if options.again or not results.is_done(report, case.key, run["source_digest"], options.peers)
    ]
    console.print(
        f"{device.name}: {len(todo)} cases to measure, {len(cases) - len(todo)} in {output} already"
    )
    for name, reason in parameters["absent"].items():
        console.print(f"without {name}: {reason}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        unfinished = _compile(progress, todo, device, options)
        run["seconds"] = {"compile": time.perf_counter() - started}
        console.print(f"compiled in {run['seconds']['compile']:.0f} s; {len(unfinished)} peers not in time")
        run["copy"] = timing.copy_ways(problems.STREAM())
        run["copy_bandwidth"] = max(run["copy"].values())
        run["gpu_state"]["after_copy"] = environment.gpu_state(device.ordinal)
        torch.cuda.empty_cache()
        report["runs"].append(run)
        console.print(f"copy {run['copy_bandwidth'] / 1e12:.3f} TB/s")
        end = started + options.budget if options.budget else math.inf
        bad = _cases(progress, todo, device, run, report, output, unfinished, end, options)
    if options.host:
        rows = [{"run": run["id"], **row} for row in host.measure(device)]
        replaced = {results.host_key(row) for row in rows}
        report["host"] = [row for row in report["host"] if results.host_key(row) not in replaced] + rows
        for row in rows:
            console.print(host.line(row))
    run["seconds"]["total"] = time.perf_counter() - started
    run["gpu_state"]["end"] = environment.gpu_state(device.ordinal)
    results.save(output, results.merge([report]))
    console.print(
        f"{len(report['cases'])} cases in {output}; {len(bad)} wrong or failed; {run['seconds']['total']:.0f} s"
    )
    return 1 if bad else 0


def _compile(
    progress: Any, todo: list[Case], device: br.Device, options: argparse.Namespace
) -> set[tuple[str, str]]:
    """Compile everything ahead; returns what was not finished in time."""
    from . import ahead, peers

    present = [name for name in options.peers if name in COMPILED and peers.missing(name) is None]
    tasks = [(case, name) for case in todo for name in present]
    bar = progress.add_task("compiling peers", total=len(tasks), visible=bool(tasks))
    ahead.prepare_ours(todo, device, options.workers)
    limit = min(options.compile_limit, options.budget / 2 or math.inf)
    return ahead.compile_peers(tasks, options.workers, limit, lambda: progress.advance(bar))


def _cases(
    progress: Any,
    todo: list[Case],
    device: br.Device,
    run: Row,
    report: Report,
    output: Path,
    unfinished: set[tuple[str, str]],
    end: float,
    options: argparse.Namespace,
) -> list[str]:
    """Measure case by case until `end`; returns those that are wrong or failed."""
    import torch

    from . import runner

    bad: list[str] = []
    task = progress.add_task("measuring", total=len(todo))
    for index, case in enumerate(todo):
        if time.perf_counter() > end:
            left = len(todo) - index
            progress.console.print(f"budget spent, {left} cases left out; the same command goes on with them")
            break
        try:
            row = runner.row(case, device, run, options.peers, options.variants, unfinished)
        except Exception as error:  # a case that fails must not cost the run
            bad.append(case.key)
            store_failure(
                report, {"case": case.key, "run": run["id"], "error": f"{type(error).__name__}: {error}"}
            )
            progress.console.print(f"FAILED {case.key}: {error!r}")
        else:
            store(report, row)
            bad += [] if row["correct"] else [case.key]
            progress.console.print(line(row), soft_wrap=True)
        progress.advance(task)
        torch.cuda.empty_cache()
        results.save(output, report)
    return bad


def line(row: Row) -> str:
    """One line a case."""
    parts = [
        f"{row['case']:58s} {row['times']['median_us']:9.2f} µs {row['share']:6.1%} (copy {row['copy_share']:4.0%})"
        f" {row['design']:18s}"
    ]
    for name, peer in row["peers"].items():
        if "times" in peer:
            parts.append(f"{name} {peer['times']['median_us']:.1f}")
        elif peer.get("correct") is False:
            parts.append(f"{name} WRONG {peer['error']:.2g}")
        else:
            parts.append(f"{name} —")
    if not row["correct"]:
        parts.append(f"WRONG {row['error']:.3g}")
    return "  ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
