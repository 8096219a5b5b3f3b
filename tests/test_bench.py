"""`bench`: what is measured, and how it is told.  The clock is the CPU's here; the GPU's is tested on one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br
from baracuda_registry import bench, cli
from baracuda_registry.inspect.ops import OPS, entry_of

from . import backends
from .samples import values_for

SMALL = "group_norm shape=2,32,64 groups=8 dtype=f32"


class CpuClock:
    """Generated kernels executed on the CPU, timed by the process's clock."""

    def __init__(self, rounds: int = 3) -> None:
        self.device = br.Device.named("H200").with_execution(backends.CPU_EXECUTION)
        self.rounds = rounds
        self.sets = 0

    def array(self, operand: Any) -> Any:
        return values_for(operand)

    def workspace(self, nbytes: int) -> Any:
        return np.empty(nbytes, np.uint8) if nbytes else None

    def stream(self) -> Any:
        return None

    def copy_bandwidth(self) -> float:
        return 1e9

    def times(self, calls: Mapping[str, Callable[[int], None]], sets: int) -> dict[str, list[float]]:
        self.sets = sets
        seen: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(self.rounds):
            for name, call in calls.items():
                started = time.perf_counter()
                call(turn % sets)
                seen[name].append(time.perf_counter() - started)
        return seen


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CpuClock:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    made = CpuClock()
    monkeypatch.setattr(bench, "GpuClock", lambda rounds: made)
    return made


def test_every_eligible_variant_is_timed_once(clock: CpuClock) -> None:
    entry = OPS["dequantize_per_group"]
    desc = entry.parse(["outer=2", "axis=256", "group=16", "in=f32", "out=s8"])
    found = bench.measure(clock, entry, desc)
    eligible = entry.plan.select(None, desc, device=clock.device).selection.trace.candidates
    assert {timing.variant for timing in found.timings} == {candidate.variant.id for candidate in eligible}
    assert [timing.variant for timing in found.timings if timing.chosen] == [eligible[0].variant.id]
    assert [t.seconds for t in found.timings] == sorted(t.seconds for t in found.timings)
    for timing in found.timings:
        assert timing.share == pytest.approx(found.total_bytes / timing.seconds / 1e9)
        assert timing.spread >= 0
    assert clock.sets == found.sets == bench._MOST_SETS, (
        "a small problem rotates over as many sets as are allowed"
    )


def test_large_problems_rotate_over_two_sets_and_leave_memory() -> None:
    class Empty(CpuClock):
        def array(self, operand: Any) -> Any:
            return operand.name

    clock = Empty()
    desc = entry_of("lp_pool1d").parse(["n=64", "c=256", "l=16384", "k=2", "p=2", "dtype=f32"])
    plan = br.LpPool1dPlan.select(None, desc, device=clock.device)
    assert len(bench._bundles(clock, plan, clock.device.l2_bytes * 10)) == 2
    assert len(bench._bundles(clock, plan, clock.device.memory_bytes)) == 1


def test_command_tells_and_resumes(
    clock: CpuClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["bench", *SMALL.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == "H200"
    assert told["results"][0]["op"] == "group_norm"
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("it is in the journal"))
    assert cli.main(["bench", *SMALL.split(), "--resume"]) == 0
    out = capsys.readouterr().out
    assert "chosen" in out
    assert "of copy" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.gpu
def test_gpu_clock_measures_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "group_norm", "per_group", "lp_pool1d", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for result in told["results"]:
        chosen = next(timing for timing in result["timings"] if timing["chosen"])
        assert 0.3 < chosen["share"] < 1.3
        assert chosen["spread"] < 0.5
