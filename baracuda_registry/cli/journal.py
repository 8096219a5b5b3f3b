"""A file of results, a line each, so that an interrupted run can go on where it stopped."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any


class Journal:
    """Results by key.  A half-written last line is ignored; a folder that cannot be written costs the resuming only.

    Args:
        command: the command whose journal it is.
        device: the device's name; every device has its own.
        resume: keep what an earlier run left; else start anew.
    """

    def __init__(self, command: str, device: str, *, resume: bool) -> None:
        from ..cache import cache_directory

        name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
        self.path = cache_directory() / command / f"{name}.jsonl"
        self._file: Any = None
        self._held: dict[str, Any] = self._read() if resume else {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a" if resume else "w", encoding="utf-8")
            if resume and self._held and not _ends_in_newline(self.path):
                self._file.write("\n")
        except OSError as error:
            print(
                f"{self.path} cannot be written ({error.strerror}): this run cannot be resumed",
                file=sys.stderr,
            )

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str) -> Any:
        """The result under a key, or None."""
        return self._held.get(key)

    def add(self, key: str, result: Any) -> None:
        """Keep a result; it is on disk when this returns."""
        if self._file is None:
            return
        self._file.write(json.dumps({"key": key, "result": result}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _read(self) -> dict[str, Any]:
        held = {}
        try:
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                    held[row["key"]] = row["result"]
                except (ValueError, KeyError, TypeError):
                    continue
        except (OSError, UnicodeDecodeError):
            pass
        return held


def _ends_in_newline(path: Path) -> bool:
    data = path.read_bytes()
    return not data or data.endswith(b"\n")
