"""The user's cache of compiled variants: content-addressed files that many processes may share.

The key holds everything that decides the bytes (source, architecture, options, compiler and header versions), so an
entry is never stale and never needs a lock: two processes that race write the same content.  An entry is a `.cubin`
and a `.json` that carries its digest; each is written to a temporary file and renamed, and anything that cannot be
read or does not match its digest is a miss.  A cache that cannot be written costs time, never correctness.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_log = logging.getLogger("baracuda_registry")


def cache_directory() -> Path:
    """`BARACUDA_CACHE_DIR`, or the platform's cache folder for this library."""
    if override := os.environ.get("BARACUDA_CACHE_DIR"):
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_cache_dir("baracuda_registry", appauthor=False))


def key_of(parts: Mapping[str, Any]) -> str:
    """SHA-256 of everything that decides an entry's content."""
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as the file system shows it.

    Attributes:
        key: its key.
        nbytes: size of both files.
        used: when it was last read or written, in seconds since 1970.
    """

    key: str
    nbytes: int
    used: float


class CubinCache:
    """Compiled variants below one folder.

    Args:
        directory: the folder; created on the first write.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._warned = False

    def _paths(self, key: str) -> tuple[Path, Path]:
        folder = self.directory / "cubin" / key[:2]
        return folder / f"{key}.cubin", folder / f"{key}.json"

    def read(self, key: str) -> tuple[bytes, dict[str, Any]] | None:
        """The cubin and its record, or None when there is no sound entry."""
        cubin_path, record_path = self._paths(key)
        try:
            record = json.loads(record_path.read_bytes())
            cubin = cubin_path.read_bytes()
            if record["sha256"] != hashlib.sha256(cubin).hexdigest():
                raise ValueError("digest differs")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.debug("cache entry %s is a miss: %s", record_path, error)
            return None
        return cubin, record

    def entries(self) -> Iterator[Entry]:
        """Every entry, sound or not, that has either file; what cannot be looked at is left out."""
        for record_or_cubin in sorted(self.directory.glob("cubin/??/*")):
            if record_or_cubin.suffix == ".cubin" or (
                record_or_cubin.suffix == ".json" and not record_or_cubin.with_suffix(".cubin").exists()
            ):
                try:
                    stats = [path.stat() for path in self._paths(record_or_cubin.stem) if path.exists()]
                except OSError:
                    continue
                yield Entry(
                    record_or_cubin.stem,
                    sum(stat.st_size for stat in stats),
                    max((max(stat.st_atime, stat.st_mtime) for stat in stats), default=0.0),
                )

    def architecture(self, key: str) -> str:
        """What an entry was compiled for; `?` where its record cannot be read."""
        try:
            return str(json.loads(self._paths(key)[1].read_bytes())["architecture"])
        except (OSError, ValueError, KeyError, TypeError):
            return "?"

    def remove(self, key: str) -> bool:
        """Delete an entry; a process that has it loaded keeps it.

        Raises:
            OSError: the folder cannot be written.
        """
        found = False
        for path in self._paths(key):
            try:
                path.unlink()
                found = True
            except FileNotFoundError:
                pass
        return found

    def write(self, key: str, cubin: bytes, record: Mapping[str, Any]) -> bool:
        """Store an entry; False (and one warning a cache) when the folder cannot be written."""
        cubin_path, record_path = self._paths(key)
        body = {**record, "sha256": hashlib.sha256(cubin).hexdigest()}
        try:
            cubin_path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cubin_path, cubin)
            write_atomically(record_path, json.dumps(body, indent=1).encode())
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "compiled kernels cannot be kept in %s (%s): every process will compile anew; set BARACUDA_CACHE_DIR",
                    self.directory,
                    error,
                )
            return False
        return True


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: a temporary file beside it, then a rename.

    Raises:
        OSError: the folder cannot be written; no temporary file is left behind.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
