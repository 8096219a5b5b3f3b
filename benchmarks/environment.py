"""Everything that a number depends on: machine, driver, versions, sources, and the GPU's clocks and power.

The GPU is only asked, through `nvidia-smi`'s query, which needs no privilege; its settings are never touched.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import platform
import subprocess
import uuid
from pathlib import Path
from typing import Any

import baracuda_registry as br
from baracuda_registry.manifest import find_root

ROOT = Path(__file__).parent.parent

_READINGS = (
    "driver_version", "pstate", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw",
    "power.limit", "temperature.gpu", "ecc.mode.current", "clocks_event_reasons.active",
)  # fmt: skip


def versions() -> dict[str, str | None]:
    """Versions of what takes part; None for what is not installed."""
    import cupy
    import torch

    from baracuda_registry.compile import compiler_version

    found: dict[str, str | None] = {
        "library": br.__version__,
        "python": platform.python_version(),
        "cupy": cupy.__version__,
        "nvrtc": compiler_version(),
        "torch": torch.__version__,
        "cuda_runtime": _cuda(cupy.cuda.runtime.runtimeGetVersion()),
        "cuda_driver_api": _cuda(cupy.cuda.runtime.driverGetVersion()),
    }
    for name in ("triton", "liger_kernel"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def gpu_state(ordinal: int | None) -> dict[str, str]:
    """Clocks (MHz), power (W), temperature (°C) and what else the driver says; empty where it says nothing."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_READINGS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            [*command, "-i", str(ordinal or 0)], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in answer.stdout.strip().split(",")]
    return dict(zip(_READINGS, values)) if len(values) == len(_READINGS) else {}


def source_digest() -> str:
    """SHA-256 of the manifest, which holds the digest of every generated source, and of the library's own files."""
    digest = hashlib.sha256((find_root() / "manifest.json").read_bytes())
    package = Path(br.__file__).parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def commit() -> str | None:
    """The checkout's commit, with `+` when there are changes; None outside a checkout of its own."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        return answer.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != ROOT.resolve():
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def new_run(device: br.Device, parameters: dict[str, Any], known_commit: str | None = None) -> dict[str, Any]:
    """The record of a run that starts now."""
    return {
        "id": uuid.uuid4().hex[:12],
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": device.name,
        "sm_count": device.sm_count,
        "l2_bytes": device.l2_bytes,
        "versions": versions(),
        "commit": known_commit or commit(),
        "source_digest": source_digest(),
        "parameters": parameters,
        "gpu_state": {"start": gpu_state(device.ordinal)},
    }
