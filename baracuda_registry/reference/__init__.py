"""The host backend: every plan's operation as a plain NumPy function.

These functions end every list of variants: they accept every problem that a plan accepts, need no compiler
and no device, and are what a kernel's results are read against when there is no other word on them.  They see
arrays that a plan has checked already (C-contiguous, right dtypes and shapes), write into arrays that the
caller owns, return nothing and keep no state, so that any number of threads may call them.

Three habits run through all of them:

* Arithmetic is in float64, also for the narrower element types, wherever the contract asks for accuracy
  rather than for given bits: one conversion buys freedom from overflow and from the order of a
  sum.  Quantization is the exception, because there the contract fixes the bits (a division rounded in the
  accumulator type).
* Work goes in blocks (`blocks`), so that temporaries depend on neither the tensor's size nor its shape.
* Floating point events are data, not errors: NaN and infinities propagate and no warning leaves these
  functions.
"""

from .norm import group_norm, group_norm_backward
from .pool import lp_pool1d, lp_pool1d_backward
from .quantize import (
    dequantize_per_group,
    dequantize_per_group_backward,
    quantize_per_group,
    quantize_per_group_backward,
)

__all__ = [
    "dequantize_per_group",
    "dequantize_per_group_backward",
    "group_norm",
    "group_norm_backward",
    "lp_pool1d",
    "lp_pool1d_backward",
    "quantize_per_group",
    "quantize_per_group_backward",
]
