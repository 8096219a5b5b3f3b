"""The one routine that turns a generated source into a cubin.

NVRTC through CuPy's low-level binding, for real architectures only: it needs no GPU, no driver and no nvcc, and the
result is the same bytes ahead of time and on first use.  `cupy.RawModule` is not used because it adds `-ftz=true`,
cannot target `sm_90a` and needs a driver.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import CompileError

_HEADERS = ("cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel uses, by the assembler's own report: registers a thread, bytes of the rest."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int

    def to_dict(self) -> dict[str, int]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin with the compiler's log, and resources by kernel symbol."""

    cubin: bytes
    log: str
    resources: dict[str, Resources]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines of the log that warn."""
        return tuple(line for line in self.log.splitlines() if "warning" in line.lower())


def compile_source(
    source: str, name: str, architecture: str, options: Sequence[str], *, sku: str = ""
) -> Compiled:
    """Compile a CUDA source for one real architecture.

    Args:
        source: CUDA C++ text.
        name: file name for the compiler's messages.
        architecture: `sm_80`, `sm_90a`, …; never a virtual `compute_*`.
        options: further compiler options.
        sku: text for the error.

    Raises:
        CompileError: no compiler, no headers, an architecture the compiler does not know, or an error in the source.
    """
    nvrtc = _nvrtc()
    program, log = _compiled(nvrtc, source, name, architecture, options, sku)
    try:
        cubin = _whole_elf(nvrtc.getCUBIN(program))
    finally:
        nvrtc.destroyProgram(program)
    return Compiled(cubin, log, parse_resources(log))


def compile_to_ptx(
    source: str, name: str, architecture: str, options: Sequence[str], *, sku: str = ""
) -> str:
    """The PTX that the same compilation goes through, as text; arguments and errors of `compile_source`."""
    nvrtc = _nvrtc()
    program, _ = _compiled(nvrtc, source, name, architecture, options, sku)
    try:
        ptx = nvrtc.getPTX(program)
    finally:
        nvrtc.destroyProgram(program)
    text = ptx.decode() if isinstance(ptx, bytes) else str(ptx)
    return text.rstrip("\0").strip() + "\n"


def supported_architectures() -> tuple[int, ...]:
    """Compute capabilities for which NVRTC compiles, 90 for 9.0.

    Raises:
        CompileError: no compiler.
    """
    return tuple(sorted(int(number) for number in _nvrtc().getSupportedArchs()))


def _compiled(
    nvrtc: Any, source: str, name: str, architecture: str, options: Sequence[str], sku: str
) -> tuple[Any, str]:
    """A compiled program, which the caller destroys, and its log."""
    flags = [f"--gpu-architecture={architecture}", *options, "--ptxas-options=-v", f"-I{header_directory()}"]
    if nvrtc.getVersion() >= (12, 9):
        flags.append("--no-cache")  # a hit in NVRTC's own cache has no assembler's report in its log
    if int(architecture.removeprefix("sm_").rstrip("af")) not in nvrtc.getSupportedArchs():
        raise CompileError(f"NVRTC {compiler_version()} does not compile for {architecture}", sku=sku)
    program = nvrtc.createProgram(source, name, [], [])
    try:
        nvrtc.compileProgram(program, flags)
    except nvrtc.NVRTCError as error:
        log = _log(nvrtc, program)
        nvrtc.destroyProgram(program)
        raise CompileError(
            f"{name} does not compile for {architecture} ({error})", log=log, sku=sku
        ) from None
    return program, _log(nvrtc, program)


def parse_resources(log: str) -> dict[str, Resources]:
    """Resources by kernel symbol from the assembler's verbose report."""
    found: dict[str, Resources] = {}
    for block in re.split(r"(?=Compiling entry function )", log):
        symbol = re.match(r"Compiling entry function '(\w+)'", block)
        if symbol is None:
            continue
        number = functools.partial(_number, block)
        found[symbol[1]] = Resources(
            registers=number(r"Used (\d+) registers"),
            spill_store_bytes=number(r"(\d+) bytes spill stores"),
            spill_load_bytes=number(r"(\d+) bytes spill loads"),
            stack_bytes=number(r"(\d+) bytes stack frame"),
            shared_bytes=number(r"(\d+) bytes smem"),
        )
    return found


def _number(text: str, pattern: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


@functools.cache
def compiler_version() -> str:
    """NVRTC's version, `13.0`."""
    major, minor = _nvrtc().getVersion()
    return f"{major}.{minor}"


@functools.cache
def header_directory() -> Path:
    """Folder with `cuda_fp16.h` and `cuda_bf16.h`.

    Raises:
        CompileError: none found; the message says what to install.
    """
    places: list[Path] = []
    if override := os.environ.get("BARACUDA_CUDA_INCLUDE"):
        places.append(Path(override))
    else:
        try:
            from cuda.pathfinder import find_nvidia_header_directory

            if found := find_nvidia_header_directory("cudart"):
                places.append(Path(found))
        except ImportError:
            pass
        places += [
            Path(os.environ[name]) / "include" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)
        ]
    for place in places:
        if (place / "cuda_fp16.h").is_file():
            return place
    looked = ", ".join(map(str, places)) or "no known place"
    raise CompileError(
        f"cuda_fp16.h not found (looked in {looked}); pip install nvidia-cuda-runtime, or set CUDA_HOME or BARACUDA_CUDA_INCLUDE"
    )


@functools.cache
def headers_digest() -> str:
    """SHA-256 of the headers that sources include: other headers make another cubin."""
    digest = hashlib.sha256()
    for name in _HEADERS:
        path = header_directory() / name
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


@functools.cache
def _nvrtc() -> Any:
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # CuPy raises ImportError, RuntimeError or its own types, by what is missing.
        raise CompileError(
            f"NVRTC is not usable ({type(error).__name__}: {error}); pip install 'baracuda-registry[cuda13]' (or [cuda12])"
        ) from error
    return nvrtc


def _log(nvrtc: Any, program: int) -> str:
    return str(nvrtc.getProgramLog(program)).rstrip("\0").strip()


def _whole_elf(cubin: bytes) -> bytes:
    """The cubin with the last byte that CuPy's binding drops; the driver does not care, disassemblers do."""
    if cubin[:4] != b"\x7fELF" or len(cubin) < 64:
        raise CompileError("NVRTC returned something that is not an ELF file")
    (section_offset,) = struct.unpack_from("<Q", cubin, 40)
    entry_size, count = struct.unpack_from("<HH", cubin, 58)
    (program_offset,) = struct.unpack_from("<Q", cubin, 32)
    program_size, programs = struct.unpack_from("<HH", cubin, 54)
    end = max(section_offset + entry_size * count, program_offset + program_size * programs)
    return cubin + b"\0" if len(cubin) + 1 == end else cubin
