"""`verify`: every variant on this machine, against float64."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from .common import add_filters, command, console, filters_of, no_variants, print_json, table, track
from .journal import Journal

_DESCRIPTION = """\
Run variants on this machine's GPU (or the host backend) over small problems with friendly and hostile data, and compare
with the host backend in float64, which shares no code with the kernels.  For f64 the judge has no more digits than the
kernel, so twice the usual error is allowed; the host backend is judged by itself in float64.  An interrupted run goes
on with --resume.  Exit code 1 = a variant is wrong or does not run.
"""


def add(commands: Any) -> None:
    """Add the command."""
    verifying = command(
        commands,
        "verify",
        "check variants on this machine against float64",
        _verify,
        (
            "",
            "--device host --op per_group",
            "--op group_norm_backward --element bf16 --thorough",
            "--resume",
        ),
        _DESCRIPTION,
    )
    add_filters(verifying)
    verifying.add_argument("--device", metavar="NAME", help="current (default) or host")
    verifying.add_argument("--thorough", action="store_true", help="more problems, all kinds of data on each")
    verifying.add_argument("--resume", action="store_true", help="go on where an interrupted run stopped")


def _verify(options: argparse.Namespace) -> int:
    from .. import __version__
    from ..cache import key_of
    from ..catalog import registry
    from ..errors import InvalidProblem
    from ..inspect.names import device_named
    from ..inspect.records import matching
    from ..verify import Outcome, verify

    held = registry()
    device = device_named(options.device)
    found = matching(held, **filters_of(options))
    if not found:
        raise no_variants(options)
    mine = [variant for variant in found if variant.sku.arch.runs_on(device.compute_capability)]
    if not mine:
        raise InvalidProblem(f"none of these {len(found)} variants runs on {device.name}")
    sources = {} if held.manifest is None else held.manifest.sources
    journal = Journal("verify", device.name, resume=options.resume)

    def key(variant: Any) -> str:
        parts = {"id": variant.id, "source": sources.get(variant.source or ""), "version": __version__}
        return key_of({**parts, "thorough": options.thorough})

    def outcomes() -> Iterator[Outcome]:
        for variant in mine:
            known = journal.get(key(variant))
            if known is not None:
                yield Outcome(**known)
                continue
            outcome = next(verify(held, [variant], device, thorough=options.thorough))
            journal.add(key(variant), outcome.to_dict())
            yield outcome

    if options.resume and len(journal):
        print(f"going on after {len(journal)} results in {journal.path}", file=sys.stderr)
    if device.execution == "cuda":
        _compile(held, mine, device, options)
    try:
        results = list(track(outcomes(), f"verifying on {device.name}", len(mine)))
    finally:
        journal.close()
    bad = [outcome for outcome in results if outcome.status in ("wrong", "error")]
    if options.json:
        print_json({"device": device.name, "outcomes": [outcome.to_dict() for outcome in results]})
    else:
        _print(held, device, results, bad)
    return 1 if bad else 0


def _compile(held: Any, variants: list[Any], device: Any, options: argparse.Namespace) -> None:
    """All cubins first, in parallel; a variant that does not compile is reported when its turn comes."""
    from ..compile_all import compile_jobs, jobs
    from ..errors import CompileError

    work = jobs(held, [f"sm_{device.compute_capability}"], variants)
    try:
        for _ in track(compile_jobs(held, work), "compiling", len(work)):
            pass
    except CompileError:
        pass


def _print(held: Any, device: Any, results: list[Any], bad: list[Any]) -> None:
    out = console()
    groups: dict[tuple[str, str], list[Any]] = {}
    for outcome in results:
        sku = held.variant(outcome.variant).sku
        types = (
            sku.element.value if sku.aux_element is None else f"{sku.element.value}/{sku.aux_element.value}"
        )
        groups.setdefault((sku.op.name.lower(), types), []).append(outcome)
    numbers = ("variants", "runs", "worst ulp", "of allowed", "wrong")
    rows = table("op", "type", *numbers, title=f"{len(results)} variants on {device.name}", right=numbers)
    for (op, types), outcomes in groups.items():
        rows.add_row(
            op,
            types,
            str(len(outcomes)),
            str(sum(outcome.runs for outcome in outcomes)),
            f"{max(outcome.worst_ulp for outcome in outcomes):.3g}",
            f"{max(outcome.worst_share for outcome in outcomes):.0%}",
            str(sum(outcome in bad for outcome in outcomes) or ""),
        )
    out.print(rows)
    for outcome in bad:
        out.print(f"{outcome.status}: {outcome.variant}\n  {outcome.detail}", soft_wrap=True, markup=False)
    for outcome in results:
        if outcome.status == "unused":
            out.print(f"not exercised: {outcome.variant}: {outcome.detail}", soft_wrap=True, markup=False)
    out.print(
        f"{len(results) - len(bad)} right, {len(bad)} wrong or failed; an ulp is the spacing of the output's type at "
        "the expected value, or at the size of its terms where they cancel"
    )
