"""What only a GPU can show: streams, graphs, other libraries' arrays, bit-stability, and tensors past 2^31 elements."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br
from baracuda_registry import registry
from baracuda_registry.elements import ElementKind
from baracuda_registry.errors import DeviceMismatch, InvalidProblem

from . import accuracy, backends, cases, data
from .oracles import pool as pool_oracle
from .oracles import quantize as quantize_oracle
from .samples import FLOATS, SAMPLES, Sample, arrays_for, select

pytestmark = pytest.mark.gpu
giant = pytest.mark.xdist_group("giant")  # one at a time: each takes many gigabytes
samples = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


def _outputs(backend: Any, plan: Any, arrays: dict[str, Any]) -> dict[str, bytes]:
    return {
        o.name: backend.get(arrays[o.name]).tobytes() for o in plan.argument_table if o.output and o.present
    }


def _expected(backend: Any, plan: Any) -> dict[str, bytes]:
    arrays = arrays_for(backend, plan)
    backends.run(backend, plan, plan.arguments_type(**arrays))
    return _outputs(backend, plan, arrays)


class _Protocol:
    """An object that speaks `__cuda_stream__` and nothing else."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


@samples
def test_streams(sample: Sample, cuda: Any) -> None:
    plan = select(sample, cuda)
    wanted = _expected(cuda, plan)
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    for given in (stream, stream.ptr, _Protocol(stream.ptr)):
        arrays, space = arrays_for(cuda, plan), cuda.workspace(plan.workspace_size)
        cuda.synchronize()
        plan.run(given, space, plan.arguments_type(**arrays))
        stream.synchronize()
        assert _outputs(cuda, plan, arrays) == wanted
    with stream:
        arrays = arrays_for(cuda, plan)
        plan.run(None, cuda.workspace(plan.workspace_size), plan.arguments_type(**arrays))
        stream.synchronize()
        assert _outputs(cuda, plan, arrays) == wanted
    with pytest.raises(InvalidProblem, match="stream"):
        plan.run(
            "default", cuda.workspace(plan.workspace_size), plan.arguments_type(**arrays_for(cuda, plan))
        )


@pytest.mark.alone
@samples
def test_run_is_asynchronous_and_on_the_given_stream(sample: Sample, cuda: Any) -> None:
    """Behind a kernel that spins for a while, `run` returns at once and its outputs are still poisoned."""
    plan = select(sample, cuda)
    plan.prepare()
    wanted = _expected(cuda, plan)
    spin = cuda.cupy.RawKernel(
        'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n) {} }',
        "spin",
    )
    spin((1,), (1,), (np.int64(1000),))
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    arrays, space = arrays_for(cuda, plan), cuda.workspace(plan.workspace_size)
    cuda.synchronize()
    with stream:
        spin((1,), (1,), (np.int64(400_000_000),))
    started = time.perf_counter()
    plan.run(stream, space, plan.arguments_type(**arrays))
    seconds = time.perf_counter() - started
    assert not stream.done
    assert seconds < 0.05
    stream.synchronize()
    assert _outputs(cuda, plan, arrays) == wanted


@pytest.mark.alone
@samples
def test_run_allocates_nothing(sample: Sample, cuda: Any) -> None:
    plan = select(sample, cuda)
    arrays, space = arrays_for(cuda, plan), cuda.workspace(plan.workspace_size)
    args = plan.arguments_type(**arrays)
    plan.run(None, space, args)
    cuda.synchronize()
    free, _ = cuda.cupy.cuda.runtime.memGetInfo()
    pool = cuda.cupy.get_default_memory_pool()
    used = pool.used_bytes(), pool.total_bytes()
    for _ in range(50):
        plan.run(None, space, args)
    cuda.synchronize()
    assert cuda.cupy.cuda.runtime.memGetInfo()[0] == free
    assert (pool.used_bytes(), pool.total_bytes()) == used


@samples
@pytest.mark.parametrize("element", FLOATS, ids=lambda e: e.value)
def test_graph_capture(sample: Sample, element: ElementKind, cuda: Any) -> None:
    plan = select(sample, cuda, element)
    plan.prepare()
    wanted = _expected(cuda, plan)
    arrays, space = arrays_for(cuda, plan), cuda.workspace(plan.workspace_size)
    stream = cuda.cupy.cuda.Stream(non_blocking=True)
    cuda.synchronize()
    with stream:
        stream.begin_capture()
        plan.run(stream, space, plan.arguments_type(**arrays))
        graph = stream.end_capture()
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
    assert _outputs(cuda, plan, arrays) == wanted


@samples
def test_torch_tensors(sample: Sample, cuda: Any) -> None:
    torch = pytest.importorskip("torch")
    for element in FLOATS:
        plan = select(sample, cuda, element)
        wanted = _expected(cuda, plan)
        arrays = arrays_for(cuda, plan)
        tensors = {}
        for name, array in arrays.items():
            if array is None:
                tensors[name] = None
                continue
            raw = torch.from_dlpack(cuda.cupy.ascontiguousarray(array).view(np.uint8).ravel()).clone()
            kind = next(o.element for o in plan.argument_table if o.name == name)
            dtype = getattr(
                torch,
                {
                    "f16": "float16",
                    "bf16": "bfloat16",
                    "f32": "float32",
                    "f64": "float64",
                    "s8": "int8",
                    "u8": "uint8",
                    "i32": "int32",
                }[kind.value],
            )
            tensors[name] = raw.view(dtype).reshape(array.shape)
        space = (
            torch.empty(plan.workspace_size, dtype=torch.uint8, device="cuda")
            if plan.workspace_size
            else None
        )
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            plan.run(None, space, plan.arguments_type(**tensors))
        side.synchronize()
        for name, bits in wanted.items():
            assert tensors[name].contiguous().view(torch.uint8).cpu().numpy().tobytes() == bits
        first = next(iter(tensors))
        with pytest.raises(DeviceMismatch, match="cpu"):
            plan.run(None, space, plan.arguments_type(**{**tensors, first: tensors[first].cpu()}))


def test_torch_freed_storage(cuda: Any) -> None:
    torch = pytest.importorskip("torch")
    sample = next(s for s in SAMPLES if s.name == "DequantizePerGroupBackwardPlan")
    plan = select(sample, cuda)
    tensors = {o.name: torch.ones(o.shape, device="cuda") for o in plan.argument_table}
    tensors["d_output"].untyped_storage().resize_(0)
    with pytest.raises(br.BufferTooSmall) as caught:
        plan.run(None, None, plan.arguments_type(**tensors))
    assert (caught.value.needed, caught.value.got) == (4 * 32, 0)


@samples
def test_torch_tensors_in_every_wrong_form(
    sample: Sample, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The straight-line path takes fresh tensors and parameters, and leaves every difference to the complete checks."""
    torch = pytest.importorskip("torch")
    plan = sample.plan(sample.descriptor(), cuda.device, br.PlanPreference(), registry())

    def tensor(shape: tuple[int, ...], name: str, parameter: bool = False) -> Any:
        made = torch.ones(shape, dtype=getattr(torch, name), device="cuda")
        return torch.nn.Parameter(made) if parameter else made

    def bundle() -> Any:
        names = {o.name: o.element.info.numpy_name for o in plan.argument_table}
        return plan.arguments_type(
            **{
                o.name: tensor(o.shape, names[o.name], o.name == "gamma") if o.present else None
                for o in plan.argument_table
            }
        )

    space = tensor((plan.workspace_size,), "uint8") if plan.workspace_size else None
    good = bundle()
    plan.run(None, space, good)
    (launch,) = plan._launchers
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_check", None)
        plan.run(None, space, bundle())
    with torch.no_grad():
        assert launch(good, None, space)
    for operand in (o for o in plan.argument_table if o.present):
        name = operand.element.info.numpy_name
        raw = tensor((2 * operand.nbytes + 16,), "uint8")
        dtype = getattr(torch, name)
        shrunk = tensor(operand.shape, name)
        shrunk.untyped_storage().resize_(operand.nbytes - 1)
        freed = tensor(operand.shape, name)
        freed.untyped_storage().resize_(0)
        moved = raw[16 : 16 + operand.nbytes].view(dtype).reshape(operand.shape)
        assert launch(replace(good, **{operand.name: moved}), None, space)
        wrong = {
            "none": None,
            "host": tensor(operand.shape, name).cpu(),
            "cupy": cuda.cupy.asarray(tensor(operand.shape, name).detach())
            if name != "bfloat16"
            else cuda.empty(operand.shape, operand.element.dtype),
            "dtype": tensor(operand.shape, "int64"),
            "longer": tensor((*operand.shape[:-1], operand.shape[-1] + 1), name),
            "rank": tensor((1, *operand.shape), name),
            "strided": tensor((*operand.shape[:-1], 2 * operand.shape[-1]), name)[..., ::2],
            "broadcast": tensor((1,) * len(operand.shape), name).expand(operand.shape),
            "shrunk": shrunk,
            "freed": freed,
        }
        for what, value in wrong.items():
            assert not launch(replace(good, **{operand.name: value}), None, space), (operand.name, what)
        raw.untyped_storage().resize_(16 + operand.nbytes - 1)
        assert not launch(replace(good, **{operand.name: moved}), None, space), operand.name
    if space is not None:
        freed = tensor((plan.workspace_size,), "uint8")
        freed.untyped_storage().resize_(0)
        for value in (None, space[:-1], space.cpu(), freed):
            assert not launch(good, None, value)
        with pytest.raises(br.WorkspaceTooSmall):
            plan.run(None, freed, good)
    torch.cuda.synchronize()


@samples
def test_host_arrays_are_refused(sample: Sample, cuda: Any) -> None:
    plan = select(sample, cuda)
    arrays = arrays_for(cuda, plan)
    first = next(iter(arrays))
    arrays[first] = cuda.get(arrays[first])
    with pytest.raises(DeviceMismatch, match="numpy"):
        plan.run(None, cuda.workspace(plan.workspace_size), plan.arguments_type(**arrays))


BIG = {
    br.LpPool1dPlan: {"batch": 8, "channels": 31, "l_in": 9001, "window": 5, "stride": 2, "p": 2.0},
    br.LpPool1dBackwardPlan: {"batch": 8, "channels": 31, "l_in": 9001, "window": 5, "stride": 2, "p": 2.0},
    br.GroupNormPlan: {"input_shape": (8, 64, 56, 56), "num_groups": 16},
    br.GroupNormBackwardPlan: {"input_shape": (8, 64, 56, 56), "num_groups": 16},
    br.InstanceNormPlan: {"input_shape": (8, 64, 56, 56)},
    br.InstanceNormBackwardPlan: {"input_shape": (8, 64, 56, 56)},
}


@pytest.mark.parametrize("element", FLOATS, ids=lambda e: e.value)
@samples
def test_bit_stable_over_runs(sample: Sample, element: ElementKind, cuda: Any) -> None:
    """Every variant that says so gives the same bits, run after run, whatever else the GPU does."""
    changes = BIG.get(sample.plan, {"outer_size": 517, "axis_size": 4096, "group_size": 64})
    probe = select(sample, cuda, element, **changes)
    noise = cuda.cupy.cuda.Stream(non_blocking=True)
    tried = 0
    for candidate in probe.selection.trace.candidates:
        plan = select(sample, cuda, element, br.PlanPreference(variant=candidate.variant.id), **changes)
        assert plan.precision_guarantee.bit_stable_on_same_hardware
        seen = set()
        for _ in range(8):
            arrays = arrays_for(cuda, plan)
            with noise:
                cuda.cupy.random.random((512, 512))
            plan.run(None, cuda.workspace(plan.workspace_size), plan.arguments_type(**arrays))
            cuda.synchronize()
            seen.add(tuple(sorted(_outputs(cuda, plan, arrays).items())))
        assert len(seen) == 1, candidate.variant.id
        tried += 1
    assert tried


def test_host_and_gpu_agree(cuda: Any) -> None:
    host = backends.HostBackend()
    for sample in SAMPLES:
        here, there = select(sample, host), select(sample, cuda)
        results = []
        for backend, plan in ((host, here), (cuda, there)):
            arrays = arrays_for(backend, plan)
            backends.run(backend, plan, plan.arguments_type(**arrays))
            results.append(
                {o.name: backend.get(arrays[o.name]) for o in plan.argument_table if o.output and o.present}
            )
        for name in results[0]:
            np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5, atol=1e-5)


def test_registers_of_the_loaded_kernels_match_the_report(cuda: Any) -> None:
    from cupy.cuda import driver

    from baracuda_registry.artifact import architecture_for, artifact
    from baracuda_registry.execution import runtime_named

    table = registry()
    assert table.manifest is not None
    variants = [
        v for v in table.all_variants() if v.source and v.sku.arch.runs_on(cuda.device.compute_capability)
    ]
    for variant in variants[::25]:
        made = artifact(table.manifest, variant, architecture_for(variant, cuda.device))
        kernels = runtime_named("cuda").load(table.manifest, variant, cuda.device)
        for symbol, kernel in kernels.items():
            assert (
                driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, kernel)
                == made.resources[symbol].registers
            )


# Past 2^31 elements -------------------------------------------------------------------------------------------------


def _random(cuda: Any, count: int, dtype: Any) -> Any:
    """Gaussian values of any length, made in pieces."""
    out = cuda.cupy.empty(count, dtype)
    rng = cuda.cupy.random.default_rng(3)
    for start in range(0, count, 1 << 28):
        stop = min(count, start + (1 << 28))
        out[start:stop] = rng.standard_normal(stop - start, dtype=np.float32).astype(dtype)
    return out


def _free(cuda: Any) -> None:
    cuda.cupy.get_default_memory_pool().free_all_blocks()


def _windows(count: int, size: int = 4096) -> list[int]:
    """Starts of slices at both ends, in the middle and around 2^31."""
    return [s for s in (0, count // 2, 2**31 - size // 2, count - size) if 0 <= s <= count - size]


@giant
def test_pool_past_2_31(cuda: Any) -> None:
    l_in = 2**31 + 101
    for window, stride, p in ((4, 4, 2.0), (3, 2, 1.0)):
        desc = br.LpPool1dDescriptor(
            batch=1, channels=1, l_in=l_in, window=window, stride=stride, p=p, element="f16"
        )
        x = _random(cuda, l_in, np.float16).reshape(1, 1, -1)
        y = cuda.cupy.full((1, 1, desc.output_length), np.nan, np.float16)
        br.LpPool1dPlan.select(None, desc).run(None, None, br.LpPool1dFwArgs(x=x, y=y))
        assert not bool(cuda.cupy.isnan(y).any())
        for start in _windows(desc.output_length):
            piece = cuda.get(
                cuda.cupy.ascontiguousarray(x[..., start * stride : (start + 4095) * stride + window])
            )
            want = pool_oracle.lp_pool1d(piece, window=window, stride=stride, p=p)
            got = cuda.get(cuda.cupy.ascontiguousarray(y[..., start : start + 4096]))
            accuracy.assert_elementwise(got, want, "f16", 1.0)
        dx = cuda.cupy.full_like(x, np.nan)
        br.LpPool1dBackwardPlan.select(None, desc).run(None, None, br.LpPool1dBwArgs(x=x, y=y, dy=y, dx=dx))
        assert not bool(cuda.cupy.isnan(dx).any())
        covered = (desc.output_length - 1) * stride + window
        for start in _windows(desc.output_length):
            here = slice(start * stride, (start + 4095) * stride + window)
            piece = {"x": x[..., here], "y": y[..., start : start + 4096]}
            piece = {name: cuda.get(cuda.cupy.ascontiguousarray(part)) for name, part in piece.items()}
            want = pool_oracle.lp_pool1d_backward(
                piece["x"], piece["y"], piece["y"], window=window, stride=stride, p=p
            )
            got = cuda.get(cuda.cupy.ascontiguousarray(dx[..., here]))
            inner = slice(window, -window)  # the ends of a piece also lie in windows outside it
            accuracy.assert_elementwise(got[..., inner], want[..., inner], "f16", 1.0)
        assert not bool(dx[..., covered:].any())
        del x, y, dx
        _free(cuda)


@giant
@pytest.mark.parametrize(("shape", "groups"), [((1, 1, 2**31 + 104), 1), ((3, 2, 2**28, 2), 2)])
def test_norm_past_2_31(shape: tuple[int, ...], groups: int, cuda: Any) -> None:
    cupy = cuda.cupy
    count = int(np.prod(shape))
    x = _random(cuda, count, np.float16).reshape(shape)
    y = cupy.full(shape, np.nan, np.float16)
    gamma, beta = cupy.full(shape[1], 1.5, np.float16), cupy.full(shape[1], 0.25, np.float16)
    mean, rstd = (cupy.empty(shape[0] * groups, np.float32) for _ in range(2))

    def workspace(plan: Any) -> Any:
        return cupy.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None

    forward = br.GroupNormPlan.select(
        None, br.GroupNormDescriptor(input_shape=shape, num_groups=groups, element="f16")
    )
    args = br.GroupNormArgs(x=x, y=y, saved_mean=mean, saved_rstd=rstd, gamma=gamma, beta=beta)
    forward.run(None, workspace(forward), args)
    flat = x.reshape(shape[0] * groups, -1)
    m = flat.shape[1]
    for row in range(flat.shape[0]):
        pieces = (
            [flat[row, s : s + (1 << 27)].astype(np.float64) for s in range(0, m, 1 << 27)]
            if m < 2**30
            else None
        )
        total, square = 0.0, 0.0
        for start in range(0, m, 1 << 27):
            piece = flat[row, start : start + (1 << 27)].astype(np.float64)
            total, square = total + float(piece.sum()), square + float((piece * piece).sum())
        del pieces
        want_mean, want_var = total / m, square / m - (total / m) ** 2
        assert abs(float(mean[row]) - want_mean) < 1e-6
        assert abs(float(rstd[row]) - (want_var + 1e-5) ** -0.5) < 1e-6
    for start in _windows(count):
        piece = cuda.get(cupy.ascontiguousarray(x.reshape(-1)[start : start + 4096])).astype(np.float64)
        row = np.arange(start, start + 4096) // m
        want = (piece - cuda.get(mean)[row]) * cuda.get(rstd)[row] * 1.5 + 0.25
        got = cuda.get(cupy.ascontiguousarray(y.reshape(-1)[start : start + 4096]))
        accuracy.assert_elementwise(got, want, "f16", 2.0)
    assert not bool(cupy.isnan(y).any())

    dx = y  # re-used, poisoned again
    dx.fill(np.nan)
    dy = x
    dgamma, dbeta = (cupy.full(shape[1], np.nan, np.float16) for _ in range(2))
    desc = br.GroupNormBackwardDescriptor(input_shape=shape, num_groups=groups, element="f16")
    backward = br.GroupNormBackwardPlan.select(None, desc)
    back = br.GroupNormBackwardArgs(
        dy=dy, x=x, saved_mean=mean, saved_rstd=rstd, dx=dx, gamma=gamma, dgamma=dgamma, dbeta=dbeta
    )
    backward.run(None, workspace(backward), back)
    assert not bool(cupy.isnan(dx).any())
    # With dy = x: h = 1.5·x, x̂ = (x − mean)·rstd, so A/M = 1.5·mean and B/M = 1.5·(1/rstd)·(1 − eps·rstd²), and dx is
    # the small remainder of a cancellation: bounded by the size of what cancels.
    assert float(cupy.abs(dx).max()) < 0.05
    del x, y, dx, dy
    _free(cuda)


@giant
def test_quantize_past_2_31(cuda: Any) -> None:
    cupy = cuda.cupy
    outer, axis, group = 2**17 + 3, 16384, 128
    x = _random(cuda, outer * axis, np.float16).reshape(outer, axis)
    scale = cupy.full((outer, axis // group), 0.01, np.float16)
    zero_point = cupy.full((outer, axis // group), 3, np.int32)
    codes = cupy.empty((outer, axis), np.int8)
    fields = {
        "outer_size": outer,
        "axis_size": axis,
        "group_size": group,
        "input_element": "f16",
        "output_element": "s8",
    }
    limits = {"q_min": -128, "q_max": 127}
    br.QuantizePerGroupPlan.select(None, br.QuantizePerGroupDescriptor(**fields, **limits)).run(
        None, None, br.QuantizePerGroupArgs(input=x, scale=scale, zero_point=zero_point, output=codes)
    )
    rows = (0, 2**16, 2**17, outer - 1)
    for row in rows:
        want = quantize_oracle.quantize_per_group(
            cuda.get(x[row : row + 1]),
            cuda.get(scale[row : row + 1]),
            cuda.get(zero_point[row : row + 1]),
            group_size=group,
            **limits,
        )
        accuracy.assert_codes(cuda.get(codes[row : row + 1]), want)
    back = cupy.full_like(x, np.nan)
    br.DequantizePerGroupPlan.select(None, br.DequantizePerGroupDescriptor(**fields)).run(
        None, None, br.DequantizePerGroupArgs(input=codes, scale=scale, zero_point=zero_point, output=back)
    )
    assert not bool(cupy.isnan(back).any())
    for row in rows:
        want = quantize_oracle.dequantize_per_group(
            cuda.get(codes[row : row + 1]),
            cuda.get(scale[row : row + 1]),
            cuda.get(zero_point[row : row + 1]),
            group_size=group,
        )
        accuracy.assert_elementwise(cuda.get(back[row : row + 1]), want, "f16", 1.0)
    grad = cupy.full_like(x, np.nan)
    br.DequantizePerGroupBackwardPlan.select(None, br.DequantizePerGroupBackwardDescriptor(**fields)).run(
        None, None, br.DequantizePerGroupBackwardArgs(d_output=x, scale=scale, d_input=grad)
    )
    assert not bool(cupy.isnan(grad).any())
    br.QuantizePerGroupBackwardPlan.select(
        None, br.QuantizePerGroupBackwardDescriptor(**fields, **limits)
    ).run(
        None,
        None,
        br.QuantizePerGroupBackwardArgs(
            input=x, scale=scale, zero_point=zero_point, d_output=x, d_input=back
        ),
    )
    for row in rows:
        piece = {"x": x, "scale": scale, "zero_point": zero_point}
        piece = {name: cuda.get(part[row : row + 1]) for name, part in piece.items()}
        want = quantize_oracle.quantize_per_group_backward(
            piece["x"], piece["scale"], piece["zero_point"], piece["x"], group_size=group, **limits
        )
        accuracy.assert_elementwise(cuda.get(back[row : row + 1]), want, "f16", 1.0)
    del x, codes, back, grad
    _free(cuda)


def test_many_groups_and_rows(cuda: Any) -> None:
    """Counts past 65 535 on every axis."""
    for shape, groups in (((70000, 3, 2), 1), ((2, 140000, 3), 70000), ((1, 2, 70000, 1), 2)):
        for plan, check in (
            (br.GroupNormPlan, cases.check_norm_forward),
            (br.GroupNormBackwardPlan, cases.check_norm_backward),
        ):
            desc = plan.descriptor_type(input_shape=shape, num_groups=groups, element="f32")
            variant = plan.select(None, desc).variant
            assert check(variant, cuda, plan, shapes=((shape, groups),)).runs
    for batch, channels, l_in in ((70000, 1, 5), (1, 70000, 5), (2, 1, 70001)):
        shape = ((batch, channels, l_in, 3, 2, False),)
        for check in (cases.check_pool_forward, cases.check_pool_backward):
            desc = br.LpPool1dDescriptor(
                batch=batch, channels=channels, l_in=l_in, window=3, stride=2, p=2.0, element="f32"
            )
            plan = br.LpPool1dPlan if check is cases.check_pool_forward else br.LpPool1dBackwardPlan
            assert check(plan.select(None, desc).variant, cuda, shapes=shape).runs


def test_misaligned_big_arrays(cuda: Any) -> None:
    """Odd element offsets on a problem of many tiles."""
    x = data.normal((4, 16, 1031), "bf16", 1)
    desc = br.LpPool1dDescriptor(batch=4, channels=16, l_in=1031, window=4, stride=4, p=3.0, element="bf16")
    plan = br.LpPool1dPlan.select(None, desc)
    results = []
    for offset in (0, 1, 3, 5):
        y = cuda.empty((4, 16, desc.output_length), x.dtype, offset)
        backends.run(cuda, plan, br.LpPool1dFwArgs(x=cuda.put(x, offset), y=y))
        results.append(cuda.get(y))
    want = pool_oracle.lp_pool1d(x, window=4, stride=4, p=3.0)
    for got in results:
        accuracy.assert_elementwise(got, want, "bf16", 1.0)
