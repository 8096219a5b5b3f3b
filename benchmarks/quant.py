"""Quantization and dequantization per group, forward and backward: buffers, oracle and peers.

PyTorch has no per-group operation, so the peers run the expression that a careful program would be: the arithmetic of
the contract in f32 (f64 for f64 data).  The same expression is the oracle: its few operations are exact or correctly
rounded there.
"""

from __future__ import annotations

from typing import Any

import torch

import baracuda_registry as br

from .case import Case
from .data import DTYPES, randn, wide
from .peers import Buffers, Program, Spec

Q_MIN, Q_MAX = -128, 127


def spec(case: Case) -> Spec:
    """What is measured for the quantization family."""
    return {
        "quantize": _quantize,
        "quantize_backward": _quantize_backward,
        "dequantize": _dequantize,
        "dequantize_backward": _dequantize_backward,
    }[case.op](case)


def _fields(case: Case) -> dict[str, Any]:
    outer, axis = case.shape
    return {
        "outer_size": outer, "axis_size": axis, "group_size": case.parameters["g"],
        "input_element": case.dtype, "output_element": "s8",
    }  # fmt: skip


def _operands(case: Case) -> Buffers:
    outer, axis = case.shape
    dtype, groups = DTYPES[case.dtype], (outer, axis // case.parameters["g"])
    return {
        "x": randn(case.shape, dtype),
        "scale": (torch.rand(groups, device="cuda", dtype=wide(dtype)) * 0.02 + 0.01).to(dtype),
        "zero_point": torch.randint(-8, 8, groups, device="cuda", dtype=torch.int32),
    }


def _codes(x: Any, scale: Any, zero_point: Any, group: int) -> Any:
    """Codes before saturation, in floating point, [outer, groups, group]."""
    kind = wide(x.dtype)
    grouped = x.view(x.shape[0], -1, group)
    return torch.round(grouped.to(kind) / scale.to(kind)[..., None]) + zero_point[..., None]


def _spec(
    case: Case,
    plan_type: Any,
    descriptor: Any,
    make_set: Any,
    outputs: tuple[str, ...],
    function: Any,
    operands: tuple[str, ...],
    text: str,
) -> Spec:
    program = Program(function, operands, text)
    return Spec(
        plan_type, descriptor, make_set, outputs,
        lambda b: (function(*(b[name] for name in operands)),), program,
    )  # fmt: skip


def _quantize(case: Case) -> Spec:
    group = case.parameters["g"]

    def make_set() -> Buffers:
        b = _operands(case)
        return {**b, "input": b["x"], "output": torch.empty(case.shape, dtype=torch.int8, device="cuda")}

    def program(x: Any, scale: Any, zero_point: Any) -> Any:
        return _codes(x, scale, zero_point, group).clamp(Q_MIN, Q_MAX).to(torch.int8)

    descriptor = br.QuantizePerGroupDescriptor(**_fields(case), q_min=Q_MIN, q_max=Q_MAX)
    return _spec(
        case, br.QuantizePerGroupPlan, descriptor, make_set, ("output",), program,
        ("x", "scale", "zero_point"), "(round(x / scale) + zero_point).clamp(-128, 127).to(int8)",
    )  # fmt: skip


def _quantize_backward(case: Case) -> Spec:
    group = case.parameters["g"]

    def make_set() -> Buffers:
        b = _operands(case)
        dy = randn(case.shape, DTYPES[case.dtype])
        return {**b, "input": b["x"], "d_output": dy, "d_input": torch.empty_like(dy)}

    def program(x: Any, scale: Any, zero_point: Any, dy: Any) -> Any:
        codes = _codes(x, scale, zero_point, group)
        inside = (codes >= Q_MIN) & (codes <= Q_MAX)
        kind = wide(x.dtype)
        slope = dy.view(codes.shape).to(kind) / scale.to(kind)[..., None]
        return torch.where(inside, slope, 0).to(x.dtype)

    descriptor = br.QuantizePerGroupBackwardDescriptor(**_fields(case), q_min=Q_MIN, q_max=Q_MAX)
    return _spec(
        case, br.QuantizePerGroupBackwardPlan, descriptor, make_set, ("d_input",), program,
        ("x", "scale", "zero_point", "d_output"), "where(−128 ≤ codes ≤ 127, dy / scale, 0)",
    )  # fmt: skip


def _dequantize(case: Case) -> Spec:
    group, dtype = case.parameters["g"], DTYPES[case.dtype]

    def make_set() -> Buffers:
        b = _operands(case)
        codes = torch.randint(-128, 128, case.shape, device="cuda", dtype=torch.int8)
        return {
            "input": codes, "scale": b["scale"], "zero_point": b["zero_point"], "output": torch.empty_like(b["x"]),
        }  # fmt: skip

    def program(codes: Any, scale: Any, zero_point: Any) -> Any:
        difference = codes.view(codes.shape[0], -1, group).to(torch.int32) - zero_point[..., None]
        kind = wide(dtype)
        return (difference.to(kind) * scale.to(kind)[..., None]).to(dtype)

    return _spec(
        case, br.DequantizePerGroupPlan, br.DequantizePerGroupDescriptor(**_fields(case)), make_set, ("output",),
        program, ("input", "scale", "zero_point"), "(q − zero_point) * scale",
    )  # fmt: skip


def _dequantize_backward(case: Case) -> Spec:
    group = case.parameters["g"]

    def make_set() -> Buffers:
        b = _operands(case)
        return {"d_output": b["x"], "scale": b["scale"], "d_input": torch.empty_like(b["x"])}

    def program(dy: Any, scale: Any) -> Any:
        return dy.view(dy.shape[0], -1, group) * scale[..., None]

    return _spec(
        case, br.DequantizePerGroupBackwardPlan, br.DequantizePerGroupBackwardDescriptor(**_fields(case)), make_set,
        ("d_input",), program, ("d_output", "scale"), "dy * scale",
    )  # fmt: skip
