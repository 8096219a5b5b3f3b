"""The problems that are measured: shapes, buffers, our plan, the peers and the bytes that must move.

A problem makes as many buffer sets as it takes to leave the L2 cache, and for every contender a function that enqueues
one call on one set.  Correctness is checked on the same buffers, against PyTorch in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

import baracuda_registry as br

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
L2_MULTIPLE = 4
MAX_SETS = 64


@dataclass
class Case:
    """One row of the results: an operation on a shape in a dtype.

    `parameters` are the operation's own (groups, window, …).
    """

    op: str
    dtype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        extents = "×".join(map(str, self.shape))
        return f"{extents} " + " ".join(f"{k} {v}" for k, v in self.parameters.items())


@dataclass
class Problem:
    """A case with its buffers: contenders to time, floor in bytes, and a check of ours."""

    case: Case
    plan: Any
    sets: int
    floor_bytes: int
    ours: Callable[[int], Any]
    peers: dict[str, Callable[[int], Any]]
    error: Callable[[], float]
    tolerance: float
    launch_with: Callable[[Any], Callable[[int], Any]]


def _sets(bytes_a_set: int, device: br.Device) -> int:
    return max(2, min(MAX_SETS, math.ceil(L2_MULTIPLE * device.l2_bytes / max(1, bytes_a_set))))


def _runner(plan: Any, bundles: list[Any]) -> Callable[[int], Any]:
    needed = plan.workspace_size
    space = torch.empty(needed, dtype=torch.uint8, device="cuda") if needed else None
    plan.prepare()
    return lambda i: plan.run(None, space, bundles[i])


def _relative(got: Any, want: Any) -> float:
    """‖got − want‖ / ‖want‖ in float64, worst over the outputs."""
    worst = 0.0
    for a, b in zip(got, want):
        difference = torch.linalg.vector_norm(a.double() - b.double())
        worst = max(worst, float(difference / torch.linalg.vector_norm(b.double()).clamp_min(1e-30)))
    return worst


TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 5e-6, "f64": 1e-12}


def make(case: Case, device: br.Device) -> Problem:
    """Buffers and contenders of a case."""
    maker = {
        "group_norm": _group_norm,
        "group_norm_backward": _group_norm_backward,
        "lp_pool1d": _lp_pool,
        "lp_pool1d_backward": _lp_pool_backward,
        "quantize": _quantize,
        "quantize_backward": _quantize_backward,
        "dequantize": _dequantize,
        "dequantize_backward": _dequantize_backward,
    }[case.op]
    return maker(case, device)


def _randn(shape: Any, dtype: Any) -> Any:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def _problem(
    case: Case,
    device: br.Device,
    plan_type: Any,
    desc: Any,
    make_set: Callable[[], dict[str, Any]],
    bytes_a_set: int,
    floor: int,
    peers: Callable[[list[dict[str, Any]]], dict[str, Callable[[int], Any]]],
    oracle: Callable[[dict[str, Any]], tuple[Any, ...]],
    outputs: tuple[str, ...],
) -> Problem:
    sets = _sets(bytes_a_set, device)
    buffers = [make_set() for _ in range(sets)]
    fields = plan_type.arguments_type.__dataclass_fields__
    bundles = [plan_type.arguments_type(**{k: v for k, v in s.items() if k in fields}) for s in buffers]
    plan = plan_type.select(None, desc, device=device)

    def launch_with(variant: Any) -> Callable[[int], Any]:
        pinned = plan_type.select(None, desc, br.PlanPreference(variant=variant.id), device=device)
        return _runner(pinned, bundles)

    def error() -> float:
        for name in outputs:
            buffers[0][name].fill_(float("nan") if buffers[0][name].is_floating_point() else 77)
        _runner(plan, bundles)(0)
        torch.cuda.synchronize()
        return _relative([buffers[0][name] for name in outputs], oracle(buffers[0]))

    return Problem(
        case,
        plan,
        sets,
        floor,
        _runner(plan, bundles),
        peers(buffers),
        error,
        TOLERANCE[case.dtype],
        launch_with,
    )


# GroupNorm ----------------------------------------------------------------------------------------------------------


def _norm_sizes(case: Case) -> tuple[int, int, int, int, int]:
    n, c = case.shape[:2]
    spatial = math.prod(case.shape[2:])
    return n, c, spatial, case.parameters["G"], n * c * spatial


def _group_norm(case: Case, device: br.Device) -> Problem:
    n, c, s, g, count = _norm_sizes(case)
    dtype = DTYPES[case.dtype]
    stats = torch.float64 if dtype is torch.float64 else torch.float32
    gamma, beta = _randn((c,), dtype), _randn((c,), dtype)
    desc = br.GroupNormDescriptor(input_shape=case.shape, num_groups=g, element=case.dtype)

    def make_set() -> dict[str, Any]:
        x = _randn(case.shape, dtype)
        mean, rstd = (torch.empty(n * g, dtype=stats, device="cuda") for _ in range(2))
        return {
            "x": x,
            "y": torch.empty_like(x),
            "saved_mean": mean,
            "saved_rstd": rstd,
            "gamma": gamma,
            "beta": beta,
        }

    def peers(buffers: list[dict[str, Any]]) -> dict[str, Callable[[int], Any]]:
        def eager(i: int) -> Any:
            return torch.ops.aten.native_group_norm(buffers[i]["x"], gamma, beta, n, c, s, g, 1e-5)

        compiled = torch.compile(lambda x: F.group_norm(x, g, gamma, beta, 1e-5), dynamic=False)
        return {"torch": eager, "torch.compile": lambda i: compiled(buffers[i]["x"])}

    def oracle(b: dict[str, Any]) -> tuple[Any, ...]:
        return (F.group_norm(b["x"].double(), g, gamma.double(), beta.double(), 1e-5),)

    size = dtype.itemsize * count
    return _problem(case, device, br.GroupNormPlan, desc, make_set, 2 * size, 2 * size, peers, oracle, ("y",))


def _group_norm_backward(case: Case, device: br.Device) -> Problem:
    n, c, s, g, count = _norm_sizes(case)
    dtype = DTYPES[case.dtype]
    stats = torch.float64 if dtype is torch.float64 else torch.float32
    gamma = _randn((c,), dtype)
    desc = br.GroupNormBackwardDescriptor(input_shape=case.shape, num_groups=g, element=case.dtype)

    def make_set() -> dict[str, Any]:
        x, dy = _randn(case.shape, dtype), _randn(case.shape, dtype)
        _, mean, rstd = torch.ops.aten.native_group_norm(x, None, None, n, c, s, g, 1e-5)
        return {
            "x": x, "dy": dy, "dx": torch.empty_like(x), "gamma": gamma, "dgamma": torch.empty_like(gamma),
            "dbeta": torch.empty_like(gamma), "saved_mean": mean.flatten().to(stats), "saved_rstd": rstd.flatten().to(stats),
        }  # fmt: skip

    def peers(buffers: list[dict[str, Any]]) -> dict[str, Callable[[int], Any]]:
        # PyTorch keeps the statistics of 16-bit data in 16 bits.
        saved = [
            (b["saved_mean"].to(dtype).view(n, g), b["saved_rstd"].to(dtype).view(n, g)) for b in buffers
        ]

        def eager(i: int) -> Any:
            b = buffers[i]
            return torch.ops.aten.native_group_norm_backward(
                b["dy"], b["x"], *saved[i], gamma, n, c, s, g, [True, True, True]
            )

        compiled = torch.compile(
            lambda dy, x, mean, rstd: torch.ops.aten.native_group_norm_backward(
                dy, x, mean, rstd, gamma, n, c, s, g, [True, True, True]
            ),
            dynamic=False,
        )
        table = {
            "torch": eager,
            "torch.compile": lambda i: compiled(buffers[i]["dy"], buffers[i]["x"], *saved[i]),
        }
        return table

    def oracle(b: dict[str, Any]) -> tuple[Any, ...]:
        mean, rstd = (b[k].double().view(n, g) for k in ("saved_mean", "saved_rstd"))
        return tuple(
            torch.ops.aten.native_group_norm_backward(
                b["dy"].double(), b["x"].double(), mean, rstd, gamma.double(), n, c, s, g, [True, True, True]
            )
        )

    size = dtype.itemsize * count
    return _problem(
        case,
        device,
        br.GroupNormBackwardPlan,
        desc,
        make_set,
        3 * size,
        3 * size,
        peers,
        oracle,
        ("dx", "dgamma", "dbeta"),
    )


# LP pooling ---------------------------------------------------------------------------------------------------------


def _pool_desc(case: Case) -> Any:
    batch, channels, l_in = case.shape
    q = case.parameters
    return br.LpPool1dDescriptor(
        batch=batch,
        channels=channels,
        l_in=l_in,
        window=q["k"],
        stride=q["s"],
        p=float(q["p"]),
        element=case.dtype,
    )


def _lp(x: Any, case: Case) -> Any:
    """Σ|x|^p over windows to the power 1/p, as the plan defines it (PyTorch's rescales partial windows; there are none)."""
    q = case.parameters
    windows = x.double().abs().unfold(-1, q["k"], q["s"])
    return windows.pow(q["p"]).sum(-1).pow(1.0 / q["p"])


def _lp_pool(case: Case, device: br.Device) -> Problem:
    desc, dtype, q = _pool_desc(case), DTYPES[case.dtype], case.parameters
    out = (*case.shape[:2], desc.output_length)

    def make_set() -> dict[str, Any]:
        return {"x": _randn(case.shape, dtype), "y": torch.empty(out, dtype=dtype, device="cuda")}

    def peers(buffers: list[dict[str, Any]]) -> dict[str, Callable[[int], Any]]:
        def pool(x: Any) -> Any:
            return F.lp_pool1d(x, float(q["p"]), q["k"], q["s"])

        compiled = torch.compile(pool, dynamic=False)
        return {
            "torch": lambda i: pool(buffers[i]["x"]),
            "torch.compile": lambda i: compiled(buffers[i]["x"]),
        }

    size = dtype.itemsize * (math.prod(case.shape) + math.prod(out))
    return _problem(
        case,
        device,
        br.LpPool1dPlan,
        desc,
        make_set,
        size,
        size,
        peers,
        lambda b: (_lp(b["x"], case),),
        ("y",),
    )


def _lp_pool_backward(case: Case, device: br.Device) -> Problem:
    desc, dtype, q = _pool_desc(case), DTYPES[case.dtype], case.parameters
    out = (*case.shape[:2], desc.output_length)

    def make_set() -> dict[str, Any]:
        x = _randn(case.shape, dtype)
        y = _lp(x, case).to(dtype)
        return {"x": x, "y": y, "dy": _randn(out, dtype), "dx": torch.empty_like(x)}

    def peers(buffers: list[dict[str, Any]]) -> dict[str, Callable[[int], Any]]:
        graphs: dict[int, tuple[Any, Any]] = {}

        def eager(i: int) -> Any:
            # The forward graph is made in the warm-up, on the stream that is captured later.
            if i not in graphs:
                x = buffers[i]["x"].detach().requires_grad_()
                graphs[i] = (x, F.lp_pool1d(x, float(q["p"]), q["k"], q["s"]))
            x, y = graphs[i]
            return torch.autograd.grad(y, x, buffers[i]["dy"], retain_graph=True)

        with torch.cuda.stream(STREAM()):
            for i in range(len(buffers)):
                eager(i)
        return {"torch": eager}

    def oracle(b: dict[str, Any]) -> tuple[Any, ...]:
        x = b["x"].double()
        dx = torch.zeros_like(x)
        y, dy, p = b["y"].double(), b["dy"].double(), q["p"]
        for offset in range(q["k"]):
            here = dx[..., offset : offset + (y.shape[-1] - 1) * q["s"] + 1 : q["s"]]
            part = x[..., offset : offset + (y.shape[-1] - 1) * q["s"] + 1 : q["s"]]
            here += torch.nan_to_num(dy * part.sign() * (part.abs() / y).pow(p - 1))
        return (dx,)

    size = dtype.itemsize * (2 * math.prod(case.shape) + 2 * math.prod(out))
    return _problem(case, device, br.LpPool1dBackwardPlan, desc, make_set, size, size, peers, oracle, ("dx",))


# Quantization -------------------------------------------------------------------------------------------------------


def _quant_fields(case: Case) -> dict[str, Any]:
    outer, axis = case.shape
    return {
        "outer_size": outer, "axis_size": axis, "group_size": case.parameters["g"], "input_element": case.dtype,
        "output_element": "s8",
    }  # fmt: skip


def _quant_set(case: Case) -> dict[str, Any]:
    outer, axis = case.shape
    dtype, groups = DTYPES[case.dtype], (outer, axis // case.parameters["g"])
    return {
        "x": _randn(case.shape, dtype),
        "scale": (torch.rand(groups, device="cuda") * 0.02 + 0.01).to(dtype),
        "zero_point": torch.randint(-8, 8, groups, device="cuda", dtype=torch.int32),
    }


def _grouped(case: Case, t: Any) -> Any:
    return t.view(case.shape[0], -1, case.parameters["g"])


def _pair(function: Callable[..., Any], call: Callable[[Any, int], Any]) -> dict[str, Callable[[int], Any]]:
    """The same PyTorch program, eager and compiled."""
    compiled = torch.compile(function, dynamic=False)
    return {"torch": lambda i: call(function, i), "torch.compile": lambda i: call(compiled, i)}


def _quantize(case: Case, device: br.Device) -> Problem:
    limits = {"q_min": -128, "q_max": 127}
    desc = br.QuantizePerGroupDescriptor(**_quant_fields(case), **limits)

    def make_set() -> dict[str, Any]:
        b = _quant_set(case)
        return {**b, "input": b["x"], "output": torch.empty(case.shape, dtype=torch.int8, device="cuda")}

    def program(x: Any, scale: Any, zp: Any) -> Any:
        codes = torch.round(_grouped(case, x).float() / scale.float()[..., None]) + zp[..., None]
        return codes.clamp(-128, 127).to(torch.int8)

    def peers(buffers: list[dict[str, Any]]) -> dict[str, Callable[[int], Any]]:
        return _pair(program, lambda f, i: f(buffers[i]["x"], buffers[i]["scale"], buffers[i]["zero_point"]))

    def oracle(b: dict[str, Any]) -> tuple[Any, ...]:
        return (program(b["x"], b["scale"], b["zero_point"]).view(case.shape),)

    count, size = math.prod(case.shape), DTYPES[case.dtype].itemsize
    floor = count * (size + 1) + (count // case.parameters["g"]) * (size + 4)
    return _problem(
        case, device, br.QuantizePerGroupPlan, desc, make_set, floor, floor, peers, oracle, ("output",)
    )


def _quantize_backward(case: Case, device: br.Device) -> Problem:
    limits = {"q_min": -128, "q_max": 127}
    desc = br.QuantizePerGroupBackwardDescriptor(**_quant_fields(case), **limits)

    def make_set() -> dict[str, Any]:
        b = _quant_set(case)
        dy = _randn(case.shape, DTYPES[case.dtype])
        return {**b, "input": b["x"], "d_output": dy, "d_input": torch.empty_like(dy)}

    def program(x: Any, scale: Any, zp: Any, dy: Any) -> Any:
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        s = scale.to(wide)[..., None]
        codes = torch.round(_grouped(case, x).to(wide) / s) + zp[..., None]
        inside = (codes >= -128) & (codes <= 127)
        return torch.where(inside, _grouped(case, dy).to(wide) / s, 0).to(x.dtype)

    def call(f: Any, b: dict[str, Any]) -> Any:
        return f(b["x"], b["scale"], b["zero_point"], b["d_output"])

    def oracle(b: dict[str, Any]) -> tuple[Any, ...]:
        return (call(program, b).view(case.shape),)

    count, size = math.prod(case.shape), DTYPES[case.dtype].itemsize
    floor = 3 * count * size + (count // case.parameters["g"]) * (size + 4)
    return _problem(
        case, device, br.QuantizePerGroupBackwardPlan, desc, make_set, floor, floor,
        lambda buffers: _pair(program, lambda f, i: call(f, buffers[i])), oracle, ("d_input",),
    )  # fmt: skip


def _dequantize(case: Case, device: br.Device) -> Problem:
    desc = br.DequantizePerGroupDescriptor(**_quant_fields(case))
    dtype = DTYPES[case.dtype]

    def make_set() -> dict[str, Any]:
        b = _quant_set(case)
        codes = torch.randint(-128, 128, case.shape, device="cuda", dtype=torch.int8)
        return {
            "input": codes,
            "scale": b["scale"],
            "zero_point": b["zero_point"],
            "output": torch.empty_like(b["x"]),
        }

    def program(q: Any, scale: Any, zp: Any) -> Any:
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        difference = _grouped(case, q).to(torch.int32) - zp[..., None]
        return (difference.to(wide) * scale.to(wide)[..., None]).to(dtype)

    def call(f: Any, b: dict[str, Any]) -> Any:
        return f(b["input"], b["scale"], b["zero_point"])

    count, size = math.prod(case.shape), dtype.itemsize
    floor = count * (size + 1) + (count // case.parameters["g"]) * (size + 4)
    return _problem(
        case, device, br.DequantizePerGroupPlan, desc, make_set, floor, floor,
        lambda buffers: _pair(program, lambda f, i: call(f, buffers[i])),
        lambda b: (call(program, b).view(case.shape),), ("output",),
    )  # fmt: skip


def _dequantize_backward(case: Case, device: br.Device) -> Problem:
    desc = br.DequantizePerGroupBackwardDescriptor(**_quant_fields(case))
    dtype = DTYPES[case.dtype]

    def make_set() -> dict[str, Any]:
        b = _quant_set(case)
        return {"d_output": b["x"], "scale": b["scale"], "d_input": torch.empty_like(b["x"])}

    def program(dy: Any, scale: Any) -> Any:
        return _grouped(case, dy) * scale[..., None]

    count, size = math.prod(case.shape), dtype.itemsize
    floor = 2 * count * size + (count // case.parameters["g"]) * size
    return _problem(
        case, device, br.DequantizePerGroupBackwardPlan, desc, make_set, floor, floor,
        lambda buffers: _pair(program, lambda f, i: f(buffers[i]["d_output"], buffers[i]["scale"])),
        lambda b: (program(b["d_output"], b["scale"]).view(case.shape),), ("d_input",),
    )  # fmt: skip


_stream: Any = None


def STREAM() -> Any:  # noqa: N802
    """The one side stream on which everything is warmed up, captured and replayed."""
    global _stream
    if _stream is None:
        _stream = torch.cuda.Stream()
    return _stream
