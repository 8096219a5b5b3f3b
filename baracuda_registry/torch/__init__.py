"""PyTorch: functions that autograd records, modules to put in place of PyTorch's, and a way to do so.

The operators are `torch.ops.baracuda.*`; they trace under `torch.compile(fullgraph=True)`, run on PyTorch's current
stream without synchronising, and can be captured in CUDA graphs after a first call (which compiles).  Gradients are
first-order.  On the CPU they run on the host backend.
"""

from .functions import (
    dequantize_per_group,
    fake_quantize_per_group,
    group_norm,
    instance_norm,
    lp_pool1d,
    quantize_per_group,
)
from .modules import (
    FakeQuantizePerGroup,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LPPool1d,
)
from .replacing import Replacement, replace_modules

__all__ = [
    "FakeQuantizePerGroup",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LPPool1d",
    "Replacement",
    "dequantize_per_group",
    "fake_quantize_per_group",
    "group_norm",
    "instance_norm",
    "lp_pool1d",
    "quantize_per_group",
    "replace_modules",
]
