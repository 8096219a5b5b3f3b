"""How the host backend cuts its work, and how it adds up what was cut.

Two sizes, for two purposes.  `CHUNK_ELEMENTS` says how many elements are in flight at once; it may be changed
freely, because no result depends on it.  `SEGMENT_ELEMENTS` says where a long sum is cut; a sum's bits do
depend on it, so it is a constant of the numerics and not of the machine.

Sums over pieces go through `RowFold`: NumPy adds pairwise only along the contiguous axis of one array, and
adding pieces one after the other would let the error grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An array of any of the library's element types (bf16 is not among NumPy's own scalar types)."""

CHUNK_ELEMENTS = 1 << 16
"""Elements in flight.  As float64 half a MiB: the handful of temporaries of one step stays in a core's own
cache, and the interpreter's cost of a step (some tens of microseconds) is still small beside its
arithmetic."""

SEGMENT_ELEMENTS = 1 << 16
"""Longest run summed in one NumPy call; longer groups and windows are summed run by run."""


def split(extent: int, step: int) -> Iterator[slice]:
    """Cut `range(extent)` into slices of `step` (at least 1); the last one may be shorter."""
    step = max(1, step)
    for first in range(0, extent, step):
        yield slice(first, min(first + step, extent))


def sum_last(values: Array) -> Array:
    """Sum over the last axis, pairwise; an axis of length 1, a slow case of NumPy's, is free."""
    if values.shape[-1] == 1:
        return values[..., 0]
    total: Array = np.add.reduce(values, axis=-1)
    return total


class RowFold:
    """Sum of rows that arrive in order, a few at a time, added as one balanced binary tree.

    The tree hangs on each row's index alone, so that the result has the same bits however the rows were dealt
    out; its depth is log2 of their number, and so is what is kept: one waiting row a level.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: list[Array | None] = []

    def feed(self, rows: Array) -> None:
        """Take the next rows, float64 `[k, width]`; they may be overwritten afterwards."""
        level = 0
        while len(rows):
            if level == len(self._waiting):
                self._waiting.append(None)
            waiting = self._waiting[level]
            if waiting is not None:
                rows = np.concatenate((waiting, rows))
            even = len(rows) & ~1
            self._waiting[level] = rows[even:].copy() if even < len(rows) else None
            rows = rows[0:even:2] + rows[1:even:2]
            level += 1

    def total(self) -> Array:
        """The sum so far, float64 `[width]`; zeros when no row came."""
        total: Array = np.zeros(self._width)
        for row in self._waiting:
            if row is not None:
                total = total + row[0]
        return total
