"""What the per-group plans share: the checks of sizes and types, and the facts of the problem."""

from __future__ import annotations

from typing import Protocol

from ..constraint import Fact
from ..elements import ElementKind
from ..errors import InvalidProblem, Unsupported
from .base import check_floating, check_integers

CODES = (ElementKind.S8, ElementKind.U8)
"""Types of quantized codes."""


class PerGroupDescriptor(Protocol):
    """Fields that every per-group descriptor has."""

    @property
    def outer_size(self) -> int: ...
    @property
    def axis_size(self) -> int: ...
    @property
    def group_size(self) -> int: ...
    @property
    def input_element(self) -> ElementKind: ...
    @property
    def output_element(self) -> ElementKind: ...


def validate_groups(plan: str, desc: PerGroupDescriptor) -> None:
    """Raise `Unsupported` for types, `InvalidProblem` for sizes, in the seed's order."""
    check_floating(plan, "input_element", desc.input_element)
    if desc.output_element not in CODES:
        raise Unsupported(f"{plan}: output_element is {desc.output_element.value}, want s8 or u8")
    check_integers(plan, desc, ("outer_size", "axis_size", "group_size"))
    for name in ("outer_size", "axis_size"):
        if getattr(desc, name) < 0:
            raise InvalidProblem(f"{plan}: {name} is {getattr(desc, name)}, want >= 0")
    if desc.group_size <= 0:
        raise InvalidProblem(f"{plan}: group_size is {desc.group_size}, want > 0")
    if desc.axis_size % desc.group_size:
        raise InvalidProblem(
            f"{plan}: axis_size is {desc.axis_size}, want a multiple of group_size {desc.group_size}"
        )


def group_facts(desc: PerGroupDescriptor) -> dict[str, Fact]:
    """Facts of a per-group problem."""
    return {
        "outer_size": desc.outer_size,
        "axis_size": desc.axis_size,
        "group_size": desc.group_size,
        "total": desc.outer_size * desc.axis_size,
    }
