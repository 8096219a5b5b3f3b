"""Quantization by groups as operators.

Codes are integers, which autograd does not follow: `quantize_per_group` and `dequantize_per_group` refuse what asks for
a gradient, and `fake_quantize_per_group`, the two in one, has the straight-through gradient.
"""

from __future__ import annotations

from typing import Any

import torch

from ..functional.per_group import dequantized, quantized, quantized_gradient
from .registration import (
    LIBRARY,
    TORCH,
    below,
    contiguous,
    define,
    derivative,
    no_gradient,
    recording,
    refuse,
)

_INSTEAD = "use fake_quantize_per_group, torch.no_grad(), or .detach()"


def code_type(q_min: int, q_max: int) -> torch.dtype:
    """The narrowest type of codes for a range: int8 where it fits, else uint8."""
    return torch.int8 if q_min >= -128 and q_max <= 127 else torch.uint8


def _quantize_kernel(
    x: Any, scale: Any, zero_point: Any, group_size: int, q_min: int, q_max: int, dtype: Any
) -> Any:
    x, scale, zero_point = contiguous(x, scale, zero_point)
    return quantized(TORCH, x, scale, zero_point, group_size, dtype, q_min, q_max)


def _dequantize_kernel(codes: Any, scale: Any, zero_point: Any, group_size: int) -> Any:
    codes, scale, zero_point = contiguous(codes, scale, zero_point)
    return dequantized(TORCH, codes, scale, zero_point, group_size)


def _fake_quantize_kernel(
    x: Any, scale: Any, zero_point: Any, group_size: int, q_min: int, q_max: int
) -> Any:
    x, scale, zero_point = contiguous(x, scale, zero_point)
    codes = quantized(TORCH, x, scale, zero_point, group_size, code_type(q_min, q_max), q_min, q_max)
    return dequantized(TORCH, codes, scale, zero_point, group_size)


def _fake_quantize_backward_kernel(
    dy: Any, x: Any, scale: Any, zero_point: Any, group_size: int, q_min: int, q_max: int
) -> Any:
    """dy where the code did not saturate.  The gradient of quantization alone is 1/scale there and 0 elsewhere, which
    tells the two apart; dy/scale times scale would be rounded twice, and could overflow."""
    x, scale, zero_point = contiguous(x, scale, zero_point)
    dtype = code_type(q_min, q_max)
    inside = quantized_gradient(
        TORCH, torch.ones_like(x), x, scale, zero_point, group_size, dtype, q_min, q_max
    )
    return torch.where(inside != 0, dy, 0).contiguous()


quantize_per_group = define(
    "quantize_per_group(Tensor x, Tensor scale, Tensor? zero_point, int group_size, int q_min, int q_max,"
    " ScalarType dtype) -> Tensor",
    _quantize_kernel,
    lambda x, scale, zero_point, group_size, q_min, q_max, dtype: x.new_empty(x.shape, dtype=dtype),
)
dequantize_per_group = define(
    "dequantize_per_group(Tensor codes, Tensor scale, Tensor? zero_point, int group_size) -> Tensor",
    _dequantize_kernel,
    lambda codes, scale, zero_point, group_size: codes.new_empty(codes.shape, dtype=scale.dtype),
)
fake_quantize_per_group = define(
    "fake_quantize_per_group(Tensor x, Tensor scale, Tensor? zero_point, int group_size, int q_min, int q_max)"
    " -> Tensor",
    _fake_quantize_kernel,
    lambda x, *_: x.new_empty(x.shape),
)
fake_quantize_per_group_backward = define(
    "fake_quantize_per_group_backward(Tensor dy, Tensor x, Tensor scale, Tensor? zero_point, int group_size,"
    " int q_min, int q_max) -> Tensor",
    _fake_quantize_backward_kernel,
    lambda dy, x, *_: x.new_empty(x.shape),
)


class _FakeQuantize(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, keyset: Any, x: Any, scale: Any, zero_point: Any, *options: Any) -> Any:
        y = below(keyset, fake_quantize_per_group, _fake_quantize_kernel, x, scale, zero_point, *options)
        ctx.save_for_backward(x, scale, zero_point)
        ctx.options = options
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        dx = fake_quantize_per_group_backward(dy, *ctx.saved_tensors, *ctx.options)
        return None, dx, None, None, None, None, None


def _fake_quantize_autograd(keyset: Any, x: Any, scale: Any, zero_point: Any, *options: Any) -> Any:
    if recording(scale):
        refuse("fake_quantize_per_group", "scale", "use torch.no_grad() or .detach()")
    if recording(x):
        return _FakeQuantize.apply(keyset, x, scale, zero_point, *options)
    return below(keyset, fake_quantize_per_group, _fake_quantize_kernel, x, scale, zero_point, *options)


LIBRARY.impl("fake_quantize_per_group", _fake_quantize_autograd, "Autograd", with_keyset=True)
derivative("fake_quantize_per_group_backward", _fake_quantize_backward_kernel)
no_gradient("quantize_per_group", _quantize_kernel, ("x", "scale"), _INSTEAD)
no_gradient("dequantize_per_group", _dequantize_kernel, ("codes", "scale"), _INSTEAD)
