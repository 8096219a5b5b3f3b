"""A quick measurement of plans on this machine's GPU: device time of every eligible variant, beside a device copy.

Times are taken as `tune` takes them (see `measure`), but nothing is kept and no choice changes.  The project's own
benchmarks, with peers, are in `benchmarks/`; this is what a user runs to see where a GPU stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .device import Device
from .errors import DeviceMismatch
from .inspect.costs import cost
from .inspect.ops import OpEntry, describe_problem
from .measure import GraphStopwatch, Stopwatch
from .measure import measure as interleave
from .tuning import pinned, prepare, time_plans

_COPY_BYTES = 1 << 29
_COPY_SETS = 3


@dataclass(frozen=True, slots=True)
class VariantTime:
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
    """A problem's times, fastest first.

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
    timings: tuple[VariantTime, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, times in seconds."""
        return {
            **asdict(self),
            "problem": list(self.problem),
            "timings": [asdict(timing) for timing in self.timings],
        }


class Bench:
    """Measures on one device.

    Args:
        rounds: samples of each variant.
        device: default the current GPU.
        stopwatch: what takes samples; default device time.
        copy: bytes a second of a copy, read plus written; default measured when first asked for.

    Raises:
        DeviceMismatch: there is no usable GPU.
    """

    def __init__(
        self,
        rounds: int = 7,
        *,
        device: Device | None = None,
        stopwatch: Stopwatch | None = None,
        copy: float | None = None,
    ) -> None:
        self.device = Device.current() if device is None else device
        if self.device.is_host:
            raise DeviceMismatch("measuring needs a GPU, and none is usable here; `doctor` says why")
        self._rounds = rounds
        self._stopwatch = GraphStopwatch() if stopwatch is None else stopwatch
        self._copy = copy

    def measure(self, entry: OpEntry, descriptor: Any, make: Callable[..., Any] | None = None) -> Measurement:
        """Time the chosen and every other eligible variant.

        Args:
            entry: the operation.
            descriptor: the problem.
            make: makes an array for an operand; default random values.

        Raises:
            NoVariant: nothing serves the problem.
            InvalidProblem: it is empty.
            CompileError, LaunchError: a variant does not compile, load or launch.
        """
        chosen = entry.plan.select(None, descriptor, device=self.device)
        contenders = pinned(chosen)
        prepare(contenders)
        seen, sets = time_plans(contenders, self._stopwatch, make, self._rounds)
        nbytes = cost(descriptor, entry.op).total_bytes
        bandwidth = self.copy_bandwidth()
        timings = [
            VariantTime(
                variant=variant.id,
                design=variant.design,
                chosen=variant is chosen.variant,
                seconds=timing.median,
                spread=(timing.most - timing.least) / timing.median,
                share=nbytes / timing.median / bandwidth,
            )
            for variant, timing in seen.items()
        ]
        timings.sort(key=lambda timing: timing.seconds)
        problem = tuple(describe_problem(descriptor))
        return Measurement(entry.name, problem, nbytes, sets, tuple(timings))

    def copy_bandwidth(self) -> float:
        """Measured once: the best of the driver's copy and of kernels that read and write 4, 8 or 16 bytes a thread."""
        if self._copy is None:
            xp: Any = self.device.array_module()
            count = math.ceil(min(_COPY_BYTES, self.device.memory_bytes / 16) / 16) * 4
            source = [xp.random.standard_normal(count, dtype=xp.float32) for _ in range(_COPY_SETS)]
            target = [xp.empty_like(part) for part in source]

            def copy(index: int) -> None:
                xp.copyto(target[index], source[index])

            def negate(kind: Any) -> Callable[[int], None]:
                pairs = [(a.view(kind), b.view(kind)) for a, b in zip(source, target)]
                return lambda index: xp.negative(pairs[index][0], out=pairs[index][1])

            ways = {kind: negate(getattr(xp, kind)) for kind in ("float32", "float64", "complex128")}
            seen = interleave({"driver": copy, **ways}, _COPY_SETS, self._stopwatch, rounds=self._rounds)
            self._copy = 2 * 4 * count / min(timing.median for timing in seen.values())
        return self._copy
