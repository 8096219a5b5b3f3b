"""GroupNorm, forward: normalise groups of channels of each sample, and save their statistics for the backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ..constraint import Fact
from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem
from ..manifest import Variant
from ..operands import VECTOR_BYTES, Operand
from ..recipe import Launch, Recipe, Zero
from ..sku import NormalizationKind
from .base import Plan, Signature
from .norm_problem import (
    MAX_BLOCKS,
    NORM_BUCKET,
    Geometry,
    NormOperands,
    NormProblem,
    Scalars,
    blocks_for,
    norm_facts,
    norm_signature,
    normalize_norm_fields,
    power_of_two,
    resident_blocks,
    resident_clusters,
    thread_groups,
    tile_groups,
    validate_norm,
    warps_for,
)

_TILE_BYTES = 16384
_CHUNK_BYTES = 32768
_MAX_CHUNKS = 512


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


def _walk(shape: Geometry, elements: int) -> dict[str, int]:
    """Channels and elements by which a thread goes on when it steps over `elements` of a group."""
    if shape.channels_per_group == 1:
        return {"step_channels": 0, "step_elements": 0}
    return {"step_channels": elements // shape.spatial, "step_elements": elements % shape.spatial}


# The launches of each algorithm -----------------------------------------------------------------------------------


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
