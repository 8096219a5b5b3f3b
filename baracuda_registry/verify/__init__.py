"""Checks kernel variants on this machine: what a user runs on a new GPU before trusting it.

The judge is the host backend (`baracuda_registry.reference`) on the same inputs widened to float64.  It shares no code with the
generated kernels, neither formulas nor templates, and the test suite holds it against oracles of its own; so for a GPU it
is an independent word.  Two limits, which the results name: for f64 the judge has no more digits than the kernel, so
twice the usual error is allowed; and the host backend itself is judged by itself in float64, which finds a broken
set-up (NumPy, ml_dtypes) but not a wrong formula.  Quantization is judged in its own types, because there the contract
fixes the bits.
"""

from .outcome import Outcome
from .run import verify

__all__ = ["Outcome", "verify"]
