"""One small problem of every plan, and arrays for it: what the protocol's tests run over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import baracuda_registry as br
from baracuda_registry.elements import ElementKind
from baracuda_registry.operands import Operand
from baracuda_registry.plans.base import Plan

from .accuracy import Array

FLOATS = (ElementKind.F32, ElementKind.F64, ElementKind.F16, ElementKind.BF16)


@dataclass(frozen=True)
class Sample:
    """A plan class with its argument bundle and a descriptor for each element."""

    plan: Any
    args: Any
    fields: tuple[tuple[str, Any], ...]
    element_field: str = "element"

    @property
    def name(self) -> str:
        return str(self.plan.__name__)

    def descriptor(self, element: ElementKind = ElementKind.F32, **changes: Any) -> Any:
        return self.plan.descriptor_type(**{**dict(self.fields), self.element_field: element, **changes})


_POOL = (("batch", 2), ("channels", 3), ("l_in", 16), ("window", 4), ("stride", 2), ("p", 2.0))
_NORM = (("input_shape", (2, 8, 4, 4)), ("num_groups", 4))
_INSTANCE = (("input_shape", (2, 8, 4, 4)),)
_GROUPS = (("outer_size", 4), ("axis_size", 32), ("group_size", 8), ("output_element", ElementKind.S8))
_RANGE = (*_GROUPS, ("q_min", -128), ("q_max", 127))

SAMPLES: tuple[Sample, ...] = (
    Sample(br.LpPool1dPlan, br.LpPool1dFwArgs, _POOL),
    Sample(br.LpPool1dBackwardPlan, br.LpPool1dBwArgs, _POOL),
    Sample(br.GroupNormPlan, br.GroupNormArgs, _NORM),
    Sample(br.GroupNormBackwardPlan, br.GroupNormBackwardArgs, _NORM),
    Sample(br.InstanceNormPlan, br.InstanceNormArgs, _INSTANCE),
    Sample(br.InstanceNormBackwardPlan, br.InstanceNormBackwardArgs, _INSTANCE),
    Sample(br.QuantizePerGroupPlan, br.QuantizePerGroupArgs, _RANGE, "input_element"),
    Sample(br.QuantizePerGroupBackwardPlan, br.QuantizePerGroupBackwardArgs, _RANGE, "input_element"),
    Sample(br.DequantizePerGroupPlan, br.DequantizePerGroupArgs, _GROUPS, "input_element"),
    Sample(br.DequantizePerGroupBackwardPlan, br.DequantizePerGroupBackwardArgs, _GROUPS, "input_element"),
)


def values_for(operand: Operand, seed: int = 0) -> Array:
    """Plausible values of an operand: positive scales and rstd, small zero points, Gaussian the rest."""
    rng = np.random.default_rng([seed, *operand.name.encode()])
    if operand.element in (ElementKind.S8, ElementKind.U8):
        return rng.integers(0, 100, operand.shape).astype(operand.element.dtype)
    if operand.element is ElementKind.I32:
        return rng.integers(-5, 5, operand.shape).astype(np.int32)
    values = rng.normal(size=operand.shape)
    if operand.name in ("scale", "saved_rstd", "y"):
        values = np.abs(values) + 0.5
    return values.astype(operand.element.dtype)


def arrays_for(backend: Any, plan: Plan[Any, Any], seed: int = 0) -> dict[str, Any]:
    """An array for every operand: values in inputs, poison in outputs, None where absent."""
    arrays: dict[str, Any] = {}
    for operand in plan.argument_table:
        if not operand.present:
            arrays[operand.name] = None
        elif operand.output:
            arrays[operand.name] = backend.empty(operand.shape, operand.element.dtype)
        else:
            arrays[operand.name] = backend.put(values_for(operand, seed))
    return arrays


def select(
    sample: Sample, backend: Any, element: ElementKind = ElementKind.F32, pref: Any = None, **changes: Any
) -> Any:
    """The plan of a sample on a backend's device."""
    return sample.plan.select(None, sample.descriptor(element, **changes), pref, device=backend.device)
