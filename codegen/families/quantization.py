"""Quantization: per-group quantize and dequantize, forward and backward.

All four stream through memory once and differ in what they do to an element, so they share one skeleton
(`templates/per_group.j2`) and one set of designs.
"""

from __future__ import annotations

from baracuda_registry.constraint import Constraint
from baracuda_registry.elements import FLOATING, ElementKind, MathPrecision
from baracuda_registry.manifest import RankRule
from baracuda_registry.sku import OpCategory, PrecisionGuarantee, QuantizeKind

from ..model import Design, Kernel, Op, Parameter

_TABLE = "codegen/families/quantization.py"
_TYPES = tuple((element, code) for element in FLOATING for code in (ElementKind.S8, ElementKind.U8))
_THREADS: dict[QuantizeKind, int] = {
    QuantizeKind.PER_GROUP: 256,
    QuantizeKind.PER_GROUP_BACKWARD: 256,
    QuantizeKind.DEQUANTIZE_PER_GROUP: 128,
    QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD: 128,
}
_VECTOR_BYTES = 16

_SCALE = Parameter("scale", "const elem_t* __restrict__")
_ZERO_POINT = Parameter("zero_point", "const int* __restrict__")
_Q_RANGE = (Parameter("q_min", "int"), Parameter("q_max", "int"))

# Operands by operation.  No `__restrict__` on a gradient that may be computed in place.
_OPERANDS: dict[QuantizeKind, tuple[Parameter, ...]] = {
    QuantizeKind.PER_GROUP: (
        Parameter("input", "const elem_t* __restrict__"),
        _SCALE,
        _ZERO_POINT,
        Parameter("output", "aux_t* __restrict__"),
        *_Q_RANGE,
    ),
    QuantizeKind.PER_GROUP_BACKWARD: (
        Parameter("input", "const elem_t* __restrict__"),
        _SCALE,
        _ZERO_POINT,
        Parameter("d_output", "const elem_t*"),
        Parameter("d_input", "elem_t*"),
        *_Q_RANGE,
    ),
    QuantizeKind.DEQUANTIZE_PER_GROUP: (
        Parameter("input", "const aux_t* __restrict__"),
        _SCALE,
        _ZERO_POINT,
        Parameter("output", "elem_t* __restrict__"),
    ),
    QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD: (
        Parameter("d_output", "const elem_t*"),
        _SCALE,
        Parameter("d_input", "elem_t*"),
    ),
}

# Packs of one thread: about 64 bytes of loads in flight where there is arithmetic to hide, with registers for most of a
# multiprocessor's threads; where there is next to none, more and smaller blocks come nearer to a copy.
_PACKS: dict[QuantizeKind, int] = {
    QuantizeKind.PER_GROUP: 4,
    QuantizeKind.PER_GROUP_BACKWARD: 2,
    QuantizeKind.DEQUANTIZE_PER_GROUP: 2,
    QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD: 2,
}

# Where an element costs arithmetic, a small problem is done sooner by more threads.
_COSTLY = (QuantizeKind.PER_GROUP, QuantizeKind.PER_GROUP_BACKWARD)

_TOTAL = (Parameter("total", "long long"),)
_WALK = (
    Parameter("packs", "long long"),
    Parameter("tile", "int"),
    Parameter("group_units", "long long"),
    Parameter("group_magic", "unsigned long long"),
    Parameter("group_shift", "unsigned"),
    Parameter("period", "int"),
    Parameter("period_magic", "unsigned"),
    Parameter("period_shift", "unsigned"),
)


def _exact(element: ElementKind, _: ElementKind | None) -> PrecisionGuarantee:
    """Arithmetic in acc(T), no sums at all: the accumulator is the type of the arithmetic."""
    acc = element.accumulator
    return PrecisionGuarantee(
        MathPrecision(acc.value), acc, bit_stable_on_same_hardware=True, deterministic=True
    )


def _designs(kind: QuantizeKind, template: str, element: ElementKind) -> tuple[Design, ...]:
    """Packs of 16 bytes of the floating tensor where a pack lies in one group, or in two; and single elements.

    Quantizing f64 takes packs of 32 bytes: a division costs so much there that positions should not be found for every
    two elements.
    """
    wide = _VECTOR_BYTES // element.itemsize
    if kind is QuantizeKind.PER_GROUP:
        wide = max(wide, 4)

    def design(
        name: str,
        vector: int,
        rank: int,
        summary: str,
        *constraints: Constraint,
        straddle: bool,
        rules: tuple[RankRule, ...] = (),
    ) -> Design:
        packs = min(_PACKS[kind], _PACKS[kind] * _VECTOR_BYTES // (vector * element.itemsize))
        return Design(
            name=name,
            template=template,
            summary=summary,
            kernels=(
                Kernel("stream", _OPERANDS[kind] + _WALK + (_TOTAL if straddle else ()), _THREADS[kind]),
            ),
            rank=rank,
            rank_rules=rules,
            tuning={"vector": vector, "packs": packs, "straddle": int(straddle)},
            constraints=constraints,
            alignment=_VECTOR_BYTES if vector > 1 else 1,
        )

    whole = Constraint("group_size", "multiple_of", wide, "a pack must lie in one group")
    reach = Constraint("group_size", "ge", wide, "a pack may reach into one more group, not into two")
    return (
        design(f"elementwise_v{wide}", wide, 10, f"packs of {wide} elements of one group", whole, straddle=False),
        design(
            f"straddling_v{wide}", wide, 20, f"packs of {wide} elements, each chooses between two groups", reach,
            straddle=True,
        ),
        design(
            "elementwise_v1", 1, 30, "single elements, of any group size and alignment", straddle=False,
            rules=(RankRule((Constraint("total", "le", 32768),), 5),) if kind in _COSTLY else (),
        ),
    )  # fmt: skip


def _op(kind: QuantizeKind, name: str) -> Op:
    """One row: the operation whose template and host function have this name."""

    def designs(element: ElementKind, _: ElementKind | None) -> tuple[Design, ...]:
        return _designs(kind, f"{name}.cu.j2", element)

    return Op(
        category=OpCategory.Quantization,
        kind=kind,
        types=_TYPES,
        designs=designs,
        guarantee=_exact,
        host=f"quantize.{name}",
        host_guarantee=_exact,
        table=_TABLE,
    )


OPS: tuple[Op, ...] = (
    _op(QuantizeKind.PER_GROUP, "quantize_per_group"),
    _op(QuantizeKind.PER_GROUP_BACKWARD, "quantize_per_group_backward"),
    _op(QuantizeKind.DEQUANTIZE_PER_GROUP, "dequantize_per_group"),
    _op(QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD, "dequantize_per_group_backward"),
)
