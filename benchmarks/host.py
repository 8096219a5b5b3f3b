"""Host cost of a call: `plan.run` beside as many bare launches, CuPy's RawKernel and the PyTorch operation.

Tiny problems, so that the queue never fills; batches of calls between synchronisations; the median batch counts.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from cupy.cuda import driver

import baracuda_registry as br

from . import results
from .results import Row

BATCH, ROUNDS = 100, 21

SHAPE, GROUPS = (2, 32, 8, 8), 8
_NORM = {"input_shape": SHAPE, "element": "f32"}
_POOL = br.LpPool1dDescriptor(batch=2, channels=4, l_in=64, window=2, p=2.0, element="f32")
_QUANT = {"outer_size": 4, "axis_size": 64, "group_size": 16, "input_element": "f32", "output_element": "s8"}
_RANGE = {"q_min": -128, "q_max": 127}
PROBLEMS: tuple[tuple[Any, Any], ...] = (
    (br.GroupNormPlan, br.GroupNormDescriptor(**_NORM, num_groups=GROUPS)),
    (br.GroupNormBackwardPlan, br.GroupNormBackwardDescriptor(**_NORM, num_groups=GROUPS)),
    (br.InstanceNormPlan, br.InstanceNormDescriptor(**_NORM)),
    (br.InstanceNormBackwardPlan, br.InstanceNormBackwardDescriptor(**_NORM)),
    (br.LpPool1dPlan, _POOL),
    (br.LpPool1dBackwardPlan, _POOL),
    (br.QuantizePerGroupPlan, br.QuantizePerGroupDescriptor(**_QUANT, **_RANGE)),
    (br.QuantizePerGroupBackwardPlan, br.QuantizePerGroupBackwardDescriptor(**_QUANT, **_RANGE)),
    (br.DequantizePerGroupPlan, br.DequantizePerGroupDescriptor(**_QUANT)),
    (br.DequantizePerGroupBackwardPlan, br.DequantizePerGroupBackwardDescriptor(**_QUANT)),
)


def cost(call: Callable[[], Any]) -> dict[str, Any]:
    """Microseconds a call: the summary of batches."""
    for _ in range(BATCH):
        call()
    seen = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(BATCH):
            call()
        seen.append((time.perf_counter() - started) / BATCH)
    torch.cuda.synchronize()
    return results.summary(seen)


def _bare(launches: int) -> Callable[[], None]:
    """As many launches of an empty kernel, with a prebuilt parameter block."""
    kernel = (
        cupy.RawModule(code='extern "C" __global__ void empty(void* p) {}').get_function("empty").kernel.ptr
    )
    slot = ctypes.c_uint64(0)
    block = (ctypes.c_void_p * 1)(ctypes.addressof(slot))
    address = ctypes.addressof(block)

    def call(keep: Any = (slot, block)) -> None:
        for _ in range(launches):
            driver.launchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, address, 0)

    return call


def _bundle(plan: Any, library: Any) -> Any:
    """Fresh arrays of one library for every operand of a plan."""
    arrays = {}
    for operand in plan.argument_table:
        if library is cupy:
            arrays[operand.name] = cupy.ones(operand.shape, operand.element.dtype)
        else:
            dtype = getattr(torch, operand.element.dtype.name)
            arrays[operand.name] = torch.ones(operand.shape, dtype=dtype, device="cuda")
    return plan.arguments_type(**arrays)


def _plan_row(plan_type: Any, desc: Any, library: Any, device: br.Device) -> Row:
    """`run` with one bundle again and again, with many bundles in turn, and as many bare launches."""
    plan = plan_type.select(None, desc, device=device)
    space = cupy.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None
    bundles = itertools.cycle([_bundle(plan, library) for _ in range(BATCH)])
    same = next(bundles)
    launches = len(plan.recipe(desc, plan.variant, device).steps)
    return {
        "kind": "plan",
        "name": plan_type.__name__,
        "arrays": library.__name__,
        "launches": launches,
        "same": cost(lambda: plan.run(None, space, same)),
        "fresh": cost(lambda: plan.run(None, space, next(bundles))),
        "bare": cost(_bare(launches)),
    }


def _peers() -> dict[tuple[str, str], Callable[[], Any]]:
    """Calls by name and array library."""
    n, c, spatial = SHAPE[0], SHAPE[1], SHAPE[2] * SHAPE[3]
    x, dy, gamma = (torch.randn(extents, device="cuda") for extents in (SHAPE, SHAPE, (c,)))
    stats = torch.rand(n, GROUPS, device="cuda")
    row = torch.randn(2, 4, 64, device="cuda")
    leaf = row.clone().requires_grad_()
    pooled = F.lp_pool1d(leaf, 2.0, 2)
    incoming = torch.ones_like(pooled)
    grouped, scale = torch.randn(4, 4, 16, device="cuda"), torch.rand(4, 4, 1, device="cuda")
    raw = cupy.RawKernel('extern "C" __global__ void k(float* a, float* b, float* c, long long n) {}', "k")
    small = cupy.zeros(16, np.float32)
    ops = torch.ops.aten
    return {
        ("native_group_norm", "torch"): lambda: ops.native_group_norm(
            x, gamma, gamma, n, c, spatial, GROUPS, 1e-5
        ),
        ("native_group_norm_backward", "torch"): lambda: ops.native_group_norm_backward(
            dy, x, stats, stats, gamma, n, c, spatial, GROUPS, [True, True, True]
        ),
        ("instance_norm", "torch"): lambda: F.instance_norm(x, weight=gamma, bias=gamma),
        ("lp_pool1d", "torch"): lambda: F.lp_pool1d(row, 2.0, 2),
        ("lp_pool1d backward", "torch"): lambda: torch.autograd.grad(
            pooled, leaf, incoming, retain_graph=True
        ),
        ("dy * scale", "torch"): lambda: grouped * scale,
        ("RawKernel, 3 arrays and a number", "cupy"): lambda: raw((1,), (32,), (small, small, small, 16)),
    }


def measure(device: br.Device) -> list[Row]:
    """One row a plan and array library, and the peers."""
    rows = [_plan_row(plan, desc, library, device) for library in (cupy, torch) for plan, desc in PROBLEMS]
    return rows + [
        {"kind": "peer", "name": name, "arrays": library, "call": cost(call)}
        for (name, library), call in _peers().items()
    ]


def line(row: Row) -> str:
    """One line a row."""
    if row["kind"] == "peer":
        return f"host {row['name']} ({row['arrays']}): {row['call']['median_us']:.1f} µs"
    same, fresh, bare = (row[name]["median_us"] for name in ("same", "fresh", "bare"))
    return f"host {row['name']} ({row['arrays']}): same {same:.1f}, fresh {fresh:.1f}, {row['launches']} bare {bare:.1f} µs"
