"""Writes the pages that follow from the registry: one an operation, and one a group of modules for the reference.

`python docs/pages.py` writes them; `make docs` does so by itself.  They are not kept, because they say what the tables
and docstrings say.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import baracuda_registry as br
from baracuda_registry.elements import ElementKind
from baracuda_registry.inspect.costs import floor
from baracuda_registry.inspect.ops import OPS, OpEntry, describe
from baracuda_registry.report.benchmarks import default_files, read
from baracuda_registry.verify.judge import ALLOWANCES, ULP
from baracuda_registry.verify.problems import pool_of

FIGURES = "H200"
"""The GPU for which floors are given."""

REFERENCE = {
    "Registry, devices, selection": ("catalog", "sku", "elements", "manifest", "device", "preference", "select", "constraint"),
    "Plans": ("plans.base", "plans.norm_problem", *(f"plans.{name}" for name in (
        "lp_pool1d", "lp_pool1d_backward", "group_norm", "group_norm_backward", "instance_norm", "instance_norm_backward",
        "quantize_per_group", "quantize_per_group_backward", "dequantize_per_group", "dequantize_per_group_backward",
    ))),
    "Inspection": (
        "inspect.api", "inspect.records", "inspect.choice", "inspect.costs", "inspect.usage", "inspect.matrix",
        "inspect.maps", "inspect.ops", "inspect.code", "inspect.names",
    ),
    "Checking and measuring": ("verify", "verify.outcome", "verify.run", "bench", "tuning", "measure", "measured", "bucket", "diagnosis"),
    "Compiling and running": ("artifact", "cache", "compile", "compile_all", "recipe", "operands", "execution"),
    "Errors": ("errors",),
}  # fmt: skip
"""Modules by page of the reference."""


def write(folder: Path) -> None:
    """Write every generated page below `folder`; what is there already with the same text is left alone."""
    texts = {f"ops/{name}.md": op_page(entry) for name, entry in OPS.items()}
    texts["ops/index.md"] = op_index()
    texts |= {
        f"reference/{_slug(title)}.md": reference_page(title, names) for title, names in REFERENCE.items()
    }
    texts["reference/index.md"] = _index("Reference", "From the docstrings.", map(_slug, REFERENCE))
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def op_index() -> str:
    """The list of operations."""
    return _index("Operations", "Contract, SKUs, constraints, accuracy and performance of each.", OPS)


def op_page(entry: OpEntry) -> str:
    """One operation's page."""
    parts = [
        f"# {entry.name}",
        f"Plan: `{entry.plan_name}`, on the command line `{entry.name}`"
        + (f" or `{entry.alias}`." if entry.alias != entry.name else "."),
        "## Contract",
        _prose(entry.plan),
        "## Problem",
        f"`{entry.plan.descriptor_type.__name__}`, keyword arguments only:",
        _fields(entry.plan.descriptor_type),
        "## Arguments",
        f"`{entry.plan.arguments_type.__name__}`, arrays on the plan's device:",
        _fields(entry.plan.arguments_type),
        "## Example",
        "On the host; on a GPU with CuPy arrays or torch tensors and without `device=`.",
        _example(entry),
        f"What a large problem gets on an {FIGURES}, and why nothing else:",
        f"```console\n$ baracuda-registry explain {entry.example_text()} --device {FIGURES}\n```",
        "## SKUs",
        _skus(entry),
        "## Designs and their constraints",
        f"For f32; `baracuda-registry list --op {entry.name} --variants` has those of the other types.",
        _designs(entry),
        "## Accuracy",
        _accuracy(entry),
        "## Performance",
        _performance(entry),
    ]
    return "\n\n".join(parts) + "\n"


def reference_page(title: str, names: Sequence[str]) -> str:
    """One page of the reference: what each module says."""
    parts = [f"# {title}"]
    for name in names:
        module = f"baracuda_registry.{name}"
        importlib.import_module(module)
        parts += [f"## `{module}`", f"```{{eval-rst}}\n.. automodule:: {module}\n```"]
    return "\n\n".join(parts) + "\n"


def _index(title: str, text: str, names: Iterable[str]) -> str:
    listed = "\n".join(names)
    return f"# {title}\n\n{text}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"


def _slug(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def _prose(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _attributes(kind: type) -> dict[str, str]:
    """Texts of the `Attributes:` section, also of the class it derives from."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        match = re.search(r"Attributes:\n((?:    .*\n?|\n)*)", inspect.cleandoc(base.__doc__ or ""))
        name = ""
        for line in (match[1] if match else "").splitlines():
            start = re.match(r"    (\w+): (.*)", line)
            if start is not None:
                name = start[1]
                found[name] = start[2]
            elif name and line.strip():
                found[name] += " " + line.strip()
    return found


def _fields(kind: type) -> str:
    texts = _attributes(kind)
    rows = [("field", "default", "meaning")]
    for field in fields(kind):
        default = "" if field.default is MISSING else f"`{field.default!r}`"
        rows.append((f"`{field.name}`", default, texts.get(field.name, "")))
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])


def _smallest(entry: OpEntry) -> Any:
    """A small problem of the operation's own pool, in f32, with the first second type it has."""
    aux = next(sku.aux_element for sku in br.registry().skus(op=entry.op, element=ElementKind.F32))
    made = [entry.descriptor(problem, ElementKind.F32, aux) for problem in pool_of(entry.name)[:60]]

    def size(desc: Any) -> int:
        extents = [extent for operand in entry.plan.operands(desc) for extent in operand.shape]
        return abs(sum(extents) - 40)

    return min(made, key=size)


def _example(entry: OpEntry) -> str:
    desc = _smallest(entry)
    given = {
        f.name: getattr(desc, f.name)
        for f in fields(desc)
        if f.default is MISSING or getattr(desc, f.name) != f.default
    }
    arguments = ", ".join(
        f'{name}="{value.value}"' if isinstance(value, ElementKind) else f"{name}={value!r}" for name, value in given.items()
    )  # fmt: skip
    call = f"br.{type(desc).__name__}({arguments})"
    if len(call) > 90:
        call = f"br.{type(desc).__name__}(\n    {arguments},\n)"
    return f"""```python
import numpy as np
import baracuda_registry as br

desc = {call}
plan = br.{entry.plan_name}.select(None, desc, device=br.Device.host())

arrays = {{}}
for operand in plan.argument_table:  # name, element type and shape of every argument
    array = np.ones(operand.shape, operand.element.dtype)
    arrays[operand.name] = array if operand.present else None
plan.run(None, None, br.{entry.plan.arguments_type.__name__}(**arrays))
print(plan.sku)
```"""


def _skus(entry: OpEntry) -> str:
    rows = [
        ("element", "second type", "tier", "arithmetic", "sums", "bit-stable", "deterministic", "variants")
    ]
    for sku in br.registry().skus(op=entry.op):
        guarantee = sku.precision_guarantee
        rows.append((
            sku.element.value, "" if sku.aux_element is None else sku.aux_element.value, sku.arch.value,
            guarantee.math_precision.value, guarantee.accumulator.value,
            "yes" if guarantee.bit_stable_on_same_hardware else "no", "yes" if guarantee.deterministic else "no",
            str(len(br.registry().variants(sku))),
        ))  # fmt: skip
    return _table(rows)


def _designs(entry: OpEntry) -> str:
    rows = [("design", "rank", "how", "needs")]
    aux = next(sku.aux_element for sku in br.registry().skus(op=entry.op, element=ElementKind.F32))
    for variant in br.registry().serving(_category(entry), entry.op, ElementKind.F32, aux):
        rank = "pinned only" if variant.pinned_only else str(variant.rank)
        rank += "".join(
            f"; {rule.rank} where {' and '.join(map(str, rule.when))}" for rule in variant.rank_rules
        )
        needs = [f"{c}" + (f" ({c.why})" if c.why else "") for c in variant.constraints]
        if variant.alignment > 1:
            needs.append(f"{variant.alignment}-byte alignment")
        rows.append((f"`{variant.design}`", rank, variant.summary, "; ".join(needs)))
    return _table(rows)


def _category(entry: OpEntry) -> br.OpCategory:
    return br.registry().skus(op=entry.op)[0].category


def _accuracy(entry: OpEntry) -> str:
    """What the allowances of `verify` say, which are the contracts'."""
    ulps = ", ".join(f"{kind.value} {limit:g}" for kind, limit in ULP.items())
    name = getattr(ALLOWANCES.get(entry.name), "__name__", "_elementwise")
    outputs = [o for o in entry.plan.operands(_smallest(entry)) if o.output]
    if all(operand.element not in ULP for operand in outputs):
        return "Integer codes are exact: the contract fixes every bit."
    text = {
        "_elementwise": f"Every element within a few ulp of float64 on the inputs as received: {ulps}.",
        "_scattered": (
            f"Every element within a few ulp of float64 on the inputs as received ({ulps}), beside the rounding of a "
            "sum's terms in acc(T) where they cancel."
        ),
        "_normalised": (
            "Relative to the size of the terms: 2⁻⁸ for bf16, 2⁻¹¹ for f16, 2·10⁻⁷·√(log₂ M) for f32 and "
            "4·10⁻¹⁵·√(log₂ M) for f64 over M summed elements, and no element off by more than 2 ulp beside that."
        ),
    }[name]  # fmt: skip
    return text + " `baracuda-registry verify` shows the errors on a machine."


def _performance(entry: OpEntry) -> str:
    example = entry.parse(entry.example_text().split()[1:])
    least = floor(example, FIGURES, entry.op)
    text = (
        f"The floor of `{' '.join(describe(dict(entry.example)))}` in bf16 on an {FIGURES} is "
        f"{least.seconds * 1e6:.1f} µs: {least.cost.total_bytes:,} bytes at the data sheet's bandwidth."
    )
    names = {entry.name, entry.alias, entry.alias.replace("_per_group", "")}
    rows = [("results", "dtype", "problem", "µs", "share of copy", "design")]
    for path in default_files():
        try:
            found = read(path)
        except br.InvalidProblem:
            continue
        rows += [
            (path.stem, row["dtype"], row["case"], f"{row['us']:.1f}", f"{row['share']:.0%}" if row["share"] else "", row["design"])
            for row in found["rows"]
            if row["op"] in names
        ]  # fmt: skip
    if len(rows) == 1:
        return text + "\n\nThere are no benchmark results of this operation by itself."
    return f"{text}\n\nMeasured ([how](../performance.md)):\n\n{_table(rows)}"


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
