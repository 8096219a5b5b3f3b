"""Against cases that PyTorch's own tests have: the sample and error inputs of its operator and module tables."""

from __future__ import annotations

from typing import Any

import pytest

from baracuda_registry.errors import BaracudaError

from .torch_cases import close, devices, dtypes, tables, torch

bt = pytest.importorskip("baracuda_registry.torch")
OPERATORS, MODULES = tables()


def operator(name: str) -> Any:
    found = [info for info in OPERATORS if info.name == name]
    if not found:
        pytest.skip(f"PyTorch {torch.__version__} has no {name} in its table")
    return found[0]


def samples(name: str, device: str, dtype: Any) -> Any:
    drawn = list(operator(name).sample_inputs(device, dtype, requires_grad=True))
    assert drawn
    return drawn


def both_ways(ours: Any, theirs: Any, tensors: list[Any]) -> None:
    """The same results and gradients."""
    inputs = [t for t in tensors if isinstance(t, torch.Tensor) and t.requires_grad]
    got, want = ours(), theirs()
    close(got, want)
    dy = torch.randn_like(want.contiguous())
    for one, other in zip(
        torch.autograd.grad(got, inputs, dy), torch.autograd.grad(want, inputs, dy), strict=True
    ):
        close(one, other, 8.0)


@devices
@dtypes
def test_group_norm_samples(device: str, dtype: Any) -> None:
    refused = 0
    for sample in samples("nn.functional.group_norm", device, dtype):
        x, groups, options = sample.input, *sample.args, sample.kwargs
        if options.get("eps", 1e-5) < 0:
            # PyTorch takes a negative eps; here it is refused, because the variance may cancel it.
            with pytest.raises(BaracudaError, match=r"eps is -0\.5"):
                bt.group_norm(x, groups, **options)
            refused += 1
            continue
        both_ways(
            lambda x=x, groups=groups, options=options: bt.group_norm(x, groups, **options),
            lambda x=x, groups=groups, options=options: torch.nn.functional.group_norm(x, groups, **options),
            [x, *options.values()],
        )
    assert refused


@devices
@dtypes
def test_native_group_norm_samples(device: str, dtype: Any) -> None:
    for sample in samples("native_group_norm", device, dtype):
        x = sample.input
        weight, bias, batch, _, _, groups, eps = sample.args
        if eps < 0:
            continue
        got = torch.ops.baracuda.group_norm(x, groups, weight, bias, eps)
        want = torch.native_group_norm(x, *sample.args)
        close(got[0], want[0])
        if x.numel():
            for one, other in zip(got[1:], want[1:]):
                assert one.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
                wide = other.to(one.dtype)
                torch.testing.assert_close(one.reshape(batch, groups), wide, rtol=1e-2, atol=1e-2)


@devices
@dtypes
def test_instance_norm_samples(device: str, dtype: Any) -> None:
    for sample in samples("nn.functional.instance_norm", device, dtype):
        x, options = sample.input, dict(sample.kwargs)
        ours = {k: v for k, v in options.items() if k in ("weight", "bias", "eps")}
        both_ways(
            lambda x=x, ours=ours: bt.instance_norm(x, **ours),
            lambda x=x, options=options: torch.nn.functional.instance_norm(x, **options),
            [x, *ours.values()],
        )


@devices
def test_group_norm_error_inputs(device: str) -> None:
    errors = list(operator("nn.functional.group_norm").error_inputs(device))
    assert errors
    for error in errors:
        sample = error.sample_input
        with pytest.raises(error.error_type):
            torch.nn.functional.group_norm(sample.input, *sample.args, **sample.kwargs)
        with pytest.raises(BaracudaError):
            bt.group_norm(sample.input, *sample.args, **sample.kwargs)


def module_cases() -> list[Any]:
    cases = []
    for info in MODULES:
        name = info.name.removeprefix("nn.")
        if hasattr(bt, name):
            cases += [
                pytest.param(name, index, id=f"{name}-{index}")
                for index, _ in enumerate(
                    info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=True)
                )
            ]
    return cases


MODULE_CASES = module_cases()


def test_the_module_table_has_our_modules() -> None:
    assert {case.values[0] for case in MODULE_CASES} == {
        "GroupNorm",
        "InstanceNorm1d",
        "InstanceNorm2d",
        "InstanceNorm3d",
        "LPPool1d",
    }


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "index"), MODULE_CASES)
def test_module_inputs(name: str, index: int, device: str, dtype: Any) -> None:
    (info,) = [info for info in MODULES if info.name == f"nn.{name}"]
    case = list(info.module_inputs_func(info, device, dtype, requires_grad=True, training=True))[index]
    args, options = case.constructor_input.args, dict(case.constructor_input.kwargs)
    place = {} if name == "LPPool1d" else {"device": device, "dtype": dtype}
    theirs = getattr(torch.nn, name)(*args, **options, **place)
    if getattr(theirs, "track_running_stats", False):
        with pytest.raises(BaracudaError, match="track_running_stats is True"):
            getattr(bt, name)(*args, **options, **place)
        return
    ours = getattr(bt, name)(*args, **options, **place)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    (x,) = case.forward_input.args
    if name == "LPPool1d" and theirs.norm_type % 2:
        x = x.detach().abs().requires_grad_()  # PyTorch's powers are signed, ours are of the absolute value
    for training in (True, False):
        ours.train(training)
        theirs.train(training)
        pairs = list(zip(ours.parameters(), theirs.parameters(), strict=True))
        got, want = ours(x), theirs(x)
        close(got, want)
        dy = torch.randn_like(want)
        close(
            torch.autograd.grad(got, x, dy, retain_graph=True)[0],
            torch.autograd.grad(want, x, dy, retain_graph=True)[0],
            8.0,
        )
        if pairs:
            mine = torch.autograd.grad(got, [p for p, _ in pairs], dy)
            yours = torch.autograd.grad(want, [p for _, p in pairs], dy)
            for one, other in zip(mine, yours):
                close(one, other, 8.0)


@devices
def test_group_norm_module_error_inputs(device: str) -> None:
    (info,) = [info for info in MODULES if info.name == "nn.GroupNorm"]
    errors = list(
        info.module_error_inputs_func(info, device, torch.float32, requires_grad=False, training=True)
    )
    assert errors
    for error in errors:
        case = error.module_error_input

        def run(namespace: Any, case: Any = case) -> None:
            module = namespace.GroupNorm(*case.constructor_input.args, **case.constructor_input.kwargs).to(
                device
            )
            module(*case.forward_input.args)

        for namespace, kinds in ((torch.nn, error.error_type), (bt, (BaracudaError, error.error_type))):
            with pytest.raises(kinds):
                run(namespace)
