"""Host cost of a call: `plan.run` beside a bare launch, CuPy's RawKernel and the PyTorch operation.

Tiny problems, so that the queue never fills; batches of calls between synchronisations; the median batch counts.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import torch
from cupy.cuda import driver

import baracuda_registry as br

BATCH, ROUNDS = 100, 41


def cost(call: Callable[[], Any]) -> float:
    """Median microseconds a call."""
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
    return statistics.median(seen) * 1e6


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


SHAPE, GROUPS = (2, 32, 8, 8), 8
_QUANT = {"outer_size": 4, "axis_size": 64, "group_size": 16, "input_element": "f32", "output_element": "s8"}
PROBLEMS: tuple[tuple[Any, Any], ...] = (
    (br.GroupNormPlan, br.GroupNormDescriptor(input_shape=SHAPE, num_groups=GROUPS, element="f32")),
    (
        br.GroupNormBackwardPlan,
        br.GroupNormBackwardDescriptor(input_shape=SHAPE, num_groups=GROUPS, element="f32"),
    ),
    (
        br.LpPool1dBackwardPlan,
        br.LpPool1dDescriptor(batch=2, channels=4, l_in=64, window=2, p=2.0, element="f32"),
    ),
    (br.DequantizePerGroupBackwardPlan, br.DequantizePerGroupBackwardDescriptor(**_QUANT)),
)


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


def _row(plan_type: Any, desc: Any, library: Any, device: br.Device) -> dict[str, Any]:
    """`run` with one bundle again and again, with many bundles in turn, and as many bare launches."""
    plan = plan_type.select(None, desc, device=device)
    space = cupy.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None
    bundles = itertools.cycle([_bundle(plan, library) for _ in range(BATCH)])
    same = next(bundles)
    launches = len(plan.recipe(desc, plan.variant, device).steps)
    return {
        "plan": plan_type.__name__,
        "arrays": library.__name__,
        "launches": launches,
        "run_same_us": cost(lambda: plan.run(None, space, same)),
        "run_fresh_us": cost(lambda: plan.run(None, space, next(bundles))),
        "bare_us": cost(_bare(launches)),
    }


def measure(device: br.Device) -> list[dict[str, Any]]:
    """One row a plan and array library, and the peers: microseconds a call."""
    rows = [_row(plan, desc, library, device) for library in (cupy, torch) for plan, desc in PROBLEMS]
    n, c, spatial = SHAPE[0], SHAPE[1], SHAPE[2] * SHAPE[3]
    x, dy, gamma = (torch.randn(extents, device="cuda") for extents in (SHAPE, SHAPE, (c,)))
    stats = torch.rand(n, GROUPS, device="cuda")
    raw = cupy.RawKernel('extern "C" __global__ void k(float* a, float* b, float* c, long long n) {}', "k")
    small = cupy.zeros(16, np.float32)
    ops = torch.ops.aten
    peers: dict[str, Callable[[], Any]] = {
        "torch native_group_norm": lambda: ops.native_group_norm(
            x, gamma, gamma, n, c, spatial, GROUPS, 1e-5
        ),
        "torch native_group_norm_backward": lambda: ops.native_group_norm_backward(
            dy, x, stats, stats, gamma, n, c, spatial, GROUPS, [True, True, True]
        ),
        "cupy RawKernel, 3 arrays": lambda: raw((1,), (32,), (small, small, small, 16)),
    }
    return rows + [{"peer": name, "us": cost(call)} for name, call in peers.items()]
