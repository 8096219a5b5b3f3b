"""Dequantize per group, backward: the straight-through gradient `dq = dy · scale`."""

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
class DequantizePerGroupBackwardDescriptor:
    """The problem.

    Attributes:
        outer_size: product of the leading extents.
        axis_size: extent of the quantized axis.
        group_size: elements that share a scale; divides `axis_size`.
        input_element: floating type of the gradients and scales (TIn of the seed).
        output_element: type of the codes of the forward pass, S8 or U8 (TOut of the seed).
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
class DequantizePerGroupBackwardArgs:
    """The arrays.

    Attributes:
        d_output: upstream gradient, TIn [outer, axis].
        scale: scales of the forward pass, TIn [outer, axis/group].
        d_input: gradient with respect to the codes, TIn [outer, axis]; written. May be the same array as `d_output`.
    """

    d_output: Any
    scale: Any
    d_input: Any


class DequantizePerGroupBackwardPlan(
    Plan[DequantizePerGroupBackwardDescriptor, DequantizePerGroupBackwardArgs]
):
    """`d_input[i, j] = d_output[i, j] · scale[i, j // group_size]`, computed in acc(TIn), rounded once.

    Straight-through backward of `DequantizePerGroupPlan`.  Workspace: none.  Deterministic and bit-stable.
    Source: the seed `dequantize_per_group_backward`.
    """

    descriptor_type = DequantizePerGroupBackwardDescriptor
    arguments_type = DequantizePerGroupBackwardArgs
    bucket = GROUP_BUCKET

    @classmethod
    def validate(cls, desc: DequantizePerGroupBackwardDescriptor) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_groups(cls.__name__, desc)

    @classmethod
    def signature(cls, desc: DequantizePerGroupBackwardDescriptor) -> Signature:
        """The operation and its types."""
        kind = QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD
        return Signature(OpCategory.Quantization, kind, desc.input_element, desc.output_element)

    @classmethod
    def facts(cls, desc: DequantizePerGroupBackwardDescriptor) -> dict[str, Fact]:
        """Facts of the problem."""
        return group_facts(desc)

    @classmethod
    def operands(cls, desc: DequantizePerGroupBackwardDescriptor) -> tuple[Operand, ...]:
        """The argument table."""
        full = (desc.outer_size, desc.axis_size)
        groups = (desc.outer_size, desc.num_groups)
        element = desc.input_element
        return (
            Operand("d_output", element, full, "[outer,axis]"),
            Operand("scale", element, groups, "[outer,axis/group]", vector=False),
            Operand("d_input", element, full, "[outer,axis]", output=True, may_alias="d_output"),
        )

    @classmethod
    def recipe(cls, desc: DequantizePerGroupBackwardDescriptor, variant: Variant, device: Device) -> Recipe:
        """One launch."""
        return stream_recipe(desc, variant, device)

    @classmethod
    def host_options(cls, desc: DequantizePerGroupBackwardDescriptor) -> dict[str, Any]:
        """Options of the host function."""
        return {"group_size": desc.group_size}
