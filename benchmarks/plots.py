"""Plots of the core results as SVG that reads on light and on dark pages.

The background is transparent, and every ink has enough contrast with white and with near-black.  Texts stay texts, and
nothing in a file depends on when it was drawn, so that a plot changes only when a measurement does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from . import targets
from .case import FAMILIES
from .results import Report, Row
from .tables import NAMES, TITLES, label, ordered, speedup

INK, FAINT = "#768390", "#76839055"
COLORS = {"f16": "#d1842c", "bf16": "#2f81f7", "f32": "#2da44e", "f64": "#a371f7"}
MARKERS = {"f16": "v", "bf16": "o", "f32": "s", "f64": "D"}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "baracuda",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


def draw(report: Report, folder: Path) -> list[Path]:
    """Write the plots that the results allow; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in report["cases"] if row["suite"] == "core" and not row["tiny"]]
    written = []
    with matplotlib.rc_context(_STYLE):
        for family, ops in FAMILIES.items():
            chosen = [row for row in ordered(rows) if row["op"] in ops]
            timed = [row for row in chosen if speedup(row) is not None]
            if chosen:
                written.append(_save(_shares(chosen, TITLES[family]), folder / f"share-{family}.svg"))
            if timed:
                written.append(_save(_speedups(timed, TITLES[family]), folder / f"speedup-{family}.svg"))
    return written


def _lines(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by what a line of the plot shows: an operation on a shape, all dtypes."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{NAMES[row['op']]}  {label(row)}", []).append(row)
    return found


def _axes(lines: dict[str, list[Row]], title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(9, 0.9 + 0.21 * len(lines)), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("none")
    axes.set_yticks(range(len(lines)), list(lines), fontsize=8)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.grid(axis="y", color=FAINT, linewidth=0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", fontsize=11)
    return figure, axes


def _points(axes: Any, lines: dict[str, list[Row]], value: Any) -> None:
    for dtype, color in COLORS.items():
        points = [
            (value(row), height)
            for height, rows in enumerate(lines.values())
            for row in rows
            if row["dtype"] == dtype
        ]
        if points:
            axes.scatter(*zip(*points), s=22, color=color, marker=MARKERS[dtype], label=dtype, zorder=3)


def _legend(axes: Any) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0, handletextpad=0.2)


def _shares(rows: list[Row], title: str) -> Figure:
    """Share of the copy bandwidth, with the target of each line."""
    lines = _lines(rows)
    figure, axes = _axes(lines, title)
    _points(axes, lines, lambda row: 100 * row["share"])
    goals = [
        (100 * verdict.threshold, height)
        for height, group in enumerate(lines.values())
        for row in group
        for verdict in targets.judge(row)
    ]
    if goals:
        axes.scatter(*zip(*sorted(set(goals))), s=90, color=INK, marker="|", label="target", zorder=2)
    axes.axvline(100, color=INK, linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("share of the copy bandwidth at the bytes that must move, %")
    _legend(axes)
    return figure


def _speedups(rows: list[Row], title: str) -> Figure:
    """Time of the fastest right peer over ours."""
    lines = _lines(rows)
    figure, axes = _axes(lines, title)
    _points(axes, lines, speedup)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xlabel("time of the fastest peer over ours (right of 1× we are faster)")
    _legend(axes)
    return figure


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    # Matplotlib ends some lines with spaces, which a checkout need not keep.
    text = "\n".join(line.rstrip() for line in path.read_text(encoding="utf-8").splitlines())
    path.write_text(text + "\n", encoding="utf-8")
    return path
