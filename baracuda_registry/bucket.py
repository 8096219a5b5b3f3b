"""Shape buckets: which problems share a measurement.

A measured time speaks for the problems that are like the one it was taken on.  What "like" means is a family's own, so
each plan states it as data: the facts that decide which design is fast, each coarsened as far as it may be.  Facts
that only decide what is eligible need no part here, because an ineligible variant is never chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .constraint import Fact


@dataclass(frozen=True, slots=True)
class Octave:
    """A size, by its binary logarithm rounded to 1/`steps`: sizes within a factor 2^(1/(2·steps)) share a bucket."""

    fact: str
    steps: int = 1

    def text(self, facts: Mapping[str, Fact]) -> str:
        """`groups~2^10`, or `groups=0`."""
        value = facts[self.fact]
        assert isinstance(value, int)
        if value <= 0:
            return f"{self.fact}={value}"
        return f"{self.fact}~2^{round(self.steps * math.log2(value)) / self.steps:g}"


@dataclass(frozen=True, slots=True)
class Whole:
    """How many elements, `most` at most, fit a size without a rest: the widest vectors it can be cut into."""

    fact: str
    most: int

    def text(self, facts: Mapping[str, Fact]) -> str:
        """`spatial/8`."""
        value = facts[self.fact]
        assert isinstance(value, int)
        return f"{self.fact}/{math.gcd(value, self.most)}"


@dataclass(frozen=True, slots=True)
class Same:
    """A parameter that must be equal; where `among` is given, all values outside it are alike."""

    fact: str
    among: tuple[Fact, ...] = ()

    def text(self, facts: Mapping[str, Fact]) -> str:
        """`window=3`, `p=any`."""
        value = facts[self.fact]
        if self.among and value not in self.among:
            return f"{self.fact}=any"
        return f"{self.fact}={value:g}" if isinstance(value, float) else f"{self.fact}={value}"


Part = Octave | Whole | Same


def bucket_of(parts: Sequence[Part], facts: Mapping[str, Fact]) -> str:
    """The bucket of a problem, as text that a person can read."""
    return " ".join(part.text(facts) for part in parts)
