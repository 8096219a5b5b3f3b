"""LP pooling in one dimension as an operator."""

from __future__ import annotations

from typing import Any

import torch

from ..elements import ElementKind
from ..functional.pool import pooled, pooled_gradient
from ..plans.lp_pool1d import LpPool1dDescriptor
from .registration import LIBRARY, TORCH, below, contiguous, define, derivative, recording


def _pool_kernel(x: Any, p: float, window: int, stride: int | None, ceil_mode: bool) -> Any:
    return pooled(TORCH, x.contiguous(), p, window, stride, ceil_mode)


def _pool_backward_kernel(
    dy: Any, x: Any, y: Any, p: float, window: int, stride: int | None, ceil_mode: bool
) -> Any:
    dy, x, y = contiguous(dy, x, y)
    return pooled_gradient(TORCH, dy, x, y, p, window, stride, ceil_mode)


def _pool_fake(x: Any, p: float, window: int, stride: int | None, ceil_mode: bool) -> Any:
    torch._check(x.dim() in (2, 3), lambda: f"x has {x.dim()} dimensions, want 2 or 3")
    desc = LpPool1dDescriptor(
        batch=1,
        channels=1,
        l_in=x.shape[-1],
        window=window,
        p=p,
        element=ElementKind.F32,
        stride=stride,
        ceil_mode=ceil_mode,
    )
    torch._check(window > 0 and desc.step > 0, lambda: "kernel_size and stride must be positive")
    return x.new_empty((*x.shape[:-1], desc.output_length))


class _Pool(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, keyset: Any, x: Any, *options: Any) -> Any:
        y = below(keyset, lp_pool1d, _pool_kernel, x, *options)
        ctx.save_for_backward(x, y)
        ctx.options = options
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, y = ctx.saved_tensors
        return None, lp_pool1d_backward(dy, x, y, *ctx.options), None, None, None, None


lp_pool1d = define(
    "lp_pool1d(Tensor x, float norm_type, int kernel_size, int? stride, bool ceil_mode) -> Tensor",
    _pool_kernel,
    _pool_fake,
)
lp_pool1d_backward = define(
    "lp_pool1d_backward(Tensor dy, Tensor x, Tensor y, float norm_type, int kernel_size, int? stride,"
    " bool ceil_mode) -> Tensor",
    _pool_backward_kernel,
    lambda dy, x, *_: x.new_empty(x.shape),
)


def _pool_autograd(keyset: Any, x: Any, *options: Any) -> Any:
    if recording(x):
        return _Pool.apply(keyset, x, *options)
    return below(keyset, lp_pool1d, _pool_kernel, x, *options)


LIBRARY.impl("lp_pool1d", _pool_autograd, "Autograd", with_keyset=True)
derivative("lp_pool1d_backward", _pool_backward_kernel)
