"""`bench` and `tune`: measuring on this machine's GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from .common import command, console, nbytes, positive, print_json, seconds, table, track
from .journal import Journal

_BENCH = """\
Measure device time on this machine's GPU: the chosen and every other eligible variant, and the share of a device copy
measured in the same run.  Without a problem every operation is measured on its example.  An interrupted run goes on with
--resume.
"""


def add(commands: Any) -> None:
    """Add the commands."""
    benching = command(
        commands,
        "bench",
        "measure the chosen and every eligible variant on this GPU",
        _bench,
        ("", "group_norm shape=32,320,64,64 groups=32 dtype=bf16", "lp_pool1d per_group --dtype f32"),
        _BENCH,
    )
    _add_problem(benching)
    benching.add_argument("--rounds", type=positive, default=7, help="rounds of each (default: %(default)s)")
    benching.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")

    tuning = command(
        commands,
        "tune",
        "measure problems and keep the winners for later selections",
        _tune,
        ("group_norm shape=32,320,64,64 groups=32 dtype=bf16", "lp_pool1d --dtype f16"),
    )
    _add_problem(tuning)


def _add_problem(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", nargs="*", help="operations, or one with the field=value of its problem")
    parser.add_argument("--dtype", default="bf16", help="type of the examples (default: %(default)s)")


def _problems(options: argparse.Namespace) -> list[tuple[Any, Any]]:
    """The operations with their problems: one as written, or the examples."""
    from ..inspect.names import element_named
    from ..inspect.ops import OPS, entry_of

    fields = [word for word in options.op if "=" in word]
    names = [word for word in options.op if "=" not in word]
    if fields:
        from ..errors import InvalidProblem

        if len(names) != 1:
            raise InvalidProblem(f"field=value describes a problem of one operation, got {len(names)}")
        entry = entry_of(names[0])
        return [(entry, entry.parse(fields))]
    element = element_named(options.dtype)
    entries = [entry_of(name) for name in names] or list(OPS.values())
    return [(entry, entry.parse(entry.example_text(element.value).split()[1:])) for entry in entries]


def _bench(options: argparse.Namespace) -> int:
    from ..bench import Bench
    from ..cache import key_of
    from ..inspect.ops import describe_problem

    problems = _problems(options)
    bench = Bench(options.rounds)
    journal = Journal("bench", bench.device.name, resume=options.resume)

    def measured() -> Iterator[dict[str, Any]]:
        for entry, desc in problems:
            key = key_of({"op": entry.name, "problem": describe_problem(desc), "rounds": options.rounds})
            known = journal.get(key)
            if known is None:
                known = bench.measure(entry, desc).to_dict()
                journal.add(key, known)
            yield known

    try:
        results = list(track(measured(), f"measuring on {bench.device.name}", len(problems)))
    finally:
        journal.close()
    bandwidth = bench.copy_bandwidth()
    if options.json:
        print_json({"device": bench.device.name, "copy_bandwidth": bandwidth, "results": results})
        return 0
    out = console()
    out.print(
        f"{bench.device.name}: a copy moves {bandwidth / 1e12:.2f} TB/s (read and written)", style="bold"
    )
    numbers = ("time", "± spread", "of copy")
    for result in results:
        title = f"{result['op']} {' '.join(result['problem'])}: {nbytes(result['total_bytes'])} must move"
        rows = table("", "design", *numbers, title=title, right=numbers)
        for timing in result["timings"]:
            rows.add_row(
                "chosen" if timing["chosen"] else "",
                timing["design"],
                seconds(timing["seconds"]),
                f"{timing['spread'] / 2:.1%}",
                f"{timing['share']:.0%}",
            )
        out.print(rows)
    return 0


def _tune(options: argparse.Namespace) -> int:
    from .. import tuning
    from ..device import Device
    from ..errors import DeviceMismatch

    if Device.current().is_host:
        raise DeviceMismatch("tuning needs a GPU, and none is usable here; `doctor` says why")
    problems = _problems(options)
    # Each problem's times are kept when it is done: an interruption loses the one in progress.
    found = [tuning.tune(entry.plan, desc) for entry, desc in track(problems, "tuning", len(problems))]
    if options.json:
        print_json([_tuning(result) for result in found])
    else:
        for result in found:
            print(result)
    return 0


def _tuning(result: Any) -> dict[str, Any]:
    """What the tuner found, as plain data, times in seconds."""
    return {
        "plan": type(result.plan).__name__,
        "device": result.plan.device.name,
        "bucket": result.bucket,
        "chosen": result.plan.variant.id,
        "stored": result.stored,
        "seconds": {variant.id: timing.median for variant, timing in result.timings.items()},
    }
