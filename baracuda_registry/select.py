"""Choosing a variant: a pure function of explicit facts.

No device is touched and nothing is remembered, so a choice can be tested, explained and repeated for any GPU.  Every
rejected variant keeps every reason, because "unsupported" alone has never helped anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .constraint import Fact
from .device import Device
from .errors import NoVariant
from .manifest import Variant
from .preference import PlanPreference
from .sku import ArchSku, BackendKind

MARGIN = 0.05
"""By how much a measured time must win against that of the rank's choice: less is within what a day or a clock changes."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a variant needs for one problem: workspace and dynamic shared memory, in bytes."""

    workspace_bytes: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Rejection:
    """A variant that was not eligible, with all its reasons."""

    variant: Variant
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """Times taken on this device for problems of this bucket.

    Attributes:
        seconds: by variant id.
        bucket: text of the shape bucket.
        origin: the table they come from.
    """

    seconds: Mapping[str, float]
    bucket: str
    origin: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """An eligible variant, its rank for this problem, what it needs, and its measured time if there is one."""

    variant: Variant
    rank: int
    requirements: Requirements
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Why a choice came out as it did.

    Attributes:
        plan: name of the plan that asked.
        device: the device it was made for.
        facts: facts of the problem.
        candidates: eligible variants, best first.
        rejected: every other variant, with all reasons.
        measured: the measured times that were known, None where there were none.
        decided_by_measurement: whether they put another variant first than the ranks would have.
    """

    plan: str
    device: Device
    facts: Mapping[str, Fact]
    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...]
    measured: Measured | None = None
    decided_by_measurement: bool = False

    def __str__(self) -> str:
        lines = [f"{self.plan} on {self.device.name}:"]
        for index, candidate in enumerate(self.candidates):
            mark = "chosen  " if index == 0 else "eligible"
            time = "" if candidate.seconds is None else f", measured {candidate.seconds * 1e6:.4g} µs"
            lines.append(
                f"  {mark} {candidate.variant.id} (rank {candidate.rank}{time}): {candidate.variant.summary}"
            )
        if self.measured is not None:
            decided = (
                "decided"
                if self.decided_by_measurement
                else f"the rank's choice stays (a win of {MARGIN:.0%} is asked for)"
            )
            lines.append(f"  measurement: {decided}; bucket {self.measured.bucket}, {self.measured.origin}")
        for rejection in self.rejected:
            lines.append(f"  rejected {rejection.variant.id}: " + "; ".join(rejection.reasons))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen variant, what it needs, and the trace of the choice."""

    variant: Variant
    requirements: Requirements
    trace: Trace


def select(
    plan: str,
    variants: Sequence[Variant],
    facts: Mapping[str, Fact],
    device: Device,
    preference: PlanPreference,
    requirements: Callable[[Variant], Requirements],
    measured: Measured | None = None,
) -> Selection:
    """Choose among `variants` for a problem on a device.

    Args:
        plan: name of the plan, for messages.
        variants: every variant of the operation, of every tier and backend.
        facts: facts of the problem, `alignment` (bytes) among them.
        device: facts of the device.
        preference: the caller's limits and wishes.
        requirements: what an eligible variant needs for this problem; asked only of variants whose constraints hold.
        measured: times known for this device and the problem's bucket.

    Returns:
        the choice: lowest rank first, then the more specific tier, then the id; but the fastest eligible variant where
        it was measured to be faster than that by `MARGIN`.

    Raises:
        NoVariant: nothing is eligible; the message lists every variant with every reason.
    """
    known = {**facts, **device.facts}
    candidates: list[Candidate] = []
    rejected: list[Rejection] = []
    for variant in variants:
        reasons = _reasons(variant, known, device, preference)
        needs = Requirements()
        if not reasons:
            needs = requirements(variant)
            reasons = _limits(needs, device, preference)
        if reasons:
            rejected.append(Rejection(variant, tuple(reasons)))
        else:
            seconds = measured.seconds.get(variant.id) if measured is not None else None
            candidates.append(Candidate(variant, variant.rank_for(known), needs, seconds))
    candidates.sort(key=rank_order)
    times = {c.variant.id: c.seconds for c in candidates if c.seconds is not None}
    winner = measured_winner(candidates[0].variant.id, times) if times else None
    if winner is not None:
        candidates.sort(key=lambda c: c.variant.id != winner)
    decided = winner is not None
    trace = Trace(plan, device, dict(facts), tuple(candidates), tuple(rejected), measured, decided)
    if not candidates:
        lines = [f"{plan}: no variant serves this problem on {device.name}"]
        if preference.variant is not None and not any(_is_pinned(v, preference.variant) for v in variants):
            lines[0] = f"{plan}: pinned variant {preference.variant!r} does not exist"
        lines += [f"  {r.variant.id}: " + "; ".join(r.reasons) for r in rejected]
        raise NoVariant("\n".join(lines), trace)
    best = candidates[0]
    return Selection(best.variant, best.requirements, trace)


def rank_order(candidate: Candidate) -> tuple[int, int, str]:
    """What candidates are sorted by where no measurement speaks."""
    return candidate.rank, -candidate.variant.sku.arch.compute_capability, candidate.variant.id


def measured_winner(first: str, seconds: Mapping[str, float]) -> str | None:
    """The id that measurement puts before the rank's choice `first`, if it does.

    Args:
        first: id of the rank's choice; without a time of its own it stays.
        seconds: times of eligible variants by id.
    """
    if first not in seconds:
        return None
    best = min(seconds, key=lambda name: seconds[name])
    return best if seconds[best] * (1 + MARGIN) <= seconds[first] else None


def _is_pinned(variant: Variant, pin: str) -> bool:
    return pin in (variant.id, variant.design)


def _reasons(
    variant: Variant, facts: Mapping[str, Fact], device: Device, preference: PlanPreference
) -> list[str]:
    sku = variant.sku
    reasons: list[str] = []
    if preference.variant is not None:
        if not _is_pinned(variant, preference.variant):
            reasons.append(f"variant {preference.variant} is pinned")
    elif variant.pinned_only:
        reasons.append("chosen only when pinned (PlanPreference.variant)")
    if not sku.arch.runs_on(device.compute_capability):
        have = "the host" if device.is_host else f"compute capability {device.compute_capability / 10:.1f}"
        reasons.append(f"built for {sku.arch.name}, {device.name} is {have}")
    if sku.arch is ArchSku.Sm90a and not preference.allow_sm90a:
        reasons.append("allow_sm90a is False")
    if preference.prefer_backend not in (None, sku.backend):
        assert preference.prefer_backend is not None
        reasons.append(f"backend is {sku.backend.name}, prefer_backend is {preference.prefer_backend.name}")
    if preference.require_bit_stable and not sku.precision_guarantee.bit_stable_on_same_hardware:
        reasons.append("not bit-stable, require_bit_stable is True")
    if preference.require_deterministic and not sku.precision_guarantee.deterministic:
        reasons.append("not deterministic, require_deterministic is True")
    alignment = facts["alignment"]
    assert isinstance(alignment, int)
    if sku.backend is not BackendKind.Reference and alignment < variant.alignment:
        reasons.append(f"alignment is {alignment} bytes, want {variant.alignment} (it reads in vectors)")
    reasons += [constraint.reason(facts) for constraint in variant.constraints if not constraint.holds(facts)]
    return reasons


def _limits(needs: Requirements, device: Device, preference: PlanPreference) -> list[str]:
    reasons: list[str] = []
    limit = preference.max_workspace_bytes
    if limit is not None and needs.workspace_bytes > limit:
        reasons.append(f"needs {needs.workspace_bytes} bytes of workspace, max_workspace_bytes is {limit}")
    if needs.shared_bytes > device.shared_bytes_per_block and not device.is_host:
        reasons.append(
            f"needs {needs.shared_bytes} bytes of shared memory a block, {device.name} has {device.shared_bytes_per_block}"
        )
    return reasons
