"""Looking into the registry: what there is, what a problem gets and why, what it costs, what the code looks like.

Everything is answered as frozen records with `.to_dict()`, needs no GPU, and works for GPUs that are only named.  Names
are taken as text and the installation's registry is used; `Registry` has the same as methods.  What is here is imported
on first use, so that listing SKUs does not pay for plans and compilers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import coverage, ptx, resources, sass, show, skus, source, variants
    from .choice import Explanation, explain
    from .costs import Cost, Floor, cost, floor
    from .grids import Axis
    from .maps import SelectionMap, selection_map
    from .matrix import Cell, Coverage
    from .names import device_named, nearest, op_named, sku_named, variant_named
    from .ops import OPS, OpEntry, entry_of
    from .records import SkuRecord, VariantRecord
    from .usage import KernelUse, Occupancy, occupancy

_HOMES: dict[str, str] = {
    name: module
    for module, names in {
        "api": "coverage ptx resources sass show skus source variants",
        "costs": "Cost Floor cost floor",
        "matrix": "Cell Coverage",
        "choice": "Explanation explain",
        "maps": "SelectionMap selection_map",
        "names": "device_named nearest op_named sku_named variant_named",
        "grids": "Axis",
        "ops": "OPS OpEntry entry_of",
        "records": "SkuRecord VariantRecord",
        "usage": "KernelUse Occupancy occupancy",
    }.items()
    for name in names.split()
}

__all__ = [
    "OPS",
    "Axis",
    "Cell",
    "Cost",
    "Coverage",
    "Explanation",
    "Floor",
    "KernelUse",
    "Occupancy",
    "OpEntry",
    "SelectionMap",
    "SkuRecord",
    "VariantRecord",
    "cost",
    "coverage",
    "device_named",
    "entry_of",
    "explain",
    "floor",
    "nearest",
    "occupancy",
    "op_named",
    "ptx",
    "resources",
    "sass",
    "selection_map",
    "show",
    "sku_named",
    "skus",
    "source",
    "variant_named",
    "variants",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
