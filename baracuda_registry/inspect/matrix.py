"""Which operations exist for which types and tiers, and the reason for each hole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..catalog import Registry
from ..elements import FLOATING, ElementKind
from ..sku import KIND_OF_CATEGORY, ArchSku, OpCategory, OpKind


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination.

    Attributes:
        category: operation family.
        op: operation.
        element: type of the main tensors.
        aux_element: second type, or None.
        arch: architecture tier.
        variants: how many variants are registered there.
        served_by: the tier whose variants run there when this one has none of its own; None where nothing does.
        reasons: why there are none, or why a design is missing; empty where nothing is.
    """

    category: OpCategory
    op: OpKind
    element: ElementKind
    aux_element: ElementKind | None
    arch: ArchSku
    variants: int
    served_by: ArchSku | None
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "category": self.category.value,
            "op": self.op.name.lower(),
            "element": self.element.value,
            "aux_element": None if self.aux_element is None else self.aux_element.value,
            "arch": self.arch.value,
            "variants": self.variants,
            "served_by": None if self.served_by is None else self.served_by.value,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class Coverage:
    """The matrix.

    Attributes:
        cells: every operation × types × tier.
        reserved: operations that have a kind but no variant, by category.
    """

    cells: tuple[Cell, ...]
    reserved: tuple[tuple[OpCategory, tuple[str, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "cells": [cell.to_dict() for cell in self.cells],
            "reserved": {category.value: list(names) for category, names in self.reserved},
        }


def coverage(table: Registry) -> Coverage:
    """Every operation of the registry × every combination of types × every tier.

    The types are all that any operation of the same category has; those that an operation lacks are holes too.
    """
    ops: dict[tuple[OpCategory, str], OpKind] = {}
    types: dict[tuple[OpCategory, str], set[tuple[ElementKind, ElementKind | None]]] = {}
    for sku in table.skus():
        key = (sku.category, sku.op.name)
        ops[key] = sku.op
        types.setdefault(key, set()).add((sku.element, sku.aux_element))
    counts: dict[tuple[Any, ...], int] = {}
    for variant in table.all_variants():
        sku = variant.sku
        cell = (sku.category, sku.op.name, sku.element, sku.aux_element, sku.arch)
        counts[cell] = counts.get(cell, 0) + 1
    cells = []
    for (category, name), op in ops.items():
        siblings = set().union(*(found for key, found in types.items() if key[0] is category))
        for element, aux in sorted(siblings, key=_order):
            row = [counts.get((category, name, element, aux, arch), 0) for arch in ArchSku]
            for arch, count in zip(ArchSku, row):
                lower = _lower(arch, row) if not count else None
                reasons = _reasons(table, category, op, element, aux, arch, count, lower, any(row))
                cells.append(Cell(category, op, element, aux, arch, count, lower, reasons))
    reserved = tuple(
        (category, names)
        for category, kinds in KIND_OF_CATEGORY.items()
        if (names := tuple(kind.name.lower() for kind in kinds if (category, kind.name) not in ops))
    )
    return Coverage(tuple(cells), reserved)


def _order(types: tuple[ElementKind, ElementKind | None]) -> tuple[int, str]:
    element, aux = types
    place = FLOATING.index(element) if element in FLOATING else len(FLOATING)
    return place, "" if aux is None else aux.value


def _lower(arch: ArchSku, row: Sequence[int]) -> ArchSku | None:
    """The highest tier below whose variants run on devices of this one."""
    lower = [
        tier
        for tier, count in zip(ArchSku, row)
        if count
        and tier is not ArchSku.Host
        and arch is not ArchSku.Host
        and tier.runs_on(arch.compute_capability)
    ]
    return max(lower, key=lambda tier: tier.compute_capability, default=None)


def _reasons(
    table: Registry,
    category: OpCategory,
    op: OpKind,
    element: ElementKind,
    aux: ElementKind | None,
    arch: ArchSku,
    count: int,
    lower: ArchSku | None,
    somewhere: bool,
) -> tuple[str, ...]:
    name = op.name.lower()
    text = element.value if aux is None else f"{element.value}/{aux.value}"
    holes = table.manifest.holes if table.manifest is not None else ()
    if arch is not ArchSku.Host:
        found = tuple(
            f"{hole.design}: {hole.reason}"
            for hole in holes
            if hole.op == f"{category.value}/{name}" and hole.element == text
        )
        if found and (not lower or count):
            return found
    if count:
        return ()
    if not somewhere:
        return (f"{name} is not declared for {text}",)
    if lower is not None:
        return (f"no design needs more than {lower.value}: its variants run here",)
    return (f"{name} has no {arch.value} variant for {text}",)
