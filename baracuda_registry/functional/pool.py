"""LP pooling in one dimension as functions, forward and backward."""

from __future__ import annotations

from typing import Any

from ..errors import Unsupported
from ..plans.lp_pool1d import LpPool1dDescriptor, LpPool1dFwArgs, LpPool1dPlan
from ..plans.lp_pool1d_backward import LpPool1dBackwardPlan, LpPool1dBwArgs
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

_FORWARD_NAMES = {
    "y": "out",
    "dx": "out",
    "element": "x's dtype",
    "batch": "N",
    "channels": "C",
    "l_in": "L",
    "window": "kernel_size",
    "p": "norm_type",
}
_BACKWARD_NAMES = {**_FORWARD_NAMES, "y": "y"}


def lp_pool1d(
    x: Any,
    norm_type: float,
    kernel_size: int,
    stride: int | None = None,
    ceil_mode: bool = False,
    *,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """y_o = (Σ |x_l|^p)^(1/p) over windows of `kernel_size` elements, `stride` apart.

    The absolute value always; a last partial window (`ceil_mode`) is not rescaled.  `torch.nn.functional.lp_pool1d`
    takes signed powers and rescales, so the two agree where p is even, or x is not negative, and no window is partial.

    Args:
        x: T [N, C, L] or [C, L]; T is f32, f64, f16 or bf16; of any library that `group_norm` takes.
        norm_type: p, any positive number.
        kernel_size: elements of a window, at most L.
        stride: elements between windows; None = `kernel_size`.
        ceil_mode: keep a last window that ends past the input (not one that starts there).
        out: T [N, C, L_out] or [C, L_out] to write and return.
        copy: whether an array that is not C-contiguous is copied; else it is refused.

    Returns:
        y, T [N, C, L_out] or [C, L_out], of x's library and on its device; L_out = ⌊(L − k)/s⌋ + 1, or the ceil form.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `torch.nn.functional.lp_pool1d`; `LpPool1dPlan` says what is computed and how accurately.
    """
    function = "lp_pool1d"
    library = library_of(x, function)
    if library is None:
        return through(lp_pool1d, x, norm_type, kernel_size, stride, ceil_mode, out=out, copy=copy)
    if library.records():
        refuse_gradients(function, x=x)
    if copy:
        (x,) = contiguous(library, x)
    return pooled(library, x, norm_type, kernel_size, stride, ceil_mode, out)


def lp_pool1d_backward(
    dy: Any,
    x: Any,
    y: Any,
    norm_type: float,
    kernel_size: int,
    stride: int | None = None,
    ceil_mode: bool = False,
    *,
    out: Any = None,
    copy: bool = False,
) -> Any:
    """Gradient of `lp_pool1d` with respect to x.

    Args:
        dy: gradient with respect to y, of y's shape.
        x: the forward's input, T [N, C, L] or [C, L].
        y: the forward's result.
        norm_type: p.
        kernel_size: elements of a window.
        stride: elements between windows; None = `kernel_size`.
        ceil_mode: as in the forward.
        out: of x's shape to write and return.
        copy: whether arrays that are not C-contiguous are copied; else they are refused.

    Returns:
        dx, T, of x's shape, library and device.

    Raises:
        InvalidProblem, Unsupported, DeviceMismatch, MisalignedOperand: naming the argument.

    Source: `LpPool1dBackwardPlan`, which says what is computed.
    """
    function = "lp_pool1d_backward"
    library = library_of(x, function)
    if library is None:
        options = (norm_type, kernel_size, stride, ceil_mode)
        return through(lp_pool1d_backward, dy, x, y, *options, out=out, copy=copy)
    if library.records():
        refuse_gradients(function, dy=dy, x=x, y=y)
    if copy:
        dy, x, y = contiguous(library, dy, x, y)
    return pooled_gradient(library, dy, x, y, norm_type, kernel_size, stride, ceil_mode, out)


def pooled(
    library: Library,
    x: Any,
    norm_type: float,
    kernel_size: int,
    stride: int | None,
    ceil_mode: bool,
    out: Any = None,
) -> Any:
    """`lp_pool1d` of an array of a library."""
    function = "lp_pool1d"
    place = library.place(x)
    ready, inputs, outputs = _prepare(
        function, library, place, x.shape, x.dtype, norm_type, kernel_size, stride, ceil_mode
    )
    result = library.like(ready.templates[0]) if out is None else out
    x, y = (
        same_memory(function, library, name, value, shape)
        for name, value, shape in (("x", x, inputs), ("out", result, outputs))
    )
    if ready.views:
        x, y = library.read("x", x), library.read("out", y)
    launch(function, _FORWARD_NAMES, library, ready, bundle(LpPool1dFwArgs, x=x, y=y))
    return result


def pooled_gradient(
    library: Library,
    dy: Any,
    x: Any,
    y: Any,
    norm_type: float,
    kernel_size: int,
    stride: int | None,
    ceil_mode: bool,
    out: Any = None,
) -> Any:
    """`lp_pool1d_backward` of arrays of a library."""
    function = "lp_pool1d_backward"
    place = library.place(x)
    ready, inputs, outputs = _prepare(
        function, library, place, x.shape, x.dtype, norm_type, kernel_size, stride, ceil_mode
    )
    result = library.like(ready.templates[0]) if out is None else out
    arrays = (("dy", dy, outputs), ("x", x, inputs), ("y", y, outputs), ("out", result, inputs))
    dy, x, y, dx = (same_memory(function, library, *array) for array in arrays)
    if ready.views:
        read = library.read
        dy, x, y, dx = read("dy", dy), read("x", x), read("y", y), read("out", dx)
    launch(function, _BACKWARD_NAMES, library, ready, bundle(LpPool1dBwArgs, x=x, y=y, dy=dy, dx=dx))
    return result


@remembered
def _prepare(
    function: str,
    library: Library,
    place: Any,
    shape: Any,
    dtype: Any,
    p: Any,
    window: Any,
    stride: Any,
    ceil_mode: Any,
) -> tuple[Prepared, tuple[int, ...], tuple[int, ...]]:
    """The problem, and the shapes of input and output as plans see them."""
    element = element_of(function, "x", dtype)
    if len(shape) not in (2, 3):
        raise Unsupported(f"{function}: x has shape {tuple(shape)}, want [N,C,L] or [C,L]")
    batch, channels, l_in = shape if len(shape) == 3 else (1, *shape)
    forward = function == "lp_pool1d"

    def descriptor() -> LpPool1dDescriptor:
        return LpPool1dDescriptor(
            batch=batch,
            channels=channels,
            l_in=l_in,
            window=window,
            p=p,
            element=element,
            stride=stride,
            ceil_mode=ceil_mode,
        )

    ready = prepare(
        function,
        _FORWARD_NAMES if forward else _BACKWARD_NAMES,
        library,
        place,
        LpPool1dPlan if forward else LpPool1dBackwardPlan,
        descriptor,
        lambda desc: (((*shape[:-1], desc.output_length) if forward else shape, element),),
    )
    return ready, (batch, channels, l_in), (batch, channels, ready.plan.descriptor.output_length)
