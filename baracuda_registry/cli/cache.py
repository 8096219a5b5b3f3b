"""`cache`: the compiled variants that are kept for this user."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .common import command, console, nbytes, positive, print_json, table

_DAY = 86400


def add(commands: Any) -> None:
    """Add the command."""
    caching = command(
        commands,
        "cache",
        "show, check, prune or clear the cache of compiled variants",
        _cache,
        ("", "check", "prune --days 30", "clear"),
        "Show the cache of compiled variants; check = find damaged entries (exit code 1) and remove them; "
        "prune = remove entries not used for some days; clear = remove all.  Nothing that is running is disturbed.",
    )
    caching.add_argument("action", nargs="?", default="show", choices=("show", "check", "prune", "clear"))
    caching.add_argument(
        "--days", type=positive, default=30, help="prune: days without use (default: %(default)s)"
    )


def _cache(options: argparse.Namespace) -> int:
    from ..cache import CubinCache, cache_directory

    held = CubinCache(cache_directory())
    entries = list(held.entries())
    removed = 0
    damaged = [entry for entry in entries if options.action == "check" and held.read(entry.key) is None]
    if options.action == "clear":
        removed = sum(held.remove(entry.key) for entry in entries)
    elif options.action == "prune":
        oldest = time.time() - options.days * _DAY
        removed = sum(held.remove(entry.key) for entry in entries if entry.used < oldest)
    elif options.action == "check":
        removed = sum(held.remove(entry.key) for entry in damaged)
    left = list(held.entries())
    architectures = _by_architecture(held, left)
    data: dict[str, Any] = {
        "directory": str(held.directory),
        "entries": len(left),
        "bytes": sum(entry.nbytes for entry in left),
        "removed": removed,
        "damaged": len(damaged),
        "by_architecture": architectures,
    }
    if options.json:
        print_json(data)
        return 1 if damaged else 0
    out = console()
    out.print(f"{held.directory}", soft_wrap=True, style="bold")
    out.print(f"{len(left)} compiled variants, {nbytes(data['bytes'])}")
    if options.action != "show":
        out.print(f"{removed} removed")
    if architectures:
        rows = table("architecture", "variants", right=("variants",))
        for architecture, count in sorted(architectures.items()):
            rows.add_row(architecture, str(count))
        out.print(rows)
    return 1 if damaged else 0


def _by_architecture(held: Any, entries: list[Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        architecture = held.architecture(entry.key)
        counts[architecture] = counts.get(architecture, 0) + 1
    return counts
