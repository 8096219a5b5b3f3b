"""Element types: one row each in one table, with size, NumPy dtype and CUDA type.

NumPy is named, not imported: reading the registry must not pay for it.  `ElementKind.dtype` imports it on first use.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from .errors import Unsupported

if TYPE_CHECKING:
    import numpy as np


class ElementKind(enum.Enum):
    """Type of one tensor element; the value is its canonical text, as in a SKU."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F32STRICT = "f32strict"
    F64 = "f64"
    S8 = "s8"
    U8 = "u8"
    I32 = "i32"
    I64 = "i64"
    U32 = "u32"
    BOOL = "bool"
    FP8E4M3 = "fp8e4m3"
    FP8E5M2 = "fp8e5m2"
    S4 = "s4"
    U4 = "u4"
    BIN = "bin"
    COMPLEX32 = "complex32"
    COMPLEX64 = "complex64"

    def __lt__(self, other: ElementKind) -> bool:
        return self.value < other.value

    @property
    def info(self) -> ElementInfo:
        """The table row of this element."""
        return ELEMENTS[self]

    @property
    def size(self) -> int | Fraction:
        """Bytes of one element; a fraction for the packed kinds (S4, U4, BIN)."""
        return ELEMENTS[self].size

    @property
    def itemsize(self) -> int:
        """Bytes of one element of a kind that is not packed.

        Raises:
            Unsupported: the kind holds several elements a byte.
        """
        size = ELEMENTS[self].size
        if not isinstance(size, int):
            raise Unsupported(
                f"ElementKind.{self.name} is packed, {size} byte an element: it has no itemsize"
            )
        return size

    @property
    def accumulator(self) -> ElementKind:
        """acc(T): F64 for F64, I32 for the integers of a byte or less, else F32."""
        return ELEMENTS[self].accumulator

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype (through `ml_dtypes` for bf16, fp8 and 4-bit integers).

        Raises:
            Unsupported: NumPy has no dtype for it (BIN, COMPLEX32).
        """
        return _dtype(self)

    @classmethod
    def of(cls, value: object) -> ElementKind:
        """The kind that `value` names: an `ElementKind`, a text such as `"bf16"`, or anything `numpy.dtype` takes.

        Raises:
            Unsupported: nothing in the table matches.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            for kind in cls:
                if value.lower() in (kind.value, kind.name.lower()):
                    return kind
        found = _by_dtype_name().get(_dtype_name(value))
        if found is None:
            known = ", ".join(kind.value for kind in cls)
            raise Unsupported(
                f"element type {value!r} is not known; known are {known}, and their NumPy dtypes"
            )
        return found


@dataclass(frozen=True, slots=True)
class ElementInfo:
    """One row: bytes an element, NumPy dtype name, CUDA C++ type, accumulator kind."""

    size: int | Fraction
    numpy_name: str | None
    cuda_type: str | None
    accumulator: ElementKind


_E = ElementKind
ELEMENTS: dict[ElementKind, ElementInfo] = {
    _E.F16: ElementInfo(2, "float16", "__half", _E.F32),
    _E.BF16: ElementInfo(2, "bfloat16", "__nv_bfloat16", _E.F32),
    _E.F32: ElementInfo(4, "float32", "float", _E.F32),
    _E.F32STRICT: ElementInfo(4, "float32", "float", _E.F32),
    _E.F64: ElementInfo(8, "float64", "double", _E.F64),
    _E.S8: ElementInfo(1, "int8", "signed char", _E.I32),
    _E.U8: ElementInfo(1, "uint8", "unsigned char", _E.I32),
    _E.I32: ElementInfo(4, "int32", "int", _E.I32),
    _E.I64: ElementInfo(8, "int64", "long long", _E.I64),
    _E.U32: ElementInfo(4, "uint32", "unsigned int", _E.U32),
    _E.BOOL: ElementInfo(1, "bool", "bool", _E.I32),
    _E.FP8E4M3: ElementInfo(1, "float8_e4m3fn", "__nv_fp8_e4m3", _E.F32),
    _E.FP8E5M2: ElementInfo(1, "float8_e5m2", "__nv_fp8_e5m2", _E.F32),
    _E.S4: ElementInfo(Fraction(1, 2), "int4", None, _E.I32),
    _E.U4: ElementInfo(Fraction(1, 2), "uint4", None, _E.I32),
    _E.BIN: ElementInfo(Fraction(1, 8), None, None, _E.I32),
    _E.COMPLEX32: ElementInfo(8, "complex64", "float2", _E.COMPLEX32),
    _E.COMPLEX64: ElementInfo(16, "complex128", "double2", _E.COMPLEX64),
}
"""Complex kinds are named after one component, as upstream: COMPLEX32 is two f32, 8 bytes, NumPy's complex64."""

FLOATING = (ElementKind.F32, ElementKind.F64, ElementKind.F16, ElementKind.BF16)
"""The four floating types that every plan of this library serves (FP4 in the contracts)."""


class MathPrecision(enum.Enum):
    """Precision in which the arithmetic itself is carried out."""

    F16 = "f16"
    Bf16 = "bf16"
    Tf32 = "tf32"
    F32 = "f32"
    F64 = "f64"
    Int8 = "int8"
    Fp8E4M3 = "fp8e4m3"
    Fp8E5M2 = "fp8e5m2"
    Int4 = "int4"
    Binary = "binary"


@functools.cache
def _dtype(kind: ElementKind) -> np.dtype[Any]:
    import numpy as np

    name = ELEMENTS[kind].numpy_name
    if name is None:
        raise Unsupported(f"ElementKind.{kind.name} has no NumPy dtype")
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"):
        import ml_dtypes

        name = getattr(ml_dtypes, name)
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


@functools.cache
def _by_dtype_name() -> dict[str, ElementKind]:
    table: dict[str, ElementKind] = {}
    for kind, row in ELEMENTS.items():
        if row.numpy_name is not None:
            table.setdefault(row.numpy_name, kind)
    return table


def _dtype_name(value: object) -> str:
    """NumPy's name for a dtype-like value; torch dtypes print as `torch.bfloat16`."""
    text = str(value)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    try:
        import numpy as np

        return np.dtype(value).name  # type: ignore[call-overload, no-any-return]
    except TypeError:
        return text
