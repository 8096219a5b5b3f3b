"""What the per-group plans share: the checks of sizes and types, the facts of the problem, and the launch."""

from __future__ import annotations

from typing import Protocol

from ..bucket import Octave, Whole
from ..constraint import Fact
from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem, Unsupported
from ..manifest import Variant
from ..recipe import Launch, Recipe
from .descriptors import check_floating, check_integers, tuning

CODES = {ElementKind.S8: (-128, 127), ElementKind.U8: (0, 255)}
"""Types of quantized codes, with their ranges."""

GROUP_BUCKET = (Octave("total"), Octave("group_size"), Whole("group_size", 16))
"""Elements in all decide what latency costs; a group's length how often scales change and how wide accesses can be."""

LONGEST_PERIOD = 1 << 30
"""Kernels count positions inside a block in 32 bits; a longer group is cut to this, more than any block's units."""


class PerGroupDescriptor(Protocol):
    """Fields that every per-group descriptor has."""

    @property
    def outer_size(self) -> int:
        """Product of the leading extents."""

    @property
    def axis_size(self) -> int:
        """Extent of the quantized axis."""

    @property
    def group_size(self) -> int:
        """Elements that share a scale."""

    @property
    def input_element(self) -> ElementKind:
        """Floating type."""

    @property
    def output_element(self) -> ElementKind:
        """Type of the codes."""


class QuantizingDescriptor(PerGroupDescriptor, Protocol):
    """The same with a range of codes."""

    @property
    def q_min(self) -> int:
        """Smallest code."""

    @property
    def q_max(self) -> int:
        """Largest code."""


def validate_groups(plan: str, desc: PerGroupDescriptor) -> None:
    """Raise `Unsupported` for types, `InvalidProblem` for sizes, in the seed's order."""
    check_floating(plan, "input_element", desc.input_element)
    if desc.output_element not in CODES:
        raise Unsupported(f"{plan}: output_element is {desc.output_element.value}, want s8 or u8")
    check_integers(plan, desc, ("outer_size", "axis_size", "group_size"))
    for name in ("outer_size", "axis_size"):
        if getattr(desc, name) < 0:
            raise InvalidProblem(f"{plan}: {name} is {getattr(desc, name)}, want >= 0")
    if desc.group_size <= 0:
        raise InvalidProblem(f"{plan}: group_size is {desc.group_size}, want > 0")
    if desc.axis_size % desc.group_size:
        raise InvalidProblem(
            f"{plan}: axis_size is {desc.axis_size}, want a multiple of group_size {desc.group_size}"
        )


def validate_q_range(plan: str, desc: QuantizingDescriptor) -> None:
    """Raise `InvalidProblem` unless q_min <= q_max lie in the code type's range."""
    check_integers(plan, desc, ("q_min", "q_max"))
    low, high = CODES[desc.output_element]
    for name in ("q_min", "q_max"):
        if not low <= getattr(desc, name) <= high:
            raise InvalidProblem(
                f"{plan}: {name} is {getattr(desc, name)}, want {low}..{high} ({desc.output_element.value})"
            )
    if desc.q_min > desc.q_max:
        raise InvalidProblem(f"{plan}: q_min is {desc.q_min}, want <= q_max {desc.q_max}")


def group_facts(desc: PerGroupDescriptor) -> dict[str, Fact]:
    """Facts of a per-group problem."""
    return {
        "outer_size": desc.outer_size,
        "axis_size": desc.axis_size,
        "group_size": desc.group_size,
        "total": desc.outer_size * desc.axis_size,
    }


def stream_recipe(
    desc: PerGroupDescriptor, variant: Variant, device: Device, options: dict[str, int] | None = None
) -> Recipe:
    """One launch of the streaming skeleton, a block a tile of packs; none for an empty problem.

    Args:
        desc: the problem.
        variant: a variant of any per-group operation.
        device: its resident threads decide how many packs a thread takes: as many as the design holds, fewer where
            that would leave threads without any.
        options: scalars of the operation itself (`q_min`, `q_max`).
    """
    total = desc.outer_size * desc.axis_size
    if total == 0:
        return Recipe(())
    vector, most, threads = tuning(variant, "vector", "packs", "threads_stream")
    packs = -(-total // vector)
    each = max(1, min(most, packs // max(1, device.sm_count * device.threads_per_sm)))
    tile = each * threads
    straddle = bool(variant.tuning["straddle"])
    units = desc.group_size if straddle else desc.group_size // vector
    period = min(units, LONGEST_PERIOD)
    group_magic, group_shift = magic_divisor(units, 64)
    period_magic, period_shift = magic_divisor(period, 32)
    scalars = {
        "packs": packs,
        "tile": tile,
        "group_units": units,
        "group_magic": group_magic,
        "group_shift": group_shift,
        "period": period,
        "period_magic": period_magic,
        "period_shift": period_shift,
        **(options or {}),
    }
    if straddle:
        scalars["total"] = total
    return Recipe((Launch("stream", (-(-packs // tile), 1, 1), (threads, 1, 1), scalars),))


def magic_divisor(divisor: int, width: int) -> tuple[int, int]:
    """Multiplier and shift by which a kernel divides 0 <= n < 2^(width - 1) by `divisor` <= 2^(width - 2).

    The quotient is floor(2n · magic / 2^width) >> shift, with shift = ceil(log2 divisor) and
    magic = ceil(2^(width - 1 + shift) / divisor) < 2^width.  Then 2n · magic / 2^(width + shift) exceeds n / divisor by less
    than n / 2^(width - 1 + shift) < 1 / divisor, so the floor is the same (Granlund and Montgomery 1994).
    """
    shift = (divisor - 1).bit_length()
    return -(-(1 << (width - 1 + shift)) // divisor), shift
