"""Where a case runs: the same plans on the host, on the CPU execution of the CUDA sources, and on a GPU.

A backend places inputs, makes guarded and poisoned outputs, and reads them back, so that a case is written once.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from baracuda_registry import Device
from baracuda_registry.execution import register_runtime
from baracuda_registry.host import view_numpy
from baracuda_registry.launcher import Reader
from baracuda_registry.manifest import Manifest, Variant

from . import cuda_on_cpu
from .accuracy import Array
from .data import GUARD_BYTES, guarded

CPU_EXECUTION = "cuda_on_cpu"


class CpuRuntime:
    """Serves plans on `Device`s whose execution is `cuda_on_cpu`: the same recipes and parameter blocks as on a GPU."""

    failures = (RuntimeError,)

    def __init__(self) -> None:
        self._libraries: dict[str, Any] = {}
        self.seed: int | None = None
        self.launches = 0
        self.entered = 0
        self.per_thread = False

    def view(self, array: Any) -> Any:
        return view_numpy(array)

    def reader(self, array: Any) -> Reader:
        return NUMPY

    def stream_pointer(self, stream: Any, device: Device, arrays: Sequence[Any]) -> int:
        return 0

    def load(self, manifest: Manifest, variant: Variant, device: Device) -> Mapping[str, Any]:
        assert variant.source is not None
        library = self._libraries.get(variant.source)
        if library is None:
            library = self._libraries[variant.source] = cuda_on_cpu.build([manifest.root / variant.source])
        return {
            entry.symbol: (library, entry, (variant.tuning.get(f"cluster_{entry.role}", 1), 1, 1))
            for entry in variant.entries
        }

    def allow_shared(self, kernel: Any, shared_bytes: int, device: Device) -> None:
        assert shared_bytes <= device.shared_bytes_per_block

    def launch(self, kernel: Any, *numbers: int) -> None:
        library, entry, cluster = kernel
        gx, gy, gz, bx, by, bz, shared_bytes, _, parameters, _ = numbers
        params = (ctypes.c_void_p * len(entry.parameters)).from_address(parameters)
        self.launches += 1
        library.launch(
            entry.symbol, (gx, gy, gz), (bx, by, bz), shared_bytes, params, seed=self.seed, cluster=cluster
        )

    def zero(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        ctypes.memset(pointer, value, nbytes)

    def context(self) -> int:
        return threading.get_ident() if self.per_thread else 0

    def enter(self, device: Device) -> None:
        self.entered += 1

    def leave(self, token: Any) -> None:
        assert token is None


_PLACE = "not {a}.flags.c_contiguous"
NUMPY = Reader(
    library="NumPy",
    mismatch=lambda operand: f"{{a}}.dtype is not {{dtype}} or {{a}}.shape != {{shape}} or {_PLACE}",
    read_only="not {a}.flags.writeable",
    short=f"{{a}}.nbytes < {{nbytes}} or {_PLACE}",
    pointer="({a}.ctypes.data if {a}.size else 0)",
    dtype=lambda element: element.dtype,
    current_stream="0",
)


cpu_runtime = CpuRuntime()
register_runtime(CPU_EXECUTION, lambda: cpu_runtime)


class HostBackend:
    """NumPy arrays; plans are served by the Reference backend."""

    name = "host"

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device.host()

    def put(self, values: Array | None, offset_elements: int = 0) -> Any:
        """A copy of the values, `offset_elements` past a 256-byte boundary."""
        if values is None:
            return None
        out = self.empty(values.shape, values.dtype, offset_elements)
        out[...] = values
        return out

    def empty(self, shape: tuple[int, ...], dtype: Any, offset_elements: int = 0, pattern: int = 0) -> Any:
        """A poisoned array between guards."""
        holder = guarded(shape, dtype, offset_elements, pattern=pattern)
        self._guards = [*getattr(self, "_guards", [])[-64:], holder]
        return holder.array

    def get(self, array: Any) -> Array:
        """The values as a NumPy array."""
        result: Array = array.copy()
        return result

    def check_guards(self) -> None:
        """Raise if a byte next to any array of this backend was overwritten."""
        for holder in getattr(self, "_guards", []):
            holder.check()
        self._guards: list[Any] = []

    def workspace(self, nbytes: int) -> Any:
        return None if nbytes == 0 else self.empty((nbytes,), np.uint8)

    def synchronize(self) -> None:
        """Wait for everything enqueued."""


class CpuBackend(HostBackend):
    """NumPy arrays; plans run the generated CUDA sources on the CPU, as if on the given GPU."""

    name = "cpu"

    def __init__(self, gpu: str = "H200") -> None:
        # So few multiprocessors that persistent kernels go round more than once on the small problems of the tests.
        small = replace(Device.named(gpu), sm_count=3)
        super().__init__(small.with_execution(CPU_EXECUTION))


class CudaBackend:
    """CuPy arrays on the current GPU."""

    name = "cuda"

    def __init__(self, sm_count: int | None = None) -> None:
        """`sm_count`: plan for so many multiprocessors only, so that persistent kernels go round more often."""
        import cupy

        self.cupy = cupy
        self.device = Device.current()
        if sm_count is not None:
            self.device = replace(self.device, sm_count=sm_count)
        self._guards: list[tuple[Any, int, int]] = []

    def put(self, values: Array | None, offset_elements: int = 0) -> Any:
        if values is None:
            return None
        out = self.empty(values.shape, values.dtype, offset_elements)
        out.view(np.uint8).ravel()[...] = self.cupy.asarray(
            np.ascontiguousarray(values).view(np.uint8).ravel()
        )
        return out

    def empty(self, shape: tuple[int, ...], dtype: Any, offset_elements: int = 0, pattern: int = 0) -> Any:
        cupy, dtype = self.cupy, np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        raw = cupy.full(3 * GUARD_BYTES + offset_elements * dtype.itemsize + nbytes, 0xC3, np.uint8)
        start = GUARD_BYTES + offset_elements * dtype.itemsize + -raw.data.ptr % GUARD_BYTES
        array = cupy.ndarray(shape, dtype, raw.data + start)
        poison = guarded((1,), dtype, pattern=pattern).array.view(np.uint8)
        if nbytes:
            raw[start : start + nbytes].reshape(-1, dtype.itemsize)[...] = cupy.asarray(poison)
        self._guards = [*self._guards[-64:], (raw, start, start + nbytes)]
        return array

    def get(self, array: Any) -> Array:
        flat = self.cupy.ndarray((array.nbytes,), np.uint8, array.data)
        result: Array = flat.get().view(array.dtype).reshape(array.shape)
        return result

    def check_guards(self) -> None:
        for raw, start, stop in self._guards:
            assert bool((raw[:start] == 0xC3).all()), "bytes before an array were overwritten"
            assert bool((raw[stop:] == 0xC3).all()), "bytes past the end of an array were overwritten"
        self._guards = []

    def workspace(self, nbytes: int) -> Any:
        return None if nbytes == 0 else self.empty((nbytes,), np.uint8)

    def synchronize(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()


def run(backend: Any, plan: Any, args: Any, stream: Any = None) -> None:
    """Run a plan with a poisoned workspace of exactly the announced size, then check every guard."""
    plan.run(stream, backend.workspace(plan.workspace_size), args)
    backend.synchronize()
    backend.check_guards()


def misalignments() -> itertools.cycle[int]:
    """Element offsets to try in turn: aligned, then odd ones."""
    return itertools.cycle((0, 1, 3))
