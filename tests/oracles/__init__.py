"""Float64 oracles: every op from its formula, sharing no code with the kernels or the Reference backend.

Inputs are arrays of T, taken as the kernel receives them.  Arithmetic and results are in a wider type: float64 for f16,
bf16 and f32, `numpy.longdouble` (64 bits of significand or more) for f64.  In that type no intermediate of a
representable result overflows or underflows, so the formulas are written down as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def wide(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The type an oracle computes in for inputs of `dtype`: longdouble for f64, else float64."""
    if np.dtype(dtype) != np.float64:
        return np.dtype(np.float64)
    if np.finfo(np.longdouble).nmant < 63:
        raise RuntimeError(
            "the f64 oracles need a long double of 64 significant bits or more; this platform's has 53"
        )
    return np.dtype(np.longdouble)


def accumulator(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """acc(T), the type a kernel computes in: f64 for f64, else f32."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def received(value: float, dtype: npt.DTypeLike) -> Any:
    """A host-side double parameter (`p`, `eps`) as the kernel gets it, rounded to acc(T), in the wide type."""
    with np.errstate(over="ignore", under="ignore"):
        return wide(dtype).type(accumulator(dtype).type(value))
