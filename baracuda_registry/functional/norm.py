"""GroupNorm and InstanceNorm as functions, forward and backward.

The plain forms return y, as `torch.nn.functional` has it; the forms `_with_stats` also return what the backward needs.
`weight` and `bias` may each be missing: the kernels have both or neither, so the missing one is made of ones or zeros.
"""

from __future__ import annotations

import math
from typing import Any

from ..elements import ElementKind
from ..errors import InvalidProblem
from ..plans.group_norm import GroupNormArgs, GroupNormDescriptor, GroupNormPlan
from ..plans.group_norm_backward import (
    OUTPUTS,
    GroupNormBackwardArgs,
    GroupNormBackwardDescriptor,
    GroupNormBackwardPlan,
)
from ..plans.instance_norm import InstanceNormArgs, InstanceNormDescriptor, InstanceNormPlan
from ..plans.instance_norm_backward import (
    InstanceNormBackwardArgs,
    InstanceNormBackwardDescriptor,
    InstanceNormBackwardPlan,
)
from .calls import (
    Prepared,
    bundle,
    contiguous,
    element_of,
    launch,
    prepare,
    refuse_gradients,
    remembered,
    same_memory,
)
from .libraries import Library, library_of, through

_NAMES = {
    "gamma": "weight",
    "beta": "bias",
    "y": "out",
    "saved_mean": "mean",
    "saved_rstd": "rstd",
    "dx": "out",
    "input_shape": "x's shape",
    "element": "x's dtype",
}


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """y = (x − mean) · rstd · weight_c + bias_c over groups of C/num_groups channels of a sample.

    Args:
        x: T [N, C, ...], rank 2 to 8; T is f32, f64, f16 or bf16.  A NumPy, CuPy or PyTorch array, or any that speaks
            DLPack or `__cuda_array_interface__`.
        num_groups: groups a sample; divides C.
        weight: T [C], or None for ones.
        bias: T [C], or None for zeros.
        eps: added to the variance.
        out: T [N, C, ...] to write and return; may be `x`.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        y, T [N, C, ...]: of x's library, on its device, C-contiguous; enqueued on that library's current stream.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `torch.nn.functional.group_norm`; `GroupNormPlan` says what is computed and how accurately.
    """
    library = library_of(x, "group_norm")
    if library is None:
        return through(group_norm, x, num_groups, weight, bias, eps, out=out, copy=copy)
    if library.records():
        refuse_gradients("group_norm", x=x, weight=weight, bias=bias)
    return normalise("group_norm", library, x, num_groups, weight, bias, eps, out, copy)[0]


def group_norm_with_stats(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
    copy: bool = False,
) -> tuple[Any, Any, Any]:
    """`group_norm`, with the statistics that `group_norm_backward` takes.

    Returns:
        y, T [N, C, ...]; mean and rstd = 1/√(var + eps) of each group, acc(T) [N, num_groups]: f64 for f64, else f32.
        Without elements the statistics are NaN.

    Source: `torch.native_group_norm`.
    """
    library = library_of(x, "group_norm_with_stats")
    if library is None:
        options = {"out": out, "copy": copy}
        return through(group_norm_with_stats, x, num_groups, weight, bias, eps, **options)  # type: ignore[no-any-return]
    if library.records():
        refuse_gradients("group_norm_with_stats", x=x, weight=weight, bias=bias)
    y, mean, rstd = normalise("group_norm_with_stats", library, x, num_groups, weight, bias, eps, out, copy)
    shape = (x.shape[0], num_groups)
    return y, mean.reshape(shape), rstd.reshape(shape)


def group_norm_backward(
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    num_groups: int,
    weight: Any = None,
    output_mask: tuple[bool, bool, bool] | None = None,
    *,
    out: Any = None,
    copy: bool = False,
) -> tuple[Any, Any, Any]:
    """Gradients of `group_norm` with respect to x, weight and bias.

    Args:
        dy: gradient with respect to y, T [N, C, ...].
        x: the forward's input.
        mean: of `group_norm_with_stats`, [N, num_groups] or flat.
        rstd: of `group_norm_with_stats`, [N, num_groups] or flat.
        num_groups: groups a sample.
        weight: the forward's, T [C] or None.
        output_mask: which of the three to compute; default dx, and the other two where there is a weight.
        out: T [N, C, ...] for dx; may be `dy`.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        dx, T [N, C, ...]; dweight, T [C]; dbias, T [C]; None for what is not asked for.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `torch.ops.aten.native_group_norm_backward`; `GroupNormBackwardPlan` says what is computed.
    """
    library = library_of(x, "group_norm_backward")
    if library is None:
        arguments = (x, mean, rstd, num_groups, weight, output_mask)
        return through(group_norm_backward, dy, *arguments, out=out, copy=copy)  # type: ignore[no-any-return]
    if library.records():
        refuse_gradients("group_norm_backward", dy=dy, x=x, weight=weight)
    function = "group_norm_backward"
    return gradients(function, library, dy, x, mean, rstd, num_groups, weight, output_mask, out, copy)


def instance_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """`group_norm` with one channel a group: every channel of every sample is normalised by itself.

    Source: `torch.nn.functional.instance_norm` with use_input_stats=True.
    """
    library = library_of(x, "instance_norm")
    if library is None:
        return through(instance_norm, x, weight, bias, eps, out=out, copy=copy)
    if library.records():
        refuse_gradients("instance_norm", x=x, weight=weight, bias=bias)
    return normalise("instance_norm", library, x, None, weight, bias, eps, out, copy)[0]


def instance_norm_with_stats(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
    copy: bool = False,
) -> tuple[Any, Any, Any]:
    """`instance_norm`, with the statistics that `instance_norm_backward` takes, acc(T) [N, C]."""
    library = library_of(x, "instance_norm_with_stats")
    if library is None:
        options = {"out": out, "copy": copy}
        return through(instance_norm_with_stats, x, weight, bias, eps, **options)  # type: ignore[no-any-return]
    if library.records():
        refuse_gradients("instance_norm_with_stats", x=x, weight=weight, bias=bias)
    y, mean, rstd = normalise("instance_norm_with_stats", library, x, None, weight, bias, eps, out, copy)
    shape = tuple(x.shape[:2])
    return y, mean.reshape(shape), rstd.reshape(shape)


def instance_norm_backward(
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any = None,
    output_mask: tuple[bool, bool, bool] | None = None,
    *,
    out: Any = None,
    copy: bool = False,
) -> tuple[Any, Any, Any]:
    """Gradients of `instance_norm`: `group_norm_backward` with one channel a group."""
    library = library_of(x, "instance_norm_backward")
    if library is None:
        arguments = (x, mean, rstd, weight, output_mask)
        return through(instance_norm_backward, dy, *arguments, out=out, copy=copy)  # type: ignore[no-any-return]
    if library.records():
        refuse_gradients("instance_norm_backward", dy=dy, x=x, weight=weight)
    function = "instance_norm_backward"
    return gradients(function, library, dy, x, mean, rstd, None, weight, output_mask, out, copy)


_FORWARD = {
    False: (GroupNormPlan, GroupNormDescriptor, GroupNormArgs),
    True: (InstanceNormPlan, InstanceNormDescriptor, InstanceNormArgs),
}
_BACKWARD = {
    False: (GroupNormBackwardPlan, GroupNormBackwardDescriptor, GroupNormBackwardArgs),
    True: (InstanceNormBackwardPlan, InstanceNormBackwardDescriptor, InstanceNormBackwardArgs),
}
"""Plan, descriptor and arguments, by whether every channel is a group."""


@remembered
def _prepare_forward(
    function: str, library: Library, place: Any, shape: Any, dtype: Any, groups: Any, eps: Any, affine: bool
) -> tuple[Prepared, bool, Any]:
    """The problem, whether it is empty, and the arguments' type."""
    element = element_of(function, "x", dtype)
    plan, descriptor, arguments = _FORWARD[groups is None]
    problem = {"input_shape": shape, "eps": eps, "has_affine": affine, "element": element}
    if groups is not None:
        problem["num_groups"] = groups
    ready = prepare(function, _NAMES, library, place, plan, lambda: descriptor(**problem), _results)
    return ready, 0 in shape, arguments


def _results(desc: Any) -> tuple[tuple[Any, ElementKind], ...]:
    """The tensor, a statistic, a vector of channels."""
    shape, element = desc.input_shape, desc.element
    return (shape, element), ((shape[0] * desc.num_groups,), element.accumulator), (shape[1:2], element)


def normalise(
    function: str,
    library: Library,
    x: Any,
    groups: int | None,
    weight: Any,
    bias: Any,
    eps: float,
    out: Any = None,
    copy: bool = False,
) -> tuple[Any, Any, Any]:
    """y and flat mean and rstd, for a function of this name; `groups` None means one a channel."""
    if copy:
        x, weight, bias = contiguous(library, x, weight, bias)
    place, shape, dtype = library.place(x), x.shape, x.dtype
    affine = weight is not None or bias is not None
    ready, empty, arguments = _prepare_forward(function, library, place, shape, dtype, groups, eps, affine)
    if affine and (weight is None or bias is None):
        weight = library.full(shape[1:2], 1, dtype, place) if weight is None else weight
        bias = library.full(shape[1:2], 0, dtype, place) if bias is None else bias
    tensor, statistic, _ = ready.templates
    y = library.like(tensor) if out is None else out
    mean, rstd = library.like(statistic), library.like(statistic)
    if ready.views:
        read = library.read
        args = bundle(
            arguments,
            x=read("x", x),
            y=read("out", y),
            saved_mean=read("mean", mean),
            saved_rstd=read("rstd", rstd),
            gamma=read("weight", weight),
            beta=read("bias", bias),
        )
    else:
        args = bundle(arguments, x=x, y=y, saved_mean=mean, saved_rstd=rstd, gamma=weight, beta=bias)
    launch(function, _NAMES, library, ready, args)
    if empty:
        mean[...] = math.nan
        rstd[...] = math.nan
    return y, mean, rstd


@remembered
def _prepare_backward(
    function: str, library: Library, place: Any, shape: Any, dtype: Any, groups: Any, affine: bool, mask: Any
) -> tuple[Prepared, int, Any]:
    """The problem, the number of statistics, and the arguments' type."""
    element = element_of(function, "x", dtype)
    if len(mask) != 3 or not any(mask):
        raise InvalidProblem(f"{function}: output_mask is {mask}, want three bools, one of them true")
    plan, descriptor, arguments = _BACKWARD[groups is None]
    outputs = tuple(name for name, wanted in zip(OUTPUTS, mask) if wanted)
    problem = {"input_shape": shape, "has_affine": affine, "element": element, "outputs": outputs}
    if groups is not None:
        problem["num_groups"] = groups
    ready = prepare(function, _NAMES, library, place, plan, lambda: descriptor(**problem), _results)
    return ready, shape[0] * ready.plan.descriptor.num_groups, arguments


def gradients(
    function: str,
    library: Library,
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    groups: int | None,
    weight: Any,
    mask: tuple[bool, bool, bool] | None,
    out: Any = None,
    copy: bool = False,
) -> tuple[Any, Any, Any]:
    """dx, dweight and dbias, None where not wanted, for a function of this name."""
    if copy:
        dy, x, mean, rstd, weight = contiguous(library, dy, x, mean, rstd, weight)
    given = weight is not None
    wanted = (True, given, given) if mask is None else tuple(mask)
    place, shape, dtype = library.place(x), x.shape, x.dtype
    affine = given or wanted[1] or wanted[2]
    ready, count, arguments = _prepare_backward(
        function, library, place, shape, dtype, groups, affine, wanted
    )
    if out is not None and not wanted[0]:
        raise InvalidProblem(f"{function}: out is given, want None (output_mask leaves dx out)")
    if affine and weight is None:
        weight = library.full(shape[1:2], 1, dtype, place)
    tensor, _, vector = ready.templates
    dx = dgamma = dbeta = None
    if wanted[0]:
        dx = library.like(tensor) if out is None else out
    if wanted[1]:
        dgamma = library.like(vector)
    if wanted[2]:
        dbeta = library.like(vector)
    mean = same_memory(function, library, "mean", mean, (count,))
    rstd = same_memory(function, library, "rstd", rstd, (count,))
    if ready.views:
        read = library.read
        args = bundle(
            arguments,
            dy=read("dy", dy),
            x=read("x", x),
            saved_mean=read("mean", mean),
            saved_rstd=read("rstd", rstd),
            dx=read("out", dx),
            gamma=read("weight", weight),
            dgamma=read("dweight", dgamma),
            dbeta=read("dbias", dbeta),
        )
    else:
        args = bundle(
            arguments,
            dy=dy,
            x=x,
            saved_mean=mean,
            saved_rstd=rstd,
            dx=dx,
            gamma=weight,
            dgamma=dgamma,
            dbeta=dbeta,
        )
    launch(function, _NAMES, library, ready, args)
    return dx, dgamma, dbeta
