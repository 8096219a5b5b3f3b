"""A case made real: buffers, our plan, the copy of the same size, the peers, and the check of everybody's results.

A problem makes as many buffer sets as it takes to leave the L2 cache, and for every contender a function that enqueues
one call on one set.  Tiny problems get few sets, so that all of them stay in the L2 cache: there the latency of a call
is what counts.  Correctness is checked on the same buffers, against PyTorch in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import baracuda_registry as br

from . import norm, peers, pool, quant
from .case import FAMILIES, Case
from .peers import Buffers, Spec

__all__ = ["STREAM", "Case", "Problem", "make"]

L2_MULTIPLE = 4
TINY_SETS = 8

TOLERANCE = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2e-6, "f64": 1e-13}
"""Largest ‖got − want‖ / ‖want‖ of ours: one rounding of 16-bit results; a few of f32's and f64's."""

PEER_FACTOR = 16
"""How much wider peers are judged: they keep statistics and partial sums in 16 bits.  Their error is reported."""

CODES_TOLERANCE = 1e-3
"""For peers whose result depends on rounded codes: an approximate division moves a few of them by one."""

_SPECS: dict[str, Callable[[Case], Spec]] = {"norm": norm.spec, "pool": pool.spec, "quant": quant.spec}


@dataclass
class Problem:
    """A case with its buffers.

    Attributes:
        case: what it is.
        plan: our plan.
        sets: buffer sets; the contenders' functions take an index below it.
        floor_bytes: bytes that must move.
        ours: enqueues one call of the plan.
        copy: enqueues a copy that moves `floor_bytes`.
        error: runs the plan, or what `launch_with` made, on poisoned outputs; returns the relative error of the results.
        tolerance: the largest error that counts as correct.
        peer: makes a peer's function by its name.
        peer_error: runs a peer's function and returns its relative error.
        peer_tolerance: the same for peers.
        launch_with: the plan's function with another variant pinned.
    """

    case: Case
    plan: Any
    sets: int
    floor_bytes: int
    ours: Callable[[int], Any]
    copy: Callable[[int], Any]
    error: Callable[..., float]
    tolerance: float
    peer: Callable[[str], peers.Call]
    peer_error: Callable[[peers.Call], float]
    peer_tolerance: float
    launch_with: Callable[[Any], Callable[[int], Any]]


def spec_of(case: Case) -> Spec:
    """What the case's family says of it."""
    family = next(name for name, ops in FAMILIES.items() if case.op in ops)
    return _SPECS[family](case)


def plan_of(case: Case, device: br.Device) -> Any:
    """The plan that is measured."""
    spec = spec_of(case)
    return spec.plan_type.select(None, spec.descriptor, device=device)


def sets_for(case: Case, device: br.Device) -> int:
    """How many buffer sets: a few of a tiny problem, else as many as together are several times the L2 cache."""
    return TINY_SETS if case.tiny else max(2, math.ceil(L2_MULTIPLE * device.l2_bytes / case.floor_bytes))


def make(case: Case, device: br.Device) -> Problem:
    """Buffers and contenders of a case."""
    spec = spec_of(case)
    sets = sets_for(case, device)
    buffers = [spec.make_set() for _ in range(sets)]
    fields = spec.plan_type.arguments_type.__dataclass_fields__
    bundles = [spec.plan_type.arguments_type(**{k: v for k, v in s.items() if k in fields}) for s in buffers]
    plan = spec.plan_type.select(None, spec.descriptor, device=device)
    want: list[tuple[Any, ...]] = []

    def wanted() -> tuple[Any, ...]:
        if not want:
            want.append(spec.oracle(buffers[0]))
        return want[0]

    def launch_with(variant: Any) -> Callable[[int], Any]:
        pinned = br.PlanPreference(variant=variant.id)
        return _runner(spec.plan_type.select(None, spec.descriptor, pinned, device=device), bundles)

    ours = _runner(plan, bundles)

    def error(call: Callable[[int], Any] = ours) -> float:
        for name in spec.outputs:
            poison(buffers[0][name])
        call(0)
        return relative([buffers[0][name] for name in spec.outputs], wanted())

    coded = case.op in ("quantize", "quantize_backward")
    return Problem(
        case=case,
        plan=plan,
        sets=sets,
        floor_bytes=case.floor_bytes,
        ours=ours,
        copy=_copier(case.floor_bytes, sets),
        error=error,
        tolerance=0.0 if case.op == "quantize" else TOLERANCE[case.dtype],
        peer=lambda name: peers.make(name, spec, buffers),
        peer_error=lambda call: relative(call(0), wanted()),
        peer_tolerance=max(PEER_FACTOR * TOLERANCE[case.dtype], CODES_TOLERANCE if coded else 0.0),
        launch_with=launch_with,
    )


def poison(output: Any) -> None:
    """Fill an output with what no right result is."""
    output.fill_(float("nan") if output.is_floating_point() else 77)


def relative(got: Any, want: Any) -> float:
    """‖got − want‖ / ‖want‖ in float64, worst over the outputs; infinite where anything is not finite."""
    if len(got) != len(want):
        raise ValueError(f"{len(got)} outputs, want {len(want)}")
    worst = 0.0
    for a, b in zip(got, want):
        exact = b.double().flatten()
        difference = torch.linalg.vector_norm(a.double().flatten() - exact)
        error = float(difference / torch.linalg.vector_norm(exact).clamp_min(1e-30))
        worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst


def _runner(plan: Any, bundles: list[Any]) -> Callable[[int], Any]:
    needed = plan.workspace_size
    space = torch.empty(needed, dtype=torch.uint8, device="cuda") if needed else None
    plan.prepare()
    return lambda i: plan.run(None, space, bundles[i])


def _copier(floor_bytes: int, sets: int) -> Callable[[int], Any]:
    """A kernel that reads one half of the bytes and writes the other."""
    count = max(1, floor_bytes // 2 // 4)
    source = [torch.randn(count, device="cuda") for _ in range(sets)]
    target = [torch.empty_like(part) for part in source]
    return lambda i: torch.neg(source[i], out=target[i])


_stream: Any = None


def STREAM() -> Any:  # noqa: N802
    """The one side stream on which everything is warmed up, captured and replayed."""
    global _stream
    if _stream is None:
        _stream = torch.cuda.Stream()
    return _stream


def one_set(case: Case) -> tuple[Spec, list[Buffers]]:
    """A case with a single buffer set and no plan, for compiling peers ahead."""
    spec = spec_of(case)
    return spec, [spec.make_set()]
