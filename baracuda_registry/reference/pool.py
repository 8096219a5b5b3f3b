"""LP pooling on the host, forward and backward.

Forward.  Powers are taken once an element and then summed by window.  Only where that could leave float64's
range are windows done again from |x| divided by the window's own maximum: for most types and p it cannot, and
then no maximum is ever computed.  f64 with a p other than 1, 2, 3 always goes the second way: there a sum
near 1 also keeps the root accurate, whose error grows with the logarithm of its argument.

Backward, gather form.  Elements are seen as `[blocks, stride]`; pass q adds to every block the window that
starts q blocks earlier.  Descending q is ascending window for each element, so the order of every sum is the
contract's.  Windows are visited one by one instead when they are fewer than the passes (a window about as
long as the input).  For the types narrower than f64, dy y^(1-p) is computed once a window and |x|^(p-1) once
an element.  f64, a very large p and elements that are not finite take the rule literally, by the ratio |x|/y,
which neither overflows nor turns an infinity into something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import blocks
from .blocks import Array, split, sum_last

_SHORT_WINDOW = 8
"""Up to here a window is summed offset by offset, whose error (at most 7 roundings) f64 can afford; longer
ones are summed pairwise by NumPy, which costs some nanoseconds a window but no pass over the data for each
offset."""

_WIDE_STRIDE = 16
"""From here on the inner axis of `[blocks, stride]` is long enough for one NumPy call a pass."""

_BINARY_RANGE = {
    "float16": (-24, 16),
    "bfloat16": (-133, 128),
    "float32": (-149, 128),
    "float64": (-1074, 1024),
}
"""Least positive magnitude and bound of the largest, as powers of two."""

_TINY_P = 2.0**-10
"""Below, the p-th root magnifies even float64's rounding into the digits of a float32."""


def lp_pool1d(x: Array, y: Array, *, window: int, stride: int, p: float) -> None:
    """Write y_o = (sum over the window of |x|^p)^(1/p).

    Parameters
    ----------
    x : f32, f64, f16 or bf16, [N, C, L_in]
    y : as x, [N, C, L_out]
        The last window may be partial; it sums its elements inside the input, without rescaling.
    window, stride : int
        Both positive; every window starts inside the input.
    p : float
        Positive and finite.
    """
    count, l_in, l_out = x.shape[0] * x.shape[1], x.shape[2], y.shape[2]
    rows, out = x.reshape(count, l_in), y.reshape(count, l_out)
    full = min(l_out, (l_in - window) // stride + 1)
    with np.errstate(all="ignore"):
        _pool(rows, out[:, :full], window, stride, p)
        for o in range(full, l_out):
            tail = rows[:, o * stride :]
            _pool(tail, out[:, o : o + 1], tail.shape[1], 1, p)


def lp_pool1d_backward(
    x: Array, y: Array, dy: Array, dx: Array, *, window: int, stride: int, p: float
) -> None:
    """Write dx_l = sum over the windows o that contain l of dy_o * sgn(x_l) * (|x_l| / y_o)^(p-1).

    Parameters
    ----------
    x, dx : f32, f64, f16 or bf16, [N, C, L_in]
        dx is overwritten.
    y, dy : as x, [N, C, L_out]
    window, stride, p
        As for the forward.

    Notes
    -----
    x_l = 0 gives exactly 0, whatever y and dy are, and so does each window with y_o = 0, whatever x and dy
    are.  Elsewhere a NaN in x, y or dy reaches dx; but for p = 1 the power is 1 whatever y is (IEEE 754 has
    pow(NaN, 0) = 1), so that y only says whether its window is zero.
    """
    count, l_in, l_out = x.shape[0] * x.shape[1], x.shape[2], y.shape[2]
    rows, out = x.reshape(count, l_in), dx.reshape(count, l_in)
    norms, upstream = y.reshape(count, l_out), dy.reshape(count, l_out)
    if l_out == 1:
        stride = l_in  # the one window starts at 0 whatever the stride: a single block, a single pass
    factored = x.dtype != np.float64 and _in_range(x.dtype, p + 1, 1)
    with np.errstate(all="ignore"):
        for part, tile in _tiles(count, l_in, stride):
            values = tile.load(rows[part])
            windows = tile.windows(window, l_out)
            norm = norms[part, windows].astype(np.float64)
            gradient = upstream[part, windows].astype(np.float64)
            if factored:
                result = _by_factors(tile, window, windows, values, norm, gradient, p)
                odd = ~np.isfinite(values)
                if odd.any():
                    literal = _by_ratio(tile, window, windows, values, norm, gradient, p)
                    np.copyto(result, literal, where=odd)
            else:
                result = _by_ratio(tile, window, windows, values, norm, gradient, p)
            np.copyto(result, 0, where=values == 0)
            tile.store(result, out[part])


def _in_range(dtype: np.dtype[Any], p: float, terms: int) -> bool:
    """Whether |x|^p of finite x of `dtype`, and sums of `terms` of them, stay within float64's range."""
    lowest, highest = _BINARY_RANGE[dtype.name]
    return lowest * p > -1000 and highest * p + terms.bit_length() < 1000


def _pool(rows: Array, out: Array, window: int, stride: int, p: float) -> None:
    """Pool `[rows, L]` into `[rows, outputs]`, all of whose windows are whole; errstate is the caller's."""
    outputs = out.shape[1]
    together = blocks.CHUNK_ELEMENTS // ((outputs - 1) * stride + window)
    piece = min(window, blocks.SEGMENT_ELEMENTS)
    each = outputs if together else (blocks.CHUNK_ELEMENTS - piece) // stride + 1
    for row in split(rows.shape[0], together):
        for o in split(outputs, each):
            out[row, o] = _pool_chunk(rows[row, o.start * stride :], o.stop - o.start, window, stride, p)


def _pool_chunk(x: Array, outputs: int, window: int, stride: int, p: float) -> Array:
    """The first `outputs` windows of `[rows, L]`, in float64."""
    total = np.zeros((x.shape[0], outputs))
    for run in split(window, blocks.SEGMENT_ELEMENTS):
        powers = _powers(np.abs(x[:, run.start : (outputs - 1) * stride + run.stop].astype(np.float64)), p)
        total += _window_sums(powers, run.stop - run.start, stride, outputs)
    exact = p in (1, 2, 3)
    if not exact and (x.dtype == np.float64 or p < _TINY_P):
        again = np.ones(total.shape, np.bool_)
    elif p == 1 or _in_range(x.dtype, p, window):
        again = np.zeros(total.shape, np.bool_)
    else:
        again = (total < window * 2.0**-1020) | (total == np.inf)
    # cbrt in float64 is good to a few ulp only, which f64 has not to spare.
    result = _root(total.astype(np.longdouble) if p == 3 and x.dtype == np.float64 else total, p)
    result = result.astype(np.float64, copy=False)
    if again.any():
        at_row, at_output = np.nonzero(again)
        for some in split(at_row.size, blocks.CHUNK_ELEMENTS // min(window, blocks.SEGMENT_ELEMENTS)):
            where = at_row[some], at_output[some]
            result[where] = _scaled(x, where[0], where[1] * stride, window, p)
    return result


def _powers(size: Array, p: float) -> Array:
    """size^p; `size` may be overwritten."""
    if p == 1:
        return size
    if p == 2:
        return np.square(size, out=size)
    if p == 3:
        return size * size * size
    powers: Array = np.power(size, size.dtype.type(p))
    return powers


def _root(total: Array, p: float) -> Array:
    """total^(1/p)."""
    if p == 1:
        return total
    if p == 2:
        return np.sqrt(total)
    if p == 3:
        return np.cbrt(total)
    root: Array = np.power(total, total.dtype.type(1) / total.dtype.type(p))
    return root


def _window_sums(powers: Array, window: int, stride: int, outputs: int) -> Array:
    """Sums of the windows of `[rows, (outputs - 1) * stride + window]`, `[rows, outputs]`."""
    if window > _SHORT_WINDOW:
        return sum_last(sliding_window_view(powers, window, axis=1)[:, ::stride])
    reach = (outputs - 1) * stride + 1
    total: Array = powers[:, :reach:stride].copy()
    for offset in range(1, window):
        total += powers[:, offset : offset + reach : stride]
    return total


def _scaled(x: Array, row: Array, start: Array, window: int, p: float) -> Array:
    """The windows of `x` that begin at (`row`, `start`), by |x| over the window's maximum; float64.

    Each sum is then between 1 and the window's length.  Long double, wherever it is longer, absorbs what f64
    cannot spare: the error of cbrt, and for p < 2 that of the sum, which the root hardly reduces or even
    magnifies; for p << 1 its range holds a root that overflows where the result does not.
    """

    def pieces() -> Iterator[Array]:
        for run in split(window, blocks.SEGMENT_ELEMENTS):
            width = run.stop - run.start
            yield np.abs(sliding_window_view(x[:, run.start :], width, axis=1)[row, start].astype(np.float64))

    wide = np.longdouble if p < 2 or p == 3 else np.float64
    scale: Array = np.zeros(row.size)
    for piece in pieces():
        scale = np.maximum(scale, piece.max(axis=1))
    divisor = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)[:, None]
    total: Array = np.zeros(row.size, wide)
    for piece in pieces():
        total = total + sum_last(_powers(piece.astype(wide) / divisor, p))
    result: Array = divisor[:, 0] * _root(total, p)
    return result.astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Some blocks of `stride` elements of each row, or some offsets of one block too long to be had whole."""

    blocks: range
    offsets: range
    stride: int
    l_in: int

    @property
    def first(self) -> int:
        """Its first element's position in the row."""
        return self.blocks.start * self.stride + self.offsets.start

    @property
    def last(self) -> int:
        """The position past its last element; the last block of a row may be partial."""
        return min(self.l_in, (self.blocks.stop - 1) * self.stride + self.offsets.stop)

    @property
    def shape(self) -> tuple[int, int]:
        """Blocks, and offsets in each."""
        return len(self.blocks), len(self.offsets)

    def load(self, rows: Array) -> Array:
        """Its elements as float64 `[rows, blocks * offsets]`, zero where the row has ended."""
        values: Array = np.zeros((rows.shape[0], self.shape[0] * self.shape[1]))
        values[:, : self.last - self.first] = rows[:, self.first : self.last]
        return values

    def store(self, values: Array, rows: Array) -> None:
        """Write what `load` would read."""
        rows[:, self.first : self.last] = values[:, : self.last - self.first]

    def windows(self, window: int, l_out: int) -> slice:
        """The windows that reach into it (it may lie between two)."""
        start = max(0, (self.first - window) // self.stride + 1)
        return slice(start, max(start, min(l_out, (self.last - 1) // self.stride + 1)))

    def visits(self, window: int, windows: slice, *arrays: Array) -> Iterator[tuple[list[Array], slice]]:
        """All pairs of element and window, every element's windows in ascending order.

        Yields views `[rows, n, m]` of the arrays (each shaped as `load` returns) and which of `windows`,
        counted from its first one, go with them: n, or one for all.
        """
        span = -(-window // self.stride)
        narrow = self.stride < _WIDE_STRIDE
        if windows.stop - windows.start <= span * (min(self.stride, window) if narrow else 1):
            for o in range(windows.start, windows.stop):
                begin = max(o * self.stride, self.first) - self.first
                end = min(o * self.stride + window, self.last) - self.first
                if begin < end:
                    index = o - windows.start
                    yield [array[:, None, begin:end] for array in arrays], slice(index, index + 1)
            return
        cubes = [array.reshape(-1, *self.shape) for array in arrays]
        furthest = min(span - 1, self.blocks.stop - 1 - windows.start)
        nearest = max(0, self.blocks.start - (windows.stop - 1))
        for back in range(furthest, nearest - 1, -1):
            begin, end = (
                max(self.blocks.start, back + windows.start),
                min(self.blocks.stop, back + windows.stop),
            )
            width = min(self.offsets.stop, window - back * self.stride) - self.offsets.start
            here = slice(begin - self.blocks.start, end - self.blocks.start)
            there = slice(begin - back - windows.start, end - back - windows.start)
            for offsets in split(width, 1 if narrow else width):
                yield [cube[:, here, offsets] for cube in cubes], there


def _tiles(count: int, l_in: int, stride: int) -> Iterator[tuple[slice, _Tile]]:
    """Cut `[count, l_in]` into tiles of about a chunk: which rows, and what of them."""
    in_row = -(-l_in // stride)
    rows = blocks.CHUNK_ELEMENTS // (in_row * stride)
    for part in split(count, rows):
        for some in split(in_row, in_row if rows else blocks.CHUNK_ELEMENTS // stride):
            for offsets in split(stride, blocks.CHUNK_ELEMENTS):  # one, unless a single block is too long
                tile = _Tile(
                    range(some.start, some.stop), range(offsets.start, offsets.stop), stride=stride, l_in=l_in
                )
                if tile.first < tile.last:
                    yield part, tile


def _by_factors(
    tile: _Tile, window: int, windows: slice, values: Array, norm: Array, gradient: Array, p: float
) -> Array:
    """dx = sgn(x) |x|^(p-1) * sum(dy y^(1-p)), for x that are finite and of a type narrower than f64."""
    if p == 1:
        share, factor = gradient.copy(), np.sign(values)
    elif p == 2:
        share, factor = gradient / norm, values
    elif p == 3:
        share, factor = gradient / np.square(norm), values * np.abs(values)
    else:
        share = gradient * np.power(norm, 1.0 - p)
        factor = np.copysign(np.power(np.abs(values), p - 1.0), values)
    np.copyto(share, 0, where=norm == 0)
    total = np.zeros_like(values)
    for (place,), which in tile.visits(window, windows, total):
        place += share[:, which, None]
    total *= factor
    return total


def _by_ratio(
    tile: _Tile, window: int, windows: slice, values: Array, norm: Array, gradient: Array, p: float
) -> Array:
    """dx = sum(dy sgn(x) (|x|/y)^(p-1)), term by term."""
    zero = norm == 0
    total = np.zeros_like(values)
    for (place, x), which in tile.visits(window, windows, total, values):
        term = _term(np.abs(x), norm[:, which, None], gradient[:, which, None], p)
        term *= np.sign(x)
        np.copyto(term, 0, where=zero[:, which, None])
        place += term
    return total


def _term(size: Array, norm: Array, gradient: Array, p: float) -> Array:
    """gradient * (size/norm)^(p-1), float64.

    A power too small for float64 may still meet a gradient that makes the product large enough; the few of
    them are done in long double (where that is no longer than float64, they come out as zero or imprecise).
    """
    if p == 1:
        return gradient + np.zeros_like(size)
    ratio: Array = size / norm
    if p == 2:
        power = ratio
    elif p == 3:
        power = np.square(ratio)
    else:
        # The quotient's rounding, which the exponent would multiply, is read off a longer one and taken back.
        wide = size.astype(np.longdouble) / norm
        lost: Array = ((wide - ratio) / wide).astype(np.float64)
        np.copyto(lost, 0, where=~np.isfinite(lost))
        power = np.power(ratio, p - 1.0)
        power *= 1.0 + (p - 1.0) * lost
    term: Array = gradient * power
    small = (np.minimum(ratio, power) < 2.0**-1000) & (size > 0)
    if small.any():
        sizes, norms, gradients = (
            np.broadcast_to(part, small.shape)[small].astype(np.longdouble) for part in (size, norm, gradient)
        )
        term[small] = gradients * np.power(sizes / norms, np.longdouble(p) - 1)
    return term
