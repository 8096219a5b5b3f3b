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
    """One file's results: `title`, `copy_bandwidth` and `rows`.

    Raises:
        InvalidProblem: it cannot be read, or holds no row that can be plotted.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = [row for raw in data["rows"] if (row := _row(raw)) is not None]
        environment = data.get("environment") or {}
        if not rows:
            raise ValueError("no row has an operation, a dtype and our time")
    except OSError as error:
        raise InvalidProblem(f"benchmark results {path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidProblem(
            f"benchmark results {path} are not of a form this version reads ({type(error).__name__}: {error})"
        ) from error
    parts = [str(environment[key]) for key in ("gpu", "date") if environment.get(key)]
    return {
        "title": ", ".join([path.stem, *parts]),
        "copy_bandwidth": _number(data.get("copy_bandwidth")),
        "rows": rows,
    }


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
