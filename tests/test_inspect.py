"""Inspection: what is answered is what the registry and `select` do, for GPUs that are not here too."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import baracuda_registry as br
from baracuda_registry import inspect
from baracuda_registry.constraint import Constraint
from baracuda_registry.device import NAMED
from baracuda_registry.elements import ElementKind
from baracuda_registry.inspect.choice import rank_reason
from baracuda_registry.inspect.costs import _FLOPS, PEAK_FLOPS
from baracuda_registry.inspect.ops import OPS, describe_problem, entry_for, entry_of
from baracuda_registry.manifest import Hole, Manifest, RankRule
from baracuda_registry.plans.base import forget_plans
from baracuda_registry.select import Measured
from baracuda_registry.sku import ArchSku

TABLE = br.registry()
GENERATED = [variant for variant in TABLE.all_variants() if variant.source is not None]


def example(name: str, element: str = "bf16") -> object:
    return OPS[name].parse(OPS[name].example_text(element).split()[1:])


# Names and filters --------------------------------------------------------------------------------------------------


def test_every_variant_is_found_by_words_that_only_it_has() -> None:
    for variant in TABLE.all_variants()[::31]:
        sku = variant.sku
        aux = "none" if sku.aux_element is None else sku.aux_element.value
        words = f"{sku.op.name.lower()} {sku.element.value} {aux} {sku.arch.value} {variant.design}"
        assert inspect.show(words).variant is variant
        assert inspect.show(words.replace(" ", "/")).variant is variant
        assert inspect.show(variant.id).variant is variant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("group_norm bf15", "did you mean bf16"),
        ("group_norm bf16", r"names \d+ variants, want one"),
        (GENERATED[0].id + "x", f"did you mean {GENERATED[0].id}"),
        ("zzzzqqqq", "is not known"),
        ("group_norm lp_pool1d", "no variant has all of"),
    ],
)
def test_wrong_variant_names_the_nearest(text: str, says: str) -> None:
    with pytest.raises(br.InvalidProblem, match=says.replace("(", r"\(")):
        inspect.show(text)


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({"op": "group_nrm"}, "op 'group_nrm' is not known; did you mean group_norm"),
        ({"op": br.PoolKind.MAX_POOL2D}, "max_pool2d is reserved, no variant computes it"),
        ({"element": "bf17"}, "did you mean bf16"),
        ({"category": "pool"}, "did you mean pooling"),
        ({"arch": "sm81"}, "did you mean sm89 or sm80"),
        ({"backend": "besspoke"}, "did you mean bespoke"),
        ({"aux_element": "x9"}, "aux element type 'x9' is not known"),
        ({"guarantee": "sometimes"}, "nor one of deterministic"),
    ],
)
def test_wrong_filter_is_one_clear_error(filters: dict[str, object], says: str) -> None:
    with pytest.raises(br.InvalidProblem, match=says):
        inspect.variants(**filters)


def test_filters_agree_with_the_skus() -> None:
    everything = TABLE.all_variants()
    assert TABLE.find() == everything
    assert TABLE.find(op="quantize_per_group") == TABLE.find(op=br.QuantizeKind.PER_GROUP) != ()
    for found, test in (
        (TABLE.find(category="pooling"), lambda s: s.category is br.OpCategory.Pooling),
        (TABLE.find(element="F32"), lambda s: s.element is ElementKind.F32),
        (TABLE.find(aux_element="none"), lambda s: s.aux_element is None),
        (TABLE.find(arch="host"), lambda s: s.arch is ArchSku.Host),
        (TABLE.find(guarantee="not-deterministic"), lambda s: not s.precision_guarantee.deterministic),
        (
            TABLE.find(guarantee=str(everything[0].sku.precision_guarantee)),
            lambda s: s.precision_guarantee == everything[0].sku.precision_guarantee,
        ),
    ):
        assert found == tuple(variant for variant in everything if test(variant.sku))
        assert 0 < len(found) < len(everything)
    design = GENERATED[0].design
    assert {variant.design for variant in TABLE.find(pattern=f"/{design}")} >= {design}
    assert TABLE.find(pattern="no such text") == ()


def test_records_are_plain_data() -> None:
    for record in (*inspect.skus(), *inspect.variants(), inspect.coverage(), inspect.selection_map("per_group", "f32", "H200", "s8")):  # fmt: skip
        assert json.loads(json.dumps(record.to_dict())) == record.to_dict()
    record = inspect.show(GENERATED[0])
    assert record.to_dict()["source_sha256"] == TABLE.manifest.sources[GENERATED[0].source]  # type: ignore[union-attr,index]


# Problems in text ---------------------------------------------------------------------------------------------------


def test_every_op_of_the_registry_has_a_row_whose_example_is_of_that_op() -> None:
    assert {sku.op.name.lower() for sku in TABLE.skus()} == set(OPS) == set(_FLOPS)
    for name, entry in OPS.items():
        desc = example(name)
        assert entry.signature(desc).op is entry.op
        assert entry.plan.select(None, desc, device=br.Device.named("H200")).variant.sku.op is entry.op
        assert entry_of(entry.alias) is entry
        assert entry.parse(describe_problem(desc)) == desc
        aux = {sku.aux_element for sku in TABLE.skus(op=entry.op, element=ElementKind.F32)}
        for kind in aux:
            made = entry.descriptor(entry.example, ElementKind.F32, kind)
            entry.plan.validate(made)
            assert entry.signature(made).aux_element is kind


@pytest.mark.parametrize(
    ("op", "items", "says"),
    [
        ("group_norm", ["shape=a"], "input_shape is 'a', want ints such as"),
        ("group_norm", ["shape=1,2,"], "input_shape is '1,2,'"),
        ("group_norm", ["shap=1,2"], "did you mean shape"),
        ("group_norm", ["32"], "'32' is not of the form field=value"),
        ("group_norm", ["shape=2,4", "dtype=f32", "groups=2.5"], "num_groups is '2.5', want a whole number"),
        ("group_norm", ["shape=2,4", "dtype=f31", "groups=2"], "'f31' is not known; did you mean f32"),
        ("group_norm", ["shape=2,4", "dtype=s8", "groups=2"], "want one of f32"),
        ("group_norm", ["shape=2,4", "dtype=f32", "groups=3"], "want a divisor"),
        ("group_norm", ["shape=2,4", "input_shape=2,4"], "given twice"),
        ("group_norm", ["shape=2,4", "dtype=f32", "groups=2", "affine=perhaps"], "want true or false"),
        ("lp_pool1d", ["n=1", "c=1", "l=8", "k=2", "dtype=f32"], "p not given; for example: lp_pool1d"),
        ("lp_pool1d", ["n=1", "c=1", "l=8", "k=9", "p=2", "dtype=f32"], "window is 9"),
        ("lp_pool1d", ["n=1", "c=1", "l=8", "k=2", "p=two", "dtype=f32"], "p is 'two', want a number"),
    ],
)
def test_wrong_problem_is_one_clear_error(op: str, items: list[str], says: str) -> None:
    with pytest.raises(br.BaracudaError, match=says.replace("'", ".")):
        entry_of(op).parse(items)


def test_problem_texts_reach_every_kind_of_field() -> None:
    desc = entry_of("group_norm_backward").parse(
        ["shape=2x4x3", "groups=2", "dtype=f16", "stats=f16", "outputs=dx,dbeta"]
    )
    assert desc == br.GroupNormBackwardDescriptor(
        input_shape=(2, 4, 3), num_groups=2, element="f16", stats_element="f16", outputs=("dx", "dbeta")
    )  # fmt: skip
    quantizer = entry_of("per_group").parse(["outer=2", "axis=8", "group=4", "in=f32", "out=u8"])
    assert (quantizer.q_min, quantizer.q_max) == (0, 255)
    pool = entry_of("lp_pool1d").parse(
        ["n=1", "c=1", "l=8", "k=2", "p=2", "dtype=f32", "s=none", "ceil_mode=true"]
    )
    assert (pool.stride, pool.ceil_mode) == (2, True)


def test_descriptor_of_two_ops_asks_which() -> None:
    desc = example("lp_pool1d")
    with pytest.raises(br.InvalidProblem, match="say which"):
        inspect.explain(desc, "H200")
    with pytest.raises(br.InvalidProblem, match="takes a GroupNormDescriptor"):
        inspect.explain(desc, "H200", op="group_norm")
    with pytest.raises(br.InvalidProblem, match="is no descriptor"):
        entry_for(object())


# Explanations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["H200", "H100", "A100", "L40S", "RTX 4090", "B200", "host"])
@pytest.mark.parametrize("name", list(OPS))
def test_explanation_is_the_selection(name: str, device: str) -> None:
    entry, desc = OPS[name], example(name)
    found = inspect.explain(desc, device, op=name)
    chosen = entry.plan.select(None, desc, device=inspect.device_named(device)).selection
    assert found.chosen is not None
    assert found.chosen.variant is chosen.variant
    signature = entry.signature(desc)
    serving = TABLE.serving(signature.category, signature.op, signature.element, signature.aux_element)
    listed = [c.variant for c in found.trace.candidates] + [r.variant for r in found.trace.rejected]
    assert sorted(v.id for v in listed) == sorted(v.id for v in serving)
    assert all(rejection.reasons for rejection in found.trace.rejected)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["chosen"]["id"] == chosen.variant.id
    assert data["device"]["name"] == inspect.device_named(device).name
    if found.runner_up is not None:
        assert data["margin"]["rank"] >= 0 or found.basis == "measurement"
    else:
        assert (found.basis, data["margin"]) == ("the only candidate", None)


def test_refusal_is_an_explanation_without_a_choice() -> None:
    wishes = br.PlanPreference(variant="no_such_design")
    found = inspect.explain(example("group_norm"), "H200", wishes)
    assert found.chosen is None
    assert found.to_dict()["chosen"] is None
    assert "no_such_design" in str(found)
    assert found.basis == "none"


def test_preference_shows_in_the_reasons() -> None:
    desc = example("lp_pool1d_backward")
    pinned = next(v for v in TABLE.find(op="lp_pool1d_backward", element="bf16") if v.pinned_only)
    wishes = br.PlanPreference(variant=pinned.design)
    found = inspect.explain(desc, "H200", wishes, op="lp_pool1d_backward")
    assert found.basis == "pinned"
    assert found.chosen is not None
    assert found.chosen.variant is pinned
    strict = br.PlanPreference(variant=pinned.design, require_deterministic=True)
    assert inspect.explain(desc, "H200", strict, op="lp_pool1d_backward").chosen is None


def test_rank_rule_is_named() -> None:
    rules = (
        RankRule((Constraint("n", "lt", 4),), 5),
        RankRule((Constraint("n", "gt", 8), Constraint("rows", "multiple_of", 2)), 6),
    )
    ruled = replace(GENERATED[0], rank_rules=rules)
    assert rank_reason(ruled, {"n": 3, "rows": 1}) == "n < 4"
    assert rank_reason(ruled, {"n": 9, "rows": 2}) == "n > 8 and rows a multiple of 2"
    assert rank_reason(ruled, {"n": 9, "rows": 3}) == ""


def test_measurement_that_decides_is_the_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_registry.plans import base

    desc = example("dequantize_per_group", "f32")
    plain = inspect.explain(desc, "H200")
    assert plain.runner_up is not None
    times = {plain.chosen.variant.id: 4e-5, plain.runner_up.variant.id: 2e-5}  # type: ignore[union-attr]
    monkeypatch.setattr(base, "lookup", lambda *_: Measured(times, "some bucket", "some table"))
    forget_plans()
    try:
        found = inspect.explain(desc, "H200")
    finally:
        forget_plans()
    assert found.chosen is not None
    assert found.chosen.variant is plain.runner_up.variant
    assert (found.basis, found.margin["time_ratio"]) == ("measurement", 2.0)  # type: ignore[index]
    assert found.to_dict()["chosen"]["measured_seconds"] == 2e-5


def test_wrong_device_names_the_nearest() -> None:
    with pytest.raises(br.InvalidProblem, match="did you mean H200"):
        inspect.explain(example("group_norm"), "H2000")


# Costs --------------------------------------------------------------------------------------------------------------


def test_bytes_are_each_array_once() -> None:
    pool = inspect.cost(example("lp_pool1d", "f32"), "lp_pool1d")
    outputs = (16384 - 5) // 2 + 1
    assert (pool.read_bytes, pool.written_bytes) == (64 * 256 * 16384 * 4, 64 * 256 * outputs * 4)
    norm = inspect.cost(
        br.GroupNormBackwardDescriptor(
            input_shape=(2, 4, 8), num_groups=2, element="f16", outputs=("dgamma",)
        )  # type: ignore[arg-type]
    )
    assert norm.read_bytes == 2 * 2 * 64 + 2 * 4 * 4 + 2 * 4
    assert norm.written_bytes == 4 * 2
    quantize = inspect.cost(
        entry_of("per_group").parse(["outer=4", "axis=64", "group=16", "in=f32", "out=s8"])
    )
    assert quantize.total_bytes == 256 * 4 + 16 * (4 + 4) + 256


def test_floor_is_bytes_over_bandwidth_or_operations_over_peak() -> None:
    desc = example("group_norm", "f32")
    least = inspect.floor(desc, "H200")
    assert least.memory_seconds == pytest.approx(least.cost.total_bytes / 4.8e12)
    assert least.bound == "memory"
    assert least.seconds == least.memory_seconds
    wide = inspect.floor(example("group_norm", "f64"), "RTX 4090")
    assert wide.arithmetic_seconds == pytest.approx(wide.cost.flops / PEAK_FLOPS["RTX 4090"][1])
    assert wide.seconds == max(wide.memory_seconds, wide.arithmetic_seconds or 0)
    assert not least.fits_l2
    small = br.GroupNormDescriptor(input_shape=(2, 32, 8), num_groups=8, element="f32")  # type: ignore[arg-type]
    assert inspect.floor(small, "A100").fits_l2
    with pytest.raises(br.InvalidProblem, match="bandwidth of host is not known"):
        inspect.floor(desc, "host")


def test_longer_windows_take_more_operations() -> None:
    def flops(window: int, op: str) -> int:
        desc = br.LpPool1dDescriptor(
            batch=1, channels=1, l_in=256, window=window, p=2.0, stride=1, element="f32"
        )  # type: ignore[arg-type]
        return inspect.cost(desc, op).flops

    for op in ("lp_pool1d", "lp_pool1d_backward"):
        assert flops(2, op) < flops(16, op) < flops(64, op)


def test_every_named_device_has_a_peak_and_a_limit_of_blocks() -> None:
    assert set(PEAK_FLOPS) == set(NAMED)
    for device in NAMED.values():
        assert (
            inspect.occupancy(device, 32, 32, 0).blocks
            == inspect.occupancy(device, 32, 32, 0).limits["blocks"]
        )


# Resources and code -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "registers", "threads", "shared", "blocks", "limited"),
    [
        # By NVIDIA's occupancy rules: registers go to warps in units of 256, shared memory takes 1 KiB more a block.
        ("H200", 32, 256, 0, 8, "threads"),
        ("H200", 64, 256, 0, 4, "registers"),
        ("H200", 65, 256, 0, 3, "registers"),
        ("H200", 255, 1024, 0, 0, "registers"),
        ("H200", 32, 32, 0, 32, "blocks"),
        ("H200", 32, 128, 113 * 1024, 2, "shared memory"),
        ("H200", 32, 128, 114 * 1024, 1, "shared memory"),
        ("RTX 4090", 32, 256, 0, 6, "threads"),
        ("RTX 4090", 32, 64, 0, 24, "blocks"),
        ("A10", 32, 32, 0, 16, "blocks"),
    ],
)
def test_occupancy_follows_the_rules(
    device: str, registers: int, threads: int, shared: int, blocks: int, limited: str
) -> None:
    fits = inspect.occupancy(br.Device.named(device), registers, threads, shared)
    assert fits.blocks == blocks
    assert limited in fits.limited_by
    assert fits.fraction == blocks * -(-threads // 32) * 32 / br.Device.named(device).threads_per_sm


def test_host_has_no_occupancy() -> None:
    with pytest.raises(br.InvalidProblem, match="name a GPU"):
        inspect.occupancy(br.Device.host(), 32, 32, 0)


def test_resources_of_a_problem_are_those_of_its_launches() -> None:
    desc = example("group_norm")
    plan = br.GroupNormPlan.select(None, desc, device=br.Device.named("H200"))
    uses = TABLE.resources(plan.variant, device="H200", descriptor=desc)
    assert [use.symbol for use in uses] == [entry.symbol for entry in plan.variant.entries]
    for use in uses:
        assert use.architecture == "sm_90"
        assert 0 < use.used.registers <= 255
        assert use.occupancy is not None
        assert 0 < use.occupancy.fraction <= 1
        assert use.dynamic_shared_bytes is not None
        assert use.dynamic_shared_bytes <= plan.selection.requirements.shared_bytes
    assert json.dumps([use.to_dict() for use in uses])


def test_resources_refuse_what_makes_no_sense() -> None:
    host = next(variant for variant in TABLE.all_variants() if variant.source is None)
    with pytest.raises(br.ManifestError, match="runs on the host"):
        TABLE.resources(host)
    norm = TABLE.find(op="group_norm", element="bf16", arch="sm80")[0]
    with pytest.raises(br.InvalidProblem, match="takes a GroupNormDescriptor"):
        TABLE.resources(norm, device="H200", descriptor=example("lp_pool1d"))
    with pytest.raises(br.InvalidProblem, match="does not serve this problem"):
        TABLE.resources(norm, device="H200", descriptor=example("group_norm", "f32"))
    with pytest.raises(br.InvalidProblem, match="does not run on sm_75"):
        TABLE.resources(norm, architecture="sm_75")
    with pytest.raises(br.InvalidProblem, match="is not of the form sm_90"):
        TABLE.resources(norm, architecture="hopper")


@pytest.fixture
def small() -> br.Variant:
    return TABLE.find(op="dequantize_per_group_backward", element="f32", aux_element="s8", arch="sm80")[-1]


def test_code_at_every_level(small: br.Variant) -> None:
    symbol = small.entries[0].symbol
    assert symbol in TABLE.source(small)
    ptx = inspect.ptx(small, "sm_80")
    assert ".target sm_80" in ptx
    assert f".entry {symbol}" in ptx
    assert symbol in inspect.sass(small, "9.0")


def test_sass_without_a_disassembler_says_the_remedy(
    small: br.Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from baracuda_registry.inspect import code

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(code, "_tool_folders", lambda: iter([tmp_path]))
    with pytest.raises(br.ToolMissing, match="pip install nvidia-cuda-nvdisasm"):
        inspect.sass(small)


def test_disassembler_that_refuses_is_an_error(
    small: br.Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "nvdisasm"
    fake.write_text("#!/bin/sh\necho no such architecture >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(br.CompileError, match="no such architecture"):
        inspect.sass(small)


def test_host_variant_has_no_code() -> None:
    host = next(variant for variant in TABLE.all_variants() if variant.source is None)
    for look in (inspect.source, inspect.ptx, inspect.sass):
        with pytest.raises(br.ManifestError, match="runs on the host"):
            look(host)


# Coverage and maps --------------------------------------------------------------------------------------------------


def test_coverage_counts_every_variant_once_and_explains_every_hole() -> None:
    matrix = TABLE.coverage()
    assert sum(cell.variants for cell in matrix.cells) == len(TABLE)
    assert all(cell.reasons for cell in matrix.cells if not cell.variants)
    assert {cell.arch for cell in matrix.cells} == set(ArchSku)
    assert "max_pool2d" in dict(matrix.reserved)[br.OpCategory.Pooling]


def test_holes_of_the_manifest_are_reasons() -> None:
    manifest = TABLE.manifest
    assert manifest is not None
    hole = Hole("pooling/lp_pool1d", "f64", "tensor_core", "there is no such instruction")
    partly = tuple(
        v
        for v in manifest.variants
        if not (v.sku.op is br.PoolKind.LP_POOL1D and v.sku.element is ElementKind.F64)
    )
    table = br.Registry(
        partly, Manifest(manifest.root, manifest.compile_options, manifest.sources, partly, (hole,))
    )
    cells = [
        c for c in table.coverage().cells if c.op is br.PoolKind.LP_POOL1D and c.element is ElementKind.F64
    ]
    assert {c.variants for c in cells} == {0}
    for cell in cells:
        expected = (
            "lp_pool1d is not declared for f64"
            if cell.arch is ArchSku.Host
            else f"{hole.design}: {hole.reason}"
        )
        assert cell.reasons == (expected,)


def test_map_is_the_selection_at_every_point() -> None:
    found = inspect.selection_map("group_norm", "bf16", "A100", "f32")
    entry = OPS["group_norm"]
    for y, second in list(enumerate(found.y.values))[::4]:
        for x, first in list(enumerate(found.x.values))[::5]:
            desc = entry.descriptor(entry.place(first, second), ElementKind.BF16, ElementKind.F32)
            plan = entry.plan.select(None, desc, device=br.Device.named("A100"))
            assert found.designs[found.cells[y][x]] == plan.variant.design
    assert len(found.designs) > 1


def test_impossible_points_of_a_map_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = OPS["lp_pool1d"]
    monkeypatch.setitem(OPS, "lp_pool1d", _with_place(entry, lambda x, y: {**entry.example, "l_in": 6, "window": x, "stride": y}))  # fmt: skip
    found = inspect.selection_map("lp_pool1d", "f32", "H200")
    for x, window in enumerate(found.x.values):
        assert (found.cells[0][x] == -2) == (window > 6)


def _with_place(entry: inspect.OpEntry, place: object) -> inspect.OpEntry:
    return replace(entry, place=place)  # type: ignore[arg-type]
