"""The plan protocol, written once: `select → can_implement → workspace_size → run`.

A plan adds what is its own: a descriptor with its checks, the facts that constraints speak of, an argument table, a
launch recipe, and the options of its host function.  Everything else lives here, so a plan cannot forget a check.

A plan holds no state of a run.  One plan may be run from several threads, on any stream of its device, with any
buffers of the same shapes; equal questions return the same plan (the memo is bounded).
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

from ..bucket import Part, bucket_of
from ..catalog import Registry, registry
from ..constraint import Fact
from ..device import Device, cuda_available
from ..elements import ElementKind
from ..errors import DeviceMismatch, InvalidProblem, MisalignedOperand, NoVariant, WorkspaceTooSmall
from ..execution import Runtime, View, runtime_named
from ..host import HOST_RUNTIME, host_function
from ..launcher import Launcher, Workspace, make_launcher
from ..manifest import Variant
from ..measured import digest_of, lookup, operation_key
from ..operands import VECTOR_BYTES, Operand, alignment, check
from ..preference import PlanPreference
from ..recipe import Bound, Recipe, Slots
from ..select import Requirements, Selection, select
from ..sku import BackendKind, KernelSku, OpCategory, OpKind, PrecisionGuarantee

Descriptor = TypeVar("Descriptor")
Arguments = TypeVar("Arguments")
_Self = TypeVar("_Self", bound="Plan[Any, Any]")


@dataclass(frozen=True, slots=True)
class Signature:
    """What the registry is asked for: the operation and its types."""

    category: OpCategory
    op: OpKind
    element: ElementKind
    aux_element: ElementKind | None = None


class Plan(Generic[Descriptor, Arguments]):
    """A chosen variant for one problem on one device.  Make one with `select`."""

    descriptor_type: ClassVar[type]
    arguments_type: ClassVar[type]
    bucket: ClassVar[tuple[Part, ...]]
    """Which problems share a measured time."""

    # What a plan adds ------------------------------------------------------------------------------------------

    @classmethod
    def validate(cls, desc: Descriptor) -> None:
        """Raise `Unsupported` or `InvalidProblem` for a descriptor this plan does not take."""
        raise NotImplementedError

    @classmethod
    def signature(cls, desc: Descriptor) -> Signature:
        """The operation and types of a valid descriptor."""
        raise NotImplementedError

    @classmethod
    def facts(cls, desc: Descriptor) -> dict[str, Fact]:
        """Facts of the problem, by the names that constraints use."""
        raise NotImplementedError

    @classmethod
    def operands(cls, desc: Descriptor) -> tuple[Operand, ...]:
        """The argument table, in the order of the argument bundle's fields."""
        raise NotImplementedError

    @classmethod
    def recipe(cls, desc: Descriptor, variant: Variant, device: Device) -> Recipe:
        """The launches of a variant for this problem; an empty problem has none."""
        raise NotImplementedError

    @classmethod
    def host_options(cls, desc: Descriptor) -> dict[str, Any]:
        """Keyword options of the host function, beside the operands."""
        raise NotImplementedError

    # The protocol ----------------------------------------------------------------------------------------------

    def __init__(self, desc: Descriptor, device: Device, preference: PlanPreference, table: Registry) -> None:
        self._desc = desc
        self._device = device
        self._preference = preference
        self._registry = table
        self._operands = self.operands(desc)
        self._names = tuple(operand.name for operand in self._operands)
        self._facts = self.facts(desc)
        self._selection = self._choose(VECTOR_BYTES, preference)
        self._lock = threading.Lock()
        self._bound: dict[int, Bound] = {}
        self._values: Callable[[Arguments], tuple[Any, ...]] = operator.attrgetter(*self._names)
        present = [index for index, operand in enumerate(self._operands) if operand.present]
        self._places = (
            *present,
            len(self._operands),
        )  # of given addresses among all operands, then the workspace
        self._launchers: tuple[Launcher, ...] = ()
        self._libraries: set[tuple[str, str]] = set()
        self._calls: dict[tuple[int, ...], tuple[Any, Slots]] = {}

    @classmethod
    def select(
        cls: type[_Self],
        stream: Any,
        desc: Any,
        pref: PlanPreference | None = None,
        *,
        device: Device | None = None,
    ) -> _Self:
        """Check the descriptor and choose a variant; no device work, nothing is compiled.

        Args:
            stream: the stream whose device is meant (`cupy.cuda.Stream`, an int handle, an object with
                `__cuda_stream__`), or None for the current device.
            desc: the problem.
            pref: limits and wishes; default none.
            device: the device, instead of the stream's: `Device.host()`, `Device.named("H200")`, …

        Raises:
            InvalidProblem, Unsupported: the descriptor.
            NoVariant: nothing serves it on this device under this preference; carries the whole trace.
            DeviceMismatch: the stream belongs to another device than `device`.
        """
        preference = _ANY if pref is None else pref
        if type(desc) is not cls.descriptor_type:
            raise InvalidProblem(
                f"{cls.__name__}: desc is a {type(desc).__name__}, want a {cls.descriptor_type.__name__}"
            )
        if not isinstance(preference, PlanPreference):
            raise InvalidProblem(f"{cls.__name__}: pref is {preference!r}, want a PlanPreference")
        if device is None or stream is not None:
            device = _device_of(cls.__name__, stream, device)
        # Before the memo: descriptors that compare equal may differ in what is allowed, 2.0 groups and 2.
        cls.validate(desc)
        kind: Any = cls
        plan: _Self = _memo(kind, desc, device, preference)
        return plan

    def can_implement(self, args: Arguments) -> None:
        """Check the arguments as `run` does; returns None or raises what `run` would."""
        self._check(args, self._runtime())

    @property
    def workspace_size(self) -> int:
        """Bytes of workspace that `run` needs; 0 = none."""
        return self._selection.requirements.workspace_bytes

    @property
    def descriptor(self) -> Descriptor:
        """The problem it was selected for."""
        return self._desc

    @property
    def device(self) -> Device:
        """The device it was selected for."""
        return self._device

    @property
    def preference(self) -> PlanPreference:
        """The limits and wishes it was selected under."""
        return self._preference

    @property
    def measured_as(self) -> tuple[str, str]:
        """The operation and the digest of its variants, as tables of measured times know them."""
        variants = self._serving()
        return operation_key(variants), digest_of(variants, self._registry.manifest)

    @property
    def selection(self) -> Selection:
        """The choice with its trace."""
        return self._selection

    @property
    def variant(self) -> Variant:
        """The chosen variant."""
        return self._selection.variant

    @property
    def sku(self) -> KernelSku:
        """The chosen variant's key."""
        return self._selection.variant.sku

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the chosen variant promises of its numbers."""
        return self._selection.variant.sku.precision_guarantee

    @property
    def argument_table(self) -> tuple[Operand, ...]:
        """Every argument with its dtype, shape and role."""
        return self._operands

    def prepare(self) -> None:
        """Compile and load now, so that the first `run` does not; a graph can be captured afterwards.

        Raises:
            CompileError, LaunchError: it cannot be compiled or loaded.
            DeviceMismatch: the device is not in this machine.
        """
        if not self._device.is_host:
            self._bound_for(VECTOR_BYTES, self._runtime()).prepare()

    def run(self, stream: Any, workspace: Any, args: Arguments) -> None:
        """Check the arguments and enqueue the kernels on the stream; never allocates, never synchronises.

        Args:
            stream: where to enqueue; None = the caller's current stream.
            workspace: a contiguous writable array of at least `workspace_size` bytes, 16-byte aligned, that overlaps
                no argument; may be None when `workspace_size` is 0.
            args: the argument bundle.

        Raises:
            InvalidProblem, DeviceMismatch, MisalignedOperand, BufferTooSmall, WorkspaceTooSmall: before anything is
                launched or written.
            CompileError, LaunchError: the variant cannot be compiled, loaded or launched.
        """
        for launch in self._launchers:
            if launch(args, stream, workspace):
                return
        runtime = self._runtime()
        views = self._check(args, runtime)
        values = self._values(args)
        if self._device.is_host:
            if stream is not None:
                raise InvalidProblem(f"{self._name}: stream is {stream!r}, want None on the host")
            host_function(self.variant)(**dict(zip(self._names, values)), **self.host_options(self._desc))
            return
        space = self._check_workspace(workspace, views, runtime)
        handle = runtime.stream_pointer(stream, self._device, values)
        pointers = [view.pointer for view in views if view is not None]
        key = (*pointers, space) if self.workspace_size else tuple(pointers)
        run, slots = self._remember(alignment(self._operands, views), runtime, key)
        run(slots, handle)
        self._add_launcher(values, workspace, runtime)

    # Internals -------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _serving(self) -> tuple[Variant, ...]:
        wanted = self.signature(self._desc)
        return self._registry.serving(wanted.category, wanted.op, wanted.element, wanted.aux_element)

    def _choose(self, aligned: int, preference: PlanPreference) -> Selection:
        variants = self._serving()

        def requirements(variant: Variant) -> Requirements:
            if variant.sku.backend is BackendKind.Reference:
                return Requirements()
            recipe = self.recipe(self._desc, variant, self._device)
            return Requirements(recipe.workspace_bytes, recipe.shared_bytes)

        facts = {**self._facts, "alignment": aligned}
        measured = None
        if not self._device.is_host:
            bucket = bucket_of(self.bucket, facts)
            measured = lookup(self._device.name, variants, self._registry.manifest, bucket)
        return select(self._name, variants, facts, self._device, preference, requirements, measured)

    def _runtime(self) -> Runtime:
        return HOST_RUNTIME if self._device.is_host else runtime_named(self._device.execution)

    def _check(self, args: Arguments, runtime: Runtime) -> list[View | None]:
        self._check_bundle(args)
        return check(self._name, self._operands, self._values(args), runtime.view, self._device.ordinal)

    def _check_bundle(self, args: Any) -> None:
        if type(args) is not self.arguments_type:
            raise InvalidProblem(
                f"{self._name}: args is a {type(args).__name__}, want a {self.arguments_type.__name__}"
            )

    def _check_workspace(self, workspace: Any, views: list[View | None], runtime: Runtime) -> int:
        needed = self.workspace_size
        if needed == 0:
            return 0
        if workspace is None:
            raise WorkspaceTooSmall(needed, 0, plan=self._name)
        try:
            seen = runtime.view(workspace)
        except TypeError as error:
            raise DeviceMismatch(f"{self._name}: workspace: {error}") from None
        if seen.nbytes < needed:
            raise WorkspaceTooSmall(needed, seen.nbytes, plan=self._name)
        if seen.ordinal != self._device.ordinal:
            raise DeviceMismatch(
                f"{self._name}: workspace is on cuda:{seen.ordinal}, want cuda:{self._device.ordinal}"
            )
        if not seen.contiguous or not seen.writable:
            raise InvalidProblem(f"{self._name}: workspace is not a contiguous writable array")
        if seen.pointer % VECTOR_BYTES:
            raise MisalignedOperand(
                f"{self._name}: workspace is at 0x{seen.pointer:x}, want a multiple of {VECTOR_BYTES}"
            )
        if seen.capacity < needed:
            raise WorkspaceTooSmall(needed, max(seen.capacity, 0), plan=self._name)
        end = seen.pointer + needed
        for operand, view in zip(self._operands, views):
            if view is not None and view.pointer < end and seen.pointer < view.pointer + view.nbytes:
                raise InvalidProblem(f"{self._name}: workspace overlaps {operand.name} in memory")
        return seen.pointer

    def _bound_for(self, aligned: int, runtime: Runtime) -> Bound:
        bound = self._bound.get(aligned)
        if bound is not None:
            return bound
        with self._lock:
            if aligned not in self._bound:
                variant = self._variant_for(aligned)
                sizes = [(operand.name, operand.nbytes) for operand in self._operands]
                recipe = self.recipe(self._desc, variant, self._device)
                self._bound[aligned] = Bound(
                    self._registry.manifest, variant, recipe, sizes, self._device, runtime
                )
            return self._bound[aligned]

    def _remember(self, aligned: int, runtime: Runtime, pointers: tuple[int, ...]) -> tuple[Any, Slots]:
        """What to call for these addresses (of the operands that are present, then the workspace), which fit."""
        bound = self._bound_for(aligned, runtime)
        addresses = [0] * (len(self._names) + 1)
        for place, pointer in zip(self._places, pointers):
            addresses[place] = pointer
        call = (bound.run, bound.slots(addresses))
        if len(self._calls) >= _MOST_CALLS:
            self._calls.clear()
        self._calls[pointers] = call
        return call

    def _add_launcher(self, values: Sequence[Any], workspace: Any, runtime: Runtime) -> None:
        """Write the launcher for bundles like one that has passed every check, unless there is one."""
        readers = {runtime.reader(value) for value in values if value is not None}
        reader = readers.pop()
        space = None
        if self.workspace_size:
            last = runtime.reader(workspace)
            space = None if last is None else Workspace(self.workspace_size, last)
        if reader is None or readers or (self.workspace_size and space is None):
            return
        key = (reader.library, space.reader.library if space else "")
        bound = self._bound_for(VECTOR_BYTES, runtime)
        with self._lock:
            if key in self._libraries:
                return
            self._libraries.add(key)
            names = {
                "ordinal": self._device.ordinal,
                "device": self._device,
                "stream_pointer": runtime.stream_pointer,
                "known": self._calls,
                "most": _MOST_CALLS,
                "run": bound.run,
                "pack": bound.pack,
            }
            launcher = make_launcher(
                self.arguments_type, self._operands, reader, space, VECTOR_BYTES, bound.offsets, names
            )
            self._launchers = (*self._launchers, launcher)

    def _variant_for(self, aligned: int) -> Variant:
        if aligned >= self.variant.alignment:
            return self.variant
        # The workspace that the plan announced must stay enough, whatever serves these pointers.
        try:
            limited = replace(self._preference, max_workspace_bytes=self.workspace_size)
            return self._choose(aligned, limited).variant
        except NoVariant as error:
            raise MisalignedOperand(
                f"{self._name}: an argument is aligned to {aligned} bytes, {self.variant.id} wants "
                f"{self.variant.alignment}, and no other variant serves it:\n{error}"
            ) from error


_ANY = PlanPreference()
_MOST_CALLS = 512
"""Sets of addresses that a plan remembers; a program in its stride comes back to a few."""


@functools.lru_cache(maxsize=4096)
def _memo(cls: Any, desc: Any, device: Device, preference: PlanPreference) -> Any:
    return cls(desc, device, preference, registry())


_forgotten_too: list[Callable[[], None]] = [_memo.cache_clear]


def forget_plans() -> None:
    """Select anew what is asked for next; plans that are held go on as they are."""
    for clear in _forgotten_too:
        clear()


def forget_with_plans(clear: Callable[[], None]) -> None:
    """Call `clear` whenever plans are to be selected anew: for memos that hold plans."""
    _forgotten_too.append(clear)


def _device_of(plan: str, stream: Any, device: Device | None) -> Device:
    """The device meant by a stream, or `device` when both agree."""
    if stream is None or isinstance(stream, int) or not cuda_available():
        return Device.current() if device is None else device
    from .. import cuda

    ordinal = cuda.stream_ordinal(stream)
    if device is None:
        return Device.current() if ordinal is None else cuda.device_facts(ordinal)
    if ordinal is not None and device.ordinal not in (None, ordinal):
        raise DeviceMismatch(f"{plan}: stream belongs to cuda:{ordinal}, device is cuda:{device.ordinal}")
    return device
