"""One of each generated design under AddressSanitizer, on arrays that end where their memory ends."""

from __future__ import annotations

import re

import pytest

from .cuda_on_cpu.sanitized import run_python, runtime


@pytest.mark.skipif(runtime() is None, reason="this compiler has no AddressSanitizer runtime")
def test_generated_kernels_stay_inside_their_arrays() -> None:
    done = run_python(["-m", "tests.asan_kernels"])
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    found = re.search(r"(\d+) variants, (\d+) cases", done.stdout)
    assert found is not None
    assert int(found[1]) >= 40
    assert int(found[2]) >= 200
