"""Measuring one case: correctness of everybody first, then everybody's time, interleaved, on the same buffers."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import torch

import baracuda_registry as br

from . import peers, problems, results, timing
from .case import Case

_TEXT = 300
_VARIANT = "variant "


def row(
    case: Case,
    device: br.Device,
    run: dict[str, Any],
    names: Iterable[str],
    variants: bool = False,
    unfinished: Iterable[tuple[str, str]] = (),
) -> results.Row:
    """Measure a case.

    Args:
        case: what to measure.
        device: the GPU.
        run: the run's record: its copy bandwidth, its seed, and the id that the row refers to.
        names: peers, by their names in the results.
        variants: time every eligible variant too.
        unfinished: cases and peers whose code was not compiled in time; they are not waited for again.
    """
    stream = problems.STREAM()
    torch.manual_seed(zlib.crc32(case.key.encode()) ^ run["parameters"]["seed"])
    with torch.cuda.stream(stream):
        problem = problems.make(case, device)
        error = problem.error()
        seen, calls = _checked_peers(problem, names, set(unfinished))
        others = _checked_variants(problem) if variants else {}
        calls = {"ours": problem.ours, "copy": problem.copy, **calls}
        calls |= {_VARIANT + design: call for design, (_, call) in others.items()}
    stream.synchronize()
    times = _times(calls, problem.sets, stream, seen)
    for name in seen:
        if name in times:
            seen[name]["times"] = times[name]
    floor = problem.floor_bytes / run["copy_bandwidth"] * 1e6
    return {
        "case": case.key,
        "run": run["id"],
        "op": case.op,
        "dtype": case.dtype,
        "shape": list(case.shape),
        "parameters": case.parameters,
        "origin": case.origin,
        "suite": case.suite,
        **_choice(problem.plan),
        "floor_bytes": problem.floor_bytes,
        "sets": problem.sets,
        "tiny": case.tiny,
        "share": floor / times["ours"]["median_us"],
        "copy_share": floor / times["copy"]["median_us"],
        "error": error,
        "tolerance": problem.tolerance,
        "correct": error <= problem.tolerance,
        "times": times["ours"],
        "copy": times["copy"],
        "peer_tolerance": problem.peer_tolerance,
        "peers": seen,
        "variants": {
            design: {"error": found, "correct": found <= problem.tolerance, "times": times[_VARIANT + design]}
            for design, (found, _) in others.items()
        },
    }


def _choice(plan: Any) -> dict[str, Any]:
    """What was chosen and why."""
    candidates = plan.selection.trace.candidates
    best = candidates[0]
    own = best.variant.rank
    why = f"rank {best.rank}" + ("" if best.rank == own else f" for this problem (else {own})")
    why += f", lowest of {len(candidates)} eligible"
    if len(candidates) > 1:
        why += f"; next {candidates[1].variant.design} at {candidates[1].rank}"
    return {
        "variant": plan.variant.id,
        "design": plan.variant.design,
        "why": why,
        "launches": len(plan.recipe(plan.descriptor, plan.variant, plan.device).steps),
        "workspace_bytes": plan.workspace_size,
    }


def _checked_variants(problem: problems.Problem) -> dict[str, tuple[float, Any]]:
    """Error and function of every eligible variant, by design."""
    found = {}
    for candidate in problem.plan.selection.trace.candidates:
        call = problem.launch_with(candidate.variant)
        found[candidate.variant.design] = (problem.error(call), call)
    return found


def _checked_peers(
    problem: problems.Problem, names: Iterable[str], unfinished: set[tuple[str, str]]
) -> tuple[dict[str, dict[str, Any]], dict[str, peers.Call]]:
    """What the results say of each peer before it is timed, and the functions of those that are right."""
    spec = problems.spec_of(problem.case)
    seen: dict[str, dict[str, Any]] = {}
    calls: dict[str, peers.Call] = {}
    for name in names:
        if (problem.case.key, name) in unfinished:
            seen[name] = {"failed": "its code was not compiled in the time allowed"}
            continue
        try:
            call = problem.peer(name)
            error = problem.peer_error(call)
        except peers.PeerAbsentError as reason:
            seen[name] = {"absent": str(reason)}
            continue
        except Exception as reason:  # whatever a peer does must not cost the run
            seen[name] = {"text": peers.text_of(name, spec), "failed": _short(reason)}
            continue
        right = error <= problem.peer_tolerance
        seen[name] = {"text": peers.text_of(name, spec), "error": error, "correct": right}
        if right:
            calls[name] = call
    return seen, calls


def _times(
    calls: dict[str, Any], sets: int, stream: Any, seen: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Summaries of interleaved rounds; a peer that cannot be captured is said to have failed."""
    graphs: dict[str, timing.Graph] = {}
    for name, call in calls.items():
        try:
            graphs[name] = timing.prepare(call, sets, stream)
        except Exception as reason:
            if name not in seen:
                raise
            seen[name]["failed"] = f"in a CUDA graph: {_short(reason)}"
    return {
        name: {"calls": graphs[name].calls, **results.summary(seconds)}
        for name, seconds in timing.interleave(graphs, stream).items()
    }


def _short(error: Exception) -> str:
    """The error's type and the end of its text: compilers quote the source first and say what is wrong last."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: " + (text if len(text) <= _TEXT else "…" + text[-_TEXT:])
