"""Every exception this library raises on purpose.

One hierarchy, so that a caller can catch `BaracudaError` and nothing else; where Python has a builtin of the same
meaning the class also derives from it, so that code that does not know this library still behaves.  Messages name
the plan, the field, the value that came and the value that was wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .select import Trace


class BaracudaError(Exception):
    """Base class of every error of this library."""


class InvalidProblem(BaracudaError, ValueError):
    """A descriptor or an argument contradicts the operation's definition (shape, presence, stride, overlap)."""


class Unsupported(BaracudaError, NotImplementedError):
    """The problem is well formed, but this library does not compute it (element type, axis, rank, …)."""


class NoVariant(Unsupported):
    """No registered variant serves the problem on this device under this preference.

    Attributes:
        trace: the whole selection, every variant with every reason for its rejection.
    """

    def __init__(self, message: str, trace: Trace) -> None:
        super().__init__(message)
        self.trace = trace


class WorkspaceTooSmall(BaracudaError, ValueError):
    """The workspace is missing or short.

    Attributes:
        needed: bytes that the plan needs.
        got: bytes that came (0 when none did).
    """

    def __init__(self, needed: int, got: int, *, plan: str = "plan") -> None:
        super().__init__(f"{plan}: workspace has {got} bytes, want at least {needed} (plan.workspace_size)")
        self.needed = needed
        self.got = got


class BufferTooSmall(BaracudaError, ValueError):
    """The memory behind an array ends before the array does (a freed or shrunk storage).

    Attributes:
        needed: elements that the plan reads or writes.
        got: elements that the memory holds.
    """

    def __init__(self, needed: int, got: int, *, plan: str = "plan", field: str = "buffer") -> None:
        super().__init__(f"{plan}: the memory behind {field} holds {got} elements, want at least {needed}")
        self.needed = needed
        self.got = got


class MisalignedOperand(BaracudaError, ValueError):
    """A pointer is less aligned than its element type, or than a pinned variant, needs."""


class DeviceMismatch(BaracudaError, ValueError):
    """An array, a stream or a plan belongs to another device than the one that runs."""


class CompileError(BaracudaError, RuntimeError):
    """A variant could not be compiled, or compiling is forbidden and no compiled form was found.

    Attributes:
        log: the compiler's log, empty when the compiler was not reached.
        sku: text of the variant's `KernelSku`.
    """

    def __init__(self, message: str, *, log: str = "", sku: str = "") -> None:
        super().__init__(message if not log else f"{message}\n{log}")
        self.log = log
        self.sku = sku


class LaunchError(BaracudaError, RuntimeError):
    """The driver refused to load or launch a kernel."""


class ManifestError(BaracudaError, RuntimeError):
    """The table of generated variants is missing, damaged or written for another version of this library."""


class ToolMissing(BaracudaError, RuntimeError):
    """An external program that the call needs (a disassembler) is not installed; the message says how to get it."""
