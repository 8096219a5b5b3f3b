"""compute-sanitizer over a reduced set of cases: memcheck, racecheck and synccheck report nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.sanitizer
ROOT = Path(__file__).parent.parent


def _tool() -> str:
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if found is None:
        pytest.skip("compute-sanitizer is not installed")
    return found


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_clean(tool: str) -> None:
    parts = max(1, min(4, (os.cpu_count() or 1) // 4))
    command = [_tool(), "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "tests.sanitized"]

    def run(part: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, f"{part}/{parts}"], cwd=ROOT, capture_output=True, text=True)

    with ThreadPoolExecutor(parts) as pool:
        for done in pool.map(run, range(parts)):
            output = done.stdout + done.stderr
            assert done.returncode == 0, output[-6000:]
            assert "cases" in done.stdout
            assert "ERROR SUMMARY: 0 errors" in output or "RACECHECK SUMMARY: 0 hazards" in output, output[
                -3000:
            ]
