"""Small problems for every operation, and which of them a variant serves.

The pool is much larger than what is run: of it each variant gets the first few that satisfy its constraints, in an order
that is shuffled once and for all, so that the extents of a design's niche are met whatever the design is.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from ..device import Device
from ..errors import NoVariant, Unsupported
from ..inspect.ops import OpEntry
from ..manifest import Variant
from ..operands import VECTOR_BYTES
from ..plans.base import Plan
from ..preference import PlanPreference
from ..sku import OpCategory

_MOST_ELEMENTS = 1 << 20
_USUAL_ELEMENTS = 1 << 16


def _pool_problems() -> Iterator[dict[str, Any]]:
    windows = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 33, 64, 200, 700, 1100, 3001)
    strides = (1, 2, 3, 4, 5, 6, 7, 8, 16)
    for window, stride, p in itertools.product(windows, strides, (1.0, 2.0, 3.0, 0.5, 2.7)):
        for rows, length in ((1, 4099), (6, 131), (260, 3), (2, 2064)):
            if length >= window:
                yield {
                    "batch": 1 if rows % 2 else 2,
                    "channels": rows if rows % 2 else rows // 2,
                    "l_in": length,
                    "window": window,
                    "stride": stride,
                    "p": p,
                    "ceil_mode": (window + stride) % 2 == 1,
                }


def _norm_problems() -> Iterator[dict[str, Any]]:
    spatial = (1, 2, 5, 7, 8, 16, 49, 64, 128, 256, 512, 1031, 2048, 4096, 10240, 20480, 65536)
    for extent, channels, (n, groups) in itertools.product(
        spatial, (1, 2, 3, 8, 48), ((1, 1), (2, 3), (40, 1), (1, 300), (2, 1))
    ):
        yield {"input_shape": (n, groups * channels, extent), "num_groups": groups}


def _instance_problems() -> Iterator[dict[str, Any]]:
    for problem in _norm_problems():
        if problem["input_shape"][1] == problem["num_groups"]:
            yield {"input_shape": problem["input_shape"]}


def _group_problems() -> Iterator[dict[str, Any]]:
    for group, groups, rows in itertools.product(
        (1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 64, 128, 513, 2049), (1, 3, 8), (1, 2, 5)
    ):
        yield {"outer_size": rows, "axis_size": group * groups, "group_size": group}


def _ranged_problems() -> Iterator[dict[str, Any]]:
    for problem in _group_problems():
        yield {**problem, "q_min": -128, "q_max": 127}


def _elements(problem: dict[str, Any]) -> int:
    if "input_shape" in problem:
        count = 1
        for extent in problem["input_shape"]:
            count *= extent
        return count
    if "l_in" in problem:
        return int(problem["batch"] * problem["channels"] * problem["l_in"])
    return int(problem["outer_size"] * problem["axis_size"])


def _maker(entry: OpEntry) -> Callable[[], Iterator[dict[str, Any]]]:
    fields = entry.fields()
    if entry.op.name and "window" in fields:
        return _pool_problems
    if "input_shape" in fields:
        return _norm_problems if "num_groups" in fields else _instance_problems
    return _ranged_problems if "q_min" in fields else _group_problems


@functools.cache
def pool_of(name: str) -> tuple[dict[str, Any], ...]:
    """The pool of an operation, by its text in SKUs: usual sizes shuffled, then the large ones."""
    from ..inspect.ops import OPS

    problems = [problem for problem in _maker(OPS[name])() if _elements(problem) <= _MOST_ELEMENTS]
    random.Random(name).shuffle(problems)
    return tuple(sorted(problems, key=lambda problem: _elements(problem) > _USUAL_ELEMENTS))


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
        if len(found) == count or (found and _elements(problem) > _USUAL_ELEMENTS):
            break
    return found


@functools.lru_cache(maxsize=65536)
def _descriptor(entry: OpEntry, index: int, element: Any, aux: Any) -> Any:
    problem = dict(pool_of(entry.name)[index])
    if entry.op.name and "has_affine" in entry.fields():
        problem["has_affine"] = index % 4 != 3
    return entry.descriptor(problem, element, aux)


@functools.lru_cache(maxsize=65536)
def _facts(entry: OpEntry, index: int, element: Any, aux: Any) -> dict[str, Any]:
    return entry.plan.facts(_descriptor(entry, index, element, aux))


def category_of(entry: OpEntry) -> OpCategory:
    """The family of an operation."""
    from ..sku import KIND_OF_CATEGORY

    return next(category for category, kind in KIND_OF_CATEGORY.items() if type(entry.op) is kind)
