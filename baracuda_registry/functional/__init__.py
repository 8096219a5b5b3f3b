"""Functions on arrays, for callers who want no plans: `group_norm(x, 8)` and the like.

Each function selects a plan for its arguments (once for a shape, dtype, device and options; the memo is bounded),
allocates its results and workspace by the allocator of the library that `x` comes from (NumPy, CuPy, PyTorch, or
anything that speaks DLPack or `__cuda_array_interface__`), and enqueues on that library's current stream.  Nothing
synchronises, nothing moves between devices, and nothing is copied unless `copy=True` asks for it.  For gradients that
PyTorch records, see `baracuda_registry.torch`.
"""

from .norm import (
    group_norm,
    group_norm_backward,
    group_norm_with_stats,
    instance_norm,
    instance_norm_backward,
    instance_norm_with_stats,
)
from .per_group import (
    dequantize_per_group,
    dequantize_per_group_backward,
    quantize_per_group,
    quantize_per_group_backward,
)
from .pool import lp_pool1d, lp_pool1d_backward

__all__ = [
    "dequantize_per_group",
    "dequantize_per_group_backward",
    "group_norm",
    "group_norm_backward",
    "group_norm_with_stats",
    "instance_norm",
    "instance_norm_backward",
    "instance_norm_with_stats",
    "lp_pool1d",
    "lp_pool1d_backward",
    "quantize_per_group",
    "quantize_per_group_backward",
]
