"""Reads benchmark results: files of `benchmarks/results`, or given ones.

Only what the page plots is taken, so that fields may come and go; a file without any row that can be plotted is an
error for a given file and is left out where the page looks for results by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidProblem


def default_files() -> list[Path]:
    """Results of the checkout that this package is in; none where it is installed."""
    return sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """One file's results: `title`, `copy_bandwidth` in bytes a second and `rows`.

    Files of format 2 hold `runs` and `cases`; those before it one run's `environment` and `rows`.

    Raises:
        InvalidProblem: it cannot be read, or holds no row that can be plotted.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "cases" in data:
            runs = sorted(data["runs"], key=lambda run: str(run["date"]))
            rows = [_case(raw) for raw in data["cases"]]
        else:
            runs = [{**(data.get("environment") or {}), "copy_bandwidth": data.get("copy_bandwidth")}]
            rows = [_row(raw) for raw in data["rows"]]
        latest = runs[-1] if runs else {}
        kept = [row for row in rows if row is not None]
        if not kept:
            raise ValueError("no row has an operation, a dtype and our time")
    except OSError as error:
        raise InvalidProblem(f"benchmark results {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidProblem(
            f"benchmark results {path} are not of a form this version reads ({type(error).__name__}: {error})"
        ) from error
    parts = [str(latest[key])[:length] for key, length in (("gpu", 40), ("date", 10)) if latest.get(key)]
    return {
        "title": ", ".join([path.stem, *parts]),
        "copy_bandwidth": _number(latest.get("copy_bandwidth")),
        "rows": kept,
    }


def _case(raw: Any) -> dict[str, Any] | None:
    """A case of format 2: peers that are absent or wrong have no time; a tiny case has no meaningful share."""
    if not isinstance(raw, Mapping):
        return None
    times: dict[str, Any] = {"ours": (raw.get("times") or {}).get("median_us")}
    for name, peer in (raw.get("peers") or {}).items():
        if isinstance(peer, Mapping) and peer.get("correct") is not False:
            times[name] = (peer.get("times") or {}).get("median_us")
    return _row({**raw, "times_us": times, "share": None if raw.get("tiny") else raw.get("share")})


def _row(raw: Any) -> dict[str, Any] | None:
    """One row as plotted; None where it has no time of ours."""
    if not isinstance(raw, Mapping):
        return None
    times = raw.get("times_us")
    seen = (
        {name: us for name, value in times.items() if (us := _median(value))}
        if isinstance(times, Mapping)
        else {}
    )
    ours = seen.pop("ours", None)
    op, dtype = raw.get("op"), raw.get("dtype")
    if ours is None or not isinstance(op, str) or not isinstance(dtype, str):
        return None
    shape = "×".join(map(str, raw.get("shape") or ()))
    parameters = raw.get("parameters")
    extra = " ".join(f"{k} {v}" for k, v in parameters.items()) if isinstance(parameters, Mapping) else ""
    return {
        "op": op,
        "dtype": dtype,
        "case": f"{shape} {extra}".strip(),
        "design": str(raw.get("design") or ""),
        "us": ours,
        "share": _number(raw.get("share")),
        "peers": seen,
        "correct": raw.get("correct") is not False,
    }


def _median(value: Any) -> float | None:
    return _number(value.get("median") if isinstance(value, Mapping) else value)


def _number(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        else None
    )
