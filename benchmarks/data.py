"""Random device arrays: never zeros, which hide unwritten results and can run faster than real data."""

from __future__ import annotations

from typing import Any

import torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def randn(shape: Any, dtype: Any) -> Any:
    """Standard normal values of a dtype, f64 ones with all their bits."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return torch.randn(shape, device="cuda", dtype=wide).to(dtype)


def wide(dtype: Any) -> Any:
    """The type in which a careful program computes with this one."""
    return torch.float64 if dtype is torch.float64 else torch.float32
