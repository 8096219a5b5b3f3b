"""The shapes that are measured, by operation: the published comparison's, real models', and tiny ones.

`core` is the short list that a change is judged by; `full` adds the rest.
"""

from __future__ import annotations

from .problems import Case

# input shape, groups, where it comes from
NORM_CORE = (
    ((32, 320, 64, 64), 32, "diffusion U-Net, first level"),
    ((64, 256, 56, 56), 32, "ResNet-GN stage 2"),
    ((2, 64, 64, 128, 128), 8, "3-D medical net, groups of 8.4 M"),
    ((512, 64, 1024), 8, "audio"),
    ((32, 640, 32, 32), 32, "diffusion U-Net, second level"),
    ((512, 512, 7, 7), 512, "InstanceNorm, last stage"),
    ((70000, 3, 2), 1, "very many tiny groups"),
    ((2, 32, 8, 8), 8, "tiny"),
)
NORM_MORE = (
    ((8, 640, 32, 32), 32, "diffusion U-Net, small batch"),
    ((8, 1280, 16, 16), 32, "diffusion U-Net, third level"),
    ((8, 1280, 8, 8), 32, "diffusion U-Net, middle"),
    ((2, 320, 128, 128), 32, "SDXL U-Net, first level"),
    ((1, 512, 64, 64), 32, "VAE, latent level"),
    ((1, 256, 256, 256), 32, "VAE decoder"),
    ((1, 128, 512, 512), 32, "VAE decoder, full resolution"),
    ((1, 256, 5, 64, 64), 32, "video VAE"),
    ((1, 128, 17, 128, 128), 32, "video VAE decoder"),
    ((16, 64, 112, 112), 32, "ResNet-GN stem"),
    ((16, 512, 28, 28), 32, "ResNet-GN stage 3"),
    ((16, 2048, 7, 7), 32, "ResNet-GN stage 5"),
    ((4, 256, 128, 128), 32, "segmentation decoder"),
    ((2, 32, 96, 96, 96), 8, "3-D medical net"),
    ((2, 320, 6, 6, 6), 8, "3-D medical net, bottom"),
    ((16, 512, 400), 8, "audio encoder"),
    ((32, 64, 64, 64), 64, "InstanceNorm, style transfer"),
    ((4, 256, 64, 64), 256, "InstanceNorm, generator"),
    ((2, 32, 32, 32, 32), 32, "InstanceNorm 3-D"),
    ((4, 8, 16), 2, "tiny"),
)

POOL_CORE = (
    # shape, window, stride, p
    ((64, 256, 16384), 2, 2, 2),
    ((64, 256, 16384), 4, 4, 3),
    ((64, 256, 16384), 5, 2, 2),
    ((64, 256, 16384), 2, 2, 1),
    ((64, 256, 16384), 3, 2, 2.5),
    ((64, 64, 16384), 64, 1, 2),
    ((8, 16, 64), 2, 2, 2),
)
POOL_MORE = (
    ((64, 256, 16384), 3, 1, 2),
    ((64, 256, 16384), 8, 4, 1),
    ((64, 256, 16384), 8, 8, 2.5),
    ((32, 512, 4096), 2, 2, 2),
    ((16, 64, 160000), 10, 5, 2),
    ((16, 512, 3199), 3, 2, 2),
    ((128, 128, 1000), 5, 5, 3),
    ((256, 512, 128), 2, 2, 2),
    ((1, 1, 100000000), 4, 4, 2),
    ((4096, 512, 32), 4, 4, 2),
    ((100000, 16, 17), 3, 2, 2),
    ((8, 256, 65536), 16, 8, 2),
    ((64, 64, 16384), 64, 64, 2),
    ((2, 32, 100), 3, 2, 3),
)

QUANT_CORE = (((16384, 8192), 128), ((8192, 8192), 32), ((8192, 8192), 64), ((64, 256), 16))
QUANT_MORE = (
    ((4096, 4096), 128),
    ((11008, 4096), 128),
    ((4096, 11008), 64),
    ((14336, 4096), 32),
    ((28672, 8192), 128),
    ((32000, 4096), 128),
    ((151936, 3584), 128),
    ((5120, 13824), 64),
    ((8192, 8192), 16),
    ((8192, 8192), 8192),
    ((65536, 768), 48),
    ((8192, 8190), 3),
    ((16, 128), 32),
)

OPS = {
    "norm": ("group_norm", "group_norm_backward"),
    "pool": ("lp_pool1d", "lp_pool1d_backward"),
    "quant": ("quantize", "quantize_backward", "dequantize", "dequantize_backward"),
}


def cases(suite: str, families: tuple[str, ...], dtypes: tuple[str, ...]) -> list[Case]:
    """The cases of a suite (`core` or `full`), family by family."""
    full = suite == "full"
    found: list[Case] = []
    for family in families:
        for op in OPS[family]:
            for dtype in dtypes:
                if family == "norm":
                    rows = [
                        (shape, {"G": g}) for shape, g, _ in (NORM_CORE + NORM_MORE if full else NORM_CORE)
                    ]
                elif family == "pool":
                    rows = [
                        (shape, {"k": k, "s": s, "p": p})
                        for shape, k, s, p in (POOL_CORE + POOL_MORE if full else POOL_CORE)
                    ]
                else:
                    rows = [
                        (shape, {"g": g}) for shape, g in (QUANT_CORE + QUANT_MORE if full else QUANT_CORE)
                    ]
                found += [Case(op, dtype, shape, parameters) for shape, parameters in rows]
    return found
