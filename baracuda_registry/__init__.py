"""baracuda_registry: code-generated CUDA kernel variants behind a registry.

Plans choose a variant for a problem on a device, say why, and launch it on the caller's stream.  Names are imported
on first use, so that `import baracuda_registry` touches neither NumPy nor CuPy nor CUDA.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES: dict[str, str] = {
    name: module
    for module, names in {
        "sku": (
            "ArchSku BackendKind EpilogueKind KernelSku LayoutSku NormalizationKind OpCategory PoolKind"
            " PrecisionGuarantee QuantizeKind"
        ),
        "elements": "ElementKind MathPrecision",
        "errors": (
            "BaracudaError BufferTooSmall CompileError DeviceMismatch InvalidProblem LaunchError ManifestError"
            " MisalignedOperand NoVariant ToolMissing Unsupported WorkspaceTooSmall"
        ),
        "preference": "PlanPreference",
        "device": "Device",
        "catalog": "Registry registry",
        "manifest": "Variant",
        "select": "Selection Trace",
        "tuning": "Tuning tune",
        "plans.quantize_per_group": "QuantizePerGroupArgs QuantizePerGroupDescriptor QuantizePerGroupPlan",
        "plans.quantize_per_group_backward": (
            "QuantizePerGroupBackwardArgs QuantizePerGroupBackwardDescriptor QuantizePerGroupBackwardPlan"
        ),
        "plans.dequantize_per_group": "DequantizePerGroupArgs DequantizePerGroupDescriptor DequantizePerGroupPlan",
        "plans.group_norm": "GroupNormArgs GroupNormDescriptor GroupNormPlan",
        "plans.group_norm_backward": "GroupNormBackwardArgs GroupNormBackwardDescriptor GroupNormBackwardPlan",
        "plans.instance_norm": "InstanceNormArgs InstanceNormDescriptor InstanceNormPlan",
        "plans.instance_norm_backward": (
            "InstanceNormBackwardArgs InstanceNormBackwardDescriptor InstanceNormBackwardPlan"
        ),
        "plans.lp_pool1d": "LpPool1dDescriptor LpPool1dFwArgs LpPool1dPlan",
        "plans.lp_pool1d_backward": "LpPool1dBackwardPlan LpPool1dBwArgs",
        "plans.dequantize_per_group_backward": (
            "DequantizePerGroupBackwardArgs DequantizePerGroupBackwardDescriptor DequantizePerGroupBackwardPlan"
        ),
    }.items()
    for name in names.split()
}

# `inspect` is not in __all__: a star import must not hide the standard library's.
_MODULES = ("functional", "inspect")

__all__ = [*sorted(_HOMES), "__version__", "functional"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *__all__, *_MODULES})
