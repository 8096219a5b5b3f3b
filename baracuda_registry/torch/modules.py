"""Modules that take the place of PyTorch's: the same constructors, parameters and `state_dict`s, other kernels.

Each is a subclass of the module it replaces and overrides only what computes, so that checkpoints, hooks, `isinstance`
and serialization go on as they are.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidProblem, Unsupported
from . import functions


class GroupNorm(torch.nn.GroupNorm):  # type: ignore[misc]
    """`torch.nn.GroupNorm` through `functions.group_norm`."""

    def forward(self, input: Any) -> Any:
        """T [N, C, ...] normalised by groups of channels."""
        return functions.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _InstanceNorm:
    """What the three ranks share; rank checks and unbatched inputs stay PyTorch's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._refuse_running_stats()

    def _refuse_running_stats(self: Any) -> None:
        if self.track_running_stats:
            raise Unsupported(
                f"{type(self).__name__}: track_running_stats is True, want False (running statistics are not kept here;"
                " use torch.nn's module)"
            )

    def _apply_instance_norm(self: Any, input: Any) -> Any:
        self._refuse_running_stats()
        return functions.instance_norm(input, self.weight, self.bias, self.eps)


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):  # type: ignore[misc]
    """`torch.nn.InstanceNorm1d` without running statistics."""


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):  # type: ignore[misc]
    """`torch.nn.InstanceNorm2d` without running statistics."""


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):  # type: ignore[misc]
    """`torch.nn.InstanceNorm3d` without running statistics."""


class LPPool1d(torch.nn.LPPool1d):  # type: ignore[misc]
    """(Σ |x|^p)^(1/p) over windows: equals `torch.nn.LPPool1d` for even p without ceil_mode.

    For other p PyTorch takes signed powers, and with ceil_mode it rescales partial windows: `functions.lp_pool1d`
    says how this differs.
    """

    def forward(self, input: Any) -> Any:
        """T [N, C, L] or [C, L] pooled along L."""
        return functions.lp_pool1d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class FakeQuantizePerGroup(torch.nn.Module):  # type: ignore[misc]
    """Quantizes and dequantizes its input by groups along the last axis, with the straight-through gradient.

    Attributes:
        scale: buffer, T [..., axis/group_size].
        zero_point: buffer, int32 of the same shape.
        group_size: elements that share a scale.
        quant_min: smallest code.
        quant_max: largest code.
    """

    scale: Any
    zero_point: Any

    def __init__(
        self,
        scale: Any,
        zero_point: Any = None,
        *,
        group_size: int,
        quant_min: int = -128,
        quant_max: int = 127,
    ) -> None:
        super().__init__()
        if zero_point is None:
            zero_point = torch.zeros_like(scale, dtype=torch.int32)
        if zero_point.shape != scale.shape:
            raise InvalidProblem(
                f"FakeQuantizePerGroup: zero_point has shape {tuple(zero_point.shape)}, want scale's {tuple(scale.shape)}"
            )
        self.register_buffer("scale", scale.detach().clone())
        self.register_buffer("zero_point", zero_point.detach().clone())
        self.group_size, self.quant_min, self.quant_max = group_size, quant_min, quant_max

    @classmethod
    def of(
        cls, values: Any, group_size: int, quant_min: int = -128, quant_max: int = 127
    ) -> FakeQuantizePerGroup:
        """With scales and zero points that cover the least and the largest value of each group, and 0.

        Args:
            values: T [..., axis] without NaN.
            group_size: elements that share a scale; divides axis.
            quant_min: smallest code.
            quant_max: largest code.

        Raises:
            InvalidProblem: group_size does not divide the axis.
        """
        axis = values.shape[-1]
        if group_size <= 0 or axis % group_size:
            raise InvalidProblem(
                f"FakeQuantizePerGroup: group_size is {group_size}, want a divisor of the last extent {axis}"
            )
        groups = values.detach().unflatten(-1, (axis // group_size, group_size))
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        least = torch.finfo(values.dtype).tiny * (quant_max - quant_min)
        scale = ((high - low) / (quant_max - quant_min)).clamp(min=least)
        zero_point = (quant_min - low / scale).round().clamp(quant_min, quant_max).to(torch.int32)
        return cls(scale, zero_point, group_size=group_size, quant_min=quant_min, quant_max=quant_max)

    def forward(self, input: Any) -> Any:
        """What the codes of T [..., axis] stand for."""
        return functions.fake_quantize_per_group(
            input, self.scale, self.zero_point, self.group_size, self.quant_min, self.quant_max
        )

    def extra_repr(self) -> str:
        """The options."""
        return f"group_size={self.group_size}, quant_min={self.quant_min}, quant_max={self.quant_max}"
