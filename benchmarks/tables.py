"""What the results say, as Markdown: the tables of docs/performance.md and the README's line."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence

from . import results, shapes, targets
from .case import FAMILIES, ITEM_BYTES, OPS
from .results import Report, Row
from .targets import MET, MISSED, OUT_OF_REACH, Verdict

PEER_NAMES = {"torch": "PyTorch eager", "torch.compile": "`torch.compile`", "liger": "Liger"}
COMPILED = "torch.compile"
NOISE = 0.02
"""Times closer than this count as equal."""
MARKS = {MET: "✓", MISSED: "✗", OUT_OF_REACH: "○"}
TITLES = {"norm": "Normalization", "pool": "LP pooling", "quant": "Quantization"}
NAMES = {
    "group_norm": "GroupNorm forward",
    "group_norm_backward": "GroupNorm backward",
    "instance_norm": "InstanceNorm forward",
    "instance_norm_backward": "InstanceNorm backward",
    "lp_pool1d": "LP pooling forward",
    "lp_pool1d_backward": "LP pooling backward",
    "quantize": "quantize",
    "quantize_backward": "quantize backward",
    "dequantize": "dequantize",
    "dequantize_backward": "dequantize backward",
}


# Numbers of a row ---------------------------------------------------------------------------------------------------


def micros(value: float | None) -> str:
    """Microseconds with about three digits."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def percent(value: float | None) -> str:
    """A share."""
    return "" if value is None else f"{value:.0%}" if value >= 0.0995 else f"{value:.1%}"


def times(value: float | None) -> str:
    """A ratio, `2.4×`."""
    return "" if value is None else f"{value:.0f}×" if value >= 9.95 else f"{value:.2g}×"


def peer_times(row: Row) -> dict[str, float]:
    """Microseconds of the peers that were right and could be timed."""
    return {
        name: peer["times"]["median_us"]
        for name, peer in row["peers"].items()
        if "times" in peer and peer.get("correct") is not False
    }


def speedup(row: Row, name: str | None = None) -> float | None:
    """A peer's time over ours; of the fastest peer if none is named."""
    seen = peer_times(row)
    if name is not None:
        seen = {key: value for key, value in seen.items() if key == name}
    return min(seen.values()) / row["times"]["median_us"] if seen else None


def speedups(rows: Iterable[Row], name: str | None = None) -> list[float]:
    """Speed-ups of several rows; without a name, of rows for which `torch.compile` took part, or the best is not known."""
    chosen = [row for row in rows if name is not None or COMPILED in peer_times(row)]
    return [value for row in chosen if (value := speedup(row, name)) is not None]


def peer_cell(row: Row, name: str) -> str:
    """A peer's time, or why there is none."""
    peer = row["peers"].get(name)
    if peer is None or "absent" in peer:
        return ""
    if "failed" in peer:
        return "failed"
    if peer["correct"] is False:
        return "wrong"
    return micros(peer["times"]["median_us"]) + ("" if peer["correct"] else "*")


def label(row: Row) -> str:
    """Shape and parameters."""
    return targets.case_of(row).label.replace(" ", ", ", 1)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a header that starts with `>` is aligned to the right."""
    lines = ["| " + " | ".join(name.lstrip(">") for name in header) + " |"]
    lines.append("|" + "|".join("---:" if name.startswith(">") else "---" for name in header) + "|")
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines) + "\n"


def ordered(rows: Iterable[Row]) -> list[Row]:
    """By operation, dtype, then as the shapes are listed; shapes that are listed no more come last."""
    places = {
        case.key: place for place, case in enumerate(shapes.cases("full", tuple(FAMILIES), tuple(ITEM_BYTES)))
    }
    kinds = list(ITEM_BYTES)
    return sorted(
        rows,
        key=lambda row: (
            OPS.index(row["op"]),
            kinds.index(row["dtype"]),
            places.get(row["case"], len(places)),
        ),
    )


# Sections -----------------------------------------------------------------------------------------------------------


def machine(report: Report) -> str:
    """Where, when and with what: a row a run."""
    counts: dict[str, int] = {}
    for row in report["cases"]:
        counts[row["run"]] = counts.get(row["run"], 0) + 1
    rows = []
    for run in report["runs"]:
        version = run["versions"]
        state = run["gpu_state"].get("after_copy", {})
        source = run["commit"][:10] if run["commit"] else run["source_digest"][:10]
        rows.append(
            (
                run["date"][:16].replace("T", " "),
                run["gpu"],
                state.get("driver_version", ""),
                state.get("clocks.sm", ""),
                f"{run['copy_bandwidth'] / 1e12:.2f}",
                version["torch"],
                version["triton"] or "",
                version["liger_kernel"] or "",
                version["cupy"],
                version["nvrtc"] or "",
                source,
                str(counts.get(run["id"], 0)),
            )
        )
    header = (
        "date (UTC)", "GPU", "driver", ">SM MHz", ">copy TB/s", "torch", "Triton", "Liger", "CuPy", "NVRTC",
        "sources", ">cases",
    )  # fmt: skip
    failed = "; ".join(f"{row['case']} ({row['error']})" for row in report["failures"])
    return table(header, rows) + (f"\nNot measured: {failed}.\n" if failed else "")


def target_table(report: Report) -> str:
    """Every row of the target table with how often it is met, and the worst case."""
    found: dict[str, list[tuple[str, Verdict]]] = {}
    for case, verdict in targets.verdicts(report):
        found.setdefault(verdict.target, []).append((case, verdict))
    rows = []
    order = [*(target.text for target in targets.TARGETS), targets.WINDOW_GROWTH]
    for text in sorted(found, key=lambda text: order.index(text) if text in order else len(order)):
        verdicts = found[text]
        share = any(text == target.text and target.kind == "share" for target in targets.TARGETS)
        limit = verdicts[0][1].threshold
        pick: Callable[..., tuple[str, Verdict]] = min if share else max
        case, worst = pick(verdicts, key=lambda pair: pair[1].value)
        count = {status: sum(v.status == status for _, v in verdicts) for status in MARKS}
        value = percent(worst.value) if share else f"{worst.value:.2f}"
        rows.append(
            (
                text,
                f"≥ {limit:.0%}" if share else f"≤ {limit:g}",
                *(str(count[status]) for status in MARKS),
                f"{value}, {case}",
            )
        )
    return f"{target_summary(report)}\n\n" + table(
        ("target", "limit", ">met", ">missed", ">out of reach", "worst"), rows
    )


def target_summary(report: Report) -> str:
    """Cases that meet their targets, in a sentence."""
    seen = [verdict.status for _, verdict in targets.verdicts(report)]
    reach = len(seen) - seen.count(OUT_OF_REACH)
    text = f"{seen.count(MET)} of {reach} targets are met"
    if seen.count(OUT_OF_REACH):
        text += f"; {seen.count(OUT_OF_REACH)} more are out of reach, because a copy of the same bytes is below them"
    return text + "."


def overview(report: Report) -> str:
    """A row an operation and dtype, tiny problems left out."""
    rows = []
    for op in OPS:
        for dtype in ITEM_BYTES:
            chosen = [r for r in report["cases"] if (r["op"], r["dtype"]) == (op, dtype) and not r["tiny"]]
            if not chosen:
                continue
            shares = [row["share"] for row in chosen]
            best = speedups(chosen)
            rows.append(
                (
                    NAMES[op],
                    dtype,
                    str(len(chosen)),
                    f"{percent(min(shares))} – {percent(max(shares))} ({percent(statistics.median(shares))})",
                    spread(speedups(chosen, "torch")),
                    spread(best),
                    f"{sum(value >= 1 - NOISE for value in best)} of {len(best)}" if best else "",
                )
            )
    return table(
        (
            "operation", "dtype", ">cases", ">share of copy (median)", ">over PyTorch", ">over the fastest peer",
            ">not slower than any",
        ),
        rows,
    )  # fmt: skip


def spread(values: Sequence[float]) -> str:
    """Smallest, largest and median ratio."""
    if not values:
        return ""
    return f"{times(min(values))} – {times(max(values))} ({times(statistics.median(values))})"


def case_table(rows: Iterable[Row]) -> str:
    """A row a case."""
    lines = []
    for row in ordered(rows):
        verdicts = [v for v in targets.judge(row) if v.target != targets.TARGETS[-1].text]
        goal = ", ".join(f"{v.threshold:.0%} {MARKS[v.status]}" for v in verdicts)
        lines.append(
            (
                row["dtype"],
                label(row),
                micros(row["times"]["median_us"]) + ("" if row["correct"] else " **wrong**"),
                f"{row['share']:.1%}",
                percent(row["copy_share"]),
                goal,
                *(peer_cell(row, name) for name in results.PEERS.values()),
                times(speedup(row)),
                row["design"],
            )
        )
    return table(
        (
            "dtype",
            "shape",
            ">µs",
            ">share",
            ">copy's",
            "target",
            ">torch",
            ">compile",
            ">Liger",
            ">×",
            "design",
        ),
        lines,
    )


def cases_section(report: Report) -> str:
    """Tables of the core cases, operation by operation; the others folded away."""
    parts = []
    for family, ops in FAMILIES.items():
        rows = [row for row in report["cases"] if row["op"] in ops and not row["tiny"]]
        if not rows:
            continue
        parts.append(f"### {TITLES[family]}\n")
        for op in ops:
            core = [row for row in rows if row["op"] == op and row["suite"] == "core"]
            more = [row for row in rows if row["op"] == op and row["suite"] != "core"]
            if core:
                parts.append(f"#### {NAMES[op]}\n\n{case_table(core)}")
            if more:
                title = f"{NAMES[op]}: {len(more)} further cases"
                parts.append(f"<details><summary>{title}</summary>\n\n{case_table(more)}\n</details>\n")
    return "\n".join(parts)


def tiny_table(report: Report) -> str:
    """Problems that stay in the L2 cache: latency of one call, and the ratio to PyTorch's."""
    lines = []
    for row in ordered(row for row in report["cases"] if row["tiny"]):
        ratio = targets.torch_ratio(row)
        goal = targets.judge(row)
        lines.append(
            (
                NAMES[row["op"]],
                row["dtype"],
                label(row),
                micros(row["times"]["median_us"]),
                micros(row["copy"]["median_us"]) if row["copy"] else "",
                *(peer_cell(row, name) for name in results.PEERS.values()),
                "" if ratio is None else f"{ratio:.2f} {MARKS[goal[0].status]}",
            )
        )
    header = (
        "operation",
        "dtype",
        "shape",
        ">µs",
        ">copy",
        ">torch",
        ">compile",
        ">Liger",
        ">÷ torch (≤ 0.5)",
    )
    return table(header, lines)


def host_table(report: Report) -> str:
    """Host cost of `run` beside its bare launches, and of the peers' calls."""
    plans = [row for row in report["host"] if row["kind"] == "plan"]
    if not plans:
        return "Not measured yet.\n"
    lines = []
    for row in plans:
        bare = row["bare"]["median_us"]
        cells = [micros(bare)]
        for name, verdict in zip(("same", "fresh"), (v for _, v in targets.judge_host([row]))):
            cells.append(f"{micros(row[name]['median_us'])} {MARKS[verdict.status]}")
        lines.append((row["name"], row["arrays"], str(row["launches"]), *cells))
    header = ("plan", "arrays", ">launches", ">bare launches", ">run, same", ">run, fresh")
    beside = "; ".join(
        f"{row['name']} ({row['arrays']}) {micros(row['call']['median_us'])} µs"
        for row in report["host"]
        if row["kind"] == "peer"
    )
    return table(header, lines) + f"\nBeside it: {beside}.\n"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def readme(report: Report) -> str:
    """The README's line."""
    rows = [row for row in report["cases"] if not row["tiny"]]
    if not rows:
        return "* **Measured.** `make bench` measures on your GPU, beside its peers.\n"
    parts = []
    for title, ops in (
        ("GroupNorm and InstanceNorm forward", ("group_norm", "instance_norm")),
        ("backward", ("group_norm_backward", "instance_norm_backward")),
        ("LP pooling forward", ("lp_pool1d",)),
        ("backward", ("lp_pool1d_backward",)),
        ("quantize, dequantize and their backwards", FAMILIES["quant"]),
    ):
        chosen = [row for row in rows if row["op"] in ops]
        if not chosen:
            continue
        figures = [f"{percent(statistics.median(row['share'] for row in chosen))} of the copy bandwidth"]
        if eager := speedups(chosen, "torch"):
            figures.append(f"{times(statistics.median(eager))} PyTorch eager")
        if best := speedups(chosen):
            figures.append(f"{times(statistics.median(best))} the fastest peer")
        parts.append(f"{title} {', '.join(figures)}")
    wrong = sum(not row["correct"] for row in rows)
    days = sorted({run["date"][:10] for run in report["runs"]})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    where = " and ".join(sorted({run["gpu"] for run in report["runs"]}))
    names = [
        PEER_NAMES[name] for name in results.PEERS.values() if any(name in peer_times(row) for row in rows)
    ]
    beside = f", beside {listed(names)} in the same process" if names else ""
    checked = f"{wrong} WRONG" if wrong else "each checked against float64"
    text = (
        f"* **Fast, and measured.** On an {where}{beside} ({when}, {len(rows)} cases, {checked}), medians:"
        f" {'; '.join(parts)}. {target_summary(report)} The tables, with what is not at the limit, are in"
        " [docs/performance.md](docs/performance.md)."
    )
    return (
        textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        + "\n"
    )


SECTIONS: dict[str, Callable[[Report], str]] = {
    "machine": machine,
    "targets": target_table,
    "overview": overview,
    "cases": cases_section,
    "tiny": tiny_table,
    "host": host_table,
}
