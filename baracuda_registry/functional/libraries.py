"""Array libraries: how their arrays are read, and how arrays of theirs are made.

A function of `baracuda_registry.functional` returns arrays of the library that its input came from, on the same device
and from that library's own allocator, so that its pool, its streams and its memory accounting stay in charge.  Each
library is one object here; nothing else in the package asks what an array is.  Libraries other than NumPy, CuPy and
PyTorch come and go through DLPack or `__cuda_array_interface__` (`through`), without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..device import Device
from ..elements import ElementKind
from ..errors import DeviceMismatch, InvalidProblem


class Library:
    """One array library.

    Attributes:
        name: its name, for messages.
        tracks: whether its arrays may ask for gradients.
    """

    name: ClassVar[str]
    tracks: ClassVar[bool] = False

    @staticmethod
    def records() -> bool:
        """Whether gradients are being recorded now."""
        return False

    def place(self, array: Any) -> Any:
        """Where an array is: hashable, and what `new` and `device` take."""
        raise NotImplementedError

    def device(self, place: Any) -> Device:
        """The device of a place."""
        raise NotImplementedError

    def dtype(self, element: ElementKind) -> Any:
        """The library's dtype of an element."""
        return element.dtype

    def new(self, shape: Sequence[int], dtype: Any, place: Any) -> Any:
        """An array of unwritten memory; ordered on the caller's current stream."""
        raise NotImplementedError

    def template(self, shape: Sequence[int], dtype: Any, place: Any) -> Any:
        """What `like` takes to make arrays of this shape; holds no memory."""
        return shape, dtype, place

    def like(self, template: Any) -> Any:
        """`new`, by the quickest way that the library has."""
        return self.new(*template)

    def full(self, shape: Sequence[int], value: float, dtype: Any, place: Any) -> Any:
        """An array of one value."""
        array = self.new(shape, dtype, place)
        array[...] = value
        return array

    def owns(self, array: Any) -> bool:
        """Whether an object is an array of this library."""
        return _speaks(array) and library_of(array) is self

    def is_contiguous(self, array: Any) -> bool:
        """Whether it is C-contiguous."""
        return bool(array.flags.c_contiguous)

    def contiguous(self, array: Any) -> Any:
        """The array itself when it is C-contiguous, else a copy that is."""
        raise NotImplementedError

    def read(self, name: str, array: Any) -> Any:
        """The same memory as an array that plans take; `name` is the argument's, for messages."""
        return array


class NumPy(Library):
    """NumPy arrays: the host."""

    name = "NumPy"

    def place(self, array: Any) -> None:
        """The host."""
        return None

    def device(self, place: Any) -> Device:
        """The host."""
        return Device.host()

    def new(self, shape: Sequence[int], dtype: Any, place: Any) -> Any:
        """`numpy.empty`."""
        import numpy as np

        return np.empty(shape, dtype)

    def contiguous(self, array: Any) -> Any:
        """A copy by rows where it is not one already."""
        return array if array.flags.c_contiguous else array.copy(order="C")


class CuPy(Library):
    """CuPy arrays, by CuPy's current stream of their device."""

    name = "CuPy"

    def place(self, array: Any) -> int:
        """The CUDA ordinal."""
        return int(array.data.device_id)

    def device(self, place: Any) -> Device:
        """The GPU."""
        return _gpu(place)

    def new(self, shape: Sequence[int], dtype: Any, place: Any) -> Any:
        """`cupy.empty` on the device, from the pool of CuPy's current stream there."""
        import cupy

        if cupy.cuda.runtime.getDevice() == place:
            return cupy.empty(shape, dtype)
        with cupy.cuda.Device(place):
            return cupy.empty(shape, dtype)

    def full(self, shape: Sequence[int], value: float, dtype: Any, place: Any) -> Any:
        """Filled on the device that owns it."""
        import cupy

        with cupy.cuda.Device(place):
            return super().full(shape, value, dtype, place)

    def contiguous(self, array: Any) -> Any:
        """`cupy.ascontiguousarray` on the array's device."""
        import cupy

        with array.device:
            return cupy.ascontiguousarray(array)


class Torch(Library):
    """PyTorch tensors: on a GPU by PyTorch's current stream, on the CPU through NumPy views."""

    name = "PyTorch"
    tracks = True

    def __init__(self) -> None:
        import torch

        self.empty = torch.empty
        # PyTorch's own functions in place of methods that would call them.
        self.like = torch.empty_like  # type: ignore[method-assign]
        self.records = torch.is_grad_enabled  # type: ignore[method-assign]
        self.bfloat16, self.int16 = torch.bfloat16, torch.int16

    def place(self, array: Any) -> Any:
        """The `torch.device`."""
        return array.device

    def device(self, place: Any) -> Device:
        """The host for `cpu`, a GPU for `cuda`.

        Raises:
            DeviceMismatch: another kind of device.
        """
        if place.type == "cpu":
            return Device.host()
        if place.type == "cuda":
            return _gpu(place.index)
        raise DeviceMismatch(f"x is on {place}, want cpu or cuda")

    def dtype(self, element: ElementKind) -> Any:
        """PyTorch names dtypes as NumPy does."""
        import torch

        return getattr(torch, str(element.info.numpy_name))

    def new(self, shape: Sequence[int], dtype: Any, place: Any) -> Any:
        """`torch.empty`."""
        return self.empty(shape, dtype=dtype, device=place)

    def template(self, shape: Sequence[int], dtype: Any, place: Any) -> Any:
        """A tensor without memory: `torch.empty_like` takes half the time of `torch.empty` with a dtype and a device."""
        tensor = self.empty(shape, dtype=dtype, device=place)
        tensor.untyped_storage().resize_(0)
        return tensor

    def is_contiguous(self, array: Any) -> bool:
        """Whether it is C-contiguous."""
        return bool(array.is_contiguous())

    def contiguous(self, array: Any) -> Any:
        """`Tensor.contiguous`."""
        return array.contiguous()

    def read(self, name: str, array: Any) -> Any:
        """CPU tensors as NumPy views; bf16, which NumPy lacks, through its bits."""
        if array is None:
            return None
        try:
            if not array.is_cpu:
                return array
            if array.dtype is self.bfloat16:
                return array.detach().view(self.int16).numpy().view(ElementKind.BF16.dtype)
            return array.detach().numpy()
        except AttributeError:
            raise DeviceMismatch(f"{name} is a {_type_name(array)}, want a torch.Tensor as x is") from None
        except (RuntimeError, TypeError) as error:
            raise InvalidProblem(f"{name} is no plain CPU tensor: {error}") from error


_KNOWN: dict[type, Library | None] = {}
_MADE: dict[type[Library], Library] = {}


def library_of(array: Any, function: str = "", name: str = "x") -> Library | None:
    """The library of an array; None for one that only speaks a protocol (see `through`).

    Raises:
        InvalidProblem: it is no array; in the words of a function and its argument.
    """
    kind = type(array)
    try:
        return _KNOWN[kind]
    except KeyError:
        library = _KNOWN[kind] = _find(array, f"{function}: {name}: ")
        return library


def through(function: Callable[..., Any], array: Any, *args: Any, out: Any, **options: Any) -> Any:
    """Call a function on arrays of a library that is known by protocol only.

    Arguments are read where they are: as CuPy arrays on a GPU, as NumPy arrays on the host.  Results go back through
    the library's own `from_dlpack` where it follows the array API standard; else they stay CuPy or NumPy arrays.

    Raises:
        InvalidProblem: `out` is given (arrays of such libraries may be immutable), or an array cannot be read.
    """
    name = function.__name__
    if out is not None:
        raise InvalidProblem(
            f"{name}: out is a {_type_name(out)}, want None (results are written into NumPy, CuPy and PyTorch arrays only)"
        )
    arguments = [_import(name, value) for value in (array, *args)]
    result = function(*arguments, **{key: _import(name, value) for key, value in options.items()})
    if isinstance(result, tuple):
        return tuple(value if value is None else _export(value, array) for value in result)
    return _export(result, array)


def _make(kind: type[Library]) -> Library:
    if kind not in _MADE:
        _MADE[kind] = kind()
    return _MADE[kind]


def _find(array: Any, where: str) -> Library | None:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _make(NumPy)
    if type(array).__module__.startswith("cupy") and hasattr(array, "data"):
        return _make(CuPy)
    if torch is not None and isinstance(array, torch.Tensor):
        if type(array).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise InvalidProblem(
                f"{where}a {_type_name(array)} has no memory of its own (it traces or wraps), want a plain torch.Tensor;"
                " the functions of baracuda_registry.torch can be traced"
            )
        return _make(Torch)
    if _speaks(array):
        return None
    raise InvalidProblem(
        f"{where}a {_type_name(array)} is no array: want NumPy, CuPy, PyTorch, or one that speaks DLPack or"
        " __cuda_array_interface__"
    )


def _speaks(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__cuda_array_interface__")


_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
"""Device types of DLPack."""


def _import(function: str, value: Any) -> Any:
    if not _speaks(value) or library_of(value) is not None:
        return value
    try:
        if not hasattr(type(value), "__dlpack__"):
            import cupy

            return cupy.asarray(value)
        kind = int(value.__dlpack_device__()[0])
        if kind in (_CUDA, _CUDA_MANAGED):
            import cupy

            return cupy.from_dlpack(value)
        if kind in (_CPU, _CUDA_HOST):
            return _host_view(value)
    except (BufferError, ImportError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidProblem(f"{function}: a {_type_name(value)} cannot be read: {error}") from error
    raise DeviceMismatch(
        f"{function}: a {_type_name(value)} is on DLPack device type {kind}, want CPU or CUDA"
    )


def _host_view(value: Any) -> Any:
    import numpy as np

    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        # bf16, which NumPy's DLPack does not know; the memory is the host's already.
        if not hasattr(value, "__array__"):
            raise
        return np.asarray(value)


def _export(array: Any, like: Any) -> Any:
    space = getattr(type(like), "__array_namespace__", None)
    if space is None:
        return array
    namespace = space(like)
    try:
        return namespace.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):
        # A dtype that the two cannot exchange (bf16 of NumPy): on the host, by value.
        if type(array).__module__ != "numpy":
            raise
        return namespace.asarray(array)


def _gpu(ordinal: int) -> Device:
    try:
        from .. import cuda
    except ImportError as error:
        raise DeviceMismatch(
            f"arrays on cuda:{ordinal} need CuPy, want `pip install 'baracuda-registry[cuda13]'` (or cuda12): {error}"
        ) from error
    return cuda.device_facts(ordinal)


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"
