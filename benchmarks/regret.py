"""`python -m benchmarks.regret`: how much slower the chosen variant is than the best one, over a grid of shapes.

Every eligible variant of every shape is measured.  Regret is the time of the choice over the least time: of the choice
as it stands, with the tables of measured times that are in force (`BARACUDA_TUNED=0` leaves them aside); by ranks alone;
and with the table that this very report comes to, which shows how far shapes of one bucket agree.

    python -m benchmarks.regret -o regret.json            # measure and report
    python -m benchmarks.regret --from regret.json        # report again, without a GPU
    python -m benchmarks.regret --from regret.json --again      # and judge changed ranks by the times it has
    python -m benchmarks.regret --from regret.json --table baracuda_registry/measured/nvidia_h200.json
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table as Sheet

import baracuda_registry as br
from baracuda_registry import measured
from baracuda_registry.bucket import bucket_of
from baracuda_registry.measure import GraphStopwatch, Stopwatch
from baracuda_registry.operands import Operand
from baracuda_registry.select import measured_winner, rank_order
from baracuda_registry.tuning import by_rank, pinned, prepare, time_plans

TARGET_MEDIAN, TARGET_WORST = 1.02, 1.15

# The grid -------------------------------------------------------------------------------------------------------------

# input shape, groups
NORM: tuple[tuple[tuple[int, ...], int], ...] = (
    ((32, 320, 64, 64), 32),  # diffusion U-Net, first level
    ((8, 640, 32, 32), 32),
    ((32, 640, 32, 32), 32),
    ((8, 1280, 16, 16), 32),
    ((8, 1280, 8, 8), 32),  # middle
    ((2, 320, 128, 128), 32),  # SDXL
    ((2, 960, 64, 64), 32),  # after a skip
    ((2, 2560, 16, 16), 32),
    ((1, 512, 64, 64), 32),  # VAE
    ((1, 256, 256, 256), 32),
    ((1, 128, 512, 512), 32),
    ((1, 512, 5, 32, 32), 32),  # video VAE
    ((1, 128, 17, 128, 128), 32),
    ((64, 64, 112, 112), 32),  # ResNet-GN
    ((64, 256, 56, 56), 32),
    ((16, 512, 28, 28), 32),
    ((16, 1024, 14, 14), 32),
    ((16, 2048, 7, 7), 32),
    ((4, 256, 128, 128), 32),  # segmentation
    ((2, 256, 200, 304), 32),  # detection
    ((2, 32, 96, 96, 96), 8),  # 3-D medical net
    ((2, 64, 48, 48, 48), 8),
    ((2, 320, 6, 6, 6), 8),
    ((2, 64, 64, 64, 64), 8),
    ((16, 512, 400), 8),  # audio
    ((512, 64, 1024), 8),
    ((8, 768, 1500), 12),
    ((4, 512, 32000), 512),  # first convolution of a speech encoder
    ((256, 768), 12),  # vectors
    ((4096, 1024), 1),
    ((65536, 96), 3),
    ((70000, 3, 2), 1),  # very many tiny groups
    ((2, 32, 8, 8), 8),
    ((4, 8, 16), 2),
    ((1, 1, 1000003), 1),  # one odd group
    ((1, 4, 4000037), 2),
    ((7, 30, 31, 33), 5),  # odd everywhere
    ((13, 48, 57), 16),
    ((3, 96, 127, 129), 32),
    ((128, 72, 27, 27), 9),
    ((1000, 24, 50), 4),
    ((300, 40, 10, 10), 10),
    ((20, 200, 65), 25),
)
# input shape
INSTANCE: tuple[tuple[int, ...], ...] = (
    (8, 32, 256, 256),  # style transfer
    (8, 64, 128, 128),
    (8, 128, 64, 64),
    (1, 32, 512, 512),
    (4, 256, 64, 64),  # generators
    (1, 64, 256, 256),
    (16, 512, 16, 16),
    (16, 512, 8, 8),
    (32, 64, 64, 64),
    (32, 128, 32, 32),
    (64, 256, 32, 32),
    (512, 512, 7, 7),
    (64, 2048, 7, 7),
    (16, 1024, 14, 14),
    (2, 32, 128, 128, 128),  # 3-D medical net
    (2, 64, 64, 64, 64),
    (2, 128, 32, 32, 32),
    (2, 256, 16, 16, 16),
    (2, 320, 8, 8, 8),
    (2, 320, 4, 4, 4),
    (16, 80, 3000),  # audio
    (8, 512, 32000),
    (32, 512, 400),
    (4, 1024, 8000),
    (1, 1, 4000000),
    (1, 2, 16000000),
    (1, 3, 1024, 1024),
    (4, 3, 224, 224),
    (100000, 4, 8),
    (4096, 64, 16),
    (2048, 16, 100),
    (256, 256, 49),
    (2, 8, 4, 4),
    (4, 8, 16),
    (1, 1, 1000003),
    (3, 7, 100003),
    (7, 31, 33, 35),
    (13, 48, 57),
    (5, 96, 127, 129),
    (128, 72, 27, 27),
    (1000, 24, 50),
    (20, 200, 65),
)
# shape, window, stride, p
POOL: tuple[tuple[tuple[int, int, int], int, int, float], ...] = (
    ((64, 256, 16384), 2, 2, 2),
    ((64, 256, 16384), 4, 4, 3),
    ((64, 256, 16384), 5, 2, 2),
    ((64, 256, 16384), 2, 2, 1),
    ((64, 256, 16384), 3, 2, 2.5),
    ((64, 64, 16384), 64, 1, 2),
    ((64, 256, 16384), 3, 1, 2),
    ((64, 256, 16384), 8, 4, 1),
    ((64, 256, 8192), 8, 8, 2.5),
    ((32, 512, 4096), 2, 2, 2),
    ((16, 64, 160000), 10, 5, 2),
    ((16, 512, 3199), 3, 2, 2),
    ((128, 128, 1000), 5, 5, 3),
    ((256, 512, 128), 2, 2, 2),
    ((1, 1, 40000000), 4, 4, 2),
    ((4096, 512, 32), 4, 4, 2),
    ((100000, 16, 17), 3, 2, 2),
    ((8, 256, 65536), 16, 8, 2),
    ((64, 64, 16384), 64, 64, 2),
    ((2, 32, 100), 3, 2, 3),
    ((8, 16, 64), 2, 2, 2),
    ((32, 128, 4096), 7, 3, 2),
    ((32, 128, 4096), 7, 7, 1),
    ((32, 128, 4096), 16, 2, 2),
    ((32, 128, 4096), 16, 16, 3),
    ((32, 128, 4096), 32, 16, 2),
    ((32, 128, 4096), 32, 4, 1),
    ((16, 64, 16384), 100, 50, 2),
    ((16, 64, 16384), 128, 1, 2),
    ((16, 64, 16384), 256, 256, 2),
    ((16, 64, 16384), 1000, 10, 2),
    ((4, 64, 65536), 4096, 4096, 2),
    ((4, 4, 262144), 16384, 1024, 1),
    ((64, 256, 1024), 2, 1, 2),
    ((64, 256, 1024), 1, 1, 2),
    ((64, 256, 1024), 2, 3, 2),
    ((64, 256, 1023), 2, 2, 0.5),
    ((64, 255, 1021), 3, 3, 3),
    ((1000, 10, 99), 9, 5, 2),
    ((50000, 8, 9), 9, 9, 2),
    ((3, 5, 1000003), 6, 6, 4),
    ((16, 320, 2048), 4, 2, 2),
)
# outer, axis, group
QUANT: tuple[tuple[int, int, int], ...] = (
    (4096, 4096, 128),  # weights of language models
    (4096, 4096, 64),
    (4096, 4096, 32),
    (11008, 4096, 128),
    (4096, 11008, 64),
    (14336, 4096, 32),
    (4096, 14336, 128),
    (5120, 13824, 64),
    (13824, 5120, 128),
    (28672, 8192, 128),
    (8192, 28672, 128),
    (32000, 4096, 128),
    (151936, 3584, 128),
    (18944, 3584, 128),
    (3072, 8192, 64),
    (1024, 4096, 128),
    (16384, 8192, 128),
    (8192, 8192, 16),
    (8192, 8192, 32),
    (8192, 8192, 64),
    (8192, 8192, 256),
    (8192, 8192, 8192),
    (65536, 768, 48),  # embeddings
    (50257, 768, 64),
    (2048, 4096, 4096),  # a row a group: activations by token
    (512, 14336, 14336),
    (64, 4096, 128),
    (1, 4096, 128),
    (8, 11008, 128),
    (16, 128, 32),
    (64, 256, 16),
    (1, 67108864, 128),
    (1, 67108864, 67108864),
    (16777216, 4, 4),
    (4000000, 16, 2),
    (8192, 8190, 3),
    (8192, 8190, 10),
    (8192, 8184, 24),
    (1000, 10010, 77),
    (333, 9999, 11),
    (12345, 1000, 100),
    (7, 4410, 63),
)


@dataclass(frozen=True)
class Case:
    """One shape of one operation in one dtype."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any]

    @property
    def label(self) -> str:
        extents = "×".join(map(str, self.shape))
        return " ".join([self.op, self.dtype, extents, *(f"{k} {v}" for k, v in self.parameters.items())])

    def plan(self, device: br.Device, pref: br.PlanPreference | None = None) -> Any:
        """What is chosen for it."""
        plan_type, describe = _PLANS[self.op]
        return plan_type.select(None, describe(self), pref, device=device)


def _norm(desc_type: Any) -> Callable[[Case], Any]:
    return lambda case: desc_type(input_shape=case.shape, num_groups=case.parameters["G"], element=case.dtype)


def _instance(desc_type: Any) -> Callable[[Case], Any]:
    return lambda case: desc_type(input_shape=case.shape, element=case.dtype)


def _pool(case: Case) -> Any:
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


def _quant(desc_type: Any, **limits: int) -> Callable[[Case], Any]:
    return lambda case: desc_type(
        outer_size=case.shape[0],
        axis_size=case.shape[1],
        group_size=case.parameters["g"],
        input_element=case.dtype,
        output_element="s8",
        **limits,
    )


_RANGE = {"q_min": -128, "q_max": 127}
_PLANS: dict[str, tuple[Any, Callable[[Case], Any]]] = {
    "group_norm": (br.GroupNormPlan, _norm(br.GroupNormDescriptor)),
    "group_norm_backward": (br.GroupNormBackwardPlan, _norm(br.GroupNormBackwardDescriptor)),
    "instance_norm": (br.InstanceNormPlan, _instance(br.InstanceNormDescriptor)),
    "instance_norm_backward": (br.InstanceNormBackwardPlan, _instance(br.InstanceNormBackwardDescriptor)),
    "lp_pool1d": (br.LpPool1dPlan, _pool),
    "lp_pool1d_backward": (br.LpPool1dBackwardPlan, _pool),
    "quantize": (br.QuantizePerGroupPlan, _quant(br.QuantizePerGroupDescriptor, **_RANGE)),
    "quantize_backward": (
        br.QuantizePerGroupBackwardPlan,
        _quant(br.QuantizePerGroupBackwardDescriptor, **_RANGE),
    ),
    "dequantize": (br.DequantizePerGroupPlan, _quant(br.DequantizePerGroupDescriptor)),
    "dequantize_backward": (
        br.DequantizePerGroupBackwardPlan,
        _quant(br.DequantizePerGroupBackwardDescriptor),
    ),
}
OPS = tuple(_PLANS)


def cases(ops: Sequence[str], dtypes: Sequence[str], every: bool = False) -> list[Case]:
    """The grid: every shape of each operation once, the dtypes in turn; with `every`, in every dtype."""
    found: list[Case] = []
    for op in ops:
        if op.startswith("group_norm"):
            rows: list[tuple[tuple[int, ...], dict[str, Any]]] = [(shape, {"G": g}) for shape, g in NORM]
        elif op.startswith("instance_norm"):
            rows = [(shape, {}) for shape in INSTANCE]
        elif op.startswith("lp_pool1d"):
            rows = [(shape, {"k": k, "s": s, "p": p}) for shape, k, s, p in POOL]
        else:
            rows = [((outer, axis), {"g": g}) for outer, axis, g in QUANT]
        for index, (shape, parameters) in enumerate(rows):
            for dtype in dtypes if every else dtypes[index % len(dtypes) :][:1]:
                found.append(Case(op, dtype, shape, parameters))
    return found


# Measuring ------------------------------------------------------------------------------------------------------------


def row(
    case: Case,
    device: br.Device,
    stopwatch: Stopwatch,
    make: Callable[[Operand], Any] | None = None,
    rounds: int = 5,
    seconds: float = 1e-3,
) -> dict[str, Any]:
    """Measure every eligible variant of a case."""
    plan = case.plan(device)
    contenders = pinned(plan)
    prepare(contenders)
    timings, sets = time_plans(contenders, stopwatch, make, rounds, seconds, hopeless=3.0)
    operation, digest = plan.measured_as
    return {
        "op": case.op,
        "dtype": case.dtype,
        "shape": list(case.shape),
        "parameters": case.parameters,
        "operation": operation,
        "digest": digest,
        "bucket": bucket_of(type(plan).bucket, plan.selection.trace.facts),
        "sets": sets,
        "chosen": plan.variant.id,
        "by_rank": by_rank(plan).id,
        "times_us": {variant.id: timing.median * 1e6 for variant, timing in timings.items()},
        "spread": max(timing.most / timing.least for timing in timings.values()),
    }


def judged_again(entry: dict[str, Any], device: br.Device) -> dict[str, Any]:
    """A measured case with the choices of today's ranks and tables, among the variants whose times it has."""
    case = Case(entry["op"], entry["dtype"], tuple(entry["shape"]), entry["parameters"])
    candidates = case.plan(device).selection.trace.candidates
    timed = [candidate for candidate in candidates if candidate.variant.id in entry["times_us"]]
    if not timed:
        return entry
    return {
        **entry,
        "chosen": timed[0].variant.id,
        "by_rank": min(timed, key=rank_order).variant.id,
    }


def regrets(entry: dict[str, Any], own: measured.Table) -> tuple[float, float, float]:
    """Time over the least time: of the choice, of the choice by ranks alone, and of the choice with a table."""
    times, ranked = entry["times_us"], entry["by_rank"]
    known = own.find(entry["operation"], entry["digest"], entry["bucket"])
    seconds = {} if known is None else {name: known.seconds[name] for name in times if name in known.seconds}
    tabled = measured_winner(ranked, seconds) or ranked
    least = min(times.values())
    return times[entry["chosen"]] / least, times[ranked] / least, times[tabled] / least


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By operation: how many shapes, median and worst regret of each way to choose, and the worst shape."""
    own = table("", rows)
    found: dict[str, dict[str, Any]] = {}
    for op in dict.fromkeys(entry["op"] for entry in rows):
        mine = [entry for entry in rows if entry["op"] == op]
        chosen, ranked, tabled = zip(*(regrets(entry, own) for entry in mine))
        worst = mine[chosen.index(max(chosen))]
        found[op] = {
            "shapes": len(mine),
            "median": statistics.median(chosen),
            "worst": max(chosen),
            "worst_case": Case(op, worst["dtype"], tuple(worst["shape"]), worst["parameters"]).label,
            "worst_chosen": worst["chosen"].rsplit("/", 1)[1],
            "worst_best": min(worst["times_us"], key=worst["times_us"].get).rsplit("/", 1)[1],
            "median_by_rank": statistics.median(ranked),
            "worst_by_rank": max(ranked),
            "median_with_own_table": statistics.median(tabled),
            "worst_with_own_table": max(tabled),
            "on_target": statistics.median(chosen) <= TARGET_MEDIAN and max(chosen) <= TARGET_WORST,
        }
    return found


def table(gpu: str, rows: Sequence[dict[str, Any]], about: dict[str, Any] | None = None) -> measured.Table:
    """The table of measured times that a report's rows come to.

    Where several shapes fall into one bucket a variant's time is the geometric mean of its times; one that was not
    eligible for all of them is left out.
    """
    made = measured.Table(gpu, about=about or {})
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for entry in rows:
        key = (entry["operation"], entry["digest"], entry["bucket"])
        groups.setdefault(key, []).append(entry["times_us"])
    for (operation, digest, bucket), times in groups.items():
        common = set.intersection(*map(set, times))
        seconds = {
            name: math.exp(statistics.fmean(math.log(each[name]) for each in times)) * 1e-6
            for name in sorted(common)
        }
        made = made.with_times(operation, digest, bucket, seconds)
    return made


def show(console: Console, found: dict[str, dict[str, Any]]) -> None:
    sheet = Sheet(title=f"time over least time, median / worst; target {TARGET_MEDIAN} / {TARGET_WORST}")
    for heading in (
        "op",
        "shapes",
        "choice",
        "by rank",
        "own table",
        "worst shape of the choice: chosen, best",
    ):
        sheet.add_column(heading)
    for op, entry in found.items():
        ways = ("", "_by_rank", "_with_own_table")
        numbers = [f"{entry['median' + way]:.3f} / {entry['worst' + way]:.3f}" for way in ways]
        where = (
            f"{entry['worst_case'].removeprefix(op).strip()}: {entry['worst_chosen']}, {entry['worst_best']}"
        )
        mark = "" if entry["on_target"] else " *"
        sheet.add_row(op + mark, str(entry["shapes"]), *numbers, where)
    console.print(sheet)


def measure_all(chosen: Sequence[Case], options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """The report: compile everything in parallel, then measure case by case."""
    import cupy

    device = br.Device.current()
    started = time.perf_counter()
    plans = {id(plan.variant): plan for case in chosen for plan in pinned(case.plan(device))}
    prepare(plans.values())
    console.print(f"{len(plans)} variants compiled and loaded in {time.perf_counter() - started:.1f} s")
    stopwatch, pool = GraphStopwatch(), cupy.get_default_memory_pool()
    report: dict[str, Any] = {
        "environment": {
            "gpu": device.name,
            "driver": cupy.cuda.runtime.driverGetVersion(),
            "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "cupy": cupy.__version__,
            "library": br.__version__,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        },
        "rows": [],
        "failures": [],
        "left_out": 0,
    }
    for case in track(chosen, "measuring", console=console, disable=not console.is_terminal):
        if options.budget and time.perf_counter() - started > options.budget:
            report["left_out"] += 1
            continue
        try:
            report["rows"].append(row(case, device, stopwatch, None, options.rounds, options.seconds))
        except Exception as error:  # one case that fails must not cost the run
            report["failures"].append({"case": case.label, "error": repr(error)})
            console.print(f"FAILED {case.label}: {error!r}", soft_wrap=True)
        if pool.total_bytes() > device.memory_bytes // 4:
            pool.free_all_blocks()
    report["seconds"] = time.perf_counter() - started
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """0 = every operation on target, 1 = not or failures, 2 = no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--dtypes", default="bf16,f32", help="taken in turn over the shapes")
    parser.add_argument("--every", action="store_true", help="every shape in every dtype")
    parser.add_argument("--only", default="", help="cases whose label contains this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1e-3, help="about how long one sample takes")
    parser.add_argument("--budget", type=float, default=0, help="stop starting cases after this many seconds")
    parser.add_argument("--from", dest="source", type=Path, help="a report, instead of measuring")
    parser.add_argument(
        "--again", action="store_true", help="with --from: judge today's ranks and tables by the times it has"
    )
    parser.add_argument("-o", "--output", type=Path, help="write the report there")
    parser.add_argument("--table", type=Path, help="write the table of measured times there")
    options = parser.parse_args(arguments)
    console = Console(width=170)
    if options.source is not None:
        report = json.loads(options.source.read_text())
        if options.again:
            device = br.Device.named(report["environment"]["gpu"])
            report["rows"] = [judged_again(entry, device) for entry in report["rows"]]
    elif br.Device.current().is_host:
        print("measuring needs an NVIDIA GPU; --from reads a report", file=sys.stderr)
        return 2
    else:
        chosen = cases(options.ops.split(","), options.dtypes.split(","), options.every)
        report = measure_all([case for case in chosen if options.only in case.label], options, console)
    report["summary"], environment = summary(report["rows"]), report["environment"]
    show(console, report["summary"])
    for path, text in (
        (options.output, json.dumps(report, indent=1) + "\n"),
        (options.table, table(environment["gpu"], report["rows"], environment).to_json()),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            console.print(f"→ {path}")
    if report["left_out"]:
        console.print(f"budget spent: {report['left_out']} cases left out")
    good = all(entry["on_target"] for entry in report["summary"].values())
    return 0 if good and not report["failures"] and not report["left_out"] else 1


if __name__ == "__main__":
    sys.exit(main())
