"""The functions of `baracuda_registry.inspect` that look into a registry: names as text in, records out."""

from __future__ import annotations

from typing import Any

from ..catalog import Registry, registry
from ..device import Device
from ..manifest import Variant
from ..sku import KernelSku, OpKind
from . import code as _code
from . import matrix as _coverage
from . import usage as _resources
from .matrix import Coverage
from .names import variant_named
from .records import SkuRecord, VariantRecord, by_sku, matching, variant_record
from .usage import KernelUse


def skus(*, table: Registry | None = None, **filters: Any) -> tuple[SkuRecord, ...]:
    """SKUs with their variants, in order; filters as in `variants`.

    Raises:
        InvalidProblem: a filter's name is not known.
    """
    return by_sku(matching(_table(table), **filters))


def variants(*, table: Registry | None = None, **filters: Any) -> tuple[VariantRecord, ...]:
    """Variants that meet every filter: category, op, element, aux_element, arch, backend, guarantee, pattern.

    Raises:
        InvalidProblem: a filter's name is not known.
    """
    found = _table(table)
    return tuple(variant_record(found, variant) for variant in matching(found, **filters))


def show(variant: Variant | KernelSku | str, *, table: Registry | None = None) -> VariantRecord:
    """One variant's record, by id or by words that only one variant has (`"group_norm bf16 f32 split_v8"`).

    Raises:
        InvalidProblem: none, or several.
    """
    found = _table(table)
    return variant_record(
        found, variant_named(found, variant if isinstance(variant, Variant) else str(variant))
    )


def source(variant: Variant | str, *, table: Registry | None = None) -> str:
    """A variant's CUDA source.

    Raises:
        InvalidProblem: no such variant.
        ManifestError: a host variant has none, or the file is missing or altered.
    """
    found = _table(table)
    return _code.source(found, variant_named(found, variant))


def ptx(variant: Variant | str, architecture: str | None = None, *, table: Registry | None = None) -> str:
    """A variant's PTX for an architecture (`sm_90`); the default is the GPU's here, else sm_90.

    Raises:
        InvalidProblem: no such variant, or an architecture it does not run on.
        ManifestError: a host variant has none.
        CompileError: no compiler, or one that does not know the architecture.
    """
    found = _table(table)
    return _code.ptx(found, variant_named(found, variant), architecture)


def sass(variant: Variant | str, architecture: str | None = None, *, table: Registry | None = None) -> str:
    """A variant's machine code as text, through nvdisasm or cuobjdump.

    Raises:
        ToolMissing: neither is installed; the message says how to get one.
        InvalidProblem, ManifestError, CompileError: as `ptx`.
    """
    found = _table(table)
    return _code.sass(found, variant_named(found, variant), architecture)


def resources(
    variant: Variant | str,
    *,
    architecture: str | None = None,
    device: Device | str | None = None,
    descriptor: Any = None,
    op: OpKind | str | None = None,
    table: Registry | None = None,
) -> tuple[KernelUse, ...]:
    """Registers, spills, shared memory and theoretical occupancy of each kernel; see `usage.resources`."""
    found = _table(table)
    return _resources.resources(
        found,
        variant_named(found, variant),
        architecture=architecture,
        device=device,
        descriptor=descriptor,
        op=op,
    )


def coverage(*, table: Registry | None = None) -> Coverage:
    """Operation × types × tier, with the reason for each hole."""
    return _coverage.coverage(_table(table))


def _table(table: Registry | None) -> Registry:
    return registry() if table is None else table
