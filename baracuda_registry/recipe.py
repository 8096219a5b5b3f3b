"""Launch recipes: what a plan asks a runtime to do, as data.

A recipe is computed once, at selection, from the descriptor, the variant's tuning and the device; `Bound` turns it
into prebuilt parameter blocks, so that a run only overwrites pointer slots and launches.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .device import Device
from .errors import LaunchError, ManifestError
from .execution import Runtime
from .launcher import make_enqueue
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
class _Block:
    """Parameter blocks of one run at a time: pointer slots that all launches share, and what enqueues the launches."""

    slots: memoryview
    enqueue: Callable[[Sequence[int], int], None]
    keep: list[Any]


Slots = tuple[tuple[int, ...], bytes]
"""Values of the pointer slots: as numbers, and as the bytes that the slots take."""


class Bound:
    """A recipe bound to a variant on a device.

    The driver copies parameter blocks during the launch call and not before, so two runs at once must not share one:
    each takes a free block, or makes one, and gives it back.

    Args:
        manifest: where the variant's source is described.
        variant: the chosen variant.
        recipe: its recipe for the problem.
        operands: names of the plan's operands, in order, with their sizes in bytes.
        device: where it runs.
        runtime: the device's runtime.

    Attributes:
        offsets: of the workspace's buffers, whose addresses follow the operands' in the slots.
        pack: makes the bytes of the slots from the addresses.
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
        self.offsets = tuple(recipe.offsets.values())
        self.pack = struct.Struct(f"={len(self._operands) + len(self.offsets)}Q").pack
        self._kernels: Mapping[str, Any] | None = None
        self._context: Any = None
        self._current = runtime.context
        self._free: list[_Block] = []

    def prepare(self) -> None:
        """Compile and load what the recipe launches; does nothing the second time."""
        if self._kernels is not None:
            return
        kernels: Mapping[str, Any] = {}
        if self.recipe.steps:
            token = self._runtime.enter(self._device)
            try:
                launches = [step for step in self.recipe.steps if isinstance(step, Launch)]
                if launches:
                    kernels = self._load(launches)
                self._context = self._current()
            finally:
                self._runtime.leave(token)
        self._kernels = kernels

    def _load(self, launches: Sequence[Launch]) -> Mapping[str, Any]:
        if self._manifest is None:
            raise ManifestError(
                f"{self.variant.id}: the registry was built without a manifest, it has no sources"
            )
        kernels = self._runtime.load(self._manifest, self.variant, self._device)
        for step in launches:
            kernel = kernels[self.variant.entry(step.role).symbol]
            self._runtime.allow_shared(kernel, step.shared_bytes, self._device)
        return kernels

    def slots(self, given: Sequence[int]) -> Slots:
        """Values of the pointer slots: the operands' addresses in order, then the workspace buffers'.

        Args:
            given: addresses of the operands (0 where absent), then of the workspace.
        """
        *operands, workspace = given
        addresses = (*operands, *[workspace + offset for offset in self.offsets])
        return addresses, self.pack(*addresses)

    def run(self, slots: Slots, stream: int) -> None:
        """Enqueue every step on the stream.

        Args:
            slots: what `slots` made.
            stream: stream handle.

        Raises:
            LaunchError: the driver refuses a launch.
        """
        if self._kernels is None:
            self.prepare()
        if not self.recipe.steps:
            return
        free = self._free
        try:
            block = free.pop()
        except IndexError:
            block = self._build()
        addresses, packed = slots
        try:
            block.slots[:] = packed
            if self._current() == self._context:
                block.enqueue(addresses, stream)
            else:
                token = self._runtime.enter(self._device)
                try:
                    block.enqueue(addresses, stream)
                finally:
                    self._runtime.leave(token)
        finally:
            free.append(block)

    def _build(self) -> _Block:
        names = [name for name, _ in self._operands] + list(self.recipe.offsets)
        slots = (ctypes.c_uint64 * len(names))()
        sizes = [nbytes for _, nbytes in (*self._operands, *self.recipe.buffers)]
        base = ctypes.addressof(slots)
        keep: list[Any] = [slots]
        steps: list[tuple[Any, ...]] = []
        for step in self.recipe.steps:
            if isinstance(step, Zero):
                index = names.index(step.operand)
                steps.append((index, sizes[index]))
                continue
            entry = self.variant.entry(step.role)
            addresses = (ctypes.c_void_p * len(entry.parameters))()
            for position, parameter in enumerate(entry.parameters):
                if parameter.type == "ptr":
                    addresses[position] = base + 8 * self._slot(names, parameter.name)
                else:
                    value = _TYPES[parameter.type](self._scalar(step, parameter.name))
                    keep.append(value)
                    addresses[position] = ctypes.addressof(value)
            self._check_grid(step)
            keep.append(addresses)
            assert self._kernels is not None
            kernel = self._kernels[entry.symbol]
            steps.append((kernel, *step.grid, *step.block, step.shared_bytes, ctypes.addressof(addresses)))
        runtime = self._runtime
        enqueue = make_enqueue(steps, runtime.launch, runtime.zero, runtime.failures, self._explain)
        return _Block(memoryview(slots).cast("B"), enqueue, keep)

    def _explain(self, index: int, error: Exception) -> LaunchError:
        step = self.recipe.steps[index]
        what = f"{step.role} (grid {step.grid}, block {step.block}, {step.shared_bytes} B shared)" if isinstance(step, Launch) else f"fill of {step.operand}"  # fmt: skip
        return LaunchError(f"{self.variant.id}: the launch of {what} failed: {error}")

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
