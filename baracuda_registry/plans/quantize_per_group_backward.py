"""Quantize per group, backward: the straight-through gradient, zero where the code saturated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..constraint import Fact
from ..device import Device
from ..elements import ElementKind
from ..manifest import Variant
from ..operands import Operand
from ..recipe import Recipe
from ..sku import OpCategory, QuantizeKind
from .base import Plan, Signature
from .descriptors import normalize_element_fields
from .per_group import GROUP_BUCKET, group_facts, stream_recipe, validate_groups, validate_q_range


@dataclass(frozen=True, kw_only=True)
class QuantizePerGroupBackwardDescriptor:
    """The problem.

    Attributes:
        outer_size: product of the leading extents.
        axis_size: extent of the quantized axis.
        group_size: elements that share a scale and a zero point; divides `axis_size`.
        q_min: smallest code of the forward pass, in the range of `output_element`.
        q_max: largest code of the forward pass, in the range of `output_element`; at least `q_min`.
        input_element: floating type of the values, scales and gradients.
        output_element: type of the codes of the forward pass, S8 or U8.
    """

    outer_size: int
    axis_size: int
    group_size: int
    q_min: int
    q_max: int
    input_element: ElementKind
    output_element: ElementKind

    def __post_init__(self) -> None:
        normalize_element_fields(self)

    @property
    def num_groups(self) -> int:
        """Groups along the axis; 0 for a group size that is none."""
        return self.axis_size // self.group_size if self.group_size > 0 else 0


@dataclass(frozen=True, kw_only=True)
class QuantizePerGroupBackwardArgs:
    """The arrays.

    Attributes:
        input: values of the forward pass, TIn [outer, axis].
        scale: scales of the forward pass, TIn [outer, axis/group].
        zero_point: zero points of the forward pass, i32 [outer, axis/group].
        d_output: gradient with respect to the codes, TIn [outer, axis].
        d_input: gradient with respect to the values, TIn [outer, axis]; written. May be the same array as `d_output`.
    """

    input: Any
    scale: Any
    zero_point: Any
    d_output: Any
    d_input: Any


class QuantizePerGroupBackwardPlan(Plan[QuantizePerGroupBackwardDescriptor, QuantizePerGroupBackwardArgs]):
    """`d_input = d_output / scale` where `q_min <= rn(input / scale) + zero_point <= q_max`, else 0.

    The code is that of `QuantizePerGroupPlan` before saturation, found by the same arithmetic; both ends of the range
    count as inside.  Inside, the division is IEEE 754's in acc(TIn), rounded once to TIn.  Outside, the result is 0
    whatever `d_output` is, NaN and infinities included.  A NaN quotient counts as 0, so it is inside exactly when the
    zero point is.  Workspace: none.  Deterministic and bit-stable: every variant gives the same bits.

    Straight-through estimator of Bengio et al. 2013 with the clipping of Jacob et al. 2018.  Source: partner of the
    seed `dequantize_per_group_backward`.
    """

    descriptor_type = QuantizePerGroupBackwardDescriptor
    arguments_type = QuantizePerGroupBackwardArgs
    bucket = GROUP_BUCKET

    @classmethod
    def validate(cls, desc: QuantizePerGroupBackwardDescriptor) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_groups(cls.__name__, desc)
        validate_q_range(cls.__name__, desc)

    @classmethod
    def signature(cls, desc: QuantizePerGroupBackwardDescriptor) -> Signature:
        """The operation and its types."""
        kind = QuantizeKind.PER_GROUP_BACKWARD
        return Signature(OpCategory.Quantization, kind, desc.input_element, desc.output_element)

    @classmethod
    def facts(cls, desc: QuantizePerGroupBackwardDescriptor) -> dict[str, Fact]:
        """Facts of the problem."""
        return group_facts(desc)

    @classmethod
    def operands(cls, desc: QuantizePerGroupBackwardDescriptor) -> tuple[Operand, ...]:
        """The argument table."""
        full = (desc.outer_size, desc.axis_size)
        groups = (desc.outer_size, desc.num_groups)
        element = desc.input_element
        return (
            Operand("input", element, full, "[outer,axis]"),
            Operand("scale", element, groups, "[outer,axis/group]", vector=False),
            Operand("zero_point", ElementKind.I32, groups, "[outer,axis/group]", vector=False),
            Operand("d_output", element, full, "[outer,axis]"),
            Operand("d_input", element, full, "[outer,axis]", output=True, may_alias="d_output"),
        )

    @classmethod
    def recipe(cls, desc: QuantizePerGroupBackwardDescriptor, variant: Variant, device: Device) -> Recipe:
        """One launch."""
        return stream_recipe(desc, variant, device, {"q_min": desc.q_min, "q_max": desc.q_max})

    @classmethod
    def host_options(cls, desc: QuantizePerGroupBackwardDescriptor) -> dict[str, Any]:
        """Options of the host function."""
        return {"group_size": desc.group_size, "q_min": desc.q_min, "q_max": desc.q_max}
