"""GroupNorm and InstanceNorm, forward and backward: buffers, oracle and peers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

import baracuda_registry as br

from .case import Case
from .data import DTYPES, randn
from .peers import Buffers, Program, Spec

EPS = 1e-5
_ALL = [True, True, True]
_OPS = torch.ops.aten


def spec(case: Case) -> Spec:
    """What is measured for a norm."""
    return _backward(case) if case.op.endswith("_backward") else _forward(case)


def _extents(case: Case) -> tuple[int, int, int, int]:
    """N, C, spatial elements, groups."""
    n, c = case.shape[:2]
    return n, c, math.prod(case.shape[2:]), case.groups


def _plan(case: Case) -> tuple[Any, Any]:
    """Plan type and descriptor."""
    common: dict[str, Any] = {"input_shape": case.shape, "element": case.dtype}
    if case.op.startswith("group_norm"):
        common["num_groups"] = case.groups
    types = {
        "group_norm": (br.GroupNormPlan, br.GroupNormDescriptor),
        "group_norm_backward": (br.GroupNormBackwardPlan, br.GroupNormBackwardDescriptor),
        "instance_norm": (br.InstanceNormPlan, br.InstanceNormDescriptor),
        "instance_norm_backward": (br.InstanceNormBackwardPlan, br.InstanceNormBackwardDescriptor),
    }
    plan_type, descriptor = types[case.op]
    return plan_type, descriptor(**common)


def _statistics_dtype(case: Case) -> Any:
    return torch.float64 if case.dtype == "f64" else torch.float32


def _forward_program(case: Case, gradient: tuple[str, ...] = ()) -> Program:
    g = case.groups
    operands, prefix = ("x", "gamma", "beta"), "autograd.grad of " if gradient else ""
    if case.op.startswith("instance_norm"):
        text = "F.instance_norm(x, weight=gamma, bias=beta)"
        return Program(
            lambda x, gamma, beta: F.instance_norm(x, weight=gamma, bias=beta, eps=EPS), operands, prefix + text, gradient
        )  # fmt: skip
    text = "F.group_norm(x, G, gamma, beta)"
    return Program(
        lambda x, gamma, beta: F.group_norm(x, g, gamma, beta, EPS), operands, prefix + text, gradient
    )


def _forward(case: Case) -> Spec:
    n, c, _, g = _extents(case)
    dtype = DTYPES[case.dtype]

    def make_set() -> Buffers:
        x, gamma, beta = (randn(extents, dtype) for extents in (case.shape, (c,), (c,)))
        mean, rstd = (torch.empty(n * g, dtype=_statistics_dtype(case), device="cuda") for _ in range(2))
        return {
            "x": x, "y": torch.empty_like(x), "saved_mean": mean, "saved_rstd": rstd, "gamma": gamma, "beta": beta,
        }  # fmt: skip

    def oracle(b: Buffers) -> tuple[Any, ...]:
        x, gamma, beta = (b[name].double() for name in ("x", "gamma", "beta"))
        return (F.group_norm(x, g, gamma, beta, EPS),)

    def liger(x: Any, gamma: Any, beta: Any) -> Any:
        from liger_kernel.ops.group_norm import group_norm_forward

        return group_norm_forward(x, c, g, gamma, beta, EPS)[0]

    plan_type, descriptor = _plan(case)
    text = "liger_kernel.ops.group_norm.group_norm_forward"
    return Spec(
        plan_type, descriptor, make_set, ("y",), oracle,
        _forward_program(case), Program(liger, ("x", "gamma", "beta"), text),
    )  # fmt: skip


def _backward(case: Case) -> Spec:
    n, c, s, g = _extents(case)
    dtype = DTYPES[case.dtype]

    def make_set() -> Buffers:
        x, dy = randn(case.shape, dtype), randn(case.shape, dtype)
        gamma, beta = randn((c,), dtype), randn((c,), dtype)
        _, mean, rstd = _OPS.native_group_norm(
            x.float() if dtype.itemsize < 4 else x, None, None, n, c, s, g, EPS
        )
        saved = _statistics_dtype(case)
        return {
            "x": x, "dy": dy, "dx": torch.empty_like(x), "gamma": gamma, "beta": beta,
            "dgamma": torch.empty_like(gamma), "dbeta": torch.empty_like(gamma),
            "saved_mean": mean.flatten().to(saved), "saved_rstd": rstd.flatten().to(saved),
            # PyTorch and Liger keep the statistics of 16-bit data in 16 bits.
            "mean": mean.view(n, g).to(dtype), "rstd": rstd.view(n, g).to(dtype),
        }  # fmt: skip

    def oracle(b: Buffers) -> tuple[Any, ...]:
        mean, rstd = (b[name].double().view(n, g) for name in ("saved_mean", "saved_rstd"))
        x, dy, gamma = (b[name].double() for name in ("x", "dy", "gamma"))
        return tuple(_OPS.native_group_norm_backward(dy, x, mean, rstd, gamma, n, c, s, g, _ALL))

    def native(dy: Any, x: Any, mean: Any, rstd: Any, gamma: Any) -> Any:
        return _OPS.native_group_norm_backward(dy, x, mean, rstd, gamma, n, c, s, g, _ALL)

    def liger(dy: Any, x: Any, mean: Any, rstd: Any, gamma: Any, beta: Any) -> Any:
        from liger_kernel.ops.group_norm import group_norm_backward

        return group_norm_backward(dy, x, gamma, beta, mean, rstd, c, g)

    operands = ("dy", "x", "mean", "rstd", "gamma")
    program = Program(native, operands, "torch.ops.aten.native_group_norm_backward")
    if case.op.startswith("instance_norm"):
        program = _forward_program(case, ("x", "gamma", "beta"))
    plan_type, descriptor = _plan(case)
    text = "liger_kernel.ops.group_norm.group_norm_backward"
    return Spec(
        plan_type, descriptor, make_set, ("dx", "dgamma", "dbeta"), oracle,
        program, Program(liger, (*operands, "beta"), text),
    )  # fmt: skip
