"""The host runtime: NumPy arrays, served by the functions of `baracuda_registry.reference`.

There is nothing to load or launch here; a plan on the host calls one function with its operands by name.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from .elements import ElementKind
from .errors import Unsupported
from .execution import View
from .manifest import Variant


@functools.cache
def host_function(variant: Variant) -> Callable[..., None]:
    """The function that computes a host variant."""
    assert variant.function is not None
    module, name = variant.function.rsplit(".", 1)
    function: Callable[..., None] = getattr(
        importlib.import_module(f"baracuda_registry.reference.{module}"), name
    )
    return function


class HostRuntime:
    """Describes NumPy arrays; the host function itself runs without a launch."""

    def view(self, array: Any) -> View:
        """Describe a NumPy array."""
        return view_numpy(array)


HOST_RUNTIME: Any = HostRuntime()


def view_numpy(array: Any) -> View:
    """Describe a NumPy array; raises `TypeError` for anything else."""
    import numpy as np

    if not isinstance(array, np.ndarray):
        raise TypeError(f"a {type(array).__module__}.{type(array).__name__} is not a NumPy array")
    element, text = _numpy_element(array.dtype)
    flags = array.flags
    return View(
        array.ctypes.data if array.size else 0,
        array.shape,
        element,
        text,
        flags.c_contiguous,
        flags.writeable,
        None,
        array.nbytes,
        array.nbytes,
    )


@functools.cache
def _numpy_element(dtype: Any) -> tuple[ElementKind | None, str]:
    try:
        element = ElementKind.of(dtype) if dtype.isnative else None
    except Unsupported:
        element = None
    return element, str(dtype)
