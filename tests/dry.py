"""A backend on which nothing runs: NumPy arrays, and a runtime that records what would be launched."""

from __future__ import annotations

import ctypes
from typing import Any

import baracuda_registry as br
from baracuda_registry.execution import register_runtime

from . import backends
from .samples import Sample


class DryRuntime(backends.CpuRuntime):
    """Records what would be launched: the pointers of every kernel parameter that is a pointer."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[list[int]] = []
        self.during: Any = None

    def load(self, manifest: Any, variant: Any, device: Any) -> Any:
        return {entry.symbol: entry for entry in variant.entries}

    def launch(self, kernel: Any, *numbers: int) -> None:
        if self.during is not None:
            action, self.during = self.during, None
            action()
        table = (ctypes.c_void_p * len(kernel.parameters)).from_address(numbers[8])
        self.log.append(
            [
                ctypes.c_uint64.from_address(address).value
                for parameter, address in zip(kernel.parameters, table)
                if parameter.type == "ptr" and address is not None
            ]
        )

    def zero(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        self.log.append([pointer])


class DryBackend(backends.HostBackend):
    """NumPy arrays, plans of their own (not the memo's), and no kernel that runs."""

    def __init__(self) -> None:
        super().__init__(br.Device.named("H200").with_execution("dry"))
        self.runtime = DryRuntime()
        register_runtime("dry", lambda: self.runtime)

    def plan(self, sample: Sample, **changes: Any) -> Any:
        return sample.plan(sample.descriptor(**changes), self.device, br.PlanPreference(), br.registry())
