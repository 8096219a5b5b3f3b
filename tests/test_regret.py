"""The regret report: its grid, its figures from injected times, and the table that it comes to."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import baracuda_registry as br
from baracuda_registry import measure, measured
from baracuda_registry.plans.base import forget_plans
from benchmarks import regret

from .dry import DryBackend

H200 = br.Device.named("H200")


def test_the_grid_has_forty_different_valid_shapes_of_every_operation() -> None:
    found = regret.cases(regret.OPS, ("bf16", "f32"))
    counts = Counter(case.op for case in found)
    assert len(counts) == 10
    assert min(counts.values()) >= 40
    assert len({case.label for case in found}) == len(found)
    for case in found:
        plan = case.plan(H200)
        assert all(o.nbytes > 0 for o in plan.argument_table if o.present), case.label
    assert {case.dtype for case in found} == {"bf16", "f32"}
    assert len(regret.cases(("quantize",), ("bf16", "f32", "f16"), every=True)) == 3 * len(regret.QUANT)


class Scripted:
    """Contender after contender takes the next time."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = iter(seconds)

    def sample(self, call: measure.Call, sets: int, calls: int) -> measure.Sample:
        call(0)
        value = next(self.seconds)
        return lambda: value


def entry(dry: DryBackend, case: regret.Case, *seconds: float) -> dict[str, Any]:
    return regret.row(case, dry.device, Scripted(*seconds), lambda o: dry.empty(o.shape, o.element.dtype))


def test_rows_figures_and_the_table(dry: DryBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "user_path", lambda name: tmp_path / "none" / f"{name}.json")
    monkeypatch.setattr(measured, "shipped_path", lambda name: tmp_path / f"{name}.json")
    measured.forget()
    case = regret.Case("group_norm", "f32", (2, 32, 8, 8), {"G": 8})
    near = regret.Case("group_norm", "f32", (2, 32, 8, 8), {"G": 8})
    other = regret.Case("quantize", "bf16", (16, 128), {"g": 32})
    order = [c.variant.id for c in case.plan(dry.device).selection.trace.candidates]
    assert len(order) >= 3
    slow = [9.0] * (len(order) - 2)
    first = entry(dry, case, 2.0, 1.0, *slow)
    second = entry(dry, near, 8.0, 1.0, *slow)
    count = len(other.plan(dry.device).selection.trace.candidates)
    third = entry(dry, other, *[float(1 + i) for i in range(count)])
    assert list(first["times_us"]) == order
    own = regret.table("NVIDIA H200", [first, second, third])
    assert regret.regrets(first, own) == (2.0, 2.0, 1.0)
    assert regret.regrets(third, own) == (1.0, 1.0, 1.0)
    found = regret.summary([first, second, third])
    assert found["group_norm"]["median"] == 5.0
    assert found["group_norm"]["worst"] == 8.0
    assert found["group_norm"]["worst_with_own_table"] == 1.0
    assert found["group_norm"]["worst_best"] == order[1].rsplit("/", 1)[1]
    assert not found["group_norm"]["on_target"]
    assert found["quantize"]["on_target"]

    report = {
        "environment": {"gpu": "NVIDIA H200", "date": "today"},
        "rows": [first, second, third],
        "failures": [],
        "left_out": 0,
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    path = tmp_path / "nvidia_h200.json"
    arguments = [
        "--from",
        str(tmp_path / "report.json"),
        "--table",
        str(path),
        "-o",
        str(tmp_path / "again.json"),
    ]
    assert regret.main(arguments) == 1
    assert json.loads((tmp_path / "again.json").read_text())["summary"].keys() == found.keys()
    made = measured.read(path, "nvidia_h200")
    assert made is not None
    times = made.operations[first["operation"]].buckets[first["bucket"]]
    assert times[order[0]] == pytest.approx(4.0)  # geometric mean of 2 and 8
    assert times[order[1]] == pytest.approx(1.0)
    # The table is the shipped one now: the choice is the measured one, and the report says what ranks alone would cost.
    measured.forget()
    forget_plans()
    assert case.plan(dry.device).variant.id == order[1]
    again = entry(dry, case, 2.0, 1.0, *slow)
    assert regret.regrets(again, measured.Table("NVIDIA H200")) == (1.0, 2.0, 2.0)
    measured.forget()


def test_variants_that_not_every_shape_of_a_bucket_has_are_left_out() -> None:
    rows = [
        {"operation": "o", "digest": "d", "bucket": "b", "times_us": times}
        for times in ({"x": 1.0, "y": 2.0}, {"y": 2.0, "z": 0.5})
    ]
    made = regret.table("NVIDIA H200", rows)
    assert set(made.operations["o"].buckets["b"]) == {"y"}


def test_without_a_gpu_measuring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(br.Device, "current", staticmethod(br.Device.host))
    assert regret.main([]) == 2


def test_todays_choice_is_judged_by_old_times() -> None:
    device = br.Device.named("H200")
    case = regret.cases(["group_norm"], ["f32"])[0]
    order = [candidate.variant.id for candidate in case.plan(device).selection.trace.candidates]
    old = {
        "op": case.op, "dtype": case.dtype, "shape": list(case.shape), "parameters": case.parameters,
        "chosen": "gone", "by_rank": "gone", "times_us": {order[1]: 2.0, order[2]: 1.0, "gone": 0.5},
    }  # fmt: skip
    again = regret.judged_again(old, device)
    assert again["chosen"] == order[1]
    assert again["by_rank"] in order[1:3]
    unknown = {**old, "times_us": {"gone": 0.5}}
    assert regret.judged_again(unknown, device) is unknown
