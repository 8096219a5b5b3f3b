"""Quantize and dequantize by groups, as functions, forward and backward.

Arrays are [..., axis]; scales and zero points [..., axis/group_size]: leading extents are as they come.
"""

from __future__ import annotations

import math
from typing import Any

from ..elements import ElementKind
from ..errors import InvalidProblem, Unsupported
from ..plans.dequantize_per_group import (
    DequantizePerGroupArgs,
    DequantizePerGroupDescriptor,
    DequantizePerGroupPlan,
)
from ..plans.dequantize_per_group_backward import (
    DequantizePerGroupBackwardArgs,
    DequantizePerGroupBackwardDescriptor,
    DequantizePerGroupBackwardPlan,
)
from ..plans.per_group import CODES
from ..plans.quantize_per_group import (
    QuantizePerGroupArgs,
    QuantizePerGroupDescriptor,
    QuantizePerGroupPlan,
)
from ..plans.quantize_per_group_backward import (
    QuantizePerGroupBackwardArgs,
    QuantizePerGroupBackwardDescriptor,
    QuantizePerGroupBackwardPlan,
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

Shape = tuple[int, ...]


def quantize_per_group(
    x: Any,
    scale: Any,
    zero_point: Any,
    group_size: int,
    *,
    dtype: Any = "s8",
    q_min: int | None = None,
    q_max: int | None = None,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """Codes min(max(rn(x / scale) + zero_point, q_min), q_max), with a scale and a zero point for each group.

    Args:
        x: T [..., axis]; T is f32, f64, f16 or bf16; of any library that `group_norm` takes.
        scale: T [..., axis/group_size].
        zero_point: i32 [..., axis/group_size], or None for zeros.
        group_size: elements that share a scale; divides axis.
        dtype: of the codes: s8 or u8, by text or dtype.
        q_min: smallest code; None = the type's.
        q_max: largest code; None = the type's.
        out: [..., axis] of the codes' type, to write and return.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        codes, [..., axis], of x's library and on its device.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `QuantizePerGroupPlan`, which says what is computed to the bit.
    """
    function = "quantize_per_group"
    library = library_of(x, function)
    if library is None:
        options = {"dtype": dtype, "q_min": q_min, "q_max": q_max, "out": out, "copy": copy}
        return through(quantize_per_group, x, scale, zero_point, group_size, **options)
    if library.records():
        refuse_gradients(function, x=x, scale=scale)
    if copy:
        x, scale, zero_point = contiguous(library, x, scale, zero_point)
    return quantized(library, x, scale, zero_point, group_size, dtype, q_min, q_max, out)


def quantize_per_group_backward(
    dy: Any,
    x: Any,
    scale: Any,
    zero_point: Any,
    group_size: int,
    *,
    dtype: Any = "s8",
    q_min: int | None = None,
    q_max: int | None = None,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """Straight-through gradient of `quantize_per_group`: dy / scale where the code did not saturate, else 0.

    Args:
        dy: gradient with respect to the codes, T [..., axis].
        x: the forward's input, T [..., axis].
        scale: the forward's.
        zero_point: the forward's.
        group_size: the forward's.
        dtype: of the forward's codes.
        q_min: the forward's.
        q_max: the forward's.
        out: T [..., axis] to write and return; may be `dy`.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        dx, T [..., axis].

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `QuantizePerGroupBackwardPlan`.
    """
    function = "quantize_per_group_backward"
    library = library_of(x, function)
    if library is None:
        options = {"dtype": dtype, "q_min": q_min, "q_max": q_max, "out": out, "copy": copy}
        return through(quantize_per_group_backward, dy, x, scale, zero_point, group_size, **options)
    if library.records():
        refuse_gradients(function, dy=dy, x=x, scale=scale)
    if copy:
        dy, x, scale, zero_point = contiguous(library, dy, x, scale, zero_point)
    return quantized_gradient(library, dy, x, scale, zero_point, group_size, dtype, q_min, q_max, out)


def dequantize_per_group(
    codes: Any,
    scale: Any,
    zero_point: Any,
    group_size: int,
    *,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """(codes − zero_point) · scale, with a scale and a zero point for each group.

    Args:
        codes: s8 or u8 [..., axis]; of any library that `group_norm` takes.
        scale: T [..., axis/group_size]; T is f32, f64, f16 or bf16.
        zero_point: i32 [..., axis/group_size], or None for zeros.
        group_size: elements that share a scale; divides axis.
        out: T [..., axis] to write and return.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        values, T [..., axis], of the codes' library and on their device.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `DequantizePerGroupPlan`.
    """
    function = "dequantize_per_group"
    library = library_of(codes, function, "codes")
    if library is None:
        return through(dequantize_per_group, codes, scale, zero_point, group_size, out=out, copy=copy)
    if library.records():
        refuse_gradients(function, scale=scale)
    if copy:
        codes, scale, zero_point = contiguous(library, codes, scale, zero_point)
    return dequantized(library, codes, scale, zero_point, group_size, out)


def dequantize_per_group_backward(
    dy: Any,
    scale: Any,
    group_size: int,
    *,
    dtype: Any = "s8",
    out: Any = None,
    copy: bool = False,
) -> Any:
    """Gradient of `dequantize_per_group` with respect to the codes, as if they were real numbers: dy · scale.

    Args:
        dy: gradient with respect to the values, T [..., axis].
        scale: the forward's, T [..., axis/group_size].
        group_size: the forward's.
        dtype: of the forward's codes.
        out: T [..., axis] to write and return; may be `dy`.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        gradient, T [..., axis].

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `DequantizePerGroupBackwardPlan`.
    """
    function = "dequantize_per_group_backward"
    library = library_of(dy, function, "dy")
    if library is None:
        options = {"dtype": dtype, "out": out, "copy": copy}
        return through(dequantize_per_group_backward, dy, scale, group_size, **options)
    if library.records():
        refuse_gradients(function, dy=dy, scale=scale)
    if copy:
        dy, scale = contiguous(library, dy, scale)
    return dequantized_gradient(library, dy, scale, group_size, dtype, out)


def quantized(
    library: Library,
    x: Any,
    scale: Any,
    zero_point: Any,
    group_size: int,
    dtype: Any,
    q_min: int | None,
    q_max: int | None,
    out: Any = None,
) -> Any:
    """`quantize_per_group` of arrays of a library."""
    function = "quantize_per_group"
    place = library.place(x)
    ready, full, groups = _prepare(
        function, library, place, x.shape, x.dtype, group_size, dtype, q_min, q_max
    )
    if zero_point is None:
        zero_point = library.full(groups, 0, library.dtype(ElementKind.I32), place)
    result = library.like(ready.templates[0]) if out is None else out
    arrays = (
        ("x", x, full),
        ("scale", scale, groups),
        ("zero_point", zero_point, groups),
        ("out", result, full),
    )
    x, scale, zero_point, codes = _matrices(function, library, ready.views, arrays)
    args = bundle(QuantizePerGroupArgs, input=x, scale=scale, zero_point=zero_point, output=codes)
    launch(function, _NAMES[function], library, ready, args)
    return result


def quantized_gradient(
    library: Library,
    dy: Any,
    x: Any,
    scale: Any,
    zero_point: Any,
    group_size: int,
    dtype: Any,
    q_min: int | None,
    q_max: int | None,
    out: Any = None,
) -> Any:
    """`quantize_per_group_backward` of arrays of a library."""
    function = "quantize_per_group_backward"
    place = library.place(x)
    ready, full, groups = _prepare(
        function, library, place, x.shape, x.dtype, group_size, dtype, q_min, q_max
    )
    if zero_point is None:
        zero_point = library.full(groups, 0, library.dtype(ElementKind.I32), place)
    result = library.like(ready.templates[0]) if out is None else out
    arrays = (
        ("x", x, full),
        ("scale", scale, groups),
        ("zero_point", zero_point, groups),
        ("dy", dy, full),
        ("out", result, full),
    )
    x, scale, zero_point, dy, dx = _matrices(function, library, ready.views, arrays)
    args = bundle(
        QuantizePerGroupBackwardArgs, input=x, scale=scale, zero_point=zero_point, d_output=dy, d_input=dx
    )
    launch(function, _NAMES[function], library, ready, args)
    return result


def dequantized(
    library: Library, codes: Any, scale: Any, zero_point: Any, group_size: int, out: Any = None
) -> Any:
    """`dequantize_per_group` of arrays of a library."""
    function = "dequantize_per_group"
    place = library.place(codes)
    dtype = getattr(scale, "dtype", None)
    ready, full, groups = _prepare(
        function, library, place, codes.shape, dtype, group_size, codes.dtype, None, None
    )
    if zero_point is None:
        zero_point = library.full(groups, 0, library.dtype(ElementKind.I32), place)
    result = library.like(ready.templates[0]) if out is None else out
    arrays = (
        ("codes", codes, full),
        ("scale", scale, groups),
        ("zero_point", zero_point, groups),
        ("out", result, full),
    )
    codes, scale, zero_point, values = _matrices(function, library, ready.views, arrays)
    args = bundle(DequantizePerGroupArgs, input=codes, scale=scale, zero_point=zero_point, output=values)
    launch(function, _NAMES[function], library, ready, args)
    return result


def dequantized_gradient(
    library: Library, dy: Any, scale: Any, group_size: int, dtype: Any, out: Any = None
) -> Any:
    """`dequantize_per_group_backward` of arrays of a library."""
    function = "dequantize_per_group_backward"
    place = library.place(dy)
    ready, full, groups = _prepare(
        function, library, place, dy.shape, dy.dtype, group_size, dtype, None, None
    )
    result = library.like(ready.templates[0]) if out is None else out
    arrays = (("dy", dy, full), ("scale", scale, groups), ("out", result, full))
    dy, scale, gradient = _matrices(function, library, ready.views, arrays)
    args = bundle(DequantizePerGroupBackwardArgs, d_output=dy, scale=scale, d_input=gradient)
    launch(function, _NAMES[function], library, ready, args)
    return result


_COMMON = {"axis_size": "the last extent", "outer_size": "the product of leading extents"}
_TYPES = {"input_element": "x's dtype", "output_element": "dtype"}
_NAMES = {
    "quantize_per_group": {**_COMMON, **_TYPES, "input": "x", "output": "out"},
    "quantize_per_group_backward": {
        **_COMMON,
        **_TYPES,
        "input": "x",
        "d_output": "dy",
        "d_input": "out",
    },
    "dequantize_per_group": {
        **_COMMON,
        "input_element": "scale's dtype",
        "output_element": "the codes' dtype",
        "input": "codes",
        "output": "out",
    },
    "dequantize_per_group_backward": {
        **_COMMON,
        "input_element": "dy's dtype",
        "output_element": "dtype",
        "d_output": "dy",
        "d_input": "out",
    },
}
_PLANS = {
    "quantize_per_group": (QuantizePerGroupPlan, QuantizePerGroupDescriptor),
    "quantize_per_group_backward": (QuantizePerGroupBackwardPlan, QuantizePerGroupBackwardDescriptor),
    "dequantize_per_group": (DequantizePerGroupPlan, DequantizePerGroupDescriptor),
    "dequantize_per_group_backward": (
        DequantizePerGroupBackwardPlan,
        DequantizePerGroupBackwardDescriptor,
    ),
}


@remembered
def _prepare(
    function: str,
    library: Library,
    place: Any,
    shape: Any,
    dtype: Any,
    group_size: Any,
    codes: Any,
    q_min: Any,
    q_max: Any,
) -> tuple[Prepared, Shape, Shape]:
    """The problem, and the shapes of tensors and scales as plans see them."""
    if len(shape) == 0:
        raise InvalidProblem(f"{function}: x has shape (), want [..., axis]")
    names = _NAMES[function]
    element = element_of(function, names["input_element"].split("'")[0], dtype)
    try:
        kind = ElementKind.of(codes)
    except Unsupported:
        raise Unsupported(f"{function}: dtype is {codes!r}, want s8 or u8") from None
    plan, descriptor = _PLANS[function]
    problem: dict[str, Any] = {
        "outer_size": math.prod(shape[:-1]),
        "axis_size": shape[-1],
        "group_size": group_size,
        "input_element": element,
        "output_element": kind,
    }
    if function.startswith("quantize"):
        low, high = CODES.get(kind, (0, 0))
        problem["q_min"] = low if q_min is None else q_min
        problem["q_max"] = high if q_max is None else q_max
    result = kind if function == "quantize_per_group" else element
    ready = prepare(
        function, names, library, place, plan, lambda: descriptor(**problem), lambda _: ((shape, result),)
    )
    full = (problem["outer_size"], problem["axis_size"])
    return ready, full, (full[0], ready.plan.descriptor.num_groups)


def _matrices(
    function: str, library: Library, views: bool, arrays: tuple[tuple[str, Any, Shape], ...]
) -> tuple[Any, ...]:
    """The arrays as matrices, as plans take them; absent ones stay None, for the plan to refuse."""
    flat = tuple(
        value if value is None else same_memory(function, library, name, value, shape)
        for name, value, shape in arrays
    )
    if not views:
        return flat
    return tuple(library.read(name, value) for (name, _, _), value in zip(arrays, flat))
