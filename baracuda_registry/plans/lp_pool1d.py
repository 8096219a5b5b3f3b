"""LP pooling in one dimension: `y = (Σ |x|^p)^(1/p)` over windows."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..bucket import Octave, Same, Whole
from ..constraint import Fact
from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem, Unsupported
from ..manifest import Variant
from ..operands import Operand
from ..recipe import Launch, Recipe
from ..sku import OpCategory, PoolKind
from .base import Plan, Signature
from .descriptors import check_floating, check_integers, normalize_element_fields

POOL_BUCKET = (
    Octave("rows"),
    Octave("l_out"),
    Same("window"),
    Same("stride"),
    Same("p", (1.0, 2.0, 3.0)),
    Whole("l_in", 8),
)
"""Windows and strides are small whole numbers that designs are made for; p only by whether it has a form of its own."""


@dataclass(frozen=True, kw_only=True)
class LpPool1dDescriptor:
    """The problem, forward and backward.

    Attributes:
        batch: N; 0 = nothing to do.
        channels: C.
        l_in: extent of the pooled axis.
        window: elements of a window, at most `l_in`.
        p: the norm's order, any positive number; rounded to acc(T).
        element: type of every tensor: f32, f64, f16 or bf16.
        stride: elements between windows; None = `window`.
        ceil_mode: keep a last window that ends past the input (not one that starts there).
    """

    batch: int
    channels: int
    l_in: int
    window: int
    p: float
    element: ElementKind
    stride: int | None = None
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        normalize_element_fields(self)
        if self.stride is None:
            object.__setattr__(self, "stride", self.window)
        if isinstance(self.p, int) and not isinstance(self.p, bool):
            object.__setattr__(self, "p", float(self.p))

    @property
    def step(self) -> int:
        """The stride as an int (None has become the window)."""
        return self.window if self.stride is None else self.stride

    @property
    def rows(self) -> int:
        """Rows of the flat arrays, N·C."""
        return self.batch * self.channels

    @property
    def output_length(self) -> int:
        """L_out: floor((L_in−k)/s)+1, or with ceil_mode ceil((L_in−k)/s)+1 without a last window that would start at
        or past the end of the input, as PyTorch's shape rule has it."""
        reach = self.l_in - self.window
        if not self.ceil_mode:
            return reach // self.step + 1
        length = -(-reach // self.step) + 1
        return length - 1 if (length - 1) * self.step >= self.l_in else length


def received_power(desc: LpPool1dDescriptor) -> float:
    """p as the kernels get it, rounded to acc(T); infinite where it is past acc(T)'s range."""
    if desc.element.accumulator is ElementKind.F64:
        return desc.p
    return ctypes.c_float(desc.p).value


def validate_lp_pool(plan: str, desc: LpPool1dDescriptor) -> None:
    """Raise for a descriptor that LP pooling does not take, in the seed's order of checks.

    Raises:
        Unsupported: element; p that is NaN, not positive, infinite, or so in acc(T).
        InvalidProblem: extents, window or stride.
    """
    check_floating(plan, "element", desc.element)
    check_integers(plan, desc, ("batch", "channels", "l_in", "window", "stride"))
    for name in ("batch", "channels", "l_in"):
        if getattr(desc, name) < 0:
            raise InvalidProblem(f"{plan}: {name} is {getattr(desc, name)}, want >= 0")
    if desc.l_in == 0:
        raise InvalidProblem(f"{plan}: l_in is 0, want > 0")
    for name in ("window", "stride"):
        if getattr(desc, name) <= 0:
            raise InvalidProblem(f"{plan}: {name} is {getattr(desc, name)}, want > 0")
    if desc.window > desc.l_in:
        raise InvalidProblem(f"{plan}: window is {desc.window}, want at most l_in = {desc.l_in}")
    if isinstance(desc.p, bool) or not isinstance(desc.p, float):
        raise InvalidProblem(f"{plan}: p is {desc.p!r}, want a float")
    if not isinstance(desc.ceil_mode, bool):
        raise InvalidProblem(f"{plan}: ceil_mode is {desc.ceil_mode!r}, want a bool")
    if math.isnan(desc.p) or desc.p <= 0:
        raise Unsupported(f"{plan}: p is {desc.p}, want > 0")
    if math.isinf(desc.p):
        raise Unsupported(f"{plan}: p is {desc.p}, want a finite number (p = inf is max pooling)")
    power, acc = received_power(desc), desc.element.accumulator.value
    if math.isinf(power):
        raise Unsupported(f"{plan}: p is {desc.p}, past the range of {acc} (use max pooling)")
    if power == 0:
        raise Unsupported(f"{plan}: p is {desc.p}, which is 0 in {acc}; want > 0")


def lp_pool_facts(desc: LpPool1dDescriptor) -> dict[str, Fact]:
    """Facts of an LP pooling problem; `p` is rounded to acc(T), `overlap` is the most windows that hold an element,
    `whole_overlap` the fewest, but near the ends of a row."""
    return {
        "batch": desc.batch,
        "channels": desc.channels,
        "rows": desc.rows,
        "total": desc.rows * desc.l_in,
        "l_in": desc.l_in,
        "l_out": desc.output_length,
        "window": desc.window,
        "stride": desc.step,
        "overlap": -(-desc.window // desc.step),
        "whole_overlap": desc.window // desc.step,
        "p": received_power(desc),
        "ceil_mode": desc.ceil_mode,
    }


def shapes(desc: LpPool1dDescriptor) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Shapes of input and output."""
    return (desc.batch, desc.channels, desc.l_in), (desc.batch, desc.channels, desc.output_length)


def division(name: str, value: int) -> dict[str, int]:
    """Scalars with which a kernel divides numbers below 2³¹ by `value`: ceil(2^(32+shift)/value), shift = ceil(log2)−1.

    The multiplier is 0 for 1 and for values of 2³¹ and more, which kernels treat apart.  Source: Granlund and
    Montgomery, Division by Invariant Integers using Multiplication (1994).
    """
    if value == 1 or value >= 2**31:
        return {f"{name}_multiplier": 0, f"{name}_shift": 0}
    shift = (value - 1).bit_length() - 1
    return {f"{name}_multiplier": -(-(1 << (32 + shift)) // value), f"{name}_shift": shift}


def scalars(desc: LpPool1dDescriptor) -> dict[str, int | float]:
    """Kernel scalars that every design may take."""
    power = received_power(desc)
    return {
        "rows": desc.rows,
        "total": desc.rows * desc.l_in,
        "l_in": desc.l_in,
        "l_out": desc.output_length,
        "window": desc.window,
        "stride": desc.step,
        "p": power,
        "inverse_p": 1.0 / power,
    }


def seamless(desc: LpPool1dDescriptor) -> LpPool1dDescriptor:
    """The same problem as one row, where no window overlaps another or a gap lies between rows: rows of any length then
    begin at whole packs."""
    total = desc.rows * desc.l_in
    if desc.window > desc.step or desc.l_in != desc.output_length * desc.step or total >= 2**30:
        return desc
    return replace(desc, batch=1, channels=1, l_in=total)


def _run_scalars(desc: LpPool1dDescriptor, windows: int) -> dict[str, int | float]:
    """Scalars of the register designs, whose threads have `windows` windows: the runs of a row, which begin where packs of
    the output do, and whether those are places of packs of the input too."""
    pack = 16 // desc.element.itemsize
    together = min(pack, windows & -windows)
    rows_aligned = desc.rows == 1 or desc.output_length % together == 0
    runs = -(-(desc.output_length + (0 if rows_aligned else together - 1)) // windows)
    inputs_aligned = windows * desc.step % pack == 0 and (desc.rows == 1 or desc.l_in % pack == 0)
    return {
        **scalars(desc),
        "runs_per_row": runs,
        **division("runs", runs),
        "packs_aligned": int(rows_aligned and inputs_aligned),
        "partial_windows": int((desc.output_length - 1) * desc.step + desc.window > desc.l_in),
    }


def block_of_rows(rows: int, padded: int, values: int, threads: int) -> dict[str, int]:
    """How a block of the tile designs shares `values` places among rows of `padded`: rows, and threads a row."""
    lanes = 1 << max(5, (min(padded, threads) - 1).bit_length())
    lanes = min(lanes, threads)
    count = max(1, min(rows, values // padded))
    return {"rows_per_block": count, "lanes": lanes}


def _tile_launch(
    desc: LpPool1dDescriptor, tuning: Mapping[str, int], values: dict[str, int | float]
) -> Launch:
    """Tiles of outputs whose inputs fill the tile; several rows a block where a row is shorter."""
    chunk, places, threads = tuning["chunk"], tuning["values"], tuning["threads_pool"]
    tile = max(1, min(desc.output_length, (places - chunk - desc.window) // desc.step + 1))
    padded = -(-((tile - 1) * desc.step + desc.window) // chunk) * chunk
    tiles = -(-desc.output_length // tile)
    block = block_of_rows(desc.rows if tiles == 1 else 1, padded, places, threads)
    values |= {"tiles_per_row": tiles, **division("tiles", tiles), "tile": tile, "padded": padded, **block}
    blocks = -(-desc.rows // block["rows_per_block"]) * tiles
    shared = 2 * block["rows_per_block"] * padded * desc.element.accumulator.itemsize
    return Launch("pool", (blocks, 1, 1), (threads, 1, 1), values, shared)


@dataclass(frozen=True, kw_only=True)
class LpPool1dFwArgs:
    """The arrays.

    Attributes:
        x: T [N, C, L_in].
        y: T [N, C, L_out]; written.
    """

    x: Any
    y: Any


class LpPool1dPlan(Plan[LpPool1dDescriptor, LpPool1dFwArgs]):
    """`y[n,c,o] = (Σ |x[n,c,l]|^p)^(1/p)` over `l = o·s … min(o·s+k, L_in)−1`, computed in acc(T), rounded once.

    The absolute value always, any real p > 0, no padding, no dilation.  A partial last window (`ceil_mode`) sums its
    elements inside the input and is not rescaled; `torch.nn.LPPool1d` rescales it by k/elements, and takes signed powers
    for odd p.  No result that T can hold is lost to an intermediate overflow or underflow.  NaN in a window gives NaN,
    else an infinity gives infinity.  Workspace: none.  Deterministic and bit-stable.
    Source: the seed `lp_pool1d_backward` and its forward, PyTorch `lp_pool1d`.
    """

    descriptor_type = LpPool1dDescriptor
    arguments_type = LpPool1dFwArgs
    bucket = POOL_BUCKET

    @classmethod
    def validate(cls, desc: LpPool1dDescriptor) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_lp_pool(cls.__name__, desc)

    @classmethod
    def signature(cls, desc: LpPool1dDescriptor) -> Signature:
        """The operation and its type."""
        return Signature(OpCategory.Pooling, PoolKind.LP_POOL1D, desc.element)

    @classmethod
    def facts(cls, desc: LpPool1dDescriptor) -> dict[str, Fact]:
        """Facts of the problem."""
        return lp_pool_facts(desc)

    @classmethod
    def operands(cls, desc: LpPool1dDescriptor) -> tuple[Operand, ...]:
        """The argument table."""
        inputs, outputs = shapes(desc)
        return (
            Operand("x", desc.element, inputs, "[N,C,L_in]"),
            Operand("y", desc.element, outputs, "[N,C,L_out]", output=True),
        )

    @classmethod
    def recipe(cls, desc: LpPool1dDescriptor, variant: Variant, device: Device) -> Recipe:
        """One launch."""
        if desc.rows == 0:
            return Recipe(())
        tuning = variant.tuning
        threads = tuning["threads_pool"]
        desc = seamless(desc)
        values = scalars(desc)
        l_out = desc.output_length
        if "windows" in tuning:
            values = _run_scalars(desc, tuning["windows"])
            total = desc.rows * int(values["runs_per_row"])
        elif "run" in tuning:
            run = tuning["run"]
            owners = threads - -(-(desc.window - 1) // run)
            # A row's first outputs share a pack with the row before.
            tiles = -(-(l_out + run - 1) // (owners * run))
            values |= {"tiles_per_row": tiles, **division("tiles", tiles)}
            return Recipe((Launch("pool", (desc.rows * tiles, 1, 1), (threads, 1, 1), values),))
        elif "chunk" in tuning:
            return Recipe((_tile_launch(desc, tuning, values),))
        elif "threads" in tuning:
            values |= division("outputs", l_out)
            blocks = min(desc.rows * l_out, 2**31 - 1)
            return Recipe((Launch("pool", (blocks, 1, 1), (threads, 1, 1), values),))
        else:
            values |= division("outputs", l_out)
            total = desc.rows * l_out
        return Recipe((Launch("pool", (-(-total // threads), 1, 1), (threads, 1, 1), values),))

    @classmethod
    def host_options(cls, desc: LpPool1dDescriptor) -> dict[str, Any]:
        """Options of the host function."""
        return {"window": desc.window, "stride": desc.step, "p": received_power(desc)}

    def run_fw(self, stream: Any, workspace: Any, args: LpPool1dFwArgs) -> None:
        """`run`, by the seed's name."""
        self.run(stream, workspace, args)
