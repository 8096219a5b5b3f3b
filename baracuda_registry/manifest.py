"""The table of generated variants: `generated/manifest.json`, read into frozen records.

This is the only thing the run time knows of the generator.  Reading it imports no array library and no CUDA; a
damaged table, or one of another version, is refused as a whole, because a half-read table would answer wrongly.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .constraint import Constraint
from .errors import ManifestError
from .sku import KernelSku

SCHEMA = 1
"""Version of the manifest's form; a reader refuses any other."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: its name and machine type (`ptr`, `i32`, `u32`, `i64`, `f32` or `f64`)."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One `__global__` function of a source.

    Attributes:
        role: name by which launch recipes know it (`stats`, `normalize`, …).
        symbol: its `extern "C"` name.
        parameters: in the order of the signature.
    """

    role: str
    symbol: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class RankRule:
    """`rank` applies when every constraint of `when` holds; the first rule that applies wins."""

    when: tuple[Constraint, ...]
    rank: int


@dataclass(frozen=True, slots=True)
class Variant:
    """One compiled form of a SKU.

    Attributes:
        id: `<sku text>/<design>`; unique, never re-used for something else.
        sku: what it computes.
        design: name of the algorithm with its parameters, unique within the SKU.
        summary: one line on how it works.
        rank: preference among eligible variants, lower first.
        rank_rules: ranks that depend on the problem; the first that applies replaces `rank`.
        pinned_only: chosen only when `PlanPreference.variant` names it.
        alignment: bytes to which the operands it reads in vectors must be aligned.
        constraints: what the problem and the device must satisfy.
        source: path below `generated/`, None for the host.
        targets: real architectures for which it is compiled ahead of time.
        entries: its kernels.
        tuning: parameters of the design (threads, vector width, …) that launch recipes read.
        function: `module.name` below `baracuda_registry.reference`, for the host.
    """

    id: str
    sku: KernelSku
    design: str
    summary: str
    rank: int
    rank_rules: tuple[RankRule, ...] = ()
    pinned_only: bool = False
    alignment: int = 1
    constraints: tuple[Constraint, ...] = ()
    source: str | None = None
    targets: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    tuning: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    function: str | None = None

    def __hash__(self) -> int:
        return hash(self.id)

    def entry(self, role: str) -> Entry:
        """The kernel with this role.

        Raises:
            ManifestError: the table has none.
        """
        for entry in self.entries:
            if entry.role == role:
                return entry
        raise ManifestError(
            f"variant {self.id} has no kernel {role!r}, only {[e.role for e in self.entries]}"
        )

    def rank_for(self, facts: Mapping[str, Any]) -> int:
        """The rank for these facts."""
        for rule in self.rank_rules:
            if all(constraint.holds(facts) for constraint in rule.when):
                return rule.rank
        return self.rank

    def to_json(self) -> dict[str, Any]:
        """The record as the manifest writes it; defaults are left out."""
        record: dict[str, Any] = {"sku": str(self.sku), "design": self.design, "summary": self.summary}
        record["rank"] = self.rank
        if self.rank_rules:
            record["rank_rules"] = [[[c.to_json() for c in rule.when], rule.rank] for rule in self.rank_rules]
        if self.pinned_only:
            record["pinned_only"] = True
        if self.alignment != 1:
            record["alignment"] = self.alignment
        if self.constraints:
            record["constraints"] = [constraint.to_json() for constraint in self.constraints]
        if self.source is not None:
            record["source"] = self.source
            record["targets"] = list(self.targets)
            record["entries"] = [
                [entry.role, entry.symbol, [[p.name, p.type] for p in entry.parameters]]
                for entry in self.entries
            ]
            record["tuning"] = dict(self.tuning)
        if self.function is not None:
            record["function"] = self.function
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Variant:
        """Inverse of `to_json`."""
        return cls(
            id=f"{record['sku']}/{record['design']}",
            sku=_sku(record["sku"]),
            design=record["design"],
            summary=record["summary"],
            rank=record["rank"],
            rank_rules=tuple(
                RankRule(tuple(map(Constraint.from_json, when)), rank)
                for when, rank in record.get("rank_rules", ())
            ),
            pinned_only=record.get("pinned_only", False),
            alignment=record.get("alignment", 1),
            constraints=tuple(map(Constraint.from_json, record.get("constraints", ()))),
            source=record.get("source"),
            targets=tuple(record.get("targets", ())),
            entries=tuple(
                Entry(role, symbol, tuple(_parameter(*p) for p in parameters))
                for role, symbol, parameters in record.get("entries", ())
            ),
            tuning=MappingProxyType(dict(record.get("tuning", {}))),
            function=record.get("function"),
        )


@dataclass(frozen=True, slots=True)
class Hole:
    """A combination that a design rules out, with the reason.

    Attributes:
        op: `<category>/<op>` text.
        element: element text.
        design: name of the design.
        reason: why there is no such variant.
    """

    op: str
    element: str
    design: str
    reason: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole table.

    Attributes:
        root: folder that `Variant.source` is relative to.
        compile_options: options every source is compiled with, apart from the architecture.
        sources: SHA-256 of each source, by path.
        variants: every variant, host ones included.
        holes: combinations ruled out on purpose.
    """

    root: Path
    compile_options: tuple[str, ...]
    sources: Mapping[str, str]
    variants: tuple[Variant, ...]
    holes: tuple[Hole, ...]

    def to_json(self) -> str:
        """Canonical text: one record a line, so that a diff shows which variant changed."""
        head = {"schema": SCHEMA, "compile_options": list(self.compile_options)}
        parts = [json.dumps(head, ensure_ascii=False)[1:-1]]
        parts.append(
            '"sources": '
            + _lines("{", "}", [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(self.sources.items())])
        )
        rows = [json.dumps(variant.to_json(), ensure_ascii=False) for variant in self.variants]
        parts.append('"variants": ' + _lines("[", "]", rows))
        holes = [json.dumps([h.op, h.element, h.design, h.reason], ensure_ascii=False) for h in self.holes]
        parts.append('"holes": ' + _lines("[", "]", holes))
        return "{" + ",\n".join(parts) + "}\n"

    @classmethod
    def parse(cls, text: str, root: Path) -> Manifest:
        """Read the text of a manifest whose sources lie under `root`.

        Raises:
            ManifestError: not JSON, not this schema, or a record is damaged.
        """
        try:
            data = json.loads(text)
            if data["schema"] != SCHEMA:
                raise ManifestError(
                    f"{root / 'manifest.json'}: schema {data['schema']!r}, want {SCHEMA}; run `make generate`"
                )
            manifest = cls(
                root=root,
                compile_options=tuple(data["compile_options"]),
                sources=MappingProxyType(dict(data["sources"])),
                variants=tuple(map(Variant.from_json, data["variants"])),
                holes=tuple(Hole(*row) for row in data["holes"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ManifestError(
                f"{root / 'manifest.json'} is damaged ({type(error).__name__}: {error}); reinstall the package or run `make generate`"
            ) from error
        missing = {v.source for v in manifest.variants if v.source is not None} - set(manifest.sources)
        if missing:
            raise ManifestError(f"{root / 'manifest.json'} is damaged: no digest of {sorted(missing)[0]}")
        return manifest


# Variants repeat texts of SKUs and parameters; making each once more than halves what reading the table costs.
_sku = functools.lru_cache(maxsize=4096)(KernelSku.parse)
_parameter = functools.lru_cache(maxsize=4096)(Parameter)


def _lines(opening: str, closing: str, rows: list[str]) -> str:
    return opening + "\n" + ",\n".join(rows) + "\n" + closing if rows else opening + closing


def find_root() -> Path:
    """Folder of the generated sources: `BARACUDA_GENERATED_DIR`, the installed package's, or the checkout's.

    Raises:
        ManifestError: none of them holds a manifest.
    """
    override = os.environ.get("BARACUDA_GENERATED_DIR")
    package = Path(__file__).parent
    places = [Path(override)] if override else [package / "_generated", package.parent / "generated"]
    for place in places:
        if (place / "manifest.json").is_file():
            return place
    raise ManifestError(
        f"no manifest.json in {' or '.join(map(str, places))}; reinstall the package or run `make generate`"
    )


def load(root: Path | None = None) -> Manifest:
    """Read the manifest under `root` (default: `find_root()`).

    Raises:
        ManifestError: missing, unreadable or damaged.
    """
    root = find_root() if root is None else root
    try:
        text = (root / "manifest.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{root / 'manifest.json'} cannot be read: {error}") from error
    return Manifest.parse(text, root)
