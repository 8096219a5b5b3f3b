"""The oracles, the accuracy checks and the input generators, checked independently of each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests import accuracy, data
from tests.oracles import norm, pool, quantize, wide

Array = accuracy.Array
ELEMENTS = ("f16", "bf16", "f32", "f64")
PROPERTY = settings(max_examples=40, deadline=None, derandomize=True, database=None)
NAN, INF = math.nan, math.inf


def dtype(element: str) -> np.dtype[Any]:
    return accuracy.format_of(element).dtype


def row(*values: float, element: str = "f32") -> Array:
    """One batch, one channel."""
    return np.array(values, dtype(element)).reshape(1, 1, -1)


def close(got: Array, want: Array, tolerance: float) -> None:
    """Absolute error over the largest magnitude; NaN is never close."""
    assert got.shape == want.shape
    if got.size:
        assert np.max(np.abs(got - want)) <= tolerance * max(1e-300, float(np.max(np.abs(want))))


# ---- LP pool -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("l_in", "window", "stride", "ceil_mode", "want"),
    [
        (16, 3, 2, False, 7),
        (16, 3, 2, True, 8),  # the last window starts at 14 and is partial
        (15, 3, 2, True, 7),
        (5, 2, 3, False, 2),
        (6, 2, 5, True, 2),  # starts at 5, one element
        (5, 2, 5, True, 1),  # ceil gives 2, but it would start at 5 = L
        (7, 1, 4, True, 2),
        (9, 2, 4, True, 3),
        (1, 1, 1, True, 1),
    ],
)
def test_pool_output_length(l_in: int, window: int, stride: int, ceil_mode: bool, want: int) -> None:
    assert pool.lp_pool1d_output_length(l_in, window, stride, ceil_mode) == want
    starts = [o * stride for o in range(want)]
    assert starts[-1] < l_in
    if not ceil_mode:
        assert starts[-1] + window <= l_in < starts[-1] + stride + window


def test_pool_output_length_refuses() -> None:
    for l_in, window, stride in ((3, 4, 1), (3, 0, 1), (3, 2, 0), (0, 1, 1)):
        with pytest.raises(ValueError, match="no window"):
            pool.lp_pool1d_output_length(l_in, window, stride, True)


@pytest.mark.parametrize("element", ELEMENTS)
def test_pool_by_hand(element: str) -> None:
    x = row(3, -4, 0, 0, -5, 12, 7, element=element)
    for p, want in (
        (1, [7, 0, 17]),
        (2, [5, 0, 13]),
        (0.5, [3 + 4 + 2 * math.sqrt(12), 0, 17 + 2 * math.sqrt(60)]),
    ):
        y = pool.lp_pool1d(x, window=2, stride=2, p=p)
        assert y.dtype == wide(dtype(element))
        close(y, row(*want, element="f64"), 1e-15)
    close(pool.lp_pool1d(x, window=2, stride=2, p=1, ceil_mode=True), row(7, 0, 17, 7, element="f64"), 0)
    close(pool.lp_pool1d(row(1, -2, 2), window=3, stride=1, p=3), row(17 ** (1 / 3), element="f64"), 1e-15)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("p", [0.5, 1, 1.7, 2, 3, 4, 100])
def test_pool_does_not_overflow_or_underflow(element: str, p: float) -> None:
    fmt = accuracy.format_of(element)
    for value in (fmt.largest / 4, fmt.smallest):
        y = pool.lp_pool1d(row(value, -value, element=element), window=2, stride=1, p=p)
        close(
            y,
            row(value, element="f64") * np.longdouble(2) ** (1 / np.longdouble(p)),
            1e-7 if p == 1.7 else 1e-15,
        )


def test_pool_special_values() -> None:
    x = row(NAN, INF, 1, -INF, 0, -0.0)
    for p in (0.5, 1, 2, 2.5, 7):
        assert_array_equal(pool.lp_pool1d(x, window=2, stride=1, p=p)[0, 0], [NAN, INF, INF, INF, 0])
        assert_array_equal(pool.lp_pool1d(x, window=6, stride=1, p=p)[0, 0], [NAN])


@pytest.mark.parametrize("element", ELEMENTS)
def test_pool_tiles_and_loop_orders_agree(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles, and windows longer than the output, against a plain loop over windows."""
    x = data.normal((2, 3, 23), element, 1)
    for window, stride, ceil_mode in (
        (3, 2, True),
        (20, 1, False),
        (23, 4, False),
        (7, 9, True),
        (15, 6, True),
    ):
        monkeypatch.setattr(pool, "_BLOCK", 16)
        y = pool.lp_pool1d(x, window=window, stride=stride, p=2.5, ceil_mode=ceil_mode)
        dy = data.normal(y.shape, element, 2)
        y_t = y.astype(x.dtype)
        dx = pool.lp_pool1d_backward(x, y_t, dy, window=window, stride=stride, p=2.5)
        want_dx = np.zeros_like(dx)
        for n, c, o in np.ndindex(*y.shape):
            inside = slice(o * stride, o * stride + window)
            values = x[n, c, inside].astype(y.dtype)
            close(y[n, c, o], np.sum(np.abs(values) ** 2.5) ** (1 / y.dtype.type(2.5)), 1e-14)
            factor = np.sign(values) * np.abs(values) ** 1.5 / y_t[n, c, o].astype(y.dtype) ** 1.5
            want_dx[n, c, inside] += dy[n, c, o].astype(y.dtype) * factor
        close(dx, want_dx, 1e-14)


def test_pool_backward_by_hand() -> None:
    x, y, dy = row(3, -4, 0, 0, -5, 12), row(5, 0, 13), row(10, 7, 26)
    dx = pool.lp_pool1d_backward(x, y, dy, window=2, stride=2, p=2)
    close(dx, row(6, -8, 0, 0, -10, 24, element="f64"), 1e-15)
    # p = 1, overlapping windows: every non-zero element takes the sum of its windows' gradients, with its sign
    dx = pool.lp_pool1d_backward(row(1, -2, 0, 4), row(3, 2, 4), row(1, 10, 100), window=2, stride=1, p=1)
    assert_array_equal(dx[0, 0], [1, -11, 0, 100])
    magnitude = pool.lp_pool1d_backward_magnitude(
        row(1, -2, 0, 4), row(3, 2, 4), row(1, -10, 100), window=2, stride=1, p=1
    )
    assert_array_equal(magnitude[0, 0], [1, 11, 0, 100])
    # the stored y is used, not one computed anew
    dx = pool.lp_pool1d_backward(x, row(10, 1, 13), dy, window=2, stride=2, p=2)
    assert_array_equal(dx[0, 0, :2], [3, -4])
    # a gap between windows (stride > window) gets no gradient
    dx = pool.lp_pool1d_backward(row(1, 2, 3, 4), row(1, 4), row(5, 6), window=1, stride=3, p=3)
    assert_array_equal(dx[0, 0], [5, 0, 0, 6])


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 5.25])
def test_pool_backward_is_the_derivative(p: float) -> None:
    """Central differences in long double."""
    x = data.normal((1, 2, 11), "f64", 3)
    x += 0.5 * np.sign(x)
    for window, stride, ceil_mode in ((3, 2, True), (4, 1, False), (9, 1, False)):
        y = pool.lp_pool1d(x, window=window, stride=stride, p=p, ceil_mode=ceil_mode)
        dy = data.normal(y.shape, "f64", 4)

        def loss(at: Array, w: int = window, s: int = stride, c: bool = ceil_mode, g: Array = dy) -> Any:
            return (pool.lp_pool1d(at, window=w, stride=s, p=p, ceil_mode=c) * g).sum()

        dx = pool.lp_pool1d_backward(x, y.astype(np.float64), dy, window=window, stride=stride, p=p)
        close(dx, differences(loss, x), 1e-8)


def test_pool_backward_special_values() -> None:
    def dx(p: float, x: Array, y: Array, dy: Array) -> Array:
        result: Array = pool.lp_pool1d_backward(x, y, dy, window=2, stride=2, p=p)[0, 0]
        return result

    for p in (0.5, 1, 1.5, 2, 3):
        # selected zeros: x = 0 and y = 0, under any dy
        assert_array_equal(dx(p, row(0, 1, -0.0, 2), row(1, 2), row(NAN, INF))[[0, 2]], [0, 0])
        assert_array_equal(dx(p, row(0, 0, 1, 1), row(0, 0), row(NAN, INF)), [0, 0, 0, 0])
        assert_array_equal(dx(p, row(0, 1), row(NAN), row(1))[0], 0)
        # a NaN in x is never hidden
        assert np.isnan(dx(p, row(NAN, 1), row(NAN), row(1))[0])
        assert np.isnan(dx(p, row(2, 1), row(3), row(NAN))).all()
    for p in (0.5, 1.5, 2, 3):
        assert np.isnan(dx(p, row(-INF, 1), row(INF), row(1))[0])
        assert np.isnan(dx(p, row(NAN, 1), row(NAN), row(1))[1])
    assert_array_equal(dx(1, row(-INF, 3, NAN, -2), row(INF, NAN), row(5, 6)), [-5, 5, NAN, -6])
    assert_array_equal(dx(2, row(INF, 3), row(INF), row(5)), [NAN, 0])
    assert_array_equal(dx(2, row(INF, 3), row(INF), row(INF)), [NAN, NAN])
    assert_array_equal(dx(0.5, row(INF, -3), row(INF), row(5)), [NAN, -INF])


def test_pool_takes_p_as_the_kernel_does() -> None:
    """2.7 is an f32 in an f32 kernel and a double in an f64 one."""
    x32, x64 = row(1, 2, 3, 4), row(1, 2, 3, 4, element="f64")
    rounded = float(np.float32(2.7))
    got = pool.lp_pool1d(x32, window=4, stride=1, p=2.7)
    assert_array_equal(got, pool.lp_pool1d(x32, window=4, stride=1, p=rounded))
    assert np.all(got != pool.lp_pool1d(x64, window=4, stride=1, p=2.7).astype(np.float64))
    for p in (0.0, -1.0, NAN, INF, 1e39, 1e-50):
        with pytest.raises(ValueError, match="p ="):
            pool.lp_pool1d(x32, window=2, stride=1, p=p)
    assert pool.lp_pool1d(x64, window=2, stride=1, p=1e39)[0, 0, 0] == 2


@given(st.integers(0, 10**6), st.sampled_from(ELEMENTS), st.integers(1, 9), st.integers(1, 9), st.booleans())
@PROPERTY
def test_pool_properties(seed: int, element: str, window: int, stride: int, ceil_mode: bool) -> None:
    x = data.normal((1, 2, 9), element, seed)
    how: dict[str, Any] = {"window": window, "stride": stride, "ceil_mode": ceil_mode}
    exact = x.astype(wide(x.dtype))
    y2 = pool.lp_pool1d(x, p=2, **how)
    for o in range(y2.shape[-1]):
        part = exact[..., o * stride : o * stride + window]
        close(y2[..., o], np.sqrt((part * part).sum(axis=-1)), 1e-15)
        # the LP norm decreases in p, from the sum to the maximum
        close(pool.lp_pool1d(x, p=1, **how)[..., o], np.abs(part).sum(axis=-1), 1e-15)
        close(pool.lp_pool1d(x, p=4096, **how)[..., o], np.abs(part).max(axis=-1), 1e-3)
    for p in (0.75, 1, 2.5, 3):
        y = pool.lp_pool1d(x, p=p, **how)
        # equivariant to scale, exactly so for a power of two; the gradient of a norm is invariant to it
        assert_array_equal(pool.lp_pool1d(-4 * x, p=p, **how), 4 * y)
        dy = data.normal(y.shape, element, seed + 1)
        back: dict[str, Any] = {"window": window, "stride": stride, "p": p}
        dx = pool.lp_pool1d_backward(x, y.astype(x.dtype), dy, **back)
        close(pool.lp_pool1d_backward(4 * x, (4 * y).astype(x.dtype), dy, **back), dx, 1e-15)
        # Euler: the sum of x*dx is the sum of y*dy (y is rounded to T, and raised to p-1)
        euler, want = (exact * dx).sum(), (y * dy.astype(y.dtype)).sum()
        magnitude = (y * np.abs(dy.astype(y.dtype))).sum()
        assert abs(euler - want) <= 4 * 2.0 ** -accuracy.format_of(element).precision * magnitude
        ones: dict[str, Any] = {"window": 1, "stride": 1, "p": p}
        assert_array_equal(pool.lp_pool1d(x, **ones), np.abs(exact))
        dy = data.normal(x.shape, element, seed)
        assert_array_equal(
            pool.lp_pool1d_backward(x, np.abs(x), dy, **ones), np.sign(exact) * dy.astype(exact.dtype)
        )


def test_pool_of_nothing() -> None:
    for shape in ((0, 3, 8), (2, 0, 8)):
        y = pool.lp_pool1d(np.zeros(shape, np.float32), window=3, stride=2, p=2)
        assert y.shape == (*shape[:2], 3)
        dx = pool.lp_pool1d_backward(np.zeros(shape, np.float32), y, y, window=3, stride=2, p=2)
        assert dx.shape == shape


def differences(loss: Callable[[Array], Any], x: Array, step: float = 2.0**-18) -> Array:
    """Central differences of a scalar function of a float64 array."""
    result = np.zeros(x.shape, np.longdouble)
    for index in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        result[index] = (loss(up) - loss(down)) / np.longdouble(up[index] - down[index])
    return result


# ---- normalisation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ELEMENTS)
def test_norm_by_hand(element: str) -> None:
    t = dtype(element)
    x = np.array([1, 3, 5, 7, 0, 0, 8, 8], t).reshape(1, 4, 2)
    gamma, beta = np.array([1, 2, 3, 4], t), np.array([0, 1, 0, -1], t)
    y, mean, rstd = norm.group_norm(x, num_groups=2, eps=0.0, gamma=gamma, beta=beta)
    assert y.dtype == mean.dtype == rstd.dtype == wide(t)
    r = 1 / math.sqrt(5)
    close(mean, np.array([4, 4]), 0)
    close(rstd, np.array([r, 0.25]), 1e-15)
    close(y, np.array([-3 * r, -r, 1 + 2 * r, 1 + 6 * r, -3, -3, 3, 3]).reshape(x.shape), 1e-15)
    # eps: var 16 + 9
    close(norm.group_norm(x[:, 2:], num_groups=1, eps=9.0)[2], np.array([0.2]), 1e-15)
    # backward of the second group, x^ = -1, -1, 1, 1: A/M = 7, B/M = -1
    mean_t, rstd_t = np.array([4, 4], np.float32), np.array([0.5, 0.25], np.float32)
    dy = np.array([0, 0, 0, 0, 0, 4, 4, 2], t).reshape(x.shape)
    dx, dgamma, dbeta = norm.group_norm_backward(dy, x, mean_t, rstd_t, gamma, num_groups=2)
    h, b = np.array([0, 12, 16, 8]), 12 / 4
    want = 0.25 * (h - 9 - np.array([-1, -1, 1, 1]) * b)
    assert_array_equal(dx.ravel(), [0, 0, 0, 0, *want])
    assert_array_equal(dgamma, [0, 0, -4, 6])
    assert_array_equal(dbeta, [0, 0, 4, 6])
    sizes = norm.group_norm_backward_magnitude(dy, x, mean_t, rstd_t, gamma, num_groups=2)
    assert_array_equal(sizes[0].ravel()[4:], 0.25 * (h + 9 + 9))
    assert_array_equal(sizes[1], [0, 0, 4, 6])
    assert_array_equal(sizes[2], [0, 0, 4, 6])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", [(2, 6), (3, 4, 5), (2, 6, 3, 2), (1, 2, 2, 1, 2, 1, 3, 2)])
def test_norm_by_group_loop(element: str, shape: tuple[int, ...]) -> None:
    """Layout: against a loop over groups and channels with index arithmetic of its own."""
    x = data.normal(shape, element, 5, mean=3)
    dy = data.normal(shape, element, 6)
    channels, groups = shape[1], 2
    gamma, beta = data.normal((channels,), element, 7), data.normal((channels,), element, 8)
    y, mean, rstd = norm.group_norm(x, num_groups=groups, eps=1e-3, gamma=gamma, beta=beta)
    dx, dgamma, dbeta = norm.group_norm_backward(dy, x, mean, rstd, gamma, num_groups=groups)
    w = wide(x.dtype)
    for n in range(shape[0]):
        for g in range(groups):
            own = range(g * channels // groups, (g + 1) * channels // groups)
            values = np.concatenate([x[n, c].astype(w).ravel() for c in own])
            mu = values.sum() / values.size
            r = 1 / np.sqrt(((values - mu) ** 2).sum() / values.size + w.type(1e-3))
            close(mean[n * groups + g], mu, 1e-14)
            close(rstd[n * groups + g], r, 1e-7)  # eps is rounded to f32
            r = rstd[n * groups + g]
            h = np.concatenate([(dy[n, c].astype(w) * gamma[c].astype(w)).ravel() for c in own])
            b = (h * (values - mu) * r).sum() / h.size
            for c in own:
                normalised = (x[n, c].astype(w) - mu) * r
                close(y[n, c], normalised * gamma[c].astype(w) + beta[c].astype(w), 1e-13)
                close(
                    dx[n, c],
                    r * (dy[n, c].astype(w) * gamma[c].astype(w) - h.sum() / h.size - normalised * b),
                    1e-13,
                )
    for c in range(channels):
        all_dy = dy[:, c].astype(w)
        close(dbeta[c], all_dy.sum(), 1e-13)
        unscaled = (y[:, c] - beta[c].astype(w)) / gamma[c].astype(w)
        assert abs(dgamma[c] - (all_dy * unscaled).sum()) <= 1e-12 * np.abs(all_dy).sum()


def test_norm_backward_is_the_derivative() -> None:
    x = data.normal((2, 4, 3), "f64", 9, mean=1)
    gamma, beta = data.normal((4,), "f64", 10), data.normal((4,), "f64", 11)
    dy = data.normal(x.shape, "f64", 12)

    def loss(x: Array, gamma: Array, beta: Array) -> Any:
        return (norm.group_norm(x, num_groups=2, eps=0.1, gamma=gamma, beta=beta)[0] * dy).sum()

    _, mean, rstd = norm.group_norm(x, num_groups=2, eps=0.1)
    dx, dgamma, dbeta = norm.group_norm_backward(dy, x, mean, rstd, gamma, num_groups=2)
    close(dx, differences(lambda v: loss(v, gamma, beta), x), 1e-8)
    close(dgamma, differences(lambda v: loss(x, v, beta), gamma), 1e-8)
    close(dbeta, differences(lambda v: loss(x, gamma, v), beta), 1e-8)


@given(st.integers(0, 10**6), st.sampled_from(ELEMENTS), st.sampled_from([1, 2, 3, 6]), st.integers(1, 7))
@PROPERTY
def test_norm_properties(seed: int, element: str, groups: int, spatial: int) -> None:
    x = data.normal((2, 6, spatial), element, seed, mean=2)
    dy = data.normal(x.shape, element, seed + 1)
    gamma = data.normal((6,), element, seed + 2)
    y, mean, rstd = norm.group_norm(x, num_groups=groups, eps=1e-5)
    by_group = y.reshape(2 * groups, -1)
    assert np.abs(by_group.sum(axis=1)).max() < 1e-11
    m = by_group.shape[1]
    var = (x.astype(y.dtype).reshape(2 * groups, m) - mean[:, None]).__pow__(2).sum(axis=1) / m
    close((by_group**2).sum(axis=1) / m, var * rstd**2, 1e-10)
    # exact under a shift by a power of two that the data bear, and under scaling with eps = 0
    plain = norm.group_norm(x, num_groups=groups, eps=0.0)[0]
    if m > 1:
        close(norm.group_norm(4 * x, num_groups=groups, eps=0.0)[0], plain, 1e-11)
        close(norm.group_norm(-x, num_groups=groups, eps=0.0)[0], -plain, 1e-11)
    dx, dgamma, dbeta = norm.group_norm_backward(dy, x, mean, rstd, gamma, num_groups=groups)
    exact_dy = dy.astype(y.dtype)
    close(dbeta, exact_dy.sum(axis=(0, 2)), 1e-13)
    close(dgamma, (exact_dy * y).sum(axis=(0, 2)), 1e-11)
    magnitude, size_gamma, size_beta = norm.group_norm_backward_magnitude(
        dy, x, mean, rstd, gamma, num_groups=groups
    )
    total = magnitude.reshape(2 * groups, m).sum(axis=1)
    assert (np.abs(dx.reshape(2 * groups, m).sum(axis=1)) <= 1e-12 * total).all()
    assert (np.abs(dx) <= magnitude * (1 + 1e-12)).all()
    assert (np.abs(dgamma) <= size_gamma * (1 + 1e-12)).all()
    assert (np.abs(dbeta) <= size_beta * (1 + 1e-12)).all()
    # a gradient that is constant over the group moves nothing
    ones = norm.group_norm_backward(np.ones_like(dy), x, mean, rstd, num_groups=groups)[0]
    assert np.abs(ones).max() <= 1e-11 * rstd.max()


def test_norm_of_a_large_mean() -> None:
    """Integers about 2^23 have an exact variance."""
    x = (2.0**23 + np.arange(64)).astype(np.float32).reshape(1, 1, 64)
    _, mean, rstd = norm.group_norm(x, num_groups=1, eps=0.0)
    assert mean[0] == 2.0**23 + 31.5
    close(rstd, np.array([1 / math.sqrt((64**2 - 1) / 12)]), 1e-15)
    x64 = (2.0**52 + np.arange(64)).reshape(1, 1, 64)
    _, mean, rstd = norm.group_norm(x64, num_groups=1, eps=0.0)
    assert mean[0] == np.longdouble(2.0**52) + np.longdouble(31.5)
    close(rstd, 1 / np.sqrt(np.array([(64**2 - 1)], np.longdouble) / 12), 1e-18)


@pytest.mark.parametrize("element", ELEMENTS)
def test_norm_special_values(element: str) -> None:
    for value in (0.1, 0.7, 1 / 3, 1e3 / 7):  # sums of so many are not exact in the wide type
        x = data.constant((1, 2, 100_003), element, value=value)
        y, mean, rstd = norm.group_norm(x, num_groups=2, eps=0.0)
        assert_array_equal(mean, x[0, :, 0].astype(mean.dtype))
        assert_array_equal(rstd, [INF, INF])
        assert np.isnan(y).all()
    y, _, rstd = norm.group_norm(x, num_groups=2, eps=0.25)
    assert_array_equal(rstd, [2, 2])
    assert not y.any()
    x = data.normal((1, 3, 8), element)
    x[0, 0, 3], x[0, 1, 4] = NAN, -INF
    y, mean, rstd = norm.group_norm(x, num_groups=3, eps=1e-5)
    assert_array_equal(np.isnan(y).all(axis=(0, 2)), [True, True, False])
    assert_array_equal(np.isnan(y).any(axis=(0, 2)), [True, True, False])
    assert np.isnan(mean[0])
    assert mean[1] == -INF
    assert_array_equal(np.isnan(rstd), [True, True, False])
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    dx, dgamma, dbeta = norm.group_norm_backward(np.ones_like(x), x, zero, one, num_groups=3)
    assert_array_equal(np.isfinite(dx).all(axis=(0, 2)), [False, False, True])
    assert_array_equal(np.isfinite(dgamma), [False, False, True])
    assert_array_equal(dbeta, [8, 8, 8])


def test_norm_of_nothing() -> None:
    for shape in ((0, 4, 3), (2, 4, 0)):
        x = np.zeros(shape, np.float32)
        y, mean, rstd = norm.group_norm(x, num_groups=2, eps=1e-5, gamma=np.ones(4, np.float32))
        assert y.shape == shape
        assert mean.shape == rstd.shape == (shape[0] * 2,)
        dx, dgamma, dbeta = norm.group_norm_backward(x, x, mean, rstd, num_groups=2)
        assert dx.shape == shape
        assert_array_equal(dgamma, np.zeros(4))
        assert_array_equal(dbeta, np.zeros(4))
    with pytest.raises(ValueError, match="4 channels"):
        norm.group_norm(np.zeros((1, 4), np.float32), num_groups=3, eps=1e-5)


# ---- quantisation ------------------------------------------------------------------------------------------------


def round_to(value: Fraction, precision: int, emin: int) -> Fraction:
    """The nearest number of `precision` bits with exponents from emin, ties to even, by whole arithmetic."""
    if value == 0:
        return value
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    spacing = Fraction(2) ** (max(exponent, emin) - precision + 1)
    return round(value / spacing) * spacing


def exact_codes(inputs: data.QuantInputs, group_size: int, q_min: int, q_max: int, divide: bool) -> Array:
    """Codes by rational arithmetic: with the quotient rounded to acc(T) if `divide`, else exact."""
    precision, emin = (53, -1022) if inputs.x.dtype == np.float64 else (24, -126)
    result = np.empty(inputs.x.shape, np.int64)
    for i, j in np.ndindex(*inputs.x.shape):
        g = j // group_size
        quotient = Fraction(float(inputs.x[i, j])) / Fraction(float(inputs.scale[i, g]))
        code = round(round_to(quotient, precision, emin) if divide else quotient) + int(
            inputs.zero_point[i, g]
        )
        result[i, j] = min(max(code, q_min), q_max)
    return result


def test_rational_rounding() -> None:
    for seed in range(3):
        for value in data.normal((50,), "f64", seed) * 10.0 ** np.arange(-25, 25):
            assert round_to(Fraction(value), 24, -126) == Fraction(float(np.float32(value)))
    assert round_to(Fraction(3, 2), 1, 0) == 2
    assert round_to(Fraction(3, 2**150), 24, -126) == Fraction(2, 2**149)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("q_min", "q_max"), [(-128, 127), (0, 255), (-7, 7)])
def test_quantize_ties_are_exact(element: str, q_min: int, q_max: int) -> None:
    inputs = data.ties((6, 64), element, 1, group_size=8)
    for i, j in np.ndindex(6, 64):
        quotient = Fraction(float(inputs.x[i, j])) / Fraction(float(inputs.scale[i, j // 8]))
        assert quotient.denominator == 2
    got = quantize.quantize_per_group(*inputs, group_size=8, q_min=q_min, q_max=q_max)
    assert_array_equal(got, exact_codes(inputs, 8, q_min, q_max, divide=False))
    away = np.floor(inputs.x.astype(np.float64) / np.repeat(inputs.scale.astype(np.float64), 8, axis=1) + 0.5)
    rounded_up = np.clip(away + np.repeat(inputs.zero_point, 8, axis=1), q_min, q_max)
    assert (got != rounded_up).any()  # the data tell half-even from half-up


@given(st.integers(0, 10**6), st.sampled_from(ELEMENTS), st.floats(-3, 3))
@PROPERTY
def test_quantize_codes_are_exact(seed: int, element: str, log_scale: float) -> None:
    """Random data; the 16-bit types against the exact quotient too, which the module's proof says is the same."""
    rng = np.random.default_rng(seed)
    x = data.normal((2, 32), element, seed, sigma=40)
    scale = np.abs(data.normal((2, 4), element, seed + 1, mean=10.0**log_scale, sigma=0.1 * 10.0**log_scale))
    inputs = data.QuantInputs(x, scale, rng.integers(-300, 300, scale.shape).astype(np.int32))
    got = quantize.quantize_per_group(*inputs, group_size=8, q_min=-128, q_max=127)
    assert_array_equal(got, exact_codes(inputs, 8, -128, 127, divide=True))
    if element in ("f16", "bf16"):
        assert_array_equal(got, exact_codes(inputs, 8, -128, 127, divide=False))


def test_quantize_f32_is_defined_by_the_rounded_quotient() -> None:
    """A quotient just above 0.5 that rounds to it in f32: code 0, where the exact quotient would give 1."""
    scale = np.array([[1 - 2**-24]], np.float32)
    x = np.array([[0.5]], np.float32)
    zero = np.zeros((1, 1), np.int32)
    near = data.QuantInputs(np.nextafter(x, np.float32(0)), scale, zero)
    quotient = Fraction(float(near.x[0, 0])) / Fraction(float(scale[0, 0]))
    assert quotient == Fraction(1, 2)
    assert quantize.quantize_per_group(*near, group_size=1, q_min=-9, q_max=9)[0, 0] == 0
    found = False
    rng = np.random.default_rng(0)
    for s in rng.uniform(1, 2, 400).astype(np.float32):
        for n in (0, 1, 2):
            x = np.array([[np.float32((n + 0.5) * float(s))]], np.float32)
            inputs = data.QuantInputs(x, np.array([[s]]), zero)
            by_quotient = exact_codes(inputs, 1, -9, 9, divide=True)
            assert quantize.quantize_per_group(*inputs, group_size=1, q_min=-9, q_max=9) == by_quotient
            found |= bool((by_quotient != exact_codes(inputs, 1, -9, 9, divide=False)).any())
    assert found


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_quantize_16_bit_quotients_next_to_ties(element: str) -> None:
    """Every significand of the scale, and x next to a tie on either side: the f32 quotient decides as the exact one."""
    fmt = accuracy.format_of(element)
    significands = np.arange(2 ** (fmt.precision - 1), 2**fmt.precision, 1 if element == "bf16" else 7)
    scale = np.ldexp(significands.astype(np.float64), -fmt.precision).astype(fmt.dtype)
    rng = np.random.default_rng(2)
    n = rng.integers(0, 250, scale.size)
    tie = ((n + 0.5) * scale.astype(np.float64)).astype(fmt.dtype)
    bits = tie.view(np.uint16)[:, None] + np.arange(-1, 2, dtype=np.int16).astype(np.uint16)
    inputs = data.QuantInputs(
        bits.astype(np.uint16).view(fmt.dtype), scale[:, None], np.zeros((scale.size, 1), np.int32)
    )
    got = quantize.quantize_per_group(*inputs, group_size=3, q_min=0, q_max=255)
    assert_array_equal(got, exact_codes(inputs, 3, 0, 255, divide=False))


@pytest.mark.parametrize("element", ELEMENTS)
def test_quantize_special_values(element: str) -> None:
    t = dtype(element)

    def run(x: list[float], scale: float, zp: int) -> tuple[list[int], Array]:
        how: dict[str, Any] = {"group_size": len(x), "q_min": -128, "q_max": 127}
        operands = np.array([x], t), np.array([[scale]], t), np.array([[zp]], np.int32)
        codes = quantize.quantize_per_group(*operands, **how)
        dy = np.full((1, len(x)), 3, t)
        return codes[0].tolist(), quantize.quantize_per_group_backward(*operands, dy, **how)[0]

    big = accuracy.format_of(element).largest
    codes, dx = run([NAN, INF, -INF, big, -big, 0], 0.5, 5)
    assert codes == [5, 127, -128, 127, -128, 5]
    assert_array_equal(dx, [6, 0, 0, 0, 0, 6])
    codes, dx = run([NAN, 1, -1], 1.0, 500)  # NaN counts as zp, out of range here
    assert codes == [127, 127, 127]
    assert_array_equal(dx, [0, 0, 0])
    codes, dx = run([0, 1, -1], 0.0, 3)  # 0/0 is NaN, 1/0 an infinity
    assert codes == [3, 127, -128]
    assert_array_equal(dx, [INF, 0, 0])
    codes, dx = run([1, INF], INF, 3)
    assert codes == [3, 3]
    assert_array_equal(dx, [0, 0])
    assert run([1], NAN, 3)[0] == [3]
    assert run([1, -2], -1.0, 0)[0] == [-1, 2]
    # the range is inclusive, and tested before saturation
    codes, dx = run([127, 128, -128, -129], 1.0, 0)
    assert codes == [127, 127, -128, -128]
    assert_array_equal(dx, [3, 0, 3, 0])
    # wild zero points add in wide integers
    assert run([0, 1, big], 1.0, 2**31 - 1)[0] == [127] * 3
    if element != "f16":
        assert run([2.0**31, 2.0**31 + 2.0**24, 2.0**30], 1.0, -(2**31))[0] == [0, 127, -128]


def test_quantize_backward_and_dequantize_by_hand() -> None:
    t = np.float32
    scale, zp = np.array([[0.5, 2], [1, 4]], t), np.array([[0, 10], [-1, 200]], np.int32)
    q = np.array([[1, -2, 30, 4], [0, 127, -128, 7]], np.int8)
    want = [[0.5, -1, 40, -12], [1, 128, -1312, -772]]
    assert_array_equal(quantize.dequantize_per_group(q, scale, zp, group_size=2), want)
    dy = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], t)
    assert_array_equal(
        quantize.dequantize_per_group_backward(dy, scale, group_size=2), [[0.5, 1, 6, 8], [5, 6, 28, 32]]
    )
    x = np.array([[1, 100, 3, 4], [5, 6, 7, 8]], t)
    dx = quantize.quantize_per_group_backward(x, scale, zp, dy, group_size=2, q_min=-128, q_max=127)
    assert_array_equal(dx, [[2, 0, 1.5, 2], [5, 6, 0, 0]])
    # int32 wraps
    low = np.array([[-(2**31)]], np.int32)
    one = np.ones((1, 1), t)
    assert quantize.dequantize_per_group(np.array([[0]], np.int8), one, low, group_size=1) == -(2.0**31)
    assert quantize.dequantize_per_group(np.array([[-1]], np.int8), one, low, group_size=1) == 2.0**31 - 1
    assert quantize.dequantize_per_group(np.array([[1]], np.int8), one, low, group_size=1) == -(2.0**31) + 1
    high = np.array([[2**31 - 1]], np.int32)
    assert quantize.dequantize_per_group(np.array([[-2]], np.int8), one, high, group_size=1) == 2.0**31 - 1


@given(st.integers(0, 10**6), st.sampled_from(ELEMENTS), st.sampled_from([1, 2, 5, 10]))
@PROPERTY
def test_quantize_round_trip(seed: int, element: str, group_size: int) -> None:
    """Within range, dequantised codes are within half a scale; dequantised codes quantise to themselves."""
    x = data.normal((3, 20), element, seed)
    scale = (0.05 + 0.1 * np.random.default_rng(seed).random((3, 20 // group_size))).astype(x.dtype)
    zp = np.random.default_rng(seed).integers(-20, 20, scale.shape).astype(np.int32)
    how: dict[str, Any] = {"group_size": group_size, "q_min": -128, "q_max": 127}
    codes = quantize.quantize_per_group(x, scale, zp, **how)
    back = quantize.dequantize_per_group(codes.astype(np.int8), scale, zp, group_size=group_size)
    error = np.abs(back - x.astype(back.dtype))
    inside = (codes > -128) & (codes < 127)
    assert inside.mean() > 0.5
    limit = np.repeat(scale.astype(back.dtype), group_size, axis=1) / 2
    assert (error <= limit * (1 + 2.0**-16))[inside].all()
    assert_array_equal(quantize.quantize_per_group(back.astype(x.dtype), scale, zp, **how), codes)
    dy = data.normal(x.shape, element, seed)
    dx = quantize.quantize_per_group_backward(x, scale, zp, dy, **how)
    again = quantize.dequantize_per_group_backward(dx, scale, group_size=group_size)
    close(again[inside], dy.astype(again.dtype)[inside], 1e-15)


# ---- precision and speed -----------------------------------------------------------------------------------------


def test_oracles_are_wider_than_the_type() -> None:
    for element in ELEMENTS:
        assert np.finfo(wide(dtype(element))).nmant >= accuracy.format_of(element).precision + 10
    x = row(1, 2.0**-30, element="f64")  # sqrt(1 + 2^-60) needs more than f64
    y = pool.lp_pool1d(x, window=2, stride=1, p=2)[0, 0, 0]
    assert 0 < y - 1 < 2.0**-60


# ---- the checks themselves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ELEMENTS)
def test_ulp(element: str) -> None:
    fmt = accuracy.format_of(element)
    eps = 2.0 ** (1 - fmt.precision)
    values = np.array([1, 1.5, 2, -4, 0.75, 0, fmt.smallest, fmt.largest, INF, 2.0**fmt.emin])
    top = 2.0 ** (fmt.emax + 1 - fmt.precision)
    want = [eps, eps, 2 * eps, 4 * eps, eps / 2, fmt.smallest, fmt.smallest, top, top, fmt.smallest]
    assert_array_equal(accuracy.ulp(element, values), want)
    assert np.isnan(accuracy.ulp(element, NAN))
    some = data.normal((100,), element, 3)
    if element != "bf16":
        assert_array_equal(accuracy.ulp(element, some), np.spacing(np.abs(some)))
    assert fmt.largest == float(np.finfo(fmt.dtype).max if element != "bf16" else some.dtype.type(3.3895e38))


@pytest.mark.parametrize("element", ELEMENTS)
def test_elementwise_measures_ulps(element: str) -> None:
    fmt = accuracy.format_of(element)
    oracle = data.normal((5, 7), element, 1).astype(wide(fmt.dtype))
    actual = oracle.astype(fmt.dtype)
    assert accuracy.assert_elementwise(actual, oracle, element, 0) == 0
    shifted = oracle + 0.25 * accuracy.ulp(element, oracle)
    assert accuracy.assert_elementwise(actual, shifted, element, 0.25) == 0.25
    off = oracle.copy()
    off[2, 3] += 3 * accuracy.ulp(element, off[2, 3])
    with pytest.raises(AssertionError, match=r"case: 1 of 35 elements .* 2 ulp of .*\(2, 3\).* 3 ulp"):
        accuracy.assert_elementwise(actual, off, element, 2, label="case")
    slack = np.zeros(oracle.shape)
    slack[2, 3] = 2 * float(accuracy.ulp(element, off[2, 3]))
    assert accuracy.assert_elementwise(actual, off, element, 1, slack=slack) == 1
    subnormal = np.array([3 * fmt.smallest]).astype(wide(fmt.dtype))
    assert (
        accuracy.assert_elementwise(np.array([4 * fmt.smallest]).astype(fmt.dtype), subnormal, element, 1)
        == 1
    )
    with pytest.raises(AssertionError):
        accuracy.assert_elementwise(np.zeros(1, fmt.dtype), subnormal, element, 2)  # flushed
    with pytest.raises(AssertionError, match="want"):
        accuracy.assert_elementwise(actual[:4], oracle, element, 1)
    with pytest.raises(AssertionError, match="want"):
        accuracy.assert_elementwise(actual.astype(np.complex128), oracle, element, 1)
    assert accuracy.assert_elementwise(actual[:0], oracle[:0], element, 1) == 0


@pytest.mark.parametrize("element", ELEMENTS)
def test_elementwise_special_values(element: str) -> None:
    fmt = accuracy.format_of(element)
    w = wide(fmt.dtype)

    def passes(got: float, want: Any, max_ulp: float = 1) -> bool:
        actual, oracle = np.array([got]).astype(fmt.dtype), np.array([want]).astype(w)
        try:
            accuracy.assert_elementwise(actual, oracle, element, max_ulp)
        except AssertionError:
            return False
        return True

    assert passes(NAN, NAN)
    assert passes(INF, INF)
    assert passes(-INF, -INF)
    for got, want in ((NAN, 1), (1, NAN), (INF, NAN), (NAN, INF), (-INF, INF), (INF, 1), (fmt.largest, INF)):
        assert not passes(got, want, 2)
    top_ulp = w.type(2) ** (fmt.emax + 1 - fmt.precision)
    largest = w.type(fmt.largest)
    beyond = largest + 0.75 * top_ulp  # rounds to an infinity
    assert passes(INF, beyond, 0)
    assert passes(fmt.largest, beyond, 1)  # next to the threshold, within the tolerance
    assert not passes(fmt.largest, beyond, 0.5)
    assert passes(INF, largest, 0.5)
    assert not passes(INF, largest, 0.25)
    assert passes(INF, 4 * largest, 0)
    assert passes(-INF, -4 * largest, 0)
    assert not passes(-INF, 4 * largest, 2)
    assert not passes(fmt.largest, 4 * largest, 2)


@pytest.mark.parametrize("element", ELEMENTS)
def test_norm_check(element: str) -> None:
    fmt = accuracy.format_of(element)
    oracle = data.normal((4, 256), element, 2).astype(wide(fmt.dtype))
    actual = oracle.astype(fmt.dtype)
    bound = accuracy.norm_bound(element, 256)
    assert accuracy.assert_norm(actual, oracle, element, 256)[:3] == (0.0, bound, 0.0)
    rng = np.random.default_rng(1)
    noise = rng.choice([-1, 1], oracle.shape) * np.sqrt(np.mean(oracle**2))
    measured = accuracy.assert_norm(actual, oracle + 0.9 * bound * noise, element, 256)
    assert measured.relative == pytest.approx(0.9 * bound, rel=0.01)
    assert 0 < measured.worst < 1
    # every element within its allowance, but all of them off by more than the bound
    away = np.sign(oracle) * (np.abs(bound * noise) + accuracy.ulp(element, oracle))
    with pytest.raises(AssertionError, match="relative L2"):
        accuracy.assert_norm(actual, oracle + away, element, 256)
    # one element off by more than its allowance, though the norm is fine
    index = (3, 17)
    allowed = 2 * accuracy.ulp(element, oracle[index]) + bound * np.sqrt(np.mean(oracle**2))
    off = oracle.copy()
    off[index] += 1.2 * allowed
    with pytest.raises(AssertionError, match=r"1 of 1024 elements .*\(3, 17\)"):
        accuracy.assert_norm(actual, off, element, 256)
    # the scale is what both are relative to
    accuracy.assert_norm(actual, oracle + 1.1 * bound * noise, element, 256, scale=np.abs(2 * noise))
    with pytest.raises(AssertionError):
        accuracy.assert_norm(actual, oracle + 0.9 * bound * noise, element, 256, scale=np.abs(noise) / 2)


def test_norm_check_special_values() -> None:
    oracle = np.array([1.0, NAN, -INF])
    accuracy.assert_norm(oracle.astype(np.float32), oracle, "f32", 4)
    wrong = np.array([1.0, NAN, NAN], np.float32)
    with pytest.raises(AssertionError, match=r"\(2,\): got nan, want -inf"):
        accuracy.assert_norm(wrong, oracle, "f32", 4)
    accuracy.assert_norm(wrong, oracle, "f32", 4, any_nonfinite=True)
    for bad in ([1.0, 2.0, -INF], [NAN, NAN, -INF], [INF, NAN, -INF]):
        with pytest.raises(AssertionError):
            accuracy.assert_norm(np.array(bad, np.float32), oracle, "f32", 4, any_nonfinite=True)
    subnormal = np.full(8, 2.4 * 2.0**-149)
    accuracy.assert_norm(subnormal.astype(np.float32), subnormal, "f32", 4)  # correctly rounded, 17 % off
    assert accuracy.norm_bound("f32", 1) == accuracy.norm_bound("f32", 2) == 2e-7
    assert accuracy.norm_bound("f64", 2**16) == 1.6e-14
    zero = np.zeros(3)
    assert accuracy.assert_norm(zero.astype(np.float32), zero, "f32", 4).relative == 0
    with pytest.raises(AssertionError):
        accuracy.assert_norm(np.full(3, 1e-30, np.float32), zero, "f32", 4)


def test_code_check() -> None:
    codes = np.array([[1, -2], [3, 4]])
    accuracy.assert_codes(codes.astype(np.int8), codes)
    with pytest.raises(AssertionError, match=r"1 of 4 codes differ; worst at \(1, 0\): got 3, want 2"):
        accuracy.assert_codes(codes.astype(np.int8), np.array([[1, -2], [2, 4]]))
    with pytest.raises(AssertionError, match="want integers"):
        accuracy.assert_codes(codes.astype(np.float32), codes)
    with pytest.raises(AssertionError):
        accuracy.assert_codes(codes.astype(np.uint8), codes)  # 254 is not -2


def test_format_names() -> None:
    class Kind:
        value = "bf16"

    assert accuracy.format_of(Kind()).name == "bf16"
    assert accuracy.format_of(np.float16).name == "f16"
    with pytest.raises(ValueError, match="int8"):
        accuracy.format_of("int8")


# ---- inputs and buffers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ELEMENTS)
def test_generators(element: str) -> None:
    fmt = accuracy.format_of(element)
    shape = (4, 500)
    makers = (data.normal, data.huge, data.denormal, data.zeros, data.constant, data.mixed_specials)
    made = {make.__name__: make(shape, element, 7) for make in (*makers, data.mean_much_larger_than_sigma)}
    for name, array in made.items():
        assert array.dtype == fmt.dtype, name
        assert array.shape == shape, name
        assert array.flags.c_contiguous, name
    for make in makers:
        assert make(shape, element, 7).tobytes() == made[make.__name__].tobytes()
    for name in ("normal", "huge", "denormal", "zeros", "mixed_specials"):
        assert getattr(data, name)(shape, element, 8).tobytes() != made[name].tobytes()
    exact = {name: array.astype(np.longdouble) for name, array in made.items()}
    assert np.abs(exact["huge"]).max() == fmt.largest
    assert np.abs(exact["huge"]).min() >= fmt.largest / 2.1
    assert np.abs(exact["denormal"]).max() == math.ldexp(1.0, fmt.emin) - fmt.smallest
    assert np.abs(exact["denormal"]).min() == fmt.smallest
    assert not exact["zeros"].any()
    assert set(np.signbit(exact["zeros"]).ravel()) == {True, False}
    assert len(np.unique(exact["constant"])) == 1
    specials = exact["mixed_specials"]
    assert np.isnan(specials).any()
    assert (specials == INF).any()
    assert (specials == -INF).any()
    assert np.isfinite(specials).mean() > 0.9
    shifted = exact["mean_much_larger_than_sigma"]
    assert 0.9 < shifted.std() < 1.1
    assert shifted.mean() > 25 * shifted.std()
    assert len(np.unique(shifted)) > 12
    half = data.huge(shape, element, 7, fraction=0.4).astype(np.float64)
    assert np.isfinite((half**2).astype(fmt.dtype).astype(np.float64)).all()


@pytest.mark.parametrize("kind", [*ELEMENTS, "int8", "uint8", "int32"])
def test_poison_finds_unwritten_elements(kind: str) -> None:
    t = dtype(kind) if kind in ELEMENTS else np.dtype(kind)
    buffers = data.poisoned((3, 4), t, pattern=0), data.poisoned((3, 4), t, pattern=1)
    assert data.unwritten(*buffers).all()
    for buffer in buffers:
        if kind in ELEMENTS:
            assert np.isnan(buffer.astype(np.float64)).all()
        # 0xA5, which for integers of a byte is the filling of pattern 0
        buffer[...] = np.array(-91 if t.kind == "i" else 165).astype(t)
    data.assert_written(*buffers)
    for buffer, pattern in zip(buffers, (0, 1), strict=True):
        buffer[1, 2] = data.poisoned((1,), t, pattern=pattern)[0]
    with pytest.raises(AssertionError, match=r"1 of 12 elements were never written, first \(1, 2\)"):
        data.assert_written(*buffers)
    if kind in ELEMENTS:
        with pytest.raises(AssertionError):
            data.assert_written(buffers[0])
        buffers[0][...] = np.nan  # an honest NaN counts as written
        data.assert_written(buffers[0])
    else:
        with pytest.raises(ValueError, match="two runs"):
            data.assert_written(buffers[0])


@pytest.mark.parametrize("kind", [*ELEMENTS, "int8"])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_guarded_buffers(kind: str, offset: int) -> None:
    t = dtype(kind) if kind in ELEMENTS else np.dtype(kind)
    for shape in ((3, 5), (0, 4)):
        made = data.guarded(shape, t, offset)
        assert made.array.dtype == t
        assert made.array.shape == shape
        if made.array.size:
            assert made.array.ctypes.data % 256 == offset * t.itemsize
            assert data.unwritten(made.array, data.guarded(shape, t, offset, pattern=1).array).all()
        made.array[...] = 0
        made.check()
        end = made.start + made.array.nbytes
        for touched, message in (
            (made.start - 1, "1 bytes before"),
            (end, "0 bytes past the end"),
            (0, "before"),
        ):
            made.raw[touched] ^= 0xFF
            with pytest.raises(AssertionError, match=message):
                made.check()
            made.raw[touched] ^= 0xFF
        made.check()
        assert made.start >= data.GUARD_BYTES
        assert made.raw.size - end >= data.GUARD_BYTES
    values = np.arange(6).reshape(2, 3).astype(t)
    assert_array_equal(data.guarded_copy(values, offset).array, values)
