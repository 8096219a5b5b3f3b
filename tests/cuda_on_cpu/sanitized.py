"""Runs kernels under AddressSanitizer and UndefinedBehaviorSanitizer, in a process of their own.

The sanitizer's library has to be the first one of a process, so either

* `run_sanitized` sends a few launches to a new process and brings the arrays back; or
* `run_python` starts any Python program, a part of the test suite for example, in such a process, where `build`
  sanitizes by default.

Caught: reads and writes past either end of an array (also by a vector load that starts inside), past the dynamic shared
memory that the launch asked for, past a static shared or local array; misaligned vector accesses; shifts by too much,
signed overflow, division by zero; floats out of range cast to an integer (defined on a GPU, different here: use `__float2int_rz`
and its kin).
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from .library import CpuLaunchError, build, pack
from .toolchain import compiler

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch to be made elsewhere: `Library.launch`'s arguments, with the values that `pack` takes."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int
    values: Sequence[Any]
    seed: int | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False


@functools.cache
def runtime() -> Path | None:
    """The sanitizer's shared library, or None where the compiler has none."""
    found = subprocess.run(
        [compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    path = Path(found)
    return path.resolve() if path.is_absolute() and path.exists() else None


def environment() -> dict[str, str]:
    """Environment of a process in which sanitized libraries load."""
    library = runtime()
    if library is None:
        raise FileNotFoundError("libasan.so; install the compiler's sanitizer libraries")
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "BARACUDA_CPU_SANITIZE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def run_python(arguments: Sequence[str], *, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run `python arguments…` where sanitized libraries load."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=_ROOT,
    )


def run_sanitized(
    sources: Sequence[Path | str], launches: Sequence[Launch], *, timeout: float = 600
) -> list[list[np.ndarray]]:
    """Make launches one after the other; returns each one's arrays as they are after the last.

    An array that occurs in several launches is one buffer in all of them.

    Raises:
        CpuLaunchError: a launch failed, or the sanitizer stopped it; its report is in the message.
    """
    with tempfile.TemporaryDirectory() as scratch:
        request, reply = Path(scratch) / "request", Path(scratch) / "reply"
        request.write_bytes(pickle.dumps(([Path(source) for source in sources], list(launches))))
        done = run_python(["-m", "tests.cuda_on_cpu.sanitized", str(request), str(reply)], timeout=timeout)
        if not reply.is_file():
            raise CpuLaunchError(launches[0].entry if launches else "-", _report(done))
        result = pickle.loads(reply.read_bytes())
    if isinstance(result, CpuLaunchError):
        raise result
    arrays: list[list[np.ndarray]] = result
    return arrays


def exact(array: np.ndarray) -> np.ndarray:
    """A copy in memory that ends where the array ends, so that the sanitizer sees the first byte past it."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    address = libc.malloc(max(1, array.nbytes))
    memory = (ctypes.c_ubyte * array.nbytes).from_address(address)
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, cast(Any, memory))
    copy[...] = array
    return copy


def _report(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.splitlines()
    starts = [
        i for i, line in enumerate(lines) if "ERROR: AddressSanitizer" in line or "runtime error:" in line
    ]
    if not starts:
        return "\n".join([f"exit status {done.returncode}", *lines[-40:]])
    end = next((i for i, line in enumerate(lines) if line.startswith("Shadow bytes")), len(lines))
    return "\n".join(lines[starts[0] : min(end, starts[0] + 40)])


def _serve(request: Path, reply: Path) -> None:
    sources, launches = pickle.loads(request.read_bytes())
    library = build(sources, sanitize=True)
    buffers: dict[int, np.ndarray] = {}
    answer: Any = []
    try:
        for launch in launches:
            values = []
            for value in launch.values:
                if isinstance(value, np.ndarray):
                    value = buffers.setdefault(id(value), exact(value))
                values.append(value)
            library.launch(
                launch.entry, launch.grid, launch.block, launch.smem_bytes, pack(*values),
                seed=launch.seed, cluster=launch.cluster, cooperative=launch.cooperative,
            )  # fmt: skip
            answer.append([value for value in values if isinstance(value, np.ndarray)])
    except CpuLaunchError as error:
        answer = error
    reply.write_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]))
