"""Normalization: GroupNorm and InstanceNorm, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator

from baracuda_registry.constraint import Constraint
from baracuda_registry.elements import FLOATING, ElementKind, MathPrecision
from baracuda_registry.manifest import RankRule
from baracuda_registry.sku import ArchSku, NormalizationKind, OpCategory, PrecisionGuarantee

from ..model import Design, Kernel, Op, Parameter

_TABLE = "codegen/families/normalization.py"

# T with statistics of type T, and 16-bit T with statistics in f32.
_TYPES: tuple[tuple[ElementKind, ElementKind | None], ...] = tuple(
    (element, aux)
    for element in FLOATING
    for aux in (
        (None, ElementKind.F32)
        if element.accumulator is ElementKind.F32 and element.itemsize < 4
        else (None,)
    )
)


def _guarantee(element: ElementKind, _: ElementKind | None) -> PrecisionGuarantee:
    """Arithmetic and sums in acc(T), every sum in a fixed order."""
    acc = element.accumulator
    return PrecisionGuarantee(
        MathPrecision(acc.value), acc, bit_stable_on_same_hardware=True, deterministic=True
    )


def _host_guarantee(_: ElementKind, __: ElementKind | None) -> PrecisionGuarantee:
    """The host computes in float64 for every type."""
    return PrecisionGuarantee(
        MathPrecision.F64, ElementKind.F64, bit_stable_on_same_hardware=True, deterministic=True
    )


def _parameters(text: str) -> tuple[Parameter, ...]:
    """Parameters from `type name` lines; `in` and `out` stand for restricted pointers to elements."""
    rows = []
    for line in text.split(","):
        ctype, name = line.strip().rsplit(" ", 1)
        rows.append(Parameter(name, _SHORT.get(ctype, ctype)))
    return tuple(rows)


_SHORT = {
    "in": "const elem_t* __restrict__",
    "in stat": "const stat_t* __restrict__",
    "in sum": "const acc_t* __restrict__",
    "out": "elem_t* __restrict__",
    "out stat": "stat_t* __restrict__",
    "out sum": "acc_t* __restrict__",
    "sum": "acc_t*",
    "aliased in": "const elem_t*",
    "aliased out": "elem_t*",
}


_ALIGNED_ROW = "a vector must lie in one channel"
_ONE_GROUP = Constraint("groups", "le", 2**31 - 1, "a block takes one group")


def _aligned_groups(vector: int) -> tuple[Constraint, ...]:
    """Groups start at a vector; a vector may lie in two channels, but not in three."""
    return (
        Constraint("group_elements", "multiple_of", vector, "groups must start at a vector"),
        Constraint("spatial", "ge", vector, "a vector must lie in two channels at most"),
    )


def _whole_packs(vector: int, field: str, why: str) -> tuple[Constraint, ...]:
    return (Constraint(field, "multiple_of", vector, why),) if vector > 1 else ()


# Forward ----------------------------------------------------------------------------------------------------------

_TENSORS = "aliased in x, aliased out y, out stat saved_mean, out stat saved_rstd, in gamma, in beta"
_FORWARD = f"{_TENSORS}, long long groups, long long groups_per_sample"
_NORMALIZE_ONCHIP = _parameters(
    f"{_TENSORS}, long long groups, int groups_per_sample, int channels_per_group, int spatial, int elements, acc_t inverse_elements, acc_t eps,"
    "int step_channels, int step_elements"
)
_NORMALIZE_TILE = _parameters(
    f"{_TENSORS}, long long groups, int groups_per_sample, int channels_per_group, int spatial, int elements,"
    "acc_t inverse_elements, acc_t eps, int tile_groups, int lanes"
)
_NORMALIZE_THREAD = _parameters(
    f"{_TENSORS}, long long groups, int groups_per_sample, int channels_per_group, int spatial, int elements,"
    "acc_t inverse_elements, acc_t eps, int tile_groups"
)
_NORMALIZE_CLUSTER = _parameters(
    f"{_TENSORS}, int* counters, long long groups, int groups_per_sample, int channels_per_group, int spatial, int elements,"
    "acc_t inverse_elements, acc_t eps, int step_channels, int step_elements"
)
_TILE_LIMITS = (
    Constraint("channels", "le", 2**30, "channels of a tile are counted in 32 bits"),
    Constraint("groups", "le", 2**31 - 1, "a block takes at least one group"),
)
_LARGE = (
    "long long channels_per_group, long long spatial, long long elements, acc_t inverse_elements, acc_t eps,"
    "int step_channels, long long step_elements"
)
_NORMALIZE_REREAD = _parameters(f"{_FORWARD}, {_LARGE}")
_STATS_SPLIT = _parameters(
    "in x, out sum chunk_shift, out sum chunk_offset, out sum chunk_spread, long long groups, long long elements,"
    "acc_t inverse_elements, int chunks, long long chunk_elements"
)
_NORMALIZE_SPLIT = _parameters(
    f"{_FORWARD}, {_LARGE}, in sum chunk_shift, in sum chunk_offset, in sum chunk_spread, int chunks,"
    "long long chunk_elements"
)


def _forward(element: ElementKind, _: ElementKind | None) -> tuple[Design, ...]:
    wide = 16 // element.itemsize
    return (
        *_forward_onchip(wide),
        *_forward_stream(wide),
        *_forward_tile(wide),
        *_forward_thread(wide),
        *_forward_reread(wide, element),
        *_forward_split(wide, element),
    )


def _forward_onchip(wide: int) -> Iterator[Design]:
    """Designs that read a group once, into registers."""
    # A tile serves better very many groups that leave most lanes idle, a block the few groups that leave multiprocessors
    # idle, and the long ones, which warps read too few of at once.
    small = RankRule((Constraint("group_packs", "lt", 8), Constraint("groups", "ge", 8192)), 26)
    few = RankRule((Constraint("groups", "lt", 1056), Constraint("group_packs", "gt", 64)), 28)
    long = RankRule((Constraint("group_packs", "ge", 96),), 26)
    for packs, rank in ((2, 10), (8, 11)):
        yield Design(
            name=f"warp_p{packs}_v{wide}",
            template="group_norm_onchip.cu.j2",
            summary=f"one warp holds a group in registers, {packs} 16-byte packs a thread",
            kernels=(Kernel("normalize", _NORMALIZE_ONCHIP, 256, 8 // packs + 1),),
            rank=rank,
            rank_rules=(small, few, long),
            tuning={"vector": wide, "packs": packs, "shared_packs": 0, "groups_per_block": 8, "straddle": 1},
            constraints=(
                *_aligned_groups(wide),
                _ONE_GROUP,
                Constraint("group_packs", "le", 32 * packs, "a group must fit a warp's registers"),
            ),
            alignment=16,
        )
    double = wide == 2
    for packs, shared, min_blocks, straddle, rank in (
        (2, 0, 3, 1, 23),
        (5, 0, 2, 1, 21),
        (10, 0, 1 if double else 2, 0, 22),
        (20, 13, 2 if wide == 4 else 1, 1, 23),
    ):
        rules: tuple[RankRule, ...] = ()
        if packs < 10:
            # With few groups the widest block is the fastest; with many, more and smaller blocks a multiprocessor
            # overlap one's barriers with another's reads.
            rules = (
                RankRule((Constraint("groups", "lt", 264),), 20 if packs == 2 else 21),
                RankRule((Constraint("group_packs", "gt", 256 * packs),), 30 if packs == 2 else 22),
            )
        place = f"{shared} of them in shared memory" if shared else "all in registers"
        yield Design(
            name=f"block_p{packs}_v{wide}",
            template="group_norm_onchip.cu.j2",
            summary=f"one block holds a group, {packs} 16-byte packs a thread, {place}",
            kernels=(Kernel("normalize", _NORMALIZE_ONCHIP, 512, min_blocks),),
            rank=rank,
            rank_rules=rules,
            tuning={
                "vector": wide,
                "packs": packs,
                "shared_packs": shared,
                "groups_per_block": 1,
                "straddle": straddle,
            },
            constraints=(
                *(_aligned_groups(wide) if straddle else _whole_packs(wide, "spatial", _ALIGNED_ROW)),
                _ONE_GROUP,
                Constraint("group_packs", "le", 512 * packs, "a block must hold a group"),
            ),
            alignment=16,
        )
    yield Design(
        name="block_p20_v1",
        template="group_norm_onchip.cu.j2",
        summary="one block holds a group in registers, 20 elements a thread",
        kernels=(Kernel("normalize", _NORMALIZE_ONCHIP, 512, 1 if wide == 2 else 2),),
        rank=40,
        tuning={"vector": 1, "packs": 20, "shared_packs": 0, "groups_per_block": 1, "straddle": 0},
        constraints=(
            _ONE_GROUP,
            Constraint("group_elements", "le", 512 * 20, "a group must fit a block's registers"),
        ),
    )


def _forward_stream(wide: int) -> Iterator[Design]:
    """Persistent designs for groups that fill a multiprocessor or several: the next one is on its way."""
    for cluster in (1, 2, 4, 8):
        # The same shared memory; exchange within a cluster needs some more registers a thread.
        packs, batch, threads = (28, 7, 512) if wide == 2 else (14, 7, 1024) if cluster == 1 else (18, 6, 768)
        tier = f"cluster{cluster}_" if cluster > 1 else ""
        who = f"the {cluster} blocks of a cluster hold" if cluster > 1 else "one block holds"
        yield Design(
            name=f"stream_{tier}p{packs}_v{wide}",
            template="group_norm_stream.cu.j2",
            summary=f"{who} group after group in shared memory, {packs} 16-byte packs a thread",
            kernels=(
                Kernel(
                    "normalize", _NORMALIZE_CLUSTER if cluster > 1 else _NORMALIZE_ONCHIP, threads, 1, cluster
                ),
            ),
            rank=23 + cluster,
            rank_rules=_few_groups(cluster),
            tuning={
                "vector": wide,
                "packs": packs,
                "batch": batch,
                "cluster": cluster,
                "straddle": 1,
            },
            constraints=(
                *_aligned_groups(wide),
                _ONE_GROUP,
                Constraint("group_packs", "le", threads * packs * cluster, "shared memory must hold a group"),
            ),
            alignment=16,
            arch=ArchSku.Sm90a if cluster > 1 else ArchSku.Sm80,
        )


def _few_groups(cluster: int) -> tuple[RankRule, ...]:
    """Large groups fewer than multiprocessors are shared by clusters that keep more of these busy."""
    if cluster == 1:
        few = Constraint("groups", "le", 132)
        return (RankRule((few, Constraint("group_packs", "gt", 2560)), 20),)
    large = Constraint("group_packs", "ge", 8192)
    rules = [RankRule((Constraint("groups", "le", 132 // cluster), large), 20 - cluster)]
    if cluster == 8:
        rules.append(RankRule((Constraint("groups", "le", 66), Constraint("group_packs", "ge", 32768)), 15))
    return tuple(rules)


def _forward_tile(wide: int) -> Iterator[Design]:
    """Designs for small groups: any length, whole vectors all the same."""
    for held, rank, rules in ((8, 25, (RankRule((Constraint("group_packs", "lt", 32),), 12),)), (32, 41, ())):
        yield Design(
            name=f"tile_h{held}_v{wide}",
            template="group_norm_tile.cu.j2",
            summary=f"one block takes many small groups through shared memory, {held} elements a lane",
            kernels=(
                Kernel(
                    "normalize",
                    _NORMALIZE_TILE,
                    256,
                    (3 if wide == 2 else 4) if held == 8 else (1 if wide == 2 else 2),
                ),
            ),
            rank=rank,
            rank_rules=rules,
            tuning={"vector": wide, "held": held, "straddle": 0},
            constraints=(
                Constraint("group_elements", "le", 32 * held, "a group must fit a warp's registers"),
                *_TILE_LIMITS,
            ),
            alignment=16,
        )


_THREAD_LIMITS = (
    Constraint("group_elements", "le", 256, "one thread goes over a group"),
    Constraint("group_stride", "le", 16, "threads of a warp must meet in few banks of shared memory"),
    *_TILE_LIMITS,
)
_THREAD_RANKS = (RankRule((Constraint("groups", "ge", 16384), Constraint("group_elements", "le", 128)), 4),)


def _forward_thread(wide: int) -> Iterator[Design]:
    """For very many tiny groups."""
    yield Design(
        name=f"thread_v{wide}",
        template="group_norm_thread.cu.j2",
        summary="one thread a tiny group, which its block copies through shared memory with many others",
        kernels=(Kernel("normalize", _NORMALIZE_THREAD, 128, 8),),
        rank=31,
        rank_rules=_THREAD_RANKS,
        tuning={"vector": wide, "straddle": 0},
        constraints=_THREAD_LIMITS,
        alignment=16,
    )


def _forward_reread(wide: int, element: ElementKind) -> Iterator[Design]:
    for vector, packs, rank in ((wide, 4, 60), (1, 8, 70)):
        yield Design(
            name=f"reread_v{vector}",
            template="group_norm_reread.cu.j2",
            summary=f"one block goes over a group of any size twice, {vector} element(s) an access",
            kernels=(Kernel("normalize", _NORMALIZE_REREAD, 512, 1),),
            rank=rank,
            tuning={"vector": vector, "packs": packs, "straddle": int(vector > 1)},
            constraints=_aligned_groups(vector) if vector > 1 else (),
            alignment=vector * element.itemsize,
        )


def _forward_split(wide: int, element: ElementKind) -> Iterator[Design]:
    for vector, packs, rank in ((wide, 4, 50), (1, 4 if wide == 2 else 8, 65)):
        yield Design(
            name=f"split_v{vector}",
            template="group_norm_split.cu.j2",
            summary=f"several blocks a group: moments of chunks, then normalise; {vector} element(s) an access",
            kernels=(Kernel("stats", _STATS_SPLIT, 256, 2), Kernel("normalize", _NORMALIZE_SPLIT, 256, 2)),
            rank=rank,
            tuning={"vector": vector, "packs": packs, "straddle": int(vector > 1)},
            constraints=_aligned_groups(vector) if vector > 1 else (),
            alignment=vector * element.itemsize,
        )


# Backward ---------------------------------------------------------------------------------------------------------

_BACKWARD = "aliased in dy, in x, in gamma, in stat saved_mean, in stat saved_rstd, aliased out dx"
_GROUPS = "long long groups, long long groups_per_sample"
_AFFINE_THREADS = 512
_AFFINE_KERNELS = (
    Kernel(
        "slices",
        _parameters(
            "in sum row_sums, out sum slice_sums, long long rows, long long channels, int slices, long long slice_rows,"
            "int columns"
        ),
        _AFFINE_THREADS,
    ),
    Kernel(
        "affine",
        _parameters(
            "in sum row_sums, in sum slice_sums, out dgamma, out dbeta, long long rows, long long channels, int slices,"
            "int columns"
        ),
        _AFFINE_THREADS,
    ),
)
_GRADIENT_ONCHIP = _parameters(
    f"{_BACKWARD}, out sum row_sums, long long groups, int groups_per_sample, int channels_per_group, int spatial,"
    "acc_t inverse_elements, int lane_bits, int runs, int step_channels, int step_runs, int channel_bits, int keep_sums"
)
_STREAM_SCALARS = (
    "long long groups, int groups_per_sample, int channels_per_group, int spatial, acc_t inverse_elements,"
    "int lane_bits, int runs, int step_channels, int step_runs, int keep_sums"
)
_GRADIENT_STREAM = _parameters(f"{_BACKWARD}, out sum row_sums, {_STREAM_SCALARS}")
_GRADIENT_CLUSTER = _parameters(
    f"{_BACKWARD}, out dgamma, out dbeta, sum row_sums, int* counters, {_STREAM_SCALARS}"
)
_GRADIENT_TILE = _parameters(
    f"{_BACKWARD}, out sum row_sums, long long groups, int groups_per_sample, int channels_per_group, int spatial,"
    "acc_t inverse_elements, int tile_groups, int tile_elements, int sums_bytes, int lanes, int keep_sums"
)
_ALONE_BYTES = 16384
_GRADIENT_ALONE_ONCHIP = _parameters(
    f"{_BACKWARD}, out dgamma, out dbeta, long long groups, int groups_per_sample, int channels_per_group, int spatial,"
    "acc_t inverse_elements, int lane_bits, int runs, int step_channels, int step_runs, int channel_bits,"
    "int sample_lanes, int keep_sums"
)
_GRADIENT_ALONE_TILE = _parameters(
    f"{_BACKWARD}, out dgamma, out dbeta, long long groups, int groups_per_sample, int channels_per_group, int spatial,"
    "acc_t inverse_elements, int tile_groups, int tile_elements, int sums_bytes, int lanes, int sample_lanes,"
    "int keep_sums"
)
_GRADIENT_THREAD = _parameters(
    f"{_BACKWARD}, out sum row_sums, long long groups, int groups_per_sample, int channels_per_group, int spatial,"
    "acc_t inverse_elements, int tile_groups, int tile_elements, int by_block, int keep_sums"
)
_GRADIENT_REREAD = _parameters(
    f"{_BACKWARD}, out sum row_sums, {_GROUPS}, long long channels_per_group, long long spatial,"
    "acc_t inverse_elements, int slices, long long slice_elements, int keep_sums"
)
_GRADIENT_ROWS = _parameters(
    f"{_BACKWARD}, in sum group_sums, {_GROUPS}, long long channels_per_group, long long spatial,"
    "acc_t inverse_elements, int lanes, long long segments, long long segment_elements"
)
_SUMS_GROUP = _parameters(
    "in dy, in x, in gamma, in stat saved_mean, in stat saved_rstd, out sum group_sums,"
    f"{_GROUPS}, long long channels_per_group, long long spatial, int lanes"
)
_AFFINE_DIRECT = _parameters(
    "in dy, in x, in stat saved_mean, in stat saved_rstd, out dgamma, out dbeta, long long batch,"
    "long long groups_per_sample, long long channels_per_group, long long spatial, int lanes"
)
_SUMS_PIECES = _parameters(
    "in dy, in x, in stat saved_mean, in stat saved_rstd, out sum row_sums, long long channels_per_group,"
    "long long spatial, long long channel_rows, long long pieces, long long piece_elements, int lanes"
)
_SUMS_OF_GROUPS = _parameters(
    f"in sum row_sums, in gamma, out sum group_sums, {_GROUPS}, long long channels_per_group,"
    "long long channel_rows, long long pieces"
)


def _backward(element: ElementKind, _: ElementKind | None) -> tuple[Design, ...]:
    wide = 16 // element.itemsize
    return (
        *_backward_onchip(wide),
        *_backward_stream(wide),
        *_backward_tile(wide),
        *_backward_alone(wide, element),
        *_backward_thread(wide),
        *_backward_any_size(wide, element),
    )


def _backward_onchip(wide: int) -> Iterator[Design]:
    """Designs that read a group's dy and x once."""
    # A tile serves better the groups that leave lanes idle, a block the few groups that leave multiprocessors idle.
    rules: tuple[RankRule, ...] = (
        RankRule((Constraint("channels_per_group", "eq", 1), Constraint("run_packs", "lt", 32)), 26),
        RankRule((Constraint("run_packs", "lt", 12),), 26),
        RankRule((Constraint("groups", "lt", 1056), Constraint("run_packs", "gt", 64)), 28),
        RankRule((Constraint("run_packs", "ge", 96),), 26),
    )
    for packs, rank in ((2, 10), (5, 11)):
        yield Design(
            name=f"warp_p{packs}_v{wide}",
            template="group_norm_backward_onchip.cu.j2",
            summary=f"one warp holds dy and x of a group in registers, {packs} 16-byte packs a thread of each",
            kernels=(Kernel("gradient", _GRADIENT_ONCHIP, 256, 2), *_AFFINE_KERNELS),
            rank=rank,
            rank_rules=rules,
            tuning={
                "vector": wide,
                "packs": packs,
                "groups_per_block": 8,
                "shared_dy": 0,
                "alone": 0,
                "affine_threads": _AFFINE_THREADS,
            },
            constraints=(
                *_whole_packs(wide, "spatial", _ALIGNED_ROW),
                _ONE_GROUP,
                Constraint("run_packs", "le", 32 * packs, "a group must fit a warp's registers"),
            ),
            alignment=16,
        )
    double = wide == 2
    widths: tuple[tuple[int, int, int, int], ...] = ((2, 2, 0, 23), (5, 1 if double else 2, 0, 21))
    if double:
        widths += ((16, 1, 1, 22),)
    for packs, min_blocks, shared_dy, rank in widths:
        rules = ()
        if packs < 5:
            rules = (
                RankRule((Constraint("groups", "lt", 264),), 20),
                RankRule((Constraint("run_packs", "gt", 256 * packs),), 30),
            )
        place = "x in registers and dy in shared memory" if shared_dy else "both in registers"
        yield Design(
            name=f"block_p{packs}_v{wide}",
            template="group_norm_backward_onchip.cu.j2",
            summary=f"one block holds dy and x of a group, {packs} 16-byte packs a thread of each, {place}",
            kernels=(Kernel("gradient", _GRADIENT_ONCHIP, 512, min_blocks), *_AFFINE_KERNELS),
            rank=rank,
            rank_rules=rules,
            tuning={
                "vector": wide,
                "packs": packs,
                "groups_per_block": 1,
                "shared_dy": shared_dy,
                "alone": 0,
                "affine_threads": _AFFINE_THREADS,
            },
            constraints=(
                *_whole_packs(wide, "spatial", _ALIGNED_ROW),
                _ONE_GROUP,
                Constraint("run_packs", "le", 512 * packs, "a group must fit a block's registers"),
            ),
            alignment=16,
        )


def _backward_stream(wide: int) -> Iterator[Design]:
    """Persistent designs: a group's dy and x in shared memory, the next one's on their way."""
    packs, batch, threads = (14, 7, 512) if wide == 2 else (8, 4, 896)
    for cluster in (1, 2, 4, 8):
        tier = f"cluster{cluster}_" if cluster > 1 else ""
        who = f"the {cluster} blocks of a cluster hold" if cluster > 1 else "one block holds"
        gradient = Kernel(
            "gradient", _GRADIENT_CLUSTER if cluster > 1 else _GRADIENT_STREAM, threads, 1, cluster
        )
        yield Design(
            name=f"stream_{tier}p{packs}_v{wide}",
            template="group_norm_backward_stream.cu.j2",
            summary=f"{who} dy and x of group after group in shared memory, {packs} 16-byte packs a thread",
            kernels=(gradient,) if cluster > 1 else (gradient, *_AFFINE_KERNELS),
            rank=23 + cluster,
            rank_rules=(*_few_groups(cluster), *(() if wide == 2 else _several_blocks(cluster))),
            tuning={
                "vector": wide,
                "packs": packs,
                "batch": batch,
                "cluster": cluster,
                "affine_threads": _AFFINE_THREADS,
            },
            constraints=(
                *_whole_packs(wide, "spatial", _ALIGNED_ROW),
                _ONE_GROUP,
                Constraint("group_packs", "le", threads * packs * cluster, "shared memory must hold a group"),
            ),
            alignment=16,
            arch=ArchSku.Sm90a if cluster > 1 else ArchSku.Sm80,
        )


def _several_blocks(cluster: int) -> tuple[RankRule, ...]:
    """A slice of a group is best so small that a multiprocessor holds three blocks, which overlap each other's phases."""
    slices = {4: (6400, 9216), 8: (12800, 18432)}.get(cluster)
    if slices is None:
        return ()
    least, most = slices
    return (
        RankRule(
            (Constraint("group_packs", "gt", least), Constraint("group_packs", "le", most)), 25 - cluster // 4
        ),
    )


def _backward_tile(wide: int) -> Iterator[Design]:
    """Designs for short rows: any length, whole vectors all the same."""
    # 32 elements each of dy and x take 128 registers in f64.
    small = (
        RankRule((Constraint("channels_per_group", "eq", 1), Constraint("group_packs", "lt", 32)), 5),
        RankRule((Constraint("group_packs", "lt", 12),), 5),
    )
    few = (RankRule((Constraint("groups", "lt", 264), Constraint("group_elements", "ge", 2048)), 68),)
    for held, rank, rules in ((8, 25, small), (16 if wide == 2 else 32, 29, few)):
        yield Design(
            name=f"tile_h{held}_v{wide}",
            template="group_norm_backward_tile.cu.j2",
            summary=f"one block takes many rows of small groups through shared memory, {held} elements a lane",
            kernels=(Kernel("gradient", _GRADIENT_TILE, 256, 4 if held == 8 else 2), *_AFFINE_KERNELS),
            rank=rank,
            rank_rules=rules,
            tuning={"vector": wide, "held": held, "affine_threads": _AFFINE_THREADS, "alone": 0},
            constraints=(
                Constraint("spatial", "le", 32 * held, "a row must fit a warp's registers"),
                Constraint("group_elements", "le", 65536, "whole groups must fit shared memory"),
                *_TILE_LIMITS,
            ),
            alignment=16,
        )


def _backward_alone(wide: int, element: ElementKind) -> Iterator[Design]:
    """Designs for a problem so small that the launches cost more than the work: one, and no workspace."""
    limits = (
        Constraint("spatial", "le", 32 * 8, "a row must fit a warp's registers"),
        Constraint("total", "le", _ALONE_BYTES // element.itemsize, "one block takes everything"),
    )
    threads = 512 if wide == 2 else 1024
    yield Design(
        name=f"alone_p2_v{wide}",
        template="group_norm_backward_onchip.cu.j2",
        summary="one block takes the whole problem, dgamma and dbeta too; a warp holds dy and x of a group in registers",
        kernels=(Kernel("gradient", _GRADIENT_ALONE_ONCHIP, threads, 1),),
        rank=2,
        tuning={"vector": wide, "packs": 2, "groups_per_block": 32, "shared_dy": 0, "alone": 1},
        constraints=(
            *_whole_packs(wide, "spatial", _ALIGNED_ROW),
            Constraint("run_packs", "le", 32 * 2, "a group must fit a warp's registers"),
            Constraint("groups", "le", threads // 32, "a warp takes one group"),
            *limits,
        ),
        rank_rules=(RankRule((Constraint("channels_per_group", "eq", 1),), 35),),
        alignment=16,
    )
    # Where groups are several rows, two launches of many blocks are the faster.
    rows = (RankRule((Constraint("channels_per_group", "eq", 1),), 3),)
    for vector, rank in ((wide, 48), (1, 49)):
        yield Design(
            name=f"alone_h8_v{vector}",
            template="group_norm_backward_tile.cu.j2",
            summary=f"one block takes the whole problem, dgamma and dbeta too; {vector} element(s) an access",
            kernels=(Kernel("gradient", _GRADIENT_ALONE_TILE, threads, 1),),
            rank=rank,
            rank_rules=rows if vector > 1 else (),
            tuning={"vector": vector, "held": 8, "alone": 1},
            constraints=limits,
            alignment=vector * element.itemsize,
        )


def _backward_thread(wide: int) -> Iterator[Design]:
    """For very many tiny groups."""
    yield Design(
        name=f"thread_v{wide}",
        template="group_norm_backward_thread.cu.j2",
        summary="one thread a tiny group, which its block copies through shared memory with many others",
        kernels=(Kernel("gradient", _GRADIENT_THREAD, 128, 8), *_AFFINE_KERNELS),
        rank=31,
        rank_rules=_THREAD_RANKS,
        tuning={"vector": wide, "affine_threads": _AFFINE_THREADS},
        constraints=_THREAD_LIMITS,
        alignment=16,
    )


def _backward_any_size(wide: int, element: ElementKind) -> Iterator[Design]:
    """Designs that read dy and x twice or three times."""
    for vector in (wide, 1):
        tuning = {
            "vector": vector,
            "packs": 2 if vector > 1 else 4,
            "unroll": 2 if vector > 1 else 4,
            "affine_threads": _AFFINE_THREADS,
        }
        constraints = _whole_packs(vector, "spatial", _ALIGNED_ROW)
        alignment = vector * element.itemsize
        step = 0 if vector > 1 else 5
        yield Design(
            name=f"split_v{vector}",
            template="group_norm_backward_split.cu.j2",
            summary=f"sums of pieces of rows, sums of groups, then dx; {vector} element(s) an access",
            kernels=(
                Kernel("sums", _SUMS_PIECES, 256),
                Kernel("groups", _SUMS_OF_GROUPS, 256, 1),
                Kernel("gradient", _GRADIENT_ROWS, 256),
                *_AFFINE_KERNELS,
            ),
            rank=50 + step,
            tuning=tuning,
            constraints=constraints,
            alignment=alignment,
        )
        yield Design(
            name=f"reread_v{vector}",
            template="group_norm_backward_reread.cu.j2",
            summary=f"one block goes over a group of any size twice, {vector} element(s) an access",
            kernels=(Kernel("gradient", _GRADIENT_REREAD, 512, 1), *_AFFINE_KERNELS),
            rank=60 + step,
            rank_rules=(
                RankRule((Constraint("groups", "ge", 132),), 49 + step),
                RankRule(
                    (Constraint("groups", "ge", 32), Constraint("group_elements", "le", 16384)), 49 + step
                ),
            ),
            tuning=tuning,
            constraints=constraints,
            alignment=alignment,
        )
        yield Design(
            name=f"three_stage_v{vector}",
            template="group_norm_backward_three_stage.cu.j2",
            summary=f"the seed's form: sums of groups, affine gradients, dx; {vector} element(s) an access",
            kernels=(
                Kernel("sums", _SUMS_GROUP, 512, 1),
                Kernel("affine", _AFFINE_DIRECT, 512, 1),
                Kernel("gradient", _GRADIENT_ROWS, 256),
            ),
            rank=70 + step,
            tuning=tuning,
            constraints=(
                *constraints,
                Constraint("channels", "le", 2**31 - 1, "channels are divided in 32 bits"),
            ),
            alignment=alignment,
        )


# ------------------------------------------------------------------------------------------------------------------


def _op(kind: NormalizationKind, source_of: NormalizationKind | None = None) -> Op:
    backward = kind.name.endswith("BACKWARD")
    return Op(
        category=OpCategory.Normalization,
        kind=kind,
        types=_TYPES,
        designs=_backward if backward else _forward,
        guarantee=_guarantee,
        host="norm.group_norm_backward" if backward else "norm.group_norm",
        host_guarantee=_host_guarantee,
        table=_TABLE,
        source_of=source_of,
    )


OPS: tuple[Op, ...] = (
    _op(NormalizationKind.GROUP_NORM),
    _op(NormalizationKind.GROUP_NORM_BACKWARD),
    _op(NormalizationKind.INSTANCE_NORM, NormalizationKind.GROUP_NORM),
    _op(NormalizationKind.INSTANCE_NORM_BACKWARD, NormalizationKind.GROUP_NORM_BACKWARD),
)
