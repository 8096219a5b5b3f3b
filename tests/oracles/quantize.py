"""Per-group affine quantisation (Jacob et al. 2018), its straight-through backward, and dequantisation.

Tensors are [outer, axis]; scale (T) and zero_point (i32) are [outer, axis/group_size]; element j is in group
j // group_size.

    unsaturated = rn(x/s) + zp            code = min(max(unsaturated, q_min), q_max)
    dx = dy/s where q_min <= unsaturated <= q_max, else 0
    dequantised = (q - zp)*s              dq = dy*s

*The quotient.* x/s is one correctly rounded division in acc(T) (f32 for f16, bf16 and f32; f64 for f64), and rn rounds
that quotient half to even.  For f32 and f64 the code is defined through this rounded quotient: a quotient that isn't a
tie can round to one.  For the 16-bit types it is also the exact one, rn(rn_f32(x/s)) = rn(x/s), for |x/s| < 2^13 (f16)
and < 2^16 (bf16).  Proof: rounding to f32 is monotone, and below 2^23 every tie t = n + 1/2 is an f32, so the quotient
can't cross a tie and an exact tie stays one; only a quotient q != t that rounds *to* t could differ, for which
|q - t| <= 2^(e-24) with 2^e <= |t| < 2^(e+1).  Write x = X*2^a and s = S*2^b with whole |X|, |S| < 2^P (P = 11 for f16,
8 for bf16).  Then q - t = (2X*2^a - (2n+1)*S*2^b) / (2S*2^b), whose numerator is a non-zero multiple of
2^min(a+1, b).
If a+1 < b:  |q - t| >= 2^(a-b)/|S| = |q|/|X| > 2^-P*|q|: a relative distance far above 2^-24.
If a+1 >= b: |q - t| >= 1/(2|S|) > 2^(-P-1), so 2^(e-24) > 2^(-P-1) and e > 23-P: |t| >= 2^(24-P), that is 2^13 or 2^16.
Such quotients show in a code only under a zero point of that size; there the f32 quotient is the definition.

*Special values.*  The conversion to an integer happens after a clamp in floating point that is too wide to be seen (any
bound of at least |zp| + |q| works, and q_min - zp .. q_max - zp would not: the backward needs the code before
saturation).  +-inf and huge quotients saturate to their end and are out of range in the backward.  A NaN quotient (x or
s NaN, 0/0, inf/inf) counts as 0: unsaturated = zp, code = clamp(zp), and in range in the backward iff zp is.  A zero
scale divides as IEEE says.  Out of range, dx is exactly 0, whatever dy is; in range, dy/s is IEEE division.

*Dequantise.*  q - zp is int32 two's complement, so it wraps for zero points beyond about +-2^31 - 255; the oracle then
takes the exact product (q - zp)*s.  A kernel converts q - zp to acc(T) (exact up to 2^24 in f32, else half an ulp),
multiplies with one rounding and rounds to T: within 1 ulp in all.
"""

from __future__ import annotations

import numpy as np

from . import Array, accumulator, wide

_WIDE_CLAMP = float(1 << 40)


def quantize_per_group(
    x: Array, scale: Array, zero_point: Array, *, group_size: int, q_min: int, q_max: int
) -> Array:
    """Codes [outer, axis], as int64."""
    return np.clip(_unsaturated(x, scale, zero_point, group_size), q_min, q_max)


def quantize_per_group_backward(
    x: Array, scale: Array, zero_point: Array, dy: Array, *, group_size: int, q_min: int, q_max: int
) -> Array:
    """dx: dy/s where the code before saturation lies in [q_min, q_max], inclusive; else 0."""
    code = _unsaturated(x, scale, zero_point, group_size)
    w = wide(x.dtype)
    with np.errstate(all="ignore"):
        quotient = dy.astype(w) / _per_element(scale.astype(w), group_size)
    return np.where((q_min <= code) & (code <= q_max), quotient, w.type(0))


def dequantize_per_group(q: Array, scale: Array, zero_point: Array, *, group_size: int) -> Array:
    """(q - zp)*s, with the difference in wrapping int32 and the product in the wide type."""
    difference = q.astype(np.int64) - _per_element(zero_point.astype(np.int64), group_size)
    w = wide(scale.dtype)
    with np.errstate(all="ignore"):
        product: Array = difference.astype(np.int32).astype(w) * _per_element(scale.astype(w), group_size)
    return product


def dequantize_per_group_backward(dy: Array, scale: Array, *, group_size: int) -> Array:
    """dq = dy*s."""
    w = wide(scale.dtype)
    with np.errstate(all="ignore"):
        product: Array = dy.astype(w) * _per_element(scale.astype(w), group_size)
    return product


def _unsaturated(x: Array, scale: Array, zero_point: Array, group_size: int) -> Array:
    """rn(x/s) + zp in int64, before saturation to the code's range; a NaN quotient counts as 0."""
    acc = accumulator(x.dtype)
    with np.errstate(all="ignore"):
        quotient = x.astype(acc) / _per_element(scale.astype(acc), group_size)
    rounded = np.clip(np.rint(np.where(np.isnan(quotient), 0, quotient)), -_WIDE_CLAMP, _WIDE_CLAMP)
    code: Array = rounded.astype(np.int64) + _per_element(zero_point.astype(np.int64), group_size)
    return code


def _per_element(per_group: Array, group_size: int) -> Array:
    """[outer, groups] as [outer, axis]."""
    return np.repeat(per_group, group_size, axis=1)
