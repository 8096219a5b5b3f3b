"""What a problem costs at least: bytes that must move, operations that must be done, and the time that follows.

Bytes come from the plan's own argument table: every input read once, every output written once.  A kernel that has
its data in the L2 cache already can be faster than that bandwidth allows, so the record says whether it would fit.
Operations are counted on the formulas: an addition, a product, a division, a comparison, a power or a root is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem
from ..sku import OpKind
from .names import device_named
from .ops import entry_for

PEAK_FLOPS: dict[str, tuple[float, float]] = {
    "A100": (19.5e12, 9.7e12),
    "A10": (31.2e12, 0.98e12),
    "RTX A6000": (38.7e12, 1.21e12),
    "RTX 3090": (35.6e12, 0.56e12),
    "L40S": (91.6e12, 1.43e12),
    "L4": (30.3e12, 0.47e12),
    "RTX 4090": (82.6e12, 1.29e12),
    "H100 PCIe": (51.2e12, 25.6e12),
    "H100": (66.9e12, 33.5e12),
    "H200": (66.9e12, 33.5e12),
    "B200": (75.0e12, 37.5e12),
    "RTX 5090": (104.8e12, 1.64e12),
}
"""Peak operations a second outside tensor cores, in f32 and f64, by the vendor's data sheets (a fused
multiply-add counts as two); consumer parts have one f64 unit for 64 of f32."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The least that a problem costs.

    Attributes:
        read_bytes: inputs, each once.
        written_bytes: outputs, each once.
        flops: operations of the formulas, in acc(T).
    """

    read_bytes: int
    written_bytes: int
    flops: int

    @property
    def total_bytes(self) -> int:
        """Bytes that must move."""
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.total_bytes if self.total_bytes else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "total_bytes": self.total_bytes, "intensity": self.intensity}


@dataclass(frozen=True, slots=True)
class Floor:
    """The time below which a problem cannot be done on a device, as far as its data sheet says.

    Attributes:
        device: the device's name.
        cost: the problem's cost.
        memory_seconds: bytes over the memory's bandwidth.
        arithmetic_seconds: operations over the peak; None where the peak is not known.
        fits_l2: whether everything fits the L2 cache; then a warm run can be faster than `memory_seconds`.
    """

    device: str
    cost: Cost
    memory_seconds: float
    arithmetic_seconds: float | None
    fits_l2: bool

    @property
    def seconds(self) -> float:
        """The larger of the two."""
        return max(self.memory_seconds, self.arithmetic_seconds or 0.0)

    @property
    def bound(self) -> str:
        """What limits: `memory` or `arithmetic`."""
        return "arithmetic" if (self.arithmetic_seconds or 0.0) > self.memory_seconds else "memory"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, times in seconds."""
        return {
            "device": self.device,
            "seconds": self.seconds,
            "bound": self.bound,
            "memory_seconds": self.memory_seconds,
            "arithmetic_seconds": self.arithmetic_seconds,
            "fits_l2": self.fits_l2,
            "cost": self.cost.to_dict(),
        }


def cost(descriptor: Any, op: OpKind | str | None = None) -> Cost:
    """The bytes and operations of a problem.

    Args:
        descriptor: the problem.
        op: which operation, where one descriptor serves several (LP pooling).

    Raises:
        InvalidProblem, Unsupported: not a problem of any operation.
    """
    entry = entry_for(descriptor, op)
    entry.plan.validate(descriptor)
    operands = [operand for operand in entry.plan.operands(descriptor) if operand.present]
    sizes = {operand.name: math.prod(operand.shape) * operand.element.itemsize for operand in operands}
    written = sum(sizes[operand.name] for operand in operands if operand.output)
    counts = {operand.name: math.prod(operand.shape) for operand in operands}
    return Cost(sum(sizes.values()) - written, written, _FLOPS[entry.name](descriptor, counts))


def floor(descriptor: Any, device: Device | str, op: OpKind | str | None = None) -> Floor:
    """The predicted floor of a problem's time on a device, here or only named.

    Args:
        descriptor: the problem.
        device: a `Device` or a GPU's public name.
        op: which operation, where one descriptor serves several.

    Raises:
        InvalidProblem: the problem; the device's name; a device without a known bandwidth (the host among them).
    """
    where = device_named(device)
    needs = cost(descriptor, op)
    if where.bandwidth <= 0:
        raise InvalidProblem(
            f"the memory bandwidth of {where.name} is not known, so there is no floor; name a GPU of the table instead"
        )
    element = entry_for(descriptor, op).signature(descriptor).element
    peak = next((value for name, value in PEAK_FLOPS.items() if name in where.name), None)
    arithmetic = None
    if peak is not None:
        arithmetic = needs.flops / peak[element.accumulator is ElementKind.F64]
    return Floor(
        device=where.name,
        cost=needs,
        memory_seconds=needs.total_bytes / where.bandwidth,
        arithmetic_seconds=arithmetic,
        fits_l2=needs.total_bytes <= where.l2_bytes,
    )


_Count = Callable[[Any, Mapping[str, int]], int]


def _powers(p: float) -> int:
    """Operations of |x|^p and its addition to a sum."""
    return {1.0: 2, 2.0: 2, 3.0: 3}.get(p, 3)


def _pool(desc: Any, counts: Mapping[str, int]) -> int:
    # Powers are taken once an element where windows overlap, once a term where they do not; then a sum and a root.
    terms: int = counts["y"] * desc.window
    return min(counts["x"], terms) * (_powers(desc.p) - 1) + terms + counts["y"]


def _pool_backward(desc: Any, counts: Mapping[str, int]) -> int:
    # A coefficient a window (a power and a product), an addition a pair of element and window, a factor an element.
    pairs: int = counts["y"] * desc.window
    return 2 * counts["y"] + pairs + counts["x"] * _powers(desc.p)


def _norm(desc: Any, counts: Mapping[str, int]) -> int:
    # Mean 1, variance 3, normalise 2, affine 2.
    return counts["x"] * (8 if desc.has_affine else 6) + 4 * counts["saved_mean"]


def _norm_backward(desc: Any, counts: Mapping[str, int]) -> int:
    # x̂ 2; dx: h 1, A 1, B 2, and 4 for the element; dgamma 2; dbeta 1.
    per_element = 2 + (8 if "dx" in counts else 0) + (2 if "dgamma" in counts else 0)
    per_element += 1 if "dbeta" in counts else 0
    return counts["x"] * per_element


def _each(operations: int, name: str) -> _Count:
    return lambda desc, counts: operations * counts[name]


_FLOPS: dict[str, _Count] = {
    "lp_pool1d": _pool,
    "lp_pool1d_backward": _pool_backward,
    "group_norm": _norm,
    "group_norm_backward": _norm_backward,
    "instance_norm": _norm,
    "instance_norm_backward": _norm_backward,
    "per_group": _each(5, "input"),  # divide, round, add, clamp at both ends
    "per_group_backward": _each(6, "input"),  # divide, round, add, compare twice, divide
    "dequantize_per_group": _each(2, "input"),
    "dequantize_per_group_backward": _each(1, "d_output"),
}
