"""Small problems for every operation, and which of them a variant serves.

The pool is much larger than what is run: of it each variant gets the first few that satisfy its constraints, in an order
that is shuffled once and for all, so that the extents of a design's niche are met whatever the design is.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping
from typing import Any

from ..device import Device
from ..elements import ElementKind
from ..errors import NoVariant, Unsupported
from ..inspect.ops import OpEntry, entry_of
from ..manifest import Variant
from ..operands import VECTOR_BYTES
from ..plans.base import Plan
from ..preference import PlanPreference

_MOST_ELEMENTS = 1 << 20
_USUAL_ELEMENTS = 1 << 16


@functools.cache
def pool_of(name: str) -> tuple[Mapping[str, Any], ...]:
    """The pool of an operation, by its text in SKUs: usual sizes shuffled, then the large ones."""
    entry = entry_of(name)
    sized = [(problem, _elements(entry, problem)) for problem in entry.problems()]
    kept = [(problem, count > _USUAL_ELEMENTS) for problem, count in sized if count <= _MOST_ELEMENTS]
    random.Random(name).shuffle(kept)
    return tuple(problem for problem, _ in sorted(kept, key=lambda pair: pair[1]))


def _elements(entry: OpEntry, problem: Mapping[str, Any]) -> int:
    """Elements of the largest operand."""
    codes = {"output_element": ElementKind.S8} if "output_element" in entry.fields() else {}
    desc = entry.descriptor({**codes, **problem}, ElementKind.F32)
    return max(math.prod(operand.shape) for operand in entry.plan.operands(desc))


def plans_for(entry: OpEntry, variant: Variant, device: Device, count: int) -> list[Plan[Any, Any]]:
    """Plans pinned to a variant, for the first `count` problems of the pool that it serves on the device."""
    sku = variant.sku
    found: list[Plan[Any, Any]] = []
    pinned = PlanPreference(variant=variant.id)
    for index, problem in enumerate(pool_of(entry.name)):
        desc = _descriptor(entry, index, sku.element, sku.aux_element)
        facts = {
            **_facts(entry, index, sku.element, sku.aux_element),
            **device.facts,
            "alignment": VECTOR_BYTES,
        }
        if not all(constraint.holds(facts) for constraint in variant.constraints):
            continue
        try:
            found.append(entry.plan.select(None, desc, pinned, device=device))
        except (NoVariant, Unsupported):
            continue
        if len(found) == count or (found and _elements(entry, problem) > _USUAL_ELEMENTS):
            break
    return found


@functools.lru_cache(maxsize=65536)
def _descriptor(entry: OpEntry, index: int, element: Any, aux: Any) -> Any:
    problem = dict(pool_of(entry.name)[index])
    if "has_affine" in entry.fields():
        problem["has_affine"] = index % 4 != 3
    return entry.descriptor(problem, element, aux)


@functools.lru_cache(maxsize=65536)
def _facts(entry: OpEntry, index: int, element: Any, aux: Any) -> dict[str, Any]:
    return entry.plan.facts(_descriptor(entry, index, element, aux))
