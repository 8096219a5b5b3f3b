"""A whole network with PyTorch's modules beside the same network after `replace_modules`: `python -m benchmarks.network`.

Kernels alone say how fast a kernel is; this says what that is worth beside convolutions, and what the front end costs.
The network is a denoising U-Net with GroupNorm and SiLU, as diffusion models have them.  *Eager* is the wall time of
steps enqueued one after another, *graph* that of a replayed CUDA graph, which leaves the host out.  The two networks
take turns, and their results are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import baracuda_registry.torch as bt
from baracuda_registry import functional

from .results import summary

ROUNDS, STEPS, WARM = 9, 10, 5
AGREEMENT = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest difference of the outputs, relative to the largest output, with which the times mean anything."""


def block(inputs: int, outputs: int, groups: int) -> Any:
    """Two convolutions, each after GroupNorm and SiLU."""
    nn = torch.nn
    return nn.Sequential(
        nn.GroupNorm(groups, inputs),
        nn.SiLU(),
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(groups, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
    )


class Denoiser(torch.nn.Module):  # type: ignore[misc]
    """Three levels of two residual blocks each, down and up again, with skips."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        nn = torch.nn
        widths = (width, 2 * width, 4 * width)
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.ModuleList(
            nn.ModuleList((block(w, w, groups), nn.Conv2d(w, min(2 * w, widths[-1]), 3, stride=2, padding=1)))
            for w in widths
        )
        self.middle = block(widths[-1], widths[-1], groups)
        self.up = nn.ModuleList(
            nn.ModuleList(
                (nn.ConvTranspose2d(min(2 * w, widths[-1]), w, 2, stride=2), block(2 * w, w, groups))
            )
            for w in reversed(widths)
        )
        self.leave = nn.Sequential(nn.GroupNorm(groups, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x: Any) -> Any:
        h = self.enter(x)
        skips = []
        for blocks, smaller in self.down:
            h = h + blocks(h)
            skips.append(h)
            h = smaller(h)
        h = h + self.middle(h)
        for larger, blocks in self.up:
            h = larger(h)
            h = h + blocks(torch.cat((h, skips.pop()), 1))
        return self.leave(h)


def step_of(model: Any, x: Any, target: Any, training: bool) -> Callable[[], Any]:
    """A training step without an optimizer, or an inference."""
    if not training:

        def infer() -> Any:
            with torch.no_grad():
                return model(x)

        return infer

    def train() -> Any:
        model.zero_grad(set_to_none=False)
        loss = (model(x) - target).float().square().mean()
        loss.backward()
        return loss

    return train


def captured(step: Callable[[], Any]) -> Callable[[], Any]:
    """The step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], Any] = graph.replay
    return replay


def seconds(steps: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of a step in every round, the contenders taking turns."""
    for step in steps.values():
        for _ in range(WARM):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - started) / STEPS)
    return times


def measure(options: argparse.Namespace, dtype: Any) -> list[dict[str, Any]]:
    """Rows of one dtype: training and inference, eager and as a graph."""
    torch.manual_seed(0)
    size = (options.batch, 4, options.size, options.size)
    theirs = Denoiser(options.width, options.groups).to("cuda", dtype)
    ours = copy.deepcopy(theirs)
    print(str(bt.replace_modules(ours)).splitlines()[0])
    x, target = (torch.randn(size, device="cuda", dtype=dtype) for _ in range(2))
    # TF32 convolutions would blur f32 by 1e-3; what is timed runs as PyTorch sets it.
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        want, got = theirs(x).float(), ours(x).float()
    difference = float((got - want).abs().max() / want.abs().max())
    rows = []
    for training in (True, False):
        steps = {name: step_of(m, x, target, training) for name, m in (("torch", theirs), ("baracuda", ours))}
        for way in ("eager", "graph"):
            timed = steps if way == "eager" else {name: captured(step) for name, step in steps.items()}
            times = seconds(timed)
            medians = {name: statistics.median(seen) for name, seen in times.items()}
            rows.append(
                {
                    "dtype": str(dtype).removeprefix("torch."),
                    "step": "training" if training else "inference",
                    "way": way,
                    "shape": size,
                    "width": options.width,
                    "groups": options.groups,
                    "difference": difference,
                    "agrees": difference <= AGREEMENT[dtype],
                    "speedup": medians["torch"] / medians["baracuda"],
                    "times": {name: summary(seen) for name, seen in times.items()},
                }
            )
    return rows


def host_costs() -> dict[str, float]:
    """Microseconds that a call on a tiny problem takes the host, so small that the queue never fills."""
    x = torch.randn(2, 32, 8, 8, device="cuda")
    weight, bias = torch.ones(32, device="cuda"), torch.zeros(32, device="cuda")
    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    dy = torch.ones_like(x)

    def training(norm: Callable[..., Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(norm(leaves[0], 8, leaves[1], leaves[2]), leaves, dy)

    calls: dict[str, Callable[[], Any]] = {
        "torch.nn.functional.group_norm": lambda: torch.nn.functional.group_norm(x, 8, weight, bias),
        "baracuda_registry.torch.group_norm": lambda: bt.group_norm(x, 8, weight, bias),
        "baracuda_registry.functional.group_norm": lambda: functional.group_norm(x, 8, weight, bias),
        "torch.nn.functional.group_norm, with gradients": training(torch.nn.functional.group_norm),
        "baracuda_registry.torch.group_norm, with gradients": training(bt.group_norm),
    }
    costs = {}
    for name, call in calls.items():
        seen = []
        for _ in range(21):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(100):
                call()
            seen.append((time.perf_counter() - started) * 1e4)
        costs[name] = statistics.median(seen)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write the rows; 1 when results differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network", description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--width", type=int, default=128, help="channels of the first level")
    parser.add_argument("--groups", type=int, default=32)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--out", type=Path, help="file for the rows, as JSON")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("this measures on an NVIDIA GPU, and there is none")
    rows = [row for name in options.dtypes for row in measure(options, getattr(torch, name))]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {rows[0]['shape']}")
    for row in rows:
        ours, theirs = (row["times"][name]["median_us"] for name in ("baracuda", "torch"))
        print(
            f"{row['dtype']:9} {row['step']:10} {row['way']:6} torch {theirs:9.1f} µs  baracuda {ours:9.1f} µs"
            f"  {row['speedup']:.2f}×  difference {row['difference']:.1e}{'' if row['agrees'] else '  DIFFERS'}"
        )
    costs = host_costs()
    for name, cost in costs.items():
        print(f"{cost:8.1f} µs of the host  {name}")
    if options.out is not None:
        found = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "rows": rows,
            "host_us": costs,
        }
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(row["agrees"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
