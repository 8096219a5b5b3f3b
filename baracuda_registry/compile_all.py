"""Compile variants ahead of time, for every architecture they name or for given ones.

One cubin a distinct source and architecture, in parallel threads (NVRTC releases the interpreter lock), with a
progress bar, and a report of registers, spills and shared memory.  Interrupting it loses nothing: what was compiled
is in the cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .artifact import Artifact, architecture_of, artifact, ship
from .catalog import Registry
from .compile import compiler_version, supported_architectures
from .errors import CompileError, InvalidProblem, ManifestError
from .manifest import Variant


@dataclass(frozen=True, slots=True)
class Job:
    """One cubin to make: a variant that stands for all that share its source, and an architecture."""

    variant: Variant
    architecture: str


def jobs(
    table: Registry,
    architectures: Sequence[str] | None = None,
    variants: Iterable[Variant] | None = None,
) -> list[Job]:
    """Every distinct source × architecture.

    An architecture stands for the devices of its compute capability: `sm_90` and `sm_90a` alike bring all that runs on
    9.0, each variant under the name that such a device looks for.  It need not be one that the variants name, as long
    as their tier runs there and NVRTC compiles for it.

    Args:
        table: the registry.
        architectures: `sm_90`, …; None = all that the variants name.
        variants: which of them; None = all.

    Raises:
        InvalidProblem: a text that is no architecture, or one that no variant runs on.
        CompileError: NVRTC does not compile for it.
    """
    chosen = [v for v in (table.all_variants() if variants is None else variants) if v.source is not None]
    if architectures is not None:
        _check_architectures(table, architectures)
    seen: dict[tuple[str, str], Job] = {}
    for variant in chosen:
        targets: Iterable[str] = variant.targets
        if architectures is not None:
            capabilities = [capability_named(text) for text in architectures]
            targets = [architecture_of(variant, c) for c in capabilities if variant.sku.arch.runs_on(c)]
        for target in targets:
            seen.setdefault((variant.source or "", target), Job(variant, target))
    return list(seen.values())


def capability_named(text: str) -> int:
    """The compute capability that `sm_90`, `sm_90a`, `90` or `9.0` names, 90 for 9.0.

    Raises:
        InvalidProblem: none of these forms.
    """
    match = re.fullmatch(r"(?:sm_?)?(\d{1,2})\.?(\d)[af]?", text.strip().lower())
    if match is None:
        raise InvalidProblem(f"architecture {text!r} is not of the form sm_90")
    return int(match[1] + match[2])


def _check_architectures(table: Registry, architectures: Sequence[str]) -> None:
    tiers = {variant.sku.arch for variant in table.all_variants() if variant.source is not None}
    lowest = min((tier.compute_capability for tier in tiers), default=0)
    known: tuple[int, ...] | None = None
    for text in architectures:
        capability = capability_named(text)
        if not any(tier.runs_on(capability) for tier in tiers):
            raise InvalidProblem(f"no variant runs on {text}: the code needs sm_{lowest} or later")
        known = supported_architectures() if known is None else known
        if capability not in known:
            names = ", ".join(f"sm_{number}" for number in known if number >= lowest)
            raise CompileError(f"NVRTC {compiler_version()} does not compile for {text}; it does for {names}")


def compile_jobs(
    table: Registry, work: Iterable[Job], output: Path | None = None
) -> Iterable[tuple[Job, Artifact]]:
    """Compile in as many threads as there are processors; yields each as it is made.

    Raises:
        ManifestError: the registry has no manifest.
        CompileError: a variant does not compile; the rest is cancelled.
    """
    manifest = table.manifest
    if manifest is None:
        raise ManifestError("the registry was built without a manifest, it has no sources")

    def make(job: Job) -> tuple[Job, Artifact]:
        made = artifact(manifest, job.variant, job.architecture)
        if output is not None:
            ship(output, manifest, job.variant, made)
        return job, made

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        yield from pool.map(make, work)
    except CompileError:
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def report(results: Sequence[tuple[Job, Artifact]]) -> list[dict[str, object]]:
    """One row a kernel and architecture: registers, spills, stack, static shared memory (bytes), warnings."""
    rows: list[dict[str, object]] = []
    for job, made in results:
        for symbol, used in made.resources.items():
            row: dict[str, object] = {
                "variant": job.variant.id,
                "symbol": symbol,
                "architecture": job.architecture,
                "origin": made.origin,
                **used.to_dict(),
                "warnings": list(made.warnings),
            }
            rows.append(row)
    return rows
