"""GroupNorm, forward: normalise groups of channels of each sample, and save their statistics for the backward."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ..bucket import Octave, Whole
from ..constraint import Fact
from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem, Unsupported
from ..manifest import Variant
from ..operands import VECTOR_BYTES, Operand
from ..recipe import Launch, Recipe, Zero
from ..sku import NormalizationKind, OpCategory
from .base import Plan, Signature
from .descriptors import check_floating, check_integers, normalize_element_fields

MAX_BLOCKS = 2**31 - 1
"""Most blocks of one launch; kernels go on in steps of the grid where they need more."""

RESERVED_SHARED_BYTES = 1024
"""Shared memory that the driver takes of every block."""

_TILE_BYTES = 16384
_CHUNK_BYTES = 32768
_MAX_CHUNKS = 512
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


@dataclass(frozen=True, kw_only=True)
class GroupNormDescriptor:
    """The problem.

    Attributes:
        input_shape: [N, C, ...], rank 2 to 8; any sequence of ints, stored as a tuple.
        num_groups: groups a sample; divides C.
        eps: added to the variance; 0 is legal.
        has_affine: whether gamma and beta take part.
        element: type of x, y, gamma and beta (f32, f64, f16, bf16).
        channel_axis: must be 1.
        stats_element: type of saved_mean and saved_rstd: acc(element), the default, or element itself.
    """

    input_shape: tuple[int, ...]
    num_groups: int
    eps: float = 1e-5
    has_affine: bool = True
    element: ElementKind
    channel_axis: int = 1
    stats_element: ElementKind | None = None

    def __post_init__(self) -> None:
        normalize_norm_fields(self)


@dataclass(frozen=True, kw_only=True)
class GroupNormArgs:
    """The arrays.

    Attributes:
        x: input, T [N, C, ...].
        y: output, T [N, C, ...]; written.  May be the same array as `x`.
        saved_mean: mean of each group, stats_element [N·G]; written.
        saved_rstd: 1/sqrt(var + eps) of each group, stats_element [N·G]; written.
        gamma: scale of each channel, T [C]; None without affine parameters.
        beta: shift of each channel, T [C]; None without affine parameters.
    """

    x: Any
    y: Any
    saved_mean: Any
    saved_rstd: Any
    gamma: Any = None
    beta: Any = None


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


class ForwardProblem(NormProblem, Protocol):
    """A forward descriptor."""

    @property
    def eps(self) -> float: ...


class GroupNormPlan(Plan[ForwardProblem, GroupNormArgs]):
    """`y = (x − mean) · rstd · gamma_c + beta_c` over groups of C/G channels of a sample.

    mean = Σx/M and var = Σ(x − mean)²/M (biased) over the M = C/G · S elements of a group, rstd = 1/√(var + eps).
    Statistics are in acc(T), also in y when they are saved in 16 bits; the variance is of residuals, never E[x²] − mean².
    A group that holds a NaN or an infinity is NaN throughout.  Empty inputs launch nothing and leave the statistics
    as they are.  Workspace: none, a counter where clusters share groups, or the moments of chunks of very large groups.
    Deterministic and bit-stable.
    Source: `torch.nn.functional.group_norm`; Wu & He, "Group Normalization", 2018.
    """

    descriptor_type: ClassVar[type] = GroupNormDescriptor
    arguments_type: ClassVar[type] = GroupNormArgs
    bucket = NORM_BUCKET
    kind = NormalizationKind.GROUP_NORM

    @classmethod
    def validate(cls, desc: ForwardProblem) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_norm(cls.__name__, desc)
        eps = desc.eps
        if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < math.inf:
            raise InvalidProblem(f"{cls.__name__}: eps is {eps!r}, want a finite number >= 0")

    @classmethod
    def signature(cls, desc: ForwardProblem) -> Signature:
        """The operation and its types."""
        return norm_signature(cls.kind, desc)

    @classmethod
    def facts(cls, desc: ForwardProblem) -> dict[str, Fact]:
        """Facts of the problem."""
        return norm_facts(desc)

    @classmethod
    def operands(cls, desc: ForwardProblem) -> tuple[Operand, ...]:
        """The argument table."""
        table = NormOperands(desc)
        return (
            table.tensor("x"),
            table.tensor("y", output=True, may_alias="x"),
            table.statistic("saved_mean", output=True),
            table.statistic("saved_rstd", output=True),
            table.channels("gamma"),
            table.channels("beta"),
        )

    @classmethod
    def recipe(cls, desc: ForwardProblem, variant: Variant, device: Device) -> Recipe:
        """The launches of a variant; an empty problem has none."""
        shape = Geometry.of(desc)
        if shape.total == 0:
            return Recipe(())
        scalars = {
            "groups": shape.groups,
            "groups_per_sample": shape.groups_per_sample,
            "channels_per_group": shape.channels_per_group,
            "spatial": shape.spatial,
            "elements": shape.elements,
            "inverse_elements": 1 / shape.elements,
            "eps": desc.eps,
        }
        algorithm = variant.design.split("_")[0]
        return _RECIPES[algorithm](shape, variant, device, scalars)

    @classmethod
    def host_options(cls, desc: ForwardProblem) -> dict[str, Any]:
        """Options of the host function."""
        return {"num_groups": desc.num_groups, "eps": desc.eps}


# What the plans of GroupNorm and InstanceNorm, forward and backward, share ----------------------------------------


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


def _walk(shape: Geometry, elements: int) -> dict[str, int]:
    """Channels and elements by which a thread goes on when it steps over `elements` of a group."""
    if shape.channels_per_group == 1:
        return {"step_channels": 0, "step_elements": 0}
    return {"step_channels": elements // shape.spatial, "step_elements": elements % shape.spatial}


# The launches of each algorithm -----------------------------------------------------------------------------------

Scalars = dict[str, int | float]


def _onchip(shape: Geometry, variant: Variant, device: Device, scalars: Scalars) -> Recipe:
    """A block, or a warp, a group."""
    tuning: Mapping[str, int] = variant.tuning
    vector, packs, threads = tuning["vector"], tuning["packs"], tuning["threads_normalize"]
    if tuning["groups_per_block"] > 1:
        warps = warps_for(shape.groups, tuning["groups_per_block"], device)
        grid, block, span = blocks_for(-(-shape.groups // warps)), 32 * warps, 32 * vector
    else:
        block = min(threads, -(-shape.elements // (32 * vector * packs)) * 32)
        grid, span = blocks_for(shape.groups), block * vector
    shared = tuning["shared_packs"] * block * vector * shape.itemsize
    return Recipe((Launch("normalize", grid, (block, 1, 1), scalars | _walk(shape, span), shared),))


def _stream(shape: Geometry, variant: Variant, device: Device, scalars: Scalars) -> Recipe:
    """As many blocks, or clusters of them, as run at once, each from group to group."""
    tuning: Mapping[str, int] = variant.tuning
    vector, packs, cluster, most = (
        tuning["vector"],
        tuning["packs"],
        tuning["cluster"],
        tuning["threads_normalize"],
    )
    block = min(most, -(-shape.elements // (32 * vector * packs * cluster)) * 32)
    shared = packs * block * VECTOR_BYTES + (3 * 32 * cluster + 1) * max(shape.itemsize, 4)
    blocks = resident_blocks(device, block, most, shared)
    grid = min(shape.groups, resident_clusters(device, blocks, cluster)) * cluster
    scalars = scalars | _walk(shape, 32 * vector)
    launch = Launch("normalize", (grid, 1, 1), (block, 1, 1), scalars, shared)
    if cluster == 1:
        return Recipe((launch,))
    # The ticket of the next group.
    return Recipe((Zero("counters"), launch), (("counters", 4),))


def _tile(shape: Geometry, variant: Variant, device: Device, scalars: Scalars) -> Recipe:
    """A block several small groups."""
    threads, held = variant.tuning["threads_normalize"], variant.tuning["held"]
    lanes = min(32, power_of_two(-(-shape.elements // held)))
    groups = tile_groups(shape, threads // lanes, _TILE_BYTES, device)
    launch = Launch(
        "normalize",
        blocks_for(-(-shape.groups // groups)),
        (threads, 1, 1),
        scalars | {"tile_groups": groups, "lanes": lanes},
        groups * shape.elements * shape.itemsize,
    )
    return Recipe((launch,))


def _thread(shape: Geometry, variant: Variant, device: Device, scalars: Scalars) -> Recipe:
    """A thread a group."""
    groups, block = thread_groups(shape, variant.tuning["threads_normalize"], device)
    launch = Launch(
        "normalize",
        blocks_for(-(-shape.groups // groups)),
        (block, 1, 1),
        scalars | {"tile_groups": groups},
        groups * shape.elements * shape.itemsize,
    )
    return Recipe((launch,))


def _reread(shape: Geometry, variant: Variant, device: Device, scalars: Scalars) -> Recipe:
    """A block a group."""
    threads = variant.tuning["threads_normalize"]
    walk = _walk(shape, threads * variant.tuning["vector"])
    return Recipe((Launch("normalize", blocks_for(shape.groups), (threads, 1, 1), scalars | walk),))


def _split(shape: Geometry, variant: Variant, device: Device, scalars: Scalars) -> Recipe:
    """Several blocks a group, twice.

    Chunks are as many as fill the device several times over, and not so many that merging their moments costs more
    than the data; they do not depend on the vector width, so that every width needs the same workspace.
    """
    unit = _CHUNK_BYTES // shape.itemsize
    wanted = -(-16 * device.sm_count // shape.groups)
    chunks = max(1, min(-(-shape.elements // unit), _MAX_CHUNKS, wanted))
    chunk_elements = -(-shape.elements // (unit * chunks)) * unit
    chunks = -(-shape.elements // chunk_elements)
    threads = variant.tuning["threads_stats"]
    scalars = scalars | {"chunks": chunks, "chunk_elements": chunk_elements}
    scalars |= _walk(shape, threads * variant.tuning["vector"])
    grid = (min(shape.groups, MAX_BLOCKS), chunks, 1)
    nbytes = shape.groups * chunks * max(shape.itemsize, 4)
    return Recipe(
        tuple(Launch(role, grid, (threads, 1, 1), scalars) for role in ("stats", "normalize")),
        tuple((name, nbytes) for name in ("chunk_shift", "chunk_offset", "chunk_spread")),
    )


_RECIPES: dict[str, Callable[[Geometry, Variant, Device, Scalars], Recipe]] = {
    "warp": _onchip,
    "block": _onchip,
    "stream": _stream,
    "tile": _tile,
    "thread": _thread,
    "reread": _reread,
    "split": _split,
}
