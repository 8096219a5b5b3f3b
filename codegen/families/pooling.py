"""Pooling: LP pooling in one dimension, forward and backward."""

from __future__ import annotations

from dataclasses import replace

from baracuda_registry.constraint import Constraint
from baracuda_registry.elements import FLOATING, ElementKind, MathPrecision
from baracuda_registry.manifest import RankRule
from baracuda_registry.sku import OpCategory, PoolKind, PrecisionGuarantee

from ..model import Design, Kernel, Op, Parameter

_TABLE = "codegen/families/pooling.py"
_TYPES = tuple((element, None) for element in FLOATING)
_POWERS = {"p1": 1, "p2": 2, "p3": 3, "pany": 0}
"""Powers with code of their own (products, square root, cube root), and the one that takes every p."""

_MAX_WINDOW = 8
_STRIDES = (1, 2, 3, 4, 5, 6, 7, 8)
"""Strides with a source of their own: one for all of them takes many seconds to compile."""
_LONG_TO_COMPILE = (5, 7)
"""Strides whose runs have so many elements that general powers of all of them take more than a second to compile."""
_SPARSE_STRIDE = 5
"""Least stride of the backward form for windows that do not overlap."""
_THREADS = 256
_RUN_THREADS = 128
_RUN_BYTES = 32
"""Bytes of input a thread of the register designs has in flight at least."""


def _run_windows(element: ElementKind, stride: int, power: int) -> int:
    """Windows of a thread of the register designs: the smallest power of two whose inputs are enough bytes and whole
    packs of 16.  With stride 1 and general powers one pack is as much as compiles in a second."""
    windows = 1
    least = 16 if stride == 1 and power == 0 else _RUN_BYTES
    while (nbytes := windows * stride * element.itemsize) < least or nbytes % 16:
        windows *= 2
    return windows


def _sliding_run(element: ElementKind) -> int:
    """Consecutive terms of a thread of the sliding designs."""
    return 4 if element is ElementKind.F64 else 8


_MAX_SLIDING = 512
"""Longest window of those: whole runs are added one by one, and the windows of a quarter of a block's runs are lost."""
_MAX_FAST_POWER = 1024
_CHUNKS = (25, 9, 1)
"""Chunks of the tile designs, longest first: the cost of a sum is about its length over the chunk's."""

_TILE_BYTES = 32768
"""Values of a tile; its prefix and suffix sums take twice that of shared memory, three blocks of it an SM."""


def _run_blocks(element: ElementKind, stride: int, power: int) -> int:
    """Blocks an SM of the forward register designs: as many as hold all values without spilling."""
    long = stride in (5, 7)
    if element is ElementKind.F64:
        return 5 if long and power == 0 else 6
    if element is ElementKind.F32:
        return (6 if long else 8) if power == 0 else 7 if long else 8 if stride == 1 else 10
    if power == 3 and stride == 2:
        return 6
    return {1: 5, 2: 7, 3: 5, 4: 9, 5: 5, 6: 8, 7: 4, 8: 9}[stride]


def _run_blocks_sm100(element: ElementKind, stride: int, power: int) -> int:
    """The same from sm_100 on, 0 where it does not differ."""
    if element is not ElementKind.F32:
        return 0
    return ({5: 5, 7: 4} if power == 0 else {2: 8, 3: 6, 5: 5, 6: 8, 7: 4}).get(stride, 0)


def _gradient_blocks(element: ElementKind, stride: int, power: int) -> int:
    """The same for the backward ones."""
    return 4 if stride in (1, 5, 7) else 5


def _accumulated(element: ElementKind, _: ElementKind | None) -> PrecisionGuarantee:
    """Arithmetic and sums in acc(T), in a fixed order."""
    acc = element.accumulator
    return PrecisionGuarantee(
        MathPrecision(acc.value), acc, bit_stable_on_same_hardware=True, deterministic=True
    )


def _on_host(_: ElementKind, __: ElementKind | None) -> PrecisionGuarantee:
    """NumPy computes every type in float64."""
    return PrecisionGuarantee(
        MathPrecision.F64, ElementKind.F64, bit_stable_on_same_hardware=True, deterministic=True
    )


def _power_constraints(power: int) -> tuple[Constraint, ...]:
    return (Constraint("p", "eq", power, "the power is compiled in"),) if power else ()


def _fast_power_constraints(element: ElementKind, power: int) -> tuple[Constraint, ...]:
    """Where the fast powers are accurate enough: the p-th root magnifies their error for small p."""
    if power:
        return _power_constraints(power)
    least = 0.0625 if element.itemsize == 2 else 1
    return (
        Constraint("p", "ge", least, "the root magnifies the error of the fast powers"),
        Constraint("p", "le", _MAX_FAST_POWER, "the fast powers keep p times a logarithm in 32 bits"),
    )


def _fast_factor_constraints(element: ElementKind, power: int) -> tuple[Constraint, ...]:
    """f32 arithmetic takes |x|^(p-1) from a logarithm of single precision and some, whose error p magnifies."""
    if power or element is ElementKind.F64:
        return _power_constraints(power)
    return (Constraint("p", "le", 128, "p magnifies the error of the fast logarithm"),)


_SHORT_STRIDE = Constraint("stride", "lt", 2**29, "positions in a row are 32-bit")
_SHORT_ROWS = Constraint("l_in", "lt", 2**30, "positions in a row are 32-bit")


def _small_constraints(stride: int) -> tuple[Constraint, ...]:
    return (
        Constraint("window", "le", _MAX_WINDOW, "the windows of a thread are held in registers"),
        Constraint("stride", "eq", stride, "the stride is compiled in"),
        _SHORT_ROWS,
    )


def _sliding_constraints(element: ElementKind) -> tuple[Constraint, ...]:
    return (
        Constraint("stride", "eq", 1, "windows slide by one"),
        Constraint(
            "window", "gt", _sliding_run(element), "a window must reach over the end of a thread's run"
        ),
        Constraint("window", "le", _MAX_SLIDING, "whole runs are added one by one"),
        _SHORT_ROWS,
    )


def _sliding_tuning(element: ElementKind, power: int) -> dict[str, int]:
    return {
        "power": power,
        "fast": 1,
        "run": _sliding_run(element),
        "threads": _THREADS,
        "exact_sums": int(element.itemsize > 2),
    }


def _tile_ranks(chunk: int, field: str, rank: int) -> tuple[RankRule, ...]:
    """Long chunks pay for sums of about two of them."""
    enough = {25: 48, 9: 9 if field == "window" else 24, 1: 1}[chunk]
    return (RankRule((Constraint(field, "lt", enough),), rank + 20),)


def _gather_ranks(penalty: int, *, backward: bool) -> tuple[RankRule, ...]:
    """A thread an output is the fastest where windows share little, and where there is next to nothing to do.

    Backward the rows must be short too: tiles pay for what lies past the ends of theirs.
    """
    pairs = Constraint("l_in", "le", 256) if backward else Constraint("window", "le", 16)
    return (
        RankRule((Constraint("total", "le", 8192), Constraint("window", "le", 128)), 8 + penalty),
        RankRule((Constraint("overlap", "le", 1), Constraint("window", "le", 128)), 18 + penalty),
        RankRule((Constraint("overlap", "le", 2), pairs), 18 + penalty),
    )


def _divisor(name: str) -> tuple[Parameter, Parameter]:
    return Parameter(f"{name}_multiplier", "unsigned"), Parameter(f"{name}_shift", "int")


_EXTENTS = (Parameter("rows", "long long"), Parameter("l_in", "long long"), Parameter("l_out", "long long"))
_FORWARD = (Parameter("x", "const elem_t* __restrict__"), Parameter("y", "elem_t* __restrict__"))
_BACKWARD = (
    Parameter("x", "const elem_t* __restrict__"),
    Parameter("y", "const elem_t* __restrict__"),
    Parameter("dy", "const elem_t* __restrict__"),
    Parameter("dx", "elem_t* __restrict__"),
)
_ROWS = (Parameter("rows", "long long"), Parameter("l_in", "int"), Parameter("l_out", "int"))
_REGISTERS = (
    *_ROWS,
    Parameter("runs_per_row", "int"),
    *_divisor("runs"),
    Parameter("window", "int"),
    Parameter("p", "acc_t"),
)
_POOLED = (Parameter("packs_aligned", "int"), Parameter("partial_windows", "int"))
_HALO = (Parameter("packs_aligned", "int"), Parameter("windows_aligned", "int"))
_TILE = (
    *_EXTENTS,
    Parameter("tiles_per_row", "long long"),
    *_divisor("tiles"),
    Parameter("tile", "int"),
    Parameter("padded", "int"),
    Parameter("rows_per_block", "int"),
    Parameter("lanes", "int"),
    Parameter("window", "int"),
    Parameter("stride", "int"),
    Parameter("p", "acc_t"),
)
_SLIDING = (
    *_ROWS,
    Parameter("tiles_per_row", "int"),
    *_divisor("tiles"),
    Parameter("window", "int"),
    Parameter("p", "acc_t"),
)
_STRIDE = Parameter("stride", "int")
_INVERSE = Parameter("inverse_p", "acc_t")
_LONG = (Parameter("window", "long long"), Parameter("stride", "long long"), Parameter("p", "acc_t"))


def _forward(element: ElementKind, _: ElementKind | None) -> tuple[Design, ...]:
    designs: list[Design] = []
    wide = 16 // element.itemsize
    double = element is ElementKind.F64
    blocks = 2 if double else 3
    for name, power in _POWERS.items():
        penalty = 0 if power else 5
        designs += [
            Design(
                name=f"registers_{name}_s{stride}_v{wide}",
                template="lp_pool1d_registers.cu.j2",
                summary="a thread pools a run of outputs from packs of 16 bytes, windows and powers in registers",
                kernels=(
                    Kernel(
                        "pool",
                        (*_FORWARD, *_REGISTERS, *_POOLED, _INVERSE),
                        _RUN_THREADS,
                        _run_blocks(element, stride, power),
                        min_blocks_sm100=_run_blocks_sm100(element, stride, power),
                    ),
                ),
                rank=10 + penalty,
                tuning={
                    "power": power,
                    "max_window": _MAX_WINDOW,
                    "stride": stride,
                    "windows": _run_windows(element, stride, power),
                },
                constraints=(*_fast_power_constraints(element, power), *_small_constraints(stride)),
                alignment=16,
            )
            for stride in _STRIDES
        ]
        designs.append(
            Design(
                name=f"sparse_{name}_v{wide}",
                template="lp_pool1d_registers.cu.j2",
                summary="a thread an output loads its window in packs of 16 bytes; strides past the compiled ones",
                kernels=(
                    Kernel("pool", (*_FORWARD, *_REGISTERS, *_POOLED, _STRIDE, _INVERSE), _RUN_THREADS, 8),
                ),
                rank=12 + penalty,
                tuning={"power": power, "max_window": _MAX_WINDOW, "stride": 0, "windows": 1},
                constraints=(
                    *_fast_power_constraints(element, power),
                    Constraint("window", "le", _MAX_WINDOW, "the windows of a thread are held in registers"),
                    Constraint("stride", "gt", _STRIDES[-1], "shorter strides are compiled in"),
                    _SHORT_STRIDE,
                    _SHORT_ROWS,
                ),
                alignment=16,
            )
        )
        designs.append(
            Design(
                name=f"sliding_{name}_v{wide}",
                template="lp_pool1d_sliding.cu.j2",
                summary="windows of stride 1 from the ends, the wholes and the beginnings of threads' runs",
                kernels=(Kernel("pool", (*_FORWARD, *_SLIDING, _INVERSE), _THREADS, 4),),
                rank=15 + penalty,
                tuning=_sliding_tuning(element, power),
                constraints=(*_fast_power_constraints(element, power), *_sliding_constraints(element)),
                alignment=16,
            )
        )
        for place, chunk in enumerate(_CHUNKS):
            rank = 20 + place + penalty
            designs.append(
                Design(
                    name=f"tile{chunk}_{name}_v1",
                    template="lp_pool1d_tile.cu.j2",
                    summary=f"powers of a tile in shared memory, windows from sums of chunks of {chunk}",
                    kernels=(Kernel("pool", (*_FORWARD, *_TILE, _INVERSE), _THREADS, blocks),),
                    rank=rank,
                    tuning={
                        "power": power,
                        "chunk": chunk,
                        "exact_sums": int(element.itemsize > 2),
                        "values": _TILE_BYTES // element.accumulator.itemsize,
                    },
                    constraints=(
                        *_fast_power_constraints(element, power),
                        Constraint("window", "ge", chunk, "a window must reach over the end of a chunk"),
                        Constraint(
                            "window",
                            "le",
                            _TILE_BYTES // element.accumulator.itemsize // 2,
                            "tiles hold whole windows",
                        ),
                        Constraint("stride", "le", 256, "the gaps between windows are read too"),
                    ),
                    rank_rules=_tile_ranks(chunk, "window", rank),
                    alignment=1,
                )
            )
        designs.append(
            Design(
                name=f"block_{name}_v1",
                template="lp_pool1d_block.cu.j2",
                summary="a block an output sums a window of any length in a fixed order",
                kernels=(Kernel("pool", (*_FORWARD, *_EXTENTS, *_divisor("outputs"), *_LONG), _THREADS),),
                rank=30 + penalty,
                tuning={"power": power, "threads": _THREADS},
                constraints=(
                    *_power_constraints(power),
                    Constraint("window", "ge", 4 * _THREADS, "a block an output"),
                ),
                alignment=1,
            )
        )
        designs.append(
            Design(
                name=f"gather_{name}_v1",
                template="lp_pool1d_gather.cu.j2",
                summary="a thread an output walks its window in memory; any window, stride and alignment",
                kernels=(Kernel("pool", (*_FORWARD, *_EXTENTS, *_divisor("outputs"), *_LONG), _THREADS),),
                rank=40 + penalty,
                rank_rules=_gather_ranks(penalty, backward=False),
                tuning={"power": power},
                constraints=_power_constraints(power),
                alignment=1,
            )
        )
    return tuple(designs)


def _backward(element: ElementKind, _: ElementKind | None) -> tuple[Design, ...]:
    designs: list[Design] = []
    wide = 16 // element.itemsize
    double = element is ElementKind.F64
    blocks = 1 if double else 3
    for name, power in _POWERS.items():
        penalty = 0 if power else 5
        designs += [
            Design(
                name=f"registers_{name}_s{stride}_v{wide}",
                template="lp_pool1d_backward_registers.cu.j2",
                summary="a thread owns a run of inputs: each window's coefficient once, sums in registers",
                kernels=(
                    Kernel(
                        "gradient",
                        (*_BACKWARD, *_REGISTERS, *_HALO),
                        _RUN_THREADS,
                        _gradient_blocks(element, stride, power),
                    ),
                ),
                rank=10 + penalty,
                tuning={
                    "power": power,
                    "fast": 1,
                    "max_window": _MAX_WINDOW,
                    "stride": stride,
                    "windows": _run_windows(element, stride, power),
                },
                constraints=(*_fast_factor_constraints(element, power), *_small_constraints(stride)),
                alignment=16,
            )
            for stride in _STRIDES
            if power or stride not in _LONG_TO_COMPILE
        ]
        designs.append(
            Design(
                name=f"sparse_{name}_v{wide}",
                template="lp_pool1d_backward_sparse.cu.j2",
                summary="a thread owns a pack of inputs, which few windows reach into",
                kernels=(
                    Kernel(
                        "gradient",
                        (*_BACKWARD, *_REGISTERS, _STRIDE, *_divisor("stride")),
                        _RUN_THREADS,
                        5 if double else 8,
                    ),
                ),
                rank=12 + penalty,
                rank_rules=(
                    RankRule((Constraint("p", "eq", 1), Constraint("stride", "ge", 7)), 9 + penalty),
                ),
                tuning={"power": power, "fast": 1, "pack": wide, "reach": 2 + (wide - 1) // _SPARSE_STRIDE},
                constraints=(
                    *_fast_factor_constraints(element, power),
                    Constraint("overlap", "eq", 1, "an element has one window at most"),
                    Constraint("stride", "ge", _SPARSE_STRIDE, "too many windows reach into a pack"),
                    _SHORT_STRIDE,
                    _SHORT_ROWS,
                ),
                alignment=16,
            )
        )
        designs.append(
            Design(
                name=f"sliding_{name}_v{wide}",
                template="lp_pool1d_backward_sliding.cu.j2",
                summary="coefficients of windows of stride 1, summed from the ends, the wholes and the beginnings of threads' runs",
                kernels=(Kernel("gradient", (*_BACKWARD, *_SLIDING), _THREADS, 3 if double else 4),),
                rank=15 + penalty,
                tuning=_sliding_tuning(element, power),
                constraints=(*_fast_factor_constraints(element, power), *_sliding_constraints(element)),
                alignment=16,
            )
        )
        for place, chunk in enumerate(_CHUNKS):
            rank = 20 + place + penalty
            reaching = Constraint("whole_overlap", "ge", chunk, "a range must reach over the end of a chunk")
            designs.append(
                Design(
                    name=f"tile{chunk}_{name}_v1",
                    template="lp_pool1d_backward_tile.cu.j2",
                    summary=f"coefficients of a tile in shared memory, sums of windows from sums of chunks of {chunk}",
                    kernels=(
                        Kernel("gradient", (*_BACKWARD, *_TILE, *_divisor("stride")), _THREADS, blocks),
                    ),
                    rank=rank,
                    tuning={
                        "power": power,
                        "fast": 1,
                        "chunk": chunk,
                        "exact_sums": 0,
                        "values": _TILE_BYTES // element.accumulator.itemsize,
                    },
                    constraints=(
                        *_fast_factor_constraints(element, power),
                        *((reaching,) if chunk > 1 else ()),
                        Constraint(
                            "overlap",
                            "le",
                            _TILE_BYTES // element.accumulator.itemsize // 2,
                            "tiles hold all windows of an element",
                        ),
                        Constraint("window", "lt", 2**30, "positions in a tile are 32-bit"),
                        Constraint("stride", "lt", 2**30, "positions in a tile are 32-bit"),
                    ),
                    rank_rules=_tile_ranks(chunk, "whole_overlap", rank) if chunk > 1 else (),
                    alignment=1,
                )
            )
        designs.append(
            Design(
                name=f"gather_{name}_v1",
                template="lp_pool1d_backward_gather.cu.j2",
                summary="a thread an input sums the windows that hold it; any window, stride and alignment",
                kernels=(
                    Kernel(
                        "gradient",
                        (*_BACKWARD, *_EXTENTS, *_divisor("inputs"), *_divisor("stride"), *_LONG),
                        _THREADS,
                        1,
                    ),
                ),
                rank=40 + penalty,
                rank_rules=_gather_ranks(penalty, backward=True),
                tuning={"power": power, "fast": 0},
                constraints=_power_constraints(power),
                alignment=1,
            )
        )
    designs.append(
        Design(
            name="scatter_v1",
            template="lp_pool1d_backward_scatter.cu.j2",
            summary="the seed's form: a thread an output adds atomically into a dx that the caller has zeroed",
            kernels=(Kernel("gradient", (*_BACKWARD, *_EXTENTS, *_divisor("outputs"), *_LONG), _THREADS),),
            rank=90,
            tuning={"power": 0, "fast": 0},
            pinned_only=True,
            guarantee=_unordered(element),
        )
    )
    return tuple(designs)


def _unordered(element: ElementKind) -> PrecisionGuarantee:
    """Sums by atomic additions; those of 16-bit elements are rounded to the element every time."""
    ordered = _accumulated(element, None)
    accumulator = element if element.itemsize == 2 else element.accumulator
    return replace(ordered, accumulator=accumulator, bit_stable_on_same_hardware=False, deterministic=False)


OPS: tuple[Op, ...] = (
    Op(
        category=OpCategory.Pooling,
        kind=PoolKind.LP_POOL1D,
        types=_TYPES,
        designs=_forward,
        guarantee=_accumulated,
        host="pool.lp_pool1d",
        host_guarantee=_on_host,
        table=_TABLE,
    ),
    Op(
        category=OpCategory.Pooling,
        kind=PoolKind.LP_POOL1D_BACKWARD,
        types=_TYPES,
        designs=_backward,
        guarantee=_accumulated,
        host="pool.lp_pool1d_backward",
        host_guarantee=_on_host,
        table=_TABLE,
    ),
)
