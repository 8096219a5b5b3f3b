"""GroupNorm, backward: gradients with respect to the input and to the affine parameters."""

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
    run_lanes,
    thread_groups,
    tile_groups,
    validate_norm,
    warps_for,
)

OUTPUTS = ("dx", "dgamma", "dbeta")
"""Gradients in the order of the arguments."""

_TILE_BYTES = 32768
_PIECE_BYTES = 16384
_LEAST_PIECE_BYTES = 2048
_SLICE_ROWS = 1024


@dataclass(frozen=True, kw_only=True)
class GroupNormBackwardDescriptor:
    """The problem.

    Attributes:
        input_shape: [N, C, ...], rank 2 to 8; any sequence of ints, stored as a tuple.
        num_groups: groups a sample; divides C.
        has_affine: whether gamma and beta took part in the forward.
        element: type of the tensors and channel vectors (f32, f64, f16, bf16).
        channel_axis: must be 1.
        stats_element: type of saved_mean and saved_rstd: acc(element), the default, or element itself.
        outputs: gradients to compute, of "dx", "dgamma", "dbeta"; None = all there are ("dx" alone without affine
            parameters).
    """

    input_shape: tuple[int, ...]
    num_groups: int
    has_affine: bool = True
    element: ElementKind
    channel_axis: int = 1
    stats_element: ElementKind | None = None
    outputs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        normalize_norm_fields(self)
        normalize_outputs(self)


@dataclass(frozen=True, kw_only=True)
class GroupNormBackwardArgs:
    """The arrays.

    Attributes:
        dy: upstream gradient, T [N, C, ...].
        x: input of the forward, T [N, C, ...].
        saved_mean: mean of each group, stats_element [N·G].
        saved_rstd: 1/sqrt(var + eps) of each group, stats_element [N·G].
        dx: gradient with respect to x, T [N, C, ...]; written.  May be the same array as `dy`.
        gamma: scale of each channel, T [C]; None without affine parameters.
        dgamma: gradient with respect to gamma, T [C]; written.
        dbeta: gradient with respect to beta, T [C]; written.
    """

    dy: Any
    x: Any
    saved_mean: Any
    saved_rstd: Any
    dx: Any = None
    gamma: Any = None
    dgamma: Any = None
    dbeta: Any = None


class BackwardProblem(NormProblem, Protocol):
    """A backward descriptor."""

    @property
    def outputs(self) -> tuple[str, ...] | None: ...


class GroupNormBackwardPlan(Plan[BackwardProblem, GroupNormBackwardArgs]):
    """Gradients of `GroupNormPlan`, from the statistics as they were saved.

    With h = dy · gamma_c and x̂ = (x − mean) · rstd: A = Σ_group h, B = Σ_group h·x̂,
    dx = rstd · (h − A/M − x̂·B/M), dgamma_c = Σ_{n,s} dy·x̂, dbeta_c = Σ_{n,s} dy.  Sums are in acc(T).

    gamma is given iff has_affine; the gradients that are given are those of `outputs`.  Which ones are asked for does
    not change the bits of any.  Empty inputs have zero dgamma and dbeta.  Workspace: by variant; that of `three_stage`
    is 2·N·G accumulators.  Deterministic and bit-stable.
    Source: the seed `group_norm_backward`; `torch.ops.aten.native_group_norm_backward`.
    """

    descriptor_type: ClassVar[type] = GroupNormBackwardDescriptor
    arguments_type: ClassVar[type] = GroupNormBackwardArgs
    bucket = NORM_BUCKET
    kind = NormalizationKind.GROUP_NORM_BACKWARD

    @classmethod
    def validate(cls, desc: BackwardProblem) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_norm(cls.__name__, desc)
        allowed = OUTPUTS if desc.has_affine else OUTPUTS[:1]
        outputs = desc.outputs
        if not outputs or len(set(outputs)) != len(outputs) or not set(outputs) <= set(allowed):
            because = "" if desc.has_affine else " (has_affine is False)"
            raise InvalidProblem(f"{cls.__name__}: outputs is {outputs!r}, want some of {allowed}{because}")

    @classmethod
    def signature(cls, desc: BackwardProblem) -> Signature:
        """The operation and its types."""
        return norm_signature(cls.kind, desc)

    @classmethod
    def facts(cls, desc: BackwardProblem) -> dict[str, Fact]:
        """Facts of the problem; the outputs are none, so that they cannot change the choice, and so the bits."""
        return norm_facts(desc)

    @classmethod
    def operands(cls, desc: BackwardProblem) -> tuple[Operand, ...]:
        """The argument table."""
        table = NormOperands(desc)
        outputs = desc.outputs or ()
        return (
            table.tensor("dy"),
            table.tensor("x"),
            table.statistic("saved_mean"),
            table.statistic("saved_rstd"),
            table.tensor("dx", output=True, present="dx" in outputs, may_alias="dy"),
            table.channels("gamma"),
            table.channels("dgamma", output=True, present="dgamma" in outputs),
            table.channels("dbeta", output=True, present="dbeta" in outputs),
        )

    @classmethod
    def recipe(cls, desc: BackwardProblem, variant: Variant, device: Device) -> Recipe:
        """The launches of a variant; an empty problem only has sums over nothing, which are zeros."""
        shape = Geometry.of(desc)
        work = Work(
            shape,
            variant,
            device,
            wants_dx="dx" in (desc.outputs or ()),
            wants_affine=any(name != "dx" for name in desc.outputs or ()),
        )
        if shape.total == 0:
            return Recipe(tuple(Zero(name) for name in desc.outputs or () if name != "dx"))
        algorithm = variant.design.split("_")[0]
        return _RECIPES[algorithm](work)

    @classmethod
    def host_options(cls, desc: BackwardProblem) -> dict[str, Any]:
        """Options of the host function."""
        return {"num_groups": desc.num_groups}


def normalize_outputs(desc: Any) -> None:
    """Replace None by all outputs there are, and put them in order.

    Raises:
        InvalidProblem: outputs is no sequence of names.
    """
    outputs = desc.outputs
    if outputs is None:
        outputs = OUTPUTS if desc.has_affine else OUTPUTS[:1]
    if isinstance(outputs, str) or not all(isinstance(name, str) for name in outputs):
        raise InvalidProblem(
            f"{type(desc).__name__}: outputs is {outputs!r}, want a sequence of names among {OUTPUTS}"
        )
    object.__setattr__(desc, "outputs", tuple(sorted(outputs, key=lambda name: (*OUTPUTS, name).index(name))))


@dataclass(frozen=True, slots=True)
class Work:
    """What a recipe is made from."""

    shape: Geometry
    variant: Variant
    device: Device
    wants_dx: bool
    wants_affine: bool

    @property
    def tuning(self) -> Mapping[str, int]:
        """Parameters of the variant's design."""
        return self.variant.tuning

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of an acc(T)."""
        return max(self.shape.itemsize, 4)

    @property
    def scalars(self) -> Scalars:
        """Values of parameters that most kernels take."""
        shape = self.shape
        return {
            "batch": shape.batch,
            "groups": shape.groups,
            "groups_per_sample": shape.groups_per_sample,
            "channels_per_group": shape.channels_per_group,
            "spatial": shape.spatial,
            "inverse_elements": 1 / shape.elements,
            "keep_sums": int(self.wants_affine),
        }

    def affine(self, rows: int | None = None) -> Recipe:
        """The launches that make dgamma and dbeta of `row_sums` [2][rows][C], with their buffers; a row a sample if None."""
        shape = self.shape
        rows = shape.batch if rows is None else rows
        threads_affine = self.tuning["threads_affine"]
        # Fewer columns a block, down to those of a 32-byte sector, where there are rows for all its threads.
        sector = 32 // self.accumulator_bytes
        columns = min(32 if rows < 4 * threads_affine // 32 else sector, power_of_two(shape.channels))
        blocks = -(-shape.channels // columns)
        slices = min(-(-rows // _SLICE_ROWS), max(1, 4 * self.device.sm_count // blocks))
        slice_rows = -(-rows // slices)
        slices = -(-rows // slice_rows)
        pair = 2 * self.accumulator_bytes * shape.channels
        sizes = (("row_sums", pair * rows), ("slice_sums", pair * slices if slices > 1 else 0))
        if not self.wants_affine:
            return Recipe((), tuple((name, 0) for name, _ in sizes))
        scalars: Scalars = {
            "rows": rows,
            "channels": shape.channels,
            "slices": slices,
            "slice_rows": slice_rows,
            "columns": columns,
        }

        def threads(role: str, count: int) -> tuple[int, int, int]:
            """Few enough that each has some rows: what they found is then added up by one warp."""
            return (max(32, min(self.tuning[role], columns * power_of_two(-(-count // 4)))), 1, 1)

        last = Launch(
            "affine", blocks_for(blocks), threads("threads_affine", slices if slices > 1 else rows), scalars
        )
        if slices == 1:
            return Recipe((last,), sizes)
        first = Launch("slices", blocks_for(blocks * slices), threads("threads_slices", slice_rows), scalars)
        return Recipe((first, last), sizes)

    def pieces(self) -> tuple[int, int]:
        """Elements of a piece of a row, and pieces a row: shorter where they would be few, the same for every width."""
        shape = self.shape
        length = _PIECE_BYTES // shape.itemsize
        while (
            length > _LEAST_PIECE_BYTES // shape.itemsize
            and shape.rows * -(-shape.spatial // length) < 8 * self.device.sm_count
        ):
            length //= 2
        return length, -(-shape.spatial // length)

    def gradient_rows(self) -> Launch:
        """The launch that makes dx of the groups' sums."""
        shape, tuning = self.shape, self.tuning
        threads, vector, packs = tuning["threads_gradient"], tuning["vector"], tuning["packs"]
        lanes = min(threads, power_of_two(-(-shape.spatial // (vector * packs))))
        segment = lanes * vector * packs * 2
        segments = -(-shape.spatial // segment)
        units = -(-shape.rows // (threads // lanes)) * segments
        scalars = self.scalars | {"lanes": lanes, "segments": segments, "segment_elements": segment}
        return Launch("gradient", blocks_for(units), (threads, 1, 1), scalars)

    def group_sums(self) -> tuple[str, int]:
        """The buffer of the groups' sums, 2·N·G accumulators.

        It is there without dx too: a misaligned call chooses again within the workspace that was announced, and what
        fits must not depend on the outputs, or their bits would.
        """
        return ("group_sums", 2 * self.shape.groups * self.accumulator_bytes)


# The launches of each algorithm -----------------------------------------------------------------------------------


def _onchip_walk(work: Work, team: int) -> dict[str, int]:
    """How a team of threads goes over the runs of a group's channels."""
    row_packs = work.shape.spatial // work.tuning["vector"]
    lanes = run_lanes(row_packs)
    runs = -(-row_packs // lanes)
    step = team // lanes
    return {
        "lane_bits": lanes.bit_length() - 1,
        "runs": runs,
        "step_channels": step // runs,
        "step_runs": step % runs,
        "channel_bits": min(32, power_of_two(runs)).bit_length() - 1,
    }


def _onchip(work: Work) -> Recipe:
    """A block, or a warp, a group; then sums over samples."""
    shape, tuning = work.shape, work.tuning
    vector, packs = tuning["vector"], tuning["packs"]
    row_packs = shape.spatial // vector
    lanes = run_lanes(row_packs)
    padded = shape.channels_per_group * -(-row_packs // lanes) * lanes
    if tuning["groups_per_block"] > 1:
        team = 32
        teams = warps_for(shape.groups, tuning["groups_per_block"], work.device)
    else:
        team = min(tuning["threads_gradient"], -(-padded // (32 * packs)) * 32)
        teams = 1
    shared = 2 * packs * (team // lanes) * work.accumulator_bytes
    if tuning["shared_dy"]:
        shared += packs * team * vector * shape.itemsize
    scalars = work.scalars | _onchip_walk(work, team)
    grid = blocks_for(-(-shape.groups // teams))
    affine = work.affine()
    gradient = Launch("gradient", grid, (team * teams, 1, 1), scalars, shared * teams)
    return Recipe((gradient, *affine.steps), affine.buffers)


def _stream(work: Work) -> Recipe:
    """As many blocks, or clusters of them, as run at once, each from group to group."""
    shape, tuning, device = work.shape, work.tuning, work.device
    vector, packs, cluster = tuning["vector"], tuning["packs"], tuning["cluster"]
    row_packs = shape.spatial // vector
    lanes = math.gcd(row_packs, 32)
    runs = row_packs // lanes
    teams = 32 // lanes
    group_packs = shape.channels_per_group * row_packs
    threads = min(tuning["threads_gradient"], -(-group_packs // (32 * packs * cluster)) * 32)
    shared = 2 * packs * threads * VECTOR_BYTES
    shared += (
        4 * (32 * cluster + 1 + (shape.channels_per_group + threads // 32) * teams) * work.accumulator_bytes
    )
    blocks = resident_blocks(device, threads, tuning["threads_gradient"], shared)
    grid = min(shape.groups, resident_clusters(device, blocks, cluster)) * cluster
    scalars = work.scalars | {
        "lane_bits": lanes.bit_length() - 1,
        "runs": runs,
        "step_channels": teams // runs,
        "step_runs": teams % runs,
    }
    gradient = Launch("gradient", (grid, 1, 1), (threads, 1, 1), scalars, shared)
    if cluster == 1:
        affine = work.affine()
        return Recipe((gradient, *affine.steps), affine.buffers)
    row_sums = 2 * cluster * shape.rows * work.accumulator_bytes if work.wants_affine else 0
    # The ticket of the next group, and of each place in a sample how many of its groups are done.
    counters = 4 * (1 + shape.groups_per_sample)
    return Recipe((Zero("counters"), gradient), (("counters", counters), ("row_sums", row_sums)))


def _tile(work: Work) -> Recipe:
    """A block the rows of several small groups; then sums over samples."""
    shape = work.shape
    threads, held = work.tuning["threads_gradient"], work.tuning["held"]
    lanes = min(32, power_of_two(-(-shape.spatial // held)))
    teams = max(1, threads // lanes // shape.channels_per_group)
    groups = tile_groups(shape, teams, _TILE_BYTES // 2, work.device)
    elements = groups * shape.elements
    sums = 2 * (groups * shape.channels_per_group + groups) * work.accumulator_bytes
    sums = -(-sums // 16) * 16 if shape.channels_per_group > 1 else 0
    scalars = work.scalars | {
        "tile_groups": groups,
        "tile_elements": elements,
        "sums_bytes": sums,
        "lanes": lanes,
    }
    grid = blocks_for(-(-shape.groups // groups))
    affine = work.affine()
    gradient = Launch("gradient", grid, (threads, 1, 1), scalars, sums + 2 * elements * shape.itemsize)
    return Recipe((gradient, *affine.steps), affine.buffers)


def _alone(work: Work) -> Recipe:
    """One block everything, in one launch: a warp a group, or a run of lanes a row."""
    shape, tuning = work.shape, work.tuning
    most = tuning["threads_gradient"]
    scalars = work.scalars | {"sample_lanes": min(32, power_of_two(shape.batch))}
    if "packs" in tuning:
        threads = min(most, 32 * shape.groups)
        walk = _onchip_walk(work, 32)
        runs = 2 * tuning["packs"] * (32 >> walk["lane_bits"]) * threads // 32
        shared = (runs + 2 * shape.rows) * work.accumulator_bytes
        return Recipe((Launch("gradient", (1, 1, 1), (threads, 1, 1), scalars | walk, shared),))
    lanes = min(32, power_of_two(-(-shape.spatial // tuning["held"])))
    threads = min(most, -(-max(shape.rows * lanes, shape.channels) // 32) * 32)
    # Sums of rows for dgamma and dbeta; where rows meet, weighted ones and those of the groups too.
    sums = 2 * shape.rows + (2 * (shape.rows + shape.groups) if shape.channels_per_group > 1 else 0)
    sums_bytes = -(-sums * work.accumulator_bytes // 16) * 16
    elements = -(-shape.total // shape.wide) * shape.wide
    scalars |= {
        "tile_groups": shape.groups,
        "tile_elements": elements,
        "sums_bytes": sums_bytes,
        "lanes": lanes,
    }
    shared = sums_bytes + 2 * elements * shape.itemsize
    return Recipe((Launch("gradient", (1, 1, 1), (threads, 1, 1), scalars, shared),))


def _thread(work: Work) -> Recipe:
    """A thread a group; then sums over samples, or over blocks where a sample is one group."""
    shape = work.shape
    groups, block = thread_groups(shape, work.tuning["threads_gradient"], work.device)
    elements = groups * shape.elements
    blocks = -(-shape.groups // groups)
    by_block = shape.groups_per_sample == 1
    scalars = work.scalars | {
        "tile_groups": groups,
        "tile_elements": elements,
        "by_block": int(by_block),
    }
    affine = work.affine(blocks if by_block else None)
    gradient = Launch("gradient", blocks_for(blocks), (block, 1, 1), scalars, 2 * elements * shape.itemsize)
    buffers = affine.buffers
    if work.wants_affine:
        # A misaligned call is served by a narrower variant within the same workspace: sums by block alone are too few.
        (name, nbytes), *others = buffers
        buffers = ((name, max(nbytes, work.group_sums()[1])), *others)
    return Recipe((gradient, *affine.steps), buffers)


def _reread(work: Work) -> Recipe:
    """A block a group; then sums over samples."""
    shape = work.shape
    threads = work.tuning["threads_gradient"]
    slices = -(-threads // 32 // shape.channels_per_group) if shape.channels_per_group < threads // 32 else 1
    slice_elements = -(-shape.spatial // (slices * shape.wide)) * shape.wide
    slices = -(-shape.spatial // slice_elements)
    scalars = work.scalars | {"slices": slices, "slice_elements": slice_elements}
    affine = work.affine()
    gradient = Launch("gradient", blocks_for(shape.groups), (threads, 1, 1), scalars)
    return Recipe((gradient, *affine.steps), affine.buffers)


def _three_stage(work: Work) -> Recipe:
    """Sums of groups, affine gradients, dx: the affine gradients read dy, which dx may replace."""
    shape, tuning = work.shape, work.tuning
    threads = tuning["threads_sums"]
    lanes = min(threads, power_of_two(-(-shape.spatial // (4 * tuning["vector"]))))
    scalars = work.scalars | {"lanes": lanes}
    sums = Launch("sums", blocks_for(shape.groups), (threads, 1, 1), scalars)
    affine = Launch("affine", blocks_for(shape.channels), (threads, 1, 1), scalars)
    steps = [sums] if work.wants_dx else []
    steps += [affine] if work.wants_affine else []
    steps += [work.gradient_rows()] if work.wants_dx else []
    return Recipe(tuple(steps), (work.group_sums(),))


def _split(work: Work) -> Recipe:
    """Sums of pieces of rows, sums of groups, dx; then sums over samples and pieces."""
    shape, tuning = work.shape, work.tuning
    threads = tuning["threads_sums"]
    piece_elements, pieces = work.pieces()
    longest = min(shape.spatial, piece_elements)
    lanes = min(32, power_of_two(-(-longest // (tuning["vector"] * tuning["packs"]))))
    scalars = work.scalars | {
        "lanes": lanes,
        "pieces": pieces,
        "piece_elements": piece_elements,
        "channel_rows": shape.rows,
    }
    sums = Launch("sums", blocks_for(-(-pieces * shape.rows // (threads // lanes))), (threads, 1, 1), scalars)
    groups = Launch("groups", blocks_for(shape.groups), (tuning["threads_groups"], 1, 1), scalars)
    affine = work.affine(pieces * shape.batch)
    dx_steps = (groups, work.gradient_rows()) if work.wants_dx else ()
    row_sums = ("row_sums", 2 * pieces * shape.rows * work.accumulator_bytes)
    return Recipe((sums, *dx_steps, *affine.steps), (row_sums, affine.buffers[1], work.group_sums()))


_RECIPES: dict[str, Callable[[Work], Recipe]] = {
    "warp": _onchip,
    "block": _onchip,
    "stream": _stream,
    "tile": _tile,
    "alone": _alone,
    "thread": _thread,
    "reread": _reread,
    "three": _three_stage,
    "split": _split,
}
