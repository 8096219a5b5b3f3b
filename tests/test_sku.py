"""Keys: round trips over the whole grid, order, and what parse refuses."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baracuda_registry import (
    ArchSku,
    BackendKind,
    ElementKind,
    EpilogueKind,
    InvalidProblem,
    KernelSku,
    LayoutSku,
    MathPrecision,
    NormalizationKind,
    OpCategory,
    PoolKind,
    PrecisionGuarantee,
    QuantizeKind,
    registry,
)
from baracuda_registry.sku import KIND_OF_CATEGORY

guarantees = st.builds(
    PrecisionGuarantee,
    st.sampled_from(MathPrecision),
    st.sampled_from(ElementKind),
    st.booleans(),
    st.booleans(),
)
categories = st.sampled_from(sorted(KIND_OF_CATEGORY, key=lambda c: c.value))


@st.composite
def skus(draw: st.DrawFn) -> KernelSku:
    category = draw(categories)
    return KernelSku(
        category,
        draw(st.sampled_from(KIND_OF_CATEGORY[category])),
        draw(st.sampled_from(ElementKind)),
        draw(st.none() | st.sampled_from(ElementKind)),
        draw(st.none() | st.sampled_from(LayoutSku)),
        draw(st.none() | st.sampled_from(EpilogueKind)),
        draw(st.sampled_from(ArchSku)),
        draw(st.sampled_from(BackendKind)),
        draw(guarantees),
    )


@given(skus())
def test_text_round_trips(sku: KernelSku) -> None:
    text = str(sku)
    assert KernelSku.parse(text) == sku
    assert hash(KernelSku.parse(text)) == hash(sku)
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-."), "file-safe on every system"
    assert pickle.loads(pickle.dumps(sku)) == sku


@given(skus(), skus())
def test_text_is_injective_and_order_is_total(a: KernelSku, b: KernelSku) -> None:
    assert (str(a) == str(b)) == (a == b)
    assert (a < b) + (b < a) + (a == b) == 1


def test_every_registered_sku_round_trips() -> None:
    for sku in registry().skus():
        assert KernelSku.parse(str(sku)) == sku


def test_round_trip_over_the_kinds_grid() -> None:
    guarantee = PrecisionGuarantee(MathPrecision.F32, ElementKind.F32, True, True)
    for category, kinds in KIND_OF_CATEGORY.items():
        for kind, element, aux in itertools.product(kinds, ElementKind, (None, *ElementKind)):
            sku = KernelSku(
                category, kind, element, aux, None, None, ArchSku.Sm80, BackendKind.Bespoke, guarantee
            )
            assert KernelSku.parse(str(sku)) == sku


@pytest.mark.parametrize(
    ("position", "value", "names"),
    [
        (0, "nonsense", "category"),
        (0, "gemm", "gemm"),
        (1, "no_such_op", "no_such_op"),
        (2, "f8", "element"),
        (3, "f8", "aux_element"),
        (4, "row", "layout"),
        (5, "gelu", "epilogue"),
        (6, "sm13", "arch"),
        (7, "magic", "backend"),
        (8, "f32.f32.sometimes.ordered", "guarantee"),
        (8, "f32.f13.stable.ordered", "f13"),
    ],
)
def test_parse_names_the_field(position: int, value: str, names: str) -> None:
    parts = str(registry().skus()[0]).split("-")
    parts[position] = value
    with pytest.raises(InvalidProblem, match=names):
        KernelSku.parse("-".join(parts))


@pytest.mark.parametrize("text", ["", "a", "a-b-c-d-e-f-g-h-i-j", "../../etc", None, 7])
def test_parse_refuses_what_is_no_sku(text: object) -> None:
    with pytest.raises(InvalidProblem):
        KernelSku.parse(text)  # type: ignore[arg-type]


def test_parse_refuses_what_is_not_canonical() -> None:
    text = str(registry().skus()[0])
    with pytest.raises(InvalidProblem):
        KernelSku.parse(text.upper())
    with pytest.raises(InvalidProblem):
        KernelSku.parse(text + "\n")


def test_kind_must_belong_to_the_category() -> None:
    guarantee = PrecisionGuarantee(MathPrecision.F32, ElementKind.F32, True, True)
    with pytest.raises(InvalidProblem, match="PoolKind"):
        KernelSku(
            OpCategory.Pooling, NormalizationKind.GROUP_NORM, ElementKind.F32, None, None, None, ArchSku.Sm80,
            BackendKind.Bespoke, guarantee,
        )  # fmt: skip


def test_upstream_numbers() -> None:
    assert (PoolKind.LP_POOL1D, PoolKind.LP_POOL2D, PoolKind.LP_POOL1D_BACKWARD, PoolKind.LP_POOL2D_BACKWARD) == (
        36, 37, 40, 41,
    )  # fmt: skip
    assert [int(kind) for kind in NormalizationKind] == list(range(10))
    assert NormalizationKind.GROUP_NORM_BACKWARD == 7
    assert (QuantizeKind.PER_GROUP, QuantizeKind.PER_GROUP_BACKWARD) == (18, 19)
    assert (QuantizeKind.DEQUANTIZE_PER_GROUP, QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD) == (23, 24)
    assert len(OpCategory) == 24
    assert len(ElementKind) == 18


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        (ArchSku.Sm80, 80, True),
        (ArchSku.Sm80, 75, False),
        (ArchSku.Sm80, 120, True),
        (ArchSku.Sm89, 86, False),
        (ArchSku.Sm89, 90, True),
        (ArchSku.Sm90a, 90, True),
        (ArchSku.Sm90a, 100, False),
        (ArchSku.Sm80, 0, False),
        (ArchSku.Host, 0, True),
        (ArchSku.Host, 90, False),
    ],
)
def test_tiers(arch: ArchSku, capability: int, runs: bool) -> None:
    assert arch.runs_on(capability) is runs
