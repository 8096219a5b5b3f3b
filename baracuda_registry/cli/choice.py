"""`explain`: what a problem gets, and why nothing else."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BaracudaError
from .common import add_preference, command, console, nbytes, preference_of, print_json, seconds, table

_DESCRIPTION = """\
Explain what is chosen for a problem on a device, here or only named: the choice, the runner-up and the margin, and
every reason against every other variant.  A problem is `field=value …` by the descriptor's own field names; shape,
groups, dtype, k, s, … are short for them.  Exit code 1 = nothing serves the problem.
"""


def add(commands: Any) -> None:
    """Add the command."""
    explaining = command(
        commands,
        "explain",
        "explain what a problem gets, and why nothing else",
        _explain,
        (
            "group_norm shape=32,320,64,64 groups=32 dtype=bf16 --device H200",
            "lp_pool1d n=64 c=256 l=16384 k=5 s=2 p=2 dtype=f32 --device A100 --device B200",
            "quantize_per_group outer=8192 axis=8192 group=128 in=f16 out=s8 --device 'RTX 4090'",
        ),
        _DESCRIPTION,
    )
    explaining.add_argument("op", help="operation")
    explaining.add_argument("field", nargs="*", help="field=value of the problem")
    explaining.add_argument(
        "--device",
        action="append",
        metavar="NAME",
        help="GPU by name, host, or current (default); repeatable",
    )
    add_preference(explaining)


def _explain(options: argparse.Namespace) -> int:
    from ..inspect.choice import explain
    from ..inspect.names import device_named
    from ..inspect.ops import entry_of

    entry = entry_of(options.op)
    desc = entry.parse(options.field)
    wishes = preference_of(options)
    devices = [device_named(name) for name in options.device or [None]]
    found = [explain(desc, device, wishes, op=entry.op) for device in devices]
    if options.json:
        data = [
            {**one.to_dict(), "floor": _floor(desc, device, entry)} for one, device in zip(found, devices)
        ]
        print_json(data if len(data) > 1 else data[0])
    else:
        for one, device in zip(found, devices):
            _print(one, _floor(desc, device, entry))
    return 0 if all(one.chosen is not None for one in found) else 1


def _floor(desc: Any, device: Any, entry: Any) -> dict[str, Any] | None:
    from ..inspect.costs import floor

    try:
        return floor(desc, device, entry.op).to_dict()
    except BaracudaError:
        return None  # the host, or a GPU whose bandwidth is not known


def _print(one: Any, least: dict[str, Any] | None) -> None:
    out = console()
    out.print(f"{one.op} {' '.join(one.problem)} on {one.trace.device.name}", style="bold")
    chosen, second = one.chosen, one.runner_up
    if chosen is None:
        out.print("nothing serves this problem", style="red")
        _print_nearest(one)
    else:
        out.print(f"chosen     {chosen.variant.design}: {chosen.variant.summary}")
        out.print(f"           {chosen.variant.id}", soft_wrap=True)
        out.print(f"because    {_because(one)}")
        needs = chosen.requirements
        out.print(
            f"needs      workspace {nbytes(needs.workspace_bytes)}, "
            f"dynamic shared memory {nbytes(needs.shared_bytes)} a block"
        )
        if second is not None:
            out.print(f"runner-up  {second.variant.design} {_margin(one)}")
    if least is not None:
        warm = "; it fits the L2 cache, so warm runs may be faster" if least["fits_l2"] else ""
        out.print(
            f"floor      {seconds(least['seconds'])} ({nbytes(least['cost']['total_bytes'])} must move, "
            f"{least['cost']['intensity']:.2g} operations a byte, bound by {least['bound']}{warm})"
        )
    if len(one.trace.candidates) > 2:
        rows = table("eligible", "rank", "how", right=("rank",))
        for candidate in one.trace.candidates:
            rows.add_row(candidate.variant.design, str(candidate.rank), candidate.variant.summary)
        out.print(rows)
    if one.trace.rejected:
        rows = table("rejected", "because")
        for rejection in one.trace.rejected:
            rows.add_row(rejection.variant.design, "\n".join(rejection.reasons))
        out.print(rows)


def _print_nearest(one: Any) -> None:
    """What a pinned name that no variant has may have meant."""
    from ..inspect.names import nearest

    pin = one.preference.variant
    designs = {rejection.variant.design for rejection in one.trace.rejected}
    ids = {rejection.variant.id for rejection in one.trace.rejected}
    if pin is not None and pin not in designs | ids:
        close = nearest(pin, ids if "/" in pin else designs)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        console().print(f"no variant of this operation and type is {pin!r}{hint}")


def _because(one: Any) -> str:
    from ..inspect.choice import measured, rank_reason

    chosen = one.chosen
    if one.basis == "measurement":
        return f"measured fastest, {seconds(measured(chosen) or 0.0)}"
    if one.basis == "rank":
        reason = rank_reason(chosen.variant, {**one.trace.facts, **one.trace.device.facts})
        return f"lowest rank, {chosen.rank}" + (f" (where {reason})" if reason else "")
    return str(one.basis)


def _margin(one: Any) -> str:
    margin = one.margin
    if margin["time_ratio"] is not None:
        return f"takes {margin['time_ratio']:.2f} times as long"
    return f"(rank {one.runner_up.rank}, {margin['rank']} behind)"
