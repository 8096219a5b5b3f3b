"""Compile every variant ahead of time, for every architecture it names.

One cubin a distinct source and architecture, in parallel threads (NVRTC releases the interpreter lock), with a
progress bar, and a report of registers, spills and shared memory.  Interrupting it loses nothing: what was compiled
is in the cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .artifact import Artifact, artifact, ship
from .catalog import Registry
from .errors import CompileError, InvalidProblem, ManifestError
from .manifest import Variant


@dataclass(frozen=True, slots=True)
class Job:
    """One cubin to make: a variant that stands for all that share its source, and an architecture."""

    variant: Variant
    architecture: str


def jobs(table: Registry, architectures: Sequence[str] | None = None) -> list[Job]:
    """Every distinct source × architecture.

    Args:
        table: the registry.
        architectures: `sm_90`, …; None = all that the variants name.

    Raises:
        InvalidProblem: no variant is compiled for one of them.
    """
    seen: dict[tuple[str, str], Job] = {}
    for variant in table.all_variants():
        for target in variant.targets:
            if variant.source is not None and (architectures is None or target in architectures):
                seen.setdefault((variant.source, target), Job(variant, target))
    known = {target for variant in table.all_variants() for target in variant.targets}
    for wanted in architectures or ():
        if wanted not in known:
            raise InvalidProblem(f"architecture {wanted!r} is not one of {', '.join(sorted(known))}")
    return list(seen.values())


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
