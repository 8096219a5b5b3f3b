"""What a variant's kernels use, and how many of their blocks fit a multiprocessor.

Registers, spills and static shared memory are the assembler's own report; block size and dynamic shared memory come
from the launch recipe of a problem.  Occupancy is theoretical: what the limits allow, not what a run achieves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..artifact import artifact
from ..catalog import Registry
from ..compile import Resources
from ..device import Device
from ..errors import InvalidProblem, ManifestError
from ..manifest import Variant
from ..recipe import Launch
from ..sku import OpKind
from .code import architecture_named
from .names import device_named
from .ops import OPS, entry_for

WARP = 32
_REGISTER_UNIT = 256
_PARTITIONS = 4
_SHARED_UNIT = 128
_RESERVED_SHARED = 1024
_BLOCKS_PER_SM = {80: 32, 86: 16, 87: 16, 89: 24, 90: 32, 100: 32, 103: 32, 110: 24, 120: 24, 121: 24}
"""Resident blocks of a multiprocessor by compute capability (CUDA Programming Guide, technical specifications)."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks of a kernel are resident on a multiprocessor.

    Attributes:
        blocks: resident blocks.
        warps: resident warps.
        fraction: warps over the most that a multiprocessor takes.
        limits: resident blocks that each resource alone would allow.
        limited_by: the resources that allow the fewest.
    """

    blocks: int
    warps: int
    fraction: float
    limits: Mapping[str, int]
    limited_by: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "blocks": self.blocks,
            "warps": self.warps,
            "fraction": self.fraction,
            "limits": dict(self.limits),
            "limited_by": list(self.limited_by),
        }


@dataclass(frozen=True, slots=True)
class KernelUse:
    """What one kernel uses.

    Attributes:
        role: its role in the variant.
        symbol: its name.
        architecture: what it was compiled for.
        used: registers, spills, stack and static shared memory.
        threads: threads a block; None where neither a problem nor the tuning says.
        dynamic_shared_bytes: dynamic shared memory a block for the problem; None without one.
        occupancy: on the device asked for; None without a device or a block size.
    """

    role: str
    symbol: str
    architecture: str
    used: Resources
    threads: int | None
    dynamic_shared_bytes: int | None
    occupancy: Occupancy | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, sizes in bytes."""
        return {
            "role": self.role,
            "symbol": self.symbol,
            "architecture": self.architecture,
            **self.used.to_dict(),
            "threads": self.threads,
            "dynamic_shared_bytes": self.dynamic_shared_bytes,
            "occupancy": None if self.occupancy is None else self.occupancy.to_dict(),
        }


def occupancy(device: Device, registers: int, threads: int, shared_bytes: int) -> Occupancy:
    """Theoretical occupancy of a kernel.

    Args:
        device: facts of a GPU.
        registers: a thread.
        threads: a block.
        shared_bytes: a block, static and dynamic.

    Raises:
        InvalidProblem: the device is the host.
    """
    if device.is_host:
        raise InvalidProblem("the host has no multiprocessors: name a GPU, such as H200")
    warps = -(-threads // WARP)
    most_warps = device.threads_per_sm // WARP
    per_warp = -(-max(registers, 1) * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    register_warps = device.registers_per_sm // _PARTITIONS // per_warp * _PARTITIONS
    limits = {
        "blocks": _BLOCKS_PER_SM.get(device.compute_capability, 16),
        "threads": most_warps // warps,
        "registers": register_warps // warps,
    }
    shared = -(-(shared_bytes + _RESERVED_SHARED) // _SHARED_UNIT) * _SHARED_UNIT
    limits["shared memory"] = device.shared_bytes_per_sm // shared
    blocks = min(limits.values())
    limited = tuple(name for name, count in limits.items() if count == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / most_warps, limits, limited)


def resources(
    table: Registry,
    variant: Variant,
    *,
    architecture: str | None = None,
    device: Device | str | None = None,
    descriptor: Any = None,
    op: OpKind | str | None = None,
) -> tuple[KernelUse, ...]:
    """What each kernel of a variant uses; compiles it if it is not shipped or cached.

    Args:
        table: the registry.
        variant: a variant with CUDA code.
        architecture: `sm_90`, …; default the device's, else as `default_architecture` says.
        device: where occupancy is wanted, by facts or name; None = no occupancy.
        descriptor: a problem, for block sizes and dynamic shared memory; without one the block size is the
            tuning's where it has one, and dynamic shared memory counts as none.
        op: which operation, where one descriptor serves several.

    Raises:
        ManifestError: a host variant has no kernels.
        InvalidProblem: an architecture or device that the variant does not run on; a problem of another operation.
        CompileError: it cannot be compiled.
    """
    if variant.source is None or table.manifest is None:
        raise ManifestError(f"variant {variant.id} runs on the host: it has no kernels")
    where = None if device is None else device_named(device)
    if architecture is None and where is not None and not where.is_host:
        architecture = f"sm_{where.compute_capability}"
    made = artifact(table.manifest, variant, architecture_named(variant, architecture))
    launches = _launches(variant, descriptor, where, op)
    uses = []
    for entry in variant.entries:
        used = made.resources[entry.symbol]
        launch = launches.get(entry.role)
        if launch is not None:
            threads: int | None = launch.block[0] * launch.block[1] * launch.block[2]
            dynamic: int | None = launch.shared_bytes
        else:
            threads, dynamic = (
                variant.tuning.get(f"threads_{entry.role}", variant.tuning.get("threads")),
                None,
            )
        fits = None
        if where is not None and not where.is_host and threads:
            fits = occupancy(where, used.registers, threads, used.shared_bytes + (dynamic or 0))
        uses.append(KernelUse(entry.role, entry.symbol, made.architecture, used, threads, dynamic, fits))
    return tuple(uses)


def _launches(
    variant: Variant, descriptor: Any, device: Device | None, op: OpKind | str | None
) -> dict[str, Launch]:
    """The launch of each role for a problem; empty without one."""
    if descriptor is None:
        return {}
    if device is None or device.is_host:
        raise InvalidProblem("a problem's launches depend on the device: name a GPU, such as H200")
    if op is None and variant.sku.op.name.lower() in OPS:
        op = variant.sku.op
    entry = entry_for(descriptor, op)
    entry.plan.validate(descriptor)
    signature = entry.signature(descriptor)
    key = (variant.sku.op, variant.sku.element, variant.sku.aux_element)
    if key != (signature.op, signature.element, signature.aux_element):
        raise InvalidProblem(f"{variant.id} does not serve this problem: it is of another operation or type")
    facts = {**entry.plan.facts(descriptor), "alignment": 16, **device.facts}
    failing = [c.reason(facts) for c in variant.constraints if not c.holds(facts)]
    if failing:
        raise InvalidProblem(f"{variant.id} does not serve this problem: {'; '.join(failing)}")
    recipe = entry.plan.recipe(descriptor, variant, device)
    return {step.role: step for step in recipe.steps if isinstance(step, Launch)}
