"""Run generated kernels on the CPU under AddressSanitizer: `python -m tests.asan_kernels` where libasan is preloaded.

Every array, the workspace too, is an allocation of exactly its size, so that an access past its end is one that the
sanitizer sees; shared memory past what a launch asked for is poisoned by the CPU execution itself.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from baracuda_registry import ElementKind, OpCategory, registry
from baracuda_registry.manifest import Variant

from . import cases
from .accuracy import Array
from .backends import CpuBackend
from .cuda_on_cpu.sanitized import exact
from .data import poisoned
from .sanitized import NORM, POOL, QUANT


class ExactCpuBackend(CpuBackend):
    """NumPy arrays that end where their memory ends."""

    def empty(self, shape: tuple[int, ...], dtype: Any, offset_elements: int = 0, pattern: int = 0) -> Any:
        return exact(poisoned(shape, dtype, pattern=pattern))

    def put(self, values: Array | None, offset_elements: int = 0) -> Any:
        return None if values is None else exact(np.ascontiguousarray(values))

    def check_guards(self) -> None:
        """No guards here."""


def subset() -> list[Variant]:
    """One of each design: bf16, with f32 statistics or s8 codes, and of the pooling designs those for p = 2, stride 2."""
    chosen = []
    for variant in registry().all_variants():
        sku, design = variant.sku, variant.design
        if (
            variant.source is None
            or sku.element is not ElementKind.BF16
            or sku.op.name.startswith("INSTANCE")
        ):
            continue
        if sku.aux_element not in (None, ElementKind.F32, ElementKind.S8):
            continue
        if sku.category is OpCategory.Normalization and sku.aux_element is None:
            continue
        other = "p2" not in design or ("_s" in design and "_s2_" not in design)
        if sku.category is OpCategory.Pooling and other and not variant.pinned_only:
            continue
        chosen.append(variant)
    return chosen


def main() -> int:
    """Check the subset; prints how many cases ran."""
    cases.POOL_DATA = cases.NORM_DATA = cases.QUANT_DATA = ("normal",)
    cases.POOL_EXPONENTS = ((2.0,),)
    pool = (*POOL, (1, 1, 700, 700, 1, False), (1, 2, 131, 64, 1, False))
    shapes = {OpCategory.Pooling: pool, OpCategory.Normalization: NORM, OpCategory.Quantization: QUANT}
    backend = ExactCpuBackend()
    variants = subset()
    runs = sum(cases.check(variant, backend, shapes[variant.sku.category]).runs for variant in variants)
    print(f"{len(variants)} variants, {runs} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
