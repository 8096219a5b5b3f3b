"""LP pooling in one dimension, backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..constraint import Fact
from ..device import Device
from ..manifest import Variant
from ..operands import Operand
from ..recipe import Launch, Recipe
from ..sku import OpCategory, PoolKind
from .base import Plan, Signature
from .lp_pool1d import (
    POOL_BUCKET,
    LpPool1dDescriptor,
    block_of_rows,
    division,
    lp_pool_facts,
    received_power,
    scalars,
    seamless,
    shapes,
    validate_lp_pool,
)


@dataclass(frozen=True, kw_only=True)
class LpPool1dBwArgs:
    """The arrays.

    Attributes:
        x: input of the forward pass, T [N, C, L_in].
        y: output of the forward pass, T [N, C, L_out].
        dy: upstream gradient, T [N, C, L_out].
        dx: gradient with respect to x, T [N, C, L_in]; overwritten (but for the pinned scatter form, which adds to it).
    """

    x: Any
    y: Any
    dy: Any
    dx: Any


class LpPool1dBackwardPlan(Plan[LpPool1dDescriptor, LpPool1dBwArgs]):
    """`dx[l] = Σ dy[o] · sgn(x[l]) · (|x[l]| / y[o])^(p−1)` over the windows o that hold l, rounded once.

    Gather form: every dx has one owner, which adds its windows in a fixed order in acc(T); no atomics, and `dx` need not
    be zeroed.  A window with y = 0, and an x = 0, contribute exactly 0; elements in no window get 0.  Other special
    values follow IEEE arithmetic of the formula, with pow(anything, 0) = 1.  Workspace: none.  Deterministic and
    bit-stable.

    The seed's form (a thread an output, atomic additions into a dx that the caller has zeroed) is the variant
    `scatter_v1`, chosen only when pinned; its order of additions is not fixed, and 16-bit sums are rounded at every one.
    Source: the seed `lp_pool1d_backward`.
    """

    descriptor_type = LpPool1dDescriptor
    arguments_type = LpPool1dBwArgs
    bucket = POOL_BUCKET

    @classmethod
    def validate(cls, desc: LpPool1dDescriptor) -> None:
        """Raise for a descriptor this plan does not take."""
        validate_lp_pool(cls.__name__, desc)

    @classmethod
    def signature(cls, desc: LpPool1dDescriptor) -> Signature:
        """The operation and its type."""
        return Signature(OpCategory.Pooling, PoolKind.LP_POOL1D_BACKWARD, desc.element)

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
            Operand("y", desc.element, outputs, "[N,C,L_out]"),
            Operand("dy", desc.element, outputs, "[N,C,L_out]"),
            Operand("dx", desc.element, inputs, "[N,C,L_in]", output=True),
        )

    @classmethod
    def recipe(cls, desc: LpPool1dDescriptor, variant: Variant, device: Device) -> Recipe:
        """One launch."""
        if desc.rows == 0:
            return Recipe(())
        tuning = variant.tuning
        threads = tuning["threads_gradient"]
        desc = seamless(desc)
        values = scalars(desc)
        if "windows" in tuning:
            values = _run_scalars(desc, tuning["windows"])
            total = desc.rows * int(values["runs_per_row"])
        elif "pack" in tuning:
            runs = -(-(desc.l_in + tuning["pack"] - 1) // tuning["pack"])
            values |= {"runs_per_row": runs, **division("runs", runs), **division("stride", desc.step)}
            total = desc.rows * runs
        elif "run" in tuning:
            run = tuning["run"]
            owners = threads - -(-(desc.window - 1) // run)
            # A row's first inputs share a pack with the row before.
            tiles = -(-(desc.l_in + run - 1) // (owners * run))
            values |= {"tiles_per_row": tiles, **division("tiles", tiles)}
            return Recipe((Launch("gradient", (desc.rows * tiles, 1, 1), (threads, 1, 1), values),))
        elif "chunk" in tuning:
            return Recipe((_tile_launch(desc, tuning, values),))
        elif variant.pinned_only:
            values |= division("outputs", desc.output_length)
            total = desc.rows * desc.output_length
        else:
            values |= {**division("inputs", desc.l_in), **division("stride", desc.step)}
            total = desc.rows * desc.l_in
        return Recipe((Launch("gradient", (-(-total // threads), 1, 1), (threads, 1, 1), values),))

    @classmethod
    def host_options(cls, desc: LpPool1dDescriptor) -> dict[str, Any]:
        """Options of the host function."""
        return {"window": desc.window, "stride": desc.step, "p": received_power(desc)}

    def run_bw(self, stream: Any, workspace: Any, args: LpPool1dBwArgs) -> None:
        """`run`, by the seed's name."""
        self.run(stream, workspace, args)


def _run_scalars(desc: LpPool1dDescriptor, windows: int) -> dict[str, int | float]:
    """Scalars of the register designs, in whose threads' runs `windows` windows begin.

    `packs_aligned`: runs of inputs begin at packs; `windows_aligned`: no window reaches into another run, and those of a
    run lie in aligned packs (or in an aligned part of one).
    """
    pack = 16 // desc.element.itemsize
    inputs = windows * desc.step
    runs = -(-desc.l_in // inputs)
    together = min(pack, windows)
    packs_aligned = inputs % pack == 0 and (desc.rows == 1 or desc.l_in % pack == 0)
    windows_aligned = desc.window <= desc.step and (desc.rows == 1 or desc.output_length % together == 0)
    return {
        **scalars(desc),
        "runs_per_row": runs,
        **division("runs", runs),
        "packs_aligned": int(packs_aligned),
        "windows_aligned": int(windows_aligned),
    }


def _tile_launch(
    desc: LpPool1dDescriptor, tuning: Mapping[str, int], values: dict[str, int | float]
) -> Launch:
    """Tiles of inputs whose windows fill the tile; several rows a block where a row has fewer."""
    chunk, places, threads = tuning["chunk"], tuning["values"], tuning["threads_gradient"]
    spare = places - chunk - -(-desc.window // desc.step) - 2
    tile = max(1, min(desc.l_in, min(spare * desc.step, places)))
    # Windows that reach into a tile: one before it for every whole stride of a window's length, and one more by rounding.
    windows = (tile - 1 + desc.window - 1) // desc.step + 2
    padded = -(-windows // chunk) * chunk
    tiles = -(-desc.l_in // tile)
    rows = min(desc.rows, max(1, places // tile)) if tiles == 1 else 1
    block = block_of_rows(rows, padded, places, threads)
    block["lanes"] = block_of_rows(rows, tile, places, threads)["lanes"]
    values |= {"tiles_per_row": tiles, **division("tiles", tiles), "tile": tile, "padded": padded, **block}
    values |= division("stride", desc.step)
    blocks = -(-desc.rows // block["rows_per_block"]) * tiles
    shared = 2 * block["rows_per_block"] * padded * desc.element.accumulator.itemsize
    return Launch("gradient", (blocks, 1, 1), (threads, 1, 1), values, shared)
