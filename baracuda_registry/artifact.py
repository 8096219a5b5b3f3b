"""From a variant to its cubin: shipped ones first, then the user's cache, then the compiler.

`BARACUDA_CUBIN_DIR` names a folder of cubins made ahead of time (the package's own `_cubins` is looked in too);
`BARACUDA_JIT=0` forbids compiling, which proves that a shipped set is complete.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from .cache import CubinCache, cache_directory, key_of, write_atomically
from .compile import Resources, compile_source, compiler_version, headers_digest
from .device import Device
from .errors import CompileError, ManifestError
from .manifest import Manifest, Variant
from .sku import ArchSku


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled variant.

    Attributes:
        cubin: the machine code.
        architecture: real architecture, `sm_90`.
        origin: `shipped`, `cache` or `compiled`.
        resources: by kernel symbol.
        warnings: what the compiler warned of.
    """

    cubin: bytes
    architecture: str
    origin: str
    resources: dict[str, Resources]
    warnings: tuple[str, ...]


def architecture_for(variant: Variant, device: Device) -> str:
    """Real architecture for which the variant is compiled on this device: code of tier Sm90a needs `sm_90a`."""
    return architecture_of(variant, device.compute_capability)


def architecture_of(variant: Variant, compute_capability: int) -> str:
    """The same by compute capability, 90 for 9.0: the name under which such a device looks for the cubin."""
    if variant.sku.arch is ArchSku.Sm90a:
        return "sm_90a"
    return f"sm_{compute_capability}"


def source_text(manifest: Manifest, variant: Variant) -> str:
    """The generated source of a variant, checked against the manifest's digest.

    Raises:
        ManifestError: the file is missing, or is not the one that the manifest describes.
    """
    if variant.source is None:
        raise ManifestError(f"variant {variant.id} runs on the host: it has no CUDA source")
    path = manifest.root / variant.source
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ManifestError(
            f"source of {variant.id} cannot be read: {error}; reinstall the package"
        ) from error
    if hashlib.sha256(data).hexdigest() != manifest.sources[variant.source]:
        raise ManifestError(f"{path} is not the file that the manifest describes; run `make generate`")
    return data.decode()


def artifact(manifest: Manifest, variant: Variant, architecture: str) -> Artifact:
    """The cubin of a variant for a real architecture.

    Raises:
        ManifestError: the source is missing or altered.
        CompileError: it is not shipped, not cached, and cannot or may not be compiled.
    """
    # Threads that want the same cubin wait for the first one; different cubins compile side by side.
    with _lock_of((variant.source, architecture)):
        return _artifact(manifest, variant, architecture)


def stored(manifest: Manifest, variant: Variant, architecture: str) -> Artifact | None:
    """The cubin if it is shipped or cached; None where it would have to be compiled.

    Raises:
        ManifestError: the source is missing or altered.
    """
    source_text(manifest, variant)
    found = _shipped(manifest, variant, architecture)
    if found is None:
        try:
            found = _cached(manifest, variant, architecture)
        except CompileError:
            return None  # No compiler: what it would have made is not known.
    return found


def _artifact(manifest: Manifest, variant: Variant, architecture: str) -> Artifact:
    text = source_text(manifest, variant)
    found = _shipped(manifest, variant, architecture)
    if found is not None:
        return found
    if os.environ.get("BARACUDA_JIT") == "0":
        raise CompileError(
            f"{variant.id} is not among the shipped cubins for {architecture}, and BARACUDA_JIT=0 forbids compiling",
            sku=str(variant.sku),
        )
    found = _cached(manifest, variant, architecture)
    if found is not None:
        return found
    name = shipped_name(manifest, variant)
    compiled = compile_source(text, name, architecture, manifest.compile_options, sku=str(variant.sku))
    record = {
        "variant": variant.id,
        "architecture": architecture,
        "compiler": compiler_version(),
        "resources": {symbol: used.to_dict() for symbol, used in compiled.resources.items()},
        "warnings": list(compiled.warnings),
    }
    cache = _cache(cache_directory())
    cache.write(_key(manifest, variant, architecture), compiled.cubin, record)
    return Artifact(compiled.cubin, architecture, "compiled", compiled.resources, compiled.warnings)


def _shipped(manifest: Manifest, variant: Variant, architecture: str) -> Artifact | None:
    name = shipped_name(manifest, variant)
    for directory in _shipped_directories():
        found = _read_shipped(directory / architecture / name)
        if found is not None:
            return Artifact(found[0], architecture, "shipped", found[1], ())
    return None


def _cached(manifest: Manifest, variant: Variant, architecture: str) -> Artifact | None:
    entry = _cache(cache_directory()).read(_key(manifest, variant, architecture))
    if entry is None:
        return None
    cubin, record = entry
    try:
        resources = _resources_from(record["resources"])
        if not all(kernel.symbol in resources for kernel in variant.entries):
            raise KeyError("a kernel without its resources")
        return Artifact(cubin, architecture, "cache", resources, tuple(record["warnings"]))
    except (KeyError, TypeError):
        return None


def _key(manifest: Manifest, variant: Variant, architecture: str) -> str:
    """The cache's key.

    Raises:
        CompileError: no compiler or no headers, whose versions are part of it.
    """
    return key_of(
        {
            "source": manifest.sources[variant.source or ""],
            "architecture": architecture,
            "options": manifest.compile_options,
            "compiler": compiler_version(),
            "headers": headers_digest(),
        }
    )


def shipped_name(manifest: Manifest, variant: Variant) -> str:
    """File name of a shipped cubin: the digest of its source and options, which no other source shares."""
    digest = key_of({"source": manifest.sources[variant.source or ""], "options": manifest.compile_options})
    return f"{digest[:32]}.cubin"


def ship(directory: Path, manifest: Manifest, variant: Variant, made: Artifact) -> Path:
    """Write a cubin where `BARACUDA_CUBIN_DIR=directory` will find it.

    Raises:
        OSError: the folder cannot be written.
    """
    path = directory / made.architecture / shipped_name(manifest, variant)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "variant": variant.id,
        "sha256": hashlib.sha256(made.cubin).hexdigest(),
        "resources": {symbol: used.to_dict() for symbol, used in made.resources.items()},
    }
    write_atomically(path, made.cubin)
    write_atomically(path.with_suffix(".json"), json.dumps(record, indent=1).encode())
    return path


def _read_shipped(path: Path) -> tuple[bytes, dict[str, Resources]] | None:
    try:
        cubin = path.read_bytes()
        record = json.loads(path.with_suffix(".json").read_bytes())
        if record["sha256"] != hashlib.sha256(cubin).hexdigest():
            return None
        return cubin, _resources_from(record["resources"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _resources_from(table: dict[str, dict[str, int]]) -> dict[str, Resources]:
    return {symbol: Resources(**row) for symbol, row in table.items()}


def _shipped_directories() -> list[Path]:
    directories = [Path(__file__).parent / "_cubins"]
    if override := os.environ.get("BARACUDA_CUBIN_DIR"):
        directories.insert(0, Path(override))
    return directories


@functools.cache
def _cache(directory: Path) -> CubinCache:
    return CubinCache(directory)


_locks_guard = threading.Lock()
_locks: dict[tuple[str | None, str], threading.Lock] = {}


def _lock_of(key: tuple[str | None, str]) -> threading.Lock:
    with _locks_guard:
        return _locks.setdefault(key, threading.Lock())
