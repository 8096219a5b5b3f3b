"""Dequantize per group: values from affine codes."""

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
from .per_group import GROUP_BUCKET, group_facts, stream_recipe, validate_groups


@dataclass(frozen=True, kw_only=True)
class DequantizePerGroupDescriptor:
    """The problem.

    The elements are named after the forward quantization, as in the seed: this plan reads `output_element` and writes
    `input_element`.

    Attributes:
        outer_size: product of the leading extents.
        axis_size: extent of the quantized axis.
        group_size: elements that share a scale and a zero point; divides `axis_size`.
        input_element: floating type of the scales and of the values this plan writes (TIn of the seed).
        output_element: type of the codes this plan reads, S8 or U8 (TOut of the seed).
    """

    outer_size: int
    axis_size: int
    group_size: int
    input_element: ElementKind
    output_element: ElementKind

    def __post_init__(self) -> None:
        normalize_element_fields(self)

    @property
    def num_groups(self) -> int:
        """Groups along the axis; 0 for a group size that is none."""
        return self.axis_size // self.group_size if self.group_size > 0 else 0


@dataclass(frozen=True, kw_only=True)
class DequantizePerGroupArgs:
    """The arrays.

    Attributes:
        input: codes, TOut [outer, axis].
        scale: scales, TIn [outer, axis/group].
        zero_point: zero points, i32 [outer, axis/group].
        output: values, TIn [outer, axis]; written.
    """

    input: Any
    scale: Any
    zero_point: Any
    output: Any


class DequantizePerGroupPlan(Plan[DequantizePerGroupDescriptor, DequantizePerGroupArgs]):
    """`output[i, j] = (input[i, j] - zero_point) · scale` with the zero point and scale of group `j // group_size`.

    The difference is taken in int32 and wraps in two's complement for zero points at the ends of that range; it is
    converted to acc(TIn), f64 for f64 and f32 otherwise, multiplied there and rounded once to TIn.  Workspace: none.
    Deterministic and bit-stable: every variant gives the same bits.

    As `torch.dequantize` of a tensor quantized per group.  Source: partner of the seed `dequantize_per_group_backward`.
    """

    descriptor_type = DequantizePerGroupDescriptor
    arguments_type = DequantizePerGroupArgs
    bucket = GROUP_BUCKET

    @classmethod
    def validate(cls, desc: DequantizePerGroupDescriptor) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_groups(cls.__name__, desc)

    @classmethod
    def signature(cls, desc: DequantizePerGroupDescriptor) -> Signature:
        """The operation and its types."""
        kind = QuantizeKind.DEQUANTIZE_PER_GROUP
        return Signature(OpCategory.Quantization, kind, desc.input_element, desc.output_element)

    @classmethod
    def facts(cls, desc: DequantizePerGroupDescriptor) -> dict[str, Fact]:
        """Facts of the problem."""
        return group_facts(desc)

    @classmethod
    def operands(cls, desc: DequantizePerGroupDescriptor) -> tuple[Operand, ...]:
        """The argument table."""
        full = (desc.outer_size, desc.axis_size)
        groups = (desc.outer_size, desc.num_groups)
        element = desc.input_element
        return (
            Operand("input", desc.output_element, full, "[outer,axis]"),
            Operand("scale", element, groups, "[outer,axis/group]", vector=False),
            Operand("zero_point", ElementKind.I32, groups, "[outer,axis/group]", vector=False),
            Operand("output", element, full, "[outer,axis]", output=True),
        )

    @classmethod
    def recipe(cls, desc: DequantizePerGroupDescriptor, variant: Variant, device: Device) -> Recipe:
        """One launch."""
        return stream_recipe(desc, variant, device)

    @classmethod
    def host_options(cls, desc: DequantizePerGroupDescriptor) -> dict[str, Any]:
        """Options of the host function."""
        return {"group_size": desc.group_size}
