"""Launches kernels that were compiled for the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .toolchain import Flavour, build_directory, compile_sources, toolchain

_ONE_AT_A_TIME = threading.Lock()  # The engine is shared by all libraries of the process.
_MESSAGE_BYTES = 8192


class CpuLaunchError(Exception):
    """A launch that the engine refused, or that went wrong: which kernel, which thread, what."""

    def __init__(self, entry: str, report: str) -> None:
        super().__init__(entry, report)
        self.entry = entry
        self.report = report

    def __str__(self) -> str:
        return f"{self.entry}: {self.report}"


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("invoke", ctypes.c_void_p),
        ("parameter_count", ctypes.c_int),
        ("parameter_sizes", ctypes.POINTER(ctypes.c_uint)),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.POINTER(_Entry)),
        ("parameters", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("cooperative", ctypes.c_int),
        ("strict", ctypes.c_int),
        ("seed", ctypes.c_longlong),
        ("cpu_seconds", ctypes.c_double),
        ("thread_local_anchor", ctypes.c_void_p),
        ("message", ctypes.c_void_p),
        ("message_bytes", ctypes.c_size_t),
    )


@dataclass(frozen=True)
class _Kernel:
    entry: _Entry
    source: Path
    library: ctypes.CDLL
    parameter_sizes: tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """Kernels by name.  Make one with `build`."""

    kernels: dict[str, _Kernel] = field(repr=False)
    engine: ctypes.CDLL = field(repr=False)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(self.kernels)

    def parameter_sizes(self, entry: str) -> tuple[int, ...]:
        """Bytes of each parameter of a kernel."""
        return self._kernel(entry).parameter_sizes

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        smem_bytes: int,
        params: ctypes.Array[ctypes.c_void_p],
        *,
        seed: int | None = None,
        cluster: Sequence[int] = (1, 1, 1),
        cooperative: bool = False,
        strict: bool = False,
        cpu_seconds: float = 120.0,
    ) -> None:
        """Run a kernel to its end.

        Args:
            entry: the kernel's name.
            grid: blocks along x, y, z.
            block: threads along x, y, z.
            smem_bytes: dynamic shared memory.
            params: pointers to the parameters' values, as `cuLaunchKernel` takes them (see `pack`).
            seed: run blocks and threads in an order drawn from this seed; None runs them in order.
            cluster: blocks of a cluster along x, y, z; they run together.
            cooperative: all blocks run together and may use a grid barrier.
            strict: a thread that has returned is an error for every barrier its block or warp reaches later, and
                reading a lane outside the mask is one too.  Without it, `__syncthreads` and `__syncwarp` wait for the
                threads that are left, as sm_70 and later do.
            cpu_seconds: limit, against endless loops.

        Raises:
            CpuLaunchError: launch limits, a barrier that not all threads reach, a crash, a broken assumption.
        """
        kernel = self._kernel(entry)
        if len(params) != len(kernel.parameter_sizes):
            raise CpuLaunchError(
                entry, f"{len(params)} parameters given, {len(kernel.parameter_sizes)} wanted"
            )
        for what, extents in (("grid", grid), ("block", block), ("cluster", cluster)):
            if len(extents) != 3 or not all(0 <= extent < 2**32 for extent in extents):
                raise CpuLaunchError(entry, f"{what} {tuple(extents)} is not three counts")
        if not 0 <= smem_bytes < 2**32:
            raise CpuLaunchError(entry, f"{smem_bytes} bytes of dynamic shared memory")
        anchor = kernel.library.baracuda_cpu_anchor
        anchor.restype = ctypes.c_void_p
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        triple = ctypes.c_uint * 3
        request = _Launch(
            ctypes.pointer(kernel.entry),
            ctypes.cast(params, ctypes.c_void_p),
            triple(*grid),
            triple(*block),
            triple(*cluster),
            smem_bytes,
            cooperative,
            strict,
            -1 if seed is None else seed & (2**62 - 1),
            cpu_seconds,
            anchor(),
            ctypes.cast(message, ctypes.c_void_p),
            _MESSAGE_BYTES,
        )
        with _ONE_AT_A_TIME:
            failed = self.engine.baracuda_cpu_launch(ctypes.byref(request))
        if failed:
            raise CpuLaunchError(entry, message.value.decode(errors="replace"))

    def _kernel(self, entry: str) -> _Kernel:
        if entry not in self.kernels:
            raise CpuLaunchError(entry, f"no such kernel; there are {', '.join(self.kernels)}")
        return self.kernels[entry]


def build(sources: Sequence[Path | str], *, sanitize: bool | None = None, contract: bool = False) -> Library:
    """Compile sources and load them.

    Args:
        sources: `.cu` files.  Kernels are found by name, so two of them can't define the same one.
        sanitize: compile under AddressSanitizer and parts of UndefinedBehaviorSanitizer.  Such a library loads only into
            a process that was started for it (see `sanitized.run_python`); None means: in such a process.
        contract: let the compiler fuse multiplies and adds, as device compilers do.

    Raises:
        CpuCompileError: a source does not compile.
    """
    if sanitize is None:
        sanitize = bool(os.environ.get("BARACUDA_CPU_SANITIZE"))
    flavour = Flavour(sanitize=sanitize, contract=contract)
    kernels: dict[str, _Kernel] = {}
    engine = ctypes.CDLL(str(toolchain(flavour).engine))
    for source, path in compile_sources([Path(source).resolve() for source in sources], flavour):
        library = ctypes.CDLL(str(path))
        count = ctypes.c_int.in_dll(library, "baracuda_cpu_entry_count").value
        for entry in (_Entry * count).in_dll(library, "baracuda_cpu_entries"):
            name = entry.name.decode()
            if name in kernels:
                raise ValueError(f"{name} is defined by {kernels[name].source} and by {source}")
            sizes = tuple(entry.parameter_sizes[: entry.parameter_count])
            kernels[name] = _Kernel(entry, source, library, sizes)
    return Library(kernels, engine)


def source_file(text: str) -> Path:
    """A file with this text, for sources that are not in one."""
    path = build_directory() / "sources" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cu"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(text)
        scratch.replace(path)
    return path


def build_text(text: str, *, sanitize: bool | None = None, contract: bool = False) -> Library:
    """`build` for the text of one source."""
    return build([source_file(text)], sanitize=sanitize, contract=contract)


def pack(*values: Any) -> ctypes.Array[ctypes.c_void_p]:
    """Kernel parameters from values; the result keeps them alive.

    An array or None becomes a pointer; a NumPy scalar, a ctypes object or bytes is passed by value.
    """
    stored: list[Any] = []
    for value in values:
        if value is None:
            stored.append(ctypes.c_void_p(0))
        elif isinstance(value, np.ndarray):
            stored.append(ctypes.c_void_p(value.ctypes.data))
        elif isinstance(value, (np.generic, bytes)):
            raw = bytes(value) if isinstance(value, bytes) else value.tobytes()
            stored.append(
                (ctypes.c_ulonglong * ((len(raw) + 7) // 8)).from_buffer_copy(
                    raw.ljust((len(raw) + 7) // 8 * 8, b"\0")
                )
            )
        elif isinstance(value, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
            stored.append(value)
        else:
            raise TypeError(f"{value!r}: give an array, None, a NumPy scalar, a ctypes object or bytes")
    packed = (ctypes.c_void_p * len(stored))(*(ctypes.addressof(item) for item in stored))
    packed._keep = (stored, values)  # type: ignore[attr-defined]
    return packed
