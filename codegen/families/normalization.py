"""Normalization: GroupNorm and InstanceNorm, forward and backward."""

from __future__ import annotations

from ..model import Op

OPS: tuple[Op, ...] = ()
