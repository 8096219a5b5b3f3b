"""The immutable table `KernelSku → (variants…)`.

It is built once from the manifest; nothing registers itself at import, so what the table holds does not depend on
what was imported.  Tests build their own from records.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from . import manifest as manifest_module
from .elements import ElementKind
from .errors import InvalidProblem, ManifestError
from .manifest import Manifest, Variant
from .sku import ArchSku, BackendKind, KernelSku, OpCategory, OpKind

if TYPE_CHECKING:
    from .inspect.matrix import Coverage
    from .inspect.usage import KernelUse


class Registry:
    """Every SKU with its ordered variants.

    Args:
        variants: the records; ids must be unique.
        manifest: the manifest they came from, if any (needed to compile them).

    Raises:
        ManifestError: two records share an id.
    """

    def __init__(self, variants: Iterable[Variant], manifest: Manifest | None = None) -> None:
        self.manifest = manifest
        table: dict[KernelSku, list[Variant]] = {}
        by_id: dict[str, Variant] = {}
        for variant in variants:
            if by_id.setdefault(variant.id, variant) is not variant:
                raise ManifestError(f"two variants share the id {variant.id}")
            table.setdefault(variant.sku, []).append(variant)
        ordered = {sku: tuple(sorted(table[sku], key=lambda v: (v.rank, v.id))) for sku in sorted(table)}
        self._table: Mapping[KernelSku, tuple[Variant, ...]] = MappingProxyType(ordered)
        self._by_id = by_id
        problems: dict[tuple[object, ...], list[Variant]] = {}
        for sku, group in ordered.items():
            problems.setdefault(_problem(sku), []).extend(group)
        # The reference implementation ends every list.
        self._problems = {
            key: tuple(sorted(group, key=lambda v: v.sku.backend is BackendKind.Reference))
            for key, group in problems.items()
        }

    def __len__(self) -> int:
        """Number of variants."""
        return len(self._by_id)

    def skus(
        self,
        *,
        category: OpCategory | None = None,
        op: OpKind | None = None,
        element: ElementKind | None = None,
        aux_element: ElementKind | None = None,
        arch: ArchSku | None = None,
        backend: BackendKind | None = None,
    ) -> tuple[KernelSku, ...]:
        """SKUs in order, filtered by equality on every field given."""
        wanted = {
            "category": category,
            "op": op,
            "element": element,
            "aux_element": aux_element,
            "arch": arch,
            "backend": backend,
        }
        wanted = {name: value for name, value in wanted.items() if value is not None}
        return tuple(
            sku
            for sku in self._table
            if all(
                getattr(sku, name) == value and type(getattr(sku, name)) is type(value)
                for name, value in wanted.items()
            )
        )

    def variants(self, sku: KernelSku) -> tuple[Variant, ...]:
        """Variants of a SKU, best rank first.

        Raises:
            InvalidProblem: the SKU is not in the table.
        """
        try:
            return self._table[sku]
        except KeyError:
            raise InvalidProblem(f"SKU {sku} is not registered") from None

    def variant(self, variant_id: str) -> Variant:
        """The variant with this id.

        Raises:
            InvalidProblem: there is none.
        """
        try:
            return self._by_id[variant_id]
        except KeyError:
            raise InvalidProblem(f"variant {variant_id!r} is not registered") from None

    def all_variants(self) -> tuple[Variant, ...]:
        """Every variant, by SKU, then rank."""
        return tuple(variant for group in self._table.values() for variant in group)

    def serving(
        self, category: OpCategory, op: OpKind, element: ElementKind, aux_element: ElementKind | None
    ) -> tuple[Variant, ...]:
        """Every variant, of every tier, backend and guarantee, that computes this operation on these types."""
        return self._problems.get((category, op, element, aux_element), ())

    def find(self, **filters: Any) -> tuple[Variant, ...]:
        """Variants that meet every filter: category, op, element, aux_element, arch, backend, guarantee and pattern,
        each as a member or as text (see `inspect.records.matching`).

        Raises:
            InvalidProblem: a filter's name is not known.
        """
        from .inspect.records import matching

        return matching(self, **filters)

    def coverage(self) -> Coverage:
        """Operation × types × tier, with the reason for each hole."""
        from .inspect.matrix import coverage

        return coverage(self)

    def source(self, variant: Variant | str) -> str:
        """The CUDA source of a variant, by record, id or words that only it has.

        Raises:
            InvalidProblem: no such variant.
            ManifestError: a host variant has none, or the file is missing or altered.
        """
        from .inspect import source

        return source(variant, table=self)

    def resources(self, variant: Variant | str, **options: Any) -> tuple[KernelUse, ...]:
        """What each kernel of a variant uses; options and errors as of `inspect.resources`."""
        from .inspect import resources

        return resources(variant, table=self, **options)


def _problem(sku: KernelSku) -> tuple[object, ...]:
    return (sku.category, sku.op, sku.element, sku.aux_element)


@functools.cache
def registry() -> Registry:
    """The registry of this installation, loaded on first use.

    Raises:
        ManifestError: the manifest is missing or damaged.
    """
    table = manifest_module.load()
    return Registry(table.variants, table)
