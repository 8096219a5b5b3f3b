"""Measured times: buckets, tables on disk, what they do to a selection, and `tune` with injected times."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import baracuda_registry as br
from baracuda_registry import measure, measured
from baracuda_registry.bucket import Octave, Same, Whole, bucket_of
from baracuda_registry.errors import InvalidProblem
from baracuda_registry.plans.base import forget_plans
from baracuda_registry.select import MARGIN
from baracuda_registry.tuning import pinned, tune

from .dry import DryBackend
from .samples import SAMPLES, Sample, arrays_for
from .test_select import HOPPER, HOST, PLAIN, WIDE, choose_measured

samples = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


@pytest.fixture(autouse=True)
def own_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables of this test's own."""
    monkeypatch.setattr(measured, "user_path", lambda name: tmp_path / "tuned" / f"{name}.json")
    monkeypatch.setattr(measured, "shipped_path", lambda name: tmp_path / "shipped" / f"{name}.json")
    measured.forget()
    forget_plans()
    yield
    measured.forget()
    forget_plans()


# Buckets --------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 1 << 40), st.sampled_from((1, 2)))
def test_an_octave_holds_sizes_within_half_a_step(value: int, steps: int) -> None:
    text = Octave("m", steps).text({"m": value})
    centre = 2 ** float(text.removeprefix("m~2^"))
    assert 2 ** (-0.5 / steps) * 0.999 < value / centre < 2 ** (0.5 / steps) * 1.001


def test_parts() -> None:
    facts = {"m": 0, "spatial": 12, "window": 3, "p": 2.5, "q": 2.0}
    parts = (Octave("m"), Whole("spatial", 8), Same("window"), Same("p", (1.0, 2.0)), Same("q", (1.0, 2.0)))
    assert bucket_of(parts, facts) == "m=0 spatial/4 window=3 p=any q=2"
    assert Whole("spatial", 8).text({"spatial": 7}) == "spatial/1"


@samples
def test_every_plan_has_a_bucket_of_facts_that_it_has(sample: Sample) -> None:
    for desc in (sample.descriptor(), sample.descriptor(br.ElementKind.BF16)):
        plan = sample.plan.select(None, desc, device=br.Device.named("H200"))
        text = bucket_of(sample.plan.bucket, plan.selection.trace.facts)
        assert len(text.split()) == len(sample.plan.bucket)


# Selection ------------------------------------------------------------------------------------------------------------


def test_a_measured_winner_goes_before_rank_only_by_the_margin() -> None:
    win = {WIDE.id: 1.0 + MARGIN, PLAIN.id: 1.0}
    selection = choose_measured(win)
    assert selection.variant is PLAIN
    assert selection.trace.decided_by_measurement
    assert [c.variant for c in selection.trace.candidates] == [PLAIN, WIDE]
    text = str(selection.trace)
    assert "measurement: decided" in text
    assert "measured 1e+06 µs" in text
    assert "test table" in text
    near = choose_measured({WIDE.id: 1.0 + 0.9 * MARGIN, PLAIN.id: 1.0})
    assert near.variant is WIDE
    assert not near.trace.decided_by_measurement
    assert "rank's choice stays" in str(near.trace)


def test_measured_times_never_make_a_variant_eligible() -> None:
    times = {HOPPER.id: 0.001, WIDE.id: 2.0, PLAIN.id: 1.0, HOST.id: 0.0001}
    assert choose_measured(times).variant is PLAIN
    assert choose_measured(times, variant="wide").variant is WIDE
    assert choose_measured(times, alignment=4).variant is PLAIN


def test_a_choice_without_a_time_of_its_own_stays() -> None:
    assert choose_measured({PLAIN.id: 1.0}).variant is WIDE
    assert choose_measured({}).variant is WIDE


USER_PATH = measured.user_path


def test_the_users_tables_lie_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    assert USER_PATH("nvidia_h200") == tmp_path / "tuned" / "nvidia_h200.json"


# Tables ---------------------------------------------------------------------------------------------------------------

OPERATION, DIGEST = "normalization-group_norm-f32-none", "0123456789abcdef"


def a_table() -> measured.Table:
    table = measured.Table("NVIDIA H200", about={"date": "2026-01-01"})
    table = table.with_times(OPERATION, DIGEST, "m~2^10", {"a/x": 1.5e-6, "a/y": 2.25e-3})
    return table.with_times(OPERATION, DIGEST, "m~2^11", {"a/x": 3e-6})


def test_tables_round_trip() -> None:
    text = a_table().to_json()
    again = measured.Table.parse(text, "here")
    assert again.to_json() == text
    found = again.find(OPERATION, DIGEST, "m~2^10")
    assert found is not None
    assert found.seconds == pytest.approx({"a/x": 1.5e-6, "a/y": 2.25e-3})
    assert found.origin == "here"
    found = again.find(OPERATION, DIGEST, "m~2^11")
    assert found is not None
    assert set(found.seconds) == {"a/x"}
    assert again.find(OPERATION, DIGEST, "m~2^12") is None
    assert again.find(OPERATION, "another", "m~2^10") is None
    assert again.find("another", DIGEST, "m~2^10") is None


def test_times_of_other_variants_are_dropped() -> None:
    table = a_table().with_times(OPERATION, "new", "m~2^10", {"a/z": 1e-6})
    assert set(table.operations[OPERATION].buckets) == {"m~2^10"}
    assert table.find(OPERATION, DIGEST, "m~2^11") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        a_table().to_json().replace('"schema": 1', '"schema": 2'),
        a_table().to_json().replace("NVIDIA H200", "NVIDIA A100"),
        a_table().to_json()[:-20],
        a_table().to_json().replace("1.5", '"fast"'),
        json.dumps({"schema": 1, "device": "NVIDIA H200", "about": {}, "operations": {"x": []}}),
    ],
    ids=("empty", "cut", "list", "null", "bare", "schema", "device", "end", "time", "operation"),
)
def test_a_damaged_table_is_a_miss_and_is_replaced(text: str) -> None:
    path = measured.user_path("nvidia_h200")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert measured.user_table("nvidia_h200") is None
    measured.update(path, "NVIDIA H200", lambda t: t.with_times(OPERATION, DIGEST, "m~2^9", {"a/x": 1e-6}))
    table = measured.user_table("nvidia_h200")
    assert table is not None
    assert table.find(OPERATION, DIGEST, "m~2^9") is not None


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia_h200"),
        ("H200", "nvidia_h200"),
        ("NVIDIA H200 NVL", "nvidia_h200_nvl"),
        ("NVIDIA A100-SXM4-80GB", "nvidia_a100_sxm4_80gb"),
        ("Quadro RTX 6000/8000", "nvidia_quadro_rtx_6000_8000"),
    ],
)
def test_tables_are_found_by_the_devices_name(name: str, slug: str) -> None:
    assert measured.slug(name) == slug


def test_the_shipped_table_is_sound() -> None:
    folder = Path(measured.__file__).parent
    files = list(folder.glob("*.json"))
    assert files
    operations = {measured.operation_key([variant]) for variant in br.registry().all_variants()}
    for path in files:
        table = measured.read(path, path.stem)
        assert table is not None
        for operation, times in table.operations.items():
            assert operation in operations
            for seconds in times.buckets.values():
                assert all(value > 0 for value in seconds.values())


def _times_for(plan: Any, winner: int) -> Mapping[str, float]:
    """A table's times in which the candidate of this rank order is twice as fast as the others."""
    return {
        candidate.variant.id: 1e-6 if index == winner else 2e-6
        for index, candidate in enumerate(plan.selection.trace.candidates)
    }


DESC = br.GroupNormDescriptor(input_shape=(32, 320, 64, 64), num_groups=32, element="bf16")
NEAR = br.GroupNormDescriptor(input_shape=(34, 320, 64, 64), num_groups=32, element="bf16")
FAR = br.GroupNormDescriptor(input_shape=(320, 320, 64, 64), num_groups=32, element="bf16")
H200 = br.Device.named("H200")


def _select(desc: Any = DESC, device: br.Device = H200) -> Any:
    forget_plans()
    return br.GroupNormPlan.select(None, desc, device=device)


def _write(path: Path, plan: Any, winner: int, digest: str | None = None) -> None:
    operation, current = plan.measured_as
    bucket = bucket_of(type(plan).bucket, plan.selection.trace.facts)
    times = _times_for(plan, winner)
    measured.update(path, "NVIDIA H200", lambda t: t.with_times(operation, digest or current, bucket, times))


def test_tables_decide_where_device_and_bucket_match(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rank = _select()
    assert by_rank.selection.trace.measured is None
    ids = [c.variant.id for c in by_rank.selection.trace.candidates]
    _write(measured.shipped_path("nvidia_h200"), by_rank, 1)
    assert _select().variant.id == ids[1]
    assert _select().selection.trace.decided_by_measurement
    assert _select(NEAR).variant.id == ids[1]
    assert _select(FAR).selection.trace.measured is None
    assert _select(device=br.Device.named("H100")).selection.trace.measured is None
    _write(measured.user_path("nvidia_h200"), by_rank, 2)
    assert _select().variant.id == ids[2]
    assert str(measured.user_path("nvidia_h200")) in str(_select().selection.trace)
    monkeypatch.setenv("BARACUDA_TUNED", "0")
    assert _select().variant.id == ids[0]
    assert _select().selection.trace.measured is None


def test_times_of_changed_variants_do_not_count() -> None:
    by_rank = _select()
    _write(measured.user_path("nvidia_h200"), by_rank, 1, digest="of another day")
    assert _select().variant is by_rank.variant
    assert _select().selection.trace.measured is None


def test_the_digest_sees_sources_tuning_and_the_list() -> None:
    from dataclasses import replace

    table = br.registry()
    assert table.manifest is not None
    variants = [candidate.variant for candidate in _select().selection.trace.candidates[:3]]
    digest = measured.digest_of(variants, table.manifest)
    assert measured.digest_of(variants[::-1], table.manifest) == digest
    assert measured.digest_of(variants[:2], table.manifest) != digest
    changed = replace(variants[0], tuning={**variants[0].tuning, "vector": 99})
    assert measured.digest_of([changed, *variants[1:]], table.manifest) != digest
    sources = {**table.manifest.sources, variants[0].source: "0"}
    assert measured.digest_of(variants, replace(table.manifest, sources=sources)) != digest


# Measuring ------------------------------------------------------------------------------------------------------------


class Fake:
    """Samples with injected times: contender after contender gets the next."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = iter(seconds)
        self.calls: list[tuple[int, int]] = []

    def sample(self, call: measure.Call, sets: int, calls: int) -> measure.Sample:
        for index in range(sets):
            call(index)
        self.calls.append((sets, calls))
        value = next(self.seconds)
        return lambda: value


def test_sets_leave_the_cache() -> None:
    l2 = H200.l2_bytes
    assert measure.sets_for(l2, H200) == 4
    assert measure.sets_for(10 * l2, H200) == 2
    assert measure.sets_for(16, H200) == measure.MAX_SETS
    assert measure.sets_for(l2, H200, limit=3 * l2) == 3
    assert measure.sets_for(10 * l2, H200, limit=3 * l2) == 1


def test_contenders_take_turns_and_medians_count() -> None:
    log: list[str] = []
    durations = {
        "a": iter((9.0, 9.0, 1.0, 5.0, 3.0)),
        "b": iter((9.0, 9.0, 8.0, 2.0, 2.0)),
    }  # two probes each

    class Scripted:
        def sample(self, call: measure.Call, sets: int, calls: int) -> measure.Sample:
            name = call(0)

            def run() -> float:
                log.append(name)
                return next(durations[name])

            return run

    contenders: dict[str, measure.Call] = {"a": lambda _: "a", "b": lambda _: "b"}
    seen = measure.measure(contenders, 2, Scripted(), rounds=3)
    assert log == ["a", "a", "b", "b", *"ababab"]
    assert (seen["a"].median, seen["a"].least, seen["a"].most) == (3.0, 1.0, 5.0)
    assert seen["b"].median == 2.0


def test_short_calls_are_measured_many_at_a_time() -> None:
    fake = Fake(1e-5, 1e-5)
    measure.measure({"a": lambda _: None}, 3, fake, rounds=1, seconds=1e-3)
    assert fake.calls == [(3, 3), (3, 100)]
    fake = Fake(1e-9, 1e-9)
    measure.measure({"a": lambda _: None}, 3, fake, rounds=1)
    assert fake.calls[-1][1] == measure.MAX_CALLS


def test_hopeless_contenders_get_one_sample() -> None:
    fake = Fake(1.0, 3.5, 2.9)
    contenders = dict.fromkeys("abc", lambda _: None)
    seen = measure.measure(contenders, 2, fake, rounds=3, hopeless=3.0)
    assert {name: timing.median for name, timing in seen.items()} == {"a": 1.0, "b": 3.5, "c": 2.9}
    counted = {"b": 0}

    class Counting:
        def sample(self, call: measure.Call, sets: int, calls: int) -> measure.Sample:
            name = call(0)

            def run() -> float:
                counted[name] = counted.get(name, 0) + 1
                return {"a": 1.0, "b": 3.5}[name]

            return run

    measure.measure({"a": lambda _: "a", "b": lambda _: "b"}, 2, Counting(), rounds=3, hopeless=3.0)
    assert counted == {"a": 5, "b": 2}


def test_the_clock_divides_by_calls_and_rotates() -> None:
    ticks = iter((10.0, 16.0))
    visited: list[int] = []
    sample = measure.ClockStopwatch(lambda: next(ticks)).sample(visited.append, 2, 3)
    assert sample() == 2.0
    assert visited == [0, 1, 0]


def test_a_graph_holds_the_calls_and_lies_between_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for CuPy that writes down what is asked of it, in order."""
    log: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, verb: str) -> Any:
            def note(*_: Any, **__: Any) -> Any:
                log.append(f"{self.name}.{verb}")
                return Noted("graph")

            return note

        def __enter__(self) -> None:
            log.append("enter")

        def __exit__(self, *_: Any) -> None:
            log.append("exit")

    events = iter(("start", "stop"))
    cuda = SimpleNamespace(
        Stream=lambda non_blocking: Noted("stream"),
        Event=lambda: Noted(next(events)),
        runtime=Noted("runtime"),
        get_elapsed_time=lambda start, stop: 6.0,  # milliseconds
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    sample = measure.GraphStopwatch().sample(lambda index: log.append(f"call {index}"), 2, 3)
    assert log == [
        *("runtime.deviceSynchronize", "enter", "call 0", "stream.synchronize", "stream.begin_capture"),
        *("call 0", "call 1", "call 0", "stream.end_capture", "graph.upload", "exit"),
    ]
    log.clear()
    assert sample() == pytest.approx(2e-3)
    assert log == ["start.record", "graph.launch", "stop.record", "stop.synchronize"]


# tune -----------------------------------------------------------------------------------------------------------------


def _tune(dry: DryBackend, sample: Sample, seconds: list[float], **options: Any) -> Any:
    device = dry.device
    probe = sample.plan.select(None, sample.descriptor(), device=device)
    arrays = arrays_for(dry, probe)
    return tune(
        sample.plan,
        sample.descriptor(),
        device=device,
        stopwatch=Fake(*seconds),
        make=lambda operand: arrays.get(operand.name, dry.workspace(operand.nbytes)),
        **options,
    )


@samples
def test_tune_lets_the_fastest_choose(sample: Sample, dry: DryBackend) -> None:
    plan = sample.plan.select(None, sample.descriptor(), device=dry.device)
    count = len(plan.selection.trace.candidates)
    order = [candidate.variant for candidate in plan.selection.trace.candidates]
    times = [float(count - index) for index in range(count)]
    found = _tune(dry, sample, times)
    assert list(found.timings) == order
    assert [timing.median for timing in found.timings.values()] == times
    assert found.fastest is order[-1]
    assert found.stored
    assert found.plan.variant is order[-1]
    again = sample.plan.select(None, sample.descriptor(), device=dry.device)
    assert again.variant is order[-1]
    assert again.selection.trace.decided_by_measurement is (count > 1)
    assert str(found).count("chosen") == 1
    # Measured again: the other way round, and in the same order, though the plan now starts from the measured choice.
    back = _tune(dry, sample, [float(1 + index) for index in range(count)])
    assert list(back.timings) == order
    assert back.plan.variant is order[0]


def test_tune_of_a_plan_and_without_keeping(dry: DryBackend) -> None:
    sample = SAMPLES[0]
    plan = sample.plan.select(None, sample.descriptor(), device=dry.device)
    arrays = arrays_for(dry, plan)
    count = len(plan.selection.trace.candidates)
    found = tune(
        plan,
        stopwatch=Fake(*(float(count - i) for i in range(count))),
        make=lambda o: arrays[o.name],
        store=False,
    )
    assert not found.stored
    assert found.plan.variant is plan.variant
    assert found.fastest is not plan.variant
    assert measured.user_table(measured.slug(dry.device.name)) is None
    with pytest.raises(InvalidProblem, match="plan's own"):
        tune(plan, sample.descriptor())


def test_tune_of_one_pinned_variant_keeps_the_others_times(dry: DryBackend) -> None:
    sample = SAMPLES[0]
    plan = sample.plan.select(None, sample.descriptor(), device=dry.device)
    order = [candidate.variant for candidate in plan.selection.trace.candidates]
    _tune(dry, sample, [2.0, 1.0, *[3.0] * (len(order) - 2)])
    only = _tune(dry, sample, [9.0], pref=br.PlanPreference(variant=order[1].id))
    assert list(only.timings) == [order[1]]
    assert sample.plan.select(None, sample.descriptor(), device=dry.device).variant is order[0]


def test_tune_refuses_what_cannot_be_timed(dry: DryBackend) -> None:
    desc = br.LpPool1dDescriptor(batch=0, channels=3, l_in=16, window=4, p=2.0, element="f32")
    with pytest.raises(InvalidProblem, match="empty"):
        tune(br.LpPool1dPlan, desc, device=dry.device, stopwatch=Fake(1.0))
    with pytest.raises(InvalidProblem, match="desc is a NoneType"):
        tune(br.LpPool1dPlan, device=dry.device)


@samples
def test_tune_on_the_host_times_the_reference(sample: Sample) -> None:
    """The real clock, arrays of its own, nothing kept: there is nothing to choose."""
    desc = sample.descriptor()
    found = tune(sample.plan, desc, device=br.Device.host(), rounds=2, seconds=1e-4)
    ((variant, timing),) = found.timings.items()
    assert variant.sku.backend is br.BackendKind.Reference
    assert 0 < timing.least <= timing.median <= timing.most
    assert not found.stored


@samples
def test_pinned_plans_are_the_candidates(sample: Sample) -> None:
    plan = sample.plan.select(None, sample.descriptor(), device=H200)
    assert [p.variant for p in pinned(plan)] == [c.variant for c in plan.selection.trace.candidates]


# On the GPU -----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.alone
def test_tune_takes_device_times(cuda: Any) -> None:
    """No variant beats the memory, none is timed by the host, and the choice is the fastest or within the margin."""
    desc = br.GroupNormDescriptor(input_shape=(16, 512, 28, 28), num_groups=32, element="bf16")
    found = tune(br.GroupNormPlan, desc, rounds=3)
    assert len(found.timings) > 1
    least = 2 * 2 * 16 * 512 * 28 * 28 / 8e12  # bytes read and written, at more than any GPU's bandwidth
    assert all(least < timing.median < 1e-2 for timing in found.timings.values())
    chosen, best = found.timings[found.plan.variant], found.timings[found.fastest]
    assert chosen.median <= best.median * (1 + MARGIN) * 1.0001
    assert found.plan.selection.trace.measured is not None
    again = tune(br.GroupNormPlan, desc, rounds=3)
    assert again.timings[found.fastest].median == pytest.approx(best.median, rel=0.2)


@pytest.mark.gpu
@samples
def test_every_plan_can_be_tuned(sample: Sample, cuda: Any) -> None:
    found = tune(sample.plan, sample.descriptor(br.ElementKind.BF16), rounds=1, seconds=1e-4)
    assert all(0 < timing.median < 1e-2 for timing in found.timings.values())
