"""Compiles generated `.cu` files into shared libraries for the CPU, with g++ and nothing of CUDA but its headers.

The shim is precompiled and the engine is built once per set of flags; a source then costs a fraction of a second.  Results
live in a directory keyed by everything that went in and are moved there whole, so that concurrent test workers are safe.

Arithmetic: no `-ffast-math`, and no contraction into fused multiply-adds unless `contract` asks for it, so that results
are the same on every CPU.  Device compilers do contract; `contract=True` shows what that may change.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from baracuda_registry.compile import header_directory

_HERE = Path(__file__).resolve().parent
_FLAGS = (
    *(
        "-std=c++17",
        "-fPIC",
        "-pipe",
        "-fno-strict-aliasing",
        "-fno-math-errno",
        "-fno-exceptions",
        "-fno-rtti",
    ),
    *(
        "-fvisibility=hidden",
        "-fno-gnu-unique",
        "-fno-extern-tls-init",
        "-fstack-clash-protection",
        "-U_FORTIFY_SOURCE",
    ),
)
_UNDEFINED = "alignment,bounds,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow"
_SANITIZE = (f"-fsanitize=address,{_UNDEFINED}", "-fno-sanitize-recover=all", "-g1")
_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+(?P<rest>[^;{]*)')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class CpuCompileError(Exception):
    """A source does not compile for the CPU; the message is g++'s."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """How to compile: under the sanitizers or not, with fused multiply-adds or not."""

    sanitize: bool = False
    contract: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Options for g++."""
        contract = ("-O2", "-mfma", "-ffp-contract=fast") if self.contract else ("-O1", "-ffp-contract=off")
        return (*_FLAGS, *contract, *(_SANITIZE if self.sanitize else ()))


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The precompiled shim and the engine's library."""

    directory: Path
    engine: Path
    flavour: Flavour


def build_directory() -> Path:
    """Where libraries are kept: `BARACUDA_CPU_BUILD_DIR`, or `.cache/cuda_on_cpu` of the repository."""
    override = os.environ.get("BARACUDA_CPU_BUILD_DIR")
    return Path(override).resolve() if override else _HERE.parents[1] / ".cache" / "cuda_on_cpu"


def compiler() -> str:
    """The C++ compiler: `CXX`, or g++."""
    return os.environ.get("CXX", "g++")


def available() -> bool:
    """Whether there is a compiler."""
    return shutil.which(compiler()) is not None


def entry_names(source: str) -> list[str]:
    """Names of the kernels a source defines, in order."""
    names = []
    for match in _ENTRY.finditer(_COMMENT.sub(" ", source)):
        rest = _without_calls_of(match["rest"], "__launch_bounds__")
        rest = _without_calls_of(rest, "__cluster_dims__")
        if found := re.match(r"\s*(?:\w+\s+)*?void\s+(\w+)\s*\(", rest):
            names.append(found[1])
    return list(dict.fromkeys(names))


def compile_sources(sources: Sequence[Path], flavour: Flavour) -> list[tuple[Path, Path]]:
    """Compile what is not there yet; returns (source, library) pairs."""
    tools = toolchain(flavour)
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda source: (source, _compile(source, tools)), sources))


@functools.cache
def toolchain(flavour: Flavour) -> Toolchain:
    """The shim and the engine for a flavour, built on first use."""
    digest = _digest(
        *(
            path.read_bytes()
            for path in sorted(_HERE.rglob("*"))
            if path.is_file() and path.suffix in ("", ".h", ".cpp")
        ),
        *(
            (header_directory() / name).read_bytes()
            for name in ("cuda_fp16.h", "cuda_fp16.hpp", "cuda_bf16.h", "cuda_bf16.hpp")
        ),
        " ".join(flavour.flags).encode(),
        _compiler_version().encode(),
    )
    directory = build_directory() / f"toolchain-{digest}"
    tools = Toolchain(directory, directory / f"libbaracuda_cpu_engine-{digest}.so", flavour)
    if not directory.is_dir():
        _make_toolchain(tools)
    return tools


def _make_toolchain(tools: Toolchain) -> None:
    tools.directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="making-", dir=tools.directory.parent))
    try:
        for header in _HERE.glob("*.h"):
            shutil.copy(header, scratch)
        shutil.copytree(_HERE / "headers", scratch / "headers")
        include = [f"-I{scratch / 'headers'}", f"-I{header_directory()}"]
        command = [compiler(), *tools.flavour.flags, *include]
        _run([*command, "-w", "-x", "c++-header", str(scratch / "shim.h"), "-o", str(scratch / "shim.h.gch")])
        options = [
            "-O2",
            "-Wall",
            "-Wextra",
            "-fvisibility=default",
            "-shared",
            f"-Wl,-soname,{tools.engine.name}",
        ]
        files = [str(_HERE / "engine.cpp"), "-o", str(scratch / tools.engine.name)]
        _run([*command, *options, *files, "-ldl", "-lrt", "-lpthread"])
        _move_into_place(scratch, tools.directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _compile(source: Path, tools: Toolchain) -> Path:
    text = source.read_text()
    names = entry_names(text)
    if not names:
        raise CpuCompileError(f'{source}: no `extern "C" __global__` kernel')
    library = tools.directory / f"{source.stem}-{_digest(text.encode(), str(source).encode())}.so"
    if library.is_file():
        return library
    with tempfile.TemporaryDirectory(prefix="making-", dir=tools.directory) as scratch:
        wrapper = Path(scratch) / "wrapper.cpp"
        wrapper.write_text(_wrapper(source, names))
        made = Path(scratch) / library.name
        include = [
            f"-I{tools.directory / 'headers'}",
            f"-I{header_directory()}",
            "-include",
            str(tools.directory / "shim.h"),
        ]
        files = [str(wrapper), "-o", str(made), str(tools.engine)]
        _run(
            [
                compiler(),
                *tools.flavour.flags,
                "-w",
                *include,
                "-shared",
                *files,
                "-Wl,-rpath,$ORIGIN",
                "-Wl,-z,defs",
            ]
        )
        made.replace(library)
    return library


def _wrapper(source: Path, names: Sequence[str]) -> str:
    rows = "".join(f'    baracuda_cpu::Invoker<&::{name}>::entry("{name}"),\n' for name in names)
    export = 'extern "C" __attribute__((visibility("default")))'
    return (
        f'#include "{source}"\n'
        f"{export} const baracuda_cpu::Entry baracuda_cpu_entries[] = {{\n{rows}}};\n"
        f"{export} const int baracuda_cpu_entry_count = {len(names)};\n"
        f"{export} unsigned char* baracuda_cpu_anchor() {{\n    static thread_local unsigned char anchor;\n    return &anchor;\n}}\n"
    )


def _without_calls_of(text: str, name: str) -> str:
    while (start := text.find(name)) >= 0:
        end = start + len(name)
        depth = 0
        while end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
            if depth == 0 and text[end - 1] == ")":
                break
        text = text[:start] + text[end:]
    return text


def _move_into_place(scratch: Path, target: Path) -> None:
    try:
        scratch.rename(target)
    except OSError:
        if not target.is_dir():  # Another process was first otherwise.
            raise


def _run(command: Sequence[str]) -> None:
    plain = {
        name: value for name, value in os.environ.items() if name != "LD_PRELOAD"
    }  # The sanitizer slows compilers.
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=plain)
    if done.returncode != 0:
        raise CpuCompileError(f"{' '.join(command)}\n{done.stderr[:8000]}")


@functools.cache
def _compiler_version() -> str:
    return subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]
