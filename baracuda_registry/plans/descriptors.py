"""Checks and conversions that the plans' descriptors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..elements import FLOATING, ElementKind
from ..errors import InvalidProblem, Unsupported
from ..manifest import Variant


def check_integers(plan: str, desc: Any, names: tuple[str, ...]) -> None:
    """Raise `InvalidProblem` for a field that is no integer."""
    for name in names:
        value = getattr(desc, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidProblem(f"{plan}: {name} is {value!r}, want an int")


def check_floating(plan: str, field: str, element: ElementKind) -> None:
    """Raise `Unsupported` unless the element is one of f32, f64, f16, bf16."""
    if element not in FLOATING:
        raise Unsupported(f"{plan}: {field} is {element.value}, want one of f32, f64, f16, bf16")


def normalize_element_fields(desc: Any) -> None:
    """Let descriptors name elements by text or dtype: replace the fields of a frozen descriptor by `ElementKind`s."""
    for field in fields(desc):
        if field.name.endswith("element"):
            value = getattr(desc, field.name)
            if value is not None and not isinstance(value, ElementKind):
                object.__setattr__(desc, field.name, ElementKind.of(value))


def tuning(variant: Variant, *names: str) -> tuple[int, ...]:
    """Tuning parameters of a variant by name."""
    table: Mapping[str, int] = variant.tuning
    return tuple(table[name] for name in names)
