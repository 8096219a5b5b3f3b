"""A variant's code at every level: CUDA source, PTX, and the machine code as a disassembler prints it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..artifact import architecture_of, artifact, source_text
from ..catalog import Registry
from ..compile import compile_to_ptx
from ..compile_all import capability_named
from ..device import Device
from ..errors import CompileError, InvalidProblem, ManifestError, ToolMissing
from ..manifest import Manifest, Variant
from ..sku import ArchSku

_TIMEOUT_S = 120


def source(table: Registry, variant: Variant) -> str:
    """The generated CUDA source, checked against the manifest's digest.

    Raises:
        ManifestError: a host variant has none, or the file is missing or altered.
    """
    return source_text(_manifest(table, variant), variant)


def ptx(table: Registry, variant: Variant, architecture: str | None = None) -> str:
    """PTX text of a variant for a real architecture (default: `default_architecture`).

    Raises:
        ManifestError: a host variant has none.
        InvalidProblem: the architecture is not one, or the variant does not run there.
        CompileError: no compiler, or one that does not know the architecture.
    """
    manifest = _manifest(table, variant)
    architecture = architecture_named(variant, architecture)
    text = source_text(manifest, variant)
    name = f"{variant.design}.cu"
    return compile_to_ptx(text, name, architecture, manifest.compile_options, sku=str(variant.sku))


def sass(table: Registry, variant: Variant, architecture: str | None = None) -> str:
    """Machine code of a variant as text.

    Raises:
        ToolMissing: no `nvdisasm` or `cuobjdump`.
        ManifestError, InvalidProblem, CompileError: as `ptx`; or the disassembler refuses the cubin.
    """
    manifest = _manifest(table, variant)
    tool = find_disassembler()
    made = artifact(manifest, variant, architecture_named(variant, architecture))
    command = [str(tool), "-c"] if tool.stem == "nvdisasm" else [str(tool), "-sass"]
    with tempfile.TemporaryDirectory(prefix="baracuda-") as folder:
        path = Path(folder) / "variant.cubin"
        path.write_bytes(made.cubin)
        try:
            done = subprocess.run(
                [*command, str(path)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompileError(f"{tool} does not run: {error}", sku=str(variant.sku)) from error
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()
        raise CompileError(f"{tool} refuses the cubin of {variant.id}", log=reason, sku=str(variant.sku))
    return done.stdout


def architecture_named(variant: Variant, text: str | None) -> str:
    """The real architecture that a text means for a variant: `sm_90`, also written `90` or `9.0`.

    Raises:
        InvalidProblem: not an architecture, or below the variant's tier.
    """
    if text is None:
        return default_architecture(variant)
    capability = capability_named(text)
    if not variant.sku.arch.runs_on(capability):
        raise InvalidProblem(f"{variant.id} is built for {variant.sku.arch.name}, it does not run on {text}")
    return architecture_of(variant, capability)


def default_architecture(variant: Variant) -> str:
    """That of the GPU here if the variant runs on it; else sm_90 where it is compiled for that; else its first."""
    current = Device.current()
    if not current.is_host and variant.sku.arch.runs_on(current.compute_capability):
        return architecture_of(variant, current.compute_capability)
    if not variant.targets:
        raise ManifestError(f"variant {variant.id} runs on the host: it has no CUDA code")
    return "sm_90" if "sm_90" in variant.targets else variant.targets[0]


def find_disassembler() -> Path:
    """`nvdisasm`, else `cuobjdump`: on PATH, in a CUDA toolkit, or in an installed package.

    Raises:
        ToolMissing: neither is anywhere.
    """
    for name in ("nvdisasm", "cuobjdump"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
        for folder in _tool_folders():
            path = folder / (f"{name}.exe" if sys.platform == "win32" else name)
            if path.is_file() and os.access(path, os.X_OK):
                return path
    raise ToolMissing(
        "no nvdisasm or cuobjdump on PATH, in CUDA_HOME or in an installed package; pip install nvidia-cuda-nvdisasm"
    )


def _tool_folders() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(name):
            yield Path(home) / "bin"
    yield Path("/usr/local/cuda/bin")
    for entry in sys.path:
        root = Path(entry)
        if (root / "nvidia").is_dir():
            yield from sorted(root.glob("nvidia/*/bin"), reverse=True)
        if (root / "triton").is_dir():
            yield root / "triton" / "backends" / "nvidia" / "bin"


def _manifest(table: Registry, variant: Variant) -> Manifest:
    if variant.sku.arch is ArchSku.Host or variant.source is None:
        raise ManifestError(f"variant {variant.id} runs on the host: it has no CUDA code")
    if table.manifest is None:
        raise ManifestError("the registry was built without a manifest, it has no sources")
    return table.manifest
