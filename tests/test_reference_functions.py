"""The host backend against plain loops.

The loops below are slow on purpose: Python numbers, one element at a time, exact where that is cheap
(`fractions`, `math.fsum`, `decimal` where a power magnifies what float64 rounds).  They
share nothing with the functions under test but the formulas.
"""

from __future__ import annotations

import decimal
import functools
import math
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_registry.reference import (
    blocks,
    dequantize_per_group,
    dequantize_per_group_backward,
    group_norm,
    group_norm_backward,
    lp_pool1d,
    lp_pool1d_backward,
    pool,
    quantize_per_group,
    quantize_per_group_backward,
)

pytestmark = pytest.mark.filterwarnings("error")

Array = np.ndarray[Any, Any]
F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATING = [F32, F64, F16, BF16]
PRECISION = {F16: (11, -24), BF16: (8, -133), F32: (24, -149), F64: (53, -1074)}
LARGEST = {d: float(ml_dtypes.finfo(d).max) for d in FLOATING}
NAN, INF = math.nan, math.inf

each_dtype = pytest.mark.parametrize("dtype", FLOATING, ids=str)


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return F64 if dtype == F64 else F32


def allowed(dtype: np.dtype[Any]) -> float:
    return 4.0 if dtype in (F32, F64) else 1.0


def worst_ulp(got: Array, want: Array) -> float:
    """Largest error in units of the last place of `got`'s type at `want` (float64); kinds of value must
    agree."""
    digits, least = PRECISION[got.dtype]
    worst = 0.0
    for g, w in zip(got.astype(np.float64).flat, want.flat, strict=True):
        g, w = float(g), float(w)
        if math.isnan(g) or math.isnan(w):
            assert math.isnan(g) == math.isnan(w), (g, w)
        elif math.isinf(g):
            assert (g > 0) == (w > 0), (g, w)
            assert abs(w) > LARGEST[got.dtype] * (1 - 2.0**-12), (g, w)
        else:
            assert not math.isinf(w), (g, w)
            unit = max(math.frexp(w)[1] - digits, least) if w else least
            worst = max(worst, abs(math.ldexp(g, -unit) - math.ldexp(w, -unit)) if g != w else 0.0)
    return worst


def bits(*arrays: Array) -> list[bytes]:
    return [a.tobytes() for a in arrays]


# --- LP pooling -----------------------------------------------------------------------------------


@functools.cache
def exact_power(numerator: float, denominator: float, exponent: Decimal) -> Decimal:
    """(numerator / denominator)^exponent for positive finite numbers, to 22 digits."""
    with decimal.localcontext(decimal.Context(prec=22)):
        return (Decimal(numerator) / Decimal(denominator)) ** exponent


def pool_loop(x: Array, l_out: int, window: int, stride: int, p: float) -> Array:
    y = np.zeros((*x.shape[:2], l_out))
    for n, c, o in np.ndindex(y.shape):
        sizes = [abs(float(v)) for v in x[n, c, o * stride : o * stride + window]]
        top = max(sizes)
        if any(math.isnan(v) for v in sizes):
            y[n, c, o] = NAN
        elif top in (0.0, INF):
            y[n, c, o] = top
        else:
            with decimal.localcontext(decimal.Context(prec=22)):
                total = sum(exact_power(v, 1.0, Decimal(p)) for v in sizes if v)
                y[n, c, o] = float(total ** (1 / Decimal(p)))
    return y


def pool_backward_loop(x: Array, y: Array, dy: Array, window: int, stride: int, p: float) -> Array:
    dx = np.zeros(x.shape)
    for n, c, index in np.ndindex(x.shape):
        v = float(x[n, c, index])
        total: float | Decimal = Decimal(0)
        for o in range(y.shape[2]):
            norm, upstream = float(y[n, c, o]), float(dy[n, c, o])
            if not o * stride <= index < o * stride + window or v == 0 or norm == 0:
                continue
            if all(map(math.isfinite, (v, norm, upstream))) and isinstance(total, Decimal):
                with decimal.localcontext(decimal.Context(prec=22)):
                    total += Decimal(upstream if v > 0 else -upstream) * exact_power(
                        abs(v), norm, Decimal(p) - 1
                    )
                continue
            if math.isnan(v):
                power = NAN
            elif p == 1:
                power = 1.0
            elif math.isnan(norm):
                power = NAN
            elif math.isinf(norm):
                power = NAN if math.isinf(v) else 0.0 if p > 1 else INF
            else:
                power = (abs(v) / norm) ** (p - 1)
            total = float(total) + upstream * math.copysign(1.0, v) * power
        dx[n, c, index] = float(total)
    return dx


def output_length(l_in: int, window: int, stride: int, ceil: bool) -> int:
    whole = (l_in - window) // stride + 1
    return whole + (ceil and (l_in - window) % stride != 0 and whole * stride < l_in)


GEOMETRIES = [  # l_in, window, stride, ceil_mode
    (1, 1, 1, False),
    (16, 2, 2, False),
    (17, 2, 2, True),  # partial last window
    (13, 3, 1, False),
    (14, 5, 2, True),
    (11, 2, 5, True),  # gaps between windows, elements past the last one
    (22, 9, 1, False),  # summed pairwise
    (55, 20, 17, True),  # wide stride, overlapping
    (50, 3, 20, False),
    (30, 29, 1, False),  # fewer windows than offsets
    (20, 20, 1, False),  # one window
    (9, 7, 2**40, False),  # stride far past the end
    (90, 75, 12, True),
]
POWERS = [1.0, 2.0, 3.0, 0.5, 7.25]


@each_dtype
@pytest.mark.parametrize(("l_in", "window", "stride", "ceil"), GEOMETRIES)
def test_pool_forward_and_backward_match_loops(
    dtype: np.dtype[Any], l_in: int, window: int, stride: int, ceil: bool
) -> None:
    rng = np.random.default_rng(l_in * 7 + window)
    l_out = output_length(l_in, window, stride, ceil)
    for p in POWERS:
        x = rng.standard_normal((2, 1, l_in))
        x[rng.random(x.shape) < 0.2] = 0
        x = x.astype(dtype)
        y = np.full((2, 1, l_out), NAN, dtype)
        lp_pool1d(x, y, window=window, stride=stride, p=p)
        assert worst_ulp(y, pool_loop(x, l_out, window, stride, p)) <= allowed(dtype), p
        # Of one sign, so that nothing cancels and units in the last place mean something.
        dy = (0.5 + np.abs(rng.standard_normal(y.shape))).astype(dtype)
        dx = np.full(x.shape, NAN, dtype)
        lp_pool1d_backward(x, y, dy, dx, window=window, stride=stride, p=p)
        assert worst_ulp(dx, pool_backward_loop(x, y, dy, window, stride, p)) <= allowed(dtype), p


@each_dtype
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 2.5, 20.0, 300.0])
def test_pool_reaches_both_ends_of_the_range(dtype: np.dtype[Any], p: float) -> None:
    """|x|^p leaves every format here, the result does not; the gradient lives on."""
    least = PRECISION[dtype][1]
    top = 2.0 ** (math.frexp(LARGEST[dtype])[1] - 3)
    row = [
        top,
        -top / 2,
        top,
        0,
        2.0**least,
        2.0 ** (least + 2),
        -(2.0 ** (least + 3)),
        0,
        0,
        0,
        2.0**least,
        1,
        0,
        0,
        0,
        0,
    ]
    x = np.array(row, dtype).reshape(1, 1, -1)
    y = np.empty((1, 1, 4), dtype)
    lp_pool1d(x, y, window=4, stride=4, p=p)
    want = pool_loop(x, 4, 4, 4, p)
    assert worst_ulp(y, want) <= allowed(dtype)
    assert np.all(np.isfinite(y.astype(np.float64)))
    assert np.all(y[..., :3] > 0)
    assert y[0, 0, 3] == 0
    dx = np.empty_like(x)
    lp_pool1d_backward(x, y, np.ones_like(y), dx, window=4, stride=4, p=p)
    assert worst_ulp(dx, pool_backward_loop(x, y, np.ones_like(y), 4, 4, p)) <= allowed(dtype)


def test_pool_cube_root_is_good_enough_for_f64() -> None:
    """A plain float64 cbrt is off by more than four units in the last place for about one value in a
    thousand."""
    wide = np.longdouble
    if np.finfo(wide).nmant <= 52:
        pytest.skip("long double is float64 here")
    for scale in (1.0, 2.0**-700, 2.0**700):
        x = np.random.default_rng(8).random((1, 1, 40000)) * scale
        y = np.empty((1, 1, 20000))
        lp_pool1d(x, y, window=2, stride=2, p=3.0)
        want = np.cbrt((x.astype(wide) ** 3).reshape(1, 1, -1, 2).sum(axis=-1))
        error = np.abs(y - want) / np.spacing(want.astype(np.float64))
        assert error.max() < 2


def test_pool_backward_survives_a_quotient_below_the_range() -> None:
    """f64: x/y and its powers underflow, their product with dy does not."""
    if np.finfo(np.longdouble).maxexp <= 1024:
        pytest.skip("long double is float64 here")
    for p, x, y, dy, want in [
        (2.0, 2.0**-500, 2.0**570, 2.0**900, 2.0**-170),
        (3.0, 2.0**-300, 2.0**400, 2.0**1000, 2.0**-400),
        (5.0, 2.0**-100, 2.0**200, 2.0**1000, 2.0**-200),
        (1.5, 2.0**-600, 2.0**600, 1.0, 2.0**-600),
    ]:
        dx, values = np.empty((1, 1, 1)), [np.full((1, 1, 1), v) for v in (x, y, dy)]
        lp_pool1d_backward(values[0], values[1], values[2], dx, window=1, stride=1, p=p)
        assert dx[0, 0, 0] == want, p


def test_pool_with_a_tiny_p() -> None:
    for dtype in (F32, F64):
        y = np.empty((1, 1, 3), dtype)
        lp_pool1d(np.array([[[3, 0, 1e-30, 1e-30, 0, 0]]], dtype), y, window=2, stride=2, p=2.0**-7)
        assert worst_ulp(y, np.array([[[3.0, float(dtype.type(1e-30)) * 2.0**128, 0.0]]])) <= allowed(dtype)
        y = np.empty((1, 1, 1), dtype)
        lp_pool1d(np.array([[[3, 0]]], dtype), y, window=2, stride=2, p=2.0**-40)
        assert y[0, 0, 0] == 3
    if np.finfo(np.longdouble).maxexp <= 1024:
        return
    y = np.empty((1, 1, 1))
    lp_pool1d(np.full((1, 1, 2), 2.0**-500), y, window=2, stride=2, p=1 / 1400)  # the root alone is 2^1400
    assert abs(math.log2(y[0, 0, 0]) - 900) < 1e-9


@each_dtype
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 0.5, 2.5, 40.0])
def test_pool_propagates_what_is_not_finite(dtype: np.dtype[Any], p: float) -> None:
    x = np.array([1, NAN, 2, 0, INF, 1, -INF, NAN, 0, 0, 3, -4], dtype).reshape(1, 2, 6)
    y = np.empty((1, 2, 5), dtype)
    lp_pool1d(x, y, window=2, stride=1, p=p)
    assert worst_ulp(y, pool_loop(x, 5, 2, 1, p)) <= allowed(dtype)
    for upstream in (1.0, INF, NAN, 0.0):
        dy = np.full(y.shape, upstream, dtype)
        dx = np.empty_like(x)
        lp_pool1d_backward(x, y, dy, dx, window=2, stride=1, p=p)
        assert worst_ulp(dx, pool_backward_loop(x, y, dy, 2, 1, p)) <= 2 * allowed(dtype), upstream


@each_dtype
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 0.5, 2.5, 40.0])
def test_pool_backward_zero_beats_nan(dtype: np.dtype[Any], p: float) -> None:
    """x = 0 and y = 0 contribute 0, also beside NaN and infinities that were made up for the occasion."""
    x = np.array([[[0, 1, NAN, INF, 0, -2]]], dtype)
    y = np.array([[[1, 0, 0, 0, NAN, NAN]]], dtype)
    dy = np.array([[[NAN, INF, 1, NAN, INF, 1]]], dtype)
    dx = np.full_like(x, 7)
    lp_pool1d_backward(x, y, dy, dx, window=1, stride=1, p=p)
    last = -1 if p == 1 else NAN
    assert np.array_equal(dx.astype(np.float64), [[[0, 0, 0, 0, 0, last]]], equal_nan=True)


def test_pool_backward_adds_in_window_order() -> None:
    for l_in, window in ((30, 3), (3, 3)):
        x, dx = np.ones((1, 1, l_in)), np.empty((1, 1, l_in))
        shape = (1, 1, l_in)  # windows that begin at every element, the last ones partial
        dy = np.resize([1, 1e16, -1e16], shape)
        lp_pool1d_backward(x, np.ones(shape), dy, dx, window=window, stride=1, p=1.0)
        assert dx[0, 0, 2] == 0  # (1 + 1e16) - 1e16; the other way round it is 1


@each_dtype
def test_pool_windows_longer_than_a_segment(dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SEGMENT_ELEMENTS", 8)
    monkeypatch.setattr(blocks, "CHUNK_ELEMENTS", 16)
    x = np.random.default_rng(3).standard_normal((1, 2, 60)).astype(dtype)
    for p in (2.0, 2.5, 30.0):
        y = np.empty((1, 2, 6), dtype)
        lp_pool1d(x, y, window=35, stride=5, p=p)
        assert worst_ulp(y, pool_loop(x, 6, 35, 5, p)) <= allowed(dtype)


def test_pool_backward_visits_few_long_windows_one_by_one() -> None:
    """A pass for each offset would be a thousand of them for one or two windows."""
    tile = pool._Tile(range(1000), range(1), stride=1, l_in=1000)
    windows = tile.windows(999, 2)
    assert len(list(tile.visits(999, windows, np.empty((3, 1000))))) == 2
    assert len(list(tile.visits(2, tile.windows(2, 999), np.empty((3, 1000))))) == 2  # offsets


# --- GroupNorm ------------------------------------------------------------------------------------

NORM_BOUND: dict[np.dtype[Any], Callable[[int], float]] = {
    BF16: lambda m: 2.0**-8,
    F16: lambda m: 2.0**-11,
    F32: lambda m: 2e-7 * math.sqrt(math.log2(m)),
    F64: lambda m: 4e-15 * math.sqrt(math.log2(m)),
}
NORM_CASES = [((3, 4, 5), 2), ((2, 6), 2), ((5, 3, 2, 2, 3), 3), ((1, 2, 40), 1), ((7, 2, 9), 2)]


def norm_error(got: Array, want: Array, length: int) -> float:
    """Error over the contract's bound, in norm and (beyond two units in the last place) element by
    element."""
    bound = NORM_BOUND[got.dtype](max(length, 2))
    error = np.abs(got.astype(np.float64) - want)
    size = float(np.linalg.norm(want))
    digits, least = PRECISION[got.dtype]
    unit = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - digits, least))
    beyond = float((error - 2 * unit).max()) / (bound * size / math.sqrt(want.size))
    return max(float(np.linalg.norm(error)) / (bound * size), beyond)


def group_rows(x: Array, groups: int) -> tuple[list[list[Fraction]], int]:
    """Elements by (sample, group), exactly, and the number of positions a channel."""
    rows = x.astype(np.float64).reshape(x.shape[0] * groups, -1)
    return [[Fraction(float(v)) for v in row] for row in rows], math.prod(x.shape[2:])


def norm_loop(
    x: Array, gamma: Array | None, beta: Array | None, groups: int, eps: float
) -> tuple[Array, Array, Array]:
    rows, positions = group_rows(x, groups)
    y, means, rstds = [], [], []
    for r, row in enumerate(rows):
        mean = sum(row, Fraction(0)) / len(row)
        rstd = 1 / math.sqrt(sum(((v - mean) ** 2 for v in row), Fraction(0)) / len(row) + Fraction(eps))
        first = r % groups * (x.shape[1] // groups)
        for i, v in enumerate(row):
            channel = first + i // positions
            scale, shift = (
                (1.0 if gamma is None else float(gamma[channel])),
                (0.0 if beta is None else float(beta[channel])),
            )
            y.append(float(v - mean) * rstd * scale + shift)
        means.append(float(mean))
        rstds.append(rstd)
    return np.array(y).reshape(x.shape), np.array(means), np.array(rstds)


def norm_backward_loop(
    dy: Array, x: Array, mean: Array, rstd: Array, gamma: Array | None, groups: int
) -> tuple[Array, Array, Array]:
    rows, positions = group_rows(x, groups)
    upstream, _ = group_rows(dy, groups)
    dx: list[float] = []
    terms: list[list[tuple[float, float]]] = [[] for _ in range(x.shape[1])]
    for r, row in enumerate(rows):
        mu, rs = Fraction(float(mean[r])), float(rstd[r])
        first = r % groups * (x.shape[1] // groups)
        channel = [first + i // positions for i in range(len(row))]
        xhat = [float(v - mu) * rs for v in row]
        h = [
            float(g) * (1.0 if gamma is None else float(gamma[c]))
            for g, c in zip(upstream[r], channel, strict=True)
        ]
        a = math.fsum(h) / len(row)
        b = math.fsum(u * v for u, v in zip(h, xhat, strict=True)) / len(row)
        dx += [rs * (u - a - v * b) for u, v in zip(h, xhat, strict=True)]
        for c, g, v in zip(channel, upstream[r], xhat, strict=True):
            terms[c].append((float(g), v))
    dgamma = np.array([math.fsum(g * v for g, v in column) for column in terms])
    dbeta = np.array([math.fsum(g for g, _ in column) for column in terms])
    return np.array(dx).reshape(x.shape), dgamma, dbeta


def run_norm(
    x: Array, gamma: Array | None, beta: Array | None, groups: int, stats: np.dtype[Any], eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    y = np.full(x.shape, NAN, x.dtype)
    mean, rstd = (np.full(x.shape[0] * groups, NAN, stats) for _ in range(2))
    group_norm(x, y, mean, rstd, gamma, beta, num_groups=groups, eps=eps)
    return y, mean, rstd


@pytest.mark.parametrize("segment", [blocks.SEGMENT_ELEMENTS, 4])
@pytest.mark.parametrize(("shape", "groups"), NORM_CASES)
@each_dtype
def test_norm_matches_loops(
    dtype: np.dtype[Any], shape: tuple[int, ...], groups: int, segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SEGMENT_ELEMENTS", segment)
    rng = np.random.default_rng(math.prod(shape))
    length = math.prod(shape[1:]) // groups
    far = {F32: 1e5, F64: 1e13, F16: 100.0, BF16: 10.0}[dtype]
    for offset, affine in ((0.0, True), (far, True), (far, False)):
        x = (rng.standard_normal(shape) * (1 if offset == 0 else far * 1e-2) + offset).astype(dtype)
        if dtype == F64 and offset:
            x = rng.standard_normal(shape) + offset  # sigma of a few hundred units in the last place
        dy = rng.standard_normal(shape).astype(dtype)
        gamma, beta = (rng.standard_normal(shape[1]).astype(dtype) if affine else None for _ in range(2))
        for stats in {dtype, accumulator(dtype)} if affine else {dtype}:
            y, mean, rstd = run_norm(x, gamma, beta, groups, stats)
            want_y, want_mean, want_rstd = norm_loop(x, gamma, beta, groups, 1e-5)
            assert norm_error(y, want_y, length) <= 1
            assert worst_ulp(mean, want_mean) <= (0.51 if stats != F64 or offset else 4 * length)
            assert worst_ulp(rstd, want_rstd) <= (0.51 if stats != F64 else 4)
            dx, dgamma, dbeta = np.empty_like(x), np.empty(shape[1], dtype), np.empty(shape[1], dtype)
            group_norm_backward(dy, x, mean, rstd, gamma, dx, dgamma, dbeta, num_groups=groups)
            want = norm_backward_loop(dy, x, mean, rstd, gamma, groups)
            for got, expected in zip((dx, dgamma, dbeta), want, strict=True):
                assert norm_error(got, expected, length) <= 1


def test_norm_statistics_are_not_rounded_before_use() -> None:
    rng = np.random.default_rng(5)
    for dtype in (F16, BF16):
        x = (rng.standard_normal((2, 4, 9)) + 50).astype(dtype)
        coarse, fine = run_norm(x, None, None, 2, dtype), run_norm(x, None, None, 2, F32)
        assert coarse[1].astype(np.float32).tobytes() != fine[1].tobytes()  # saved means do differ
        assert coarse[0].tobytes() == fine[0].tobytes()


@pytest.mark.parametrize("segment", [blocks.SEGMENT_ELEMENTS, 5])
@each_dtype
def test_norm_in_place_and_subsets_have_the_same_bits(
    dtype: np.dtype[Any], segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SEGMENT_ELEMENTS", segment)
    rng = np.random.default_rng(11)
    x, dy = (rng.standard_normal((3, 4, 6)).astype(dtype) for _ in range(2))
    gamma, beta = (rng.standard_normal(4).astype(dtype) for _ in range(2))
    y, mean, rstd = run_norm(x, gamma, beta, 2, F64 if dtype == F64 else F32)
    again = x.copy()
    group_norm(again, again, mean.copy(), rstd.copy(), gamma, beta, num_groups=2, eps=1e-5)
    assert again.tobytes() == y.tobytes() != x.tobytes()

    full = [np.empty_like(dy), np.empty_like(gamma), np.empty_like(gamma)]
    group_norm_backward(dy, x, mean, rstd, gamma, *full, num_groups=2)
    for asked in range(1, 8):
        some = [np.full_like(a, NAN) if asked >> i & 1 else None for i, a in enumerate(full)]
        group_norm_backward(dy, x, mean, rstd, gamma, *some, num_groups=2)
        assert all(s is None or s.tobytes() == f.tobytes() for s, f in zip(some, full, strict=True))
    shared = dy.copy()
    group_norm_backward(shared, x, mean, rstd, gamma, shared, None, None, num_groups=2)
    assert shared.tobytes() == full[0].tobytes() != dy.tobytes()


@pytest.mark.parametrize("segment", [blocks.SEGMENT_ELEMENTS, 2])
@each_dtype
def test_norm_propagates_what_is_not_finite(
    dtype: np.dtype[Any], segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SEGMENT_ELEMENTS", segment)
    x = np.arange(24).reshape(2, 4, 3).astype(dtype)
    x[0, 0, 1], x[1, 3, 2] = NAN, INF
    y, mean, rstd = run_norm(x, None, None, 2, accumulator(dtype))
    poisoned = np.repeat([True, False, False, True], 6).reshape(2, 4, 3)
    assert np.array_equal(np.isnan(y.astype(np.float64)), poisoned)
    assert np.isnan(mean[0])
    assert mean[3] == INF
    assert np.isnan(rstd[[0, 3]]).all()
    dy = np.ones_like(x)
    dy[0, 2, 0] = INF
    dx, dgamma, dbeta = np.empty_like(x), np.empty(4, dtype), np.empty(4, dtype)
    group_norm_backward(dy, x, mean, rstd, np.ones(4, dtype), dx, dgamma, dbeta, num_groups=2)
    poisoned[0, 2:] = True  # by NaN or by infinities: both sums over that group are infinite
    assert np.array_equal(~np.isfinite(dx.astype(np.float64)), poisoned)
    assert dbeta.astype(float).tolist() == [6, 6, INF, 6]
    assert np.array_equal(np.isfinite(dgamma.astype(np.float64)), [False, False, False, False])


@pytest.mark.parametrize("segment", [blocks.SEGMENT_ELEMENTS, 7])
def test_norm_of_constants_without_eps(segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """var = 0 exactly, also when the mean is inexact: rstd = 1/0, y = 0 * inf."""
    monkeypatch.setattr(blocks, "SEGMENT_ELEMENTS", segment)
    for dtype in (F32, F64):
        y, mean, rstd = run_norm(np.full((1, 1, 21), 0.1, dtype), None, None, 1, dtype, eps=0.0)
        assert mean[0] == dtype.type(0.1)
        assert rstd[0] == INF
        assert np.isnan(y).all()
        y, _, rstd = run_norm(np.full((1, 1, 21), 0.1, dtype), None, None, 1, dtype, eps=0.25)
        assert rstd[0] == 2
        assert not y.any()


def test_norm_of_nothing() -> None:
    for shape in ((0, 4, 3), (2, 4, 0), (2, 4, 3, 0)):
        x = np.zeros(shape, np.float32)
        mean, rstd = np.full(shape[0] * 2, 5.0, np.float32), np.full(shape[0] * 2, 6.0, np.float32)
        gamma = np.ones(4, np.float32)
        group_norm(x, x, mean, rstd, gamma, gamma, num_groups=2, eps=1e-5)
        assert np.all(mean == 5)
        assert np.all(rstd == 6)
        dgamma, dbeta = np.full(4, NAN, np.float32), np.full(4, NAN, np.float32)
        group_norm_backward(x, x, mean, rstd, gamma, x, dgamma, dbeta, num_groups=2)
        assert not dgamma.any()
        assert not dbeta.any()


def test_row_fold_is_one_tree_however_fed() -> None:
    rows = np.random.default_rng(0).standard_normal((77, 3)) * 10.0 ** np.arange(-38, 39)[:, None]
    totals = []
    for cuts in ([], [1, 2, 3, 40], [16, 17, 50, 76], list(range(1, 77))):
        fold = blocks.RowFold(3)
        for piece in np.split(rows.copy(), cuts):
            fold.feed(piece)
            piece.fill(NAN)  # the caller's again
        assert np.isfinite(fold.total()).all()
        totals.append(fold.total().tobytes())
    assert len(set(totals)) == 1
    assert not blocks.RowFold(2).total().any()
    fold = blocks.RowFold(1)
    for piece in np.split(np.full((1 << 16, 1), 0.1), 16):
        fold.feed(piece)
    assert fold.total()[0] == 6553.6  # one addition after the other ends 6e-9 away


# --- quantization ---------------------------------------------------------------------------------


def code_of(x: Any, s: Any, zp: int) -> int | float:
    """Unsaturated code; ±inf for what is infinite.  `x` and `s` are scalars of the accumulator type."""
    with np.errstate(all="ignore"):
        quotient = float(x / s)
    if math.isnan(quotient):
        return zp
    return quotient if math.isinf(quotient) else round(quotient) + zp


def quantize_loop(
    x: Array, s: Array, zp: Array, dy: Array, group: int, lowest: int, highest: int
) -> tuple[list[int], Array]:
    acc = accumulator(x.dtype).type
    codes, dx = [], []
    for i, j in np.ndindex(x.shape):
        scale = acc(s[i, j // group])
        c = code_of(acc(x[i, j]), scale, int(zp[i, j // group]))
        codes.append(int(min(max(c, lowest), highest)))
        with np.errstate(all="ignore"):
            dx.append(float(acc(dy[i, j]) / scale) if lowest <= c <= highest else 0.0)
    return codes, np.array(dx).reshape(x.shape)


HOSTILE = [
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    1e-40,
    3e38,
    -3e38,
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    127.5,
    126.5,
    -128.5,
    -129.5,
]


@pytest.mark.parametrize(
    ("out", "lowest", "highest"), [(np.int8, -128, 127), (np.int8, -7, 7), (np.uint8, 0, 255)]
)
@each_dtype
def test_quantize_matches_loops(dtype: np.dtype[Any], out: type, lowest: int, highest: int) -> None:
    rng = np.random.default_rng(highest)
    with np.errstate(all="ignore"):
        special = np.array(HOSTILE).astype(dtype)
    scales = [1.0, 0.1, -0.1, 3.0, 0.0, -0.0, NAN, INF, 1e-38, 7e-3]
    zeros = [0, 1, -1, 3, 130, -130, 2**31 - 1, -(2**31)]
    size = len(special) + 23
    x = np.stack([np.concatenate([special, rng.normal(0, 100, 23).astype(dtype)]) for _ in range(80)])
    with np.errstate(all="ignore"):
        s = np.array([scales[i % 10] for i in range(80)]).astype(dtype).reshape(80, 1)
    zp = np.array([zeros[i // 10] for i in range(80)], np.int32).reshape(80, 1)
    dy = rng.standard_normal(x.shape).astype(dtype)
    want, want_dx = quantize_loop(x, s, zp, dy, size, lowest, highest)
    output: Array = np.empty(x.shape, out)
    dx = np.empty_like(x)
    quantize_per_group(x, s, zp, output, group_size=size, q_min=lowest, q_max=highest)
    quantize_per_group_backward(x, s, zp, dy, dx, group_size=size, q_min=lowest, q_max=highest)
    assert output.ravel().tolist() == want
    assert worst_ulp(dx, want_dx) <= 0.51
    quantize_per_group_backward(x, s, zp, dy, dy, group_size=size, q_min=lowest, q_max=highest)
    assert dy.tobytes() == dx.tobytes()


def test_quantize_divides_rounds_then_shifts() -> None:
    """Values that tell a division from a reciprocal, and rounding before the zero point from after."""
    s = np.random.default_rng(0).uniform(0.01, 1, (40, 1)).astype(np.float32)
    x = (np.arange(-120, 120, dtype=np.float32) + np.float32(0.5)) * s
    exact, reciprocal = np.rint(x / s), np.rint(x * (np.float32(1) / s))
    assert (exact != reciprocal).any()
    output, zp = np.empty(x.shape, np.int8), np.zeros((40, 1), np.int32)
    quantize_per_group(x, s, zp, output, group_size=240, q_min=-128, q_max=127)
    assert np.array_equal(output, exact)
    one, out = np.ones((1, 1), np.float32), np.empty((1, 2), np.int8)
    quantize_per_group(
        np.array([[0.5, 1.5]], np.float32), one, zp[:1] + 1, out, group_size=2, q_min=-128, q_max=127
    )
    assert out.tolist() == [[1, 3]]  # rn(0.5) + 1, not rn(1.5)


def test_quantize_backward_mask_is_inclusive_and_before_saturation() -> None:
    x = np.array([[-5.0, -4.0, 3.0, 4.0, NAN, INF]], np.float32)
    dx, one = np.empty_like(x), np.ones((1, 1), np.float32)
    for zp, want in ((0, [0, 1, 1, 0, 1, 0]), (9, [0, 0, 0, 0, 0, 0]), (1, [1, 1, 0, 0, 1, 0])):
        zero_point = np.full((1, 1), zp, np.int32)
        quantize_per_group_backward(x, one, zero_point, np.ones_like(x), dx, group_size=6, q_min=-4, q_max=3)
        assert dx.tolist() == [want]


@pytest.mark.parametrize("quantized", [np.int8, np.uint8])
@each_dtype
def test_dequantize_matches_loops(dtype: np.dtype[Any], quantized: type) -> None:
    info = np.iinfo(quantized)
    q: Array = np.tile(np.array([info.min, info.max, 0, 1, 77], quantized), (7, 2))
    zp = np.array([0, 5, -5, 2**31 - 1, -(2**31), 2**24 + 1, -(2**31) + 100], np.int32).reshape(7, 1)
    zp = np.concatenate([zp, zp[::-1]], axis=1)
    with np.errstate(all="ignore"):
        s = np.array([0.1, -3.0, 0.0, 1e-6, NAN, INF, 1.0] * 2).astype(dtype).reshape(7, 2)
    output = np.empty(q.shape, dtype)
    dequantize_per_group(q, s, zp, output, group_size=5)
    want = np.empty(q.shape)
    for i, j in np.ndindex(q.shape):
        steps = (int(q[i, j]) - int(zp[i, j // 5]) + 2**31) % 2**32 - 2**31
        with np.errstate(all="ignore"):
            want[i, j] = float(accumulator(dtype).type(steps)) * float(s[i, j // 5])
    assert worst_ulp(output, want) <= 1
    dy = np.random.default_rng(1).standard_normal((7, 10)).astype(dtype)
    dq = np.empty_like(dy)
    dequantize_per_group_backward(dy, s, dq, group_size=5)
    with np.errstate(all="ignore"):
        want = dy.astype(np.float64) * np.repeat(s.astype(np.float64), 5, axis=1)
    assert worst_ulp(dq, want) <= 0.51
    dequantize_per_group_backward(dy, s, dy, group_size=5)
    assert dy.tobytes() == dq.tobytes()


# --- blocks ---------------------------------------------------------------------------------------


def everything(dtype: np.dtype[Any]) -> list[bytes]:
    """All functions on shapes with many rows, and with rows and groups that are long."""
    rng = np.random.default_rng(42)
    result: list[bytes] = []
    for shape, groups in (((5, 6, 7), 3), ((2, 2, 90), 1), ((9, 4), 2)):
        x, dy = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        gamma, beta = (rng.standard_normal(shape[1]).astype(dtype) for _ in range(2))
        y, mean, rstd = run_norm(x, gamma, beta, groups, dtype)
        grads = [np.empty_like(x), np.empty_like(gamma), np.empty_like(gamma)]
        group_norm_backward(dy, x, mean, rstd, gamma, *grads, num_groups=groups)
        result += bits(y, mean, rstd, *grads)
    for l_in, window, stride in ((30, 3, 2), (40, 12, 1), (70, 40, 20), (40, 38, 1), (50, 2, 45)):
        x = rng.standard_normal((1, 3, l_in)).astype(dtype)
        x[0, 1, 5], x[0, 2, 3] = INF, NAN
        l_out = output_length(l_in, window, stride, True)
        for p in (1.0, 3.0, 1.5, 90.0):
            y, dx = np.empty((1, 3, l_out), dtype), np.empty_like(x)
            lp_pool1d(x, y, window=window, stride=stride, p=p)
            dy = rng.standard_normal((1, 3, l_out)).astype(dtype)
            lp_pool1d_backward(x, y, dy, dx, window=window, stride=stride, p=p)
            result += bits(y, dx)
    for group in (1, 5, 30):
        x, dy = (rng.normal(0, 9, (4, 30)).astype(dtype) for _ in range(2))
        s = (0.1 + np.abs(rng.standard_normal((4, 30 // group)))).astype(dtype)
        zp = np.rint(rng.normal(0, 5, s.size)).astype(np.int32).reshape(s.shape)
        q, dx, back, dq = np.empty(x.shape, np.int8), np.empty_like(x), np.empty_like(x), np.empty_like(x)
        quantize_per_group(x, s, zp, q, group_size=group, q_min=-20, q_max=20)
        quantize_per_group_backward(x, s, zp, dy, dx, group_size=group, q_min=-20, q_max=20)
        dequantize_per_group(q, s, zp, back, group_size=group)
        dequantize_per_group_backward(dy, s, dq, group_size=group)
        result += bits(q, dx, back, dq)
    return result


@each_dtype
def test_chunks_do_not_change_a_bit(dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = everything(dtype)
    for size in (3, 64):
        monkeypatch.setattr(blocks, "CHUNK_ELEMENTS", size)
        cut = everything(dtype)
        assert [i for i, (a, b) in enumerate(zip(whole, cut, strict=True)) if a != b] == [], size


@pytest.mark.parametrize(("rows", "length"), [(1, 1 << 22), (1 << 13, 1 << 9)])
def test_temporaries_are_bounded(rows: int, length: int) -> None:
    """Four million elements, 16 MB: temporaries, in float64, stay well below that."""
    x, half = np.ones((1, rows, length), np.float32), np.ones((1, rows, length // 2), np.float32)
    stats, q, zp = np.ones(rows, np.float32), np.zeros((rows, length), np.int8), np.zeros((rows, 1), np.int32)
    two, s = x.reshape(rows, length), np.ones((rows, 1), np.float32)
    many = np.ones((1, 1, 1 << 20), np.float32)
    tiny, tiny_stats = np.ones((1 << 17, 8), np.float32), np.ones(1 << 19, np.float32)
    pair, middle = np.ones((1, rows, 2), np.float32), length // 2
    calls: dict[str, Callable[[], None]] = {
        "pool by ratio": lambda: lp_pool1d(many, pair[:1, :1, :1], window=1 << 20, stride=1, p=2.0**-11),
        "pool by halves": lambda: lp_pool1d(x, pair, window=middle, stride=middle, p=2.5),
        "pool": lambda: lp_pool1d(x, half, window=2, stride=2, p=2.0),
        "pool backward": lambda: lp_pool1d_backward(x, half, half, x, window=2, stride=2, p=2.0),
        "norm": lambda: group_norm(x, x, stats, stats, None, None, num_groups=rows, eps=1e-5),
        "norm backward": lambda: group_norm_backward(
            x, x, stats, stats, None, x, None, None, num_groups=rows
        ),
        "norm backward, tiny groups": lambda: group_norm_backward(
            tiny, tiny, tiny_stats, tiny_stats, None, tiny, None, None, num_groups=4
        ),
        "quantize": lambda: quantize_per_group(two, s, zp, q, group_size=length, q_min=-9, q_max=9),
        "quantize backward": lambda: quantize_per_group_backward(
            two, s, zp, two, two, group_size=length, q_min=-9, q_max=9
        ),
        "dequantize": lambda: dequantize_per_group(q, s, zp, two, group_size=length),
        "dequantize backward": lambda: dequantize_per_group_backward(two, s, two, group_size=length),
    }
    for name, call in calls.items():
        tracemalloc.start()
        try:
            call()
            assert tracemalloc.get_traced_memory()[1] < 6 << 20, name
        finally:
            tracemalloc.stop()


def test_zero_sizes() -> None:
    for dtype in FLOATING:
        for shape in ((0, 3, 8), (2, 0, 8)):
            x, y = np.empty(shape, dtype), np.empty((*shape[:2], 4), dtype)
            lp_pool1d(x, y, window=2, stride=2, p=2.0)
            lp_pool1d_backward(x, y, y, x, window=2, stride=2, p=2.5)
        for outer, axis in ((0, 6), (3, 0)):
            x, q = np.empty((outer, axis), dtype), np.empty((outer, axis), np.int8)
            s, zp = np.empty((outer, axis // 3), dtype), np.empty((outer, axis // 3), np.int32)
            quantize_per_group(x, s, zp, q, group_size=3, q_min=-8, q_max=7)
            quantize_per_group_backward(x, s, zp, x, x, group_size=3, q_min=-8, q_max=7)
            dequantize_per_group(q, s, zp, x, group_size=3)
            dequantize_per_group_backward(x, s, x, group_size=3)
