"""Arrays where a plan runs, between guards that show a write outside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import Device
from .data import Array

_GUARD = 256
_BYTE = 0xC3


class Place:
    """Allocates on a device: CuPy's memory on a GPU, NumPy's elsewhere.

    Args:
        device: where plans run.
    """

    def __init__(self, device: Device) -> None:
        self._cuda = device.execution == "cuda"
        self._xp: Any = device.array_module() if self._cuda else np
        self._guards: list[tuple[Any, int, int]] = []

    def empty(self, shape: tuple[int, ...], dtype: Any, offset: int = 0, fill: int = 0xFF) -> Any:
        """An array of bytes `fill` (0xFF is NaN in every floating type), `offset` elements past a 256-byte boundary."""
        xp, kind = self._xp, np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        raw = xp.full(3 * _GUARD + offset * kind.itemsize + nbytes, _BYTE, np.uint8)
        address = raw.data.ptr if self._cuda else raw.ctypes.data
        start = _GUARD + offset * kind.itemsize + -address % _GUARD
        raw[start : start + nbytes] = fill
        self._guards.append((raw, start, start + nbytes))
        if self._cuda:
            return xp.ndarray(shape, kind, raw.data + start)
        return raw[start : start + nbytes].view(kind).reshape(shape)

    def put(self, values: Array | None, offset: int = 0) -> Any:
        """A copy of values."""
        if values is None:
            return None
        made = self.empty(values.shape, values.dtype, offset)
        bytes_of = (
            np.ascontiguousarray(values).view(np.uint8).reshape(-1) if values.size else np.zeros(0, np.uint8)
        )
        raw, start, stop = self._guards[-1]
        raw[start:stop] = self._xp.asarray(bytes_of)
        return made

    def get(self, array: Any) -> Array:
        """The values as a NumPy array, when everything enqueued is done."""
        if not self._cuda:
            result: Array = array.copy()
            return result
        flat = self._xp.ndarray((array.nbytes,), np.uint8, array.data)
        result = flat.get().view(array.dtype).reshape(array.shape)
        return result

    def overwritten(self) -> int:
        """How many bytes outside the arrays handed out since the last call were overwritten."""
        touched = 0
        for raw, start, stop in self._guards:
            touched += int((raw[:start] != _BYTE).sum()) + int((raw[stop:] != _BYTE).sum())
        self._guards = []
        return touched
