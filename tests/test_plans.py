"""The plan protocol, over every plan: each argument in each wrong form, on every backend; nothing is written before an error."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br
from baracuda_registry.elements import ElementKind
from baracuda_registry.errors import (
    DeviceMismatch,
    InvalidProblem,
    MisalignedOperand,
    NoVariant,
    Unsupported,
    WorkspaceTooSmall,
)

from . import backends
from .samples import FLOATS, SAMPLES, Sample, arrays_for, select, values_for

samples = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


def refused(
    plan: Any, backend: Any, arrays: dict[str, Any], error: type[Exception], *texts: str, workspace: Any = ...
) -> None:
    """The call raises, with these texts in its message, before it writes; and the next, right call works."""
    space = backend.workspace(plan.workspace_size) if workspace is ... else workspace
    outputs = [o.name for o in plan.argument_table if o.output and o.present]
    before = {
        name: backend.get(arrays[name]).tobytes() for name in outputs if hasattr(arrays.get(name), "dtype")
    }
    with pytest.raises(error) as caught:
        plan.run(None, space, plan.arguments_type(**arrays))
    message = str(caught.value)
    assert type(plan).__name__ in message
    for text in texts:
        assert text in message, message
    backend.synchronize()
    for name, old in before.items():
        assert backend.get(arrays[name]).tobytes() == old, f"{name} was written before the error"
    backends.run(backend, plan, plan.arguments_type(**arrays_for(backend, plan)))


@samples
@pytest.mark.parametrize("element", FLOATS, ids=lambda e: e.value)
def test_every_output_is_written(sample: Sample, element: ElementKind, backend: Any) -> None:
    from .data import assert_written

    plan = select(sample, backend, element)
    runs = []
    for pattern in (0, 1):
        arrays = arrays_for(backend, plan)
        for operand in plan.argument_table:
            if operand.output and operand.present:
                arrays[operand.name] = backend.empty(operand.shape, operand.element.dtype, 0, pattern)
        backends.run(backend, plan, plan.arguments_type(**arrays))
        runs.append(
            {o.name: backend.get(arrays[o.name]) for o in plan.argument_table if o.output and o.present}
        )
    for name in runs[0]:
        assert_written(runs[0][name], runs[1][name], label=name)


@samples
def test_inputs_are_not_changed(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    arrays = arrays_for(backend, plan)
    inputs = [o.name for o in plan.argument_table if o.present and not o.output]
    before = {name: backend.get(arrays[name]).tobytes() for name in inputs}
    backends.run(backend, plan, plan.arguments_type(**arrays))
    assert {name: backend.get(arrays[name]).tobytes() for name in inputs} == before


@samples
def test_missing_and_extra(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    for operand in plan.argument_table:
        arrays = arrays_for(backend, plan)
        if operand.present:
            refused(plan, backend, {**arrays, operand.name: None}, InvalidProblem, operand.name, "None")
        else:
            extra = backend.put(values_for(operand))
            refused(plan, backend, {**arrays, operand.name: extra}, InvalidProblem, operand.name)


@samples
def test_wrong_dtype(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    for operand in plan.argument_table:
        if operand.present:
            arrays = arrays_for(backend, plan)
            arrays[operand.name] = backend.put(np.zeros(operand.shape, np.int64))
            refused(plan, backend, arrays, InvalidProblem, operand.name, "int64", operand.element.value)


@samples
def test_wrong_shape(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    for operand in plan.argument_table:
        if operand.present:
            last = operand.shape[-1] + 1
            arrays = arrays_for(backend, plan)
            arrays[operand.name] = backend.put(np.zeros((*operand.shape[:-1], last), operand.element.dtype))
            wanted = f"want {operand.symbols} = {operand.shape}"
            refused(plan, backend, arrays, InvalidProblem, operand.name, wanted)
            flat = arrays_for(backend, plan)
            flat[operand.name] = backend.put(np.zeros((1, *operand.shape), operand.element.dtype))
            refused(plan, backend, flat, InvalidProblem, operand.name, wanted)


@samples
def test_not_contiguous_and_broadcast(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    for operand in plan.argument_table:
        if not operand.present:
            continue
        double = (*operand.shape[:-1], 2 * operand.shape[-1])
        arrays = arrays_for(backend, plan)
        arrays[operand.name] = backend.put(np.zeros(double, operand.element.dtype))[..., ::2]
        refused(plan, backend, arrays, InvalidProblem, operand.name, "contiguous")
        if not operand.output:
            one = backend.put(np.ones((1,) * len(operand.shape), operand.element.dtype))
            module = np if isinstance(one, np.ndarray) else backend.cupy
            arrays = arrays_for(backend, plan)
            arrays[operand.name] = module.broadcast_to(one, operand.shape)
            refused(plan, backend, arrays, InvalidProblem, operand.name, "contiguous")


@samples
def test_not_an_array(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    for operand in plan.argument_table:
        if operand.present:
            arrays = arrays_for(backend, plan)
            refused(plan, backend, {**arrays, operand.name: [1.0, 2.0]}, DeviceMismatch, operand.name, "list")


@samples
def test_read_only_output(sample: Sample, backend: Any) -> None:
    if backend.name == "cuda":
        pytest.skip("CuPy arrays have no read-only flag")
    plan = select(sample, backend)
    for operand in plan.argument_table:
        if operand.present and operand.output:
            arrays = arrays_for(backend, plan)
            arrays[operand.name].flags.writeable = False
            refused(plan, backend, arrays, InvalidProblem, operand.name, "read-only")


@samples
def test_overlap(sample: Sample, backend: Any) -> None:
    """An output may not touch another operand, but for the aliases that the argument table allows."""
    plan = select(sample, backend)
    present = [o for o in plan.argument_table if o.present]
    for output in (o for o in present if o.output):
        for other in (o for o in present if o.name != output.name):
            raw = backend.empty((4096,), np.uint8)
            arrays = arrays_for(backend, plan)
            for operand, start in ((other, 0), (output, 16)):
                size = int(np.prod(operand.shape)) * operand.element.itemsize
                arrays[operand.name] = (
                    raw[start : start + size].view(operand.element.dtype).reshape(operand.shape)
                )
            if int(np.prod(other.shape)) * other.element.itemsize > 16:
                refused(plan, backend, arrays, InvalidProblem, "overlaps", output.name, other.name)
        if not output.may_alias:
            twin = next(
                (
                    o
                    for o in present
                    if o.shape == output.shape and o.element is output.element and not o.output
                ),
                None,
            )
            if twin is not None:
                arrays = arrays_for(backend, plan)
                arrays[output.name] = arrays[twin.name]
                refused(plan, backend, arrays, InvalidProblem, "overlaps", output.name, twin.name)


@samples
@pytest.mark.parametrize("element", FLOATS, ids=lambda e: e.value)
def test_allowed_aliases_give_the_same_bits(sample: Sample, element: ElementKind, backend: Any) -> None:
    plan = select(sample, backend, element)
    for operand in plan.argument_table:
        if operand.may_alias:
            apart, together = arrays_for(backend, plan), arrays_for(backend, plan)
            together[operand.name] = together[operand.may_alias]
            for arrays in (apart, together):
                backends.run(backend, plan, plan.arguments_type(**arrays))
            for output in (o for o in plan.argument_table if o.output and o.present):
                assert (
                    backend.get(apart[output.name]).tobytes() == backend.get(together[output.name]).tobytes()
                ), output.name


@samples
@pytest.mark.parametrize("element", FLOATS, ids=lambda e: e.value)
def test_element_aligned_pointers_give_right_results(
    sample: Sample, element: ElementKind, backend: Any
) -> None:
    """Every operand in turn is aligned to its element only; a narrower variant serves it, with equal results."""
    plan = select(sample, backend, element)
    aligned = arrays_for(backend, plan)
    backends.run(backend, plan, plan.arguments_type(**aligned))
    for operand in plan.argument_table:
        if not operand.present:
            continue
        arrays = arrays_for(backend, plan)
        if operand.output:
            arrays[operand.name] = backend.empty(operand.shape, operand.element.dtype, 1)
        else:
            arrays[operand.name] = backend.put(values_for(operand), 1)
        backends.run(backend, plan, plan.arguments_type(**arrays))
        for output in (o for o in plan.argument_table if o.output and o.present):
            got, want = backend.get(arrays[output.name]), backend.get(aligned[output.name])
            tolerance = {"f16": 4e-3, "bf16": 3e-2, "f32": 1e-5, "f64": 1e-13}.get(output.element.value, 0)
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
            )


@samples
def test_pointer_below_element_alignment(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    for operand in plan.argument_table:
        if operand.present and operand.element.itemsize > 1:
            size = int(np.prod(operand.shape)) * operand.element.itemsize
            raw = backend.empty((size + 1,), np.uint8)
            if backend.name == "cuda":
                array = backend.cupy.ndarray(operand.shape, operand.element.dtype, raw.data + 1)
            else:
                array = np.ndarray(operand.shape, operand.element.dtype, raw, 1)
            arrays = {**arrays_for(backend, plan), operand.name: array}
            refused(plan, backend, arrays, MisalignedOperand, operand.name, "multiple of")


@samples
def test_pinned_vector_variant_refuses_misaligned_pointers(sample: Sample, device_backend: Any) -> None:
    plan = select(sample, device_backend)
    if plan.variant.alignment == 1:
        pytest.skip("the chosen variant has no demand on alignment")
    pinned = select(sample, device_backend, pref=br.PlanPreference(variant=plan.variant.id))
    operand = next(o for o in pinned.argument_table if o.vector and o.present and not o.output)
    arrays = arrays_for(device_backend, pinned)
    arrays[operand.name] = device_backend.put(values_for(operand), 1)
    refused(pinned, device_backend, arrays, MisalignedOperand, pinned.variant.id)


@samples
def test_workspace(sample: Sample, device_backend: Any) -> None:
    plan = select(sample, device_backend)
    needed = plan.workspace_size
    if needed == 0:
        backends.run(device_backend, plan, plan.arguments_type(**arrays_for(device_backend, plan)))
        return
    arrays = arrays_for(device_backend, plan)
    for got, space in ((0, None), (needed - 1, device_backend.workspace(needed - 1))):
        refused(plan, device_backend, arrays, WorkspaceTooSmall, str(needed), str(got), workspace=space)
        with pytest.raises(WorkspaceTooSmall) as caught:
            plan.run(None, space, plan.arguments_type(**arrays))
        assert (caught.value.needed, caught.value.got) == (needed, got)
    odd = device_backend.empty((needed + 16,), np.uint8, 1)
    refused(plan, device_backend, arrays, MisalignedOperand, "workspace", workspace=odd)
    refused(plan, device_backend, arrays, DeviceMismatch, "workspace", workspace=[0])
    victim = next(o for o in plan.argument_table if o.present and not o.output)
    shared = device_backend.empty((4096 + needed,), np.uint8)
    size = int(np.prod(victim.shape)) * victim.element.itemsize
    overlapping = {**arrays, victim.name: shared[:size].view(victim.element.dtype).reshape(victim.shape)}
    refused(
        plan, device_backend, overlapping, InvalidProblem, "workspace overlaps", victim.name, workspace=shared
    )


@samples
def test_wrong_bundle_and_descriptor(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    with pytest.raises(InvalidProblem, match="args is a dict"):
        plan.run(None, None, {})
    with pytest.raises(InvalidProblem, match="desc is a"):
        sample.plan.select(None, object(), device=backend.device)
    with pytest.raises(InvalidProblem, match="pref"):
        sample.plan.select(None, sample.descriptor(), {}, device=backend.device)
    with pytest.raises(TypeError):
        sample.args(nonsense=1)
    with pytest.raises(TypeError):
        sample.args(1, 2, 3)


@samples
def test_unsupported_elements(sample: Sample) -> None:
    for element in set(ElementKind) - set(FLOATS):
        with pytest.raises(Unsupported, match=element.value):
            sample.plan.select(None, sample.descriptor(element), device=br.Device.host())


@samples
def test_can_implement_says_what_run_says(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    arrays = arrays_for(backend, plan)
    assert plan.can_implement(plan.arguments_type(**arrays)) is None
    first = next(iter(arrays))
    with pytest.raises(InvalidProblem, match=first):
        plan.can_implement(plan.arguments_type(**{**arrays, first: None}))


@samples
def test_a_gpu_that_is_not_there(sample: Sample) -> None:
    plan = sample.plan.select(None, sample.descriptor(), device=br.Device.named("H200"))
    assert plan.sku.backend is br.BackendKind.Bespoke
    assert plan.workspace_size >= 0
    assert plan.selection.trace.candidates
    with pytest.raises(DeviceMismatch, match="not in this machine"):
        plan.prepare()
    with pytest.raises(DeviceMismatch, match="not in this machine"):
        plan.run(None, None, sample.args(**{o.name: None for o in plan.argument_table}))


@samples
@pytest.mark.parametrize("gpu", ["A100", "L40S", "RTX 4090", "H100", "H200", "B200"])
def test_every_gpu_is_served(sample: Sample, gpu: str) -> None:
    for element in FLOATS:
        plan = sample.plan.select(None, sample.descriptor(element), device=br.Device.named(gpu))
        assert plan.variant.source is not None
        assert plan.sku == plan.variant.sku
        assert plan.precision_guarantee == plan.sku.precision_guarantee


@samples
def test_equal_questions_give_the_same_plan_and_the_memo_is_bounded(sample: Sample) -> None:
    from baracuda_registry.plans import base

    first = sample.plan.select(None, sample.descriptor(), device=br.Device.host())
    assert sample.plan.select(None, sample.descriptor(), device=br.Device.host()) is first
    assert base._memo.cache_info().maxsize is not None


@samples
def test_repeated_select_is_fast(sample: Sample) -> None:
    import timeit

    device, desc = br.Device.named("H200"), sample.descriptor()

    def again() -> None:
        sample.plan.select(None, desc, device=device)

    assert min(timeit.repeat(again, number=200, repeat=5)) / 200 < 20e-6


@samples
def test_preferences_that_cannot_be_met(sample: Sample, backend: Any) -> None:
    with pytest.raises(NoVariant, match="prefer_backend is Cudnn"):
        select(sample, backend, pref=br.PlanPreference(prefer_backend=br.BackendKind.Cudnn))
    with pytest.raises(NoVariant, match="does not exist"):
        select(sample, backend, pref=br.PlanPreference(variant="nonsense"))


@samples
def test_labels_are_demanded(sample: Sample, backend: Any) -> None:
    plan = select(
        sample, backend, pref=br.PlanPreference(require_bit_stable=True, require_deterministic=True)
    )
    assert plan.precision_guarantee.bit_stable_on_same_hardware
    assert plan.precision_guarantee.deterministic


@samples
def test_one_plan_from_several_threads(sample: Sample, backend: Any) -> None:
    plan = select(sample, backend)
    wanted = []
    for seed in range(4):
        arrays = arrays_for(backend, plan, seed)
        backends.run(backend, plan, plan.arguments_type(**arrays))
        wanted.append(
            {
                o.name: backend.get(arrays[o.name]).tobytes()
                for o in plan.argument_table
                if o.output and o.present
            }
        )
    work = [(arrays_for(backend, plan, seed), backend.workspace(plan.workspace_size)) for seed in range(4)]
    failures: list[BaseException] = []

    def loop(seed: int) -> None:
        try:
            for _ in range(5):
                plan.run(None, work[seed][1], plan.arguments_type(**work[seed][0]))
                backend.synchronize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(seed,)) for seed in range(4)]
    if backend.name == "cpu":
        for seed in range(
            4
        ):  # the CPU execution is not re-entrant; it is the plan's blocks that threads must not share
            loop(seed)
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures
    for seed, (arrays, _) in enumerate(work):
        for name, bits in wanted[seed].items():
            assert backend.get(arrays[name]).tobytes() == bits


def test_stream_on_the_host_is_refused() -> None:
    sample = SAMPLES[0]
    host = backends.HostBackend()
    plan = select(sample, host)
    arrays = arrays_for(host, plan)
    with pytest.raises(InvalidProblem, match="stream"):
        plan.run(7, None, sample.args(**arrays))


@samples
def test_descriptors_take_names_and_dtypes(sample: Sample) -> None:
    by_name = sample.descriptor("f16")  # type: ignore[arg-type]
    assert by_name == sample.descriptor(ElementKind.F16)
    assert sample.descriptor(np.float16) == by_name  # type: ignore[arg-type]
    assert hash(by_name) == hash(sample.descriptor(ElementKind.F16))


@samples
def test_the_same_bundle_is_checked_again(sample: Sample, backend: Any) -> None:
    """A bundle that passed once is looked at again: its arrays may have changed in place, the workspace may be another."""
    plan = select(sample, backend)
    arrays = arrays_for(backend, plan)
    args = plan.arguments_type(**arrays)
    space = backend.workspace(plan.workspace_size)
    for _ in range(2):
        plan.run(None, space, args)
    if plan.workspace_size:
        with pytest.raises(WorkspaceTooSmall):
            plan.run(None, None, args)
        with pytest.raises(WorkspaceTooSmall):
            plan.run(None, space[:-1], args)
    first = next(o for o in plan.argument_table if o.present)
    _reshape_in_place(arrays[first.name], (int(np.prod(first.shape)), *(1,) * len(first.shape)))
    with pytest.raises(InvalidProblem, match=first.name):
        plan.run(None, space, args)
    _reshape_in_place(arrays[first.name], first.shape)
    plan.run(None, space, args)
    backend.synchronize()


def _reshape_in_place(array: Any, shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy would rather not, but still does
        array.shape = shape


@samples
def test_a_plan_keeps_no_array_alive(sample: Sample, backend: Any) -> None:
    import weakref

    plan = select(sample, backend)
    args = plan.arguments_type(**arrays_for(backend, plan))
    plan.run(None, backend.workspace(plan.workspace_size), args)
    backend.synchronize()
    backend.check_guards()
    kept = weakref.ref(args)
    del args
    assert kept() is None


@pytest.mark.parametrize("element", FLOATS, ids=lambda e: e.value)
def test_three_stage_workspace_is_the_seeds(element: ElementKind) -> None:
    """Exactly 2·N·G values of acc(T), and `max_workspace_bytes` picks among the designs."""
    device = br.Device.named("H200")
    for shape, groups in (((2, 8, 4, 4), 4), ((7, 30, 5), 3), ((3, 64, 56, 56), 32)):
        desc = br.GroupNormBackwardDescriptor(input_shape=shape, num_groups=groups, element=element)
        pin = br.PlanPreference(variant="three_stage_v1")
        pinned = br.GroupNormBackwardPlan.select(None, desc, pin, device=device)
        exact = 2 * shape[0] * groups * element.accumulator.itemsize
        assert pinned.workspace_size == exact
        limited = br.PlanPreference(max_workspace_bytes=exact)
        chosen = br.GroupNormBackwardPlan.select(None, desc, limited, device=device)
        assert chosen.workspace_size <= exact
        less = br.PlanPreference(max_workspace_bytes=exact - 1)
        if np.prod(shape) <= 16384 // element.itemsize:
            # One block takes everything and keeps its sums to itself.
            assert br.GroupNormBackwardPlan.select(None, desc, less, device=device).workspace_size == 0
            continue
        with pytest.raises(NoVariant, match="max_workspace_bytes"):
            br.GroupNormBackwardPlan.select(None, desc, less, device=device)


def test_the_scatter_form_only_when_pinned_and_labelled_as_it_is() -> None:
    device = br.Device.named("H200")
    desc = br.LpPool1dDescriptor(batch=2, channels=3, l_in=16, window=4, stride=2, p=2.0, element="bf16")
    assert br.LpPool1dBackwardPlan.select(None, desc, device=device).precision_guarantee.deterministic
    pinned = br.LpPool1dBackwardPlan.select(
        None, desc, br.PlanPreference(variant="scatter_v1"), device=device
    )
    guarantee = pinned.precision_guarantee
    assert not guarantee.deterministic
    assert not guarantee.bit_stable_on_same_hardware
    strict = br.PlanPreference(variant="scatter_v1", require_deterministic=True)
    with pytest.raises(NoVariant, match="require_deterministic"):
        br.LpPool1dBackwardPlan.select(None, desc, strict, device=device)


def test_equal_descriptor_of_another_type_is_checked_too() -> None:
    fields = {"input_shape": (2, 4, 8), "element": "f32"}
    host = br.Device.host()
    br.GroupNormPlan.select(None, br.GroupNormDescriptor(num_groups=2, **fields), device=host)
    with pytest.raises(InvalidProblem, match="num_groups"):
        br.GroupNormPlan.select(None, br.GroupNormDescriptor(num_groups=2.0, **fields), device=host)
