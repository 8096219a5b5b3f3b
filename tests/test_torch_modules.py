"""Modules in the place of PyTorch's: checkpoints, replacement, and networks that train as they did."""

from __future__ import annotations

import copy
import re
import warnings
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br

from .torch_cases import close, devices, torch

bt = pytest.importorskip("baracuda_registry.torch")
network = pytest.importorskip("benchmarks.network")
nn = torch.nn


def train(model: Any, x: Any, target: Any, steps: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def trains_alike(model: Any, x: Any, target: Any, replaced: int, dtype: Any, steps: int = 4) -> None:
    """The same losses and parameters after steps of training as with PyTorch's modules.

    The convolutions of both take the same sums in the same order: on a GPU without TF32 and deterministic.
    """
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        _trains_alike(model, x, target, replaced, dtype, steps)


def _trains_alike(model: Any, x: Any, target: Any, replaced: int, dtype: Any, steps: int) -> None:
    twin = copy.deepcopy(model)
    names = list(model.state_dict())
    done = bt.replace_modules(model)
    assert len(done.replaced) == replaced
    assert list(model.state_dict()) == names
    close(model(x), twin(x), 8.0)
    ours, theirs = (train(m, x, target, steps) for m in (model, twin))
    tolerance = 1e-9 if dtype is torch.float64 else 2e-4
    np.testing.assert_allclose(ours, theirs, rtol=tolerance)
    assert ours[-1] < ours[0]
    for one, other in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_denoising_unet_trains_as_with_pytorchs_modules(device: str, dtype: Any) -> None:
    torch.manual_seed(0)
    model = network.Denoiser(width=8, groups=4).to(device, dtype)
    x, target = (torch.randn(2, 4, 16, 16, device=device, dtype=dtype) for _ in range(2))
    trains_alike(model, x, target, replaced=15, dtype=dtype)


@devices
@pytest.mark.filterwarnings("ignore")
def test_networks_of_monai_train_alike(device: str) -> None:
    """Networks that others wrote: MONAI's U-Net (InstanceNorm) and its diffusion U-Net (GroupNorm)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(0)
    unet = nets.UNet(
        spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8, 8), strides=(2, 2), num_res_units=1
    ).to(device, torch.float64)
    x, target = (torch.randn(2, 1, 16, 16, device=device, dtype=torch.float64) for _ in range(2))
    kinds = [type(m) for m in unet.modules()]
    trains_alike(unet, x, target, replaced=kinds.count(nn.InstanceNorm2d), dtype=torch.float64)

    class Timed(nn.Module):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return self.net(x, torch.arange(x.shape[0], device=x.device))

    diffusion = Timed(
        nets.DiffusionModelUNet(
            spatial_dims=2,
            in_channels=1,
            out_channels=1,
            channels=(8, 8),
            attention_levels=(False, True),
            num_res_blocks=1,
            norm_num_groups=4,
            num_head_channels=4,
        )
    ).to(device, torch.float64)
    for parameter in diffusion.parameters():
        nn.init.normal_(
            parameter, std=0.2
        )  # its last convolution is made of zeros, which would hide everything
    kinds = [type(m) for m in diffusion.modules()]
    assert kinds.count(nn.GroupNorm) > 10
    trains_alike(diffusion, x, target, replaced=kinds.count(nn.GroupNorm), dtype=torch.float64, steps=2)


# Replacement ---------------------------------------------------------------------------------------------------------


class Own(nn.GroupNorm):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 2


def test_what_is_replaced_and_what_is_left_and_why() -> None:
    patched = nn.GroupNorm(2, 4)
    patched.forward = lambda x: x  # type: ignore[method-assign]
    model = nn.ModuleDict(
        {
            "gn": nn.GroupNorm(2, 4),
            "in1": nn.InstanceNorm1d(4, affine=True),
            "in2": nn.InstanceNorm2d(4),
            "in3": nn.InstanceNorm3d(4, eps=1e-3),
            "even": nn.LPPool1d(4.0, 3),
            "running": nn.InstanceNorm2d(4, track_running_stats=True),
            "odd": nn.LPPool1d(3, 3),
            "fraction": nn.LPPool1d(1.5, 3),
            "ceil": nn.LPPool1d(2, 3, ceil_mode=True),
            "plane": nn.LPPool2d(2, 3),
            "lazy": nn.LazyInstanceNorm1d(),
            "own": Own(2, 4),
            "patched": patched,
            "other": nn.BatchNorm2d(4),
        }
    )
    before = {name: (module, type(module)) for name, module in model.items()}
    done = bt.replace_modules(model)
    assert done.replaced == {
        "gn": "GroupNorm",
        "in1": "InstanceNorm1d",
        "in2": "InstanceNorm2d",
        "in3": "InstanceNorm3d",
        "even": "LPPool1d",
    }
    reasons = {
        "running": "track_running_stats is True",
        "odd": "norm_type is 3, .*signed powers",
        "fraction": "norm_type is 1.5, .*signed powers",
        "ceil": "ceil_mode is True, .*rescales",
        "plane": "one dimension only",
        "lazy": "call it once",
        "own": "subclass of GroupNorm",
        "patched": "a forward of its own",
    }
    assert set(done.left) == set(reasons)
    for name, words in reasons.items():
        assert re.search(words, done.left[name])
        assert f"{name}: left, {done.left[name]}" in str(done)
    for name, (module, kind) in before.items():
        assert model[name] is module
        assert type(module) is (getattr(bt, done.replaced[name]) if name in done.replaced else kind)
    assert str(done).startswith("replaced 5, left 8")
    assert bt.replace_modules(model).replaced == {}


def test_the_model_itself_can_be_one() -> None:
    model = nn.GroupNorm(2, 4)
    assert bt.replace_modules(model).replaced == {"": "GroupNorm"}
    assert type(model) is bt.GroupNorm


def test_hooks_parameters_and_checkpoints_stay() -> None:
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4))
    seen: list[Any] = []
    model[1].register_forward_hook(lambda module, args, result: seen.append(type(module)))
    weight, state = model[1].weight, copy.deepcopy(model.state_dict())
    bt.replace_modules(model)
    assert model[1].weight is weight
    x = torch.randn(2, 3, 8)
    model(x)
    assert seen == [bt.GroupNorm]
    assert model.load_state_dict(state, strict=True)
    twin = nn.Sequential(nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4))
    twin.load_state_dict(model.state_dict(), strict=True)
    close(model(x), twin(x))
    assert repr(model[1]) == repr(twin[1])
    close(copy.deepcopy(model)(x), model(x))


def test_running_statistics_are_refused_by_the_constructor() -> None:
    for kind in (bt.InstanceNorm1d, bt.InstanceNorm2d, bt.InstanceNorm3d):
        with pytest.raises(br.Unsupported, match=f"{kind.__name__}: track_running_stats is True"):
            kind(4, track_running_stats=True)
    module = bt.InstanceNorm1d(4)
    module.track_running_stats = True
    with pytest.raises(br.Unsupported, match="track_running_stats"):
        module(torch.ones(2, 4, 3))


def test_pooling_differs_from_pytorchs_where_it_says_so() -> None:
    x = torch.tensor([[[-1.0, -2.0, 3.0, 1.0, 2.0]]])
    ours, theirs = bt.LPPool1d(3, 2, ceil_mode=True), nn.LPPool1d(3, 2, ceil_mode=True)
    want = torch.tensor([[[9.0 ** (1 / 3), 28.0 ** (1 / 3), 2.0]]])  # absolute values, no rescaling
    close(ours(x), want)
    assert not torch.allclose(theirs(x), want)


# Fake quantization ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (0, 255), (-8, 7)])
def test_fake_quantization_covers_the_values_it_was_made_for(low: int, high: int) -> None:
    values = torch.randn(6, 32) * torch.logspace(-3, 3, 6)[:, None]
    values[2] = 0
    values[3] = values[3].abs() + 1
    module = bt.FakeQuantizePerGroup.of(values, 8, low, high)
    assert set(module.state_dict()) == {"scale", "zero_point"}
    assert module.zero_point.dtype is torch.int32
    got = module(values)
    step = module.scale.repeat_interleave(8, -1)
    assert bool(((got - values).abs() <= step * 1.001).all())
    other = bt.FakeQuantizePerGroup(torch.ones(6, 4), group_size=8, quant_min=low, quant_max=high)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(values), got)
    x = values.clone().requires_grad_()
    (dx,) = torch.autograd.grad(module(x).sum(), x)
    assert bool(((dx == 1) | (dx == 0)).all())
    assert "group_size=8" in repr(module)


def test_fake_quantization_refuses_what_does_not_fit() -> None:
    with pytest.raises(br.InvalidProblem, match="group_size is 5, want a divisor of the last extent 8"):
        bt.FakeQuantizePerGroup.of(torch.ones(2, 8), 5)
    with pytest.raises(br.InvalidProblem, match="zero_point has shape"):
        bt.FakeQuantizePerGroup(torch.ones(2, 2), torch.zeros(2, dtype=torch.int32), group_size=4)
