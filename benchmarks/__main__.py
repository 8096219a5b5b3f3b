"""`python -m benchmarks`: measure, check and write the results of this machine's GPU."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

import baracuda_registry as br

from . import host, problems, shapes, timing


def environment(device: br.Device) -> dict[str, Any]:
    """Everything that a number depends on."""
    import cupy

    return {
        "gpu": device.name,
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "torch": torch.__version__,
        "cupy": cupy.__version__,
        "python": platform.python_version(),
        "library": br.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def row(
    case: problems.Case, device: br.Device, bandwidth: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure one case: ours, the peers, and with --variants every eligible variant."""
    stream = problems.STREAM()
    with torch.cuda.stream(stream):
        problem = problems.make(case, device)
        error = problem.error()
    stream.synchronize()
    contenders = {"ours": problem.ours}
    contenders |= (
        {name: call for name, call in problem.peers.items() if options.compile or name != "torch.compile"}
        if options.peers
        else {}
    )
    if options.variants:
        with torch.cuda.stream(stream):
            for candidate in problem.plan.selection.trace.candidates:
                contenders[f"variant:{candidate.variant.design}"] = problem.launch_with(candidate.variant)
    times = timing.measure(contenders, problem.sets, stream)
    floor = problem.floor_bytes / bandwidth
    ours = times["ours"]["median"]
    peers = {name: seen["median"] for name, seen in times.items() if name.startswith("torch")}
    return {
        "op": case.op,
        "dtype": case.dtype,
        "shape": list(case.shape),
        "parameters": case.parameters,
        "variant": problem.plan.variant.id,
        "design": problem.plan.variant.design,
        "sets": problem.sets,
        "floor_bytes": problem.floor_bytes,
        "share": floor / ours,
        "speedup": min(peers.values()) / ours if peers else None,
        "times_us": {name: {k: v * 1e6 for k, v in seen.items()} for name, seen in times.items()},
        "relative_error": error,
        "correct": error <= problem.tolerance,
    }


def main() -> int:
    """Measure the chosen cases; 1 if a result is wrong or a case failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--suite", choices=("core", "full"), default="core")
    parser.add_argument("--families", default="norm,pool,quant")
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--only", default="", help="only cases whose op and label contain this text")
    parser.add_argument("--variants", action="store_true", help="time every eligible variant too")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument(
        "--compile", action="store_true", help="time torch.compile too (each case compiles for seconds)"
    )
    parser.add_argument("--host", action="store_true", help="measure the host cost of a call too")
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--budget", type=float, default=0, help="stop starting cases after this many seconds")
    options = parser.parse_args()
    device = br.Device.current()
    if device.is_host:
        print("benchmarks need an NVIDIA GPU", file=sys.stderr)
        return 2
    torch.backends.cuda.matmul.allow_tf32 = False
    bandwidth = timing.copy_bandwidth(problems.STREAM())
    chosen = shapes.cases(options.suite, tuple(options.families.split(",")), tuple(options.dtypes.split(",")))
    chosen = [case for case in chosen if options.only in f"{case.op} {case.dtype} {case.label}"]
    console = Console(width=170)
    console.print(f"{device.name}: copy {bandwidth / 1e12:.3f} TB/s; {len(chosen)} cases")
    report: dict[str, Any] = {
        "environment": environment(device),
        "copy_bandwidth": bandwidth,
        "rows": [],
        "failures": [],
    }
    started = time.perf_counter()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=len(chosen))
        for case in chosen:
            if options.budget and time.perf_counter() - started > options.budget:
                console.print(f"budget spent, {len(chosen) - len(report['rows'])} cases left out")
                break
            try:
                result = row(case, device, bandwidth, options)
            except Exception as error:  # a peer or a case that fails must not cost the run
                report["failures"].append(
                    {"case": f"{case.op} {case.dtype} {case.label}", "error": repr(error)}
                )
                console.print(f"FAILED {case.op} {case.dtype} {case.label}: {error!r}")
                if not isinstance(error, (br.BaracudaError, RuntimeError)):
                    traceback.print_exc()
                continue
            finally:
                progress.advance(task)
                torch.cuda.empty_cache()
            report["rows"].append(result)
            show(console, case, result)
    if options.host:
        report["host"] = host.measure(device)
        for entry in report["host"]:
            console.print(entry)
    options.output.mkdir(parents=True, exist_ok=True)
    name = f"{device.name.replace('NVIDIA ', '').replace(' ', '_').lower()}-{options.suite}.json"
    (options.output / name).write_text(json.dumps(report, indent=1) + "\n")
    wrong = [result for result in report["rows"] if not result["correct"]]
    console.print(
        f"{len(report['rows'])} rows, {len(wrong)} wrong, {len(report['failures'])} failed → {options.output / name}"
    )
    return 1 if wrong or report["failures"] else 0


def show(console: Any, case: problems.Case, result: dict[str, Any]) -> None:
    """One line a case."""
    times = result["times_us"]
    parts = [
        f"{result['op']:20s} {case.dtype:4s} {case.label:34s} {times['ours']['median']:9.2f} µs {result['share']:6.1%}"
    ]
    parts.append(f"{result['design']:22s}")
    parts += [f"{name} {seen['median']:.1f}" for name, seen in times.items() if name != "ours"]
    if not result["correct"]:
        parts.append(f"WRONG {result['relative_error']:.3g}")
    console.print("  ".join(parts), soft_wrap=True, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
