"""One row of the results: an operation on a shape in a dtype, and the bytes that it must move.

Nothing here needs a GPU or PyTorch: cases are listed, counted, compared with targets and reported on any machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

ITEM_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
ZERO_POINT_BYTES = 4
CODE_BYTES = 1

TINY_BYTES = 1 << 20
"""Up to this many bytes a problem is tiny: a few of them stay in any L2 cache, and latency is what counts."""

NORM_OPS = ("group_norm", "group_norm_backward", "instance_norm", "instance_norm_backward")
POOL_OPS = ("lp_pool1d", "lp_pool1d_backward")
QUANT_OPS = ("quantize", "quantize_backward", "dequantize", "dequantize_backward")
OPS = (*NORM_OPS, *POOL_OPS, *QUANT_OPS)
FAMILIES = {"norm": NORM_OPS, "pool": POOL_OPS, "quant": QUANT_OPS}


@dataclass
class Case:
    """An operation on a shape in a dtype.

    Attributes:
        op: one of `OPS`.
        dtype: `f16`, `bf16`, `f32` or `f64`.
        shape: [N, C, ...] for norms, [N, C, L] for pooling, [outer, axis] for quantization.
        parameters: the operation's own: groups G; window k, stride s, exponent p; group size g.
        origin: what uses such a shape.
        suite: `core` (what a change is judged by) or `full`.
    """

    op: str
    dtype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    origin: str = ""
    suite: str = "core"

    @property
    def label(self) -> str:
        """Shape and parameters, `32×320×64×64 G 32`."""
        extents = "×".join(map(str, self.shape))
        return " ".join([extents, *(f"{k} {v}" for k, v in self.parameters.items())])

    @property
    def key(self) -> str:
        """What tells a case from every other: operation, dtype and label."""
        return f"{self.op} {self.dtype} {self.label}"

    @property
    def count(self) -> int:
        """Elements of the big tensor."""
        return math.prod(self.shape)

    @property
    def groups(self) -> int:
        """Groups of channels a sample: C for InstanceNorm, which has no parameter for it."""
        return int(self.parameters.get("G", self.shape[1]))

    @property
    def output_length(self) -> int:
        """Windows of a row of LP pooling (without ceil_mode)."""
        return (self.shape[2] - int(self.parameters["k"])) // int(self.parameters["s"]) + 1

    @property
    def group_bytes(self) -> int:
        """Bytes of one tensor's share of a normalisation group."""
        return self.count // (self.shape[0] * self.groups) * ITEM_BYTES[self.dtype]

    @property
    def floor_bytes(self) -> int:
        """Bytes that must move: every input read once, every output written once.

        Per-channel vectors and saved statistics of the norms are left out, as in the published floors; scales and zero
        points are counted, because small groups make them a real share.
        """
        size, count = ITEM_BYTES[self.dtype], self.count
        if self.op in NORM_OPS:
            return (3 if self.op.endswith("_backward") else 2) * size * count
        if self.op in POOL_OPS:
            pooled = self.shape[0] * self.shape[1] * self.output_length
            return (2 if self.op.endswith("_backward") else 1) * size * (count + pooled)
        groups = count // int(self.parameters["g"])
        if self.op == "dequantize_backward":
            return 2 * size * count + size * groups
        tensors = 3 * size if self.op == "quantize_backward" else size + CODE_BYTES
        return tensors * count + groups * (size + ZERO_POINT_BYTES)

    @property
    def tiny(self) -> bool:
        """Whether everything of the case fits into a small part of the L2 cache."""
        return self.floor_bytes <= TINY_BYTES
