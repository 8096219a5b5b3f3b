"""What the plans of GroupNorm and InstanceNorm share, forward and backward: problem, extents, argument rows, launch shapes."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Protocol

from ..bucket import Octave, Whole
from ..constraint import Fact
from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem, Unsupported
from ..operands import VECTOR_BYTES, Operand
from ..sku import NormalizationKind, OpCategory
from .base import Signature
from .descriptors import check_floating, check_integers, normalize_element_fields

MAX_BLOCKS = 2**31 - 1
"""Most blocks of one launch; kernels go on in steps of the grid where they need more."""

RESERVED_SHARED_BYTES = 1024
"""Shared memory that the driver takes of every block."""

Scalars = dict[str, int | float]
"""Values of kernel parameters by name."""

_RANKS = range(2, 9)

NORM_BUCKET = (
    Octave("groups"),
    Octave("group_elements", 2),
    Octave("channels_per_group"),
    Whole("spatial", 8),
)
"""How many groups there are decides whether they fill the GPU, how large one is where it is held; half an octave of the
latter, because what fits on chip ends abruptly.  How a group is cut into channels decides the sums by channel, and a
channel's length the width of accesses."""


class NormProblem(Protocol):
    """Fields that the descriptors of GroupNorm and InstanceNorm share."""

    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def num_groups(self) -> int: ...
    @property
    def has_affine(self) -> bool: ...
    @property
    def element(self) -> ElementKind: ...
    @property
    def channel_axis(self) -> int: ...
    @property
    def stats_element(self) -> ElementKind | None: ...


@dataclass(frozen=True, slots=True)
class Geometry:
    """Extents of a valid problem, a tensor [N, C, S] in groups of whole channels.

    Attributes:
        batch: N.
        channels: C.
        spatial: S, product of the trailing extents.
        groups_per_sample: G.
        itemsize: bytes of an element.
    """

    batch: int
    channels: int
    spatial: int
    groups_per_sample: int
    itemsize: int

    @classmethod
    def of(cls, desc: NormProblem) -> Geometry:
        """The extents of a descriptor."""
        batch, channels, *trailing = desc.input_shape
        return cls(batch, channels, math.prod(trailing), desc.num_groups, desc.element.itemsize)

    @property
    def channels_per_group(self) -> int:
        """C/G."""
        return self.channels // self.groups_per_sample

    @property
    def groups(self) -> int:
        """N·G."""
        return self.batch * self.groups_per_sample

    @property
    def rows(self) -> int:
        """N·C, runs of S elements."""
        return self.batch * self.channels

    @property
    def elements(self) -> int:
        """M, elements of a group."""
        return self.channels_per_group * self.spatial

    @property
    def total(self) -> int:
        """Elements of the tensor."""
        return self.rows * self.spatial

    @property
    def wide(self) -> int:
        """Elements of a 16-byte vector."""
        return VECTOR_BYTES // self.itemsize


class NormOperands:
    """Rows of an argument table: whole tensors, statistics, and vectors of channels."""

    def __init__(self, desc: NormProblem) -> None:
        self._desc = desc
        self._groups = desc.input_shape[0] * desc.num_groups

    def tensor(
        self, name: str, *, output: bool = False, present: bool = True, may_alias: str = ""
    ) -> Operand:
        """T [N, C, ...]."""
        shape, element = self._desc.input_shape, self._desc.element
        because = "" if present else f"{name} is not among the outputs"
        return Operand(name, element, shape, "[N,C,...]", output, present, because, may_alias)

    def statistic(self, name: str, *, output: bool = False) -> Operand:
        """stats_element [N·G]."""
        return Operand(name, stats_element(self._desc), (self._groups,), "[N·G]", output, vector=False)

    def channels(self, name: str, *, output: bool = False, present: bool = True) -> Operand:
        """T [C], there only with affine parameters."""
        desc = self._desc
        because = f"{name} is not among the outputs" if desc.has_affine else "has_affine is False"
        present = present and desc.has_affine
        return Operand(
            name, desc.element, desc.input_shape[1:2], "[C]", output, present, because, vector=False
        )


def normalize_norm_fields(desc: Any) -> None:
    """Let descriptors take any sequence of ints as a shape, and elements by text or dtype.

    Raises:
        InvalidProblem: the shape is no sequence of ints.
        Unsupported: an element that is not in the table.
    """
    normalize_element_fields(desc)
    try:
        if any(isinstance(extent, bool) for extent in desc.input_shape):
            raise TypeError
        object.__setattr__(desc, "input_shape", tuple(operator.index(extent) for extent in desc.input_shape))
    except TypeError:
        name = type(desc).__name__
        raise InvalidProblem(
            f"{name}: input_shape is {desc.input_shape!r}, want a sequence of ints"
        ) from None


def stats_element(desc: NormProblem) -> ElementKind:
    """Type of the saved statistics."""
    return desc.element.accumulator if desc.stats_element is None else desc.stats_element


def validate_norm(plan: str, desc: NormProblem) -> None:
    """Raise `Unsupported` for rank, axis and types, then `InvalidProblem` for extents and groups."""
    shape = desc.input_shape
    check_integers(plan, desc, ("channel_axis", "num_groups"))
    if len(shape) not in _RANKS:
        raise Unsupported(f"{plan}: input_shape {shape} has rank {len(shape)}, want 2 to 8")
    if desc.channel_axis != 1:
        raise Unsupported(f"{plan}: channel_axis is {desc.channel_axis}, want 1")
    check_floating(plan, "element", desc.element)
    accumulator = desc.element.accumulator
    if stats_element(desc) not in (accumulator, desc.element):
        wanted = " or ".join(dict.fromkeys((accumulator.value, desc.element.value)))
        raise Unsupported(f"{plan}: stats_element is {stats_element(desc).value}, want {wanted}")
    if any(extent < 0 for extent in shape):
        raise InvalidProblem(f"{plan}: input_shape is {shape}, want extents >= 0")
    if desc.num_groups <= 0:
        raise InvalidProblem(f"{plan}: num_groups is {desc.num_groups}, want > 0")
    if shape[1] == 0 or shape[1] % desc.num_groups:
        raise InvalidProblem(
            f"{plan}: num_groups is {desc.num_groups}, want a divisor of the {shape[1]} channels (at least one)"
        )
    if not isinstance(desc.has_affine, bool):
        raise InvalidProblem(f"{plan}: has_affine is {desc.has_affine!r}, want a bool")


def norm_signature(kind: NormalizationKind, desc: NormProblem) -> Signature:
    """The operation and its types: statistics count as the second type where they differ from T."""
    stats = stats_element(desc)
    return Signature(OpCategory.Normalization, kind, desc.element, None if stats is desc.element else stats)


def norm_facts(desc: NormProblem) -> dict[str, Fact]:
    """Facts of the problem.

    `group_stride` is the largest power of two up to 128 that divides the bytes of a group: threads that take groups next
    to each other meet in as many banks of shared memory as it has words.
    `group_packs` counts the 16-byte vectors of a group; `run_packs` the same when every channel is padded to whole
    runs of lanes (see `run_lanes`), 0 where a channel is not whole vectors.
    """
    shape = Geometry.of(desc)
    packs = shape.spatial // shape.wide
    lanes = run_lanes(packs)
    whole = shape.spatial % shape.wide == 0
    return {
        "n": shape.batch,
        "channels": shape.channels,
        "groups": shape.groups,
        "channels_per_group": shape.channels_per_group,
        "spatial": shape.spatial,
        "group_elements": shape.elements,
        "group_packs": -(-shape.elements // shape.wide),
        "group_stride": math.gcd(shape.elements * shape.itemsize, 128),
        "run_packs": shape.channels_per_group * -(-packs // lanes) * lanes if whole else 0,
        "rows": shape.rows,
        "total": shape.total,
        "has_affine": desc.has_affine,
    }


def run_lanes(packs: int) -> int:
    """Lanes that add up a run of a channel of this many packs: a power of two, 8 at most."""
    return min(8, power_of_two(packs))


def resident_blocks(device: Device, threads: int, bound: int, shared_bytes: int) -> int:
    """Blocks of a kernel that a multiprocessor holds at once, at least one.

    `bound` is the most threads that the kernel is compiled for, whose registers fill the multiprocessor.
    """
    registers = device.registers_per_sm // bound * threads
    return max(
        1,
        min(
            device.threads_per_sm // threads,
            device.registers_per_sm // registers,
            device.shared_bytes_per_sm // (shared_bytes + RESERVED_SHARED_BYTES),
        ),
    )


def resident_clusters(device: Device, blocks: int, cluster: int) -> int:
    """Clusters that the device holds at once when a multiprocessor holds so many blocks, at least one.

    A cluster lies in one of the parts of the device that the hardware schedules by, of 16 multiprocessors or a few more;
    what pairs do not fill is left idle.
    """
    if cluster <= 2:
        return max(1, device.sm_count * blocks // cluster)
    return max(1, device.sm_count // 16 * (16 * blocks // cluster))


def power_of_two(value: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, value - 1).bit_length()


def blocks_for(count: int) -> tuple[int, int, int]:
    """The grid for so many pieces of work, a block each."""
    return (min(count, MAX_BLOCKS), 1, 1)


def warps_for(groups: int, most: int, device: Device) -> int:
    """Warps a block where a warp takes a group: few where that keeps multiprocessors busy."""
    warps = most
    while warps > 1 and groups < warps * device.sm_count:
        warps //= 2
    return warps


def tile_groups(shape: Geometry, teams: int, nbytes: int, device: Device) -> int:
    """Groups of a tile: about `nbytes`, whole turns of the teams that take them, and whole vectors in all.

    With few groups tiles are smaller, so that they are enough for every multiprocessor.
    """
    unit = shape.wide // math.gcd(shape.elements, shape.wide)
    count = min(nbytes // (shape.elements * shape.itemsize), -(-shape.groups // (2 * device.sm_count)))
    if count > teams:
        count -= count % teams
    return max(unit, -(-count // unit) * unit)


def thread_groups(shape: Geometry, threads: int, device: Device) -> tuple[int, int]:
    """Groups of a block of which a thread takes one, whole vectors in all, and threads; fewer where groups are few."""
    unit = shape.wide // math.gcd(shape.elements, shape.wide)
    count = min(threads, -(-shape.groups // (4 * device.sm_count)))
    count = min(threads, -(-count // unit) * unit)
    return count, -(-count // 32) * 32
