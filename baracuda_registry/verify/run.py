"""Runs variants on problems and data, and compares."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..catalog import Registry
from ..device import Device
from ..elements import ElementKind
from ..errors import BaracudaError, InvalidProblem
from ..inspect.ops import describe_problem, entry_of
from ..manifest import Variant
from ..plans.base import Plan
from ..sku import OpCategory
from . import data
from .data import Array
from .judge import Expected, errors, expected, reference
from .outcome import Outcome
from .place import Arena
from .problems import plans_for

_PROBLEMS, _THOROUGH_PROBLEMS = 3, 8
_WORKSPACE = "workspace"


def verify(
    table: Registry,
    variants: Iterable[Variant],
    device: Device | None = None,
    *,
    thorough: bool = False,
) -> Iterator[Outcome]:
    """Check variants one by one; yields each outcome as it is there.

    Args:
        table: the registry they are from.
        variants: which.  Those that cannot run on the device come out as `unused`.
        device: where; default the current GPU, or the host when there is none.
        thorough: more problems, and every kind of data on each.

    Raises:
        InvalidProblem: the device is known by name only.
    """
    where = Device.current() if device is None else device
    if where.execution == "absent":
        raise InvalidProblem(f"{where.name} is not in this machine: nothing can be verified on it")
    for variant in variants:
        yield _verify_one(table, variant, where, thorough)


def _verify_one(table: Registry, variant: Variant, device: Device, thorough: bool) -> Outcome:
    if not variant.sku.arch.runs_on(device.compute_capability):
        return Outcome(
            variant.id, "unused", detail=f"built for {variant.sku.arch.name}, not for {device.name}"
        )
    outcome = Outcome(variant.id, "ok")
    try:
        entry = entry_of(variant.sku.op)
        plans = plans_for(entry, variant, device, _THOROUGH_PROBLEMS if thorough else _PROBLEMS)
        for index, plan in enumerate(plans):
            for kind in _kinds(variant, index, thorough):
                outcome = _add(outcome, _check(table, plan, variant, kind, index))
    except BaracudaError as error:
        return replace(outcome, status="error", detail=str(error).splitlines()[0])
    except Exception as error:  # NumPy's or CuPy's own: one broken variant must not hide the others.
        return replace(outcome, status="error", detail=f"{type(error).__name__}: {error}".splitlines()[0])
    if outcome.runs == 0:
        return replace(outcome, status="unused", detail="serves none of the problems")
    return outcome


def _kinds(variant: Variant, index: int, thorough: bool) -> Iterator[str]:
    """Friendly data on every problem, and two hostile kinds in turn (all of them when thorough)."""
    first, *hostile = data.KINDS[variant.sku.category]
    yield first
    if not variant.sku.precision_guarantee.deterministic:
        hostile = [
            kind for kind in hostile if kind not in ("huge", "denormal")
        ]  # sums in T overflow and lose bits
    turns = hostile if thorough else itertools.islice(itertools.cycle(hostile), 2 * index, 2 * index + 2)
    yield from dict.fromkeys(turns)


def _add(total: Outcome, one: Outcome) -> Outcome:
    worst = one if one.worst_share >= total.worst_share else total
    return Outcome(
        variant=total.variant,
        status="wrong" if "wrong" in (total.status, one.status) else "ok",
        runs=total.runs + one.runs,
        worst_ulp=max(total.worst_ulp, one.worst_ulp),
        worst_share=worst.worst_share,
        where=worst.where,
        detail=total.detail or one.detail,
    )


@dataclass(frozen=True)
class _Question:
    """What decides the inputs and the expected results of a run: everything but the variant."""

    operation: type
    descriptor: Any
    kind: str
    stable: bool
    table: Registry
    plan: Plan[Any, Any] = field(compare=False)


@functools.lru_cache(maxsize=64)
def _case(question: _Question) -> tuple[dict[str, Array | None], dict[str, Expected]]:
    """Inputs and expected results, once for the variants that are asked the same."""
    plan, table = question.plan, question.table
    category = plan.signature(plan.descriptor).category
    inputs = _inputs(table, plan, category, question.kind, zlib.crc32(repr(question.descriptor).encode()))
    return inputs, expected(table, plan, inputs, question.stable)


def _check(table: Registry, plan: Plan[Any, Any], variant: Variant, kind: str, seed: int) -> Outcome:
    """One run on one kind of data, twice where the variant promises the same bits."""
    guarantee = variant.sku.precision_guarantee
    inputs, goals = _case(_Question(type(plan), plan.descriptor, kind, guarantee.deterministic, table, plan))
    element = variant.sku.element
    offset = seed % 2 if variant.alignment <= element.itemsize else 0
    first = _run(plan, inputs, offset, zeroed=not guarantee.deterministic)
    where = f"{' '.join(describe_problem(plan.descriptor))}, {kind} data"
    if isinstance(first, int):
        return Outcome(
            variant.id,
            "wrong",
            1,
            float("inf"),
            float("inf"),
            where,
            f"{first} bytes outside the outputs overwritten",
        )
    worst_ulp = worst_share = 0.0
    detail = ""
    for name, goal in goals.items():
        ulps, share = errors(first[name], goal)
        worst_ulp, worst_share = max(worst_ulp, ulps), max(worst_share, share)
        if share > 1 and not detail:
            detail = f"{name} is off by {ulps:.3g} ulp, {share:.3g} times what is allowed: {where}"
    if guarantee.bit_stable_on_same_hardware and not detail:
        second = _run(plan, inputs, offset, zeroed=not guarantee.deterministic)
        if isinstance(second, int) or any(first[name].tobytes() != second[name].tobytes() for name in first):
            detail = f"two runs differ, though the label says bit-stable: {where}"
    return Outcome(variant.id, "wrong" if detail else "ok", 1, worst_ulp, worst_share, where, detail)


def _run(
    plan: Plan[Any, Any], inputs: dict[str, Array | None], offset: int, *, zeroed: bool
) -> dict[str, Array] | int:
    """The outputs of one run; how many bytes outside them were overwritten, if any were."""
    arena = Arena(plan.device)
    for operand in plan.argument_table:
        if operand.present and operand.output:
            fill = 0 if zeroed else 0xFF
            arena.add_output(operand.name, operand.shape, operand.element.dtype, offset, fill)
        elif operand.present:
            values = inputs[operand.name]
            assert values is not None
            arena.add(operand.name, values, offset)
    if plan.workspace_size:
        arena.add_output(_WORKSPACE, (plan.workspace_size,), np.uint8)
    arrays = arena.place()
    workspace = arrays.pop(_WORKSPACE, None)
    absent = {operand.name: None for operand in plan.argument_table if not operand.present}
    plan.run(None, workspace, plan.arguments_type(**arrays, **absent))
    got, touched = arena.collect()
    got.pop(_WORKSPACE, None)
    return touched or got


def _inputs(
    table: Registry, plan: Plan[Any, Any], category: OpCategory, kind: str, seed: int
) -> dict[str, Array | None]:
    """Consistent inputs: what a backward saved comes from the forward."""
    operands = {
        operand.name: operand for operand in plan.argument_table if operand.present and not operand.output
    }
    element = plan.signature(plan.descriptor).element
    top = 0.4 if category is OpCategory.Normalization else 1.0
    inputs: dict[str, Array | None] = {}
    if "scale" in operands:
        inputs |= data.quantizer(kind, operands, element, seed)
    for index, (name, operand) in enumerate(operands.items()):
        if name in inputs or name in ("y", "saved_mean", "saved_rstd"):
            continue
        chosen = kind if name == "x" or (name == "d_output" and kind == "specials") else "normal"
        inputs[name] = data.values(chosen, operand.shape, operand.element, 101 * seed + index, top)
    if "y" in operands or "saved_mean" in operands:
        inputs |= _saved(table, plan, inputs, element, tuple(operands))
    return inputs


def _saved(
    table: Registry,
    plan: Plan[Any, Any],
    inputs: dict[str, Array | None],
    element: ElementKind,
    names: tuple[str, ...],
) -> dict[str, Array | None]:
    """What the forward pass gives for these inputs, in float64, rounded to the types in which it is saved."""
    forward = entry_of(plan.signature(plan.descriptor).op.name.removesuffix("_BACKWARD"))
    desc = plan.descriptor
    if type(desc) is not forward.plan.descriptor_type:
        shared = {name: getattr(desc, name) for name in forward.fields() if hasattr(desc, name)}
        desc = forward.plan.descriptor_type(**shared)
    ahead = forward.plan.select(None, desc, device=Device.host())
    given = {**inputs, "beta": inputs.get("gamma")}
    made = reference(table, ahead, given, widen=True)
    types = {operand.name: operand.element for operand in plan.argument_table}
    return {name: data.cast(made[name], types[name]) for name in names if name in made}
