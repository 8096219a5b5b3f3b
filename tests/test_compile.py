"""Every variant compiles without a GPU: no warnings, no spills where it ranks first, every kernel reported.

Every source for sm_90 (or its tier's), and a quarter of them for another architecture, in turn; `make compile-all`
compiles every one for every one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from baracuda_registry import registry
from baracuda_registry.artifact import architecture_of, artifact
from baracuda_registry.compile_all import Job, compile_jobs, jobs, report
from baracuda_registry.errors import CompileError, InvalidProblem
from baracuda_registry.sku import ArchSku

ROOT = Path(__file__).parent.parent
TABLE = registry()
MAIN = ("sm_90", "sm_90a")
SPILL_BUDGET = 32
"""Bytes a thread on architectures for which nothing was tuned: a word or two, outside the loops that move data."""


def _sample(parts: int, part: int) -> list[Job]:
    """One part of the sources: each for its main architecture, a quarter for one more, in turn."""
    chosen: list[Job] = []
    seen: set[str] = set()
    for index, variant in enumerate(v for v in TABLE.all_variants() if v.source is not None):
        assert variant.source is not None
        if variant.source in seen or index % parts != part:
            continue
        seen.add(variant.source)
        main = "sm_90" if "sm_90" in variant.targets else variant.targets[0]
        others = [target for target in variant.targets if target != main]
        chosen.append(Job(variant, main))
        if others and index // parts % 4 == 0:
            chosen.append(Job(variant, others[(index // parts // 4) % len(others)]))
    return chosen


@pytest.mark.parametrize("part", range(8))
def test_every_variant_compiles_clean(part: int) -> None:
    results = list(compile_jobs(TABLE, _sample(8, part)))
    assert results
    for job, made in results:
        assert made.warnings == (), job.variant.id
        assert set(made.resources) == {entry.symbol for entry in job.variant.entries}
        for symbol, used in made.resources.items():
            assert 0 < used.registers <= 255, symbol
            budget = 0 if job.architecture in MAIN else SPILL_BUDGET
            assert used.spill_store_bytes <= budget, f"{symbol} spills on {job.architecture}"
            assert used.stack_bytes <= budget, f"{symbol} uses local memory on {job.architecture}"
            assert used.shared_bytes <= 48 * 1024, symbol
    assert len(report(results)) == sum(len(made.resources) for _, made in results)


def test_sources_compile_under_a_second() -> None:
    """NVRTC's time for a source is what a user waits for at a variant's first use; the slowest of a sample."""
    import time

    from baracuda_registry.artifact import source_text
    from baracuda_registry.compile import compile_source

    manifest = TABLE.manifest
    assert manifest is not None
    sources = {v.source: v for v in TABLE.all_variants() if v.source is not None}
    for variant in list(sources.values())[:: max(1, len(sources) // 25)]:
        text = source_text(manifest, variant)
        seconds = []
        for _ in range(2):
            started = time.process_time()
            compile_source(text, "k.cu", variant.targets[0], manifest.compile_options)
            seconds.append(time.process_time() - started)
        assert min(seconds) < 1, variant.id


def test_jobs_are_distinct_and_filtered() -> None:
    every = jobs(TABLE)
    assert len({(job.variant.source, job.architecture) for job in every}) == len(every)
    assert {job.architecture for job in jobs(TABLE, ["sm_80"])} == {"sm_80"}
    with pytest.raises(InvalidProblem, match="sm_13"):
        jobs(TABLE, ["sm_13"])


def test_architectures_stand_for_the_devices_of_their_capability() -> None:
    """Each cubin under the name that such a device looks for; also where no variant names the architecture."""
    for text, capability in (("sm_90", 90), ("sm_90a", 90), ("9.0", 90), ("sm_103", 103)):
        wanted = {
            architecture_of(v, capability)
            for v in TABLE.all_variants()
            if v.source is not None and v.sku.arch.runs_on(capability)
        }
        assert {job.architecture for job in jobs(TABLE, [text])} == wanted
    hopper = replace(
        next(v for v in TABLE.all_variants() if v.source is not None),
        sku=replace(TABLE.skus(arch=ArchSku.Sm80)[0], arch=ArchSku.Sm90a),
        targets=("sm_90a",),
    )
    assert [job.architecture for job in jobs(TABLE, ["sm_90"], [hopper])] == ["sm_90a"]
    assert jobs(TABLE, ["sm_80"], [hopper]) == []
    with pytest.raises(CompileError, match="does not compile for sm_99; it does for sm_80"):
        jobs(TABLE, ["sm_99"])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compile` writes cubins that serve without a compiler, reports them, and names a wrong architecture."""
    command = [sys.executable, "-m", "baracuda_registry"]
    wrong = subprocess.run([*command, "compile", "--arch", "sm_13"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "sm_13" in wrong.stderr
    assert "Traceback" not in wrong.stderr

    from baracuda_registry import cli, compile_all

    few = [job for job in jobs(TABLE, ["sm_90"]) if job.architecture == "sm_90"][:3]
    monkeypatch.setattr(compile_all, "jobs", lambda table, architectures=None, variants=None: few)
    assert (
        cli.main(
            [
                "compile",
                "--arch",
                "sm_90",
                "-o",
                str(tmp_path / "cubins"),
                "--report",
                str(tmp_path / "r.json"),
            ]
        )
        == 0
    )
    rows = json.loads((tmp_path / "r.json").read_text())
    assert {row["variant"] for row in rows} == {job.variant.id for job in few}
    monkeypatch.setenv("BARACUDA_CUBIN_DIR", str(tmp_path / "cubins"))
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("BARACUDA_JIT", "0")
    assert TABLE.manifest is not None
    for job in few:
        assert artifact(TABLE.manifest, job.variant, "sm_90").origin == "shipped"
