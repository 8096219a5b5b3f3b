"""What a caller may ask of the choice, apart from the problem itself."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidProblem
from .sku import BackendKind


@dataclass(frozen=True, slots=True)
class PlanPreference:
    """Limits and wishes that `select` honours; what cannot be met is an error, never a silent fallback.

    Attributes:
        max_workspace_bytes: largest workspace the chosen variant may need, in bytes; None = no limit.
        allow_sm90a: whether variants of the `Sm90a` tier may be chosen.
        prefer_backend: the backend that must serve the problem; None = any.
        require_bit_stable: only variants that give the same bits run to run on the same hardware.
        require_deterministic: only variants whose order of arithmetic does not depend on scheduling.
        variant: pin one variant: its id (`<sku text>/<design>`) or, shorter, its design name.
    """

    max_workspace_bytes: int | None = None
    allow_sm90a: bool = True
    prefer_backend: BackendKind | None = None
    require_bit_stable: bool = False
    require_deterministic: bool = False
    variant: str | None = None

    def __post_init__(self) -> None:
        limit = self.max_workspace_bytes
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidProblem(
                f"PlanPreference: max_workspace_bytes is {limit!r}, want None or an int >= 0"
            )
        if self.prefer_backend is not None and not isinstance(self.prefer_backend, BackendKind):
            raise InvalidProblem(
                f"PlanPreference: prefer_backend is {self.prefer_backend!r}, want a BackendKind"
            )
        if self.variant is not None and not isinstance(self.variant, str):
            raise InvalidProblem(
                f"PlanPreference: variant is {self.variant!r}, want the id of a variant as text"
            )
