"""Straight-line code for the path that a program takes a million times: check a bundle, fill the slots, launch.

The complete checks (`operands.check`) walk a table and describe every array, which costs more than the launch itself.
What they come to for one plan and one array library is a fixed list of comparisons, so it is written out once, as
source text, the first time such a bundle has passed the complete checks.  The text decides nothing but "all is as
expected": at the first difference it gives up, and the complete checks run and raise the precise error, so that
every message has one origin.

What follows from addresses alone (alignment, overlap, the variant that serves them, the values of the pointer slots)
is remembered by address.  Sizes are the plan's, so equal addresses mean equal answers, whoever owns the memory by
then; no array is kept alive and nothing is compared by identity but dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .elements import ElementKind

if TYPE_CHECKING:
    from .operands import Operand

Launcher = Callable[[Any, Any, Any], bool]
"""`(args, stream, workspace) → launched?`; False means that nothing was done and the complete checks must speak."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How to read the facts of one library's arrays, as expressions.

    An expression names the array `{a}` and a scratch variable of its own `{m}`; it may use `ordinal` and `names`.

    Attributes:
        library: name of the library, for the file name in tracebacks.
        mismatch: for an operand, an expression that is true, or raises, unless dtype, shape, contiguity, device and
            memory are as the operand says; it may also use the library's dtype object `{dtype}` and the tuple `{shape}`.
        read_only: true where the array cannot be written, or "" where the library knows no such arrays.
        short: true, or raises, unless it is a contiguous array of at least `{nbytes}` bytes on the device: for
            workspaces.
        pointer: its address; evaluated after `mismatch` or `short`.
        dtype: the library's dtype object of an element.
        current_stream: handle of the library's current stream on the device.
        names: what else the expressions refer to.
    """

    library: str
    mismatch: Callable[[Operand], str]
    read_only: str
    short: str
    pointer: str
    dtype: Callable[[ElementKind], Any]
    current_stream: str
    names: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace that a plan needs: bytes, alignment, and how to read the array that brings it."""

    nbytes: int
    reader: Reader


def make_launcher(
    bundle: type,
    operands: Sequence[Operand],
    reader: Reader,
    workspace: Workspace | None,
    aligned: int,
    offsets: Sequence[int],
    names: Mapping[str, Any],
) -> Launcher:
    """The launcher of a plan for one library's arrays.

    Args:
        bundle: the argument bundle's type.
        operands: the argument table.
        reader: how to read the arguments.
        workspace: None where the plan needs none.
        aligned: alignment in bytes that the plan's own variant may count on in vector operands; a power of two.
        offsets: of the workspace's buffers, for that variant.
        names: what else the code refers to: `ordinal`, `device`, `stream_pointer` (`Runtime.stream_pointer`); `known`,
            by addresses the pair of a function `(slots, stream)` to call and its slots, and the `most` it may hold;
            for addresses that are not known but aligned, the `run` and the `pack` of the plan's own variant.
    """
    scope: dict[str, Any] = {**reader.names, **(workspace.reader.names if workspace else {}), **names}
    scope["bundle"] = bundle
    lines = ["def launch(args, stream, workspace):", " try:", "  if type(args) is not bundle: return False"]
    pointers: list[str] = []
    for index, operand in enumerate(operands):
        if not operand.present:
            lines.append(f"  if args.{operand.name} is not None: return False")
            continue
        fields = {name: f"{name}{index}" for name in ("a", "m", "dtype", "shape")}
        scope[fields["dtype"]] = reader.dtype(operand.element)
        scope[fields["shape"]] = operand.shape
        wrong = [reader.mismatch(operand)] + (
            [reader.read_only] if operand.output and reader.read_only else []
        )
        lines += [
            f"  a{index} = args.{operand.name}",
            f"  if {' or '.join(wrong).format(**fields)}: return False",
            f"  p{index} = {reader.pointer.format(**fields)}",
        ]
        pointers.append(f"p{index}")
    if workspace is not None:
        fields = {"a": "workspace", "m": "mw", "nbytes": str(workspace.nbytes)}
        wrong = [workspace.reader.short] + (
            [workspace.reader.read_only] if workspace.reader.read_only else []
        )
        lines += [
            f"  if {' or '.join(wrong).format(**fields)}: return False",
            f"  w = {workspace.reader.pointer.format(**fields)}",
        ]
        pointers.append("w")
    slots = [f"p{i}" if operand.present else "0" for i, operand in enumerate(operands)]
    # Without a workspace its buffers are empty, and no kernel looks where they are.
    slots += [f"w + {offset}" if workspace is not None else "0" for offset in offsets]
    unfit = [_unaligned(operands, aligned, workspace), *_overlaps(operands, workspace)]
    lines += [
        # Whatever an array's library raises here it raises again before the complete checks, which report it.
        " except Exception: return False",
        f" pointers = ({''.join(f'{name}, ' for name in pointers)})",
        " call = known.get(pointers)",
        " if call is None:",
        *(f"  if {condition}: return False" for condition in unfit if condition),
        f"  slots = ({''.join(f'{slot}, ' for slot in slots)})",
        "  if len(known) >= most: known.clear()",
        "  call = known[pointers] = (run, (slots, pack(*slots)))",
        f" if stream is None: handle = {reader.current_stream}",
        " elif type(stream) is int: handle = stream",
        " else: handle = stream_pointer(stream, device, ())",
        " call[0](call[1], handle)",
        " return True",
    ]
    return _define(lines, f"<launcher of {bundle.__name__} for {reader.library}>", scope)


def _unaligned(operands: Sequence[Operand], aligned: int, workspace: Workspace | None) -> str:
    """True unless vector operands and workspace have the alignment, and the others that of their elements."""
    groups: dict[int, list[str]] = {}
    for index, operand in enumerate(operands):
        if operand.present and (operand.vector or operand.nbytes):
            need = aligned if operand.vector else operand.element.itemsize
            groups.setdefault(need, []).append(f"p{index}")
    if workspace is not None:
        groups.setdefault(aligned, []).append("w")
    return " or ".join(
        f"({' | '.join(names)}) & {need - 1}" for need, names in sorted(groups.items()) if need > 1
    )


def _overlaps(operands: Sequence[Operand], workspace: Workspace | None) -> list[str]:
    """For every pair that must be disjoint, a condition that is true when it is not."""
    found: list[str] = []
    present = [(index, operand) for index, operand in enumerate(operands) if operand.present]
    for place, (i, one) in enumerate(present):
        for j, other in present[place + 1 :]:
            if not (one.output or other.output) or not one.nbytes or not other.nbytes:
                continue
            condition = f"p{i} < p{j} + {other.nbytes} and p{j} < p{i} + {one.nbytes}"
            tolerated = all(
                left.may_alias == right.name for left, right in ((one, other), (other, one)) if left.output
            )
            if tolerated and one.nbytes == other.nbytes:
                condition = f"p{i} != p{j} and {condition}"
            found.append(condition)
    if workspace is not None:
        found += [f"p{i} < w + {workspace.nbytes} and w < p{i} + {one.nbytes}" for i, one in present]
    return found


def make_enqueue(
    steps: Sequence[tuple[Any, ...]],
    launch: Callable[..., Any],
    zero: Callable[..., Any],
    failures: tuple[type[Exception], ...],
    explain: Callable[[int, Exception], Exception],
) -> Callable[[Sequence[int], int], None]:
    """The function `(slots, stream)` that enqueues the steps of one parameter block.

    Args:
        steps: for a launch `(kernel, grid x, y, z, block x, y, z, shared bytes, parameters)`, for a fill
            `(index of the slot that holds the address, bytes)`.
        launch: `Runtime.launch`.
        zero: `Runtime.zero`.
        failures: what they raise when the driver refuses.
        explain: the error to raise for the step at an index.
    """
    scope: dict[str, Any] = {"launch": launch, "zero": zero, "failures": failures, "explain": explain}
    lines = ["def enqueue(slots, stream):", " at = 0", " try:"]
    for index, step in enumerate(steps):
        if index:
            lines.append(f"  at = {index}")
        if len(step) == 2:
            lines.append(f"  zero(slots[{step[0]}], 0, {step[1]}, stream)")
        else:
            scope[f"k{index}"] = step[0]
            numbers = ", ".join(map(str, step[1:-1]))
            lines.append(f"  launch(k{index}, {numbers}, stream, {step[-1]}, 0)")
    lines += ["  pass", " except failures as error: raise explain(at, error) from error"]
    return _define(lines, "<launches>", scope)


def _define(lines: Sequence[str], name: str, scope: dict[str, Any]) -> Callable[..., Any]:
    exec(compile("\n".join(lines) + "\n", name, "exec"), scope)
    defined: Callable[..., Any] = scope[lines[0].split("(")[0].removeprefix("def ")]
    return defined
