"""Inputs, friendly and hostile, for every operand of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..elements import ElementKind
from ..operands import Operand
from ..sku import OpCategory

Array = NDArray[Any]

KINDS = {
    OpCategory.Pooling: ("normal", "huge", "denormal", "zeros", "specials"),
    OpCategory.Normalization: ("normal", "offset", "huge", "denormal", "constant", "specials"),
    OpCategory.Quantization: (
        "normal",
        "ties",
        "huge",
        "denormal",
        "specials",
        "wild zero points",
        "odd scales",
    ),
}
"""Kinds of data by family; the first is friendly."""

_CUSTOM = ("bfloat16",)


def finfo(element: ElementKind) -> Any:
    """Limits of a floating element type."""
    dtype = element.dtype
    return ml_dtypes.finfo(dtype) if dtype.name in _CUSTOM else np.finfo(dtype)


def cast(values: Array, element: ElementKind) -> Array:
    """Values rounded to an element type; overflow becomes infinite."""
    with np.errstate(all="ignore"):
        result: Array = values.astype(element.dtype)
    return result


def values(kind: str, shape: tuple[int, ...], element: ElementKind, seed: int, top: float) -> Array:
    """Values of a floating operand.

    Args:
        kind: one of `KINDS`.
        shape: its shape.
        element: its type.
        seed: of the generator.
        top: for `huge`, the share of the type's exponent range that values fill (1 = up to the largest number).
    """
    rng = np.random.default_rng(seed)
    limits = finfo(element)
    normal = rng.normal(size=shape)
    makers: dict[str, Callable[[], Array]] = {
        "offset": lambda: normal + min(1e4, 2.0 ** (limits.nmant - 2)),
        "huge": lambda: rng.uniform(-1, 1, shape) * 2.0 ** (top * (int(limits.maxexp) - 1)) * (2 if top == 1 else 1),
        "denormal": lambda: rng.integers(-(2**limits.nmant) + 1, 2**limits.nmant, shape) * float(limits.smallest_subnormal),
        "zeros": lambda: rng.choice([0.0, -0.0], shape),
        "constant": lambda: np.full(shape, 0.1),
        "specials": lambda: np.where(
            rng.random(shape) < 0.05, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape), normal
        ),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        made = makers[kind]() if kind in makers else normal
    return cast(np.asarray(made), element)


def quantizer(kind: str, operands: dict[str, Operand], element: ElementKind, seed: int) -> dict[str, Array]:
    """`scale`, `zero_point` and `input` of a quantizer, whichever it has; codes where the input is integral."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    shape = operands["scale"].shape
    scale = np.abs(rng.normal(size=shape)) * 0.02 + 1e-3
    if kind == "ties":
        scale = rng.choice([1.0, 3.0, 5.0], shape) * 2.0 ** rng.integers(-4, 3, shape)
    elif kind == "odd scales":
        scale = rng.choice([0.0, -0.0, np.inf, np.nan, -0.5, 1e-7], shape)
    elif kind == "denormal":
        scale = values(kind, shape, element, seed + 5, 1.0).astype(np.float64)
    made["scale"] = cast(np.asarray(scale), element)
    if "zero_point" in operands:
        zero = rng.integers(-40, 40, shape)
        if kind == "wild zero points":
            zero = rng.choice(np.array([-(2**31), 2**31 - 1, -129, 128, 2**24 + 1]), shape)
        made["zero_point"] = zero.astype(np.int32)
    operand = operands.get("input")
    if operand is None:
        return made
    if operand.element in (ElementKind.S8, ElementKind.U8):
        low, high = (-128, 128) if operand.element is ElementKind.S8 else (0, 256)
        made["input"] = rng.integers(low, high, operand.shape).astype(operand.element.dtype)
    elif kind == "ties" and operand.shape[1]:
        each = np.repeat(made["scale"].astype(np.float64), operand.shape[1] // shape[1], axis=1)
        bound = 2 ** min(7, int(finfo(element).nmant) - 4)
        made["input"] = cast((rng.integers(-bound, bound, operand.shape) + 0.5) * each, element)
    else:
        friendly = kind if kind in ("huge", "denormal", "specials") else "normal"
        made["input"] = values(friendly, operand.shape, element, seed, 1.0)
    return made
