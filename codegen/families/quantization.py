"""Quantization: per-group quantize and dequantize, forward and backward."""

from __future__ import annotations

from baracuda_registry.constraint import Constraint
from baracuda_registry.elements import FLOATING, ElementKind, MathPrecision
from baracuda_registry.sku import OpCategory, PrecisionGuarantee, QuantizeKind

from ..model import Design, Kernel, Op, Parameter

_TABLE = "codegen/families/quantization.py"
_TYPES = tuple((element, code) for element in FLOATING for code in (ElementKind.S8, ElementKind.U8))


def _exact(element: ElementKind, _: ElementKind | None) -> PrecisionGuarantee:
    """Arithmetic in acc(T), no sums at all: the accumulator is the type of the arithmetic."""
    acc = element.accumulator
    return PrecisionGuarantee(MathPrecision(acc.value), acc, bit_stable_on_same_hardware=True, deterministic=True)


def _dequantize_backward(element: ElementKind, _: ElementKind | None) -> tuple[Design, ...]:
    parameters = (
        Parameter("d_output", "const elem_t*"),
        Parameter("scale", "const elem_t* __restrict__"),
        Parameter("d_input", "elem_t*"),
        Parameter("total", "long long"),
        Parameter("group_size", "int"),
    )
    threads = 256
    wide = 16 // element.itemsize
    return tuple(
        Design(
            name=f"elementwise_v{vector}",
            template="dequantize_per_group_backward.cu.j2",
            summary=f"one thread scales {vector} element(s) of one group",
            kernels=(Kernel("scale", parameters, threads),),
            rank=10 if vector > 1 else 20,
            tuning={"vector": vector},
            constraints=(
                Constraint("group_size", "multiple_of", vector, "a vector must lie in one group"),
            )
            if vector > 1
            else (),
            alignment=vector * element.itemsize,
        )
        for vector in (wide, 1)
    )


OPS: tuple[Op, ...] = (
    Op(
        category=OpCategory.Quantization,
        kind=QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD,
        types=_TYPES,
        designs=_dequantize_backward,
        guarantee=_exact,
        host="quantize.dequantize_per_group_backward",
        host_guarantee=_exact,
        table=_TABLE,
    ),
)
