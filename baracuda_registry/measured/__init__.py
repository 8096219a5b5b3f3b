"""Measured times of variants, by device, operation and shape bucket: what `select` may put above ranks.

Two tables are looked in: the user's own, written by `tune` into the cache folder, then the one shipped for the device
beside this module.  Both are JSON of one form.  Times are kept of every variant, not the winner alone, so that they
serve whatever a preference or an alignment leaves eligible.  Each operation's times carry a digest of its variants:
when a kernel changes, is added or goes, they no longer count.  A file that cannot be read, or is of another form, is
no table; it never fails a selection.

`BARACUDA_TUNED=0` leaves both aside.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cache import cache_directory, write_atomically
from ..manifest import Manifest, Variant
from ..select import Measured

SCHEMA = 1
"""Version of the tables' form; a reader takes no other."""

_log = logging.getLogger("baracuda_registry")


@dataclass(frozen=True, slots=True)
class Times:
    """One operation's times.

    Attributes:
        digest: of the variants when they were taken (`digest_of`).
        buckets: by bucket, seconds by variant id.
    """

    digest: str
    buckets: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Table:
    """The times of one device.

    Attributes:
        device: the vendor's name.
        operations: by operation with its types (`operation_key`).
        origin: the file, for traces.
        about: how the times were taken: date, versions, …
    """

    device: str
    operations: Mapping[str, Times] = field(default_factory=dict)
    origin: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    def find(self, operation: str, digest: str, bucket: str) -> Measured | None:
        """The times for a bucket, None where there are none for these variants."""
        times = self.operations.get(operation)
        if times is None or times.digest != digest or bucket not in times.buckets:
            return None
        return Measured(times.buckets[bucket], bucket, self.origin)

    def with_times(self, operation: str, digest: str, bucket: str, seconds: Mapping[str, float]) -> Table:
        """A table with these times too; those of other variants of the operation are dropped."""
        old = self.operations.get(operation)
        buckets = dict(old.buckets) if old is not None and old.digest == digest else {}
        buckets[bucket] = {**buckets.get(bucket, {}), **seconds}
        operations = {**self.operations, operation: Times(digest, buckets)}
        return Table(self.device, operations, self.origin, self.about)

    def to_json(self) -> str:
        """Canonical text, one bucket a line: microseconds in the order of the operation's `variants`."""
        head = json.dumps({"schema": SCHEMA, "device": self.device, "about": dict(self.about)})[1:-1]
        blocks = []
        for operation, times in sorted(self.operations.items()):
            ids = sorted({variant for seconds in times.buckets.values() for variant in seconds})
            rows = [
                f"{json.dumps(bucket)}: {json.dumps([_microseconds(seconds.get(name)) for name in ids])}"
                for bucket, seconds in sorted(times.buckets.items())
            ]
            blocks.append(
                f'{json.dumps(operation)}: {{"digest": "{times.digest}",\n"variants": '
                + json.dumps(ids, indent=1)
                + ',\n"buckets": {\n'
                + ",\n".join(rows)
                + "\n}}"
            )
        return "{" + head + ',\n"operations": {\n' + ",\n".join(blocks) + "\n}}\n"

    @classmethod
    def parse(cls, text: str, origin: str) -> Table:
        """Inverse of `to_json`.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is not a table of this form.
        """
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}, want {SCHEMA}")
        operations = {
            operation: Times(
                record["digest"],
                {
                    bucket: {
                        name: float(value) * 1e-6
                        for name, value in zip(record["variants"], row)
                        if value is not None
                    }
                    for bucket, row in record["buckets"].items()
                },
            )
            for operation, record in data["operations"].items()
        }
        return cls(str(data["device"]), operations, origin, dict(data["about"]))


def operation_key(variants: Sequence[Variant]) -> str:
    """Category, operation and types that all these variants share, as in their SKUs' texts."""
    category, operation, element, aux, *_ = str(variants[0].sku).split("-")
    return f"{category}-{operation}-{element}-{aux}"


def digest_of(variants: Sequence[Variant], manifest: Manifest | None) -> str:
    """Digest of everything about an operation's variants that can change their times: ids, tuning and sources."""
    sources = manifest.sources if manifest is not None else {}
    rows = sorted((v.id, sorted(v.tuning.items()), sources.get(v.source or "", "")) for v in variants)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def lookup(
    device: str, variants: Sequence[Variant], manifest: Manifest | None, bucket: str
) -> Measured | None:
    """The measured times that `select` should know for an operation's variants on a device, if there are any."""
    if not variants or os.environ.get("BARACUDA_TUNED") == "0":
        return None
    operation = operation_key(variants)
    for read in (user_table, shipped_table):
        table = read(slug(device))
        if table is not None and operation in table.operations:
            found = table.find(operation, digest_of(variants, manifest), bucket)
            if found is not None:
                return found
    return None


def slug(device: str) -> str:
    """A device's name as tables are named by: `NVIDIA H200` and `H200` are `nvidia_h200`."""
    words = re.findall("[a-z0-9]+", device.lower().removeprefix("nvidia "))
    return "_".join(("nvidia", *words))


def user_path(name: str) -> Path:
    """The user's table of a device, by its slug."""
    return cache_directory() / "tuned" / f"{name}.json"


def shipped_path(name: str) -> Path:
    """The table that this package ships for a device, by its slug."""
    return Path(__file__).parent / f"{name}.json"


@functools.cache
def user_table(name: str) -> Table | None:
    """The user's table of a device, read once a process; None where there is none."""
    return read(user_path(name), name)


@functools.cache
def shipped_table(name: str) -> Table | None:
    """The shipped table of a device, read once a process; None where there is none."""
    return read(shipped_path(name), name)


def forget() -> None:
    """Read the tables anew when they are next asked for."""
    user_table.cache_clear()
    shipped_table.cache_clear()


def read(path: Path, name: str) -> Table | None:
    """The table in a file, None when it is missing, damaged, of another form or of another device."""
    try:
        table = Table.parse(path.read_text(encoding="utf-8"), str(path))
        if slug(table.device) != name:
            raise ValueError(f"it is of {table.device}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.debug("table of measured times %s is not used: %s", path, error)
        return None
    return table


def update(path: Path, device: str, change: Callable[[Table], Table]) -> None:
    """Read a table (or begin one), change it and write it whole.

    Two processes that do so at once may lose one's times, never the file.

    Raises:
        OSError: it cannot be written.
    """
    table = read(path, slug(device)) or Table(device, origin=str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, change(table).to_json().encode())
    forget()


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds * 1e6:.4g}")
