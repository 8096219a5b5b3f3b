"""What a plan's results should be, and how far they may be from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..catalog import Registry
from ..elements import ElementKind
from ..host import host_function
from ..plans.base import Plan
from ..sku import BackendKind, OpCategory
from . import data
from .data import Array

ULP = {ElementKind.F16: 1.0, ElementKind.BF16: 1.0, ElementKind.F32: 4.0, ElementKind.F64: 4.0}
"""Errors of elementwise results, in ulp."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One output's expected values.

    Attributes:
        want: the values, in float64 or integers.
        element: the output's type.
        limit: ulp allowed at the expected value.
        slack: absolute error allowed beside them: rounding of terms that cancel.
        size: what an ulp is reported at where it is larger than the value: the size of the terms.
        any_nonfinite: whether NaN and the infinities count as one.
    """

    want: Array
    element: ElementKind
    limit: float
    slack: Array
    size: Array
    any_nonfinite: bool = False


def reference(
    table: Registry, plan: Plan[Any, Any], inputs: dict[str, Array | None], widen: bool
) -> dict[str, Array]:
    """Outputs by the host backend; with `widen` in float64 on widened inputs."""
    signature = plan.signature(plan.descriptor)
    serving = table.serving(signature.category, signature.op, signature.element, signature.aux_element)
    host = next(variant for variant in serving if variant.sku.backend is BackendKind.Reference)
    arguments: dict[str, Array | None] = {}
    outputs: dict[str, Array] = {}
    for operand in plan.argument_table:
        floating = operand.element.accumulator in (ElementKind.F32, ElementKind.F64)
        if not operand.present:
            arguments[operand.name] = None
        elif operand.output:
            dtype = np.dtype(np.float64) if widen and floating else operand.element.dtype
            outputs[operand.name] = arguments[operand.name] = np.zeros(operand.shape, dtype)
        else:
            value = inputs[operand.name]
            assert value is not None
            arguments[operand.name] = value.astype(np.float64) if widen and floating else value
    host_function(host)(**arguments, **_options(plan, signature.element))
    return outputs


def _options(plan: Plan[Any, Any], element: ElementKind) -> dict[str, Any]:
    """Options of the host function with floats as kernels receive them, in acc(T)."""
    options = plan.host_options(plan.descriptor)
    if element.accumulator is ElementKind.F64:
        return options
    return {key: float(np.float32(v)) if isinstance(v, float) else v for key, v in options.items()}


def expected(
    table: Registry, plan: Plan[Any, Any], inputs: dict[str, Array | None], stable: bool
) -> dict[str, Expected]:
    """Every output's expected values with what is allowed.

    An operation has an allowance of its own in `ALLOWANCES` where terms cancel; else outputs are elementwise, within
    a few ulp.

    Args:
        table: the registry, for the host backend.
        plan: the plan that ran.
        inputs: its inputs as arrays of their own types.
        stable: whether the variant promises a fixed order; sums that are scattered are allowed a rounding a term.
    """
    signature = plan.signature(plan.descriptor)
    wanted = reference(table, plan, inputs, widen=signature.category is not OpCategory.Quantization)
    allowance = ALLOWANCES.get(signature.op.name.lower(), _elementwise)
    made: dict[str, Expected] = {}
    for operand in plan.argument_table:
        if operand.name not in wanted:
            continue
        want, element = wanted[operand.name], operand.element
        if element in ULP:
            made[operand.name] = allowance(_Case(table, plan, inputs, wanted, stable), operand.name, element)
        else:
            made[operand.name] = Expected(want, element, 0.0, np.zeros(()), np.zeros(()))
    if signature.element is ElementKind.F64:  # The judge has no more digits than what it judges.
        made = {
            name: replace(goal, limit=2 * goal.limit, slack=2 * goal.slack) for name, goal in made.items()
        }
    return made


@dataclass(frozen=True, slots=True)
class _Case:
    table: Registry
    plan: Plan[Any, Any]
    inputs: dict[str, Array | None]
    wanted: dict[str, Array]
    stable: bool


def _elementwise(case: _Case, name: str, element: ElementKind) -> Expected:
    return Expected(case.wanted[name], element, ULP[element], np.zeros(()), np.zeros(()))


def _scattered(case: _Case, name: str, element: ElementKind) -> Expected:
    """A sum over windows: rounding of its terms, from the sum of their sizes."""
    sizes = {key: None if value is None else np.abs(value) for key, value in case.inputs.items()}
    size = reference(case.table, case.plan, sizes, widen=True)[name]
    terms = -(-case.plan.descriptor.window // case.plan.descriptor.step)
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(size), size, 0.0)
        slack = size * (2.0**-53 if element is ElementKind.F64 else 2.0**-24) * (4 + terms)
        if not case.stable:
            slack = slack + ulp(element, size) * terms
    return Expected(case.wanted[name], element, ULP[element], slack, size)


def _normalised(case: _Case, name: str, element: ElementKind) -> Expected:
    """Errors of a group's sums reach all of its elements, at the size of the terms."""
    scale, count = _norm_scale(case.plan, case.inputs, case.wanted, name)
    loose = name not in ("y", "saved_rstd")
    return Expected(case.wanted[name], element, 2.0, _norm_bound(element, count) * scale, scale, loose)


ALLOWANCES: dict[str, Callable[[_Case, str, ElementKind], Expected]] = {
    "lp_pool1d_backward": _scattered,
    "group_norm": _normalised,
    "group_norm_backward": _normalised,
    "instance_norm": _normalised,
    "instance_norm_backward": _normalised,
}
"""What is allowed to the outputs of an operation, where that is not the elementwise rule."""


def ulp(element: ElementKind, at: Array) -> Array:
    """The spacing of a floating type at values: subnormal spacing below its normal range, top spacing above it."""
    limits = data.finfo(element)
    _, exponent = np.frexp(np.where(np.isfinite(at), at, float(limits.max)))
    lowest, highest = int(limits.minexp) + 1, int(limits.maxexp)
    exponent = np.where(at == 0, lowest, np.clip(exponent, lowest, highest))
    spacing: Array = np.ldexp(1.0, exponent - 1 - int(limits.nmant))
    return spacing


def errors(got: Array, goal: Expected) -> tuple[float, float]:
    """Largest error in ulp, and largest error over what is allowed (infinite for a wrong special value)."""
    if got.size == 0:
        return 0.0, 0.0
    if goal.element not in ULP:
        off = np.abs(got.astype(np.int64) - goal.want.astype(np.int64)).max()
        return float(off), math.inf if off else 0.0
    with np.errstate(all="ignore"):
        want, have = goal.want.astype(np.float64), got.astype(np.float64)
        # A result past the type's range is an infinity; it counts as the first number past it.
        past = (
            2.0 * 2.0 ** (int(data.finfo(goal.element).maxexp) - 1)
            if goal.element is not ElementKind.F64
            else math.inf
        )
        error = np.abs(np.clip(have, -past, past) - np.clip(want, -past, past))
        error = np.where(have == want, 0.0, error)
        bad = np.isnan(have) != np.isnan(want)
        bad |= np.isinf(want) & (have != want)
        if goal.element is ElementKind.F64:
            bad |= np.isinf(have) & (have != want)
        if goal.any_nonfinite:
            bad &= np.isfinite(have) | np.isfinite(want)
        error = np.where(bad, math.inf, np.where(np.isfinite(error), error, 0.0))
        here = ulp(goal.element, want)
        slack = np.where(np.isfinite(goal.slack), goal.slack, 0.0)
        size = np.where(np.isfinite(goal.size), goal.size, 0.0)
        allowed = goal.limit * here + slack
        ulps = error / np.maximum(here, ulp(goal.element, np.broadcast_to(size, want.shape)))
        share = np.where(error == 0, 0.0, error / allowed)
    return float(np.max(ulps)), float(np.max(share))


def _norm_bound(element: ElementKind, count: int) -> float:
    """Relative error of a normalisation over `count` elements, as the contracts have it."""
    growth = math.sqrt(max(1.0, math.log2(max(1, count))))
    return {
        ElementKind.BF16: 2.0**-8,
        ElementKind.F16: 2.0**-11,
        ElementKind.F32: 2e-7 * growth,
        ElementKind.F64: 4e-15 * growth,
    }[element]


def _norm_scale(
    plan: Plan[Any, Any], inputs: dict[str, Array | None], wanted: dict[str, Array], name: str
) -> tuple[Array, int]:
    """The size of the terms that an output is made of, and how many elements are summed."""
    desc = plan.descriptor
    x = _wide(inputs["x"])
    groups = x.shape[0] * desc.num_groups
    count = max(1, x.size // max(1, groups))
    want = np.abs(wanted[name])
    with np.errstate(all="ignore"):
        if name == "saved_mean":
            rstd = wanted["saved_rstd"]
            return np.maximum(want, np.where(rstd > 0, 1 / rstd, 0.0)), count
        if name == "saved_rstd":
            return want, count
        channels = (1, -1) + (1,) * (x.ndim - 2)
        gamma = inputs.get("gamma")
        weight = np.ones(()) if gamma is None else np.abs(_wide(gamma)).reshape(channels)
        if name == "y":
            beta = inputs.get("beta")
            shift = 0.0 if beta is None else np.abs(_wide(beta)).reshape(channels)
            finite = np.where(np.isfinite(want), want, 0.0)
            return np.maximum(np.broadcast_to(weight + shift, x.shape), finite), count
        dy = np.abs(_wide(inputs["dy"]))
        by_group = (x.shape[0], desc.num_groups, count)
        mean, rstd = (_wide(inputs[key]).reshape(*by_group[:2], 1) for key in ("saved_mean", "saved_rstd"))
        normalised = np.abs((x.reshape(by_group) - mean) * rstd)
        if name == "dx":
            h = (dy * weight).reshape(by_group)
            mixed = (h * normalised).mean(-1, keepdims=True)
            size = np.abs(rstd) * (h + h.mean(-1, keepdims=True) + normalised * mixed)
            return size.reshape(x.shape), count
        terms = dy if name == "dbeta" else dy * normalised.reshape(x.shape)
        return terms.sum(axis=(0, *range(2, x.ndim))), max(1, x.size // max(1, x.shape[1]))


def _wide(values: Array | None) -> Array:
    assert values is not None
    return values.astype(np.float64)
