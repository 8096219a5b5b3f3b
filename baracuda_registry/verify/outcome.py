"""What checking a variant gave."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one variant.

    Attributes:
        variant: its id.
        status: `ok`, `wrong` (an error larger than allowed, a byte outside the outputs overwritten, or bits that change from
            run to run against the label), `error` (it does not compile, load or run) or `unused` (none of the problems is
            one that it serves).
        runs: how many problems × data it ran on.
        worst_ulp: largest error, in ulp of the output's type at the expected value (at the size of its terms where they
            cancel); 0.0 without runs.
        worst_share: largest error over what is allowed.
        where: the problem and data of the largest share.
        detail: what went wrong; "" when nothing did.
    """

    variant: str
    status: str
    runs: int = 0
    worst_ulp: float = 0.0
    worst_share: float = 0.0
    where: str = ""
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
