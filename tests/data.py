"""Seeded test inputs for every floating type, friendly and hostile, and output buffers that tell on a kernel.

Every generator takes a shape, an element (a kind, a name or a dtype) and a seed, and returns a C-contiguous array of
that element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .accuracy import Array, Format, format_of

Shape = tuple[int, ...]

GUARD_BYTES = 256
_GUARD = 0xC3
_POISON = {  # quiet NaNs whose payload no arithmetic makes
    "float16": (0x7EA5, 0xFE5A),
    "bfloat16": (0x7FE5, 0xFFDA),
    "float32": (0x7FE5A5A5, 0xFFDA5A5A),
    "float64": (0x7FFEA5A5A5A5A5A5, 0xFFF95A5A5A5A5A5A),
}


class QuantInputs(NamedTuple):
    """Operands of a per-group quantisation: x[outer, axis], scale and zero_point [outer, axis/group]."""

    x: Array
    scale: Array
    zero_point: Array


def normal(shape: Shape, element: object, seed: int = 0, *, mean: float = 0.0, sigma: float = 1.0) -> Array:
    """Gaussian values."""
    return _cast(np.random.default_rng(seed).normal(mean, sigma, shape), format_of(element))


def mean_much_larger_than_sigma(
    shape: Shape, element: object, seed: int = 0, *, ratio: float | None = None
) -> Array:
    """Gaussian values of sigma 1 about a mean of `ratio`: 1e4, or as much as leaves sigma four spacings of T.

    That is 32 for bf16 and 256 for f16.
    """
    if ratio is None:
        ratio = min(1e4, math.ldexp(1.0, format_of(element).precision - 3))
    return normal(shape, element, seed, mean=ratio)


def huge(shape: Shape, element: object, seed: int = 0, *, fraction: float = 1.0) -> Array:
    """Values of both signs in the top binade of T, the largest finite number among them.

    With `fraction` < 1, in the binade of that fraction of the top exponent: with 0.5 squares are still about
    representable, a negative one makes small numbers.
    """
    fmt = format_of(element)
    rng = np.random.default_rng(seed)
    top = fmt.largest if fraction == 1.0 else math.ldexp(1.0, int(fraction * fmt.emax))
    values = rng.uniform(0.5, 1.0, shape) * top
    values[rng.random(shape) < 0.1] = top
    return _cast(values * rng.choice([-1.0, 1.0], shape), fmt)


def denormal(shape: Shape, element: object, seed: int = 0) -> Array:
    """Subnormal numbers of both signs, the smallest and the largest among them."""
    fmt = format_of(element)
    rng = np.random.default_rng(seed)
    last = 2 ** (fmt.precision - 1) - 1
    steps = rng.integers(1, last, shape, endpoint=True)
    steps = np.where(rng.random(shape) < 0.1, rng.choice([1, last], shape), steps)
    return _cast(steps * rng.choice([-1.0, 1.0], shape) * fmt.smallest, fmt)


def zeros(shape: Shape, element: object, seed: int = 0) -> Array:
    """Zeros of both signs."""
    return _cast(np.random.default_rng(seed).choice([0.0, -0.0], shape), format_of(element))


def constant(shape: Shape, element: object, seed: int = 0, *, value: float = 0.1) -> Array:
    """One value everywhere, by default one that no binary type holds exactly; the seed is not used."""
    return _cast(np.full(shape, value), format_of(element))


def mixed_specials(
    shape: Shape,
    element: object,
    seed: int = 0,
    *,
    rate: float = 0.05,
    specials: tuple[float, ...] = (math.nan, math.inf, -math.inf, 0.0, -0.0),
) -> Array:
    """Gaussian values, of which about `rate` are replaced by special ones."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape)
    chosen = rng.random(shape) < rate
    return _cast(np.where(chosen, rng.choice(specials, shape), values), format_of(element))


def ties(shape: tuple[int, int], element: object, seed: int = 0, *, group_size: int) -> QuantInputs:
    """Quotients x/s that are exactly half-way between two integers, with small zero points.

    s = S*2^b with S in 1, 3, 5 and x = (n + 1/2)*s, with n kept so small that x is exact in T.
    """
    fmt = format_of(element)
    rng = np.random.default_rng(seed)
    groups = (shape[0], shape[1] // group_size)
    odd = rng.choice([1, 3, 5], groups)
    scale = odd * np.ldexp(1.0, rng.integers(-4, 3, groups))
    limit = np.minimum(2**fmt.precision // (2 * np.repeat(odd, group_size, axis=1)) - 1, 200)
    n = rng.integers(-limit, limit, shape)
    x = (n + 0.5) * np.repeat(scale, group_size, axis=1)
    return QuantInputs(_cast(x, fmt), _cast(scale, fmt), rng.integers(-20, 20, groups).astype(np.int32))


def poisoned(shape: Shape, dtype: npt.DTypeLike, *, pattern: int = 0) -> Array:
    """An output buffer filled with garbage that `assert_written` recognises.

    Floats are filled with a quiet NaN of a payload that no arithmetic makes, so one run tells which elements were left.
    Every byte is a possible integer result, so integers need two runs, into buffers of `pattern` 0 and 1 (bytes 0xA5 and
    0x5A): an element that holds its own filling both times was not written, as results don't depend on the filling.
    """
    array = np.empty(shape, dtype)
    _fill(array, pattern)
    return array


def unwritten(first: Array, second: Array | None = None) -> Array:
    """Mask of the elements that still hold the filling of `poisoned`, in `first` and, if given, in `second` too."""
    if first.dtype.name not in _POISON and second is None:
        raise ValueError(f"{first.dtype} needs two runs, into buffers of pattern 0 and 1")
    mask: Array = _bits(first) == _pattern(first.dtype, 0)
    if second is not None:
        mask &= _bits(second) == _pattern(second.dtype, 1)
    return mask


def assert_written(first: Array, second: Array | None = None, *, label: str = "output") -> None:
    """No element of a poisoned output was left as it was."""
    mask = unwritten(first, second)
    if mask.any():
        index = tuple(int(i) for i in np.argwhere(mask)[0])
        raise AssertionError(
            f"{label}: {int(mask.sum())} of {mask.size} elements were never written, first {index}"
        )


@dataclass(frozen=True)
class Guarded:
    """An array inside a larger buffer whose other bytes must stay as they are."""

    array: Array
    raw: npt.NDArray[np.uint8]
    start: int

    def check(self, label: str = "array") -> None:
        """Raise if a byte before or after the array was overwritten."""
        stop = self.start + self.array.nbytes
        touched = self.raw != _GUARD
        touched[self.start : stop] = False
        if touched.any():
            at = int(np.flatnonzero(touched)[0])
            where = (
                f"{self.start - at} bytes before" if at < self.start else f"{at - stop} bytes past the end of"
            )
            raise AssertionError(
                f"{label}: {int(touched.sum())} guard bytes overwritten, the first {where} the array"
            )


def guarded(shape: Shape, dtype: npt.DTypeLike, offset_elements: int = 0, *, pattern: int = 0) -> Guarded:
    """A poisoned array that starts `offset_elements` elements past a 256-byte boundary, with guards of 256 bytes or more.

    Offset 0 is aligned for any vector access; an odd one to the element only.
    """
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    offset = offset_elements * kind.itemsize
    raw = np.full(3 * GUARD_BYTES + offset + nbytes, _GUARD, np.uint8)
    start = GUARD_BYTES + offset + -raw.ctypes.data % GUARD_BYTES
    array = raw[start : start + nbytes].view(kind).reshape(shape)
    _fill(array, pattern)
    return Guarded(array, raw, start)


def guarded_copy(values: Array, offset_elements: int = 0) -> Guarded:
    """`values` in a guarded buffer, for inputs: reads past the end find garbage, writes are found by `check`."""
    result = guarded(values.shape, values.dtype, offset_elements)
    result.array[...] = values
    return result


def _cast(values: Array, fmt: Format) -> Array:
    with np.errstate(all="ignore"):
        result: Array = values.astype(fmt.dtype, order="C")
    return result


def _bits(array: Array) -> Array:
    bits: Array = array.view(f"u{array.dtype.itemsize}")
    return bits


def _pattern(dtype: np.dtype[Any], which: int) -> int:
    if dtype.name in _POISON:
        return _POISON[dtype.name][which]
    return int.from_bytes(bytes([(0xA5, 0x5A)[which]]) * dtype.itemsize, "little")


def _fill(array: Array, which: int) -> None:
    _bits(array)[...] = _pattern(array.dtype, which)
