"""The op tables, one file a family; `OPS` is every op in the order in which files are rendered."""

from __future__ import annotations

from ..model import Op
from . import normalization, pooling, quantization

OPS: tuple[Op, ...] = (*pooling.OPS, *normalization.OPS, *quantization.OPS)
