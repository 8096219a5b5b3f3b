"""Gathers what the page shows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import __version__
from ..artifact import source_text, stored
from ..catalog import Registry
from ..device import Device
from ..inspect.maps import selection_map
from ..inspect.matrix import coverage
from ..inspect.ops import OPS
from ..manifest import Variant
from ..sku import KernelSku

Progress = Callable[[Sequence[Any], str], Iterable[Any]]
"""Goes through items while showing how far it is."""


def gather(
    table: Registry,
    devices: Sequence[Device],
    benchmarks: Sequence[dict[str, Any]],
    architectures: Sequence[str],
    progress: Progress = lambda items, what: items,
) -> tuple[dict[str, Any], list[str]]:
    """The catalog and the sources.

    Args:
        table: the registry.
        devices: GPUs of the selection maps.
        benchmarks: what `benchmarks.read` made, a file each.
        architectures: for which resources are shown, of those variants that are compiled already.
        progress: shows how far it is.

    Raises:
        ManifestError: a source is missing or altered.
    """
    variants = table.all_variants()
    skus = list(dict.fromkeys(variant.sku for variant in variants))
    places = {sku: index for index, sku in enumerate(skus)}
    sources: dict[str, int] = {}
    texts: list[str] = []
    if table.manifest is not None:
        for variant in variants:
            if variant.source is not None and variant.source not in sources:
                sources[variant.source] = len(texts)
                texts.append(source_text(table.manifest, variant))
    rows = [
        _variant(table, variant, places[variant.sku], sources, architectures)
        for variant in progress(variants, "reading variants")
    ]
    catalog = {
        "meta": {
            "version": __version__,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "devices": [device.name for device in devices],
            "architectures": list(architectures),
        },
        "skus": [_sku(sku) for sku in skus],
        "variants": rows,
        "coverage": coverage(table).to_dict(),
        "maps": _maps(skus, devices, progress),
        "benchmarks": list(benchmarks),
    }
    return catalog, texts


def _sku(sku: KernelSku) -> dict[str, Any]:
    guarantee = sku.precision_guarantee
    return {
        "id": str(sku),
        "category": sku.category.value,
        "op": sku.op.name.lower(),
        "type": _types(sku.element.value, None if sku.aux_element is None else sku.aux_element.value),
        "tier": sku.arch.value,
        "backend": sku.backend.value,
        "math": guarantee.math_precision.value,
        "sums": guarantee.accumulator.value,
        "stable": guarantee.bit_stable_on_same_hardware,
        "deterministic": guarantee.deterministic,
    }


def _types(element: str, aux: str | None) -> str:
    return element if aux is None else f"{element}/{aux}"


def _variant(
    table: Registry, variant: Variant, sku: int, sources: dict[str, int], architectures: Sequence[str]
) -> dict[str, Any]:
    return {
        "sku": sku,
        "design": variant.design,
        "summary": variant.summary,
        "rank": variant.rank,
        "rules": [[" and ".join(map(str, rule.when)), rule.rank] for rule in variant.rank_rules],
        "pinned": variant.pinned_only,
        "alignment": variant.alignment,
        "constraints": [[str(c), c.why] for c in variant.constraints],
        "targets": list(variant.targets),
        "kernels": [
            [e.role, e.symbol, [f"{p.type} {p.name}" for p in e.parameters]] for e in variant.entries
        ],
        "tuning": dict(variant.tuning),
        "path": variant.source or f"baracuda_registry.reference.{variant.function}",
        "source": sources.get(variant.source or "", -1),
        "resources": _resources(table, variant, architectures),
    }


def _resources(table: Registry, variant: Variant, architectures: Sequence[str]) -> list[list[Any]]:
    """[architecture, kernel, registers, spills, stack, static shared memory] for what is compiled already."""
    rows: list[list[Any]] = []
    if variant.source is None or table.manifest is None:
        return rows
    for architecture in architectures:
        if architecture not in variant.targets:
            continue
        made = stored(table.manifest, variant, architecture)
        if made is None:
            continue
        for entry in variant.entries:
            used = made.resources.get(entry.symbol)
            if used is not None:
                spills = used.spill_store_bytes + used.spill_load_bytes
                rows.append(
                    [architecture, entry.role, used.registers, spills, used.stack_bytes, used.shared_bytes]
                )
    return rows


def _maps(skus: Sequence[KernelSku], devices: Sequence[Device], progress: Progress) -> list[dict[str, Any]]:
    """The selection map of every operation and combination of types, on every device."""
    wanted = list(
        dict.fromkeys(
            (sku.op.name.lower(), sku.element, sku.aux_element) for sku in skus if sku.op.name.lower() in OPS
        )
    )
    grid = [(op, element, aux, device) for op, element, aux in wanted for device in devices]
    return [
        selection_map(op, element, device, aux).to_dict()
        for op, element, aux, device in progress(grid, "choosing variants")
    ]
