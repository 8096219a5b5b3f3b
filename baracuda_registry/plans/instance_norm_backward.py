"""InstanceNorm, backward: GroupNorm's with one channel a group."""

from __future__ import annotations

from dataclasses import dataclass

from ..elements import ElementKind
from ..sku import NormalizationKind
from .group_norm_backward import GroupNormBackwardArgs, GroupNormBackwardPlan, normalize_outputs
from .norm_problem import normalize_norm_fields


@dataclass(frozen=True, kw_only=True)
class InstanceNormBackwardDescriptor:
    """The problem.

    Attributes:
        input_shape: [N, C, ...], rank 2 to 8; any sequence of ints, stored as a tuple.
        has_affine: whether gamma and beta took part in the forward.
        element: type of the tensors and channel vectors (f32, f64, f16, bf16).
        channel_axis: must be 1.
        stats_element: type of saved_mean and saved_rstd: acc(element), the default, or element itself.
        outputs: gradients to compute, of "dx", "dgamma", "dbeta"; None = all there are.
    """

    input_shape: tuple[int, ...]
    has_affine: bool = True
    element: ElementKind
    channel_axis: int = 1
    stats_element: ElementKind | None = None
    outputs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        normalize_norm_fields(self)
        normalize_outputs(self)

    @property
    def num_groups(self) -> int:
        """Groups a sample: every channel is one.  0 for a shape that has no channel axis."""
        return self.input_shape[1] if len(self.input_shape) > 1 else 0


@dataclass(frozen=True, kw_only=True)
class InstanceNormBackwardArgs(GroupNormBackwardArgs):
    """The arrays of `GroupNormBackwardArgs`, with statistics of length N·C."""


class InstanceNormBackwardPlan(GroupNormBackwardPlan):
    """`GroupNormBackwardPlan` with num_groups = C.  Source: the backward of `torch.nn.functional.instance_norm`."""

    descriptor_type = InstanceNormBackwardDescriptor
    arguments_type = InstanceNormBackwardArgs
    kind = NormalizationKind.INSTANCE_NORM_BACKWARD
