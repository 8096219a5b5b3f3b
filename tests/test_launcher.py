"""The straight-line path of `run`: it serves what the complete checks accept, and gives way to them for everything else."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import baracuda_registry as br
from baracuda_registry.errors import BaracudaError, LaunchError
from baracuda_registry.execution import register_runtime
from baracuda_registry.plans import base

from .dry import DryBackend
from .samples import SAMPLES, Sample, arrays_for

samples = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


def bundle(backend: Any, plan: Any) -> Any:
    return plan.arguments_type(**arrays_for(backend, plan))


def only_straight_line(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the complete checks are out of reach."""

    def unreachable(*_: Any) -> None:
        raise AssertionError("the complete checks were asked")

    monkeypatch.setattr(plan, "_check", unreachable)


@samples
def test_the_second_run_needs_no_complete_check(
    sample: Sample, dry: DryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = dry.plan(sample)
    space = dry.workspace(plan.workspace_size)
    first = bundle(dry, plan)
    plan.run(None, space, first)
    wanted = list(dry.runtime.log)
    assert any(wanted)
    only_straight_line(plan, monkeypatch)
    dry.runtime.log.clear()
    plan.run(None, space, first)
    assert dry.runtime.log == wanted
    complete = dry.plan(sample)
    for _ in range(3):
        fresh = bundle(dry, plan)
        other = dry.workspace(plan.workspace_size)
        complete._launchers = ()
        dry.runtime.log.clear()
        complete.run(None, other, fresh)
        wanted = list(dry.runtime.log)
        for stream in (None, 0):
            dry.runtime.log.clear()
            plan.run(stream, other, fresh)
            assert dry.runtime.log == wanted


@samples
def test_one_launcher_a_library(sample: Sample, dry: DryBackend) -> None:
    plan = dry.plan(sample)
    for _ in range(3):
        plan._launchers = plan._launchers[:1]
        plan._calls.clear()
        args = bundle(dry, plan)
        odd = next(o for o in plan.argument_table if o.vector and o.present and not o.output)
        plan.run(None, dry.workspace(plan.workspace_size), args)
        misaligned = replace(args, **{odd.name: dry.put(getattr(args, odd.name), 1)})
        plan.run(None, dry.workspace(plan.workspace_size), misaligned)
    assert len(plan._launchers) == 1


@samples
def test_every_wrong_form_is_left_to_the_complete_checks(sample: Sample, dry: DryBackend) -> None:
    plan = dry.plan(sample)
    space = dry.workspace(plan.workspace_size)
    good = bundle(dry, plan)
    plan.run(None, space, good)
    (launch,) = plan._launchers
    assert launch(good, None, space)
    assert not launch({}, None, space)
    assert not launch(SimpleNamespace(**vars(good)), None, space)
    for operand in plan.argument_table:
        array = getattr(good, operand.name)
        if not operand.present:
            assert not launch(replace(good, **{operand.name: dry.empty((1,), np.int8)}), None, space)
            continue
        double = (*operand.shape[:-1], 2 * operand.shape[-1])
        wrong = [
            None,
            [1.0],
            dry.empty(operand.shape, np.int64),
            dry.empty((*operand.shape[:-1], operand.shape[-1] + 1), array.dtype),
            dry.empty((1, *operand.shape), array.dtype),
            dry.empty((operand.shape[0] + 1, *operand.shape[1:]), array.dtype),
            dry.empty(double, array.dtype)[..., ::2],
        ]
        if array.dtype.itemsize > 1:
            wrong.append(dry.empty(operand.shape, array.dtype.newbyteorder()))
            raw = dry.empty((array.nbytes + 1,), np.uint8)
            wrong.append(np.ndarray(operand.shape, array.dtype, raw, 1))
        if operand.output:
            frozen = dry.empty(operand.shape, array.dtype)
            frozen.flags.writeable = False
            wrong.append(frozen)
        for value in wrong:
            assert not launch(replace(good, **{operand.name: value}), None, space), (operand.name, value)
    if space is not None:
        frozen = dry.workspace(plan.workspace_size)
        frozen.flags.writeable = False
        for value in (
            None,
            [0],
            space[:-1],
            frozen,
            dry.empty((plan.workspace_size + 16,), np.uint8, 1),
            dry.empty((2 * plan.workspace_size,), np.uint8)[::2],
        ):
            assert not launch(good, None, value)


@samples
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_overlap_and_alignment_are_judged_alike(sample: Sample, dry: DryBackend, data: Any) -> None:
    """Arrays laid out at random in one buffer: the straight line runs exactly what the complete checks let pass."""
    plan = dry.plan(sample)
    space = dry.workspace(plan.workspace_size)
    plan.run(None, space, bundle(dry, plan))
    (launch,) = plan._launchers
    raw = dry.empty((8192,), np.uint8)
    step = data.draw(st.sampled_from((16, 64, 1024)))
    arrays = {}
    for operand in plan.argument_table:
        if operand.present:
            start = step * data.draw(st.integers(0, 4096 // step), label=operand.name)
            start += operand.element.itemsize * data.draw(st.sampled_from((0, 0, 0, 1)))
            arrays[operand.name] = np.ndarray(operand.shape, operand.element.dtype, raw, start)
        else:
            arrays[operand.name] = None
    if space is not None and data.draw(st.booleans()):
        start = 16 * data.draw(st.integers(0, 256))
        space = raw[start : start + plan.workspace_size]
    args = plan.arguments_type(**arrays)
    fast = launch(args, None, space)
    launchers, plan._launchers = plan._launchers, ()
    try:
        plan.run(None, space, args)
        complete = True
    except BaracudaError:
        complete = False
    plan._launchers = launchers
    assert complete or not fast
    vectors = [arrays[o.name] for o in plan.argument_table if o.vector and o.present]
    if complete and all(a.ctypes.data % 16 == 0 for a in vectors):
        assert fast
    assert launch(args, None, space) == complete  # what was let pass once is remembered, by address


@samples
def test_what_is_remembered_is_bounded_and_holds_no_array(
    sample: Sample, dry: DryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_MOST_CALLS", 4)
    plan = dry.plan(sample)
    for _ in range(11):
        plan.run(None, dry.workspace(plan.workspace_size), bundle(dry, plan))
        assert len(plan._calls) <= 4
    assert all(type(address) is int for key in plan._calls for address in key)


def test_a_run_inside_a_run_has_blocks_of_its_own(dry: DryBackend) -> None:
    """The slots are read during the launch: another run at that moment must not overwrite them."""
    sample = SAMPLES[0]
    plan = dry.plan(sample)
    one, two = bundle(dry, plan), bundle(dry, plan)
    plan.run(None, None, one)
    (wanted,) = dry.runtime.log
    dry.runtime.log.clear()
    dry.runtime.during = lambda: plan.run(None, None, two)
    plan.run(None, None, one)
    assert dry.runtime.log[1] == wanted
    assert dry.runtime.log[0] != wanted


def test_a_thread_without_the_context_enters_it(dry: DryBackend) -> None:
    sample = SAMPLES[0]
    plan = dry.plan(sample)
    args = bundle(dry, plan)
    dry.runtime.per_thread = True
    plan.run(None, None, args)
    plan.run(None, None, args)
    assert dry.runtime.entered == 1  # to load
    thread = threading.Thread(target=plan.run, args=(None, None, args))
    thread.start()
    thread.join()
    assert dry.runtime.entered == 2
    assert len(dry.runtime.log) == 3


def test_an_empty_problem_touches_no_device(dry: DryBackend) -> None:
    desc = br.LpPool1dDescriptor(batch=0, channels=3, l_in=16, window=4, p=2.0, element="f32")
    plan = br.LpPool1dPlan(desc, dry.device, br.PlanPreference(), br.registry())
    args = bundle(dry, plan)
    for _ in range(2):
        plan.run(None, None, args)
    assert len(plan._launchers) == 1
    assert (dry.runtime.entered, dry.runtime.log) == (0, [])


def test_zeros_of_an_empty_problem_are_enqueued(dry: DryBackend) -> None:
    desc = br.GroupNormBackwardDescriptor(input_shape=(0, 8, 4), num_groups=2, element="f32")
    plan = br.GroupNormBackwardPlan(desc, dry.device, br.PlanPreference(), br.registry())
    args = bundle(dry, plan)
    for _ in range(2):
        dry.runtime.log.clear()
        plan.run(None, dry.workspace(plan.workspace_size), args)
        assert {pointers[0] for pointers in dry.runtime.log} == {
            args.dgamma.ctypes.data,
            args.dbeta.ctypes.data,
        }
    assert dry.runtime.entered == 1


def test_a_refused_launch_is_one_clear_error(dry: DryBackend) -> None:
    sample = SAMPLES[0]
    plan = dry.plan(sample)
    args = bundle(dry, plan)

    def refuse() -> None:
        raise RuntimeError("no such luck")

    for _ in range(2):
        dry.runtime.during = refuse
        with pytest.raises(LaunchError, match="no such luck") as caught:
            plan.run(None, None, args)
        assert plan.variant.id in str(caught.value)
        plan.run(None, None, args)


@pytest.mark.filterwarnings("ignore")
def test_cupy_arrays_are_read_without_a_gpu() -> None:
    """CuPy's own array type over host memory: what the expressions read is there, and each difference is seen."""
    cupy = pytest.importorskip("cupy")
    from baracuda_registry import cuda

    raw = np.zeros(1 << 16, np.uint8)
    base_address = raw.ctypes.data + -raw.ctypes.data % 256
    used = 0

    def array(shape: tuple[int, ...], dtype: Any, device_id: int = 0, shift: int = 0) -> Any:
        nonlocal used
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = cupy.cuda.UnownedMemory(base_address + used + shift, nbytes, raw, device_id)
        used += -(-(nbytes + shift) // 256) * 256
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    class Runtime(cuda.CudaRuntime):
        launch = staticmethod(lambda *numbers: None)
        zero = staticmethod(lambda *numbers: None)
        context = staticmethod(lambda: 0)

        def load(self, manifest: Any, variant: Any, device: Any) -> Any:
            return {entry.symbol: 1 for entry in variant.entries}

        def allow_shared(self, *_: Any) -> None: ...

        def enter(self, device: Any) -> None: ...

        def leave(self, token: Any) -> None: ...

    register_runtime("dry", Runtime)
    device = replace(br.Device.named("H200").with_execution("dry"), ordinal=0)
    desc = br.GroupNormBackwardDescriptor(input_shape=(2, 8, 4, 4), num_groups=4, element="f32")
    plan = br.GroupNormBackwardPlan(desc, device, br.PlanPreference(variant="three_stage_v1"), br.registry())
    arrays = {o.name: array(o.shape, o.element.dtype) for o in plan.argument_table}
    space = array((plan.workspace_size,), np.uint8)
    good = plan.arguments_type(**arrays)
    plan.run(0, space, good)
    (launch,) = plan._launchers
    assert launch(good, 0, space)
    for operand in plan.argument_table:
        dtype = operand.element.dtype
        for value in (
            None,
            np.zeros(operand.shape, dtype),
            array(operand.shape, np.int64),
            array((*operand.shape[:-1], operand.shape[-1] + 1), dtype),
            array((1, *operand.shape), dtype),
            array(operand.shape, dtype, device_id=1),
            array((*operand.shape[:-1], 2 * operand.shape[-1]), dtype)[..., ::2],
            array(operand.shape, dtype, shift=1),
        ):
            assert not launch(replace(good, **{operand.name: value}), 0, space), operand.name
    for value in (None, array((plan.workspace_size - 1,), np.uint8), array(space.shape, np.uint8, 1)):
        assert not launch(good, 0, value)
