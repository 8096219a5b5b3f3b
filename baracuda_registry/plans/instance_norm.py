"""InstanceNorm, forward: GroupNorm with one channel a group."""

from __future__ import annotations

from dataclasses import dataclass

from ..elements import ElementKind
from ..sku import NormalizationKind
from .group_norm import GroupNormArgs, GroupNormPlan
from .norm_problem import normalize_norm_fields


@dataclass(frozen=True, kw_only=True)
class InstanceNormDescriptor:
    """The problem.

    Attributes:
        input_shape: [N, C, ...], rank 2 to 8; any sequence of ints, stored as a tuple.
        eps: added to the variance; 0 is legal.
        has_affine: whether gamma and beta take part.
        element: type of x, y, gamma and beta (f32, f64, f16, bf16).
        channel_axis: must be 1.
        stats_element: type of saved_mean and saved_rstd: acc(element), the default, or element itself.
    """

    input_shape: tuple[int, ...]
    eps: float = 1e-5
    has_affine: bool = True
    element: ElementKind
    channel_axis: int = 1
    stats_element: ElementKind | None = None

    def __post_init__(self) -> None:
        normalize_norm_fields(self)

    @property
    def num_groups(self) -> int:
        """Groups a sample: every channel is one.  0 for a shape that has no channel axis."""
        return self.input_shape[1] if len(self.input_shape) > 1 else 0


@dataclass(frozen=True, kw_only=True)
class InstanceNormArgs(GroupNormArgs):
    """The arrays of `GroupNormArgs`, with statistics of length N·C."""


class InstanceNormPlan(GroupNormPlan):
    """`GroupNormPlan` with num_groups = C: every channel of every sample is normalised by itself.

    Source: `torch.nn.functional.instance_norm` with use_input_stats=True.
    """

    descriptor_type = InstanceNormDescriptor
    arguments_type = InstanceNormArgs
    kind = NormalizationKind.INSTANCE_NORM
