"""SKUs and variants as plain data: what is shown, filtered and written as JSON."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..catalog import Registry
from ..elements import ElementKind
from ..errors import InvalidProblem
from ..manifest import Variant
from ..sku import ArchSku, BackendKind, KernelSku, OpCategory, OpKind, PrecisionGuarantee
from .names import element_named, member, op_named

_GUARANTEES = {
    "deterministic": lambda g: g.deterministic,
    "not-deterministic": lambda g: not g.deterministic,
    "bit-stable": lambda g: g.bit_stable_on_same_hardware,
    "not-bit-stable": lambda g: not g.bit_stable_on_same_hardware,
}


@dataclass(frozen=True, slots=True)
class SkuRecord:
    """A SKU with its variants, best rank first."""

    sku: KernelSku
    variants: tuple[Variant, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the SKU's text and fields, and the ids of its variants."""
        return {**sku_dict(self.sku), "variants": [variant.id for variant in self.variants]}


@dataclass(frozen=True, slots=True)
class VariantRecord:
    """Everything the registry knows of a variant.

    Attributes:
        variant: the record.
        source_sha256: digest of its source, None on the host or where there is no manifest.
    """

    variant: Variant
    source_sha256: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        variant = self.variant
        sku = sku_dict(variant.sku)
        sku["sku"] = sku.pop("id")
        return {
            "id": variant.id,
            **sku,
            "design": variant.design,
            "summary": variant.summary,
            "rank": variant.rank,
            "rank_rules": [
                {"when": [str(constraint) for constraint in rule.when], "rank": rule.rank}
                for rule in variant.rank_rules
            ],
            "pinned_only": variant.pinned_only,
            "alignment": variant.alignment,
            "constraints": [
                {
                    "field": c.field,
                    "relation": c.relation,
                    "value": list(c.value) if isinstance(c.value, tuple) else c.value,
                    "text": str(c),
                    "why": c.why,
                }
                for c in variant.constraints
            ],
            "source": variant.source,
            "source_sha256": self.source_sha256,
            "targets": list(variant.targets),
            "kernels": [
                {
                    "role": entry.role,
                    "symbol": entry.symbol,
                    "parameters": [{"name": p.name, "type": p.type} for p in entry.parameters],
                }
                for entry in variant.entries
            ],
            "tuning": dict(variant.tuning),
            "function": variant.function,
        }


def sku_dict(sku: KernelSku) -> dict[str, Any]:
    """A SKU's text (`id`) and its nine fields as plain data."""
    guarantee = sku.precision_guarantee
    return {
        "id": str(sku),
        "category": sku.category.value,
        "op": sku.op.name.lower(),
        "element": sku.element.value,
        "aux_element": None if sku.aux_element is None else sku.aux_element.value,
        "layout": None if sku.layout is None else sku.layout.value,
        "epilogue": None if sku.epilogue is None else sku.epilogue.value,
        "arch": sku.arch.value,
        "backend": sku.backend.value,
        "guarantee": {
            "math_precision": guarantee.math_precision.value,
            "accumulator": guarantee.accumulator.value,
            "bit_stable_on_same_hardware": guarantee.bit_stable_on_same_hardware,
            "deterministic": guarantee.deterministic,
        },
    }


def variant_record(table: Registry, variant: Variant) -> VariantRecord:
    """The record of a variant of this registry."""
    digest = None
    if table.manifest is not None and variant.source is not None:
        digest = table.manifest.sources[variant.source]
    return VariantRecord(variant, digest)


def matching(
    table: Registry,
    *,
    category: OpCategory | str | None = None,
    op: OpKind | str | None = None,
    element: ElementKind | str | None = None,
    aux_element: ElementKind | str | None = None,
    arch: ArchSku | str | None = None,
    backend: BackendKind | str | None = None,
    guarantee: PrecisionGuarantee | str | None = None,
    pattern: str | None = None,
) -> tuple[Variant, ...]:
    """The variants that meet every filter given, by SKU, then rank.

    Args:
        table: the registry.
        category: operation family.
        op: operation, by kind, SKU text or plan name.
        element: type of the main tensors.
        aux_element: second type; the text `none` asks for SKUs that have none.
        arch: architecture tier.
        backend: who computes it.
        guarantee: `deterministic`, `bit-stable`, `not-deterministic`, `not-bit-stable`, or a guarantee's own text.
        pattern: text that the id or the summary contains, with `*` and `?` as in file names.

    Raises:
        InvalidProblem: a name is not known; the message has the nearest ones.
    """
    wanted: dict[str, Any] = {}
    if category is not None:
        wanted["category"] = member(OpCategory, category, "category")
    if op is not None:
        wanted["op"] = op_named(table, op)
    if element is not None:
        wanted["element"] = element_named(element)
    if aux_element is not None:
        none = isinstance(aux_element, str) and aux_element.lower() == "none"
        wanted["aux_element"] = None if none else element_named(aux_element, "aux element type")
    if arch is not None:
        wanted["arch"] = member(ArchSku, arch, "architecture tier")
    if backend is not None:
        wanted["backend"] = member(BackendKind, backend, "backend")
    test = None if guarantee is None else _guarantee_test(guarantee)
    return tuple(
        variant
        for variant in table.all_variants()
        if all(getattr(variant.sku, name) is value for name, value in wanted.items())
        and (test is None or test(variant.sku.precision_guarantee))
        and (pattern is None or _contains(variant, pattern))
    )


def by_sku(variants: Sequence[Variant]) -> tuple[SkuRecord, ...]:
    """The SKUs of these variants, each with those of its variants that are among them."""
    groups: dict[KernelSku, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.sku, []).append(variant)
    return tuple(SkuRecord(sku, tuple(group)) for sku, group in groups.items())


def _guarantee_test(guarantee: PrecisionGuarantee | str) -> Any:
    if isinstance(guarantee, str):
        test = _GUARANTEES.get(guarantee.lower().replace("_", "-"))
        if test is not None:
            return test
        try:
            guarantee = PrecisionGuarantee.parse(guarantee)
        except InvalidProblem as error:
            raise InvalidProblem(f"{error}, nor one of {', '.join(_GUARANTEES)}") from None
    return guarantee.__eq__


def _contains(variant: Variant, pattern: str) -> bool:
    wanted = f"*{pattern.lower()}*"
    return any(fnmatch.fnmatchcase(text.lower(), wanted) for text in (variant.id, variant.summary))
