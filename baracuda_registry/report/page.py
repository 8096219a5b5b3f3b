"""Puts data and the static parts together."""

from __future__ import annotations

import base64
import json
import zlib
from importlib import resources
from typing import Any


def assemble(catalog: dict[str, Any], sources: list[str]) -> str:
    """The page.

    Args:
        catalog: what `gather` made.
        sources: texts that the catalog's variants point to by index.
    """
    folder = resources.files(__package__)
    page = (folder / "page.html").read_text(encoding="utf-8")
    parts = {
        "/*STYLE*/": (folder / "page.css").read_text(encoding="utf-8"),
        "/*SCRIPT*/": "\n".join(
            (folder / name).read_text(encoding="utf-8") for name in ("inflate.js", "charts.js", "page.js")
        ),
        "@CATALOG@": _packed(catalog),
        "@SOURCES@": _packed(_by_line(sources)),
    }
    for mark, text in parts.items():
        before, sign, after = page.partition(mark)
        if not sign:
            raise AssertionError(f"page.html has no {mark}")
        page = before + text + after
    return page


def _by_line(texts: list[str]) -> dict[str, Any]:
    """Texts as numbers of lines of one table: generated sources share most of theirs, too far apart for a compressor."""
    table: dict[str, int] = {}
    numbered = [[table.setdefault(line, len(table)) for line in text.split("\n")] for text in texts]
    return {"lines": list(table), "texts": numbered}


def _packed(value: Any) -> str:
    """JSON, compressed (zlib), in base64: no character of it means anything to HTML."""
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return base64.b64encode(zlib.compress(data, 9)).decode()
