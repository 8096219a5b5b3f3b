"""Launch recipes: what a plan asks a runtime to do, as data.

A recipe is computed once, at selection, from the descriptor, the variant's tuning and the device; `Bound` turns it
into prebuilt parameter blocks, so that a run only overwrites pointer slots and launches.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .device import Device
from .errors import LaunchError, ManifestError
from .execution import Runtime
from .manifest import Manifest, Variant

_BUFFER_ALIGNMENT = 16
_TYPES: dict[str, Any] = {
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
_MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch.

    Attributes:
        role: which of the variant's entries.
        grid: blocks.
        block: threads a block.
        scalars: values of the kernel's scalar parameters by name; pointers are bound by operand or buffer name.
        shared_bytes: dynamic shared memory.
    """

    role: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scalars: Mapping[str, int | float]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Zero:
    """Fill an operand, or a workspace buffer, with zero bytes."""

    operand: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """Steps in stream order, and the workspace they share.

    Attributes:
        steps: launches and fills.
        buffers: `(name, bytes)` of each workspace buffer; a kernel parameter of that name points to it.
    """

    steps: tuple[Launch | Zero, ...]
    buffers: tuple[tuple[str, int], ...] = ()

    @property
    def offsets(self) -> dict[str, int]:
        """Offset of each buffer in the workspace; each starts 16-byte aligned."""
        table: dict[str, int] = {}
        end = 0
        for name, nbytes in self.buffers:
            table[name] = -(-end // _BUFFER_ALIGNMENT) * _BUFFER_ALIGNMENT
            end = table[name] + nbytes
        return table

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace: exactly what the buffers need."""
        if not self.buffers:
            return 0
        name, nbytes = self.buffers[-1]
        return self.offsets[name] + nbytes

    @property
    def shared_bytes(self) -> int:
        """Largest dynamic shared memory of any launch."""
        return max((step.shared_bytes for step in self.steps if isinstance(step, Launch)), default=0)


@dataclass(slots=True)
class _Blocks:
    """Parameter blocks of one thread: pointer slots that all launches share, and what `Runtime.launch` takes.

    A fill is `(operand, bytes)`.
    """

    slots: Any
    launches: list[tuple[Any, ...]]
    keep: list[Any] = field(default_factory=list)


class Bound:
    """A recipe bound to a variant on a device.

    Parameter blocks are per thread, because the driver copies them during the launch call and not before: two threads
    that run one plan must not share them.

    Args:
        manifest: where the variant's source is described.
        variant: the chosen variant.
        recipe: its recipe for the problem.
        operands: names of the plan's operands, in order, with their sizes in bytes.
        device: where it runs.
        runtime: the device's runtime.
    """

    def __init__(
        self,
        manifest: Manifest | None,
        variant: Variant,
        recipe: Recipe,
        operands: Sequence[tuple[str, int]],
        device: Device,
        runtime: Runtime,
    ) -> None:
        self.variant = variant
        self.recipe = recipe
        self._manifest = manifest
        self._operands = tuple(operands)
        self._device = device
        self._runtime = runtime
        self._offsets = tuple(recipe.offsets.values())
        self._kernels: Mapping[str, Any] | None = None
        self._local = threading.local()

    def prepare(self) -> None:
        """Compile and load what the recipe launches; does nothing the second time."""
        if self._kernels is not None or not any(isinstance(step, Launch) for step in self.recipe.steps):
            return
        if self._manifest is None:
            raise ManifestError(
                f"{self.variant.id}: the registry was built without a manifest, it has no sources"
            )
        token = self._runtime.enter(self._device)
        try:
            kernels = self._runtime.load(self._manifest, self.variant, self._device)
            for step in self.recipe.steps:
                if isinstance(step, Launch):
                    kernel = kernels[self.variant.entry(step.role).symbol]
                    self._runtime.allow_shared(kernel, step.shared_bytes, self._device)
        finally:
            self._runtime.leave(token)
        self._kernels = kernels

    def addresses(self, operands: list[int], workspace: int) -> list[int]:
        """Values of the pointer slots: the operands' addresses in order, then the workspace buffers'."""
        return [*operands, *(workspace + offset for offset in self._offsets)]

    def run(self, pointers: list[int], stream: int) -> None:
        """Enqueue every step on the stream.

        Args:
            pointers: what `addresses` made.
            stream: stream handle.
        """
        if self._kernels is None:
            self.prepare()
        blocks: _Blocks | None = getattr(self._local, "blocks", None)
        if blocks is None:
            blocks = self._local.blocks = self._build()
        blocks.slots[:] = pointers
        runtime = self._runtime
        token = runtime.enter(self._device)
        try:
            for step in blocks.launches:
                if len(step) == 2:
                    runtime.zero(pointers[step[0]], step[1], stream)
                else:
                    runtime.launch(step, stream)
        finally:
            if token is not None:
                runtime.leave(token)

    def _build(self) -> _Blocks:
        names = [name for name, _ in self._operands] + list(self.recipe.offsets)
        slots = (ctypes.c_uint64 * max(len(names), 1))()
        sizes = [nbytes for _, nbytes in (*self._operands, *self.recipe.buffers)]
        base = ctypes.addressof(slots)
        blocks = _Blocks(slots if names else (ctypes.c_uint64 * 0)(), [])
        blocks.keep.append(slots)
        for step in self.recipe.steps:
            if isinstance(step, Zero):
                index = names.index(step.operand)
                blocks.launches.append((index, sizes[index]))
                continue
            entry = self.variant.entry(step.role)
            addresses = (ctypes.c_void_p * len(entry.parameters))()
            for position, parameter in enumerate(entry.parameters):
                if parameter.type == "ptr":
                    addresses[position] = base + 8 * self._slot(names, parameter.name)
                else:
                    value = _TYPES[parameter.type](self._scalar(step, parameter.name))
                    blocks.keep.append(value)
                    addresses[position] = ctypes.addressof(value)
            self._check_grid(step)
            blocks.keep.append(addresses)
            assert self._kernels is not None
            kernel = self._kernels[entry.symbol]
            parameters = ctypes.addressof(addresses)
            blocks.launches.append((kernel, *step.grid, *step.block, step.shared_bytes, parameters))
        return blocks

    def _slot(self, names: list[str], name: str) -> int:
        try:
            return names.index(name)
        except ValueError:
            raise ManifestError(
                f"{self.variant.id}: kernel parameter {name!r} is no operand or workspace buffer; known are {', '.join(names)}"
            ) from None

    def _scalar(self, step: Launch, name: str) -> int | float:
        try:
            return step.scalars[name]
        except KeyError:
            raise ManifestError(
                f"{self.variant.id}: the launch recipe gives no value for kernel parameter {name!r} of {step.role}"
            ) from None

    def _check_grid(self, step: Launch) -> None:
        for extent, limit in zip(step.grid, _MAX_GRID):
            if not 0 < extent <= limit:
                raise LaunchError(f"{self.variant.id}: {step.role} has grid {step.grid}, want 1..{_MAX_GRID}")
