"""Finds what is wrong with a CUDA set-up, and says the remedy.

Each check looks at one thing and never raises: a check that cannot be made because an earlier one failed says so.  The
driver is spoken to through ctypes, so that it is judged apart from CuPy.
"""

from __future__ import annotations

import ctypes
import enum
import hashlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import BaracudaError

_LOW_DISK_BYTES = 1 << 30
_LOWEST_CAPABILITY = 80
_NO_GPU_DRIVER = 100  # CUDA_ERROR_NO_DEVICE
_EXTRA = "pip install 'baracuda-registry[cuda13]' (or [cuda12])"


class Status(enum.Enum):
    """How a check came out: fine, worth knowing, a limitation, or broken."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: what was looked at.
        status: how it came out.
        detail: what was found.
        remedy: what to do; "" where nothing is.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "status": self.status.value, "detail": self.detail, "remedy": self.remedy}


def diagnose() -> Iterator[Check]:
    """Every check, from the ground up: Python, the table, driver, CuPy, compiler, GPUs, cache."""
    for check in _CHECKS:
        try:
            yield from check()
        except Exception as error:  # A check that breaks must not hide what the others find.
            name = check.__name__.strip("_").replace("_", " ")
            yield Check(name, Status.PROBLEM, f"the check itself failed: {type(error).__name__}: {error}")


def _python() -> Iterator[Check]:
    from . import __version__

    detail = f"baracuda_registry {__version__}, Python {platform.python_version()}, {platform.platform()}"
    yield Check("library", Status.OK, detail)
    for name in ("numpy", "ml_dtypes", "platformdirs", "rich"):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, Status.PROBLEM, "not installed", f"pip install {name}")


def _table() -> Iterator[Check]:
    from .catalog import registry

    try:
        held = registry()
    except BaracudaError as error:
        yield Check(
            "kernel table", Status.PROBLEM, str(error), "pip install --force-reinstall baracuda-registry"
        )
        return
    manifest = held.manifest
    assert manifest is not None
    bad = [name for name, digest in manifest.sources.items() if _digest(manifest.root / name) != digest]
    if bad:
        detail = f"{len(bad)} of {len(manifest.sources)} sources are missing or altered, first {bad[0]}"
        yield Check(
            "kernel table", Status.PROBLEM, detail, "reinstall the package, or `make generate` in a checkout"
        )
    else:
        detail = f"{len(held)} variants, {len(manifest.sources)} sources in {manifest.root}"
        yield Check("kernel table", Status.OK, detail)


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _driver() -> Iterator[Check]:
    driver = _load_driver()
    if driver is None:
        yield Check(
            "driver",
            Status.NOTE,
            f"{_DRIVER} is not on this machine: there is no NVIDIA driver; plans run on the host (NumPy)",
            "on a machine with an NVIDIA GPU install its driver; in a container start it with GPU access (--gpus all)",
        )
        return
    version = _driver_version(driver)
    state, count = _count(driver)
    if state not in (0, _NO_GPU_DRIVER):
        remedy = "reboot after a driver update, check `nvidia-smi`; in a container start it with GPU access"
        yield Check("driver", Status.PROBLEM, f"CUDA {version}, but cuInit fails with error {state}", remedy)
    elif count == 0:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        detail = f"CUDA {version}, no GPU" + (
            "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
        )
        remedy = "" if visible is None else "unset CUDA_VISIBLE_DEVICES, or name a device that exists"
        yield Check("driver", Status.NOTE if visible is None else Status.WARNING, detail, remedy)
    else:
        yield Check("driver", Status.OK, f"CUDA {version}, {count} GPU{'s' if count > 1 else ''}")


_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def _load_driver() -> Any:
    """The driver's library, None where there is none."""
    try:
        return ctypes.CDLL(_DRIVER)
    except OSError:
        return None


def _count(driver: Any) -> tuple[int, int]:
    """The driver's state after initialisation (0 = fine) and how many GPUs it has."""
    count = ctypes.c_int(0)
    state = int(driver.cuInit(0))
    if state == 0:
        state = int(driver.cuDeviceGetCount(ctypes.byref(count)))
    return state, count.value


def _driver_version(driver: Any) -> str:
    number = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _cupy() -> Iterator[Check]:
    installed = sorted(
        {
            str(found.metadata["Name"])
            for found in importlib.metadata.distributions()
            if re.fullmatch(r"cupy(-cuda\d+x)?", str(found.metadata["Name"]))
        }
    )
    if not installed:
        driver = _load_driver()
        lost = driver is not None and _count(driver)[1] > 0
        detail = "not installed: plans run on the host (NumPy)" + (", the GPU is not used" if lost else "")
        yield Check("CuPy", Status.WARNING if lost else Status.NOTE, detail, _EXTRA)
        return
    if len(installed) > 1:
        detail = f"{' and '.join(installed)} are both installed and overwrite each other's files"
        yield Check("CuPy", Status.PROBLEM, detail, f"pip uninstall {' '.join(installed)}, then {_EXTRA}")
        return
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:
        yield Check("CuPy", Status.PROBLEM, f"import fails: {type(error).__name__}: {error}", _EXTRA)
        return
    yield Check("CuPy", Status.OK, f"{installed[0]} {cupy.__version__}")


def _compiler() -> Iterator[Check]:
    from . import compile as compiling

    try:
        version = compiling.compiler_version()
    except BaracudaError as error:
        yield Check("NVRTC", Status.NOTE, str(error), _EXTRA)
        return
    numbers = compiling.supported_architectures()
    yield Check("NVRTC", Status.OK, f"{version}, sm_{numbers[0]} to sm_{numbers[-1]}")
    try:
        folder = compiling.header_directory()
    except BaracudaError as error:
        yield Check("CUDA headers", Status.PROBLEM, str(error), "pip install nvidia-cuda-runtime")
        return
    headers = _header_version(folder)
    if headers is not None and headers.split(".")[0] != version.split(".")[0]:
        detail = f"CUDA {headers} in {folder}, NVRTC is {version}"
        remedy = (
            "install headers of NVRTC's major version, or set BARACUDA_CUDA_INCLUDE to a folder that has them"
        )
        yield Check("CUDA headers", Status.PROBLEM, detail, remedy)
    else:
        yield Check("CUDA headers", Status.OK, f"{'' if headers is None else f'CUDA {headers} in '}{folder}")
    try:
        made = compiling.compile_source(_PROBE, "probe.cu", "sm_90", ("--std=c++17",))
    except BaracudaError as error:
        remedy = "reinstall NVRTC and headers of one CUDA version: " + _EXTRA
        yield Check("compiling", Status.PROBLEM, str(error).splitlines()[0], remedy)
    else:
        yield Check("compiling", Status.OK, f"a probe gives {len(made.cubin)} bytes for sm_90")


_PROBE = """
#include <cuda_fp16.h>
extern "C" __global__ void probe(__half* x) { x[threadIdx.x] = __float2half(1.0f); }
"""


def _header_version(folder: Path) -> str | None:
    try:
        text = (folder / "cuda_runtime_api.h").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    return None if match is None else f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}"


def _gpus() -> Iterator[Check]:
    from .device import cuda_available

    if not cuda_available():
        yield Check(
            "GPU", Status.NOTE, "none usable: `explain` works for GPUs by name, plans run on the host"
        )
        return
    from . import compile as compiling
    from . import cuda

    try:
        supported: tuple[int, ...] = compiling.supported_architectures()
        compiler = compiling.compiler_version()
    except BaracudaError:
        supported, compiler = (), ""
    for ordinal in range(cuda.device_count()):
        device = cuda.device_facts(ordinal)
        name = f"GPU {ordinal}"
        capability = device.compute_capability
        detail = (
            f"{device.name}, compute capability {capability / 10:.1f}, {device.memory_bytes / 1e9:.0f} GB"
        )
        if capability < _LOWEST_CAPABILITY:
            yield Check(
                name, Status.PROBLEM, detail, "kernels need 8.0 or later: use a newer GPU, or the host"
            )
        elif supported and capability not in supported:
            remedy = (
                f"NVRTC {compiler} does not know it: install a newer one, or ship cubins (BARACUDA_CUBIN_DIR)"
            )
            yield Check(name, Status.PROBLEM, detail, remedy)
        else:
            yield Check(name, Status.OK, detail)
    yield from _versions(compiler)
    yield from _runs()


def _versions(compiler: str) -> Iterator[Check]:
    """A driver loads cubins of its own major version or older ones."""
    library = _load_driver()
    if not compiler or library is None:
        return
    driver = _driver_version(library)
    if int(compiler.split(".")[0]) > int(driver.split(".")[0]):
        detail = f"NVRTC is {compiler}, the driver takes CUDA {driver}"
        yield Check("versions", Status.PROBLEM, detail, "update the driver, or install the [cuda12] extra")
    else:
        yield Check("versions", Status.OK, f"NVRTC {compiler}, driver CUDA {driver}")


def _runs() -> Iterator[Check]:
    """One plan on the current GPU, against NumPy."""
    import numpy as np

    import baracuda_registry as br

    xp = br.Device.current().array_module()
    desc = br.LpPool1dDescriptor(batch=2, channels=3, l_in=64, window=2, p=2.0, element="f32")
    values = np.arange(384, dtype=np.float32).reshape(2, 3, 64)
    y = xp.zeros((2, 3, 32), np.float32)
    try:
        br.LpPool1dPlan.select(None, desc).run(None, None, br.LpPool1dFwArgs(x=xp.asarray(values), y=y))
        got = xp.asnumpy(y)
    except Exception as error:
        yield Check("running", Status.PROBLEM, f"{type(error).__name__}: {error}", "see the checks above")
        return
    want = np.sqrt((values.astype(np.float64) ** 2).reshape(2, 3, 32, 2).sum(-1))
    if np.allclose(got, want, rtol=1e-6):
        yield Check("running", Status.OK, "a pooling plan ran and is right; `verify` checks every variant")
    else:
        yield Check(
            "running", Status.PROBLEM, "a pooling plan ran and is wrong", "run `verify` and report it"
        )


def _cache() -> Iterator[Check]:
    from .cache import CubinCache, cache_directory

    folder = cache_directory()
    remedy = "set BARACUDA_CACHE_DIR to a folder you can write, or mend its permissions"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            pass
    except OSError as error:
        detail = f"{folder} cannot be written ({error.strerror}): every process compiles anew"
        yield Check("cache", Status.WARNING, detail, remedy)
        return
    entries = list(CubinCache(folder).entries())
    detail = f"{folder}, {len(entries)} compiled variants, {sum(e.nbytes for e in entries) / 2**20:.1f} MiB"
    yield Check("cache", Status.OK, detail)
    free = shutil.disk_usage(folder).free
    status = Status.WARNING if free < _LOW_DISK_BYTES else Status.OK
    remedy = (
        "free some space, `cache prune`, or set BARACUDA_CACHE_DIR elsewhere"
        if status is not Status.OK
        else ""
    )
    yield Check("disk", status, f"{free / 2**30:.1f} GiB free there", remedy)


def _environment() -> Iterator[Check]:
    jit = os.environ.get("BARACUDA_JIT")
    cubins = os.environ.get("BARACUDA_CUBIN_DIR")
    if jit not in (None, "", "0", "1"):
        yield Check(
            "BARACUDA_JIT", Status.WARNING, f"is {jit!r}, only 0 means something", "unset it, or set it to 0"
        )
    if cubins and not Path(cubins).is_dir():
        remedy = "make it with `compile -o`, or unset it"
        yield Check("BARACUDA_CUBIN_DIR", Status.WARNING, f"{cubins} is no folder", remedy)
    elif cubins:
        found = sorted(path.name for path in Path(cubins).glob("sm_*"))
        yield Check("BARACUDA_CUBIN_DIR", Status.OK, f"{cubins}: {', '.join(found) or 'no cubins'}")
    if jit == "0" and not cubins and not (Path(__file__).parent / "_cubins").is_dir():
        remedy = "unset BARACUDA_JIT, or set BARACUDA_CUBIN_DIR to a folder made by `compile -o`"
        yield Check(
            "BARACUDA_JIT", Status.WARNING, "is 0, and no cubins are shipped: no kernel can run", remedy
        )
    from .inspect.code import find_disassembler

    try:
        yield Check("disassembler", Status.OK, str(find_disassembler()))
    except BaracudaError as error:
        yield Check("disassembler", Status.NOTE, f"{error}", "only `sass` needs it")


_CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _table,
    _driver,
    _cupy,
    _compiler,
    _gpus,
    _cache,
    _environment,
)
