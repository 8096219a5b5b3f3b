"""Constraints as data: `field, relation, value`.

One declaration serves as the check, as the text of the reason, as the coverage matrix and as documentation.  A
constraint never holds code, so it travels through the manifest and can be shown to a person.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ManifestError

Fact = bool | int | float | str | None
"""A fact of a problem or a device."""


def _multiple_of(fact: Any, value: Any) -> bool:
    return bool(fact % value == 0)


def _is_in(fact: Any, value: Any) -> bool:
    return fact in value


_RELATIONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "eq": (operator.eq, "="),
    "ne": (operator.ne, "≠"),
    "lt": (operator.lt, "<"),
    "le": (operator.le, "≤"),
    "gt": (operator.gt, ">"),
    "ge": (operator.ge, "≥"),
    "in": (_is_in, "one of"),
    "multiple_of": (_multiple_of, "a multiple of"),
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """`fact(field) relation value`, with an optional word on why.

    Attributes:
        field: name of a fact of the problem, or `device.<fact>`.
        relation: one of eq, ne, lt, le, gt, ge, in, multiple_of.
        value: what the fact is compared with; a tuple for `in`.
        why: what in the kernel makes it necessary, shown behind the reason.
    """

    field: str
    relation: str
    value: Fact | tuple[Fact, ...]
    why: str = ""

    def __post_init__(self) -> None:
        if self.relation not in _RELATIONS:
            raise ManifestError(f"constraint on {self.field}: unknown relation {self.relation!r}")

    def holds(self, facts: Mapping[str, Fact]) -> bool:
        """Whether the facts satisfy it.

        Raises:
            ManifestError: the table of variants names a fact that this operation does not have.
        """
        try:
            return _RELATIONS[self.relation][0](facts[self.field], self.value)
        except KeyError:
            known = ", ".join(sorted(facts))
            raise ManifestError(f"constraint on unknown fact {self.field!r}; known are {known}") from None

    def __str__(self) -> str:
        value = ", ".join(map(str, self.value)) if isinstance(self.value, tuple) else str(self.value)
        return f"{self.field} {_RELATIONS[self.relation][1]} {value}"

    def reason(self, facts: Mapping[str, Fact]) -> str:
        """Text of the rejection: the actual value, the wanted one, and why."""
        because = f" ({self.why})" if self.why else ""
        wanted = str(self).removeprefix(self.field).strip()
        return f"{self.field} is {facts[self.field]}, want {wanted}{because}"

    def to_json(self) -> list[Any]:
        """The constraint as the manifest writes it."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return (
            [self.field, self.relation, value, self.why] if self.why else [self.field, self.relation, value]
        )

    @classmethod
    def from_json(cls, row: list[Any]) -> Constraint:
        """Inverse of `to_json`."""
        field, relation, value, *why = row
        return cls(field, relation, tuple(value) if isinstance(value, list) else value, *why)
