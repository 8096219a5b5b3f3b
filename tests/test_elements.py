"""The element table: sizes, NumPy dtypes, names."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from baracuda_registry import ElementKind, Unsupported

SIZES = {
    "F16": 2, "BF16": 2, "F32": 4, "F32STRICT": 4, "F64": 8, "S8": 1, "U8": 1, "I32": 4, "I64": 8, "U32": 4, "BOOL": 1,
    "FP8E4M3": 1, "FP8E5M2": 1, "S4": Fraction(1, 2), "U4": Fraction(1, 2), "BIN": Fraction(1, 8), "COMPLEX32": 8,
    "COMPLEX64": 16,
}  # fmt: skip


def test_sizes_are_the_contracts() -> None:
    assert {kind.name: kind.size for kind in ElementKind} == SIZES


def test_dtype_has_the_size_of_the_element() -> None:
    for kind in ElementKind:
        if isinstance(kind.size, int) and kind.info.numpy_name is not None:
            assert kind.dtype.itemsize == kind.size == kind.itemsize


@pytest.mark.parametrize("kind", [ElementKind.S4, ElementKind.U4, ElementKind.BIN])
def test_packed_kinds_have_no_itemsize(kind: ElementKind) -> None:
    with pytest.raises(Unsupported, match="packed"):
        _ = kind.itemsize


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("bf16", ElementKind.BF16),
        ("BF16", ElementKind.BF16),
        (ml_dtypes.bfloat16, ElementKind.BF16),
        (np.dtype(ml_dtypes.bfloat16), ElementKind.BF16),
        (np.float16, ElementKind.F16),
        ("<f4", ElementKind.F32),
        (float, ElementKind.F64),
        (np.int8, ElementKind.S8),
        (ElementKind.U8, ElementKind.U8),
        (np.complex64, ElementKind.COMPLEX32),
    ],
)
def test_of_takes_names_and_dtypes(value: object, kind: ElementKind) -> None:
    assert ElementKind.of(value) is kind


@pytest.mark.parametrize("value", ["f33", object(), np.dtype("M8[s]"), "", None.__class__])
def test_of_refuses_the_rest(value: object) -> None:
    with pytest.raises(Unsupported, match="not known"):
        ElementKind.of(value)


def test_accumulators() -> None:
    assert ElementKind.F64.accumulator is ElementKind.F64
    for kind in (ElementKind.F16, ElementKind.BF16, ElementKind.F32):
        assert kind.accumulator is ElementKind.F32
