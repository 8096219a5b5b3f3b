"""Every variant against its oracle: the host functions, the generated sources on the CPU, and on the GPU."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_registry as br
from baracuda_registry import registry
from baracuda_registry.elements import ElementKind
from baracuda_registry.manifest import Variant

from . import backends, cases

GENERATED = [variant for variant in registry().all_variants() if variant.source is not None]
HOST = [variant for variant in registry().all_variants() if variant.source is None]


def _id(variant: Variant) -> str:
    sku = variant.sku
    aux = f"-{sku.aux_element.value}" if sku.aux_element else ""
    return f"{sku.op.name.lower()}-{sku.element.value}{aux}-{variant.design}"


@pytest.mark.parametrize("variant", HOST, ids=_id)
def test_host(variant: Variant) -> None:
    assert cases.check(variant, backends.HostBackend()).runs > 0


def _shapes_on_the_cpu(variant: Variant) -> tuple[Any, ...]:
    """All shapes for bf16 and f32; f16 and f64 come from the same templates and meet every third one.

    On a GPU every type meets every shape.
    """
    shapes = cases.SHAPES[variant.sku.category]
    return shapes if variant.sku.element in (ElementKind.BF16, ElementKind.F32) else shapes[::3]


@pytest.mark.parametrize("variant", GENERATED, ids=_id)
def test_generated_source_on_the_cpu(variant: Variant) -> None:
    proof = cases.check(variant, backends.CpuBackend(), _shapes_on_the_cpu(variant))
    if proof.runs == 0:
        proof = cases.check(variant, backends.CpuBackend())
    assert proof.runs > 0, "no case reaches this variant"


@pytest.mark.gpu
@pytest.mark.parametrize("variant", GENERATED, ids=_id)
def test_generated_source_on_the_gpu(variant: Variant, cuda: Any) -> None:
    if not variant.sku.arch.runs_on(cuda.device.compute_capability):
        pytest.skip(f"{variant.sku.arch.name} does not run on {cuda.device.name}")
    assert cases.check(variant, cuda).runs > 0
    if variant.sku.category is br.OpCategory.Normalization:
        cases.check(variant, backends.CudaBackend(sm_count=3), cases.NORM_SHAPES[::2])


def test_every_kind_has_a_plan() -> None:
    for variant in registry().all_variants():
        plan = cases.plan_of(variant)
        assert issubclass(plan, br.plans.base.Plan)
