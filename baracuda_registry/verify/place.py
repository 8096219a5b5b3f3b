"""The arrays of one run, between guards that show a write outside of what is to be written.

They lie in one allocation, so that a run costs one copy to the device and one back; what the kernel may not write,
inputs and guards alike, is then compared with what was put there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..device import Device
from .data import Array

_BOUNDARY = 256
_GUARD = b"\xc3"


@dataclass
class _Slot:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int
    nbytes: int
    contents: Array | None
    fill: int


@dataclass
class Arena:
    """Memory of one run.

    Attributes:
        device: where the plan runs: CuPy's memory on a GPU, NumPy's elsewhere.
    """

    device: Device
    _slots: dict[str, _Slot] = field(default_factory=dict)
    _end: int = _BOUNDARY

    def add(self, name: str, values: Array, offset: int = 0) -> None:
        """An array that must stay as it is, `offset` elements past a 256-byte boundary."""
        self._reserve(name, values.shape, values.dtype, offset, np.ascontiguousarray(values), 0)

    def add_output(
        self, name: str, shape: tuple[int, ...], dtype: Any, offset: int = 0, fill: int = 0xFF
    ) -> None:
        """An array to be written, of bytes `fill` before that; 0xFF is NaN in every floating type."""
        self._reserve(name, shape, np.dtype(dtype), offset, None, fill)

    def _reserve(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        offset: int,
        contents: Array | None,
        fill: int,
    ) -> None:
        start = self._end + offset * dtype.itemsize
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._slots[name] = _Slot(shape, dtype, start, nbytes, contents, fill)
        # A whole guard after it at least, and the next array at a boundary.
        self._end = -(-(start + nbytes + _BOUNDARY) // _BOUNDARY) * _BOUNDARY

    def place(self) -> dict[str, Any]:
        """Put everything on the device; arrays by name."""
        self._before = np.frombuffer(_GUARD * self._end, np.uint8).copy()
        for slot in self._slots.values():
            inside = self._before[slot.start : slot.start + slot.nbytes]
            inside[...] = slot.fill if slot.contents is None else slot.contents.reshape(-1).view(np.uint8)
        if self.device.execution == "cuda":
            cupy = self.device.array_module()
            self._memory: Any = cupy.asarray(self._before)
            return {
                name: cupy.ndarray(slot.shape, slot.dtype, self._memory.data + slot.start)
                for name, slot in self._slots.items()
            }
        raw = np.empty(self._end + _BOUNDARY, np.uint8)
        first = -raw.ctypes.data % _BOUNDARY
        self._memory = raw[first : first + self._end]
        self._memory[...] = self._before
        return {
            name: self._memory[slot.start : slot.start + slot.nbytes].view(slot.dtype).reshape(slot.shape)
            for name, slot in self._slots.items()
        }

    def collect(self) -> tuple[dict[str, Array], int]:
        """When everything enqueued is done: the outputs, and how many other bytes have changed."""
        after = self._memory.get() if self.device.execution == "cuda" else self._memory.copy()
        changed = after != self._before
        outputs: dict[str, Array] = {}
        for name, slot in self._slots.items():
            if slot.contents is None:
                inside = slice(slot.start, slot.start + slot.nbytes)
                changed[inside] = False
                outputs[name] = after[inside].view(slot.dtype).reshape(slot.shape)
        return outputs, int(np.count_nonzero(changed))
