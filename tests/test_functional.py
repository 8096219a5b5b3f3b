"""The functions: what they compute, whose arrays they return, and what they refuse, for each array library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br
import baracuda_registry.functional as F
from baracuda_registry.elements import FLOATING, ElementKind
from baracuda_registry.functional import calls, norm
from baracuda_registry.plans.base import forget_plans

from .accuracy import Array
from .oracles import norm as norm_oracle
from .oracles import pool as pool_oracle
from .oracles import quantize as quantize_oracle

torch = pytest.importorskip("torch")

TOLERANCE = {"f32": 2e-6, "f64": 1e-13, "f16": 2e-3, "bf16": 2e-2}
elements = pytest.mark.parametrize("element", FLOATING, ids=lambda e: e.value)


class Arrays:
    """One library: how a test makes and reads its arrays."""

    def __init__(self, name: str) -> None:
        self.name = name

    def put(self, values: Array) -> Any:
        values = np.ascontiguousarray(values)
        if self.name == "numpy":
            return values.copy()
        if self.name == "cupy":
            import cupy

            return cupy.asarray(values.view(np.uint8)).view(values.dtype).reshape(values.shape)
        bits = torch.from_numpy(values.view(np.int16)) if values.dtype == ElementKind.BF16.dtype else None
        tensor = torch.from_numpy(values.copy()) if bits is None else bits.clone().view(torch.bfloat16)
        return tensor.cuda() if self.name == "torch-cuda" else tensor

    def get(self, array: Any) -> Array:
        if self.name == "numpy":
            return np.asarray(array)
        if self.name == "cupy":
            return np.asarray(array.get())
        array = array.cpu()
        if array.dtype is torch.bfloat16:
            return np.asarray(array.view(torch.int16).numpy().view(ElementKind.BF16.dtype))
        return np.asarray(array.numpy())

    def owns(self, array: Any, like: Any) -> bool:
        return type(array) is type(like) and (self.name == "numpy" or array.device == like.device)


@pytest.fixture(
    params=[
        "numpy",
        "torch-cpu",
        pytest.param("cupy", marks=pytest.mark.gpu),
        pytest.param("torch-cuda", marks=pytest.mark.gpu),
    ]
)
def lib(request: pytest.FixtureRequest) -> Arrays:
    return Arrays(request.param)


def normal(shape: tuple[int, ...], element: ElementKind = ElementKind.F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0.5, 2.0, shape).astype(element.dtype)


def close(got: Array, want: Array, element: ElementKind) -> None:
    scale = float(np.abs(want).max()) if want.size else 1.0
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=0, atol=TOLERANCE[element.value] * max(scale, 1)
    )


# Normalisation -------------------------------------------------------------------------------------------------------


@elements
@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)])
def test_group_norm(lib: Arrays, element: ElementKind, given: tuple[bool, bool]) -> None:
    values = normal((3, 8, 5, 2), element)
    gamma = normal((8,), element, 1) if given[0] else None
    beta = normal((8,), element, 2) if given[1] else None
    x = lib.put(values)
    weight, bias = (None if v is None else lib.put(v) for v in (gamma, beta))
    ones, zeros = np.ones(8, element.dtype), np.zeros(8, element.dtype)
    wanted = norm_oracle.group_norm(
        values,
        num_groups=4,
        eps=1e-3,
        gamma=ones if gamma is None else gamma,
        beta=zeros if beta is None else beta,
    )
    y, mean, rstd = F.group_norm_with_stats(x, 4, weight, bias, 1e-3)
    assert mean.shape == rstd.shape == (3, 4)
    for got, want, kind in zip((y, mean, rstd), wanted, (element, element.accumulator, element.accumulator)):
        assert lib.owns(got, x)
        assert lib.get(got).dtype == kind.dtype
        close(lib.get(got).reshape(want.shape), want, kind)
    np.testing.assert_array_equal(lib.get(F.group_norm(x, 4, weight, bias, 1e-3)), lib.get(y))
    into = lib.put(np.zeros_like(values))
    assert F.group_norm(x, 4, weight, bias, 1e-3, out=into) is into
    np.testing.assert_array_equal(lib.get(into), lib.get(y))
    assert F.group_norm(x, 4, weight, bias, 1e-3, out=x) is x
    np.testing.assert_array_equal(lib.get(x), lib.get(y))


@elements
@pytest.mark.parametrize("affine", [False, True])
def test_group_norm_backward(lib: Arrays, element: ElementKind, affine: bool) -> None:
    values, upstream = normal((3, 8, 5), element), normal((3, 8, 5), element, 3)
    gamma = normal((8,), element, 1) if affine else None
    x, dy, weight = lib.put(values), lib.put(upstream), None if gamma is None else lib.put(gamma)
    _, mean, rstd = F.group_norm_with_stats(x, 2, weight)
    stats = [lib.get(s).reshape(-1) for s in (mean, rstd)]
    wanted = norm_oracle.group_norm_backward(upstream, values, *stats, gamma, num_groups=2)
    full = F.group_norm_backward(dy, x, mean, rstd, 2, weight, (True, True, True))
    for got, want in zip(full, wanted):
        assert lib.owns(got, x)
        close(lib.get(got), want, element)
    default = F.group_norm_backward(dy, x, mean.reshape(-1), rstd.reshape(-1), 2, weight)
    assert [v is not None for v in default] == [True, affine, affine]
    only = F.group_norm_backward(dy, x, mean, rstd, 2, weight, (False, False, True))
    assert only[0] is None
    assert only[1] is None
    np.testing.assert_array_equal(lib.get(only[2]), lib.get(full[2]))
    got = F.group_norm_backward(dy, x, mean, rstd, 2, weight, out=dy)
    assert got[0] is dy
    np.testing.assert_array_equal(lib.get(dy), lib.get(full[0]))


@elements
def test_instance_norm_is_group_norm_by_channel(lib: Arrays, element: ElementKind) -> None:
    x, dy, weight = (lib.put(normal(s, element, i)) for i, s in enumerate(((2, 6, 9), (2, 6, 9), (6,))))
    one, other = F.instance_norm_with_stats(x, weight), F.group_norm_with_stats(x, 6, weight)
    for got, want in zip(one, other):
        assert got.shape == want.shape
        np.testing.assert_array_equal(lib.get(got), lib.get(want))
    np.testing.assert_array_equal(lib.get(F.instance_norm(x, weight)), lib.get(one[0]))
    pairs = zip(
        F.instance_norm_backward(dy, x, *one[1:], weight), F.group_norm_backward(dy, x, *other[1:], 6, weight)
    )
    for got, want in pairs:
        np.testing.assert_array_equal(lib.get(got), lib.get(want))


@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 4, 0)])
def test_empty_inputs(lib: Arrays, shape: tuple[int, ...]) -> None:
    x, weight = lib.put(np.zeros(shape, np.float32)), lib.put(np.ones(4, np.float32))
    y, mean, rstd = F.group_norm_with_stats(x, 2, weight, weight)
    assert y.shape == shape
    assert np.isnan(lib.get(mean)).all()
    dx, dweight, dbias = F.group_norm_backward(x, x, mean, rstd, 2, weight)
    assert dx.shape == shape
    assert not lib.get(dweight).any()
    assert not lib.get(dbias).any()


# Pooling and quantization --------------------------------------------------------------------------------------------


@elements
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("leading", [(2, 3), (3,)])
def test_lp_pool1d(lib: Arrays, element: ElementKind, ceil_mode: bool, leading: tuple[int, ...]) -> None:
    values = normal((*leading, 12), element)
    cube = values.reshape(-1, 3, 12)
    x = lib.put(values)
    y = F.lp_pool1d(x, 2, 5, 3, ceil_mode)
    want = pool_oracle.lp_pool1d(cube, window=5, stride=3, p=2.0, ceil_mode=ceil_mode)
    assert lib.owns(y, x)
    assert tuple(y.shape) == (*leading, want.shape[-1])
    close(lib.get(y).reshape(want.shape), want, element)
    into = lib.put(np.zeros(y.shape, element.dtype))
    assert F.lp_pool1d(x, 2.0, 5, 3, ceil_mode, out=into) is into
    np.testing.assert_array_equal(lib.get(into), lib.get(y))
    upstream = normal(tuple(y.shape), element, 1)
    dx = F.lp_pool1d_backward(lib.put(upstream), x, y, 2, 5, 3, ceil_mode)
    dy = upstream.reshape(want.shape)
    want = pool_oracle.lp_pool1d_backward(cube, lib.get(y).reshape(want.shape), dy, window=5, stride=3, p=2.0)
    assert tuple(dx.shape) == values.shape
    close(lib.get(dx).reshape(want.shape), want, element)


@elements
@pytest.mark.parametrize(("dtype", "q_min", "q_max"), [("s8", None, None), (np.uint8, 3, 200)])
@pytest.mark.parametrize("leading", [(4,), (2, 2), ()])
def test_per_group(
    lib: Arrays, element: ElementKind, dtype: Any, q_min: Any, q_max: Any, leading: tuple[int, ...]
) -> None:
    values, upstream = normal((*leading, 12), element), normal((*leading, 12), element, 1)
    scales = (np.abs(normal((*leading, 3), element, 2)) / 16 + 0.01).astype(element.dtype)
    zeros = np.random.default_rng(3).integers(-4, 9, scales.shape).astype(np.int32)
    x, scale, zero_point, dy = (lib.put(v) for v in (values, scales, zeros, upstream))
    rows = [v.reshape(-1, v.shape[-1]) for v in (values, scales, zeros, upstream)]
    codes = F.quantize_per_group(x, scale, zero_point, 4, dtype=dtype, q_min=q_min, q_max=q_max)
    kind = ElementKind.of(dtype)
    bounds = {"q_min": -128 if q_min is None else q_min, "q_max": 127 if q_max is None else q_max}
    want = quantize_oracle.quantize_per_group(rows[0], rows[1], rows[2], group_size=4, **bounds)
    assert lib.owns(codes, x)
    assert lib.get(codes).dtype == kind.dtype
    np.testing.assert_array_equal(lib.get(codes).reshape(want.shape), want)
    dx = F.quantize_per_group_backward(dy, x, scale, zero_point, 4, dtype=dtype, q_min=q_min, q_max=q_max)
    want = quantize_oracle.quantize_per_group_backward(
        rows[0], rows[1], rows[2], rows[3], group_size=4, **bounds
    )
    close(lib.get(dx).reshape(want.shape), want, element)
    back = F.dequantize_per_group(codes, scale, zero_point, 4)
    integers = lib.get(codes).reshape(want.shape)
    want = quantize_oracle.dequantize_per_group(integers, rows[1], rows[2], group_size=4)
    close(lib.get(back).reshape(want.shape), want, element)
    gradient = F.dequantize_per_group_backward(dy, scale, 4, dtype=dtype)
    want = quantize_oracle.dequantize_per_group_backward(rows[3], rows[1], group_size=4)
    close(lib.get(gradient).reshape(want.shape), want, element)


def test_no_zero_point_is_zeros(lib: Arrays) -> None:
    x, scale = lib.put(normal((4, 8))), lib.put(np.full((4, 2), 0.25, np.float32))
    zeros = lib.put(np.zeros((4, 2), np.int32))
    codes = F.quantize_per_group(x, scale, None, 4)
    np.testing.assert_array_equal(lib.get(codes), lib.get(F.quantize_per_group(x, scale, zeros, 4)))
    np.testing.assert_array_equal(
        lib.get(F.dequantize_per_group(codes, scale, None, 4)),
        lib.get(F.dequantize_per_group(codes, scale, zeros, 4)),
    )
    np.testing.assert_array_equal(
        lib.get(F.quantize_per_group_backward(x, x, scale, None, 4)),
        lib.get(F.quantize_per_group_backward(x, x, scale, zeros, 4)),
    )


# Refusals ------------------------------------------------------------------------------------------------------------


def transposed(lib: Arrays, array: Any) -> Any:
    """The same values, not C-contiguous."""
    return lib.put(np.ascontiguousarray(np.swapaxes(lib.get(array), 0, 1))).swapaxes(0, 1)


def test_non_contiguous_arrays_are_refused_or_copied(lib: Arrays) -> None:
    x, weight = lib.put(normal((4, 8, 3))), lib.put(normal((8,)))
    scale = lib.put(np.full((4, 8, 1), 0.5, np.float32))
    codes = F.quantize_per_group(x, scale, None, 3)
    _, mean, rstd = F.group_norm_with_stats(x, 2, weight)
    pooled = F.lp_pool1d(x, 2, 3)
    strided = transposed(lib, x)
    calls_of: list[tuple[str, Any, Callable[[Any, bool], Any]]] = [
        ("x", x, lambda a, copy: F.group_norm(a, 2, copy=copy)),
        ("x", x, lambda a, copy: F.instance_norm(a, copy=copy)),
        ("dy", x, lambda a, copy: F.group_norm_backward(a, x, mean, rstd, 2, weight, copy=copy)[0]),
        ("x", x, lambda a, copy: F.group_norm_backward(x, a, mean, rstd, 2, weight, copy=copy)[0]),
        ("mean", mean, lambda a, copy: F.group_norm_backward(x, x, a, rstd, 2, weight, copy=copy)[0]),
        ("x", x, lambda a, copy: F.lp_pool1d(a, 2, 3, copy=copy)),
        ("dy", pooled, lambda a, copy: F.lp_pool1d_backward(a, x, pooled, 2, 3, copy=copy)),
        ("x", x, lambda a, copy: F.quantize_per_group(a, scale, None, 3, copy=copy)),
        ("scale", scale, lambda a, copy: F.quantize_per_group(x, a, None, 3, copy=copy)),
        ("codes", codes, lambda a, copy: F.dequantize_per_group(a, scale, None, 3, copy=copy)),
        ("dy", x, lambda a, copy: F.dequantize_per_group_backward(a, scale, 3, copy=copy)),
        ("dy", x, lambda a, copy: F.quantize_per_group_backward(a, x, scale, None, 3, copy=copy)),
    ]
    for name, good, call in calls_of:
        bad = transposed(lib, good)
        with pytest.raises(br.InvalidProblem, match=rf"\w+: {name} .*not C-contiguous.*copy=True"):
            call(bad, False)
        np.testing.assert_array_equal(lib.get(call(bad, True)), lib.get(call(good, False)))
    with pytest.raises(br.InvalidProblem, match=r"group_norm: out .*not C-contiguous"):
        F.group_norm(x, 2, out=strided)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, w: F.group_norm(x, 3), br.InvalidProblem, "num_groups is 3, want a divisor of the 8"),
        (lambda x, w: F.group_norm(x, 0), br.InvalidProblem, "num_groups is 0"),
        (lambda x, w: F.group_norm(x, "2"), br.InvalidProblem, "num_groups is '2'"),
        (lambda x, w: F.group_norm(x, 2, w[:4]), br.InvalidProblem, r"weight shape .*\(4,\)"),
        (lambda x, w: F.group_norm(x, 2, w, w[:4]), br.InvalidProblem, r"bias shape .*\(4,\)"),
        (lambda x, w: F.group_norm(x, 2, eps=-1.0), br.InvalidProblem, "eps is -1.0"),
        (lambda x, w: F.group_norm(w, 2), br.Unsupported, r"x's shape \(8,\) has rank 1"),
        (lambda x, w: F.group_norm(x, 2, out=w), br.InvalidProblem, "out shape"),
        (lambda x, w: F.group_norm(x, 2, [1.0] * 8), br.DeviceMismatch, "weight"),
        (lambda x, w: F.group_norm_backward(x, x, w, w, 2), br.InvalidProblem, r"mean has shape \(8,\), want \(4,\)"),
        (lambda x, w: F.group_norm_backward(x, x, None, w[:4], 2), br.InvalidProblem, "mean is None"),
        (lambda x, w: F.group_norm_backward(x, x, w[:4], w[:4], 2, None, (False,) * 3), br.InvalidProblem, "output_mask"),
        (lambda x, w: F.group_norm_backward(x, x, w[:4], w[:4], 2, w, (False, True, True), out=x), br.InvalidProblem, "out is given"),
        (lambda x, w: F.lp_pool1d(x, 0.0, 2), br.Unsupported, "norm_type is 0.0"),
        (lambda x, w: F.lp_pool1d(x, math.inf, 2), br.Unsupported, "norm_type is inf"),
        (lambda x, w: F.lp_pool1d(x, 2, 9), br.InvalidProblem, "kernel_size is 9"),
        (lambda x, w: F.lp_pool1d(w, 2, 2), br.Unsupported, "x has shape"),
        (lambda x, w: F.lp_pool1d_backward(x, x, x, 2, 2), br.InvalidProblem, r"lp_pool1d_backward: dy"),
        (lambda x, w: F.quantize_per_group(x, x, None, 3), br.InvalidProblem, "the last extent is 4, want a multiple of group_size 3"),
        (lambda x, w: F.quantize_per_group(x, w, None, 4), br.InvalidProblem, "scale has shape"),
        (lambda x, w: F.quantize_per_group(x, x, None, 4, dtype="f32"), br.Unsupported, "dtype is f32"),
        (lambda x, w: F.quantize_per_group(x, x, None, 4, dtype="no"), br.Unsupported, "dtype is 'no'"),
        (lambda x, w: F.quantize_per_group(x, x, None, 4, q_min=-200), br.InvalidProblem, "q_min is -200"),
        (lambda x, w: F.dequantize_per_group(x, x, None, 4), br.Unsupported, "the codes' dtype is f32"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(
    lib: Arrays, call: Callable[[Any, Any], Any], error: type[Exception], words: str
) -> None:
    x, w = lib.put(normal((2, 8, 4))), lib.put(normal((8,)))
    with pytest.raises(error, match=words) as caught:
        call(x, w)
    assert "Plan" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int32, np.complex64, np.bool_])
def test_types_without_kernels_are_refused(lib: Arrays, dtype: Any) -> None:
    x = lib.put(np.ones((2, 4, 4), dtype))
    for call in (
        lambda: F.group_norm(x, 2),
        lambda: F.instance_norm(x),
        lambda: F.lp_pool1d(x, 2, 2),
        lambda: F.quantize_per_group(x, x, None, 4),
    ):
        with pytest.raises(br.Unsupported, match=r"x.* dtype"):
            call()


def test_mixed_types_are_refused(lib: Arrays) -> None:
    x, weight = lib.put(normal((2, 8, 4))), lib.put(normal((8,), ElementKind.F64))
    with pytest.raises(br.InvalidProblem, match=r"weight has dtype .*float64, want f32"):
        F.group_norm(x, 2, weight)


def test_what_is_no_array_is_refused() -> None:
    for value in ([1.0], None, 3.0, "x"):
        with pytest.raises(br.InvalidProblem, match=r"group_norm: x: a .* is no array"):
            F.group_norm(value, 1)


def test_mixed_libraries_are_refused() -> None:
    x, weight = normal((2, 8, 4)), torch.ones(8)
    with pytest.raises(br.DeviceMismatch, match="weight"):
        F.group_norm(x, 2, weight)
    with pytest.raises(br.DeviceMismatch, match="weight"):
        F.group_norm(torch.from_numpy(x), 2, np.ones(8, np.float32))
    with pytest.raises(br.DeviceMismatch, match="weight"):
        F.group_norm(x, 2, weight, copy=True)


@pytest.mark.gpu
def test_mixed_devices_are_refused() -> None:
    import cupy

    x, weight = normal((2, 8, 4)), np.ones(8, np.float32)
    for there, here in ((cupy.asarray(x), weight), (torch.from_numpy(x).cuda(), torch.ones(8))):
        with pytest.raises(br.DeviceMismatch, match="weight"):
            F.group_norm(there, 2, here)
        with pytest.raises(br.DeviceMismatch, match="weight"):
            F.group_norm(there, 2, here, copy=True)


# PyTorch's modes -----------------------------------------------------------------------------------------------------


def test_a_tensor_that_asks_for_a_gradient_is_refused() -> None:
    x = torch.from_numpy(normal((2, 8, 4)))
    weight = torch.nn.Parameter(torch.ones(8))
    with pytest.raises(
        br.InvalidProblem, match=r"group_norm: weight requires grad.*baracuda_registry\.torch"
    ):
        F.group_norm(x, 2, weight)
    want = F.group_norm(x, 2, weight.detach())
    with torch.no_grad():
        assert torch.equal(F.group_norm(x, 2, weight), want)
    with torch.inference_mode():
        assert torch.equal(F.group_norm(x, 2, weight), want)


def test_sparse_and_foreign_devices_are_refused() -> None:
    with pytest.raises(br.DeviceMismatch, match="group_norm: x is on meta"):
        F.group_norm(torch.ones(2, 8, 4, device="meta"), 2)
    with pytest.raises(br.InvalidProblem, match="x is no plain CPU tensor"):
        F.group_norm(torch.ones(2, 8).to_sparse(), 2)


def test_tensors_that_trace_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(2, 8, 7)
        with pytest.raises(br.InvalidProblem, match=r"group_norm: x: .*FakeTensor has no memory"):
            F.group_norm(x, 2)
    assert type(F.group_norm(torch.ones(2, 8, 7), 2)) is torch.Tensor


# The memo ------------------------------------------------------------------------------------------------------------


def test_a_repeated_problem_is_prepared_once_and_forgotten_with_the_plans() -> None:
    x = normal((2, 8, 4))
    forget_plans()
    memo: Any = norm._prepare_forward
    for _ in range(3):
        F.group_norm(x, 2)
    assert (memo.cache_info().misses, memo.cache_info().hits) == (1, 2)
    assert memo.cache_info().maxsize == calls.MOST_PROBLEMS
    F.group_norm(x, 2, eps=1e-3)
    assert memo.cache_info().misses == 2
    forget_plans()
    assert memo.cache_info().currsize == 0


# Libraries known by protocol only ------------------------------------------------------------------------------------


def test_jax_arrays_come_and_go_through_dlpack() -> None:
    jax = pytest.importorskip("jax")
    values, gamma = normal((2, 8, 4)), normal((8,), seed=1)
    x, weight = jax.numpy.asarray(values), jax.numpy.asarray(gamma)
    y, mean, rstd = F.group_norm_with_stats(x, 2, weight)
    assert all(isinstance(v, jax.Array) for v in (y, mean, rstd))
    want = F.group_norm_with_stats(values, 2, gamma)
    for got, right in zip((y, mean, rstd), want):
        np.testing.assert_array_equal(np.asarray(got), right)
    dx, dweight, dbias = F.group_norm_backward(x, x, mean, rstd, 2, weight, (True, True, False))
    assert isinstance(dx, jax.Array)
    assert isinstance(dweight, jax.Array)
    assert dbias is None
    half = F.group_norm(x.astype("bfloat16"), 2)
    assert half.dtype == "bfloat16"
    codes = F.quantize_per_group(x, jax.numpy.full((2, 8, 1), 0.5), None, 4)
    assert isinstance(codes, jax.Array)
    assert isinstance(F.lp_pool1d(x, 2, 2), jax.Array)
    with pytest.raises(br.InvalidProblem, match=r"group_norm: out is a .*, want None"):
        F.group_norm(x, 2, out=x)
    # The other way: jax takes what the functions return.
    np.testing.assert_array_equal(
        np.asarray(jax.numpy.from_dlpack(F.group_norm(values, 2))), F.group_norm(values, 2)
    )


def test_results_are_the_input_librarys_own_memory_through_the_standard() -> None:
    strict = pytest.importorskip("array_api_strict")
    values = normal((2, 8, 4))
    y = F.instance_norm(strict.asarray(values))
    assert type(y) is type(strict.asarray(values))
    np.testing.assert_array_equal(np.from_dlpack(y), F.instance_norm(values))


def test_an_array_without_a_namespace_comes_back_as_numpy() -> None:
    class Wrapped:
        def __init__(self, values: Array) -> None:
            self.values = values

        def __dlpack__(self, **options: Any) -> Any:
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.values.__dlpack_device__()

    values = normal((2, 8, 4))
    y = F.group_norm(Wrapped(values), 2)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, F.group_norm(values, 2))

    class Elsewhere(Wrapped):
        def __dlpack_device__(self) -> Any:
            return (8, 0)

    with pytest.raises(br.DeviceMismatch, match="DLPack device type 8"):
        F.group_norm(Elsewhere(values), 2)
