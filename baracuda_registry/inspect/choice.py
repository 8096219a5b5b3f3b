"""Why a variant is chosen: the choice, the runner-up, and every reason against every other variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..device import Device
from ..errors import NoVariant
from ..manifest import Variant
from ..preference import PlanPreference
from ..select import Candidate, Trace
from ..sku import OpKind
from .names import device_named
from .ops import describe_problem, entry_for


@dataclass(frozen=True, slots=True)
class Explanation:
    """A choice with everything that led to it; also a refusal, when nothing serves the problem.

    Attributes:
        op: the operation's text.
        problem: the descriptor as `field=value` texts.
        preference: what the caller asked for.
        trace: the whole selection: facts, candidates best first, rejected variants with all reasons.
        message: the error's text where nothing serves the problem, else "".
    """

    op: str
    problem: tuple[str, ...]
    preference: PlanPreference
    trace: Trace
    message: str = ""

    @property
    def chosen(self) -> Candidate | None:
        """The choice; None when nothing serves the problem."""
        return self.trace.candidates[0] if self.trace.candidates else None

    @property
    def runner_up(self) -> Candidate | None:
        """What would be chosen if the choice were not there."""
        return self.trace.candidates[1] if len(self.trace.candidates) > 1 else None

    @property
    def basis(self) -> str:
        """What decided: `pinned`, `the only candidate`, `measurement`, `rank`, or the tie-break.

        A measurement decides where it puts another variant first than the ranks would have.
        """
        first, second = self.chosen, self.runner_up
        if first is None:
            return "none"
        if self.preference.variant is not None:
            return "pinned"
        if second is None:
            return "the only candidate"
        if self.trace.decided_by_measurement:
            return "measurement"
        if first.rank != second.rank:
            return "rank"
        return "equal ranks: the more specific tier, then the id"

    @property
    def margin(self) -> dict[str, Any] | None:
        """How far the runner-up is behind: difference of ranks, and ratio of measured times where there are both."""
        first, second = self.chosen, self.runner_up
        if first is None or second is None:
            return None
        ours, theirs = measured(first), measured(second)
        ratio = theirs / ours if ours and theirs else None
        return {"rank": second.rank - first.rank, "time_ratio": ratio}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        second = self.runner_up
        facts = {field.name: getattr(self.trace.device, field.name) for field in fields(self.trace.device)}
        preference = asdict(self.preference)
        if self.preference.prefer_backend is not None:
            preference["prefer_backend"] = self.preference.prefer_backend.value
        return {
            "op": self.op,
            "plan": self.trace.plan,
            "problem": list(self.problem),
            "device": facts,
            "preference": preference,
            "facts": dict(self.trace.facts),
            "chosen": None if self.chosen is None else self._candidate(self.chosen),
            "basis": self.basis,
            "runner_up": None if second is None else second.variant.id,
            "margin": self.margin,
            "candidates": [self._candidate(candidate) for candidate in self.trace.candidates],
            "rejected": [
                {"id": r.variant.id, "design": r.variant.design, "reasons": list(r.reasons)}
                for r in self.trace.rejected
            ],
            "message": self.message,
        }

    def _candidate(self, candidate: Candidate) -> dict[str, Any]:
        variant = candidate.variant
        return {
            "id": variant.id,
            "design": variant.design,
            "summary": variant.summary,
            "rank": candidate.rank,
            "rank_because": rank_reason(variant, {**self.trace.facts, **self.trace.device.facts}),
            "measured_seconds": measured(candidate),
            "workspace_bytes": candidate.requirements.workspace_bytes,
            "shared_bytes": candidate.requirements.shared_bytes,
        }

    def __str__(self) -> str:
        return str(self.trace) if not self.message else self.message


def measured(candidate: Candidate) -> float | None:
    """Seconds that the candidate was measured to take for a problem like this one; None where it was not measured."""
    return candidate.seconds


def rank_reason(variant: Variant, facts: Mapping[str, Any]) -> str:
    """The rank rule that applies, as text; "" where the variant's own rank does."""
    for rule in variant.rank_rules:
        if all(constraint.holds(facts) for constraint in rule.when):
            return " and ".join(map(str, rule.when))
    return ""


def explain(
    descriptor: Any,
    device: Device | str | None = None,
    preference: PlanPreference | None = None,
    *,
    op: OpKind | str | None = None,
) -> Explanation:
    """Explain what `Plan.select` chooses for a problem.

    Args:
        descriptor: the problem.
        device: a `Device`, a GPU's public name (in this machine or not), `host`, or None for the current device.
        preference: limits and wishes.
        op: which operation, where one descriptor serves several (LP pooling, forward and backward).

    Raises:
        InvalidProblem, Unsupported: the problem itself, or the device's name.  That nothing serves a sound problem
            is not an error here but an explanation without a choice.
    """
    entry = entry_for(descriptor, op)
    where = device_named(device)
    wishes = PlanPreference() if preference is None else preference
    problem = tuple(describe_problem(descriptor))
    try:
        plan = entry.plan.select(None, descriptor, wishes, device=where)
    except NoVariant as refusal:
        return Explanation(entry.name, problem, wishes, refusal.trace, str(refusal))
    return Explanation(entry.name, problem, wishes, plan.selection.trace)
