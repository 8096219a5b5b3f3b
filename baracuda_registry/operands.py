"""The argument table of a plan and the checks that every argument goes through before anything is launched.

A plan states each argument once, as an `Operand`; presence, dtype, shape, device, contiguity, writability, alignment
and overlap all follow from that row, so no plan has checks of its own to forget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .elements import ElementKind
from .errors import BufferTooSmall, DeviceMismatch, InvalidProblem, MisalignedOperand
from .execution import View

VECTOR_BYTES = 16
"""Widest access of any kernel; better alignment than this changes nothing."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of a plan.

    Attributes:
        name: field of the argument bundle, and name of the kernels' parameter.
        element: type of its elements.
        shape: the shape it must have.
        symbols: the same in symbols, `[N,C,L_in]`, for messages.
        output: whether the plan writes it.
        present: whether it must be given; else it must be None.
        absent_because: what in the descriptor makes it absent.
        may_alias: the operand that it may be identical with (same memory), or "".
        vector: whether kernels may read or write it in vectors, so that its alignment matters.
    """

    name: str
    element: ElementKind
    shape: tuple[int, ...]
    symbols: str
    output: bool = False
    present: bool = True
    absent_because: str = ""
    may_alias: str = ""
    vector: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.element.itemsize


def check(
    plan: str,
    operands: Sequence[Operand],
    values: Sequence[Any],
    view: Callable[[Any], View],
    ordinal: int | None,
) -> list[View | None]:
    """Check every argument of a call.

    Args:
        plan: the plan's name, for messages.
        operands: the argument table.
        values: the arguments in the table's order.
        view: describes an array on the plan's device.
        ordinal: CUDA ordinal that arrays must be on; None on the host.

    Returns:
        a view of each argument, None where it is absent.

    Raises:
        InvalidProblem: presence, dtype, shape, contiguity, writability or overlap.
        DeviceMismatch: an array is elsewhere.
        BufferTooSmall: the memory behind an array ends before the array does.
        MisalignedOperand: a pointer is not aligned to its element.
    """
    views: list[View | None] = []
    for operand, value in zip(operands, values):
        if value is None or not operand.present:
            if (value is None) == operand.present:
                raise InvalidProblem(_presence(plan, operand))
            views.append(None)
            continue
        try:
            seen = view(value)
        except TypeError as error:
            where = "the host (NumPy)" if ordinal is None else f"cuda:{ordinal}"
            raise DeviceMismatch(f"{plan}: {operand.name}: {error}; want an array on {where}") from None
        if seen.element is not operand.element:
            raise InvalidProblem(
                f"{plan}: {operand.name} has dtype {seen.dtype}, want {operand.element.value}"
            )
        if seen.shape != operand.shape:
            raise InvalidProblem(
                f"{plan}: {operand.name} shape {seen.shape}, want {operand.symbols} = {operand.shape}"
            )
        if seen.ordinal != ordinal:
            raise DeviceMismatch(
                f"{plan}: {operand.name} is on {_place(seen.ordinal)}, want {_place(ordinal)}"
            )
        if not seen.contiguous:
            raise InvalidProblem(
                f"{plan}: {operand.name} is not C-contiguous in {operand.symbols}, want a contiguous array"
                " (call .contiguous() or ascontiguousarray() first)"
            )
        if seen.capacity < seen.nbytes:
            size = operand.element.itemsize
            raise BufferTooSmall(
                seen.nbytes // size, max(seen.capacity, 0) // size, plan=plan, field=operand.name
            )
        if operand.output and not seen.writable:
            raise InvalidProblem(
                f"{plan}: {operand.name} is read-only, want a writable array (the plan writes it)"
            )
        if seen.pointer % operand.element.itemsize and seen.nbytes:
            raise MisalignedOperand(
                f"{plan}: {operand.name} is at 0x{seen.pointer:x}, want a multiple of its element size {operand.element.itemsize}"
            )
        views.append(seen)
    _check_overlap(plan, operands, views)
    return views


def _check_overlap(plan: str, operands: Sequence[Operand], views: Sequence[View | None]) -> None:
    for index, operand in enumerate(operands):
        written = views[index]
        if not operand.output or written is None or not written.nbytes:
            continue
        begin, end = written.pointer, written.pointer + written.nbytes
        for other_index, other in enumerate(views):
            if (
                other is None
                or other_index == index
                or other.pointer >= end
                or other.pointer + other.nbytes <= begin
            ):
                continue
            if not other.nbytes:
                continue
            name = operands[other_index].name
            same = other.pointer == begin and other.nbytes == written.nbytes
            if same and name == operand.may_alias:
                continue
            allowed = f"; only {operand.may_alias} may be the same array" if operand.may_alias else ""
            raise InvalidProblem(
                f"{plan}: {operand.name} overlaps {name} in memory, want disjoint arrays{allowed}"
            )


def alignment(operands: Sequence[Operand], views: Sequence[View | None]) -> int:
    """Largest power of two, `VECTOR_BYTES` at most, to which every vector operand is aligned."""
    bits = VECTOR_BYTES
    for operand, seen in zip(operands, views):
        if seen is not None and operand.vector:
            bits |= seen.pointer
    return bits & -bits


def _presence(plan: str, operand: Operand) -> str:
    if operand.present:
        return f"{plan}: {operand.name} is None, want {operand.element.value} {operand.symbols} = {operand.shape}"
    return f"{plan}: {operand.name} is given, want None ({operand.absent_because})"


def _place(ordinal: int | None) -> str:
    return "the host" if ordinal is None else f"cuda:{ordinal}"
