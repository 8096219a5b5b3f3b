"""How a device time is taken.

A CUDA graph holds many calls over rotating sets of buffers that together are several times the L2 cache, so that no
call finds its data there and no flush leaves dirty lines whose write-back the next call would pay for.  Contenders are
interleaved, round by round, and each gets the median of its rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Call = Callable[[int], Any]
"""Enqueue one call on buffer set `i`."""

TARGET_SECONDS = 4e-3
ROUNDS = 7
MOST_CALLS = 400


@dataclass
class Graph:
    """A captured graph and how many calls it holds."""

    graph: Any
    calls: int
    outputs: list[Any]


def capture(call: Call, sets: int, calls: int, stream: Any) -> Graph:
    """Capture `calls` calls over the rotating sets."""
    with torch.cuda.stream(stream):
        for index in range(min(sets, 3)):
            call(index % sets)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    keep = []
    with torch.cuda.graph(graph, stream=stream):
        for index in range(calls):
            keep.append(call(index % sets))
            # Outputs that a peer allocates are freed at once, as a program that overwrites them would.
            keep.clear()
    return Graph(graph, calls, keep)


def once(graph: Graph, stream: Any) -> float:
    """Seconds of one call: one replay between two events."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        start.record(stream)
        graph.graph.replay()
        stop.record(stream)
    stop.synchronize()
    return float(start.elapsed_time(stop)) * 1e-3 / graph.calls


def prepare(call: Call, sets: int, stream: Any) -> Graph:
    """A graph long enough to time: about `TARGET_SECONDS`, and every set at least once unless that takes far longer."""
    probe = capture(call, sets, 2, stream)
    once(probe, stream)
    seconds = max(once(probe, stream), 1e-7)
    least = sets if sets * seconds <= 10 * TARGET_SECONDS else 2
    calls = max(least, 2, min(MOST_CALLS, int(TARGET_SECONDS / seconds)))
    return probe if calls == 2 else capture(call, sets, calls, stream)


def interleave(graphs: Mapping[str, Graph], stream: Any, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of one call in every round, the contenders taking turns; a first round of warming up does not count."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds + 1):
        for name, graph in graphs.items():
            times[name].append(once(graph, stream))
    return {name: seen[1:] for name, seen in times.items()}


def measure(
    contenders: Mapping[str, Call], sets: int, stream: Any, rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Median, smallest and largest seconds of each contender, interleaved."""
    graphs = {name: prepare(call, sets, stream) for name, call in contenders.items()}
    return {
        name: {"median": statistics.median(seen), "min": min(seen), "max": max(seen)}
        for name, seen in interleave(graphs, stream, rounds).items()
    }


def copy_ways(stream: Any) -> dict[str, float]:
    """Bytes a second of large device-to-device copies, read plus written, by the way of copying.

    A memcpy in a graph may go to a copy engine, which is slower than the multiprocessors; a kernel that only reads and
    writes is the yardstick for kernels.
    """
    nbytes = 1 << 30
    source = [torch.randn(nbytes // 4, device="cuda") for _ in range(3)]
    target = [torch.empty_like(part) for part in source]
    ways: dict[str, Call] = {
        "memcpy": lambda i: target[i].copy_(source[i]),
        "kernel": lambda i: torch.neg(source[i], out=target[i]),
        "kernel, 8-byte elements": lambda i: torch.neg(
            source[i].view(torch.float64), out=target[i].view(torch.float64)
        ),
    }
    return {name: 2 * nbytes / seen["median"] for name, seen in measure(ways, len(source), stream).items()}


def copy_bandwidth(stream: Any) -> float:
    """Bytes a second of the best way to copy."""
    return max(copy_ways(stream).values())
