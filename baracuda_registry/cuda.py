"""The CUDA runtime, through CuPy's low-level bindings.

This is the only module that imports CuPy at run time (with `compile`).  Kernels are launched with `launchKernel` and
prebuilt parameter blocks rather than through `RawKernel`, whose argument handling costs more than the launch.
Modules are loaded into each device's primary context, which CuPy and PyTorch share.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cupy.cuda import driver, get_current_stream
from cupy.cuda import runtime as cudart

from .artifact import architecture_for, artifact
from .device import NAMED, Device
from .elements import ElementKind
from .errors import DeviceMismatch, InvalidProblem, LaunchError, Unsupported
from .execution import View
from .launcher import Reader
from .manifest import Manifest, Variant
from .operands import Operand


def device_count() -> int:
    """CUDA devices in this machine; 0 when the driver is missing or unusable."""
    try:
        return int(cudart.getDeviceCount())
    except cudart.CUDARuntimeError:
        return 0


def current_ordinal() -> int:
    """Ordinal of the calling thread's current device."""
    return int(cudart.getDevice())


@functools.cache
def device_facts(ordinal: int) -> Device:
    """Facts of a device of this machine, read from the driver once."""
    properties = cudart.getDeviceProperties(ordinal)
    name = properties["name"].decode()
    capability = properties["major"] * 10 + properties["minor"]
    known = next((d for d in NAMED.values() if d.name in name and d.compute_capability == capability), None)
    return Device(
        name=name,
        execution="cuda",
        ordinal=ordinal,
        compute_capability=capability,
        sm_count=properties["multiProcessorCount"],
        shared_bytes_per_block=properties["sharedMemPerBlockOptin"],
        shared_bytes_per_sm=properties["sharedMemPerMultiprocessor"],
        registers_per_sm=properties["regsPerMultiprocessor"],
        threads_per_sm=properties["maxThreadsPerMultiProcessor"],
        l2_bytes=properties["l2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        bandwidth=known.bandwidth if known else 0,
    )


def stream_ordinal(stream: Any) -> int | None:
    """Ordinal of the device a stream belongs to, None where the stream does not say."""
    for name in ("device_id", "device_index"):
        ordinal = getattr(stream, name, None)
        if isinstance(ordinal, int) and ordinal >= 0:
            return ordinal
    return None


class CudaRuntime:
    """Loads cubins into primary contexts and launches them on the caller's stream."""

    failures = (driver.CUDADriverError, cudart.CUDARuntimeError)
    launch = staticmethod(driver.launchKernel)
    zero = staticmethod(cudart.memsetAsync)
    context = staticmethod(driver.ctxGetCurrent)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._modules: dict[tuple[str | None, int | None], tuple[int, dict[str, int]]] = {}
        self._viewers: dict[type, Callable[[Any], View]] = {}

    def view(self, array: Any) -> View:
        """Pointer, shape, dtype and placement of a CuPy array, a torch tensor, or any array that speaks
        `__cuda_array_interface__` or DLPack."""
        kind = type(array)
        viewer = self._viewers.get(kind)
        if viewer is None:
            viewer = self._viewers[kind] = _viewer_for(array)
        return viewer(array)

    def reader(self, array: Any) -> Reader | None:
        """Straight-line code reads CuPy arrays and torch tensors."""
        viewer = self._viewers.get(type(array))
        if viewer is _view_cupy:
            return _cupy_reader(hasattr(array, "_c_contiguous"))
        return _torch_reader() if viewer is _view_torch else None

    def stream_pointer(self, stream: Any, device: Device, arrays: Sequence[Any]) -> int:
        """The stream's handle.

        Raises:
            DeviceMismatch: the stream belongs to another device.
            InvalidProblem: not a stream.
        """
        if stream is None:
            for array in arrays:
                if array is not None:
                    if self._viewers.get(type(array)) is _view_torch:
                        return _torch_stream(device.ordinal)
                    break
            return int(get_current_stream(device.ordinal).ptr)
        if isinstance(stream, int) and not isinstance(stream, bool):
            return stream
        ordinal = stream_ordinal(stream)
        if ordinal is not None and ordinal != device.ordinal:
            raise DeviceMismatch(f"stream belongs to cuda:{ordinal}, the plan to cuda:{device.ordinal}")
        pointer = getattr(stream, "ptr", None)
        if isinstance(pointer, int):
            return pointer
        protocol = getattr(stream, "__cuda_stream__", None)
        if protocol is not None:
            handle = protocol() if callable(protocol) else protocol
            return int(handle[1])
        pointer = getattr(stream, "cuda_stream", None)
        if isinstance(pointer, int):
            return pointer
        raise InvalidProblem(
            f"stream is a {type(stream).__name__}, want a cupy.cuda.Stream, an int handle, an object with __cuda_stream__, or None"
        )

    def load(self, manifest: Manifest, variant: Variant, device: Device) -> Mapping[str, int]:
        """Function handles by symbol; compiled and loaded at most once per device.

        Raises:
            CompileError: it cannot be compiled.
            LaunchError: the driver refuses the cubin.
        """
        key = (variant.source, device.ordinal)
        loaded = self._modules.get(key)
        if loaded is None:
            made = artifact(manifest, variant, architecture_for(variant, device))
            with self._lock:
                loaded = self._modules.get(key)
                if loaded is None:
                    try:
                        module = driver.moduleLoadData(made.cubin)
                        handles = {
                            e.symbol: driver.moduleGetFunction(module, e.symbol) for e in variant.entries
                        }
                    except driver.CUDADriverError as error:
                        raise LaunchError(f"{device.name} does not load {variant.id}: {error}") from error
                    loaded = self._modules[key] = (module, handles)
        return loaded[1]

    def allow_shared(self, kernel: int, shared_bytes: int, device: Device) -> None:
        """Opt in to more than 48 KiB of dynamic shared memory: all that the kernel's static part leaves."""
        if shared_bytes > 48 * 1024:
            static = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel)
            limit = device.shared_bytes_per_block - static
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            try:
                driver.funcSetAttribute(kernel, attribute, max(limit, shared_bytes))
            except driver.CUDADriverError as error:
                raise LaunchError(
                    f"{device.name} refuses {shared_bytes} bytes of dynamic shared memory beside {static} static ones: {error}"
                ) from error

    def enter(self, device: Device) -> int | None:
        """Make the device's primary context current."""
        current = int(cudart.getDevice())
        cudart.setDevice(device.ordinal)
        if current != device.ordinal or not driver.ctxGetCurrent():
            # A new thread has a current device but no current context until the runtime is used.
            cudart.free(0)
        return None if current == device.ordinal else current

    def leave(self, token: int | None) -> None:
        """Make the caller's device current again."""
        if token is not None:
            cudart.setDevice(token)


@functools.cache
def _element_of(dtype: Any) -> tuple[ElementKind | None, str]:
    text = str(dtype)
    try:
        return ElementKind.of(dtype), text
    except Unsupported:
        return None, text


def _viewer_for(array: Any) -> Callable[[Any], View]:
    module = type(array).__module__
    if module.startswith("cupy") and hasattr(array, "data"):
        return _view_cupy
    if module.startswith("torch") or hasattr(array, "data_ptr"):
        return _view_torch
    if hasattr(type(array), "__cuda_array_interface__"):
        return _view_interface
    if hasattr(type(array), "__dlpack__") and not module.startswith("numpy"):
        return _view_dlpack
    raise TypeError(f"a {type(array).__module__}.{type(array).__name__} is not an array on a GPU")


@functools.cache
def _torch_raw_stream() -> Callable[[int | None], int]:
    """The handle of PyTorch's current stream, without making a stream object where PyTorch lets us."""
    import torch

    raw: Callable[[int | None], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return raw
    public: Callable[[int | None], int] = lambda ordinal: torch.cuda.current_stream(ordinal).cuda_stream  # noqa: E731
    return public


def _torch_stream(ordinal: int | None) -> int:
    return int(_torch_raw_stream()(ordinal))


@functools.cache
def _cupy_reader(flat: bool) -> Reader:
    """`flat`: whether contiguity can be read without making a `flags` object."""
    contiguous = "{a}._c_contiguous" if flat else "{a}.flags.c_contiguous"
    place = f"not {contiguous} or ({{m}} := {{a}}.data).device_id != ordinal"

    def mismatch(operand: Operand) -> str:
        shape = "{a}.shape != {shape}"
        if len(operand.shape) == 1:  # CuPy makes a shape anew each time
            shape = f"{{a}}.ndim != 1 or len({{a}}) != {operand.shape[0]}"
        return f"{{a}}.dtype is not {{dtype}} or {shape} or {place}"

    return Reader(
        library="CuPy",
        mismatch=mismatch,
        read_only="",
        short=f"{{a}}.nbytes < {{nbytes}} or {place}",
        pointer="{m}.ptr",
        dtype=lambda element: element.dtype,
        current_stream="current_stream(ordinal).ptr",
        names={"current_stream": get_current_stream},
    )


@functools.cache
def _torch_reader() -> Reader:
    import torch

    # The length of an untyped storage is its bytes, and quicker to get than `nbytes()`.
    capacity = "len({{a}}.untyped_storage()) - {{a}}.storage_offset() * {itemsize}"
    # The ordinal alone would not tell other kinds of device.
    place = "not {a}.is_contiguous() or {a}.get_device() != ordinal or not {a}.is_cuda"

    def mismatch(operand: Operand) -> str:
        memory = f"{capacity.format(itemsize=operand.element.itemsize)} < {operand.nbytes}"
        return f"{{a}}.dtype is not {{dtype}} or {{a}}.shape != {{shape}} or {place} or {memory}"

    memory = f"{capacity.format(itemsize='{a}.itemsize')} < {{nbytes}}"
    return Reader(
        library="PyTorch",
        mismatch=mismatch,
        read_only="",
        short=f"{{a}}.nbytes < {{nbytes}} or {place} or {memory}",
        pointer="{a}.data_ptr()",
        dtype=lambda element: getattr(torch, str(element.info.numpy_name)),
        current_stream="raw_stream(ordinal)",
        names={"raw_stream": _torch_raw_stream()},
    )


def _view_cupy(array: Any) -> View:
    element, text = _element_of(array.dtype)
    flags = array.flags
    nbytes = array.nbytes
    return View(
        array.data.ptr, array.shape, element, text, flags.c_contiguous, True, array.data.device_id, nbytes, nbytes
    )  # fmt: skip


def _view_torch(tensor: Any) -> View:
    if not tensor.is_cuda:
        raise TypeError(f"the tensor is on {tensor.device}, not on a GPU")
    element, text = _element_of(tensor.dtype)
    itemsize = tensor.element_size()
    return View(
        tensor.data_ptr(),
        tuple(tensor.shape),
        element,
        text,
        tensor.is_contiguous(),
        True,
        tensor.get_device(),
        tensor.numel() * itemsize,
        tensor.untyped_storage().nbytes() - tensor.storage_offset() * itemsize,
    )


def _view_interface(array: Any) -> View:
    interface = array.__cuda_array_interface__
    shape = tuple(interface["shape"])
    element, text = _element_of(interface["typestr"])
    itemsize = element.itemsize if element else 1
    count = 1
    for extent in shape:
        count *= extent
    pointer, readonly = interface["data"]
    ordinal = current_ordinal()
    if pointer:
        ordinal = int(cudart.pointerGetAttributes(pointer).device)
    strides = interface.get("strides")
    contiguous = strides is None or _is_contiguous(shape, tuple(strides), itemsize)
    nbytes = count * itemsize
    return View(
        pointer or 0,
        shape,
        element,
        text,
        contiguous,
        not readonly,
        ordinal,
        nbytes,
        nbytes if pointer else 0,
    )


def _view_dlpack(array: Any) -> View:
    import cupy

    try:
        return _view_cupy(cupy.from_dlpack(array))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(f"a {type(array).__name__} cannot be read through DLPack: {error}") from error


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent == 0:
            return True
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True
