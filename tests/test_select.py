"""select(): pure, complete in its reasons, honest about preferences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baracuda_registry import (
    BackendKind,
    Device,
    KernelSku,
    ManifestError,
    NoVariant,
    PlanPreference,
    Registry,
    Variant,
)
from baracuda_registry.constraint import Constraint
from baracuda_registry.errors import InvalidProblem, Unsupported
from baracuda_registry.manifest import RankRule
from baracuda_registry.select import Measured, Requirements, Selection, select

H200 = Device.named("H200")
BASE = "normalization-group_norm-f32-none-none-none-{arch}-{backend}-f32.f32.{stable}.{ordered}"


def variant(
    design: str,
    *,
    arch: str = "sm80",
    backend: str = "bespoke",
    stable: str = "stable",
    ordered: str = "ordered",
    **fields: object,
) -> Variant:
    sku = KernelSku.parse(BASE.format(arch=arch, backend=backend, stable=stable, ordered=ordered))
    values: dict[str, object] = {"rank": 10, "summary": "test", **fields}
    return Variant(id=f"{sku}/{design}", sku=sku, design=design, **values)  # type: ignore[arg-type]


HOST = variant("numpy", arch="host", backend="reference", rank=1000)
WIDE = variant("wide", rank=5, alignment=16, constraints=(Constraint("m", "multiple_of", 8, "packs"),))
PLAIN = variant("plain", rank=10)
HOPPER = variant("hopper", arch="sm90a", rank=1, constraints=(Constraint("m", "ge", 1024),))
ATOMIC = variant("atomic", stable="unstable", ordered="unordered", rank=0, pinned_only=True)
TABLE = (ATOMIC, HOPPER, WIDE, PLAIN, HOST)
WORKSPACE = {"wide": 100, "plain": 0, "hopper": 5000, "atomic": 0, "numpy": 0}


def choose(m: int = 64, device: Device = H200, alignment: int = 16, **preference: object) -> Selection:
    return select(
        "TestPlan",
        TABLE,
        {"m": m, "alignment": alignment},
        device,
        PlanPreference(**preference),  # type: ignore[arg-type]
        lambda v: Requirements(WORKSPACE[v.design]),
    )


def choose_measured(
    seconds: Mapping[str, float], m: int = 64, alignment: int = 16, **preference: object
) -> Selection:
    return select(
        "TestPlan",
        TABLE,
        {"m": m, "alignment": alignment},
        H200,
        PlanPreference(**preference),  # type: ignore[arg-type]
        lambda v: Requirements(WORKSPACE[v.design]),
        Measured(seconds, "m~2^6", "test table"),
    )


def test_rank_decides() -> None:
    assert choose(64).variant is WIDE
    assert choose(2048).variant is HOPPER
    assert choose(63).variant is PLAIN


def test_host_gets_the_reference() -> None:
    selection = choose(64, Device.host())
    assert selection.variant is HOST
    assert len(selection.trace.rejected) == 4
    assert all("built for" in " ".join(r.reasons) for r in selection.trace.rejected)


def test_every_reason_of_every_rejected_variant() -> None:
    with pytest.raises(NoVariant) as caught:
        choose(7, Device.named("A100"), alignment=4, max_workspace_bytes=0, prefer_backend=BackendKind.Cudnn)
    message = str(caught.value)
    trace = caught.value.trace
    assert {r.variant for r in trace.rejected} == set(TABLE)
    reasons = {r.variant.design: r.reasons for r in trace.rejected}
    assert any("m is 7, want a multiple of 8 (packs)" in reason for reason in reasons["wide"])
    assert any("alignment is 4 bytes, want 16" in reason for reason in reasons["wide"])
    assert any("m is 7, want ≥ 1024" in reason for reason in reasons["hopper"])
    assert any("A100 is compute capability 8.0" in reason for reason in reasons["hopper"])
    assert any("prefer_backend is Cudnn" in reason for reason in reasons["plain"])
    assert any("only when pinned" in reason for reason in reasons["atomic"])
    for rejection in trace.rejected:
        assert rejection.variant.id in message
        for reason in rejection.reasons:
            assert reason in message
    assert isinstance(caught.value, Unsupported)
    assert isinstance(caught.value, NotImplementedError)


def test_preferences_are_honoured() -> None:
    assert choose(2048, allow_sm90a=False).variant is WIDE
    assert choose(2048, max_workspace_bytes=4999).variant is WIDE
    assert choose(2048, max_workspace_bytes=5000).variant is HOPPER
    assert choose(2048, max_workspace_bytes=0).variant is PLAIN
    assert choose(2048, prefer_backend=BackendKind.Bespoke).variant is HOPPER
    with pytest.raises(NoVariant, match="prefer_backend is Reference"):
        choose(2048, prefer_backend=BackendKind.Reference)


def test_pins() -> None:
    assert choose(64, variant=PLAIN.id).variant is PLAIN
    assert choose(64, variant="plain").variant is PLAIN
    assert choose(64, variant="atomic").variant is ATOMIC
    with pytest.raises(NoVariant, match="multiple of 8"):
        choose(63, variant="wide")
    with pytest.raises(NoVariant, match="does not exist"):
        choose(64, variant="nonsense")
    with pytest.raises(NoVariant, match="require_bit_stable"):
        choose(64, variant="atomic", require_bit_stable=True)
    with pytest.raises(NoVariant, match="require_deterministic"):
        choose(64, variant="atomic", require_deterministic=True)


def test_ties_go_to_the_more_specific_tier_then_the_id() -> None:
    table = (variant("b"), variant("a"), variant("z", arch="sm90a"))
    facts = {"alignment": 16}
    first = select("P", table, facts, H200, PlanPreference(), lambda v: Requirements())
    assert [c.variant.design for c in first.trace.candidates] == ["z", "a", "b"]


def test_rank_rules_depend_on_the_device() -> None:
    rule = RankRule((Constraint("device.sm_count", "ge", 140),), 1)
    table = (variant("ruled", rank=20, rank_rules=(rule,)), variant("plain", rank=10))
    facts = {"alignment": 16}
    assert (
        select("P", table, facts, H200, PlanPreference(), lambda v: Requirements()).variant.design == "plain"
    )
    b200 = Device.named("B200")
    assert (
        select("P", table, facts, b200, PlanPreference(), lambda v: Requirements()).variant.design == "ruled"
    )


def test_shared_memory_limit() -> None:
    needs = Requirements(shared_bytes=200 * 1024)
    table = (variant("big", rank=1), variant("small", rank=2))
    facts = {"alignment": 16}

    def requirements(v: Variant) -> Requirements:
        return needs if v.design == "big" else Requirements()

    assert select("P", table, facts, H200, PlanPreference(), requirements).variant.design == "big"
    chosen = select("P", table, facts, Device.named("RTX 4090"), PlanPreference(), requirements)
    assert chosen.variant.design == "small"
    assert "shared memory" in chosen.trace.rejected[0].reasons[0]


def test_unknown_fact_is_the_tables_fault() -> None:
    table = (variant("bad", constraints=(Constraint("typo", "eq", 1),)),)
    with pytest.raises(ManifestError, match="typo"):
        select("P", table, {"alignment": 16}, H200, PlanPreference(), lambda v: Requirements())
    with pytest.raises(ManifestError, match="relation"):
        Constraint("m", "almost", 1)


@given(
    m=st.integers(0, 5000),
    alignment=st.sampled_from([1, 2, 4, 8, 16]),
    device=st.sampled_from(["H200", "A100", "RTX 4090", "B200", "host"]),
    limit=st.none() | st.integers(0, 6000),
    allow=st.booleans(),
    stable=st.booleans(),
)
def test_invariants(
    m: int, alignment: int, device: str, limit: int | None, allow: bool, stable: bool
) -> None:
    place = Device.host() if device == "host" else Device.named(device)
    options = {"max_workspace_bytes": limit, "allow_sm90a": allow, "require_bit_stable": stable}
    selection = choose(m, place, alignment, **options)
    trace = selection.trace
    seen = [c.variant for c in trace.candidates] + [r.variant for r in trace.rejected]
    assert sorted(v.id for v in seen) == sorted(v.id for v in TABLE), (
        "each variant is accepted or rejected, once"
    )
    assert all(r.reasons for r in trace.rejected)
    assert selection.variant is trace.candidates[0].variant
    assert selection.variant.rank == min(c.rank for c in trace.candidates)
    assert selection == choose(m, place, alignment, **options), "equal questions, equal answers"
    if limit is not None:
        assert selection.requirements.workspace_bytes <= limit
    if not allow:
        assert selection.variant is not HOPPER
    assert selection.variant.pinned_only is False
    assert str(trace).count("\n") == len(TABLE)


def test_preference_refuses_nonsense() -> None:
    for bad in (-1, 1.5, True, "1"):
        with pytest.raises(InvalidProblem, match="max_workspace_bytes"):
            PlanPreference(max_workspace_bytes=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidProblem, match="prefer_backend"):
        PlanPreference(prefer_backend="bespoke")  # type: ignore[arg-type]
    with pytest.raises(InvalidProblem, match="variant"):
        PlanPreference(variant=3)  # type: ignore[arg-type]


def test_registry_is_ordered_immutable_and_refuses_duplicates() -> None:
    table = Registry(TABLE)
    assert len(table) == 5
    assert list(table.skus()) == sorted(table.skus())
    assert table.variants(WIDE.sku) == (WIDE, PLAIN)
    assert table.variant(WIDE.id) is WIDE
    assert table.serving(WIDE.sku.category, WIDE.sku.op, WIDE.sku.element, None)[-1] is HOST
    with pytest.raises(ManifestError, match="share the id"):
        Registry((WIDE, replace(WIDE, rank=3)))
    with pytest.raises(InvalidProblem, match="not registered"):
        table.variant("nonsense")
    with pytest.raises(InvalidProblem, match="not registered"):
        table.variants(replace(WIDE.sku, arch=HOST.sku.arch))
    assert table.skus(backend=BackendKind.Reference) == (HOST.sku,)
    with pytest.raises(TypeError):
        table._table[WIDE.sku] = ()  # type: ignore[index]


def test_named_devices() -> None:
    assert Device.named("h200") is Device.named("NVIDIA H200")
    assert Device.named("rtx4090").compute_capability == 89
    with pytest.raises(InvalidProblem, match="H100"):
        Device.named("H300")
