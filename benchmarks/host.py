"""Host cost of a call: `plan.run` beside a bare launch, CuPy's RawKernel and the PyTorch operation.

Tiny problems, so that the queue never fills; batches of calls between synchronisations; the median batch counts.
"""

from __future__ import annotations

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
    import ctypes

    kernel = cupy.RawModule(code='extern "C" __global__ void empty(void* p) {}').get_function("empty").kernel.ptr
    slot = ctypes.c_uint64(0)
    block = (ctypes.c_void_p * 1)(ctypes.addressof(slot))
    address = ctypes.addressof(block)

    def call(keep: Any = (slot, block)) -> None:
        for _ in range(launches):
            driver.launchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, address, 0)

    return call


def measure(device: br.Device) -> list[dict[str, Any]]:
    """One row a plan: microseconds of run with the same bundle, with fresh bundles, bare launches, peers."""
    rows = []
    shape, groups = (2, 32, 8, 8), 8
    for module in (cupy, torch):

        def make(extents: Any, dtype: Any = np.float32, library: Any = module) -> Any:
            if library is cupy:
                return cupy.random.standard_normal(extents).astype(dtype)
            return torch.randn(extents, device="cuda", dtype=torch.float32).to(
                getattr(torch, np.dtype(dtype).name)
            )

        x, dy, gamma, stats = make(shape), make(shape), make((32,)), make((2 * groups,))
        pool = br.LpPool1dDescriptor(batch=2, channels=4, l_in=64, window=2, p=2.0, element="f32")
        quant = {"outer_size": 4, "axis_size": 64, "group_size": 16, "input_element": "f32", "output_element": "s8"}
        problems: list[tuple[Any, Any, Callable[[], dict[str, Any]]]] = [
            (
                br.GroupNormBackwardPlan,
                br.GroupNormBackwardDescriptor(input_shape=shape, num_groups=groups, element="f32"),
                lambda: {
                    "dy": dy, "x": x, "saved_mean": stats, "saved_rstd": stats, "dx": make(shape), "gamma": gamma,
                    "dgamma": make((32,)), "dbeta": make((32,)),
                },
            ),
            (
                br.GroupNormPlan,
                br.GroupNormDescriptor(input_shape=shape, num_groups=groups, element="f32"),
                lambda: {
                    "x": x, "y": make(shape), "saved_mean": make((2 * groups,)), "saved_rstd": make((2 * groups,)),
                    "gamma": gamma, "beta": gamma,
                },
            ),
            (
                br.LpPool1dBackwardPlan,
                pool,
                lambda: {"x": make((2, 4, 64)), "y": make((2, 4, 32)), "dy": make((2, 4, 32)), "dx": make((2, 4, 64))},
            ),
            (
                br.DequantizePerGroupBackwardPlan,
                br.DequantizePerGroupBackwardDescriptor(**quant),
                lambda: {"d_output": make((4, 64)), "scale": make((4, 4)), "d_input": make((4, 64))},
            ),
        ]  # fmt: skip
        for plan_type, desc, arrays in problems:
            plan = plan_type.select(None, desc, device=device)
            space = make((plan.workspace_size,), np.uint8) if plan.workspace_size else None
            same = plan.arguments_type(**arrays())
            sets = [plan.arguments_type(**arrays()) for _ in range(BATCH)]
            index = [0]

            def fresh(plan: Any = plan, space: Any = space, sets: Any = sets, index: Any = index) -> None:
                index[0] = (index[0] + 1) % BATCH
                plan.run(None, space, sets[index[0]])

            launches = len(plan.recipe(desc, plan.variant, device).steps)
            rows.append(
                {
                    "plan": plan_type.__name__,
                    "arrays": module.__name__,
                    "launches": launches,
                    "run_same_us": cost(lambda plan=plan, space=space, same=same: plan.run(None, space, same)),
                    "run_fresh_us": cost(fresh),
                    "bare_us": cost(_bare(launches)),
                }
            )
    n, c, s = 2, 32, 64
    tx, tdy, tg = (torch.randn(e, device="cuda") for e in (shape, shape, (c,)))
    stat = torch.rand(n, groups, device="cuda")
    rows.append({"plan": "torch native_group_norm", "us": cost(lambda: torch.ops.aten.native_group_norm(tx, tg, tg, n, c, s, groups, 1e-5))})
    rows.append(
        {
            "plan": "torch native_group_norm_backward",
            "us": cost(
                lambda: torch.ops.aten.native_group_norm_backward(
                    tdy, tx, stat, stat, tg, n, c, s, groups, [True, True, True]
                )
            ),
        }
    )
    raw = cupy.RawKernel('extern "C" __global__ void k(float* a, float* b, float* c, long long n) {}', "k")
    a = cupy.zeros(16, np.float32)
    rows.append({"plan": "cupy RawKernel, 3 arrays", "us": cost(lambda: raw((1,), (32,), (a, a, a, 16)))})
    return rows
