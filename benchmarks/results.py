"""The results file: what was measured, where, with what, and how files are joined.

A file holds runs (machine, versions, parameters) and cases that name their run, so that parts measured in several
calls, or on several days, are one file that still says of each number where it is from.  A case is replaced as a whole
by a later one: its times were interleaved in one process, and mean little apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FORMAT = 2

PEERS = {"eager": "torch", "compile": "torch.compile", "liger": "liger"}
"""Names of peers in the results, by those of the command line."""

Report = dict[str, Any]
Row = dict[str, Any]


class ResultsError(ValueError):
    """A file that is no results file of this format."""


def new() -> Report:
    """An empty report."""
    return {"format": FORMAT, "runs": [], "cases": [], "host": [], "failures": []}


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Microseconds of all rounds, to a tenth of a nanosecond, with their median, extremes and quartiles."""
    rounds = [round(value * 1e6, 4) for value in seconds]
    quartiles = statistics.quantiles(rounds, n=4, method="inclusive") if len(rounds) > 1 else rounds * 3
    return {
        "median_us": statistics.median(rounds),
        "min_us": min(rounds),
        "max_us": max(rounds),
        "quartiles_us": [quartiles[0], quartiles[2]],
        "rounds_us": rounds,
    }


def load(path: Path) -> Report:
    """Read a results file.

    Raises:
        ResultsError: not JSON, or not this format.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}") from error
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        found = report.get("format") if isinstance(report, dict) else type(report).__name__
        raise ResultsError(f"{path} has format {found!r}, want {FORMAT}")
    return report


def save(path: Path, report: Report) -> None:
    """Write a results file so that a killed run leaves the last whole one: one line a record."""
    parts = [f'"format": {report["format"]}']
    for name in ("runs", "cases", "host", "failures"):
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in report[name])
        parts.append(f'"{name}": [' + (f"\n{rows}\n" if rows else "") + "]")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    temporary.replace(path)


def merge(reports: Iterable[Report]) -> Report:
    """One report of several; of the same case, or host row, the one of the latest run stays."""
    dates: dict[str, str] = {}
    merged = new()
    reports = list(reports)
    for report in reports:
        for run in report["runs"]:
            if run["id"] not in dates:
                merged["runs"].append(run)
            dates[run["id"]] = run["date"]
    for name, key in (("cases", case_key), ("host", host_key)):
        latest: dict[str, Row] = {}
        for row in (row for report in reports for row in report[name]):
            seen = latest.get(key(row))
            if seen is None or dates[seen["run"]] <= dates[row["run"]]:
                latest[key(row)] = row
        merged[name] = list(latest.values())
    measured = {case_key(row): dates[row["run"]] for row in merged["cases"]}
    failures = {row["case"]: row for report in reports for row in report["failures"]}
    merged["failures"] = [
        row for row in failures.values() if measured.get(row["case"], "") < dates[row["run"]]
    ]
    used = {row["run"] for name in ("cases", "host", "failures") for row in merged[name]}
    merged["runs"] = sorted((run for run in merged["runs"] if run["id"] in used), key=lambda run: run["date"])
    return merged


def case_key(row: Row) -> str:
    """What tells a case from every other."""
    return str(row["case"])


def host_key(row: Row) -> str:
    """What tells a host row from every other."""
    return f"{row['name']} {row['arrays']}"


def runs(report: Report) -> dict[str, Row]:
    """Runs by their id."""
    return {run["id"]: run for run in report["runs"]}


def is_done(report: Report, case: str, digest: str, peers: Iterable[str]) -> bool:
    """Whether a case was measured already: the same sources, and every peer that is asked for now."""
    known = runs(report)
    for row in report["cases"]:
        if case_key(row) == case and known[row["run"]]["source_digest"] == digest:
            return set(peers) <= set(row["peers"])
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m benchmarks.results merge -o OUT FILE…`: join results files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    commands = parser.add_subparsers(required=True)
    join = commands.add_parser("merge", help="join results files; of the same case the latest stays")
    join.add_argument("files", nargs="+", type=Path)
    join.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        merged = merge(load(path) for path in options.files)
    except ResultsError as error:
        print(error, file=sys.stderr)
        return 2
    save(options.output, merged)
    print(f"{len(merged['cases'])} cases of {len(merged['runs'])} runs → {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
