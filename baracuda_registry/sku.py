"""The vocabulary of keys: what is computed, for which types and hardware, under which guarantee.

A `KernelSku` is the registry's key.  Its text is canonical and file-safe, because it names folders under `generated/`
and entries of caches; `KernelSku.parse` is its exact inverse.  Nothing is packed into bits: a person must be able to
read a key.
"""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass
from typing import TypeVar

from .elements import ElementKind, MathPrecision
from .errors import InvalidProblem


class OpCategory(enum.Enum):
    """Family an operation belongs to."""

    Gemm = "gemm"
    UnaryElementwise = "unary_elementwise"
    BinaryElementwise = "binary_elementwise"
    TernaryElementwise = "ternary_elementwise"
    GatedActivation = "gated_activation"
    Reduction = "reduction"
    Scan = "scan"
    Normalization = "normalization"
    Softmax = "softmax"
    Convolution = "convolution"
    Pooling = "pooling"
    Attention = "attention"
    Indexing = "indexing"
    Embedding = "embedding"
    ShapeLayout = "shape_layout"
    Sorting = "sorting"
    Quantization = "quantization"
    Random = "random"
    Loss = "loss"
    SegmentOps = "segment_ops"
    Image = "image"
    Fft = "fft"
    Linalg = "linalg"
    Moe = "moe"


class ArchSku(enum.Enum):
    """Architecture tier: the lowest compute capability whose instructions the code uses.

    A tier without the suffix `a` runs on every later device too; `Sm90a` runs on compute capability 9.0 alone;
    `Host` is the NumPy backend.
    """

    Sm80 = "sm80"
    Sm89 = "sm89"
    Sm90a = "sm90a"
    Host = "host"

    @property
    def compute_capability(self) -> int:
        """Tier as an integer, 80 for `Sm80`; 0 for the host."""
        return {"sm80": 80, "sm89": 89, "sm90a": 90, "host": 0}[self.value]

    def runs_on(self, compute_capability: int) -> bool:
        """Whether a device of this compute capability (90 = 9.0; 0 = the host) runs code of this tier."""
        if self is ArchSku.Host or compute_capability == 0:
            return self is ArchSku.Host and compute_capability == 0
        if self is ArchSku.Sm90a:
            return compute_capability == 90
        return compute_capability >= self.compute_capability


class BackendKind(enum.Enum):
    """Who computes it: our generated CUDA, NumPy, or (reserved) a vendor library."""

    Bespoke = "bespoke"
    Reference = "reference"
    Cutlass = "cutlass"
    Cublas = "cublas"
    CublasLt = "cublaslt"
    Cudnn = "cudnn"
    Cufft = "cufft"
    Cusolver = "cusolver"
    Cusparse = "cusparse"
    Curand = "curand"
    Cub = "cub"


class LayoutSku(enum.Enum):
    """Reserved for matrix products: row/column order of A, B and C."""

    Rcr = "rcr"
    Rrr = "rrr"


class EpilogueKind(enum.Enum):
    """Reserved for matrix products: what is fused behind the product."""

    Identity = "identity"
    Bias = "bias"
    BiasRelu = "bias_relu"
    BiasGelu = "bias_gelu"
    BiasSilu = "bias_silu"


class PoolKind(enum.IntEnum):
    """Pooling operations; the numbers are upstream's."""

    MAX_POOL2D = 0
    MAX_POOL2D_BACKWARD = 1
    AVG_POOL2D_INCLUDE_PAD = 2
    AVG_POOL2D_INCLUDE_PAD_BACKWARD = 3
    AVG_POOL2D_EXCLUDE_PAD = 4
    AVG_POOL2D_EXCLUDE_PAD_BACKWARD = 5
    MAX_POOL1D = 6
    MAX_POOL3D = 8
    MAX_POOL1D_BACKWARD = 14
    AVG_POOL1D_INCLUDE_PAD_BACKWARD = 15
    AVG_POOL1D_INCLUDE_PAD = 16
    AVG_POOL1D_EXCLUDE_PAD = 17
    AVG_POOL1D_EXCLUDE_PAD_BACKWARD = 18
    MAX_POOL3D_BACKWARD = 19
    AVG_POOL3D_INCLUDE_PAD = 20
    AVG_POOL3D_INCLUDE_PAD_BACKWARD = 21
    AVG_POOL3D_EXCLUDE_PAD = 22
    AVG_POOL3D_EXCLUDE_PAD_BACKWARD = 23
    ADAPTIVE_AVG_POOL1D = 24
    ADAPTIVE_AVG_POOL1D_BACKWARD = 25
    ADAPTIVE_AVG_POOL2D = 26
    ADAPTIVE_AVG_POOL2D_BACKWARD = 27
    ADAPTIVE_AVG_POOL3D = 28
    ADAPTIVE_AVG_POOL3D_BACKWARD = 29
    ADAPTIVE_MAX_POOL1D = 30
    ADAPTIVE_MAX_POOL1D_BACKWARD = 31
    ADAPTIVE_MAX_POOL2D = 32
    ADAPTIVE_MAX_POOL2D_BACKWARD = 33
    ADAPTIVE_MAX_POOL3D = 34
    ADAPTIVE_MAX_POOL3D_BACKWARD = 35
    LP_POOL1D = 36
    LP_POOL2D = 37
    FRACTIONAL_MAX_POOL2D = 38
    FRACTIONAL_MAX_POOL3D = 39
    LP_POOL1D_BACKWARD = 40
    LP_POOL2D_BACKWARD = 41
    FRACTIONAL_MAX_POOL2D_BACKWARD = 42
    FRACTIONAL_MAX_POOL3D_BACKWARD = 43
    LP_POOL3D = 44
    LP_POOL3D_BACKWARD = 45


class NormalizationKind(enum.IntEnum):
    """Normalizations; 0–4 are upstream's numbers, the backward kinds are this library's own."""

    RMS_NORM = 0
    LAYER_NORM = 1
    GROUP_NORM = 2
    BATCH_NORM = 3
    INSTANCE_NORM = 4
    RMS_NORM_BACKWARD = 5
    LAYER_NORM_BACKWARD = 6
    GROUP_NORM_BACKWARD = 7
    BATCH_NORM_BACKWARD = 8
    INSTANCE_NORM_BACKWARD = 9


class QuantizeKind(enum.IntEnum):
    """Quantization operations; the numbers are upstream's."""

    PER_TENSOR = 0
    PER_TENSOR_BACKWARD = 1
    DEQUANTIZE_PER_TENSOR = 2
    DEQUANTIZE_PER_TENSOR_BACKWARD = 3
    PER_CHANNEL = 4
    PER_CHANNEL_BACKWARD = 5
    DEQUANTIZE_PER_CHANNEL = 6
    DEQUANTIZE_PER_CHANNEL_BACKWARD = 7
    FAKE_QUANTIZE = 8
    FAKE_QUANTIZE_BACKWARD = 9
    PER_TOKEN = 16
    PER_TOKEN_BACKWARD = 17
    PER_GROUP = 18
    PER_GROUP_BACKWARD = 19
    DYNAMIC_RANGE = 20
    DEQUANTIZE_PER_TOKEN = 21
    DEQUANTIZE_PER_TOKEN_BACKWARD = 22
    DEQUANTIZE_PER_GROUP = 23
    DEQUANTIZE_PER_GROUP_BACKWARD = 24


OpKind = PoolKind | NormalizationKind | QuantizeKind
"""Any family's kind enum."""

KIND_OF_CATEGORY: dict[OpCategory, type[PoolKind] | type[NormalizationKind] | type[QuantizeKind]] = {
    OpCategory.Pooling: PoolKind,
    OpCategory.Normalization: NormalizationKind,
    OpCategory.Quantization: QuantizeKind,
}
"""The kind enum of each category that has operations."""


@dataclass(frozen=True, slots=True)
class PrecisionGuarantee:
    """What a kernel promises of its numbers; every label is tested.

    Attributes:
        math_precision: precision of the arithmetic.
        accumulator: element kind in which sums are held.
        bit_stable_on_same_hardware: the same bits from run to run on the same GPU model.
        deterministic: no cross-block atomics on floating values, no order that depends on scheduling.
    """

    math_precision: MathPrecision
    accumulator: ElementKind
    bit_stable_on_same_hardware: bool
    deterministic: bool

    def __str__(self) -> str:
        stable = "stable" if self.bit_stable_on_same_hardware else "unstable"
        order = "ordered" if self.deterministic else "unordered"
        return f"{self.math_precision.value}.{self.accumulator.value}.{stable}.{order}"

    @classmethod
    def parse(cls, text: str) -> PrecisionGuarantee:
        """Inverse of `str`.

        Raises:
            InvalidProblem: the text is not a guarantee's.
        """
        parts = text.split(".")
        if (
            len(parts) != 4
            or parts[2] not in ("stable", "unstable")
            or parts[3] not in ("ordered", "unordered")
        ):
            raise InvalidProblem(f"precision guarantee {text!r} is not of the form f32.f32.stable.ordered")
        try:
            math, accumulator = MathPrecision(parts[0]), ElementKind(parts[1])
        except ValueError as error:
            raise InvalidProblem(f"precision guarantee {text!r}: {error}") from None
        return cls(math, accumulator, parts[2] == "stable", parts[3] == "ordered")


_Member = TypeVar("_Member", bound=enum.Enum)


def _member(kind: type[_Member], text: str, field: str, sku: str) -> _Member:
    for member in kind:
        if str(member.value) == text:
            return member
    known = ", ".join(str(member.value) for member in kind)
    raise InvalidProblem(f"SKU {sku!r}: {field} {text!r} is not one of {known}")


def _optional(kind: type[_Member], text: str, field: str, sku: str) -> _Member | None:
    return None if text == "none" else _member(kind, text, field, sku)


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class KernelSku:
    """What a kernel computes, for which types and tier, under which guarantee: the registry's key.

    Attributes:
        category: operation family.
        op: the family's own kind (`PoolKind`, `NormalizationKind`, `QuantizeKind`).
        element: type of the main tensors.
        aux_element: second type where the operation has one (codes of a quantizer, statistics of a norm), else None.
        layout: reserved, None here.
        epilogue: reserved, None here.
        arch: architecture tier.
        backend: who computes it.
        precision_guarantee: what is promised of the numbers.
    """

    category: OpCategory
    op: OpKind
    element: ElementKind
    aux_element: ElementKind | None
    layout: LayoutSku | None
    epilogue: EpilogueKind | None
    arch: ArchSku
    backend: BackendKind
    precision_guarantee: PrecisionGuarantee

    def __post_init__(self) -> None:
        wanted = KIND_OF_CATEGORY.get(self.category)
        if wanted is None:
            raise InvalidProblem(
                f"KernelSku: category {self.category.name} has no operations in this library"
            )
        if type(self.op) is not wanted:
            raise InvalidProblem(
                f"KernelSku: op is {self.op!r}, want a {wanted.__name__} in category {self.category.name}"
            )

    def __str__(self) -> str:
        return "-".join(
            (
                self.category.value,
                self.op.name.lower(),
                self.element.value,
                "none" if self.aux_element is None else self.aux_element.value,
                "none" if self.layout is None else self.layout.value,
                "none" if self.epilogue is None else self.epilogue.value,
                self.arch.value,
                self.backend.value,
                str(self.precision_guarantee),
            )
        )

    @classmethod
    def parse(cls, text: str) -> KernelSku:
        """Inverse of `str`: `KernelSku.parse(str(sku)) == sku`.

        Raises:
            InvalidProblem: the text is not a SKU's; the message names the field.
        """
        parts = text.split("-") if isinstance(text, str) else []
        if len(parts) != 9 or not re.fullmatch(r"[a-z0-9_.-]+", text):
            raise InvalidProblem(f"SKU {text!r} does not have nine fields joined by '-'")
        category = _member(OpCategory, parts[0], "category", text)
        kinds = KIND_OF_CATEGORY.get(category)
        if kinds is None:
            raise InvalidProblem(f"SKU {text!r}: category {parts[0]!r} has no operations in this library")
        try:
            op = kinds[parts[1].upper()]
        except KeyError:
            known = ", ".join(kind.name.lower() for kind in kinds)
            raise InvalidProblem(f"SKU {text!r}: op {parts[1]!r} is not one of {known}") from None
        sku = cls(
            category,
            op,
            _member(ElementKind, parts[2], "element", text),
            _optional(ElementKind, parts[3], "aux_element", text),
            _optional(LayoutSku, parts[4], "layout", text),
            _optional(EpilogueKind, parts[5], "epilogue", text),
            _member(ArchSku, parts[6], "arch", text),
            _member(BackendKind, parts[7], "backend", text),
            PrecisionGuarantee.parse(parts[8]),
        )
        if str(sku) != text:
            raise InvalidProblem(f"SKU {text!r} is not canonical, want {sku}")
        return sku

    @property
    def _order(self) -> tuple[object, ...]:
        # Text alone would sort sm100 before sm80 and hide the kinds' numbers.
        return (
            self.category.value,
            int(self.op),
            self.element.value,
            "" if self.aux_element is None else self.aux_element.value,
            "" if self.layout is None else self.layout.value,
            "" if self.epilogue is None else self.epilogue.value,
            -self.arch.compute_capability,
            self.backend.value,
            str(self.precision_guarantee),
        )

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, KernelSku):
            return NotImplemented
        return self._order < other._order
