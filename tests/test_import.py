"""Importing is cheap: no NumPy, no CuPy, no CUDA, and far under 100 ms."""

from __future__ import annotations

import subprocess
import sys

import pytest

import baracuda_registry as br


def _run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_import_touches_no_array_library() -> None:
    code = (
        "import sys, baracuda_registry as br; br.registry(); br.Device.named('H200')\n"
        "print(sorted(m for m in ('numpy', 'cupy', 'torch', 'jinja2', 'codegen', 'rich') if m in sys.modules))"
    )
    assert _run(code) == "[]"


def test_import_takes_less_than_100_ms() -> None:
    code = "import time; t = time.perf_counter(); import baracuda_registry; print(time.perf_counter() - t)"
    assert min(float(_run(code)) for _ in range(3)) < 0.1


def test_every_public_name_resolves_and_is_documented() -> None:
    for name in br.__all__:
        value = getattr(br, name)
        if callable(value):
            assert value.__doc__, name
    assert set(br.__all__) <= set(dir(br))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        br.no_such_name  # noqa: B018
