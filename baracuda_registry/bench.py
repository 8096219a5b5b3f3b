"""A quick measurement of plans on this machine's GPU: device time of every eligible variant, beside a device copy.

A CUDA graph holds many calls over rotating sets of buffers that together are several times the L2 cache, so that no
call finds its data there.  Contenders are interleaved, round by round, and each gets the median of its rounds.  The
project's own benchmarks, with peers, are in `benchmarks/`; this is what a user runs to see where a GPU stands.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .device import Device
from .elements import ElementKind
from .errors import DeviceMismatch
from .inspect.costs import cost
from .inspect.ops import OpEntry, describe_problem
from .operands import Operand
from .preference import PlanPreference

_L2_MULTIPLE = 4
_MOST_SETS = 64
_MEMORY_SHARE = 0.4
_TARGET_SECONDS = 4e-3
_MOST_CALLS = 400
_COPY_BYTES = 1 << 29

Call = Callable[[int], None]
"""Enqueue one call on buffer set `i`."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One variant's time for a problem.

    Attributes:
        variant: its id.
        design: its design.
        chosen: whether selection chooses it.
        seconds: median device time of one call.
        spread: (largest − smallest) / median of the rounds.
        share: bytes that must move over the time, as a share of the copy bandwidth.
    """

    variant: str
    design: str
    chosen: bool
    seconds: float
    spread: float
    share: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """A problem's timings, fastest first.

    Attributes:
        op: the operation's text.
        problem: the descriptor as `field=value` texts.
        total_bytes: bytes that must move.
        sets: rotating buffer sets.
        timings: of every eligible variant.
    """

    op: str
    problem: tuple[str, ...]
    total_bytes: int
    sets: int
    timings: tuple[Timing, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, times in seconds."""
        return {
            "op": self.op,
            "problem": list(self.problem),
            "total_bytes": self.total_bytes,
            "sets": self.sets,
            "timings": [
                {
                    name: getattr(timing, name)
                    for name in ("variant", "design", "chosen", "seconds", "spread", "share")
                }
                for timing in self.timings
            ],
        }


class Clock(Protocol):
    """Makes arrays on a device and takes times there."""

    device: Device

    def array(self, operand: Operand) -> Any:
        """Plausible values for an operand."""

    def workspace(self, nbytes: int) -> Any:
        """Workspace; None for 0 bytes."""

    def stream(self) -> Any:
        """Where calls are enqueued."""

    def copy_bandwidth(self) -> float:
        """Bytes a second, read plus written, of a large copy."""

    def times(self, calls: Mapping[str, Call], sets: int) -> dict[str, list[float]]:
        """Seconds of one call in every round, by contender."""


def measure(clock: Clock, entry: OpEntry, descriptor: Any) -> Measurement:
    """Time the chosen and every other eligible variant.

    Args:
        clock: where and how times are taken.
        entry: the operation.
        descriptor: the problem.

    Raises:
        NoVariant: nothing serves the problem.
        CompileError, LaunchError: a variant does not compile, load or launch.
    """
    device = clock.device
    chosen = entry.plan.select(None, descriptor, device=device)
    needs = cost(descriptor, entry.op)
    bundles = _bundles(clock, chosen, needs.total_bytes)
    calls: dict[str, Call] = {}
    for candidate in chosen.selection.trace.candidates:
        pinned = PlanPreference(variant=candidate.variant.id)
        plan = entry.plan.select(None, descriptor, pinned, device=device)
        calls[candidate.variant.id] = _caller(clock, plan, bundles)
    bandwidth = clock.copy_bandwidth()
    timings = []
    for variant, seen in clock.times(calls, len(bundles)).items():
        median = statistics.median(seen)
        timings.append(
            Timing(
                variant=variant,
                design=variant.rsplit("/", 1)[1],
                chosen=variant == chosen.variant.id,
                seconds=median,
                spread=(max(seen) - min(seen)) / median,
                share=needs.total_bytes / median / bandwidth,
            )
        )
    timings.sort(key=lambda timing: timing.seconds)
    problem = tuple(describe_problem(descriptor))
    return Measurement(entry.name, problem, needs.total_bytes, len(bundles), tuple(timings))


def _bundles(clock: Clock, plan: Any, nbytes: int) -> list[Any]:
    """Argument bundles that together are several times the L2 cache, as far as memory allows."""
    device = clock.device
    wanted = max(2, math.ceil(_L2_MULTIPLE * device.l2_bytes / max(1, nbytes)))
    allowed = max(1, int(_MEMORY_SHARE * device.memory_bytes / max(1, nbytes)))
    return [
        plan.arguments_type(
            **{
                operand.name: clock.array(operand) if operand.present else None
                for operand in plan.argument_table
            }
        )
        for _ in range(min(wanted, allowed, _MOST_SETS))
    ]


def _caller(clock: Clock, plan: Any, bundles: list[Any]) -> Call:
    workspace = clock.workspace(plan.workspace_size)
    stream = clock.stream()
    plan.prepare()

    def call(index: int) -> None:
        plan.run(stream, workspace, bundles[index])

    return call


class GpuClock:
    """Times on the current GPU.

    Args:
        rounds: rounds of each contender.

    Raises:
        DeviceMismatch: there is no usable GPU.
    """

    def __init__(self, rounds: int = 7) -> None:
        self.device = Device.current()
        if self.device.execution != "cuda":
            raise DeviceMismatch("measuring needs a GPU, and none is usable here; `doctor` says why")
        self._rounds = rounds
        self._xp: Any = self.device.array_module()
        self._stream = self._xp.cuda.Stream(non_blocking=True)
        self._copy: float | None = None

    def stream(self) -> Any:
        """The one stream on which everything is captured and replayed."""
        return self._stream

    def workspace(self, nbytes: int) -> Any:
        """Workspace; None for 0 bytes."""
        return self._xp.empty(nbytes, self._xp.uint8) if nbytes else None

    def array(self, operand: Operand) -> Any:
        """Random values, positive where they divide; never zeros, which cost less to move."""
        xp, dtype = self._xp, operand.element.dtype
        if operand.element in (ElementKind.S8, ElementKind.U8, ElementKind.I32):
            return xp.random.randint(0, 100, operand.shape).astype(dtype)
        values = xp.random.standard_normal(operand.shape, dtype=xp.float32)
        if operand.name in ("scale", "saved_rstd", "y"):
            values = xp.abs(values) + 0.5
        return values.astype(dtype)

    def copy_bandwidth(self) -> float:
        """Measured once: the better of the driver's copy and a kernel's."""
        if self._copy is None:
            xp, count = self._xp, min(_COPY_BYTES, self.device.memory_bytes // 16) // 4
            source = [xp.random.standard_normal(count, dtype=xp.float32) for _ in range(3)]
            target = [xp.empty_like(part) for part in source]

            def copy(index: int) -> None:
                xp.copyto(target[index], source[index])

            def negate(index: int) -> None:
                xp.negative(source[index], out=target[index])

            seen = self.times({"driver": copy, "kernel": negate}, 3)
            self._copy = 2 * 4 * count / min(map(statistics.median, seen.values()))
        return self._copy

    def times(self, calls: Mapping[str, Call], sets: int) -> dict[str, list[float]]:
        """Seconds of one call in every round, by contender."""
        self._xp.cuda.get_current_stream().synchronize()  # what the arrays were made on
        graphs: dict[str, tuple[Any, int]] = {}
        for name, call in calls.items():
            graph, count = self._capture(call, sets, sets)
            self._once(graph, count)
            wanted = int(_TARGET_SECONDS / max(self._once(graph, count), 1e-7))
            if wanted > count:
                graph, count = self._capture(call, sets, min(wanted, _MOST_CALLS))
            graphs[name] = (graph, count)
        seen: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(self._rounds):
            for name, (graph, count) in graphs.items():
                seen[name].append(self._once(graph, count))
        return seen

    def _capture(self, call: Call, sets: int, count: int) -> tuple[Any, int]:
        with self._stream:
            call(0)
            self._stream.synchronize()
            self._stream.begin_capture()
            try:
                for index in range(count):
                    call(index % sets)
            finally:
                graph = self._stream.end_capture()
        return graph, count

    def _once(self, graph: Any, count: int) -> float:
        start, stop = (self._xp.cuda.Event() for _ in range(2))
        start.record(self._stream)
        graph.launch(self._stream)
        stop.record(self._stream)
        stop.synchronize()
        return float(self._xp.cuda.get_elapsed_time(start, stop)) * 1e-3 / count
