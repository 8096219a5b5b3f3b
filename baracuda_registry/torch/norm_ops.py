"""GroupNorm and InstanceNorm as operators."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from ..functional import norm
from .registration import (
    LIBRARY,
    TORCH,
    Kernel,
    applier,
    below,
    contiguous,
    define,
    derivative,
    plain,
    recording,
)


def _norm_kernel(x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> Any:
    x, weight, bias = contiguous(x, weight, bias)
    name = "instance_norm" if groups is None else "group_norm"
    return norm.normalise(name, TORCH, x, groups, weight, bias, eps)


def _norm_backward_kernel(
    dy: Any, x: Any, mean: Any, rstd: Any, groups: int | None, weight: Any, mask: list[bool]
) -> Any:
    results = _gradients(dy, x, mean, rstd, groups, weight, (mask[0], mask[1], mask[2]))
    return tuple(x.new_empty(0) if value is None else value for value in results)


def _gradients(
    dy: Any, x: Any, mean: Any, rstd: Any, groups: int | None, weight: Any, wanted: tuple[bool, bool, bool]
) -> tuple[Any, Any, Any]:
    dy, x, mean, rstd, weight = contiguous(dy, x, mean, rstd, weight)
    name = "instance_norm_backward" if groups is None else "group_norm_backward"
    return norm.gradients(name, TORCH, dy, x, mean, rstd, groups, weight, wanted)


def _norm_fake(x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> Any:
    torch._check(x.dim() >= 2, lambda: f"x has {x.dim()} dimensions, want at least 2")
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    count = x.shape[0] * (x.shape[1] if groups is None else groups)
    return (x.new_empty(x.shape), *(x.new_empty((count,), dtype=dtype) for _ in range(2)))


def _norm_backward_fake(
    dy: Any, x: Any, mean: Any, rstd: Any, groups: int | None, weight: Any, mask: list[bool]
) -> Any:
    channels = (x.shape[1],)
    return tuple(x.new_empty(s if m else (0,)) for s, m in zip((x.shape, channels, channels), mask))


class _Norm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        forward: Kernel,
        backward: Kernel,
        x: Any,
        groups: int | None,
        weight: Any,
        bias: Any,
        eps: float,
    ) -> Any:
        y, mean, rstd = forward(x, groups, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.mark_non_differentiable(mean, rstd)
        ctx.set_materialize_grads(False)
        ctx.groups, ctx.gradients = groups, backward
        return y, mean, rstd

    @staticmethod
    def backward(ctx: Any, dy: Any, *_: Any) -> Any:
        nothing = (None,) * 7
        if dy is None:
            return nothing
        x, weight, mean, rstd = ctx.saved_tensors
        needs = ctx.needs_input_grad
        mask = [needs[2], needs[4], needs[5]]
        results = ctx.gradients(dy, x, mean, rstd, ctx.groups, weight, mask)
        dx, dweight, dbias = (value if wanted else None for value, wanted in zip(results, mask))
        return None, None, dx, None, dweight, dbias, None


group_norm = define(
    "group_norm(Tensor x, int num_groups, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    _norm_kernel,
    _norm_fake,
)
group_norm_backward = define(
    "group_norm_backward(Tensor dy, Tensor x, Tensor mean, Tensor rstd, int num_groups, Tensor? weight,"
    " bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    _norm_backward_kernel,
    _norm_backward_fake,
)


def _instance_kernel(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return _norm_kernel(x, None, weight, bias, eps)


def _instance_backward_kernel(dy: Any, x: Any, mean: Any, rstd: Any, weight: Any, mask: list[bool]) -> Any:
    return _norm_backward_kernel(dy, x, mean, rstd, None, weight, mask)


instance_norm = define(
    "instance_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    _instance_kernel,
    lambda x, weight, bias, eps: _norm_fake(x, None, weight, bias, eps),
)
instance_norm_backward = define(
    "instance_norm_backward(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor? weight, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    _instance_backward_kernel,
    lambda dy, x, mean, rstd, weight, mask: _norm_backward_fake(dy, x, mean, rstd, None, weight, mask),
)


def _instance_gradients(
    dy: Any, x: Any, mean: Any, rstd: Any, groups: None, weight: Any, mask: Sequence[bool]
) -> Any:
    return instance_norm_backward(dy, x, mean, rstd, weight, mask)


class _Straight(torch.autograd.Function):  # type: ignore[misc]
    """`_Norm` for plain tensors: no dispatcher, and the statistics are no outputs."""

    @staticmethod
    def forward(ctx: Any, x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> Any:
        y, mean, rstd = _norm_kernel(x, groups, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.groups = groups
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, weight, mean, rstd = ctx.saved_tensors
        needs, groups = ctx.needs_input_grad, ctx.groups
        mask = (needs[0], needs[2], needs[3])
        if not torch.is_grad_enabled() and plain(dy, x, mean, weight):
            dx, dweight, dbias = _gradients(dy, x, mean, rstd, groups, weight, mask)
        else:
            kernel = _instance_gradients if groups is None else group_norm_backward
            results = kernel(dy, x, mean, rstd, groups, weight, mask)
            dx, dweight, dbias = (value if wanted else None for value, wanted in zip(results, mask))
        return dx, None, dweight, dbias, None


_apply, _apply_straight = applier(_Norm), torch._C._FunctionBase.__dict__["apply"].__get__(None, _Straight)


def straight(x: Any, groups: int | None, weight: Any, bias: Any, eps: float) -> Any:
    """y of `group_norm`, or of `instance_norm` for groups of None, for tensors that are `plain`."""
    if recording(x, weight, bias):
        return _apply_straight(x, groups, weight, bias, eps)
    return _norm_kernel(x, groups, weight, bias, eps)[0]


def _group_norm_autograd(keyset: Any, x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    if not recording(x, weight, bias):
        return below(keyset, group_norm, _norm_kernel, x, groups, weight, bias, eps)

    def forward(*args: Any) -> Any:
        return below(keyset, group_norm, _norm_kernel, *args)

    return _apply(forward, group_norm_backward, x, groups, weight, bias, eps)


def _instance_norm_autograd(keyset: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    if not recording(x, weight, bias):
        return below(keyset, instance_norm, _instance_kernel, x, weight, bias, eps)

    def forward(x: Any, groups: None, weight: Any, bias: Any, eps: float) -> Any:
        return below(keyset, instance_norm, _instance_kernel, x, weight, bias, eps)

    return _apply(forward, _instance_gradients, x, None, weight, bias, eps)


LIBRARY.impl("group_norm", _group_norm_autograd, "Autograd", with_keyset=True)
LIBRARY.impl("instance_norm", _instance_norm_autograd, "Autograd", with_keyset=True)
derivative("group_norm_backward", _norm_backward_kernel)
derivative("instance_norm_backward", _instance_backward_kernel)


def _cast(dtype: Any, *tensors: Any) -> tuple[Any, ...]:
    """Floating tensors but f64, which autocast leaves alone, in a dtype."""
    return tuple(
        t.to(dtype) if t is not None and t.is_floating_point() and t.dtype is not torch.float64 else t
        for t in tensors
    )


def _group_norm_cuda(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """In f32, as PyTorch's list for CUDA has `group_norm`."""
    with _ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCUDA)):
        return group_norm(*_cast(torch.float32, x), groups, *_cast(torch.float32, weight, bias), eps)


def _group_norm_cpu(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """In x's dtype, as PyTorch computes it there; f32 parameters follow x."""
    with _ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):
        return group_norm(x, groups, *_cast(x.dtype, weight, bias), eps)


def _instance_norm_autocast(key: Any, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """In x's dtype, as PyTorch computes it on either device; f32 parameters follow x."""
    with _ExcludeDispatchKeyGuard(DispatchKeySet(key)):
        return instance_norm(x, *_cast(x.dtype, weight, bias), eps)


LIBRARY.impl("group_norm", _group_norm_cuda, "AutocastCUDA")
LIBRARY.impl("group_norm", _group_norm_cpu, "AutocastCPU")
for _key in (DispatchKey.AutocastCUDA, DispatchKey.AutocastCPU):
    LIBRARY.impl("instance_norm", functools.partial(_instance_norm_autocast, _key), _key.name)
