"""PyTorch's operators: registration, gradients, tracing, autocast, layouts, streams and graphs, and what is refused."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import baracuda_registry as br

from .torch_cases import close, devices, dtypes, torch

bt = pytest.importorskip("baracuda_registry.torch")
OPS = torch.ops.baracuda
F = torch.nn.functional


def normal(
    *shape: int, device: str = "cpu", dtype: Any = torch.float32, grad: bool = False, seed: int = 0
) -> Any:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * 2 + 0.5
    return values.to(device, dtype).requires_grad_(grad)


def scales(*shape: int, device: str = "cpu", dtype: Any = torch.float32) -> Any:
    return normal(*shape, device=device, dtype=dtype, seed=9).abs() / 16 + 0.02


def forward_calls(device: str, grad: bool = True) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Every operator with arguments."""
    x = normal(2, 6, 8, device=device, grad=grad)
    weight, bias = (normal(6, device=device, grad=grad, seed=s) for s in (1, 2))
    mean, rstd, dy = (
        normal(6, device=device),
        scales(6, device=device),
        normal(2, 6, 8, device=device, seed=3),
    )
    scale, zero = scales(2, 6, 2, device=device), torch.ones(2, 6, 2, dtype=torch.int32, device=device)
    plain, mask = x.detach(), [True, False, True]
    codes = torch.ones(2, 6, 8, dtype=torch.int8, device=device)
    pooled = bt.lp_pool1d(plain, 2, 3, 2)
    return {
        "group_norm": (OPS.group_norm.default, (x, 3, weight, bias, 1e-5)),
        "group_norm without weight": (OPS.group_norm.default, (x, 3, None, None, 1e-5)),
        "group_norm without bias": (OPS.group_norm.default, (x, 3, weight, None, 1e-5)),
        "instance_norm": (OPS.instance_norm.default, (x, weight, bias, 1e-5)),
        "lp_pool1d": (OPS.lp_pool1d.default, (x, 2.0, 3, 2, True)),
        "fake_quantize": (OPS.fake_quantize_per_group.default, (x, scale, zero, 4, -128, 127)),
        "quantize": (OPS.quantize_per_group.default, (plain, scale, None, 4, 0, 255, torch.uint8)),
        "dequantize": (OPS.dequantize_per_group.default, (codes, scale, zero, 4)),
        "group_norm_backward": (
            OPS.group_norm_backward.default,
            (dy, plain, mean, rstd, 3, weight.detach(), mask),
        ),
        "instance_norm_backward": (
            OPS.instance_norm_backward.default,
            (dy, plain, mean.repeat(2), rstd.repeat(2), None, [True, False, False]),
        ),
        "lp_pool1d_backward": (OPS.lp_pool1d_backward.default, (pooled, plain, pooled, 2.0, 3, 2, False)),
        "fake_quantize_backward": (
            OPS.fake_quantize_per_group_backward.default,
            (dy, plain, scale, zero, 4, -128, 127),
        ),
    }


@devices
@pytest.mark.parametrize("name", list(forward_calls("cpu")))
@pytest.mark.filterwarnings("ignore")
def test_opcheck(name: str, device: str) -> None:
    overload, args = forward_calls(device)[name]
    results = torch.library.opcheck(overload, args)
    assert set(results.values()) == {"SUCCESS"}


# Gradients -----------------------------------------------------------------------------------------------------------

GRADIENTS: dict[str, Callable[..., Any]] = {
    "group_norm": lambda x, w, b: bt.group_norm(x, 3, w, b),
    "group_norm, weight": lambda x, w, b: bt.group_norm(x, 3, w),
    "group_norm, bias": lambda x, w, b: bt.group_norm(x, 2, None, b),
    "instance_norm": lambda x, w, b: bt.instance_norm(x, w, b),
    "instance_norm, plain": lambda x, w, b: bt.instance_norm(x),
    "lp_pool1d, 2": lambda x, w, b: bt.lp_pool1d(x, 2, 3, 2),
    "lp_pool1d, 1.7": lambda x, w, b: bt.lp_pool1d(x, 1.7, 3, 2, True),
}


@devices
@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradcheck(name: str, device: str) -> None:
    f64 = {"device": device, "dtype": torch.float64, "grad": True}
    inputs = normal(2, 6, 5, **f64), normal(6, **f64, seed=1), normal(6, **f64, seed=2)
    used = 1 if "plain" in name or "pool" in name else 3
    call = GRADIENTS[name]
    if used == 1:
        assert torch.autograd.gradcheck(lambda x: call(x, None, None), inputs[:1])
    else:
        assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("needs", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_gradients_that_are_asked_for(needs: tuple[bool, bool, bool]) -> None:
    tensors = [normal(2, 6, 5), normal(6, seed=1), normal(6, seed=2)]
    for tensor, need in zip(tensors, needs):
        tensor.requires_grad_(need)
    for ours, theirs in (
        (lambda x, w, b: bt.group_norm(x, 3, w, b), lambda x, w, b: F.group_norm(x, 3, w, b)),
        (lambda x, w, b: bt.instance_norm(x, w, b), lambda x, w, b: F.instance_norm(x, None, None, w, b)),
    ):
        (leaf,) = [t for t, need in zip(tensors, needs) if need]
        dy = normal(2, 6, 5, seed=4)
        (got,) = torch.autograd.grad(ours(*tensors), leaf, dy)
        (want,) = torch.autograd.grad(theirs(*tensors), leaf, dy)
        close(got, want, 4.0)


@pytest.mark.parametrize("name", ["group_norm", "instance_norm", "lp_pool1d", "fake_quantize"])
def test_a_second_derivative_is_refused(name: str) -> None:
    overload, args = forward_calls("cpu")[name]
    result = overload(*args)
    y = result[0] if isinstance(result, tuple) else result
    (first,) = torch.autograd.grad(y.square().sum(), args[0], create_graph=True)
    assert first.requires_grad
    with pytest.raises(br.Unsupported, match=r"baracuda::\w+_backward computes a derivative and has none"):
        first.sum().backward()


def test_statistics_have_no_gradient() -> None:
    x = normal(2, 6, 5, grad=True)
    _, mean, rstd = OPS.group_norm(x, 3, None, None, 1e-5)
    assert not mean.requires_grad
    assert not rstd.requires_grad


@devices
@dtypes
@pytest.mark.parametrize(("low", "high", "zero"), [(-128, 127, 3), (0, 255, 128), (-8, 7, 0)])
def test_fake_quantize_is_pytorchs_per_channel(
    device: str, dtype: Any, low: int, high: int, zero: int
) -> None:
    """A group that is the whole row is a channel; powers of two as scales leave no question of rounding."""
    x = normal(6, 16, device=device, dtype=dtype, grad=True)
    scale = torch.tensor([2.0**-e for e in range(2, 8)], device=device, dtype=dtype)
    zeros = torch.full((6,), zero, dtype=torch.int32, device=device)
    got = bt.fake_quantize_per_group(x, scale[:, None], zeros[:, None], 16, low, high)
    wide = x.detach().float().requires_grad_()
    want = torch.fake_quantize_per_channel_affine(wide, scale.float(), zeros, 0, low, high)
    close(got, want.to(dtype))
    dy = normal(6, 16, device=device, dtype=dtype, seed=1)
    (dx,) = torch.autograd.grad(got, x, dy)
    (wanted,) = torch.autograd.grad(want, wide, dy.float())
    assert torch.equal(dx.float(), wanted)
    assert (dx == 0).any()
    codes = bt.quantize_per_group(x.detach(), scale[:, None], zeros[:, None], 16, low, high)
    assert codes.dtype is (torch.int8 if low < 0 else torch.uint8)
    assert torch.equal(bt.dequantize_per_group(codes, scale[:, None], zeros[:, None], 16), got.detach())


# Tracing -------------------------------------------------------------------------------------------------------------


def network(x: Any, weight: Any, bias: Any, scale: Any) -> Any:
    h = torch.relu(bt.group_norm(x, 3, weight, bias))
    h = bt.instance_norm(h * 2, weight, bias)
    h = bt.fake_quantize_per_group(h, scale, None, 4)
    return bt.lp_pool1d(h, 2, 3, 2, True).sin()


@pytest.mark.parametrize(
    ("backend", "dynamic", "device"),
    [
        ("aot_eager", False, "cpu"),
        ("aot_eager", True, "cpu"),
        ("inductor", False, "cpu"),
        pytest.param("inductor", False, "cuda", marks=pytest.mark.gpu),
        pytest.param("inductor", True, "cuda", marks=pytest.mark.gpu),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_compile_without_a_graph_break(backend: str, dynamic: bool, device: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, backend=backend, dynamic=dynamic)
    for batch in (2, 3) if dynamic else (2,):
        x = normal(batch, 6, 8, device=device, grad=True)
        weight, bias = (normal(6, device=device, grad=True, seed=s) for s in (1, 2))
        scale = scales(batch, 6, 2, device=device)
        leaves = (x, weight, bias)
        got, want = compiled(*leaves, scale), network(*leaves, scale)
        close(got, want, 2.0)
        for one, other in zip(
            torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(want.sum(), leaves)
        ):
            close(one, other, 8.0)


@pytest.mark.filterwarnings("ignore")
def test_export() -> None:
    x = normal(2, 6, 4)
    module = bt.GroupNorm(2, 6)
    program = torch.export.export(module, (x,))
    assert "baracuda.group_norm" in str(program.graph)
    close(program.module()(x), module(x))


def test_meta_tensors_have_shapes_only() -> None:
    y = bt.group_norm(torch.empty(2, 6, 5, device="meta"), 3)
    assert (y.device.type, tuple(y.shape)) == ("meta", (2, 6, 5))
    for length in range(3, 12):
        for ceil_mode in (False, True):
            shape = bt.lp_pool1d(torch.empty(1, 2, length, device="meta"), 2, 3, 2, ceil_mode).shape
            assert shape == F.lp_pool1d(torch.ones(1, 2, length), 2, 3, 2, ceil_mode).shape


# Autocast and modes --------------------------------------------------------------------------------------------------


@devices
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("norm", ["group", "instance"])
def test_autocast_gives_pytorchs_dtype(norm: str, dtype: Any, low: Any, device: str) -> None:
    x = normal(2, 6, 5, device=device, dtype=dtype, grad=True)
    parameter = torch.float64 if dtype is torch.float64 else torch.float32
    weight, bias = (normal(6, device=device, dtype=parameter, grad=True, seed=s) for s in (1, 2))
    with torch.autocast(device, dtype=low):
        if norm == "group":
            got, want = bt.group_norm(x, 3, weight, bias), F.group_norm(x, 3, weight, bias)
        else:
            got = bt.instance_norm(x, weight, bias)
            want = F.instance_norm(x, None, None, weight, bias)
    close(got, want, 2.0)
    dy = normal(2, 6, 5, device=device, dtype=got.dtype, seed=3)
    for one, other in zip(
        torch.autograd.grad(got, (x, weight, bias), dy), torch.autograd.grad(want, (x, weight, bias), dy)
    ):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=3e-2, atol=1e-1 if dtype is torch.bfloat16 else 1e-4)


def test_inference_and_no_grad_modes() -> None:
    x, weight = normal(2, 6, 5), torch.nn.Parameter(normal(6))
    want = bt.group_norm(x, 3, weight).detach()
    with torch.no_grad():
        y = bt.group_norm(x, 3, weight)
        assert not y.requires_grad
        assert torch.equal(y, want)
    with torch.inference_mode():
        y = bt.group_norm(x, 3, weight)
        assert y.is_inference()
        assert torch.equal(y, want)


def test_the_profiler_sees_the_operator() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        bt.group_norm(normal(2, 6, 5), 3)
    assert "baracuda::group_norm" in {event.key for event in profile.key_averages()}


def test_vmap_and_other_modes_take_the_dispatchers_way() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x, weight = normal(2, 6, 5, grad=True), normal(6, grad=True)
    with Log() as log:
        bt.group_norm(x, 3, weight).sum().backward()
    assert [name for name in log.seen if "baracuda" in name] == [
        "baracuda.group_norm.default",
        "baracuda.group_norm_backward.default",
    ]


# Layouts and empty tensors -------------------------------------------------------------------------------------------


@devices
def test_any_layout_is_read_right(device: str) -> None:
    x = normal(4, 6, 8, 4, device=device)
    weight = normal(12, device=device)[::2]
    layouts = (
        x.to(memory_format=torch.channels_last),
        x.transpose(0, 2),
        x[:, :, ::2],
        x[:1].expand(4, 6, 8, 4),
    )
    for view in layouts:
        view = view.detach().requires_grad_()
        groups = 2
        gamma = weight if view.shape[1] == 6 else None
        got, want = bt.group_norm(view, groups, gamma), F.group_norm(view, groups, gamma)
        assert got.is_contiguous()
        close(got, want)
        close(
            got.sum() * 0 + torch.autograd.grad(got.square().sum(), view)[0],
            torch.autograd.grad(want.square().sum(), view)[0],
            16.0,
        )
    row = normal(3, 8, 6, device=device).transpose(1, 2)
    close(bt.lp_pool1d(row, 2, 3), F.lp_pool1d(row, 2, 3), 2.0)
    scale = scales(3, 6, 2, device=device)
    assert torch.equal(
        bt.fake_quantize_per_group(row, scale, None, 4),
        bt.fake_quantize_per_group(row.contiguous(), scale, None, 4),
    )


@devices
def test_empty_batches(device: str) -> None:
    x = torch.empty(0, 6, 5, device=device, requires_grad=True)
    weight = torch.ones(6, device=device, requires_grad=True)
    for y in (bt.group_norm(x, 3, weight, weight), bt.instance_norm(x, weight, weight)):
        assert y.shape == x.shape
        dx, dweight = torch.autograd.grad(y.sum(), (x, weight))
        assert dx.shape == x.shape
        assert not dweight.any()
    assert bt.lp_pool1d(x, 2, 2).shape == (0, 6, 2)


# Refusals ------------------------------------------------------------------------------------------------------------


@devices
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, w: bt.group_norm(x.to(torch.complex64), 2), br.Unsupported, "x's dtype is complex32"),
        (lambda x, w: bt.group_norm(x.int(), 2), br.Unsupported, "x's dtype is i32"),
        (lambda x, w: bt.group_norm(x, 4, w), br.InvalidProblem, "num_groups is 4, want a divisor of the 6"),
        (lambda x, w: bt.group_norm(x, 2, w.double()), br.InvalidProblem, "weight has dtype .*float64, want f32"),
        (lambda x, w: bt.group_norm(x, 2, w, w[:3]), br.InvalidProblem, r"bias shape .*\(3,\)"),
        (lambda x, w: bt.group_norm(x[:1, :, :1], 6), br.InvalidProblem, "more than 1 value per channel"),
        (lambda x, w: bt.instance_norm(x[:, :, :1]), br.InvalidProblem, "more than 1 spatial element"),
        (lambda x, w: bt.lp_pool1d(x, 0, 2), br.Unsupported, r"norm_type is 0\.0, want > 0"),
        (lambda x, w: bt.lp_pool1d(x, 2, 99), br.InvalidProblem, "kernel_size is 99"),
        (lambda x, w: bt.lp_pool1d(x.bool(), 2, 2), br.Unsupported, "x's dtype is bool"),
        (lambda x, w: bt.quantize_per_group(x, x, None, 3), br.InvalidProblem, "a multiple of group_size 3"),
        (lambda x, w: bt.quantize_per_group(x, x, None, 4, 0, 300), br.InvalidProblem, "q_max is 300"),
        (lambda x, w: bt.quantize_per_group(x, x[:, :, :1], w.int(), 4), br.InvalidProblem, "zero_point has shape"),
        (lambda x, w: bt.dequantize_per_group(x, x, None, 4), br.Unsupported, "codes' dtype is f32"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call: Any, error: type[Exception], words: str, device: str) -> None:
    x, w = normal(2, 6, 4, device=device), normal(6, device=device)
    with pytest.raises(error, match=words):
        call(x, w)


def test_gradients_that_are_not_there_are_refused() -> None:
    x, scale = normal(2, 8, grad=True), scales(2, 2)
    with pytest.raises(
        br.InvalidProblem, match=r"quantize_per_group: x requires grad.*fake_quantize_per_group"
    ):
        bt.quantize_per_group(x, scale, None, 4)
    codes = bt.quantize_per_group(x.detach(), scale, None, 4)
    scale = scale.requires_grad_()
    with pytest.raises(br.InvalidProblem, match="dequantize_per_group: scale requires grad"):
        bt.dequantize_per_group(codes, scale, None, 4)
    with pytest.raises(br.InvalidProblem, match="fake_quantize_per_group: scale requires grad"):
        bt.fake_quantize_per_group(x, scale, None, 4)
    with torch.no_grad():
        bt.fake_quantize_per_group(x, scale, None, 4)
        bt.quantize_per_group(x, scale, None, 4)


@pytest.mark.gpu
def test_mixed_devices_are_refused() -> None:
    x = normal(2, 6, 4, device="cuda")
    with pytest.raises((br.DeviceMismatch, RuntimeError), match=r"weight|device"):
        bt.group_norm(x, 2, torch.ones(6))
    with pytest.raises((br.DeviceMismatch, RuntimeError), match=r"scale|device"):
        bt.quantize_per_group(x, torch.ones(2, 6, 1), None, 4)


# Streams and graphs --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_side_streams_keep_the_order_of_their_work() -> None:
    """Work that a stream has not finished is what its operator reads; another stream's is not waited for."""
    weight = torch.ones(64, device="cuda")
    want = None
    x = normal(32, 64, 64, 64, device="cuda")
    bt.group_norm(x, 8, weight)
    torch.cuda.synchronize()
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late = x.mul(3).add_(1)
            y = bt.group_norm(late, 8, weight)
            assert not stream.query(), "the call waited"
        stream.synchronize()
        wanted = F.group_norm(x.mul(3).add_(1), 8, weight)
        close(y, wanted, 2.0)
        assert want is None or torch.equal(y, want)
        want = y


@pytest.mark.gpu
def test_a_training_step_in_a_cuda_graph() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv1d(4, 8, 3, padding=1), bt.GroupNorm(2, 8), torch.nn.SiLU(), bt.InstanceNorm1d(8, affine=True), bt.LPPool1d(2, 2)
    ).cuda()  # fmt: skip
    x = normal(4, 4, 32, device="cuda")

    def step(model: Any) -> Any:
        model.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        return loss

    # A twin runs eagerly: autograd ties the accumulation of a parameter's gradient to the stream that first recorded it.
    twin = copy.deepcopy(model)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(model)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(model)
    for seed in (5, 6):
        x.copy_(normal(4, 4, 32, device="cuda", seed=seed))
        graph.replay()
        captured = [loss.clone(), *(p.grad.clone() for p in model.parameters())]
        eager = [step(twin), *(p.grad.clone() for p in twin.parameters())]
        for one, other in zip(captured, eager):
            torch.testing.assert_close(one, other)


@pytest.mark.gpu
def test_nothing_synchronises() -> None:
    x, weight = normal(2, 6, 8, device="cuda", grad=True), normal(6, device="cuda", grad=True)
    scale = scales(2, 6, 2, device="cuda")

    def run() -> None:
        y = bt.fake_quantize_per_group(bt.instance_norm(bt.group_norm(x, 3, weight)), scale, None, 4)
        bt.lp_pool1d(y, 2, 2).sum().backward()

    run()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode")
        try:
            torch.cuda.set_sync_debug_mode("error")
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
