"""Where kernels run: the seam between plans and a runtime.

A plan knows operands, variants and launch recipes; a `Runtime` knows arrays, streams, loading and launching.  The
CUDA runtime is one, and programs may register others under the name that `Device.execution` carries: the test suite
does so to execute the very same kernels, recipes and parameter blocks on the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .elements import ElementKind
from .errors import DeviceMismatch

if TYPE_CHECKING:
    from .device import Device
    from .launcher import Reader
    from .manifest import Manifest, Variant


class View(NamedTuple):
    """What a plan needs to know of an array.

    `element` is None where the dtype is no `ElementKind`; `ordinal` is the CUDA ordinal, None on the host;
    `capacity` is what the memory behind the pointer holds, in bytes, as far as the array's library knows.
    """

    pointer: int
    shape: tuple[int, ...]
    element: ElementKind | None
    dtype: str
    contiguous: bool
    writable: bool
    ordinal: int | None
    nbytes: int
    capacity: int


class Runtime(Protocol):
    """Loads and launches compiled variants on one kind of device."""

    def view(self, array: Any) -> View:
        """Describe an array; raises `TypeError` for what is no array here."""

    def reader(self, array: Any) -> Reader | None:
        """How straight-line code reads arrays of this one's library; None where it cannot."""

    def stream_pointer(self, stream: Any, device: Device, arrays: Sequence[Any]) -> int:
        """Handle of the caller's stream; None means the current stream of the arrays' library."""

    def load(self, manifest: Manifest, variant: Variant, device: Device) -> Mapping[str, Any]:
        """Kernel handles by symbol, loaded once per device."""

    def allow_shared(self, kernel: Any, shared_bytes: int, device: Device) -> None:
        """Raise a kernel's dynamic shared memory limit before its first launch."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What `launch` and `zero` raise when the driver refuses."""

    @property
    def launch(self) -> Callable[..., Any]:
        """Enqueue a kernel: `(kernel, grid x, y, z, block x, y, z, dynamic shared bytes, stream, parameters, 0)`.

        `parameters` is the address of an array of pointers to the parameters.
        """

    @property
    def zero(self) -> Callable[..., Any]:
        """Enqueue a fill with a byte value: `(pointer, value, bytes, stream)`."""

    @property
    def context(self) -> Callable[[], Any]:
        """What is current for the calling thread: while it equals what it was between `enter` and `leave`, neither is needed."""

    def enter(self, device: Device) -> Any:
        """Make the device current for the calling thread; returns what `leave` needs (None = nothing to undo)."""

    def leave(self, token: Any) -> None:
        """Undo `enter`."""


def _cuda() -> Runtime:
    from .cuda import CudaRuntime

    return CudaRuntime()


_factories: dict[str, Callable[[], Runtime]] = {"cuda": _cuda}


def register_runtime(execution: str, factory: Callable[[], Runtime]) -> None:
    """Serve devices whose `execution` is this name with the runtime that `factory` makes (once)."""
    _factories[execution] = factory
    runtime_named.cache_clear()


@functools.cache
def runtime_named(execution: str) -> Runtime:
    """The runtime of this name.

    Raises:
        DeviceMismatch: the device is known by name only.
    """
    try:
        factory = _factories[execution]
    except KeyError:
        raise DeviceMismatch(
            "the plan was selected for a device that is not in this machine: it can be inspected, not run"
        ) from None
    return factory()
