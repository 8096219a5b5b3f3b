"""Problems of every operation: an example of ordinary size, small ones for proofs, and the extents that a map spans."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..elements import ElementKind

Fields = Mapping[str, Any]
"""Fields of a descriptor, without the element type."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One extent of a selection map.

    Attributes:
        label: what it is, in symbols.
        values: the extents.
    """

    label: str
    values: tuple[int, ...]


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in range(low, high + 1))


POOL = {"batch": 64, "channels": 256, "l_in": 16384, "window": 5, "p": 2.0, "stride": 2}
GROUPS = {"input_shape": (32, 320, 64, 64), "num_groups": 32}
INSTANCE = {"input_shape": (32, 64, 64, 64)}
AFFINE = {"outer_size": 8192, "axis_size": 8192, "group_size": 128, "output_element": ElementKind.S8}
RANGE = {**AFFINE, "q_min": -128, "q_max": 127}

POOL_AXES = (
    Axis("window", (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128)),
    Axis("stride", (1, 2, 3, 4, 5, 6, 8, 16)),
)
GROUP_AXES = (Axis("spatial extent S", _powers(0, 15)), Axis("channels a group C/G", _powers(0, 8)))
INSTANCE_AXES = (Axis("spatial extent S", _powers(0, 18)), Axis("instances N·C", _powers(0, 16)[::2]))
QUANT_AXES = (
    Axis("group size", (1, 2, 3, 4, 8, 12, 16, 32, 48, 64, 100, 128)),
    Axis("rows", _powers(0, 14)[::2]),
)


def pool_at(window: int, stride: int) -> Fields:
    """LP pooling at a point of its map."""
    return {**POOL, "window": window, "stride": stride}


def groups_at(spatial: int, channels: int) -> Fields:
    """GroupNorm at a point of its map."""
    return {"input_shape": (32, 32 * channels, spatial), "num_groups": 32}


def instances_at(spatial: int, instances: int) -> Fields:
    """InstanceNorm at a point of its map."""
    return {"input_shape": (1, instances, spatial)}


def quantized_at(fields: Fields) -> Callable[[int, int], Fields]:
    """A per-group operation with these other fields at a point of its map."""

    def at(group: int, rows: int) -> Fields:
        return {**fields, "outer_size": rows, "axis_size": 64 * group, "group_size": group}

    return at


def pool_problems() -> Iterator[Fields]:
    """LP pooling: every window, stride and kind of power, rows of several lengths."""
    windows = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 33, 64, 200, 700, 1100, 3001)
    strides = (1, 2, 3, 4, 5, 6, 7, 8, 16)
    for window, stride, p in itertools.product(windows, strides, (1.0, 2.0, 3.0, 0.5, 2.7)):
        for rows, length in ((1, 4099), (6, 131), (260, 3), (2, 2064)):
            if length >= window:
                yield {
                    "batch": 1 if rows % 2 else 2,
                    "channels": rows if rows % 2 else rows // 2,
                    "l_in": length,
                    "window": window,
                    "stride": stride,
                    "p": p,
                    "ceil_mode": (window + stride) % 2 == 1,
                }


def norm_problems() -> Iterator[Fields]:
    """GroupNorm: groups from one element to beyond a block, few and many."""
    spatial = (1, 2, 5, 7, 8, 16, 49, 64, 128, 256, 512, 1031, 2048, 4096, 10240, 20480, 65536)
    for extent, channels, (n, groups) in itertools.product(
        spatial, (1, 2, 3, 8, 48), ((1, 1), (2, 3), (40, 1), (1, 300), (2, 1))
    ):
        yield {"input_shape": (n, groups * channels, extent), "num_groups": groups}


def instance_problems() -> Iterator[Fields]:
    """InstanceNorm: those of GroupNorm with a channel a group."""
    for problem in norm_problems():
        if problem["input_shape"][1] == problem["num_groups"]:
            yield {"input_shape": problem["input_shape"]}


def group_problems() -> Iterator[Fields]:
    """Per-group operations: groups that are whole vectors, and others."""
    for group, groups, rows in itertools.product(
        (1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 64, 128, 513, 2049), (1, 3, 8), (1, 2, 5)
    ):
        yield {"outer_size": rows, "axis_size": group * groups, "group_size": group}


def ranged_problems() -> Iterator[Fields]:
    """The same with a range of codes."""
    for problem in group_problems():
        yield {**problem, "q_min": -128, "q_max": 127}
