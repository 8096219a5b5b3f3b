"""Replace the modules of a model in place, where the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import modules


@dataclass(frozen=True)
class Replacement:
    """What `replace_modules` did.

    Attributes:
        replaced: names of the modules that were replaced, with their new types.
        left: names of the modules of these kinds that were left, with the reason.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)}, left {len(self.left)}"]
        lines += [f"  {name or '(the model)'}: now {kind}" for name, kind in self.replaced.items()]
        lines += [f"  {name or '(the model)'}: left, {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


def replace_modules(model: Any) -> Replacement:
    """Make the GroupNorm, InstanceNorm and LPPool1d modules of a model compute through this library, in place.

    A module stays the same object, with its parameters, buffers and hooks; only its class changes.  Left as they are:
    subclasses and modules with a forward of their own, lazy ones before their first call, InstanceNorm with running
    statistics, LPPool1d with ceil_mode or a p that is not even, and pooling of other ranks.

    Args:
        model: any `torch.nn.Module`.

    Returns:
        what was replaced and what was left, and why; prints as a list.
    """
    done = Replacement()
    for name, module in model.named_modules():
        base = next((kind for kind in _REPLACEMENTS if isinstance(module, kind)), None)
        if base is None:
            continue
        new, obstacle = _REPLACEMENTS[base]
        if type(module) is new:
            continue
        reason = _common_obstacle(module, base) or obstacle(module)
        if reason:
            done.left[name] = reason
        else:
            module.__class__ = new
            done.replaced[name] = new.__name__
    return done


def _common_obstacle(module: Any, base: Any) -> str:
    kind = type(module)
    if issubclass(kind, torch.nn.modules.lazy.LazyModuleMixin):
        return f"{kind.__name__} takes its shape from its first input: call it once, then replace"
    if kind is not base:
        return (
            f"{kind.__module__}.{kind.__name__} is a subclass of {base.__name__}, which may compute otherwise"
        )
    if "forward" in vars(module):
        return "it has a forward of its own"
    return ""


def _nothing(module: Any) -> str:
    return ""


def _running(module: Any) -> str:
    return (
        "track_running_stats is True, and running statistics are not kept here"
        if module.track_running_stats
        else ""
    )


def _pool(module: Any) -> str:
    if module.ceil_mode:
        return "ceil_mode is True, and PyTorch rescales the partial window"
    if float(module.norm_type) <= 0 or float(module.norm_type) % 2:
        return f"norm_type is {module.norm_type}, and PyTorch takes signed powers unless it is even"
    return ""


def _other_rank(module: Any) -> str:
    return "there is LP pooling in one dimension only"


_REPLACEMENTS: dict[Any, tuple[Any, Callable[[Any], str]]] = {
    torch.nn.GroupNorm: (modules.GroupNorm, _nothing),
    torch.nn.InstanceNorm1d: (modules.InstanceNorm1d, _running),
    torch.nn.InstanceNorm2d: (modules.InstanceNorm2d, _running),
    torch.nn.InstanceNorm3d: (modules.InstanceNorm3d, _running),
    torch.nn.modules.instancenorm._InstanceNorm: (
        None,
        _nothing,
    ),  # only lazy ones and subclasses come this far
    torch.nn.LPPool1d: (modules.LPPool1d, _pool),
    torch.nn.LPPool2d: (None, _other_rank),
    torch.nn.LPPool3d: (None, _other_rank),
}
