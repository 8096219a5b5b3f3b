"""The cache of compiled variants survives what happens to caches."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baracuda_registry import CompileError, ManifestError, registry
from baracuda_registry import artifact as artifact_module
from baracuda_registry import compile as compile_module
from baracuda_registry.artifact import artifact, ship, source_text
from baracuda_registry.cache import CubinCache, key_of, write_atomically
from baracuda_registry.manifest import Manifest, Variant

KEY = key_of({"a": 1})


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("BARACUDA_JIT", raising=False)
    monkeypatch.delenv("BARACUDA_CUBIN_DIR", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def one() -> tuple[Manifest, Variant]:
    table = registry()
    assert table.manifest is not None
    return table.manifest, next(v for v in table.all_variants() if "sm_80" in v.targets)


def entries(cache_dir: Path) -> list[Path]:
    return sorted(path for path in cache_dir.rglob("*") if path.is_file())


def test_second_time_comes_from_the_cache(cache_dir: Path, one: tuple[Manifest, Variant]) -> None:
    first = artifact(*one, "sm_90")
    second = artifact(*one, "sm_90")
    assert (first.origin, second.origin) == ("compiled", "cache")
    assert first.cubin == second.cubin
    assert first.resources == second.resources
    assert all(used.registers > 0 for used in first.resources.values())
    assert set(first.resources) == {entry.symbol for entry in one[1].entries}
    assert len(entries(cache_dir)) == 2


def test_cubin_is_a_whole_elf_file(cache_dir: Path, one: tuple[Manifest, Variant]) -> None:
    cubin = artifact(*one, "sm_80").cubin
    sections = int.from_bytes(cubin[40:48], "little")
    assert len(cubin) >= sections + int.from_bytes(cubin[58:60], "little") * int.from_bytes(
        cubin[60:62], "little"
    )


@pytest.mark.parametrize("keep", [0, 10, -1])
@pytest.mark.parametrize("suffix", [".cubin", ".json"])
def test_truncated_entry_is_a_miss(
    cache_dir: Path, one: tuple[Manifest, Variant], suffix: str, keep: int
) -> None:
    good = artifact(*one, "sm_90").cubin
    victim = next(path for path in entries(cache_dir) if path.suffix == suffix)
    victim.write_bytes(victim.read_bytes()[:keep])
    again = artifact(*one, "sm_90")
    assert again.origin == "compiled"
    assert again.cubin == good
    assert artifact(*one, "sm_90").origin == "cache", "and it was repaired"


def test_record_of_another_form_is_a_miss(cache_dir: Path, one: tuple[Manifest, Variant]) -> None:
    artifact(*one, "sm_90")
    victim = next(path for path in entries(cache_dir) if path.suffix == ".json")
    record = json.loads(victim.read_text())
    del record["resources"]
    victim.write_text(json.dumps(record))
    assert artifact(*one, "sm_90").origin == "compiled"


def test_record_without_a_kernel_is_a_miss(cache_dir: Path, one: tuple[Manifest, Variant]) -> None:
    artifact(*one, "sm_90")
    victim = next(path for path in entries(cache_dir) if path.suffix == ".json")
    record = json.loads(victim.read_text())
    record["resources"].popitem()
    victim.write_text(json.dumps(record))
    again = artifact(*one, "sm_90")
    assert again.origin == "compiled"
    assert {entry.symbol for entry in one[1].entries} == set(again.resources)


def test_report_is_complete_though_the_compiler_has_seen_the_source(
    cache_dir: Path, one: tuple[Manifest, Variant]
) -> None:
    """NVRTC keeps a cache of its own, whose hits have an empty log."""
    artifact(*one, "sm_90")
    shutil.rmtree(cache_dir)
    again = artifact(*one, "sm_90")
    assert again.origin == "compiled"
    assert {entry.symbol for entry in one[1].entries} == set(again.resources)


def test_directory_that_cannot_be_written(
    tmp_path: Path,
    one: tuple[Manifest, Variant],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(blocked))
    with caplog.at_level(logging.WARNING, "baracuda_registry"):
        assert artifact(*one, "sm_90").origin == "compiled"
        assert artifact(*one, "sm_90").origin == "compiled"
    assert [r for r in caplog.records if "BARACUDA_CACHE_DIR" in r.message] == caplog.records[:1], (
        "one warning"
    )
    assert blocked.read_text() == "in the way"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_read_only_directory(
    tmp_path: Path, one: tuple[Manifest, Variant], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ro"
    folder.mkdir(mode=0o500)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(folder))
    assert artifact(*one, "sm_90").origin == "compiled"


def test_full_disk(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = CubinCache(cache_dir)
    monkeypatch.setattr(os, "replace", full)
    assert cache.write(KEY, b"x", {}) is False
    assert cache.read(KEY) is None
    assert entries(cache_dir) == [], "no temporary file is left behind"


def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "f", b"data")
    assert list(tmp_path.iterdir()) == []


def test_write_then_read(cache_dir: Path) -> None:
    cache = CubinCache(cache_dir)
    assert cache.read(KEY) is None
    assert cache.write(KEY, b"data", {"n": 1})
    found = cache.read(KEY)
    assert found is not None
    assert found[0] == b"data"
    assert found[1]["n"] == 1


def test_another_compiler_or_header_is_another_entry(
    cache_dir: Path, one: tuple[Manifest, Variant], monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact(*one, "sm_90")
    monkeypatch.setattr(artifact_module, "compiler_version", lambda: "99.0")
    assert artifact(*one, "sm_90").origin == "compiled"
    monkeypatch.setattr(artifact_module, "headers_digest", lambda: "other")
    assert artifact(*one, "sm_90").origin == "compiled"
    assert artifact(*one, "sm_90").origin == "cache"


def test_shipped_cubins_serve_without_compiling(
    cache_dir: Path, tmp_path: Path, one: tuple[Manifest, Variant], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, variant = one
    monkeypatch.setenv("BARACUDA_JIT", "0")
    with pytest.raises(CompileError, match="BARACUDA_JIT=0") as caught:
        artifact(manifest, variant, "sm_90")
    assert caught.value.sku == str(variant.sku)
    assert variant.id in str(caught.value)
    monkeypatch.delenv("BARACUDA_JIT")
    made = artifact(manifest, variant, "sm_90")
    path = ship(tmp_path / "shipped", manifest, variant, made)
    shutil.rmtree(cache_dir)
    monkeypatch.setenv("BARACUDA_JIT", "0")
    monkeypatch.setenv("BARACUDA_CUBIN_DIR", str(tmp_path / "shipped"))
    found = artifact(manifest, variant, "sm_90")
    assert (found.origin, found.cubin, found.resources) == ("shipped", made.cubin, made.resources)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CompileError, match="BARACUDA_JIT=0"):
        artifact(manifest, variant, "sm_90")


def test_altered_source_is_refused(
    cache_dir: Path, tmp_path: Path, one: tuple[Manifest, Variant], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    manifest, variant = one
    assert variant.source is not None
    copy = tmp_path / variant.source
    copy.parent.mkdir(parents=True)
    copy.write_text(source_text(manifest, variant) + "\n// edited\n")
    with pytest.raises(ManifestError, match="make generate"):
        artifact(replace(manifest, root=tmp_path), variant, "sm_90")
    copy.unlink()
    with pytest.raises(ManifestError, match="reinstall"):
        artifact(replace(manifest, root=tmp_path), variant, "sm_90")


def test_compile_errors_carry_the_log() -> None:
    with pytest.raises(CompileError, match="does not compile") as caught:
        compile_module.compile_source("__global__ void k() { nonsense; }", "k.cu", "sm_90", [], sku="the-sku")
    assert "nonsense" in caught.value.log
    assert caught.value.sku == "the-sku"
    with pytest.raises(CompileError, match="sm_13"):
        compile_module.compile_source("", "k.cu", "sm_13", [])


def test_no_headers_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CUDA_INCLUDE", str(tmp_path))
    compile_module.header_directory.cache_clear()
    try:
        with pytest.raises(CompileError, match="nvidia-cuda-runtime"):
            compile_module.header_directory()
    finally:
        compile_module.header_directory.cache_clear()


def test_no_compiler_says_what_to_install(cache_dir: Path) -> None:
    code = (
        "import sys; sys.modules['cupy'] = None\n"
        "from baracuda_registry import registry, CompileError\n"
        "from baracuda_registry.artifact import artifact\n"
        "t = registry(); v = next(v for v in t.all_variants() if v.source)\n"
        "try: artifact(t.manifest, v, 'sm_90')\n"
        "except CompileError as e: print('CompileError', e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("CompileError NVRTC is not usable")
    assert "baracuda-registry[cuda13]" in done.stdout


def _start(directory: str, barrier: object, results: object) -> None:
    os.environ["BARACUDA_CACHE_DIR"] = directory
    table = registry()
    assert table.manifest is not None
    variants = [v for v in table.all_variants() if v.source][:3]
    barrier.wait()  # type: ignore[attr-defined]
    digests = [artifact(table.manifest, v, "sm_90").cubin for v in variants]
    results.put([hashlib.sha256(d).hexdigest() for d in digests])  # type: ignore[attr-defined]


def test_eight_processes_start_on_an_empty_cache(cache_dir: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(8), context.Queue()
    workers = [context.Process(target=_start, args=(str(cache_dir), barrier, results)) for _ in range(8)]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert all(answer == answers[0] for answer in answers)
    left = entries(cache_dir)
    assert len([p for p in left if p.suffix == ".cubin"]) == 3
    assert not [p for p in left if p.suffix == ".tmp"]


def test_process_killed_while_writing(cache_dir: Path, tmp_path: Path) -> None:
    """A writer that dies between the bytes and the rename leaves a miss, and the next process repairs it."""
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "import baracuda_registry.cache as c\n"
        "def stop(*a): print('writing', flush=True); time.sleep(60)\n"
        "os.replace = stop\n"
        f"c.CubinCache(Path({str(cache_dir)!r})).write({KEY!r}, b'data', {{}})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    cache = CubinCache(cache_dir)
    assert cache.read(KEY) is None
    assert cache.write(KEY, b"data", {})
    assert cache.read(KEY) is not None


def test_cold_compile_is_under_a_second(cache_dir: Path) -> None:
    """Every variant's own compile time is checked by the compile test; here the slowest of a sample, wall clock."""
    table = registry()
    assert table.manifest is not None
    first = next(v for v in table.all_variants() if v.source)
    artifact(table.manifest, first, first.targets[-1])  # warm the compiler
    sample = [v for v in table.all_variants() if v.source][:: max(1, len(table) // 10)]
    for variant in sample:
        started = time.perf_counter()
        made = artifact(table.manifest, variant, variant.targets[0])
        seconds = time.perf_counter() - started
        if made.origin == "compiled":
            assert seconds < 3, (
                f"{variant.id} took {seconds:.2f} s (the bound leaves room for a loaded machine)"
            )
