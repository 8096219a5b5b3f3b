"""`bench`: what is measured, and how it is told.  A clock takes the times here; device time is tested on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import baracuda_registry as br
from baracuda_registry import bench, cli
from baracuda_registry.bench import Bench
from baracuda_registry.inspect.ops import OPS
from baracuda_registry.measure import ClockStopwatch

from . import backends
from .samples import values_for

SMALL = "dequantize_per_group outer=2 axis=256 group=16 in=f32 out=s8"
CPU = br.Device.named("H200").with_execution(backends.CPU_EXECUTION)


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    made = Bench(3, device=CPU, stopwatch=ClockStopwatch(), copy=1e9)
    genuine = made.measure
    monkeypatch.setattr(made, "measure", lambda entry, desc: genuine(entry, desc, values_for))
    monkeypatch.setattr(bench, "Bench", lambda rounds: made)
    return made


def test_every_eligible_variant_is_timed_once(on_the_cpu: Bench) -> None:
    name, *fields = SMALL.split()
    entry = OPS[name]
    desc = entry.parse(fields)
    found = on_the_cpu.measure(entry, desc)
    eligible = entry.plan.select(None, desc, device=CPU).selection.trace.candidates
    assert {timing.variant for timing in found.timings} == {candidate.variant.id for candidate in eligible}
    assert [timing.variant for timing in found.timings if timing.chosen] == [eligible[0].variant.id]
    assert [t.seconds for t in found.timings] == sorted(t.seconds for t in found.timings)
    for timing in found.timings:
        assert timing.share == pytest.approx(found.total_bytes / timing.seconds / 1e9)
        assert timing.spread >= 0
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_command_tells_and_resumes(
    on_the_cpu: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["bench", *SMALL.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device"] == "H200"
    assert told["results"][0]["op"] == "dequantize_per_group"
    monkeypatch.setattr(on_the_cpu, "measure", lambda *_: pytest.fail("it is in the journal"))
    assert cli.main(["bench", *SMALL.split(), "--resume"]) == 0
    out = capsys.readouterr().out
    assert "chosen" in out
    assert "of copy" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.gpu
def test_bench_of_the_examples_on_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "group_norm", "per_group", "lp_pool1d", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    for result in told["results"]:
        chosen = next(timing for timing in result["timings"] if timing["chosen"])
        assert 0.3 < chosen["share"] < 1.3
        assert chosen["spread"] < 2  # the tests beside it use the same GPU
