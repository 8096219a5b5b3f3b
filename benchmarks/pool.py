"""LP pooling, forward and backward: buffers, oracle and peers.

PyTorch's `lp_pool1d` sums x^p without the magnitude, which is another function unless p is even: the peers pool |x|
there, so that everybody computes the same.  Its rescaling of partial windows does not matter, because there are none.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

import baracuda_registry as br

from .case import Case
from .data import DTYPES, randn
from .peers import Buffers, Program, Spec


def spec(case: Case) -> Spec:
    """What is measured for LP pooling."""
    batch, channels, length = case.shape
    window, stride, p = (case.parameters[name] for name in ("k", "s", "p"))
    descriptor = br.LpPool1dDescriptor(
        batch=batch, channels=channels, l_in=length, window=window, stride=stride, p=float(p), element=case.dtype
    )  # fmt: skip
    dtype, pooled = DTYPES[case.dtype], (batch, channels, case.output_length)
    even = float(p) % 2 == 0
    text = f"F.lp_pool1d({'x' if even else 'x.abs()'}, {float(p)}, {window}, {stride})"

    def pool(x: Any) -> Any:
        return F.lp_pool1d(x if even else x.abs(), float(p), window, stride)

    if case.op == "lp_pool1d":
        return Spec(
            br.LpPool1dPlan, descriptor,
            lambda: {"x": randn(case.shape, dtype), "y": torch.empty(pooled, dtype=dtype, device="cuda")},
            ("y",), lambda b: (_forward(b["x"], case),), Program(pool, ("x",), text),
        )  # fmt: skip

    def make_set() -> Buffers:
        x = randn(case.shape, dtype)
        y = _forward(x, case).to(dtype)
        return {"x": x, "y": y, "dy": randn(pooled, dtype), "dx": torch.empty_like(x)}

    return Spec(
        br.LpPool1dBackwardPlan, descriptor, make_set, ("dx",), lambda b: (_backward(b, case),),
        Program(pool, ("x",), f"autograd.grad of {text}", ("x",)),
    )  # fmt: skip


def _taps(x: Any, case: Case) -> list[Any]:
    """The i-th element of every window, for each i: views of x."""
    window, stride = case.parameters["k"], case.parameters["s"]
    span = (case.output_length - 1) * stride + 1
    return [x[..., i : i + span : stride] for i in range(window)]


def _forward(x: Any, case: Case) -> Any:
    """(Σ|x|^p)^(1/p) in float64, tap by tap, so that a window of 64 does not take 64 times the memory."""
    p = case.parameters["p"]
    total = torch.zeros((*case.shape[:2], case.output_length), dtype=torch.float64, device=x.device)
    for tap in _taps(x, case):
        total += tap.double().abs().pow(p)
    return total.pow(1.0 / p)


def _backward(b: Buffers, case: Case) -> Any:
    """Σ over the windows of dy · sgn(x) · (|x| / y)^(p − 1) in float64, from the stored y."""
    x, y, dy, p = b["x"].double(), b["y"].double(), b["dy"].double(), case.parameters["p"]
    dx = torch.zeros_like(x)
    for here, part in zip(_taps(dx, case), _taps(x, case)):
        here += torch.nan_to_num(dy * part.sign() * (part.abs() / y).pow(p - 1))
    return dx
