"""`verify` passes what is right and finds what is wrong: on the host, and on generated kernels executed on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br
from baracuda_registry import cli
from baracuda_registry.elements import ElementKind
from baracuda_registry.inspect.ops import OPS
from baracuda_registry.verify import data, judge, run, verify
from baracuda_registry.verify.judge import Expected, errors, ulp
from baracuda_registry.verify.problems import plans_for

from . import accuracy, backends

TABLE = br.registry()
CPU = br.Device.named("H200").with_execution(backends.CPU_EXECUTION)
HOSTS = TABLE.find(arch="host")
ZERO = np.zeros(())


def generated() -> list[br.Variant]:
    """One design of every operation and one type, by turns, as small as they come."""
    chosen = []
    for index, (name, element) in enumerate(zip(OPS, ("bf16", "f32", "f64", "f16", "bf16") * 2)):
        found = TABLE.find(op=name, element=element, backend="bespoke", guarantee="deterministic")
        chosen.append(found[index % len(found)])
    return [*chosen, TABLE.find(op="lp_pool1d_backward", element="f32", guarantee="not-deterministic")[0]]


@pytest.mark.parametrize("variant", generated(), ids=lambda v: v.id)
def test_generated_kernels_are_right(variant: br.Variant) -> None:
    (outcome,) = verify(TABLE, [variant], CPU)
    assert (outcome.status, outcome.detail) == ("ok", "")
    assert outcome.runs >= 3
    assert 0 <= outcome.worst_share <= 1


def test_host_backend_is_right() -> None:
    outcomes = list(verify(TABLE, HOSTS[::3], br.Device.host()))
    assert [o.variant for o in outcomes if o.status != "ok"] == []
    assert max(o.worst_share for o in outcomes) <= 1


def test_every_variant_has_problems_that_exercise_it() -> None:
    for variant in TABLE.find(backend="bespoke"):
        assert plans_for(OPS[variant.sku.op.name.lower()], variant, CPU, 1), variant.id


# What is wrong is found ---------------------------------------------------------------------------------------------


@pytest.fixture
def quantizer() -> br.Variant:
    return TABLE.find(op="dequantize_per_group_backward", element="f32", aux_element="s8", backend="bespoke")[
        -1
    ]


def _verify_with(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None], variant: br.Variant
) -> Any:
    """Verify while every run's outputs are changed."""
    genuine = run._run

    def changed(*arguments: Any, **options: Any) -> Any:
        got = genuine(*arguments, **options)
        change(got)
        return got

    monkeypatch.setattr(run, "_run", changed)
    (outcome,) = verify(TABLE, [variant], CPU)
    return outcome


def test_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch, quantizer: br.Variant) -> None:
    def change(got: dict[str, Any]) -> None:
        last = got["d_input"].reshape(-1)[-1:]
        last[...] = np.nextafter(np.nextafter(last, np.float32(9)) * np.float32(1 + 2**-19), np.float32(9))

    outcome = _verify_with(monkeypatch, change, quantizer)
    assert outcome.status == "wrong"
    assert "d_input is off by" in outcome.detail
    assert outcome.worst_share > 1


def test_element_that_is_not_written_is_found(monkeypatch: pytest.MonkeyPatch, quantizer: br.Variant) -> None:
    def change(got: dict[str, Any]) -> None:
        got["d_input"].reshape(-1).view(np.uint32)[0] = 0xFFFFFFFF  # what the array held before

    assert _verify_with(monkeypatch, change, quantizer).status == "wrong"


def test_bits_that_change_from_run_to_run_are_found(
    monkeypatch: pytest.MonkeyPatch, quantizer: br.Variant
) -> None:
    turns = iter(range(10**6))

    def change(got: dict[str, Any]) -> None:
        first = got["d_input"].reshape(-1)[:1]
        first[...] = np.nextafter(first, np.float32(9)) if next(turns) % 2 else first

    outcome = _verify_with(monkeypatch, change, quantizer)
    assert outcome.status == "wrong"
    assert "two runs differ" in outcome.detail


@pytest.mark.parametrize("where", ["after", "before", "input"])
def test_write_outside_the_outputs_is_found(
    monkeypatch: pytest.MonkeyPatch, quantizer: br.Variant, where: str
) -> None:
    genuine = run.Arena.collect

    def touched(self: Any) -> Any:
        output, given = self._slots["d_input"], self._slots["d_output"]
        at = {"after": output.start + output.nbytes, "before": output.start - 1, "input": given.start}[where]
        self._memory[at] ^= 0xFF
        return genuine(self)

    monkeypatch.setattr(run.Arena, "collect", touched)
    (outcome,) = verify(TABLE, [quantizer], CPU)
    assert outcome.status == "wrong"
    assert "1 bytes outside the outputs overwritten" in outcome.detail


def test_variant_that_does_not_run_is_an_error(
    monkeypatch: pytest.MonkeyPatch, quantizer: br.Variant
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise br.LaunchError("the driver says no")

    monkeypatch.setattr(run, "_run", refuse)
    (outcome,) = verify(TABLE, [quantizer], CPU)
    assert (outcome.status, outcome.detail) == ("error", "the driver says no")


def test_what_cannot_run_here_is_unused_or_refused(quantizer: br.Variant) -> None:
    (outcome,) = verify(TABLE, [quantizer], br.Device.host())
    assert (outcome.status, outcome.runs) == ("unused", 0)
    with pytest.raises(br.InvalidProblem, match="not in this machine"):
        next(verify(TABLE, [quantizer], br.Device.named("H200")))


# The judge ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", [ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64])
def test_ulp_is_the_tests_own(element: ElementKind) -> None:
    """The suite's measure, written apart from this one, gives the same spacings."""
    rng = np.random.default_rng(0)
    limits = data.finfo(element)
    values = np.concatenate(
        [
            rng.normal(size=500) * 2.0 ** rng.integers(int(limits.minexp) - 8, int(limits.maxexp), 500),
            [0.0, float(limits.max), float(limits.smallest_subnormal), float(limits.tiny), 1.0, 2.0, -1.5],
        ]
    )
    np.testing.assert_array_equal(ulp(element, values), accuracy.ulp(element, values).astype(np.float64))


def test_special_values_must_agree() -> None:
    def off(got: float, want: float, element: ElementKind = ElementKind.F16, **options: Any) -> float:
        goal = Expected(np.array([want]), element, 1.0, ZERO, ZERO, **options)
        return errors(np.array([got], element.dtype), goal)[1]

    inf, nan, top = float("inf"), float("nan"), 65504.0
    for same in (inf, -inf, nan, 0.0, 1.0):
        assert off(same, same) == 0
    for got, want in ((nan, 1.0), (1.0, nan), (inf, -inf), (inf, 1.0), (top, inf), (nan, inf)):
        assert off(got, want) > 1, (got, want)
    assert off(inf, 65520.0) <= 1
    assert off(top, 65519.0) <= 1
    assert off(inf, 65000.0) > 1
    assert off(nan, inf, any_nonfinite=True) == 0
    assert off(1.0, inf, any_nonfinite=True) > 1


def test_judge_agrees_with_the_independent_oracles() -> None:
    """The host backend in float64 and the suite's oracles, on the data that `verify` uses."""
    from .oracles import norm as norm_oracle
    from .oracles import pool as pool_oracle

    for name in ("lp_pool1d", "group_norm"):
        variant = TABLE.find(op=name, element="f32", aux_element="none", backend="bespoke")[0]
        for plan in plans_for(OPS[name], variant, CPU, 3):
            category = br.OpCategory.Pooling if name == "lp_pool1d" else br.OpCategory.Normalization
            for kind in data.KINDS[category]:
                inputs = run._inputs(TABLE, plan, category, kind, 3)
                want = judge.reference(TABLE, plan, inputs, widen=True)["y"]
                desc, x = plan.descriptor, inputs["x"]
                if name == "lp_pool1d":
                    other = pool_oracle.lp_pool1d(
                        x, window=desc.window, stride=desc.step, p=desc.p, ceil_mode=desc.ceil_mode
                    )
                else:
                    other, _, _ = norm_oracle.group_norm(
                        x,
                        num_groups=desc.num_groups,
                        eps=desc.eps,
                        gamma=inputs["gamma"],
                        beta=inputs["beta"],
                    )
                scale = np.nanmax(np.abs(np.where(np.isfinite(other), other, 0)), initial=1e-300)
                np.testing.assert_allclose(want, other, rtol=1e-10, atol=1e-12 * scale)


# The command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_command_and_its_resuming(
    own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after three variants, it goes on with the fourth; a damaged line costs that variant only."""
    line = ["verify", "--device", "host", "--op", "per_group", "--json"]
    genuine, done = run._verify_one, []

    def interrupted(table: Any, variant: Any, *rest: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(variant.id)
        return genuine(table, variant, *rest)

    monkeypatch.setattr(run, "_verify_one", interrupted)
    assert cli.main(line) == 2
    assert "interrupted; what was done is kept" in capsys.readouterr().err
    journal = own_cache / "verify" / "host.jsonl"
    rows = journal.read_text().splitlines()
    assert len(rows) == 3
    journal.write_text("\n".join([rows[0], rows[1][:20], rows[2]]))

    again: list[str] = []

    def counted(table: Any, variant: Any, *rest: Any) -> Any:
        again.append(variant.id)
        return genuine(table, variant, *rest)

    monkeypatch.setattr(run, "_verify_one", counted)
    assert cli.main([*line, "--resume"]) == 0
    shown = capsys.readouterr()
    assert "going on after 2 results" in shown.err
    outcomes = json.loads(shown.out)["outcomes"]
    assert {o["status"] for o in outcomes} == {"ok"}
    assert [o["variant"] for o in outcomes] == [v.id for v in TABLE.find(op="per_group", arch="host")]
    assert again == [id for id in (o["variant"] for o in outcomes) if id not in (done[0], done[2])]
    assert cli.main([*line, "--resume"]) == 0
    assert len(again) == len(outcomes) - 2


def test_command_reports_what_is_wrong(
    own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run._case.cache_clear()
    monkeypatch.setattr(
        judge, "_options", lambda plan, element: {**plan.host_options(plan.descriptor), "q_max": 5}
    )
    assert (
        cli.main(["verify", "--device", "host", "--op", "per_group", "--element", "f32", "--aux", "s8"]) == 1
    )
    run._case.cache_clear()
    out = capsys.readouterr().out
    assert "wrong: quantization-per_group-f32-s8" in out
    assert "output is off by" in out


def test_journal_that_cannot_be_written_costs_only_the_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "file"))
    assert cli.main(["verify", "--device", "host", "--op", "per_group", "--element", "f32"]) == 0
    assert "this run cannot be resumed" in capsys.readouterr().err


@pytest.mark.gpu
def test_every_kind_of_kernel_on_the_gpu() -> None:
    for outcome in verify(TABLE, [v for v in TABLE.all_variants() if v.source is not None][::9]):
        assert outcome.status == "ok", outcome
