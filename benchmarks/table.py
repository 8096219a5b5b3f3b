"""A Markdown table of a results file: `python -m benchmarks.table benchmarks/results/h200-core.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def table(report: dict) -> str:  # type: ignore[type-arg]
    """One row a case: microseconds, share of the copy bandwidth at the floor's bytes, and PyTorch's time beside it."""
    where = report["environment"]
    lines = [
        f"{where['gpu']}, CUDA driver API {where['driver']}, torch {where['torch']}, CuPy {where['cupy']}, {where['date'][:10]};"
        f" copy {report['copy_bandwidth'] / 1e12:.2f} TB/s.",
        "",
        "| op | dtype | shape | µs | share of copy | torch µs | design |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for row in report["rows"]:
        shape = "×".join(map(str, row["shape"])) + "".join(f", {k} {v}" for k, v in row["parameters"].items())
        times = row["times_us"]
        peer = f"{times['torch']['median']:.1f}" if "torch" in times else ""
        lines.append(
            f"| {row['op']} | {row['dtype']} | {shape} | {times['ours']['median']:.1f} | {row['share']:.0%} | {peer} |"
            f" {row['design']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(json.loads(Path(sys.argv[1]).read_text())))
