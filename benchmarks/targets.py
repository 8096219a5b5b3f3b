"""The targets as data: which rows of the target table apply to a measured case, and whether they are met.

Targets of bandwidth are shares of the copy bandwidth of the same run, at the bytes that must move.  Where a mere copy
of the same size stays below a target too (the problem is too small to fill the device), a row that is not met is
*out of reach*: it is counted by itself, neither met nor missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from .case import NORM_OPS, POOL_OPS, QUANT_OPS, Case
from .results import Report, Row

CLUSTER_BYTES = 8 * (256 + 227) * 1024
"""Registers and shared memory of a portable thread-block cluster: eight multiprocessors of an H200."""

TINY_GROUP_ELEMENTS = 128
MANY_GROUPS = 50_000
SMALL_WINDOW = 8
GROWTH = 1.1
"""How much longer a window of 64 may take than one of 16 and still "not grow"."""

HOST_ALLOWANCE_US = 2.0

MET, MISSED, OUT_OF_REACH = "met", "missed", "out of reach"


@dataclass(frozen=True)
class Target:
    """A row of the target table.

    Attributes:
        text: the row as a reader would say it.
        applies: whether it speaks of a case.
        threshold: the least share, or the largest ratio.
        kind: `share` of the copy bandwidth (at least), or `ratio` to PyTorch's time (at most).
    """

    text: str
    applies: Callable[[Case], bool]
    threshold: float
    kind: str = "share"


@dataclass(frozen=True)
class Verdict:
    """A target held against one measurement: `status` is met, missed or out of reach."""

    target: str
    threshold: float
    value: float
    status: str


def _backward(case: Case) -> bool:
    return case.op.endswith("_backward")


def _norm(case: Case) -> bool:
    return case.op in NORM_OPS and not case.tiny and not _many_tiny_groups(case)


def _many_tiny_groups(case: Case) -> bool:
    if case.op not in NORM_OPS or case.tiny:
        return False
    groups = case.shape[0] * case.groups
    return groups >= MANY_GROUPS and case.count // groups <= TINY_GROUP_ELEMENTS


def _fits_cluster(case: Case) -> bool:
    """Whether a group, with both tensors of a backward, fits the on-chip memory of a cluster."""
    return case.group_bytes * (2 if _backward(case) else 1) <= CLUSTER_BYTES


def _pool(case: Case) -> bool:
    return case.op in POOL_OPS and not case.tiny


def _exact_power(case: Case) -> bool:
    return float(case.parameters["p"]) in (1.0, 2.0, 3.0)


def _small_window(case: Case) -> bool:
    return int(case.parameters["k"]) <= SMALL_WINDOW


TARGETS: tuple[Target, ...] = (
    Target(
        "norm backward, a group fits a cluster; f16, bf16, f32",
        lambda c: _norm(c) and _backward(c) and _fits_cluster(c) and c.dtype != "f64",
        0.85,
    ),
    Target(
        "norm forward, a group fits a cluster; f16, bf16, f32",
        lambda c: _norm(c) and not _backward(c) and _fits_cluster(c) and c.dtype != "f64",
        0.88,
    ),
    Target(
        "norm backward, groups larger than a cluster; f16, bf16, f32",
        lambda c: _norm(c) and _backward(c) and not _fits_cluster(c) and c.dtype != "f64",
        0.60,
    ),
    Target(
        "norm forward, groups larger than a cluster; f16, bf16, f32",
        lambda c: _norm(c) and not _backward(c) and not _fits_cluster(c) and c.dtype != "f64",
        0.65,
    ),
    Target("norm backward, f64", lambda c: _norm(c) and _backward(c) and c.dtype == "f64", 0.75),
    Target("norm forward, f64", lambda c: _norm(c) and not _backward(c) and c.dtype == "f64", 0.80),
    Target("norms, many tiny groups", _many_tiny_groups, 0.60),
    Target(
        "LP pooling, p of 1, 2 or 3, window up to 8",
        lambda c: _pool(c) and _exact_power(c) and _small_window(c),
        0.92,
    ),
    Target(
        "LP pooling, general p, window up to 8, f32",
        lambda c: _pool(c) and not _exact_power(c) and _small_window(c) and c.dtype == "f32",
        0.85,
    ),
    Target(
        "LP pooling, general p, window up to 8, f16 and bf16",
        lambda c: _pool(c) and not _exact_power(c) and _small_window(c) and c.dtype in ("f16", "bf16"),
        0.65,
    ),
    Target(
        "LP pooling, window of 64, stride 1",
        lambda c: _pool(c) and c.parameters["k"] == 64 and c.parameters["s"] == 1,
        0.60,
    ),
    Target(
        "quantize and dequantize, groups of 16 and more",
        lambda c: c.op in QUANT_OPS and not c.tiny and c.parameters["g"] >= 16,
        0.94,
    ),
    Target("tiny problems, time over PyTorch's", lambda c: c.tiny, 0.5, "ratio"),
)

WINDOW_GROWTH = "LP pooling backward, window of 64 over window of 16, stride 1"
HOST_SAME = "host cost of run over the bare launches, same bundle, µs"
HOST_FRESH = "host cost of run over the bare launches, fresh bundle, µs"


def case_of(row: Row) -> Case:
    """The case of a results row."""
    return Case(
        row["op"], row["dtype"], tuple(row["shape"]), row["parameters"], row.get("origin", ""), row["suite"]
    )


def torch_ratio(row: Row) -> float | None:
    """Our time over PyTorch eager's, if that was right and timed."""
    peer = row["peers"].get("torch", {})
    return row["times"]["median_us"] / peer["times"]["median_us"] if "times" in peer else None


def judge(row: Row) -> list[Verdict]:
    """The targets that apply to a row, each with its verdict; those that lack a peer's time are left out."""
    case = case_of(row)
    verdicts = []
    for target in TARGETS:
        if not target.applies(case):
            continue
        if target.kind == "ratio":
            ratio = torch_ratio(row)
            if ratio is not None:
                verdict = at_most(target.text, target.threshold, ratio)
                # The same bytes cannot be moved in less than a copy takes.
                if verdict.status == MISSED and row["copy"]["median_us"] * ratio > target.threshold * _median(
                    row
                ):
                    verdict = replace(verdict, status=OUT_OF_REACH)
                verdicts.append(verdict)
            continue
        status = MET if row["share"] >= target.threshold else MISSED
        if status == MISSED and (row.get("copy_share") or target.threshold) < target.threshold:
            status = OUT_OF_REACH
        verdicts.append(Verdict(target.text, target.threshold, row["share"], status))
    return verdicts


def at_most(text: str, threshold: float, value: float) -> Verdict:
    """A verdict on something that must not be larger."""
    return Verdict(text, threshold, value, MET if value <= threshold else MISSED)


def judge_windows(rows: Iterable[Row]) -> list[tuple[str, Verdict]]:
    """Whether the backward's cost grows with the window: of two cases that differ in nothing else."""
    found: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in rows:
        q = row["parameters"]
        if row["op"] == "lp_pool1d_backward" and q["s"] == 1 and q["k"] in (16, 64):
            found.setdefault((row["dtype"], *row["shape"], q["p"]), {})[q["k"]] = row
    return [
        (pair[64]["case"], at_most(WINDOW_GROWTH, GROWTH, _median(pair[64]) / _median(pair[16])))
        for pair in found.values()
        if len(pair) == 2
    ]


def judge_host(rows: Iterable[Row]) -> list[tuple[str, Verdict]]:
    """What `run` costs beyond its bare launches."""
    verdicts = []
    for row in rows:
        if row["kind"] == "plan":
            for text, name in ((HOST_SAME, "same"), (HOST_FRESH, "fresh")):
                over = row[name]["median_us"] - row["bare"]["median_us"]
                verdicts.append((f"{row['name']} {row['arrays']}", at_most(text, HOST_ALLOWANCE_US, over)))
    return verdicts


def verdicts(report: Report) -> list[tuple[str, Verdict]]:
    """Every verdict of a report, with what it is of."""
    found = [(row["case"], verdict) for row in report["cases"] for verdict in judge(row)]
    return found + judge_windows(report["cases"]) + judge_host(report["host"])


def _median(row: Row) -> float:
    return float(row["times"]["median_us"])
