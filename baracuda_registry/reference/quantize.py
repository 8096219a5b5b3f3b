"""Per-group quantization on the host: quantize, dequantize and the straight-through backward of both.

Here alone the contract fixes bits, so arithmetic is in the accumulator type: float32 for f16, bf16 and f32,
float64 for f64.  Forward and backward share `code`, so that they cannot disagree on which elements saturate.

Tensors are `[outer, axis]`, scales and zero points `[outer, axis / group_size]`; both are read as rows, one a
group, because a group is contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import blocks
from .blocks import Array

_FAR = 2.0**32
"""Quotients are clamped to ±_FAR: exact in float32, and past every code whatever the (int32) zero point."""


def code(value: Array, scale: Array, zero_point: Array) -> Array:
    """Unsaturated integer code rn(value / scale) + zero_point.

    Parameters
    ----------
    value, scale : float32 or float64, broadcastable
        In the accumulator type; the quotient is rounded once, in that type.
    zero_point : int32, broadcastable

    Returns
    -------
    int64
        Quotients past ±2^32 are clamped there, so that an infinity ends on the right side of every q
        range.  A NaN quotient (0/0 among them) counts as 0, hence has the code `zero_point`.
    """
    quotient = value / scale
    np.clip(quotient, -_FAR, _FAR, out=quotient)
    np.rint(quotient, out=quotient)
    np.copyto(quotient, 0, where=np.isnan(quotient))
    codes: Array = quotient.astype(np.int64)
    codes += zero_point
    return codes


def quantize_per_group(
    input: Array, scale: Array, zero_point: Array, output: Array, *, group_size: int, q_min: int, q_max: int
) -> None:
    """Write output = clamp(rn(input / scale) + zero_point, q_min, q_max).

    Parameters
    ----------
    input : f32, f64, f16 or bf16, [outer, axis]
    scale : as input, [outer, axis / group_size]
    zero_point : int32, [outer, axis / group_size]
    output : int8 or uint8, [outer, axis]
        Infinite quotients take the end of the range on their side, NaN takes clamp(zero_point).
    """
    acc = _accumulator(input)
    values, outputs = _groups(input, group_size), _groups(output, group_size)
    scales, zeros = _per_group(scale), _per_group(zero_point)
    with np.errstate(all="ignore"):
        for rows, at in _tiles(values):
            codes = code(values[at].astype(acc), scales[rows].astype(acc), zeros[rows])
            outputs[at] = np.clip(codes, q_min, q_max, out=codes)


def quantize_per_group_backward(
    input: Array,
    scale: Array,
    zero_point: Array,
    d_output: Array,
    d_input: Array,
    *,
    group_size: int,
    q_min: int,
    q_max: int,
) -> None:
    """Write d_input = d_output / scale where q_min <= unsaturated code <= q_max, else 0 (straight-through).

    Parameters
    ----------
    input, d_output, d_input : f32, f64, f16 or bf16, [outer, axis]
        d_input may be d_output.
    scale : as input, [outer, axis / group_size]
    zero_point : int32, [outer, axis / group_size]
    """
    acc = _accumulator(input)
    values, upstream = _groups(input, group_size), _groups(d_output, group_size)
    gradients = _groups(d_input, group_size)
    scales, zeros = _per_group(scale), _per_group(zero_point)
    with np.errstate(all="ignore"):
        for rows, at in _tiles(values):
            divisor: Array = scales[rows].astype(acc)
            codes = code(values[at].astype(acc), divisor, zeros[rows])
            outside = codes < q_min
            outside |= codes > q_max
            gradient: Array = upstream[at].astype(acc)
            gradient /= divisor
            np.copyto(gradient, 0, where=outside)
            gradients[at] = gradient


def dequantize_per_group(
    input: Array, scale: Array, zero_point: Array, output: Array, *, group_size: int
) -> None:
    """Write output = (input - zero_point) * scale, the difference in int32 with two's complement wrap.

    Parameters
    ----------
    input : int8 or uint8, [outer, axis]
    scale : f32, f64, f16 or bf16, [outer, axis / group_size]
    zero_point : int32, [outer, axis / group_size]
    output : as scale, [outer, axis]
    """
    acc = _accumulator(output)
    values, outputs = _groups(input, group_size), _groups(output, group_size)
    scales, zeros = _per_group(scale), _per_group(zero_point)
    with np.errstate(all="ignore"):
        for rows, at in _tiles(values):
            steps = values[at].astype(np.int32)
            steps -= zeros[rows]
            outputs[at] = steps.astype(acc) * scales[rows].astype(acc)


def dequantize_per_group_backward(d_output: Array, scale: Array, d_input: Array, *, group_size: int) -> None:
    """Write d_input = d_output * scale.

    Parameters
    ----------
    d_output, d_input : f32, f64, f16 or bf16, [outer, axis]
        d_input may be d_output.
    scale : as d_output, [outer, axis / group_size]
    """
    acc = _accumulator(d_output)
    upstream, gradients = _groups(d_output, group_size), _groups(d_input, group_size)
    scales = _per_group(scale)
    with np.errstate(all="ignore"):
        for rows, at in _tiles(upstream):
            gradients[at] = upstream[at].astype(acc) * scales[rows].astype(acc)


def _accumulator(like: Array) -> type[np.float64] | type[np.float32]:
    return np.float64 if like.dtype == np.float64 else np.float32


def _groups(tensor: Array, group_size: int) -> Array:
    """View `[outer, axis]` as `[groups, group_size]`."""
    return tensor.reshape(tensor.size // group_size, group_size)


def _per_group(vector: Array) -> Array:
    """View `[outer, axis / group_size]` as `[groups, 1]`."""
    return vector.reshape(vector.size, 1)


def _tiles(groups: Array) -> Iterator[tuple[slice, tuple[slice, slice]]]:
    """Cut `[groups, group_size]` into chunks: the slice of groups, and the index of the chunk."""
    count, size = groups.shape
    for rows in blocks.split(count, blocks.CHUNK_ELEMENTS // size):
        for columns in blocks.split(size, blocks.CHUNK_ELEMENTS):
            yield rows, (rows, columns)
