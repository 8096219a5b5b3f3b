"""How the operators `torch.ops.baracuda.*` are defined: schemas, kernels, shapes for tracing, gradients.

They are defined with `torch.library.Library` rather than `custom_op`: its wrappers cost more than a launch.  The kernels
are the functions of `baracuda_registry.functional` below their checks for gradients, so tensors come from PyTorch's
allocator and work goes on PyTorch's current stream: side streams and CUDA graphs need nothing of their own.

An operator's autograd kernel calls the device kernel straight where nothing lies between the two, which the key set
that the dispatcher passes tells; under tracing, functionalization or a mode it redispatches.  The functions that stand
for an operator do without the dispatcher altogether where it has nothing to do (`plain`): its round trip through Python
and back costs the host as much as a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch._C import (
    DispatchKey,
    DispatchKeySet,
    _after_ADInplaceOrView_keyset,
    _AutoDispatchBelowAutograd,
)

from ..errors import InvalidProblem, Unsupported
from ..functional.libraries import library_of

LIBRARY = torch.library.Library("baracuda", "DEF")
"""Owner of the definitions: they live as long as it does."""

TORCH: Any = library_of(torch.empty(0))
_BELOW = _after_ADInplaceOrView_keyset
_PLAIN: dict[int, bool] = {}
"""By the bits of a key set, whether nothing lies between autograd and the device kernel; there are a few such sets."""

_transforming = torch._C._are_functorch_transforms_active
_included, _excluded = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
_keys_of, _modes, _profiled = (
    torch._C._dispatch_keys,
    torch._C._len_torch_function_stack,
    torch.autograd._profiler_enabled,
)


def _surroundings() -> tuple[int, int]:
    """What modes, transforms, autocast and tracing do to every dispatch of this thread."""
    return _included().raw_repr(), _excluded().raw_repr()


def _quiet() -> frozenset[tuple[int, int]]:
    with torch.inference_mode(False):
        usual = _surroundings()
    with torch.inference_mode():
        return frozenset((usual, _surroundings()))


def _key_set(*names: str) -> int:
    keys = DispatchKeySet(getattr(DispatchKey, names[0]))
    for name in names[1:]:
        keys = keys | DispatchKeySet(getattr(DispatchKey, name))
    return int(keys.raw_repr())


_QUIET = _quiet()
"""Surroundings without any mode, usual and in inference mode."""

_DENSE = frozenset(
    _key_set(device, *others, f"Autocast{device}")
    for device in ("CPU", "CUDA")
    for others in (("ADInplaceOrView", f"Autograd{device}"), ())
)
"""Key sets of tensors that are nothing but memory on a device, and of those made in inference mode."""

Kernel = Callable[..., Any]


def define(schema: str, kernel: Kernel, fake: Kernel) -> Any:
    """Define an operator with its kernel for CPU and CUDA and its shapes; returns the overload."""
    name = schema.split("(")[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, kernel, key)
    torch.library.register_fake(f"baracuda::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.baracuda, name).default


def below(keyset: Any, overload: Any, kernel: Kernel, *args: Any) -> Any:
    """What the dispatcher would call below autograd: the kernel itself where that is next."""
    plain = _PLAIN.get(keyset.raw_repr())
    if plain is None:
        plain = (keyset & _BELOW).highestPriorityTypeId() in (DispatchKey.CPU, DispatchKey.CUDA)
        _PLAIN[keyset.raw_repr()] = plain
    if plain:
        return kernel(*args)
    with _AutoDispatchBelowAutograd():
        return overload.redispatch(keyset & _BELOW, *args)


def plain(*tensors: Any) -> bool:
    """Whether the dispatcher would find nothing but autograd between these tensors and the device kernels.

    True for dense tensors on the CPU or a GPU, None among them, without a mode, a transform, autocast, tracing or a
    profiler.
    """
    if (_included().raw_repr(), _excluded().raw_repr()) not in _QUIET or _modes() or _profiled():
        return False
    try:
        for tensor in tensors:
            if tensor is not None and _keys_of(tensor).raw_repr() not in _DENSE:
                return False
    except TypeError:
        return False  # no tensor: the dispatcher says so
    return True


def recording(*tensors: Any) -> bool:
    """Whether autograd records an operation on these tensors."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def applier(function: Any) -> Callable[..., Any]:
    """`function.apply` without its Python half, which serves functorch's transforms and costs 9 of 26 µs."""
    quick = torch._C._FunctionBase.__dict__["apply"].__get__(None, function)

    def apply(*args: Any) -> Any:
        return function.apply(*args) if _transforming() else quick(*args)

    return apply


class Once(torch.autograd.Function):  # type: ignore[misc]
    """Carries a gradient that cannot be differentiated again: says so when someone tries."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Any) -> Any:
        """The first `count` tensors; the others are what they depend on."""
        ctx.name = name
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Refuse."""
        raise Unsupported(
            f"baracuda::{ctx.name} computes a derivative and has none of its own: this library differentiates once"
        )


def derivative(name: str, kernel: Kernel) -> None:
    """Register the autograd kernel of an operator that computes a gradient and has none itself."""
    overload = getattr(torch.ops.baracuda, name).default

    def autograd(keyset: Any, *args: Any) -> Any:
        if not recording(*(a for a in args if isinstance(a, torch.Tensor))):
            return below(keyset, overload, kernel, *args)
        with torch.no_grad():
            result = below(keyset, overload, kernel, *args)
        one = isinstance(result, torch.Tensor)
        results = (result,) if one else tuple(result)
        sources = (a for a in args if isinstance(a, torch.Tensor))
        wrapped = Once.apply(name, len(results), *results, *sources)
        return wrapped[0] if one else wrapped

    LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)


def refuse(name: str, argument: str, instead: str) -> NoReturn:
    """Raise for an argument that asks for a gradient that there is not."""
    raise InvalidProblem(
        f"baracuda::{name}: {argument} requires grad, and there is no gradient for it; {instead}"
    )


def no_gradient(name: str, kernel: Kernel, arguments: tuple[str, ...], instead: str) -> None:
    """Register the autograd kernel of an operator that refuses tensors which ask for a gradient."""
    overload = getattr(torch.ops.baracuda, name).default

    def autograd(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled():
            for argument, value in zip(arguments, args):
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    refuse(name, argument, instead)
        return below(keyset, overload, kernel, *args)

    LIBRARY.impl(name, autograd, "Autograd", with_keyset=True)


def contiguous(*tensors: Any) -> tuple[Any, ...]:
    """C-contiguous forms, as PyTorch's own kernels make them; None stays."""
    return tuple([t if t is None else t.contiguous() for t in tensors])  # a generator would cost twice this
