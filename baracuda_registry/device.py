"""Devices as plain facts.

A `Device` is data: selection is a pure function of it, so it works for a GPU that is not in this machine.  `execution`
names the runtime that can run something there: `"cuda"`, `"host"`, or `"absent"` for a device known by name only.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from dataclasses import dataclass, fields, replace
from types import ModuleType

from .constraint import Fact
from .errors import InvalidProblem

_KIB = 1024
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Device:
    """Facts of one device.

    Attributes:
        name: the vendor's name, or `host`.
        execution: runtime that runs kernels there: `cuda`, `host`, `absent`, or one a program registered.
        ordinal: CUDA ordinal, None unless the device is in this machine.
        compute_capability: 90 for 9.0; 0 for the host.
        sm_count: streaming multiprocessors.
        shared_bytes_per_block: largest shared memory of one block (opt-in limit), bytes.
        shared_bytes_per_sm: shared memory of one multiprocessor, bytes.
        registers_per_sm: 32-bit registers of one multiprocessor.
        threads_per_sm: resident threads of one multiprocessor.
        l2_bytes: L2 cache, bytes.
        memory_bytes: device memory, bytes.
        bandwidth: memory bandwidth by the vendor's data sheet, bytes a second; 0 when not known.
    """

    name: str
    execution: str
    ordinal: int | None
    compute_capability: int
    sm_count: int
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    registers_per_sm: int
    threads_per_sm: int
    l2_bytes: int
    memory_bytes: int
    bandwidth: int

    @property
    def is_host(self) -> bool:
        """Whether this is the NumPy backend's device."""
        return self.execution == "host"

    @property
    def facts(self) -> dict[str, Fact]:
        """The facts under the names that constraints use: `device.sm_count`, …"""
        return {f"device.{field.name}": getattr(self, field.name) for field in fields(self)}

    def array_module(self) -> ModuleType:
        """NumPy for the host, CuPy for a GPU: whose arrays plans on this device take (among others)."""
        return importlib.import_module("numpy" if self.is_host else "cupy")

    @staticmethod
    def host() -> Device:
        """The host: plans run by NumPy on NumPy arrays."""
        return _HOST

    @staticmethod
    def named(name: str) -> Device:
        """Facts of a GPU by its public name (`"H200"`), in this machine or not.

        Raises:
            InvalidProblem: the name is not in the table; the message lists the names that are.
        """
        wanted = name.lower().replace("nvidia", "").replace(" ", "").replace("-", "")
        for known, device in NAMED.items():
            if known.lower().replace(" ", "") == wanted:
                return device
        raise InvalidProblem(f"device {name!r} is not known by name; known are {', '.join(NAMED)}")

    @staticmethod
    def current() -> Device:
        """The calling thread's current CUDA device, or the host when there is no usable GPU."""
        if not cuda_available():
            return _HOST
        from . import cuda

        return cuda.device_facts(cuda.current_ordinal())

    def with_execution(self, execution: str) -> Device:
        """The same facts served by another runtime (a simulator, say)."""
        return replace(self, execution=execution)


_HOST = Device("host", "host", None, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def _named(
    name: str,
    capability: int,
    sms: int,
    shared_kib: tuple[int, int],
    threads: int,
    l2_mib: int,
    gb: int,
    gbps: int,
) -> Device:
    block, multiprocessor = shared_kib
    return Device(
        name, "absent", None, capability, sms, block * _KIB, multiprocessor * _KIB, 65536, threads,
        l2_mib * _MIB, gb * 10**9, gbps * 10**9,
    )  # fmt: skip


NAMED: dict[str, Device] = {
    device.name: device
    for device in (
        # A name that is part of another one comes after it: the driver's names are searched for these in order.
        _named("A100", 80, 108, (163, 164), 2048, 40, 80, 2039),
        _named("A10", 86, 72, (99, 100), 1536, 6, 24, 600),
        _named("RTX A6000", 86, 84, (99, 100), 1536, 6, 48, 768),
        _named("RTX 3090", 86, 82, (99, 100), 1536, 6, 24, 936),
        _named("L40S", 89, 142, (99, 100), 1536, 96, 48, 864),
        _named("L4", 89, 58, (99, 100), 1536, 48, 24, 300),
        _named("RTX 4090", 89, 128, (99, 100), 1536, 72, 24, 1008),
        _named("H100 PCIe", 90, 114, (227, 228), 2048, 50, 80, 2039),
        _named("H100", 90, 132, (227, 228), 2048, 50, 80, 3350),
        _named("H200", 90, 132, (227, 228), 2048, 60, 141, 4800),
        _named("B200", 100, 148, (227, 228), 2048, 126, 180, 8000),
        _named("RTX 5090", 120, 170, (99, 100), 1536, 96, 32, 1792),
    )
}
"""Public data-sheet facts of GPUs that need not be in this machine (SXM forms where there are several)."""


@functools.cache
def cuda_available() -> bool:
    """Whether a CUDA driver with at least one device, and CuPy, are usable here.

    The driver is looked for first: importing CuPy costs a third of a second, which a machine without a GPU
    should not pay.
    """
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
        count = ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
            return False
    except (OSError, AttributeError):
        return False
    try:
        from . import cuda
    except ImportError:
        return False
    return cuda.device_count() > 0
