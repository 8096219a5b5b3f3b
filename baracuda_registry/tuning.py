"""Measure a problem's variants on the device and let the times choose.

`tune` times every eligible variant on buffers of its own and keeps the times in the user's cache folder, under the
problem's shape bucket.  Selections of problems of that bucket on that device then weigh them (see `select`): the
fastest replaces the rank's choice where it wins by `MARGIN`.  Plans that were selected before keep their variant.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from . import measured
from .bucket import bucket_of
from .device import Device
from .errors import InvalidProblem
from .manifest import Variant
from .measure import ClockStopwatch, GraphStopwatch, Stopwatch, Timing, measure, sets_for
from .operands import Operand
from .plans.base import Plan, forget_plans
from .preference import PlanPreference
from .select import rank_order

_MEMORY_SHARE = 0.5
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Tuning:
    """What `tune` found.

    Attributes:
        plan: the plan that is selected now.
        timings: by variant, in the order of the ranks.
        bucket: the shape bucket that they speak for.
        sets: how many buffer sets the calls rotated over.
        stored: whether they were kept.
    """

    plan: Plan[Any, Any]
    timings: Mapping[Variant, Timing]
    bucket: str
    sets: int
    stored: bool

    @property
    def fastest(self) -> Variant:
        """The variant with the least median."""
        return min(self.timings, key=lambda variant: self.timings[variant].median)

    def __str__(self) -> str:
        lines = [f"{type(self.plan).__name__} on {self.plan.device.name}, bucket {self.bucket}:"]
        for variant, timing in self.timings.items():
            mark = "chosen" if variant is self.plan.variant else "      "
            lines.append(f"  {mark} {variant.id}: {timing.median * 1e6:.4g} µs")
        return "\n".join(lines)


def tune(
    plan: type[Plan[Any, Any]] | Plan[Any, Any],
    desc: Any = None,
    pref: PlanPreference | None = None,
    *,
    device: Device | None = None,
    stopwatch: Stopwatch | None = None,
    make: Callable[[Operand], Any] | None = None,
    rounds: int = 7,
    seconds: float = 4e-3,
    store: bool = True,
) -> Tuning:
    """Time every eligible variant of a problem, and keep the times for selections to come.

    Args:
        plan: a plan class, or a plan, whose problem, device and preference are then meant.
        desc: the problem, with a plan class.
        pref: limits that variants must keep; a pinned variant is the only one timed.
        device: default the current one.
        stopwatch: what takes the samples; default device time on a GPU, a clock on the host.
        make: makes an array for an operand; default random values of the device's own array library.
        rounds: samples of each variant.
        seconds: about how long one sample takes.
        store: whether to keep the times in the user's cache folder.

    Raises:
        InvalidProblem: `desc` is missing, or given beside a plan; or the problem is empty, so that there is nothing to time.
        NoVariant, CompileError, LaunchError: as `select`, `prepare` and `run` do.
        OSError: the times cannot be kept.
    """
    if isinstance(plan, Plan):
        if desc is not None or pref is not None or device is not None:
            raise InvalidProblem("tune: desc, pref and device are the plan's own, want None beside a plan")
        plan_type, desc, pref, device = type(plan), plan.descriptor, plan.preference, plan.device
    else:
        plan_type = plan
    first = plan_type.select(None, desc, pref, device=device)
    device = first.device
    contenders = pinned(first)
    prepare(contenders)
    timings, sets = time_plans(contenders, stopwatch or _stopwatch(device), make, rounds, seconds)
    bucket = bucket_of(plan_type.bucket, first.selection.trace.facts)
    stored = store and not device.is_host
    if stored:
        keep(first, bucket, {variant.id: timing.median for variant, timing in timings.items()})
    chosen = plan_type.select(None, desc, pref, device=device)
    return Tuning(chosen, timings, bucket, sets, stored)


def pinned(plan: Plan[Any, Any]) -> list[Plan[Any, Any]]:
    """A plan for each eligible variant of a plan's problem, in the order of the ranks."""
    order = sorted(plan.selection.trace.candidates, key=rank_order)
    return [
        type(plan).select(
            None, plan.descriptor, replace(plan.preference, variant=c.variant.id), device=plan.device
        )
        for c in order
    ]


def by_rank(plan: Plan[Any, Any]) -> Variant:
    """The variant that ranks alone choose for a plan's problem."""
    return min(plan.selection.trace.candidates, key=rank_order).variant


def prepare(plans: Iterable[Plan[Any, Any]]) -> None:
    """Compile and load in parallel threads.

    Raises:
        CompileError, LaunchError: the first that fails.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda plan: plan.prepare(), plans):
            pass


def time_plans(
    plans: Sequence[Plan[Any, Any]],
    stopwatch: Stopwatch,
    make: Callable[[Operand], Any] | None = None,
    rounds: int = 7,
    seconds: float = 4e-3,
    hopeless: float = math.inf,
) -> tuple[dict[Variant, Timing], int]:
    """Times of plans of one problem, by variant, and how many buffer sets they rotated over.

    Args:
        plans: prepared plans, alike but for their variants.
        stopwatch: what takes the samples.
        make: makes an array for an operand; default random values.
        rounds: samples of each.
        seconds: about how long one sample takes.
        hopeless: variants that a probe shows to be so many times slower than the best get one sample.

    Raises:
        InvalidProblem: the problem is empty.
    """
    first = plans[0]
    operands = [operand for operand in first.argument_table if operand.present]
    if all(operand.nbytes == 0 for operand in operands if operand.vector):
        raise InvalidProblem(f"tune: {type(first).__name__}: the problem is empty, there is nothing to time")
    nbytes = sum(operand.nbytes for operand in operands)
    device = first.device
    limit = int(device.memory_bytes * _MEMORY_SHARE) if device.memory_bytes else None
    sets = sets_for(nbytes, device, limit)
    making = make or _maker(device)
    bundles = [
        first.arguments_type(**{o.name: making(o) if o.present else None for o in first.argument_table})
        for _ in range(sets)
    ]
    largest = max(plan.workspace_size for plan in plans)
    space = making(_workspace(largest)) if largest else None

    def caller(plan: Plan[Any, Any]) -> Callable[[int], None]:
        return lambda index: plan.run(None, space, bundles[index])

    contenders = {plan.variant.id: caller(plan) for plan in plans}
    seen = measure(contenders, sets, stopwatch, rounds=rounds, seconds=seconds, hopeless=hopeless)
    return {plan.variant: seen[plan.variant.id] for plan in plans}, sets


def keep(plan: Plan[Any, Any], bucket: str, seconds: Mapping[str, float]) -> None:
    """Put times of a plan's problem into the user's table of its device, and forget memoised plans.

    Raises:
        OSError: the table cannot be written.
    """
    operation, digest = plan.measured_as
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()

    def change(table: measured.Table) -> measured.Table:
        about = {**table.about, "date": today}
        return replace(table.with_times(operation, digest, bucket, seconds), about=about)

    name = plan.device.name
    measured.update(measured.user_path(measured.slug(name)), name, change)
    forget_plans()


def _stopwatch(device: Device) -> Stopwatch:
    return ClockStopwatch() if device.is_host else GraphStopwatch()


def _workspace(nbytes: int) -> Operand:
    from .elements import ElementKind

    return Operand("workspace", ElementKind.U8, (nbytes,), "[bytes]", output=True)


def _maker(device: Device) -> Callable[[Operand], Any]:
    """Makes arrays of random values that every operand may have: a scale and a deviation must be positive, codes small.

    A chunk of them is repeated, which no kernel notices.
    """
    import numpy as np

    xp: Any = device.array_module()
    rng = np.random.default_rng(0)
    chunks: dict[Any, Any] = {}

    def chunk(operand: Operand) -> Any:
        dtype = operand.element.dtype
        if dtype not in chunks:
            count = _CHUNK_BYTES // dtype.itemsize
            values = rng.integers(0, 8, count) if dtype.kind in "iu" else rng.uniform(0.5, 1.5, count)
            chunks[dtype] = xp.asarray(values.astype(dtype).view(np.uint8))
        return chunks[dtype]

    def make(operand: Operand) -> Any:
        raw = xp.empty(max(1, math.ceil(operand.nbytes / _CHUNK_BYTES)) * _CHUNK_BYTES, np.uint8)
        raw.reshape(-1, _CHUNK_BYTES)[...] = chunk(operand)
        return xp.ndarray(operand.shape, operand.element.dtype, raw.data)

    return make
