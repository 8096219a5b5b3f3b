"""Runs CUDA kernels on the CPU, thread by thread: the very same `.cu` files, no GPU, no nvcc."""

from __future__ import annotations

from .library import CpuLaunchError, Library, build, build_text, pack, source_file
from .toolchain import CpuCompileError, available, entry_names

__all__ = [
    "CpuCompileError",
    "CpuLaunchError",
    "Library",
    "available",
    "build",
    "build_text",
    "entry_names",
    "pack",
    "source_file",
]
