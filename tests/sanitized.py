"""Run variants over a reduced set of cases: the program that compute-sanitizer watches.

`python -m tests.sanitized [part/parts]`.  Memory comes straight from cudaMalloc in exact sizes, without pools or guards,
so that an access one element past an array is one that memcheck sees.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from baracuda_registry import registry

from . import cases
from .accuracy import Array
from .backends import CudaBackend

POOL = ((1, 3, 17, 2, 2, True), (2, 1, 1031, 7, 3, True), (2, 1, 163, 3, 9, True))
NORM = (
    ((2, 4, 3), 2),
    ((2, 32, 8, 8), 8),
    ((1, 4, 1031), 2),
    ((1, 48, 512), 1),
    ((2, 8, 7, 7), 8),
    ((1, 2, 20480), 2),
)
QUANT = ((3, 5, 5), (3, 96, 32), (1, 4096, 64))
KINDS = ("normal",)


class ExactBackend(CudaBackend):
    """Arrays of exactly their size, each an allocation of its own."""

    def empty(self, shape: tuple[int, ...], dtype: Any, offset_elements: int = 0, pattern: int = 0) -> Any:
        from .data import poisoned

        return self.put(poisoned(shape, dtype, pattern=pattern))

    def put(self, values: Array | None, offset_elements: int = 0) -> Any:
        if values is None:
            return None
        raw = self.cupy.asarray(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
        return self.cupy.ndarray(values.shape, values.dtype, raw.data)

    def check_guards(self) -> None:
        """No guards here."""


def main(arguments: list[str]) -> int:
    """Check one part of the variants; prints how many cases ran."""
    import cupy

    cupy.cuda.set_allocator(None)
    part, parts = map(int, (arguments[0] if arguments else "0/1").split("/"))
    cases.POOL_DATA = cases.NORM_DATA = cases.QUANT_DATA = KINDS
    cases.POOL_EXPONENTS = ((1.0, 2.0, 3.0, 2.7),)
    backend = ExactBackend(sm_count=3)  # persistent kernels go round more than once
    shapes = {"pooling": POOL, "normalization": NORM, "quantization": QUANT}
    variants = [
        v
        for v in registry().all_variants()
        if v.source and v.sku.arch.runs_on(backend.device.compute_capability)
    ]
    runs = 0
    for variant in variants[part::parts]:
        runs += cases.check(variant, backend, shapes[variant.sku.category.value]).runs
    print(f"{len(variants[part::parts])} variants, {runs} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
