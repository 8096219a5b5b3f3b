"""How a device time is taken.

Many calls over rotating sets of buffers that together are several times the L2 cache, so that no call finds its data
there and no flush leaves dirty lines whose write-back the next call would pay for.  Contenders are interleaved, round
by round, and each gets the median of its rounds.

What takes a sample is a `Stopwatch`: on a GPU a CUDA graph between two events, so that the host's speed is not in the
figure; on the host a clock.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .device import Device

Call = Callable[[int], Any]
"""Enqueue one call on buffer set `i`."""

Sample = Callable[[], float]
"""Seconds of one call, measured now."""

L2_MULTIPLE = 4
MAX_SETS = 64
MAX_CALLS = 400


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call over the rounds of a measurement."""

    median: float
    least: float
    most: float


class Stopwatch(Protocol):
    """Makes samples of a call."""

    def sample(self, call: Call, sets: int, calls: int) -> Sample:
        """Something that measures `calls` calls in a row, over the sets in turn, whenever it is called."""


def sets_for(nbytes: int, device: Device, limit: int | None = None) -> int:
    """Buffer sets of so many bytes that leave the device's L2 cache; two at least, and within `limit` bytes in all.

    One set where not even two are within the limit.
    """
    wanted = max(2, min(MAX_SETS, math.ceil(L2_MULTIPLE * device.l2_bytes / max(1, nbytes))))
    return wanted if limit is None else max(1, min(wanted, limit // max(1, nbytes)))


def measure(
    contenders: Mapping[str, Call],
    sets: int,
    stopwatch: Stopwatch,
    *,
    rounds: int = 7,
    seconds: float = 4e-3,
    hopeless: float = math.inf,
) -> dict[str, Timing]:
    """Times of contenders, interleaved.

    Args:
        contenders: calls by name.
        sets: how many buffer sets they rotate over.
        stopwatch: what takes a sample.
        rounds: samples of each.
        seconds: about how long one sample should take; a short probe says how many calls that is.
        hopeless: contenders whose probe takes so many times the shortest are given that one sample.
    """
    least = max(2, sets)
    probes: dict[str, Sample] = {}
    seen: dict[str, list[float]] = {}
    for name, call in contenders.items():
        probes[name] = stopwatch.sample(call, sets, least)
        probes[name]()
        seen[name] = [probes[name]()]
    limit = hopeless * min(probe for (probe,) in seen.values())
    samples: dict[str, Sample] = {}
    for name, (probe,) in list(seen.items()):
        if probe <= limit:
            seen[name] = []
            wanted = max(least, min(MAX_CALLS, int(seconds / max(probe, 1e-7))))
            call = contenders[name]
            samples[name] = probes[name] if wanted <= least else stopwatch.sample(call, sets, wanted)
    for _ in range(rounds):
        for name, sample in samples.items():
            seen[name].append(sample())
    return {name: Timing(statistics.median(times), min(times), max(times)) for name, times in seen.items()}


class ClockStopwatch:
    """Measures calls that are done when they return.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def sample(self, call: Call, sets: int, calls: int) -> Sample:
        """Something that measures so many calls whenever it is called."""

        def run() -> float:
            started = self._clock()
            for index in range(calls):
                call(index % sets)
            return (self._clock() - started) / calls

        return run


class GraphStopwatch:
    """Measures device time: a CUDA graph of the calls, replayed between two events on a stream of its own.

    The calls must enqueue on the calling thread's current CuPy stream (`plan.run(None, …)` with CuPy arrays does) and
    be prepared, because nothing can be compiled or loaded during capture.
    """

    def __init__(self) -> None:
        import cupy

        self._cuda = cupy.cuda
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def sample(self, call: Call, sets: int, calls: int) -> Sample:
        """Something that replays a graph of so many calls whenever it is called."""
        cuda, stream = self._cuda, self._stream
        # What was enqueued before, on whatever stream, may still write the buffers.
        cuda.runtime.deviceSynchronize()
        with stream:
            call(0)
            stream.synchronize()
            stream.begin_capture()
            for index in range(calls):
                call(index % sets)
            graph = stream.end_capture()
            graph.upload(stream)
        start, stop = cuda.Event(), cuda.Event()

        def run() -> float:
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            return float(cuda.get_elapsed_time(start, stop)) * 1e-3 / calls

        return run
