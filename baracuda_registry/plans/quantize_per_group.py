"""Quantize per group: affine codes with a scale and a zero point for every run of `group_size` elements."""

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
class QuantizePerGroupDescriptor:
    """The problem.

    Attributes:
        outer_size: product of the leading extents.
        axis_size: extent of the quantized axis.
        group_size: elements that share a scale and a zero point; divides `axis_size`.
        q_min: smallest code, in the range of `output_element`.
        q_max: largest code, in the range of `output_element`; at least `q_min`.
        input_element: floating type of the values and scales.
        output_element: type of the codes, S8 or U8.
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
class QuantizePerGroupArgs:
    """The arrays.

    Attributes:
        input: values, TIn [outer, axis].
        scale: scales, TIn [outer, axis/group].
        zero_point: zero points, i32 [outer, axis/group].
        output: codes, TOut [outer, axis]; written.
    """

    input: Any
    scale: Any
    zero_point: Any
    output: Any


class QuantizePerGroupPlan(Plan[QuantizePerGroupDescriptor, QuantizePerGroupArgs]):
    """`output = min(max(rn(input / scale) + zero_point, q_min), q_max)` with a group's scale and zero point.

    The quotient is correctly rounded in acc(TIn), f64 for f64 and f32 otherwise, and then to the nearest integer, ties
    to even; the zero point is added to the rounded number.  Infinite and huge quotients saturate to the end on their
    side.  A NaN quotient (a NaN value or scale, 0/0) counts as 0, hence gives the zero point, saturated.  A zero scale
    divides as IEEE 754 says.  Workspace: none.  Deterministic and bit-stable: every variant gives the same codes.

    As `torch.quantize_per_channel`, which multiplies by a reciprocal instead and so differs at ties.  Source: partner
    of the seed `dequantize_per_group_backward`; Jacob et al. 2018.
    """

    descriptor_type = QuantizePerGroupDescriptor
    arguments_type = QuantizePerGroupArgs
    bucket = GROUP_BUCKET

    @classmethod
    def validate(cls, desc: QuantizePerGroupDescriptor) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_groups(cls.__name__, desc)
        validate_q_range(cls.__name__, desc)

    @classmethod
    def signature(cls, desc: QuantizePerGroupDescriptor) -> Signature:
        """The operation and its types."""
        return Signature(
            OpCategory.Quantization, QuantizeKind.PER_GROUP, desc.input_element, desc.output_element
        )

    @classmethod
    def facts(cls, desc: QuantizePerGroupDescriptor) -> dict[str, Fact]:
        """Facts of the problem."""
        return group_facts(desc)

    @classmethod
    def operands(cls, desc: QuantizePerGroupDescriptor) -> tuple[Operand, ...]:
        """The argument table."""
        full = (desc.outer_size, desc.axis_size)
        groups = (desc.outer_size, desc.num_groups)
        element = desc.input_element
        return (
            Operand("input", element, full, "[outer,axis]"),
            Operand("scale", element, groups, "[outer,axis/group]", vector=False),
            Operand("zero_point", ElementKind.I32, groups, "[outer,axis/group]", vector=False),
            Operand("output", desc.output_element, full, "[outer,axis]", output=True),
        )

    @classmethod
    def recipe(cls, desc: QuantizePerGroupDescriptor, variant: Variant, device: Device) -> Recipe:
        """One launch."""
        return stream_recipe(desc, variant, device, {"q_min": desc.q_min, "q_max": desc.q_max})

    @classmethod
    def host_options(cls, desc: QuantizePerGroupDescriptor) -> dict[str, Any]:
        """Options of the host function."""
        return {"group_size": desc.group_size, "q_min": desc.q_min, "q_max": desc.q_max}
