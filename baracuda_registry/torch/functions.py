"""Functions with the signatures of `torch.nn.functional`, recorded by autograd."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidProblem
from . import norm_ops, per_group_ops, pool_ops
from .registration import plain

_group_norm, _instance_norm, _straight = norm_ops.group_norm, norm_ops.instance_norm, norm_ops.straight
_compiling = torch.compiler.is_compiling


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """`torch.nn.functional.group_norm`, by `GroupNormPlan`.

    Args:
        input: T [N, C, ...], rank 2 to 8, on a GPU or the CPU; T is float32, float64, float16 or bfloat16.  One that is
            not C-contiguous is made so; the result is C-contiguous always.
        num_groups: groups a sample; divides C.
        weight: T [C] or None.
        bias: T [C] or None.
        eps: added to the variance.

    Returns:
        T [N, C, ...].  Under CUDA autocast the computation and the result are in float32, as PyTorch's.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch: naming the argument.
    """
    if input.numel() == num_groups:
        shape = tuple(input.shape)
        raise InvalidProblem(
            f"group_norm: expected more than 1 value per channel when training, got input size {shape}"
        )
    if not _compiling() and plain(input, weight, bias):
        return _straight(input, num_groups, weight, bias, eps)
    return _group_norm(input, num_groups, weight, bias, eps)[0]


def instance_norm(input: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """`torch.nn.functional.instance_norm` with use_input_stats=True and no running statistics.

    Args:
        input: T [N, C, ...] with more than one element a channel.
        weight: T [C] or None.
        bias: T [C] or None.
        eps: added to the variance.

    Returns:
        T [N, C, ...], C-contiguous.  Under CUDA autocast it stays in T, and parameters are cast to T.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch: naming the argument.
    """
    shape = input.shape
    if len(shape) >= 2 and input.numel() == shape[0] * shape[1] != 0:
        raise InvalidProblem(
            f"instance_norm: expected more than 1 spatial element when training, got input size {tuple(shape)}"
        )
    if not _compiling() and plain(input, weight, bias):
        return _straight(input, None, weight, bias, eps)
    return _instance_norm(input, weight, bias, eps)[0]


def lp_pool1d(
    input: Any, norm_type: float, kernel_size: int, stride: int | None = None, ceil_mode: bool = False
) -> Any:
    """(Σ |x|^p)^(1/p) over windows: `torch.nn.functional.lp_pool1d` for even p without ceil_mode.

    PyTorch takes signed powers for odd p (NaN for negative x and fractional p), and rescales a partial window by
    kernel_size / elements; here the absolute value counts always and nothing is rescaled.

    Args:
        input: T [N, C, L] or [C, L].
        norm_type: p, any positive number.
        kernel_size: elements of a window, at most L.
        stride: elements between windows; None = `kernel_size`.
        ceil_mode: keep a last window that ends past the input.

    Returns:
        T [N, C, L_out] or [C, L_out].  Where a whole window is 0 its gradient is 0.

    Raises:
        InvalidProblem, Unsupported: naming the argument.
    """
    return pool_ops.lp_pool1d(input, float(norm_type), kernel_size, stride, ceil_mode)


def quantize_per_group(
    input: Any,
    scale: Any,
    zero_point: Any,
    group_size: int,
    quant_min: int = -128,
    quant_max: int = 127,
    dtype: Any = None,
) -> Any:
    """Integer codes with a scale and a zero point for every `group_size` elements of the last axis.

    Args:
        input: T [..., axis].
        scale: T [..., axis/group_size].
        zero_point: int32 [..., axis/group_size], or None for zeros.
        group_size: elements that share a scale; divides axis.
        quant_min: smallest code.
        quant_max: largest code.
        dtype: torch.int8 or torch.uint8; None = int8 where the range fits, else uint8.

    Returns:
        codes, [..., axis].  They have no gradient: a tensor that asks for one is refused.

    Raises:
        InvalidProblem, Unsupported: naming the argument.
    """
    kind = per_group_ops.code_type(quant_min, quant_max) if dtype is None else dtype
    return per_group_ops.quantize_per_group(input, scale, zero_point, group_size, quant_min, quant_max, kind)


def dequantize_per_group(codes: Any, scale: Any, zero_point: Any, group_size: int) -> Any:
    """(codes − zero_point) · scale.

    Args:
        codes: int8 or uint8 [..., axis].
        scale: T [..., axis/group_size].
        zero_point: int32 [..., axis/group_size], or None for zeros.
        group_size: elements that share a scale.

    Returns:
        values, T [..., axis].

    Raises:
        InvalidProblem, Unsupported: naming the argument.
    """
    return per_group_ops.dequantize_per_group(codes, scale, zero_point, group_size)


def fake_quantize_per_group(
    input: Any, scale: Any, zero_point: Any, group_size: int, quant_min: int = -128, quant_max: int = 127
) -> Any:
    """Quantize and dequantize: what the codes stand for, with the straight-through gradient.

    The gradient with respect to `input` is the upstream one where the code did not saturate, else 0, as
    `torch.fake_quantize_per_channel_affine`'s; that with respect to `scale` is not computed.

    Args:
        input: T [..., axis].
        scale: T [..., axis/group_size].
        zero_point: int32 [..., axis/group_size], or None for zeros.
        group_size: elements that share a scale; divides axis.
        quant_min: smallest code.
        quant_max: largest code.

    Returns:
        values, T [..., axis].

    Raises:
        InvalidProblem, Unsupported: naming the argument.
    """
    return per_group_ops.fake_quantize_per_group(input, scale, zero_point, group_size, quant_min, quant_max)
