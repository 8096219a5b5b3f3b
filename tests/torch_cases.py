"""What the tests of the PyTorch front end share: devices, comparisons, and PyTorch's own test tables."""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(
    1
)  # tests run side by side, and small problems gain nothing from waiting for each other

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
dtypes = pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16],
    ids=lambda d: str(d).removeprefix("torch."),
)

TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2.5e-2}
"""Of the larger of 1 and the largest value: both sides round, and sum in other orders."""


def close(got: Any, want: Any, factor: float = 1.0) -> None:
    """Same shape, dtype and device, and values as close as the dtype lets two implementations be."""
    assert got.shape == want.shape
    assert got.dtype is want.dtype
    assert got.device == want.device
    scale = max(1.0, float(want.detach().abs().max())) if want.numel() else 1.0
    torch.testing.assert_close(got, want, rtol=0, atol=factor * scale * TOLERANCE[want.dtype])


def tables() -> tuple[Any, Any]:
    """PyTorch's tables of operator and module tests, which ship with it.

    Of the package `expecttest` they want a base class for test cases that are not run here.
    """
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operators = pytest.importorskip("torch.testing._internal.common_methods_invocations")
        modules = pytest.importorskip("torch.testing._internal.common_modules")
    return operators.op_db, modules.module_db
