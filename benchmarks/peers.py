"""The peers: PyTorch eager, `torch.compile` of the same expression, and Liger's Triton kernels where it has the op.

A family writes one natural PyTorch program; eager and compiled run that same program, so that they cannot differ in
what they are asked.  A peer whose package is missing is left out, and the results say why.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Buffers = dict[str, Any]
Call = Callable[[int], tuple[Any, ...]]
"""Enqueue one call on buffer set `i`; returns its outputs."""


@dataclass(frozen=True)
class Program:
    """Something a peer runs.

    Attributes:
        function: takes the operands in order; returns a tensor or a tuple of them.
        operands: names of buffers.
        text: how a reader would write it.
        gradient: names of the operands whose gradients are the result, `dy` being the incoming one; empty for a
            program whose own results count.  Only the backward is timed.
    """

    function: Callable[..., Any]
    operands: tuple[str, ...]
    text: str
    gradient: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spec:
    """What a family says of a case.

    Attributes:
        plan_type: our plan.
        descriptor: its problem.
        make_set: makes one buffer set; names of the plan's arguments are its arguments.
        outputs: names of the results that are compared.
        oracle: the results in float64 from a buffer set.
        program: the natural PyTorch program.
        liger: Liger's, if it has one.
    """

    plan_type: Any
    descriptor: Any
    make_set: Callable[[], Buffers]
    outputs: tuple[str, ...]
    oracle: Callable[[Buffers], tuple[Any, ...]]
    program: Program
    liger: Program | None = None


class PeerAbsentError(Exception):
    """A peer that cannot take part, with the reason."""


def missing(name: str) -> str | None:
    """Why a peer (by its name in the results) cannot run here, or None."""
    needed = {"torch": (), "torch.compile": ("triton",), "liger": ("triton", "liger_kernel.ops.group_norm")}
    for module in needed[name]:
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{module} cannot be imported ({error})"
    return None


def make(name: str, spec: Spec, buffers: list[Buffers]) -> Call:
    """A peer's function over the buffer sets.

    Raises:
        PeerAbsentError: its package is missing, or it has no such operation.
    """
    if reason := missing(name):
        raise PeerAbsentError(reason)
    if name == "liger":
        if spec.liger is None:
            raise PeerAbsentError("has no such operation")
        return _call(spec.liger, spec.liger.function, buffers)
    if name == "torch.compile":
        _reset_compiler()
        return _call(spec.program, torch.compile(spec.program.function, dynamic=False), buffers)
    return _call(spec.program, spec.program.function, buffers)


def _reset_compiler() -> None:
    """Forget compiled code and set what the measurement needs.

    Compiled code is kept by the program's code object, which the cases of a family share: without a reset the ninth
    shape would silently run eagerly.
    """
    import torch._dynamo.config
    import torch._functorch.config
    import torch._inductor.config

    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._functorch.config.donated_buffer = False  # graphs are differentiated again and again
    torch._inductor.config.compile_threads = 1  # one kernel a case; many cases compile side by side (`ahead`)


def text_of(name: str, spec: Spec) -> str:
    """How a reader would write what the peer runs."""
    program = spec.liger if name == "liger" else spec.program
    return "" if program is None else program.text


def _call(program: Program, function: Callable[..., Any], buffers: list[Buffers]) -> Call:
    if program.gradient:
        return _gradient(program, function, buffers)
    operands = [[one[name] for name in program.operands] for one in buffers]

    def call(i: int) -> tuple[Any, ...]:
        result = function(*operands[i])
        return result if isinstance(result, tuple) else (result,)

    return call


def _gradient(program: Program, function: Callable[..., Any], buffers: list[Buffers]) -> Call:
    """Backward passes over forward graphs that are made here once, on the stream that is current."""
    graphs = []
    for one in buffers:
        operands = {name: one[name].detach() for name in program.operands}
        leaves = [operands[name].requires_grad_() for name in program.gradient]
        graphs.append((function(*operands.values()), leaves, one["dy"]))

    def call(i: int) -> tuple[Any, ...]:
        result, leaves, dy = graphs[i]
        return tuple(torch.autograd.grad(result, leaves, dy, retain_graph=True))

    return call
