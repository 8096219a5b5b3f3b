"""The shapes that are measured, by operation: the published comparison's, real models', and tiny ones.

`core` is the short list that a change is judged by; `full` adds the rest.  Every row names what uses such a shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .case import FAMILIES, Case


class Row(NamedTuple):
    """A shape with the operation's parameters and its origin."""

    shape: tuple[int, ...]
    parameters: dict[str, Any]
    origin: str


def _norm(shape: tuple[int, ...], groups: int, origin: str) -> Row:
    return Row(shape, {"G": groups}, origin)


def _instance(shape: tuple[int, ...], origin: str) -> Row:
    return Row(shape, {}, origin)


def _pool(shape: tuple[int, ...], window: int, stride: int, p: float, origin: str) -> Row:
    return Row(shape, {"k": window, "s": stride, "p": p}, origin)


def _quant(shape: tuple[int, int], group: int, origin: str) -> Row:
    return Row(shape, {"g": group}, origin)


GROUP_NORM_CORE = (
    _norm((32, 320, 64, 64), 32, "diffusion U-Net, first level"),
    _norm((64, 256, 56, 56), 32, "ResNet-50 with GroupNorm, stage 2"),
    _norm((2, 64, 64, 128, 128), 8, "3-D medical net, groups of 8.4 M elements"),
    _norm((512, 64, 1024), 8, "audio encoder"),
    _norm((32, 640, 32, 32), 32, "diffusion U-Net, second level"),
    _norm((8, 640, 32, 32), 32, "diffusion U-Net, second level, small batch"),
    _norm((70000, 3, 2), 1, "very many tiny groups"),
    _norm((2, 32, 8, 8), 8, "tiny"),
)
GROUP_NORM_MORE = (
    _norm((2, 320, 64, 64), 32, "SD 1.5 U-Net, first level, one image with guidance"),
    _norm((2, 960, 64, 64), 32, "SD 1.5 U-Net, up path, concatenated skip"),
    _norm((2, 1920, 32, 32), 32, "SD 1.5 U-Net, up path, concatenated skip"),
    _norm((8, 1280, 16, 16), 32, "SD 1.5 U-Net, third level"),
    _norm((8, 1280, 8, 8), 32, "SD 1.5 U-Net, middle"),
    _norm((8, 320, 64, 64), 32, "SD 1.5 U-Net, first level, batch 8"),
    _norm((2, 320, 128, 128), 32, "SDXL U-Net, first level"),
    _norm((2, 640, 64, 64), 32, "SDXL U-Net, second level"),
    _norm((2, 1280, 32, 32), 32, "SDXL U-Net, third level"),
    _norm((1, 512, 64, 64), 32, "SD VAE decoder, latent level"),
    _norm((1, 512, 128, 128), 32, "SD VAE decoder, second level"),
    _norm((1, 512, 256, 256), 32, "SD VAE decoder, third level"),
    _norm((1, 256, 512, 512), 32, "SD VAE decoder, before the last block"),
    _norm((1, 128, 512, 512), 32, "SD VAE decoder, full resolution"),
    _norm((1, 128, 1024, 1024), 32, "SDXL VAE decoder, full resolution"),
    _norm((1, 512, 5, 64, 64), 32, "video VAE, latent level"),
    _norm((1, 256, 9, 128, 128), 32, "video VAE decoder, middle"),
    _norm((1, 128, 17, 256, 256), 32, "video VAE decoder, last level"),
    _norm((64, 256, 64, 64), 32, "class-conditional diffusion, 64 px"),
    _norm((8, 64, 256, 256), 8, "segmentation U-Net, level 1"),
    _norm((8, 128, 128, 128), 8, "segmentation U-Net, level 2"),
    _norm((8, 256, 64, 64), 8, "segmentation U-Net, level 3"),
    _norm((8, 512, 32, 32), 8, "segmentation U-Net, level 4"),
    _norm((8, 1024, 16, 16), 8, "segmentation U-Net, bottom"),
    _norm((16, 64, 112, 112), 32, "ResNet-50 with GroupNorm, stem"),
    _norm((16, 512, 28, 28), 32, "ResNet-50 with GroupNorm, stage 3"),
    _norm((16, 1024, 14, 14), 32, "ResNet-50 with GroupNorm, stage 4"),
    _norm((16, 2048, 7, 7), 32, "ResNet-50 with GroupNorm, stage 5"),
    _norm((4, 256, 129, 129), 32, "DeepLab decoder, odd extents"),
    _norm((2, 256, 200, 272), 32, "feature pyramid, finest level"),
    _norm((512, 256, 14, 14), 32, "Mask R-CNN head, regions"),
    _norm((2, 16, 128, 128, 128), 8, "3-D residual segmentation net, level 1"),
    _norm((2, 32, 96, 96, 96), 8, "3-D segmentation net"),
    _norm((2, 320, 6, 6, 6), 8, "3-D segmentation net, bottom"),
    _norm((4, 512, 51199), 512, "wav2vec 2.0 feature encoder, first layer"),
    _norm((16, 512, 400), 8, "audio encoder, later layer"),
    _norm((16, 64, 24000), 1, "EnCodec with time_group_norm, one second"),
    _norm((8, 384, 2048), 4, "music source separation, inner level"),
    _norm((4, 8, 16), 2, "tiny"),
)

INSTANCE_NORM_CORE = (
    _instance((512, 512, 7, 7), "last stage of a ResNet, many tiny groups"),
    _instance((2, 32, 128, 128, 128), "nnU-Net 3-D, level 1"),
    _instance((4, 16, 8, 8), "tiny"),
)
INSTANCE_NORM_MORE = (
    _instance((2, 64, 64, 64, 64), "nnU-Net 3-D, level 2"),
    _instance((2, 128, 32, 32, 32), "nnU-Net 3-D, level 3"),
    _instance((2, 256, 16, 16, 16), "nnU-Net 3-D, level 4"),
    _instance((2, 320, 8, 8, 8), "nnU-Net 3-D, level 5"),
    _instance((2, 320, 4, 4, 4), "nnU-Net 3-D, bottom"),
    _instance((12, 32, 512, 512), "nnU-Net 2-D, level 1"),
    _instance((12, 256, 64, 64), "nnU-Net 2-D, level 4"),
    _instance((12, 512, 16, 16), "nnU-Net 2-D, bottom"),
    _instance((1, 64, 256, 256), "CycleGAN generator, first layer"),
    _instance((1, 128, 128, 128), "CycleGAN generator, second layer"),
    _instance((1, 256, 64, 64), "CycleGAN generator, residual blocks"),
    _instance((4, 32, 256, 256), "fast style transfer, first layer"),
    _instance((4, 128, 64, 64), "fast style transfer, residual blocks"),
    _instance((8, 512, 32, 32), "AdaIN generator, 32 px"),
    _instance((16, 512, 400), "audio, per-channel normalisation"),
    _instance((32, 21, 336), "time-series forecasting, reversible normalisation"),
    _instance((2, 8, 16), "tiny"),
)

POOL_CORE = (
    _pool((64, 256, 16384), 2, 2, 2, "long audio features, halving"),
    _pool((64, 256, 16384), 4, 4, 3, "long audio features, quartering, p = 3"),
    _pool((64, 256, 16384), 5, 2, 2, "long audio features, overlapping windows"),
    _pool((64, 256, 16384), 2, 2, 1, "long audio features, sums of magnitudes"),
    _pool((64, 256, 16384), 3, 2, 2.5, "long audio features, general p"),
    _pool((64, 64, 16384), 16, 1, 2, "sliding energy, 16 samples"),
    _pool((64, 64, 16384), 64, 1, 2, "sliding energy, 64 samples"),
    _pool((8, 16, 64), 2, 2, 2, "tiny"),
)
POOL_MORE = (
    _pool((64, 256, 16384), 3, 1, 2, "dense smoothing"),
    _pool((64, 256, 16384), 3, 3, 2, "raw-waveform CNN with thirds"),
    _pool((64, 256, 16384), 5, 5, 3, "genomics CNN, pooling by 5"),
    _pool((64, 256, 16384), 7, 7, 2, "ECG, pooling by 7"),
    _pool((64, 256, 16384), 8, 8, 2, "EEG, pooling by 8"),
    _pool((64, 256, 16384), 8, 4, 1, "half-overlapping frames of 8"),
    _pool((64, 256, 16384), 7, 3, 3, "overlapping frames, odd stride"),
    _pool((64, 256, 16384), 2, 2, 1.5, "general p below 2"),
    _pool((64, 256, 16384), 8, 8, 2.5, "general p, window 8"),
    _pool((64, 64, 16384), 64, 1, 3, "sliding window of 64, p = 3"),
    _pool((64, 64, 16384), 64, 1, 2.5, "sliding window of 64, general p"),
    _pool((64, 64, 16384), 64, 64, 2, "energy of frames of 64"),
    _pool((8, 256, 65536), 16, 8, 2, "half-overlapping frames of 16"),
    _pool((32, 512, 4096), 2, 2, 2, "sequence encoder, halving"),
    _pool((16, 64, 160000), 10, 5, 2, "ten seconds of speech at 16 kHz, first layer"),
    _pool((16, 512, 3199), 3, 2, 2, "wav2vec-like encoder, later layer, odd length"),
    _pool((64, 128, 59049), 3, 3, 2, "SampleCNN, first pooling (3¹⁰ samples)"),
    _pool((128, 320, 993), 4, 4, 2, "DeepSEA-like genomics CNN"),
    _pool((4, 768, 131072), 2, 2, 2, "long-range genomics, first pooling"),
    _pool((128, 12, 5000), 5, 5, 3, "12-lead ECG, ten seconds"),
    _pool((256, 512, 128), 2, 2, 2, "text CNN"),
    _pool((4096, 512, 32), 4, 4, 2, "short rows"),
    _pool((100000, 16, 17), 3, 2, 2, "very many short rows, odd length"),
    _pool((1, 1, 100000000), 4, 4, 2, "one very long row"),
    _pool((2, 32, 100), 3, 2, 3, "tiny"),
)

QUANT_CORE = (
    _quant((16384, 8192), 128, "two 70B projections at once"),
    _quant((8192, 8192), 32, "70B attention projection"),
    _quant((8192, 8192), 64, "70B attention projection"),
    _quant((64, 256), 16, "tiny"),
)
QUANT_MORE = (
    _quant((4096, 4096), 32, "7B attention projection"),
    _quant((4096, 4096), 64, "7B attention projection"),
    _quant((4096, 4096), 128, "7B attention projection"),
    _quant((11008, 4096), 128, "Llama-2 7B up projection"),
    _quant((4096, 11008), 64, "Llama-2 7B down projection"),
    _quant((14336, 4096), 32, "Llama-3 8B up projection"),
    _quant((4096, 14336), 128, "Llama-3 8B down projection"),
    _quant((5120, 13824), 64, "Llama-2 13B down projection"),
    _quant((28672, 8192), 128, "70B up projection"),
    _quant((8192, 28672), 64, "70B down projection"),
    _quant((32000, 4096), 128, "Llama-2 embedding"),
    _quant((151936, 3584), 128, "Qwen2 7B embedding"),
    _quant((114688, 4096), 128, "eight experts' up projections"),
    _quant((131072, 128), 32, "key-value cache, heads of 128"),
    _quant((8192, 8192), 16, "groups of 16"),
    _quant((8192, 8192), 8192, "one group a row"),
    _quant((65536, 768), 48, "groups that are no power of two"),
    _quant((8192, 8190), 3, "groups of 3, rows that are no whole vectors"),
    _quant((16, 128), 32, "tiny"),
)

TABLES: dict[str, tuple[tuple[Row, ...], tuple[Row, ...]]] = {
    "group_norm": (GROUP_NORM_CORE, GROUP_NORM_MORE),
    "instance_norm": (INSTANCE_NORM_CORE, INSTANCE_NORM_MORE),
    "lp_pool1d": (POOL_CORE, POOL_MORE),
    "quantize": (QUANT_CORE, QUANT_MORE),
    "dequantize": (QUANT_CORE, QUANT_MORE),
}
"""Core and further rows by forward operation; a backward is measured on its forward's."""


def _cases(suite: str, families: tuple[str, ...], dtypes: tuple[str, ...]) -> Iterator[Case]:
    for family in families:
        for op in FAMILIES[family]:
            core, more = TABLES[op.removesuffix("_backward")]
            rows = [("core", row) for row in core]
            rows += [("full", row) for row in more] if suite == "full" else []
            for dtype in dtypes:
                for part, row in rows:
                    yield Case(op, dtype, row.shape, dict(row.parameters), row.origin, part)


def cases(suite: str, families: tuple[str, ...], dtypes: tuple[str, ...]) -> list[Case]:
    """The cases of a suite (`core`, or `full` which includes it), family by family."""
    return list(_cases(suite, families, dtypes))
