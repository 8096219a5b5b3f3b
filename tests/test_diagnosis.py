"""`doctor` names what is wrong, with a remedy: set-ups that this machine does not have are made up."""

from __future__ import annotations

import ctypes
import importlib.metadata
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import baracuda_registry as br
from baracuda_registry import compile as compiling
from baracuda_registry import device, diagnosis
from baracuda_registry.diagnosis import Check, Status


class Driver:
    """A CUDA driver as ctypes shows it."""

    def __init__(self, version: int = 13000, init: int = 0, gpus: int = 1) -> None:
        self._version, self._init, self._gpus = version, init, gpus

    def cuDriverGetVersion(self, place: Any) -> int:
        place._obj.value = self._version
        return 0

    def cuInit(self, _: int) -> int:
        return self._init

    def cuDeviceGetCount(self, place: Any) -> int:
        place._obj.value = self._gpus
        return 0


def by_name(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(made: Driver | None) -> None:
        def load(name: str) -> Any:
            if made is None:
                raise OSError(name)
            return made

        monkeypatch.setattr(ctypes, "CDLL", load)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


def test_no_driver_is_a_note(driver: Any) -> None:
    driver(None)
    check = by_name(diagnosis._driver())["driver"]
    assert check.status is Status.NOTE
    assert "install its driver" in check.remedy


@pytest.mark.parametrize(
    ("made", "visible", "status", "says"),
    [
        (Driver(gpus=2), None, Status.OK, "CUDA 13.0, 2 GPUs"),
        (Driver(12080, gpus=1), None, Status.OK, "CUDA 12.8, 1 GPU"),
        (Driver(init=999), None, Status.PROBLEM, "cuInit fails with error 999"),
        (Driver(init=100), None, Status.NOTE, "no GPU"),
        (Driver(gpus=0), "7", Status.WARNING, "CUDA_VISIBLE_DEVICES='7'"),
    ],
)
def test_state_of_the_driver(
    driver: Any, monkeypatch: pytest.MonkeyPatch, made: Driver, visible: str | None, status: Status, says: str
) -> None:
    driver(made)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    check = by_name(diagnosis._driver())["driver"]
    assert check.status is status
    assert says in check.detail
    assert check.remedy or status in (Status.OK, Status.NOTE)


def _distributions(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = [types.SimpleNamespace(metadata={"Name": name}) for name in names]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)


def test_two_cupys_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    _distributions(monkeypatch, "cupy-cuda12x", "cupy-cuda13x", "numpy")
    check = by_name(diagnosis._cupy())["CuPy"]
    assert check.status is Status.PROBLEM
    assert "pip uninstall cupy-cuda12x cupy-cuda13x" in check.remedy


@pytest.mark.parametrize(("gpus", "status"), [(1, Status.WARNING), (0, Status.NOTE)])
def test_missing_cupy_matters_where_there_is_a_gpu(
    driver: Any, monkeypatch: pytest.MonkeyPatch, gpus: int, status: Status
) -> None:
    driver(Driver(gpus=gpus))
    _distributions(monkeypatch, "numpy")
    assert by_name(diagnosis._cupy())["CuPy"].status is status


def test_headers_of_another_major_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  12060\n")
    monkeypatch.setattr(compiling, "header_directory", lambda: tmp_path)
    monkeypatch.setattr(compiling, "compiler_version", lambda: "13.0")
    check = by_name(diagnosis._compiler())["CUDA headers"]
    assert check.status is Status.PROBLEM
    assert "CUDA 12.6" in check.detail
    assert "BARACUDA_CUDA_INCLUDE" in check.remedy


def test_headers_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise br.CompileError("cuda_fp16.h not found")

    monkeypatch.setattr(compiling, "header_directory", missing)
    check = by_name(diagnosis._compiler())["CUDA headers"]
    assert check.status is Status.PROBLEM
    assert "nvidia-cuda-runtime" in check.remedy


def test_compiler_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise br.CompileError("it does not compile", log="a\nb")

    monkeypatch.setattr(compiling, "compile_source", refuse)
    check = by_name(diagnosis._compiler())["compiling"]
    assert (check.status, check.detail) == (Status.PROBLEM, "it does not compile")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, driver: Any) -> Any:
    """One GPU of a compute capability, with a driver and a compiler of given versions."""

    def install(capability: int, driver_version: int = 13000, compiler: str = "13.0") -> dict[str, Check]:
        from dataclasses import replace

        facts = replace(br.Device.named("H200"), compute_capability=capability, execution="cuda", ordinal=0)
        cuda = types.SimpleNamespace(device_count=lambda: 1, device_facts=lambda ordinal: facts)
        monkeypatch.setattr(br, "cuda", cuda, raising=False)
        monkeypatch.setitem(__import__("sys").modules, "baracuda_registry.cuda", cuda)
        monkeypatch.setattr(device, "cuda_available", lambda: True)
        monkeypatch.setattr(compiling, "compiler_version", lambda: compiler)
        monkeypatch.setattr(compiling, "supported_architectures", lambda: (75, 80, 86, 89, 90, 100))
        driver(Driver(driver_version))
        monkeypatch.setattr(diagnosis, "_runs", lambda: iter([]))
        return by_name(diagnosis._gpus())

    return install


def test_gpu_that_is_served(gpu: Any) -> None:
    checks = gpu(90)
    assert {check.status for check in checks.values()} == {Status.OK}
    assert "compute capability 9.0" in checks["GPU 0"].detail


def test_gpu_that_is_too_old(gpu: Any) -> None:
    check = gpu(75)["GPU 0"]
    assert check.status is Status.PROBLEM
    assert "need 8.0 or later" in check.remedy


def test_gpu_that_is_newer_than_the_compiler(gpu: Any) -> None:
    check = gpu(120)["GPU 0"]
    assert check.status is Status.PROBLEM
    assert "NVRTC 13.0 does not know it" in check.remedy


def test_driver_older_than_the_compiler(gpu: Any) -> None:
    check = gpu(90, driver_version=12080)["versions"]
    assert check.status is Status.PROBLEM
    assert "[cuda12]" in check.remedy
    assert gpu(90, driver_version=13000, compiler="13.5")["versions"].status is Status.OK


def test_low_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(diagnosis.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10 << 20))
    check = by_name(diagnosis._cache())["disk"]
    assert check.status is Status.WARNING
    assert "cache prune" in check.remedy


def test_environment_that_contradicts_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BARACUDA_JIT", "0")
    monkeypatch.delenv("BARACUDA_CUBIN_DIR", raising=False)
    assert "no kernel can run" in by_name(diagnosis._environment())["BARACUDA_JIT"].detail
    monkeypatch.setenv("BARACUDA_JIT", "no")
    assert by_name(diagnosis._environment())["BARACUDA_JIT"].status is Status.WARNING
    monkeypatch.setenv("BARACUDA_CUBIN_DIR", str(tmp_path / "nowhere"))
    assert "is no folder" in by_name(diagnosis._environment())["BARACUDA_CUBIN_DIR"].detail
    (tmp_path / "sm_90").mkdir()
    monkeypatch.setenv("BARACUDA_CUBIN_DIR", str(tmp_path))
    assert by_name(diagnosis._environment())["BARACUDA_CUBIN_DIR"].status is Status.OK


def test_altered_source_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_digest", lambda path: None)
    check = by_name(diagnosis._table())["kernel table"]
    assert check.status is Status.PROBLEM
    assert "are missing or altered" in check.detail


def test_check_that_breaks_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def _broken() -> Iterator[Check]:
        raise ZeroDivisionError("oh")
        yield

    monkeypatch.setattr(diagnosis, "_CHECKS", (_broken, diagnosis._python))
    checks = by_name(diagnosis.diagnose())
    assert checks["broken"].status is Status.PROBLEM
    assert checks["library"].status is Status.OK


@pytest.mark.gpu
def test_gpu_of_this_machine_is_fine() -> None:
    checks = by_name(diagnosis.diagnose())
    assert checks["running"].status is Status.OK
    missing = {name for name, check in checks.items() if check.detail == "not installed"}
    problems = {name for name, check in checks.items() if check.status is Status.PROBLEM}
    assert problems <= missing, "packages may be missing here, the GPU must be fine"
