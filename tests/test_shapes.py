"""Any shape: drawn at random, served by the variant that selection chooses, on the host and by the generated sources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_registry as br

from . import backends, cases
from .oracles.pool import lp_pool1d_output_length

BACKENDS = {"host": backends.HostBackend(), "cpu": backends.CpuBackend()}
places = pytest.mark.parametrize("place", BACKENDS)
elements = st.sampled_from(("f32", "bf16"))


@st.composite
def pools(draw: st.DrawFn) -> tuple[int, int, int, int, int, bool]:
    l_in = draw(st.integers(1, 90))
    window = draw(st.integers(1, l_in))
    return (
        draw(st.integers(0, 3)),
        draw(st.integers(0, 3)),
        l_in,
        window,
        draw(st.integers(1, 12)),
        draw(st.booleans()),
    )


@st.composite
def norms(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    groups = draw(st.integers(1, 5))
    channels = groups * draw(st.integers(1, 4))
    spatial = draw(st.lists(st.integers(0, 9), max_size=3))
    return (draw(st.integers(0, 3)), channels, *spatial), groups


@st.composite
def quants(draw: st.DrawFn) -> tuple[int, int, int]:
    group = draw(st.integers(1, 40))
    return draw(st.integers(0, 4)), group * draw(st.integers(0, 5)), group


def _chosen(plan: Any, desc: Any, backend: Any) -> Any:
    return plan.select(None, desc, device=backend.device).variant


@given(pools())
def test_output_length_is_the_oracles(shape: tuple[int, int, int, int, int, bool]) -> None:
    batch, channels, l_in, window, stride, ceil_mode = shape
    desc = br.LpPool1dDescriptor(
        batch=batch, channels=channels, l_in=l_in, window=window, stride=stride, p=2.0, ceil_mode=ceil_mode, element="f32"
    )  # fmt: skip
    assert desc.output_length == lp_pool1d_output_length(l_in, window, stride, ceil_mode)


@places
@settings(max_examples=12)
@given(shape=pools(), element=elements)
def test_pool(place: str, shape: tuple[int, int, int, int, int, bool], element: str) -> None:
    backend = BACKENDS[place]
    batch, channels, l_in, window, stride, ceil_mode = shape
    desc = br.LpPool1dDescriptor(
        batch=batch, channels=channels, l_in=l_in, window=window, stride=stride, p=2.0, ceil_mode=ceil_mode, element=element
    )  # fmt: skip
    assert cases.check_pool_forward(_chosen(br.LpPool1dPlan, desc, backend), backend, (shape,)).runs
    assert cases.check_pool_backward(_chosen(br.LpPool1dBackwardPlan, desc, backend), backend, (shape,)).runs


@places
@settings(max_examples=20)
@given(case=norms(), element=elements)
def test_norm(place: str, case: tuple[tuple[int, ...], int], element: str) -> None:
    backend, (shape, groups) = BACKENDS[place], case
    for plan, check in (
        (br.GroupNormPlan, cases.check_norm_forward),
        (br.GroupNormBackwardPlan, cases.check_norm_backward),
    ):
        desc = plan.descriptor_type(input_shape=shape, num_groups=groups, element=element)
        assert check(_chosen(plan, desc, backend), backend, plan, (case,)).runs


@places
@settings(max_examples=20)
@given(case=quants(), element=elements)
def test_quantize(place: str, case: tuple[int, int, int], element: str) -> None:
    backend, (outer, axis, group) = BACKENDS[place], case
    fields = {
        "outer_size": outer,
        "axis_size": axis,
        "group_size": group,
        "input_element": element,
        "output_element": "s8",
    }
    for plan in (br.QuantizePerGroupPlan, br.DequantizePerGroupBackwardPlan):
        limits = {"q_min": -128, "q_max": 127} if plan is br.QuantizePerGroupPlan else {}
        desc = plan.descriptor_type(**fields, **limits)
        assert cases.check_quantize(_chosen(plan, desc, backend), backend, plan, (case,)).runs
