"""Compiling ahead, side by side: our kernels in threads, the peers' Triton code in processes.

`torch.compile` and Liger take seconds a shape, on one core, while the GPU idles.  Here many processes compile first;
they share Inductor's and Triton's caches on disk with the process that measures, which then finds everything there.
They are gone before anything is timed.
"""

from __future__ import annotations

import multiprocessing
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import baracuda_registry as br

from .case import Case

Task = tuple[Case, str]


def prepare_ours(cases: Iterable[Case], device: br.Device, threads: int) -> None:
    """Compile and load the chosen variants of the cases; what cannot be is met again, and reported, by its case."""
    from . import problems

    def prepare(case: Case) -> None:
        try:
            problems.plan_of(case, device).prepare()
        except br.BaracudaError:
            pass

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(prepare, cases))


def compile_peers(
    tasks: list[Task], processes: int, limit_s: float, advance: Callable[[], Any]
) -> set[tuple[str, str]]:
    """Compile peers of cases in processes.

    Args:
        tasks: cases, each with a peer's name.
        processes: how many at a time.
        limit_s: when to stop, seconds.
        advance: called after each task.

    Returns:
        case and peer of what was not finished in time; measuring those would compile again, for as long.
    """
    if not tasks:
        return set()
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    count = min(processes, len(tasks))
    for index in (*range(len(tasks)), *[None] * count):
        todo.put(index)
    workers = [context.Process(target=_work, args=(tasks, todo, done), daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    left = set(range(len(tasks)))
    deadline = time.monotonic() + limit_s
    while left and time.monotonic() < deadline and any(worker.is_alive() for worker in workers):
        try:
            left.discard(done.get(timeout=0.5))
        except queue.Empty:
            continue
        advance()
    for worker in workers:
        worker.terminate()
        worker.join()
    return {(tasks[index][0].key, tasks[index][1]) for index in left}


def _work(tasks: list[Task], todo: Any, done: Any) -> None:
    import torch

    while (index := todo.get()) is not None:
        try:
            _compile(*tasks[index])
        except Exception:  # met again, and reported, when the case is measured
            pass
        torch.cuda.empty_cache()
        done.put(index)


def _compile(case: Case, name: str) -> None:
    import torch

    from . import peers, problems

    with torch.cuda.stream(problems.STREAM()):
        spec, buffers = problems.one_set(case)
        peers.make(name, spec, buffers)(0)
    torch.cuda.synchronize()
