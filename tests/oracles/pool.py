"""LP pooling over one axis, forward and backward, from the definition.

    y_o  = (sum of |x_l|^p over the window of o)^(1/p)
    dx_l = sum over the windows o that hold l of  dy_o * sgn(x_l) * (|x_l| / y_o)^(p-1)

The backward is the derivative of the forward written so that nothing overflows: |x|^(p-1) * y^(1-p) = (|x|/y)^(p-1).

Special values are those of the formulas in IEEE arithmetic, with `pow` as IEEE 754-2019 has it, pow(anything, 0) = 1:

* forward: a NaN in the window gives NaN, also beside an infinity; else an infinity gives +inf; only zeros give 0;
* backward: x = 0 or y = 0 contributes exactly 0, whatever dy and the other one are (NaN and infinities included): the
  derivative is *defined* as 0 there, by selection and not by a product;
* x = NaN contributes NaN for every p, p = 1 included, because sgn(NaN) is NaN;
* x = +-inf (y = +inf then) contributes NaN, from inf/inf, for p != 1, and sgn(x) * dy for p = 1;
* x finite under y = +inf has the ratio 0: the factor is 0 for p > 1, inf for p < 1, 1 for p = 1, and is multiplied by
  dy as IEEE says (0 * inf = NaN);
* x finite under y = NaN contributes NaN for p != 1 and sgn(x) * dy for p = 1.

The sign of a zero result is not specified.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import Array, received, wide

_BLOCK = 1 << 22  # window elements worked on at a time


def lp_pool1d_output_length(l_in: int, window: int, stride: int, ceil_mode: bool = False) -> int:
    """floor((L-k)/s)+1, or ceil((L-k)/s)+1 without a last window that starts at or past the end (PyTorch's rule)."""
    if window <= 0 or stride <= 0 or l_in <= 0 or window > l_in:
        raise ValueError(f"no window of {window} with stride {stride} fits into {l_in} elements")
    if not ceil_mode:
        return (l_in - window) // stride + 1
    length = -((window - l_in) // stride) + 1
    return length - 1 if (length - 1) * stride >= l_in else length


def lp_pool1d(x: Array, *, window: int, stride: int, p: float, ceil_mode: bool = False) -> Array:
    """y[N,C,L_out] for x[N,C,L_in], each window scaled by its own maximum: y = m * (sum (|x|/m)^p)^(1/p).

    A partial last window (ceil_mode) sums its in-bounds elements, without rescaling.  `p` is rounded to acc(T).
    """
    batch, channels, l_in = x.shape
    l_out = lp_pool1d_output_length(l_in, window, stride, ceil_mode)
    power = _exponent(p, x)
    rows = np.abs(x.astype(wide(x.dtype))).reshape(batch * channels, l_in)
    missing = max(0, (l_out - 1) * stride + window - l_in)
    padded = np.pad(rows, ((0, 0), (0, missing)))  # a zero adds nothing to a sum of powers
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=1)[:, ::stride][:, :l_out]
    y = np.empty((batch * channels, l_out), rows.dtype)
    for block in _blocks(batch * channels, l_out, window):
        y[block] = _lp_norm(windows[block], power)
    return y.reshape(batch, channels, l_out)


def lp_pool1d_backward(x: Array, y: Array, dy: Array, *, window: int, stride: int, p: float) -> Array:
    """dx[N,C,L_in], with `y` the forward's output as stored in T (its length tells ceil_mode)."""
    terms = _terms(x, y, dy, window, stride, p)
    dx = np.zeros(x.shape, wide(x.dtype))
    for inputs, term in terms:
        with np.errstate(all="ignore"):
            dx[..., inputs] += term
    return dx


def lp_pool1d_backward_magnitude(
    x: Array, y: Array, dy: Array, *, window: int, stride: int, p: float
) -> Array:
    """The sum of the absolute contributions to each dx: what rounding errors of an accumulation are relative to."""
    total = np.zeros(x.shape, wide(x.dtype))
    for inputs, term in _terms(x, y, dy, window, stride, p):
        with np.errstate(all="ignore"):
            total[..., inputs] += np.abs(term)
    return total


def _terms(
    x: Array, y: Array, dy: Array, window: int, stride: int, p: float
) -> Iterator[tuple[slice, Array]]:
    """Pairs (slice of L_in, contributions to it) that together hold every (window, element) pair exactly once."""
    power = _exponent(p, x) - 1
    x, y, dy = (array.astype(wide(x.dtype)) for array in (x, y, dy))
    for outputs, inputs in _pairs(x.shape[-1], y.shape[-1], window, stride):
        x_l, y_o, dy_o = x[..., inputs], y[..., outputs], dy[..., outputs]
        with np.errstate(all="ignore"):
            contribution = dy_o * (np.sign(x_l) * _pow(np.abs(x_l) / y_o, power))
        yield inputs, np.where((x_l == 0) | (y_o == 0), 0, contribution)


def _pairs(l_in: int, l_out: int, window: int, stride: int) -> Iterator[tuple[slice, slice]]:
    """Slices of L_out and L_in that meet: one pair an offset in the window, or one an output if those are fewer."""
    if window <= l_out:
        for offset in range(window):
            count = min(l_out, -((offset - l_in) // stride))
            yield slice(0, count), slice(offset, offset + (count - 1) * stride + 1, stride)
    else:
        for output in range(l_out):
            start = output * stride
            yield slice(output, output + 1), slice(start, min(start + window, l_in))


def _lp_norm(values: Array, power: Any) -> Array:
    """LP norm over the last axis of non-negative values."""
    with np.errstate(all="ignore"):
        largest = values.max(axis=-1, keepdims=True)
        unit = np.where(np.isfinite(largest) & (largest > 0), largest, 1)
        total: Array = _pow(values / unit, power).sum(axis=-1)
        norm: Array = unit[..., 0] * _pow(total, 1 / power)
        return norm


def _pow(base: Array, power: Any) -> Array:
    """IEEE pow; products for the small whole powers, which are exact to the last bit or two and fast."""
    if power in (1.0, 2.0, 3.0):
        result: Array = base
        for _ in range(int(power) - 1):
            result = result * base
        return result
    general: Array = np.power(base, power)
    return general


def _exponent(p: float, x: Array) -> Any:
    power = received(p, x.dtype)
    if not (np.isfinite(power) and power > 0):
        raise ValueError(f"p = {p} is {power} in the accumulator of {x.dtype}; want a finite number > 0")
    return power


def _blocks(rows: int, outputs: int, window: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of the [rows, outputs] plane of at most about _BLOCK window elements each."""
    width = max(1, min(outputs, _BLOCK // window))
    height = max(1, _BLOCK // (window * width))
    for top in range(0, rows, height):
        for left in range(0, outputs, width):
            yield slice(top, top + height), slice(left, left + width)
