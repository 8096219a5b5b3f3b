"""How far a result of type T may be from its oracle, and the checks that say so.

An ulp here is the spacing of T at the oracle's value: 2^(max(e, emin) - (P-1)) for 2^e <= |v| < 2^(e+1), with the
spacing of the subnormals (which count: nothing is flushed) below the smallest normal number and that of the largest
binade above the largest finite one.  A correctly rounded result is off by at most half an ulp.  The sign of a zero is
not compared.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Format(NamedTuple):
    """A binary floating-point format: significand bits with the hidden one, exponents of the normal numbers."""

    name: str
    dtype: np.dtype[Any]
    precision: int
    emin: int
    emax: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return math.ldexp(2.0 - math.ldexp(1.0, 1 - self.precision), self.emax)

    @property
    def smallest(self) -> float:
        """The smallest positive number, a subnormal one."""
        return math.ldexp(1.0, self.emin - self.precision + 1)


FORMATS = {
    "f16": Format("f16", np.dtype(np.float16), 11, -14, 15),
    "bf16": Format("bf16", np.dtype(ml_dtypes.bfloat16), 8, -126, 127),
    "f32": Format("f32", np.dtype(np.float32), 24, -126, 127),
    "f64": Format("f64", np.dtype(np.float64), 53, -1022, 1023),
}


class NormError(NamedTuple):
    """What `assert_norm` measured: relative L2 error, its bound, and the worst element's error over its allowance."""

    relative: float
    bound: float
    worst: float
    worst_index: tuple[int, ...]


def format_of(element: object) -> Format:
    """The format that an element kind (by its `value`), a name such as "bf16" or a NumPy dtype stands for."""
    name = str(getattr(element, "value", element))
    if name in FORMATS:
        return FORMATS[name]
    for row in FORMATS.values():
        if row.dtype == np.dtype(element):  # type: ignore[call-overload]
            return row
    raise ValueError(f"{element!r} is no floating type of this library; known are {', '.join(FORMATS)}")


def ulp(element: object, value: npt.ArrayLike) -> Array:
    """The spacing of `element` at each value, in float64 or wider; NaN at NaN."""
    fmt = format_of(element)
    wide = _widened(value, fmt)
    _, exponent = np.frexp(np.where(np.isfinite(wide), wide, fmt.largest))
    exponent = np.where(wide == 0, fmt.emin, np.clip(exponent - 1, fmt.emin, fmt.emax))
    spacing = np.ldexp(wide.dtype.type(1), exponent - (fmt.precision - 1))
    return np.where(np.isnan(wide), np.nan, spacing)


def assert_elementwise(
    actual: Array,
    oracle: Array,
    element: object,
    max_ulp: float,
    *,
    slack: npt.ArrayLike = 0.0,
    label: str = "",
) -> float:
    """Every element within `max_ulp` ulp of T of the oracle; returns the worst error in ulp.

    NaN must meet NaN, an infinity the same infinity.  An oracle value that rounds to an infinity in T must have become
    one and no other may have, except that a value within `max_ulp` of that threshold may fall on either side.

    `slack` is an absolute error an element (a scalar or an array) taken off before ulps are counted.  It is for sums
    whose terms cancel: n terms added in acc(T) are good to about n*u_acc*sum|term|, which can be many ulp of a small
    sum.
    """
    fmt = format_of(element)
    got, want = _checked(actual, oracle, fmt, label)
    with np.errstate(all="ignore"):
        ulps = np.maximum(_distance(got, want, fmt) - np.asarray(slack), 0) / ulp(element, want)
    ulps = np.where(np.isnan(want), _distance(got, want, fmt), ulps)
    if ulps.size == 0:
        return 0.0
    worst = int(np.argmax(ulps))
    if not ulps.flat[worst] <= max_ulp:
        bad = int(np.count_nonzero(~(ulps <= max_ulp)))
        raise AssertionError(
            f"{_named(label)}{bad} of {ulps.size} elements off by more than {max_ulp} ulp of {fmt.name}; worst at "
            f"{_describe(got, want, worst)}, {float(ulps.flat[worst]):.4g} ulp"
        )
    return float(ulps.flat[worst])


def norm_bound(element: object, m: int) -> float:
    """Relative L2 error allowed to a normalisation over m elements.

    2*2^-9 for bf16, 2*2^-12 for f16, 2e-7*sqrt(log2 m) for f32, 4e-15*sqrt(log2 m) for f64; log2 m counts as 1 at least,
    since a single rounding already exceeds the 0 that m = 1 would give.
    """
    name = format_of(element).name
    growth = math.sqrt(max(1.0, math.log2(max(1, m))))
    return {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2e-7 * growth, "f64": 4e-15 * growth}[name]


def assert_norm(
    actual: Array,
    oracle: Array,
    element: object,
    m: int,
    *,
    scale: npt.ArrayLike | None = None,
    any_nonfinite: bool = False,
    label: str = "",
) -> NormError:
    """A normalisation's output within `norm_bound(element, m)` of the oracle, as a whole and element by element.

    With s the scale of each element, r the bound and n the number of elements:

        ||actual - oracle||_2 <= r*||s||_2 + sqrt(n)*smallest/2        (the rounding of subnormal results)
        |actual_i - oracle_i| <= 2 ulp_T(oracle_i) + r*s_i             for every i

    `scale` is by default the RMS of the oracle, for which ||s|| = ||oracle|| and the first line is the relative L2
    error.  An RMS is what an element's error is relative to, because the sums that enter it are over the whole group:
    an error of the mean by r sigma moves every y by r*rstd*sigma*gamma, however small y itself is.  Where the result
    cancels (dx of a constant dy, a dgamma over random signs) no algorithm meets a bound relative to the result; then
    pass the size of the terms (`group_norm_backward_magnitude`).  Pass per-element scales too if channels differ by
    orders of magnitude and the small ones are to be tested as strictly.

    Special values are compared as in `assert_elementwise` and left out of the norms; with `any_nonfinite`, NaN and both
    infinities count as one.
    """
    fmt = format_of(element)
    got, want = _checked(actual, oracle, fmt, label)
    bound = norm_bound(element, m)
    if got.size == 0:
        return NormError(0.0, bound, 0.0, ())
    finite = np.isfinite(want)
    error = _distance(got, want, fmt)
    if any_nonfinite:
        error = np.where(~finite & ~np.isfinite(got), 0, error)
    if scale is None:
        size = np.full(want.shape, _rms(want[finite]))
    else:
        size = np.broadcast_to(np.abs(np.asarray(scale)), want.shape)
        size = np.where(np.isfinite(size), size, 0)
    with np.errstate(all="ignore"):
        allowed = np.where(finite, 2 * ulp(element, want) + bound * size, 1)
        ratio = error / allowed
    worst = int(np.argmax(ratio))
    index = tuple(int(i) for i in np.unravel_index(worst, want.shape))
    if not ratio.flat[worst] <= 1:
        bad = int(np.count_nonzero(~(ratio <= 1)))
        raise AssertionError(
            f"{_named(label)}{bad} of {want.size} elements off by more than 2 ulp of {fmt.name} + {bound:.3g} of the "
            f"scale {float(size.flat[worst]):.3g}; worst at {_describe(got, want, worst)}, "
            f"{float(error.flat[worst]):.4g} off, {float(ratio.flat[worst]):.4g} times what is allowed"
        )
    n = int(np.count_nonzero(finite))
    error_rms, size_rms = _rms(error[finite]), _rms(size[finite])
    relative = float(error_rms / size_rms) if size_rms else (math.inf if error_rms else 0.0)
    if not error_rms <= bound * size_rms + fmt.smallest / 2:
        raise AssertionError(
            f"{_named(label)}relative L2 error {relative:.4g} of {n} elements of {fmt.name}, want at most {bound:.4g}; "
            f"worst element at {_describe(got, want, worst)}, {float(error.flat[worst]):.4g} off"
        )
    return NormError(relative, bound, float(ratio.flat[worst]), index)


def assert_codes(actual: Array, oracle: Array, *, label: str = "") -> None:
    """Integer codes equal, element by element."""
    if actual.shape != oracle.shape or actual.dtype.kind not in "iu":
        raise AssertionError(
            f"{_named(label)}got {actual.dtype}{list(actual.shape)}, want integers of shape {list(oracle.shape)}"
        )
    differs = actual.astype(np.int64) != oracle.astype(np.int64)
    if differs.any():
        first = int(np.argmax(np.abs(actual.astype(np.int64) - oracle.astype(np.int64))))
        raise AssertionError(
            f"{_named(label)}{int(differs.sum())} of {differs.size} codes differ; worst at "
            f"{_describe(actual, oracle, first)}"
        )


def _distance(got: Array, want: Array, fmt: Format) -> Array:
    """|got - want|, with 0 for special values that agree and inf for those that don't.

    An infinity of T stands for every value at or past the threshold where rounding gives it.
    """
    half_ulp = np.ldexp(want.dtype.type(1), fmt.emax - fmt.precision)
    threshold = want.dtype.type(fmt.largest) + half_ulp
    with np.errstate(all="ignore"):
        plain = np.abs(got - want)
        short_of_overflow = np.maximum(threshold - np.abs(want), 0)
        same_sign = np.signbit(got) == np.signbit(want)
    result = np.where(np.isinf(got), np.where(same_sign, short_of_overflow, np.inf), plain)
    either, both = np.isnan(got) | np.isnan(want), np.isnan(got) & np.isnan(want)
    return np.where(either, np.where(both, 0, np.inf), result)


def _rms(values: Array) -> Any:
    """Root of the mean square, scaled against overflow and underflow."""
    if values.size == 0:
        return values.dtype.type(0)
    largest = np.max(np.abs(values))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * np.sqrt(np.mean((values / largest) ** 2))


def _checked(actual: Array, oracle: Array, fmt: Format, label: str) -> tuple[Array, Array]:
    """Both in the wide type, after a check of type and shape."""
    if actual.dtype != fmt.dtype or actual.shape != oracle.shape:
        raise AssertionError(
            f"{_named(label)}got {actual.dtype}{list(actual.shape)}, want {fmt.name}{list(oracle.shape)}"
        )
    return _widened(actual, fmt), _widened(oracle, fmt)


def _widened(values: npt.ArrayLike, fmt: Format) -> Array:
    return np.asarray(values).astype(np.longdouble if fmt.name == "f64" else np.float64)


def _describe(got: Array, want: Array, flat: int) -> str:
    index = tuple(int(i) for i in np.unravel_index(flat, want.shape))
    return f"{index}: got {got.flat[flat]!s}, want {want.flat[flat]!s}"


def _named(label: str) -> str:
    return f"{label}: " if label else ""
