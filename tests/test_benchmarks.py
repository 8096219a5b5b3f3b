"""The benchmarks' side that needs no GPU: shapes, floors, results files, targets and the documents made of them."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import baracuda_registry as br
from benchmarks import __main__ as command
from benchmarks import report as documents
from benchmarks import results, shapes, tables, targets
from benchmarks.case import FAMILIES, ITEM_BYTES, OPS, Case

ROOT = Path(__file__).parent.parent
FULL = shapes.cases("full", tuple(FAMILIES), tuple(ITEM_BYTES))


def _run(name: str, date: str, digest: str = "d1") -> dict[str, Any]:
    return {
        "id": name, "date": date, "gpu": "GPU", "versions": {"torch": "2", "triton": None, "liger_kernel": None, "cupy": "14", "nvrtc": "13.0"},
        "commit": None, "source_digest": digest, "gpu_state": {}, "copy_bandwidth": 4e12,
    }  # fmt: skip


def _times(median: float) -> dict[str, Any]:
    return results.summary([median * factor * 1e-6 for factor in (0.9, 1.0, 1.0, 1.0, 1.2)])


def _row(case: Case, run: str, ours: float, **peers: Any) -> dict[str, Any]:
    """A results row of a case at the copy bandwidth of `_run`; peers by name, as microseconds or a whole entry."""
    entries = {
        name.replace("_", "."): peer if isinstance(peer, dict) else {"text": "", "error": 0.0, "correct": True, "times": _times(peer)}
        for name, peer in peers.items()
    }  # fmt: skip
    return {
        "case": case.key, "run": run, "op": case.op, "dtype": case.dtype, "shape": list(case.shape), "parameters": case.parameters,
        "origin": case.origin, "suite": case.suite, "design": "design_v8", "floor_bytes": case.floor_bytes, "tiny": case.tiny,
        "share": case.floor_bytes / 4e12 * 1e6 / ours, "copy_share": 0.99, "correct": True, "times": _times(ours), "copy": _times(ours),
        "peers": entries,
    }  # fmt: skip


def _report(*rows: dict[str, Any], run: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**results.new(), "runs": [run or _run("a", "2026-01-01")], "cases": list(rows), **more}


NORM = Case("group_norm", "bf16", (32, 320, 64, 64), {"G": 32})
POOL = Case("lp_pool1d_backward", "f32", (64, 64, 16384), {"k": 64, "s": 1, "p": 2})
TINY = Case("dequantize", "f32", (64, 256), {"g": 16})


# Shapes -------------------------------------------------------------------------------------------------------------


def test_every_operation_has_core_and_at_least_ten_further_cases_in_each_dtype() -> None:
    for op, dtype in itertools.product(OPS, ITEM_BYTES):
        cases = [case for case in FULL if (case.op, case.dtype) == (op, dtype)]
        assert sum(case.suite == "full" for case in cases) >= 10
        assert any(case.tiny for case in cases if case.suite == "core")
        assert any(not case.tiny for case in cases if case.suite == "core")


def test_cases_are_told_apart_and_say_where_they_are_from() -> None:
    assert len({case.key for case in FULL}) == len(FULL)
    assert all(case.origin for case in FULL)


def test_core_is_the_published_comparison() -> None:
    core = {case.key for case in shapes.cases("core", ("norm", "pool", "quant"), ("bf16",))}
    for op in ("group_norm", "group_norm_backward"):
        for label in (
            "32×320×64×64 G 32", "64×256×56×56 G 32", "2×64×64×128×128 G 8", "512×64×1024 G 8", "8×640×32×32 G 32",
            "2×32×8×8 G 8", "70000×3×2 G 1",
        ):  # fmt: skip
            assert f"{op} bf16 {label}" in core
    assert "instance_norm bf16 512×512×7×7" in core
    for op in ("lp_pool1d", "lp_pool1d_backward"):
        for label in ("k 2 s 2 p 2", "k 4 s 4 p 3", "k 5 s 2 p 2"):
            assert f"{op} bf16 64×256×16384 {label}" in core
    assert {f"{op} bf16 16384×8192 g 128" for op in FAMILIES["quant"]} <= core


def test_cases_are_valid_problems() -> None:
    for case in FULL:
        element: dict[str, Any] = {"element": case.dtype}
        if case.op == "group_norm":
            desc: Any = br.GroupNormDescriptor(input_shape=case.shape, num_groups=case.groups, **element)
            plan: Any = br.GroupNormPlan
        elif case.op == "instance_norm":
            desc, plan = br.InstanceNormDescriptor(input_shape=case.shape, **element), br.InstanceNormPlan
        elif case.op == "lp_pool1d":
            batch, channels, length = case.shape
            q = case.parameters
            desc = br.LpPool1dDescriptor(
                batch=batch, channels=channels, l_in=length, window=q["k"], stride=q["s"], p=float(q["p"]), **element
            )  # fmt: skip
            plan = br.LpPool1dPlan
            assert desc.output_length == case.output_length
        elif case.op == "dequantize":
            outer, axis = case.shape
            desc = br.DequantizePerGroupDescriptor(
                outer_size=outer, axis_size=axis, group_size=case.parameters["g"], input_element=case.dtype, output_element="s8"
            )  # fmt: skip
            plan = br.DequantizePerGroupPlan
        else:
            continue
        plan.validate(desc)


@pytest.mark.parametrize(
    ("case", "nbytes"),
    [
        (Case("group_norm", "bf16", (2, 4, 5), {"G": 2}), 2 * 2 * 40),
        (Case("instance_norm_backward", "f64", (2, 4, 5)), 3 * 8 * 40),
        (Case("lp_pool1d", "f32", (2, 3, 10), {"k": 4, "s": 3, "p": 2}), 4 * (60 + 18)),
        (Case("lp_pool1d_backward", "f16", (2, 3, 10), {"k": 4, "s": 3, "p": 2}), 2 * (120 + 36)),
        (Case("quantize", "bf16", (4, 32), {"g": 16}), 128 * 3 + 8 * 6),
        (Case("quantize_backward", "f32", (4, 32), {"g": 16}), 128 * 12 + 8 * 8),
        (Case("dequantize", "f64", (4, 32), {"g": 16}), 128 * 9 + 8 * 12),
        (Case("dequantize_backward", "f32", (4, 32), {"g": 16}), 128 * 8 + 8 * 4),
    ],
)
def test_floor_counts_each_input_and_output_once(case: Case, nbytes: int) -> None:
    assert case.floor_bytes == nbytes


# Results files ------------------------------------------------------------------------------------------------------


def test_summary_keeps_rounds_and_their_spread() -> None:
    seen = results.summary([1e-6, 2e-6, 3e-6, 4e-6, 10e-6])
    assert (seen["median_us"], seen["min_us"], seen["max_us"]) == pytest.approx((3, 1, 10))
    assert seen["quartiles_us"] == pytest.approx([2, 4])
    assert seen["rounds_us"] == pytest.approx([1, 2, 3, 4, 10])


def test_saved_is_loaded(tmp_path: Path) -> None:
    report = _report(_row(NORM, "a", 50.0, torch=200.0), failures=[{"case": "x", "run": "a", "error": "e"}])
    results.save(tmp_path / "deep" / "r.json", report)
    assert results.load(tmp_path / "deep" / "r.json") == report
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["r.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}', '{"format": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(results.ResultsError, match=r"r\.json"):
        results.load(tmp_path / "r.json")


@pytest.mark.parametrize("swap", [False, True])
def test_merge_keeps_the_latest_row_and_the_runs_that_are_used(swap: bool) -> None:
    plan = {"kind": "plan", "name": "P", "arrays": "cupy", "run": "a"}
    old = _report(
        _row(NORM, "a", 50.0), _row(TINY, "a", 2.0), host=[plan], failures=[{"case": POOL.key, "run": "a", "error": "e"}]
    )  # fmt: skip
    new = _report(
        _row(NORM, "b", 40.0), _row(TINY, "b", 1.0), _row(POOL, "b", 9.0), run=_run("b", "2026-02-01"), host=[{**plan, "run": "b"}]
    )  # fmt: skip
    merged = results.merge([new, old] if swap else [old, new])
    assert {row["case"]: row["run"] for row in merged["cases"]} == {
        case.key: "b" for case in (NORM, TINY, POOL)
    }
    assert [row["run"] for row in merged["host"]] == ["b"]
    assert [run["id"] for run in merged["runs"]] == ["b"]
    assert merged["failures"] == []


def test_merge_of_parts_holds_both_runs_and_a_failure_after_success() -> None:
    parts = [
        _report(_row(NORM, "a", 50.0)),
        _report(
            _row(TINY, "b", 1.0),
            run=_run("b", "2026-02-01"),
            failures=[{"case": NORM.key, "run": "b", "error": "e"}],
        ),
    ]
    merged = results.merge(parts)
    assert [run["id"] for run in merged["runs"]] == ["a", "b"]
    assert [row["case"] for row in merged["failures"]] == [NORM.key]
    assert results.merge([merged]) == merged


def test_done_means_same_sources_and_all_peers() -> None:
    report = _report(_row(NORM, "a", 50.0, torch=200.0, liger={"absent": "not installed"}))
    assert results.is_done(report, NORM.key, "d1", ["torch", "liger"])
    assert not results.is_done(report, NORM.key, "d2", ["torch"])
    assert not results.is_done(report, NORM.key, "d1", ["torch", "torch.compile"])
    assert not results.is_done(report, TINY.key, "d1", [])


def test_merge_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, row in (("1", _row(NORM, "a", 50.0)), ("2", _row(TINY, "a", 1.0))):
        results.save(tmp_path / f"{name}.json", _report(row))
    files = [str(tmp_path / f"{name}.json") for name in "12"]
    assert results.main(["merge", "-o", str(tmp_path / "all.json"), *files]) == 0
    assert len(results.load(tmp_path / "all.json")["cases"]) == 2
    (tmp_path / "2.json").write_text("no")
    assert results.main(["merge", "-o", str(tmp_path / "all.json"), *files]) == 2
    assert "2.json" in capsys.readouterr().err


# The command --------------------------------------------------------------------------------------------------------


def test_options_choose_cases() -> None:
    options = command.parser().parse_args(["--match", r"^lp_pool1d f64 .* p 2\.5$", "--peers", "eager,liger"])
    assert [case.key for case in command.chosen(options)] == ["lp_pool1d f64 64×256×16384 k 3 s 2 p 2.5"]
    assert options.peers == ("torch", "liger")
    assert command.parser().parse_args(["--peers", "none"]).peers == ()
    assert set(command.parser().parse_args([]).peers) == set(results.PEERS.values())


def test_unknown_peer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parser().parse_args(["--peers", "eager,apex"])
    assert "'apex' is none of eager, compile, liger" in capsys.readouterr().err


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(br.Device, "current", staticmethod(br.Device.host))
    monkeypatch.setattr("sys.argv", ["benchmarks"])
    assert command.main() == 2
    assert "NVIDIA GPU" in capsys.readouterr().err


def test_a_new_row_takes_the_place_of_the_old_one_and_of_a_failure() -> None:
    report = _report(_row(NORM, "a", 50.0), _row(TINY, "a", 1.0))
    command.store_failure(report, {"case": NORM.key, "run": "a", "error": "first"})
    command.store_failure(report, {"case": NORM.key, "run": "a", "error": "second"})
    assert [row["error"] for row in report["failures"]] == ["second"]
    command.store(report, _row(NORM, "a", 40.0))
    assert [row["case"] for row in report["cases"]] == [TINY.key, NORM.key]
    assert report["failures"] == []


def test_line_says_what_is_wrong() -> None:
    row = _row(NORM, "a", 50.0, torch=200.0, liger={"text": "", "error": 0.5, "correct": False})
    row |= {"correct": False, "error": 0.25}
    text = command.line(row)
    assert "torch 200.0" in text
    assert "liger WRONG 0.5" in text
    assert text.endswith("WRONG 0.25")


# Targets ------------------------------------------------------------------------------------------------------------


def _applying(op: str, dtype: str, shape: tuple[int, ...], **parameters: Any) -> list[float]:
    case = Case(op, dtype, shape, parameters)
    return [target.threshold for target in targets.TARGETS if target.applies(case)]


@pytest.mark.parametrize(
    ("thresholds", "op", "dtype", "shape", "parameters"),
    [
        ([0.85], "group_norm_backward", "bf16", (32, 320, 64, 64), {"G": 32}),
        ([0.88], "group_norm", "f32", (32, 320, 64, 64), {"G": 32}),
        ([0.60], "group_norm_backward", "bf16", (2, 64, 64, 128, 128), {"G": 8}),
        ([0.65], "group_norm", "f16", (2, 64, 64, 128, 128), {"G": 8}),
        ([0.75], "group_norm_backward", "f64", (8, 320, 64, 64), {"G": 32}),
        ([0.80], "instance_norm", "f64", (2, 64, 64, 64, 64), {}),
        ([0.60], "instance_norm", "bf16", (512, 512, 7, 7), {}),
        ([0.60], "group_norm_backward", "f64", (70000, 3, 2), {"G": 1}),
        ([0.92], "lp_pool1d", "f64", (64, 256, 16384), {"k": 8, "s": 3, "p": 3}),
        ([0.85], "lp_pool1d_backward", "f32", (64, 256, 16384), {"k": 3, "s": 2, "p": 2.5}),
        ([0.65], "lp_pool1d", "bf16", (64, 256, 16384), {"k": 3, "s": 2, "p": 2.5}),
        ([], "lp_pool1d", "f64", (64, 256, 16384), {"k": 3, "s": 2, "p": 2.5}),
        ([0.60], "lp_pool1d_backward", "bf16", (64, 64, 16384), {"k": 64, "s": 1, "p": 2}),
        ([], "lp_pool1d", "bf16", (64, 64, 16384), {"k": 64, "s": 64, "p": 2}),
        ([0.94], "quantize", "f64", (8192, 8192), {"g": 16}),
        ([], "quantize", "f64", (8192, 8190), {"g": 3}),
        ([0.5], "quantize", "f32", (64, 256), {"g": 16}),
        ([0.5], "group_norm", "f32", (2, 32, 8, 8), {"G": 8}),
    ],
)
def test_which_targets_apply(
    thresholds: list[float], op: str, dtype: str, shape: tuple[int, ...], parameters: dict[str, Any]
) -> None:
    assert _applying(op, dtype, shape, **parameters) == thresholds


def test_no_case_has_two_targets() -> None:
    assert max(sum(target.applies(case) for target in targets.TARGETS) for case in FULL) == 1


@pytest.mark.parametrize(
    ("share", "copy_share", "status"),
    [
        (0.88, 0.99, targets.MET),
        (0.87, 0.99, targets.MISSED),
        (0.87, None, targets.MISSED),
        (0.60, 0.70, targets.OUT_OF_REACH),
        (0.90, 0.70, targets.MET),
    ],
)
def test_verdict_on_a_share(share: float, copy_share: float | None, status: str) -> None:
    row = {**_row(NORM, "a", 50.0), "share": share, "copy_share": copy_share}
    (verdict,) = targets.judge(row)
    assert (verdict.value, verdict.status) == (share, status)


def test_verdict_on_tiny_problems_is_a_ratio_to_a_right_result() -> None:
    assert [v.status for v in targets.judge(_row(TINY, "a", 1.0, torch=2.0))] == [targets.MET]
    slow = {**_row(TINY, "a", 1.1, torch=2.0), "copy": _times(0.9)}
    assert [v.status for v in targets.judge(slow)] == [targets.MISSED]
    # A copy alone takes more than half of the peer's time.
    assert [v.status for v in targets.judge({**slow, "copy": _times(1.05)})] == [targets.OUT_OF_REACH]
    assert targets.judge(_row(TINY, "a", 1.0, torch={"error": math.inf, "correct": False})) == []
    assert targets.judge(_row(TINY, "a", 1.0, torch_compile=1.0)) == []


def test_window_growth_compares_cases_that_differ_in_the_window_only() -> None:
    small = Case(POOL.op, POOL.dtype, POOL.shape, {**POOL.parameters, "k": 16})
    other = Case(POOL.op, "f16", POOL.shape, {**POOL.parameters, "k": 16})
    rows = [_row(POOL, "a", 120.0), _row(small, "a", 100.0), _row(other, "a", 500.0)]
    ((case, verdict),) = targets.judge_windows(rows)
    assert case == POOL.key
    assert verdict.value == pytest.approx(1.2)
    assert verdict.status == targets.MISSED
    assert targets.judge_windows(rows[:1]) == []


def test_host_target_is_above_the_bare_launches() -> None:
    row = {
        "kind": "plan", "name": "P", "arrays": "cupy", "launches": 2, "same": _times(8.0), "fresh": _times(9.0), "bare": _times(6.5),
    }  # fmt: skip
    peer = {"kind": "peer", "name": "q", "arrays": "torch", "call": _times(3.0)}
    same, fresh = (verdict for _, verdict in targets.judge_host([row, peer]))
    assert (same.value, same.status) == (pytest.approx(1.5), targets.MET)
    assert (fresh.value, fresh.status) == (pytest.approx(2.5), targets.MISSED)


# Documents ----------------------------------------------------------------------------------------------------------


def test_peers_that_are_wrong_or_absent_are_no_competition() -> None:
    row = _row(
        NORM, "a", 50.0, torch=200.0, torch_compile={"text": "", "error": 1.0, "correct": False, "times": _times(1.0)},
        liger={"failed": "it raised"},
    )  # fmt: skip
    assert tables.speedup(row) == pytest.approx(4.0)
    assert [tables.peer_cell(row, name) for name in results.PEERS.values()] == ["200", "wrong", "failed"]
    assert tables.speedup(_row(NORM, "a", 50.0)) is None
    assert tables.speedups([row]) == []  # the fastest peer is not known where torch.compile took no part
    assert tables.speedups([_row(NORM, "a", 50.0, torch=200.0, torch_compile=25.0)]) == pytest.approx([0.5])


def test_unchecked_times_are_marked() -> None:
    row = _row(NORM, "a", 50.0, torch={"error": None, "correct": None, "times": _times(99.0)})
    assert tables.peer_cell(row, "torch") == "99.0*"


def test_cases_that_failed_are_named() -> None:
    failure = {"case": POOL.key, "run": "a", "error": "LaunchError: no"}
    assert f"Not measured: {POOL.key} (LaunchError: no)" in tables.machine(_report(failures=[failure]))
    assert "Not measured" not in tables.machine(_report())


def test_target_table_counts_and_names_the_worst() -> None:
    other = Case("group_norm", "f32", NORM.shape, NORM.parameters)
    report = _report(
        {**_row(NORM, "a", 50.0), "share": 0.5},
        {**_row(other, "a", 50.0), "share": 0.9},
        _row(TINY, "a", 1.0, torch=10.0),
    )
    text = tables.target_table(report)
    assert "2 of 3 targets are met." in text
    assert f"| ≥ 88% | 1 | 1 | 0 | 50%, {NORM.key} |" in text
    assert f"| ≤ 0.5 | 1 | 0 | 0 | 0.10, {TINY.key} |" in text


def test_readme_line_has_medians_and_says_when_something_is_wrong() -> None:
    right = _row(NORM, "a", 50.0, torch=200.0, torch_compile=100.0)
    text = " ".join(tables.readme(_report(right)).split())
    assert (
        "GroupNorm and InstanceNorm forward 84% of the copy bandwidth, 4× PyTorch eager, 2× the fastest"
        in text
    )
    assert "beside PyTorch eager and `torch.compile`" in text
    assert "each checked against float64" in text
    assert "1 WRONG" in tables.readme(_report({**right, "correct": False}))
    assert "make bench" in tables.readme(_report())


def test_fill_replaces_only_what_is_between_markers() -> None:
    text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb <!-- begin y -->\n<!-- end y -->\n"
    assert documents.fill(text, {"x": "new \\1\n"}, "f") == text.replace("old", "new \\1")
    with pytest.raises(documents.DocumentError, match="f has no <!-- begin z -->"):
        documents.fill(text, {"z": ""}, "f")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Documents with empty markers, and a results file."""
    (tmp_path / "docs").mkdir()
    sections = "".join(f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name in tables.SECTIONS)
    (tmp_path / "docs" / "performance.md").write_text(sections)
    (tmp_path / "docs" / "pytorch.md").write_text("<!-- begin network -->\n<!-- end network -->\n")
    (tmp_path / "README.md").write_text("<!-- begin performance -->\n<!-- end performance -->\n")
    host = {"kind": "plan", "name": "P", "arrays": "cupy", "launches": 1, "run": "a"}
    host |= {"same": _times(5.0), "fresh": _times(9.0), "bare": _times(4.0)}
    more = Case("quantize", "f16", (8192, 8192), {"g": 32}, suite="full")
    rows = [
        _row(NORM, "a", 50.0, torch=200.0),
        _row(POOL, "a", 200.0, torch=900.0),
        _row(TINY, "a", 1.0, torch=3.0),
    ]
    results.save(tmp_path / "r.json", _report(*rows, _row(more, "a", 50.0, torch=70.0), host=[host]))
    return tmp_path


def test_report_command(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(checkout / "r.json"), "--root", str(checkout)]
    assert documents.main([*arguments, "--check"]) == 1
    assert "performance.md" in capsys.readouterr().err
    assert documents.main(arguments) == 0
    assert documents.main([*arguments, "--check"]) == 0
    text = (checkout / "docs" / "performance.md").read_text()
    assert "| bf16 | 32×320×64×64, G 32 | 50.0 |" in text
    assert "<details><summary>quantize: 1 further cases</summary>" in text
    assert "| P | cupy | 1 | 4.00 | 5.00 ✓ | 9.00 ✗ |" in text
    (checkout / "r.json").write_text("{}")
    assert documents.main(arguments) == 2


def test_networks_are_reported_as_they_were_timed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(checkout / "r.json"), "--root", str(checkout), "--no-plots"]
    folder = checkout / "benchmarks" / "results" / "network"
    folder.mkdir(parents=True)
    row = {
        "dtype": "bfloat16", "step": "training", "way": "graph", "shape": [8, 4, 64, 64],
        "times": {"torch": {"median_us": 120.0}, "baracuda": {"median_us": 96.0}},
    }  # fmt: skip
    found = {"gpu": "A GPU", "torch": "2.0", "rows": [row], "host_us": {"a call": 12.34}}
    (folder / "some.json").write_text(json.dumps(found))
    assert documents.main(arguments) == 0
    text = (checkout / "docs" / "pytorch.md").read_text()
    assert "A GPU, PyTorch 2.0, input 8×4×64×64:" in text
    assert "| bfloat16 | training | graph | 120 | 96 | 1.25 |" in text
    assert "| `a call` | 12.3 |" in text
    (folder / "some.json").write_text(json.dumps(found | {"rows": []}))
    capsys.readouterr()
    assert documents.main(arguments) == 2
    assert "some.json is no network's results file" in capsys.readouterr().err


def test_plots_are_drawn_the_same_every_time(checkout: Path, tmp_path: Path) -> None:
    from benchmarks import plots

    report = results.load(checkout / "r.json")
    first, second = (plots.draw(report, tmp_path / name) for name in ("1", "2"))
    assert [path.name for path in first] == [
        "share-norm.svg", "speedup-norm.svg", "share-pool.svg", "speedup-pool.svg",
    ]  # fmt: skip
    for one, other in zip(first, second):
        assert one.read_bytes() == other.read_bytes()
        texts = "".join(ET.parse(one).getroot().itertext())
        assert "bf16" in texts or "f32" in texts


def test_documents_say_what_was_measured() -> None:
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    assert documents.main([*map(str, files), "--check"]) == 0, "run `make report`"


def test_committed_results_are_whole() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        report = results.load(path)
        known = results.runs(report)
        for row in report["cases"]:
            assert row["run"] in known
            assert row["correct"], row["case"]
            assert row["floor_bytes"] == targets.case_of(row).floor_bytes
        assert json.loads(json.dumps(report)) == report


# On the GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("op", OPS)
def test_a_case_is_measured_and_checked(op: str) -> None:
    pytest.importorskip("torch")
    from benchmarks import environment, runner

    device = br.Device.current()
    case = next(case for case in FULL if case.op == op and case.dtype == "f32" and case.tiny)
    run = environment.new_run(device, {"seed": 1}) | {"copy_bandwidth": 1e12}
    row = runner.row(case, device, run, ["torch"], variants=True)
    assert row["correct"]
    assert row["peers"]["torch"]["correct"]
    assert len(row["times"]["rounds_us"]) == len(row["copy"]["rounds_us"])
    assert row["design"] in row["variants"]
    assert all(variant["correct"] for variant in row["variants"].values())


@pytest.mark.gpu
def test_a_result_that_is_not_finite_is_wrong() -> None:
    torch = pytest.importorskip("torch")
    from benchmarks import problems

    want = torch.ones(8, device="cuda")
    got = want.clone()
    problems.poison(got[3:4])
    assert problems.relative((want,), (want,)) == 0
    assert problems.relative((got,), (want,)) == math.inf
