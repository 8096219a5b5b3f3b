"""`list`, `show` and `coverage`: what there is."""

from __future__ import annotations

import argparse
from typing import Any

from .common import (
    add_filters,
    command,
    console,
    filters_of,
    no_variants,
    print_json,
    print_rows,
    table,
)


def add(commands: Any) -> None:
    """Add the commands."""
    listing = command(
        commands,
        "list",
        "list SKUs, or variants",
        _list,
        ("", "--op group_norm --element bf16 --variants", "'*split*' --ids", "--guarantee not-deterministic"),
    )
    add_filters(listing)
    form = listing.add_mutually_exclusive_group()
    form.add_argument("--variants", action="store_true", help="one row a variant")
    form.add_argument("--ids", action="store_true", help="ids of the variants, one a line")

    showing = command(
        commands,
        "show",
        "show one variant's record, or a SKU's",
        _show,
        ("group_norm bf16 f32 split_v8", "lp_pool1d_backward f64 scatter_v1 --json"),
        "Show one variant's record, by its id or by words that only it has; or a SKU with its variants.",
    )
    showing.add_argument("variant", nargs="+", help="id, SKU, or words: op types design")

    covering = command(
        commands,
        "coverage",
        "show op × type × tier, with the reason for each hole",
        _coverage,
        ("", "--op group_norm", "--holes"),
    )
    covering.add_argument("--op", help="one operation")
    covering.add_argument("--holes", action="store_true", help="only combinations without variants")


def _list(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.records import by_sku, matching, variant_record

    held = registry()
    found = matching(held, **filters_of(options))
    if not found:
        raise no_variants(options)
    if options.ids:
        if options.json:
            print_json([variant.id for variant in found])
        else:
            print("\n".join(variant.id for variant in found))
        return 0
    if options.variants:
        if options.json:
            print_json([variant_record(held, variant).to_dict() for variant in found])
            return 0
        lines: list[tuple[str, ...]] = [
            (
                variant.sku.op.name.lower(),
                _types(variant.sku),
                variant.design,
                "pinned" if variant.pinned_only else str(variant.rank),
                variant.summary,
            )
            for variant in found
        ]
        print_rows(("op", "type", "design", "rank", "how"), lines, f"{len(found)} variants", ("rank",))
        return 0
    records = by_sku(found)
    if options.json:
        print_json([record.to_dict() for record in records])
        return 0
    lines = []
    for record in records:
        sku, guarantee = record.sku, record.sku.precision_guarantee
        lines.append(
            (
                sku.op.name.lower(),
                _types(sku),
                sku.arch.value,
                guarantee.math_precision.value,
                guarantee.accumulator.value,
                "fixed" if _order(guarantee) == "fixed" else "not fixed",
                str(len(record.variants)),
            )
        )
    headings = ("op", "type", "tier", "math", "sums", "order", "variants")
    print_rows(headings, lines, f"{len(records)} SKUs, {len(found)} variants", ("variants",))
    return 0


def _show(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.names import sku_named, variant_named
    from ..inspect.records import SkuRecord, variant_record
    from ..sku import KernelSku

    held = registry()
    words = " ".join(options.variant)
    if words.count("-") >= 8 and "/" not in words:
        sku = sku_named(held, words)
        record = SkuRecord(sku, held.variants(sku))
        if options.json:
            print_json(record.to_dict())
            return 0
        _print_sku(sku)
        rows = table("design", "rank", "how", right=("rank",))
        for variant in record.variants:
            rows.add_row(variant.design, str(variant.rank), variant.summary)
        console().print(rows)
        return 0
    variant = variant_named(held, words)
    data = variant_record(held, variant).to_dict()
    if options.json:
        print_json(data)
        return 0
    assert isinstance(variant.sku, KernelSku)
    _print_sku(variant.sku)
    out = console()
    rows = table("", "", title=variant.design)
    rows.show_header = False
    rows.add_row("how", variant.summary)
    rank = str(variant.rank) + (" (only when pinned)" if variant.pinned_only else "")
    rows.add_row("rank", rank)
    for rule in variant.rank_rules:
        rows.add_row("", f"{rule.rank} where " + " and ".join(map(str, rule.when)))
    for index, constraint in enumerate(variant.constraints):
        why = f" — {constraint.why}" if constraint.why else ""
        rows.add_row("needs" if index == 0 else "", f"{constraint}{why}")
    if variant.alignment > 1:
        rows.add_row("alignment", f"{variant.alignment} bytes")
    if variant.source is not None:
        rows.add_row("tuning", ", ".join(f"{name} {value}" for name, value in variant.tuning.items()))
        rows.add_row("kernels", ", ".join(f"{entry.role} ({entry.symbol})" for entry in variant.entries))
        rows.add_row("targets", ", ".join(variant.targets))
        rows.add_row("source", variant.source)
    if variant.function is not None:
        rows.add_row("function", f"baracuda_registry.reference.{variant.function}")
    out.print(rows)
    return 0


def _coverage(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.matrix import coverage
    from ..inspect.names import op_named

    held = registry()
    matrix = coverage(held)
    wanted = None if options.op is None else op_named(held, options.op)
    cells = [
        cell
        for cell in matrix.cells
        if (wanted is None or cell.op is wanted) and not (options.holes and cell.variants)
    ]
    if options.json:
        data = matrix.to_dict()
        data["cells"] = [cell.to_dict() for cell in cells]
        print_json(data)
        return 0
    out = console()
    tiers = list(dict.fromkeys(cell.arch for cell in cells))
    rows = table("op", "type", *(tier.value for tier in tiers), title="variants by op, type and tier")
    notes: dict[str, int] = {}
    lines: dict[tuple[str, str], dict[Any, str]] = {}
    for cell in cells:
        text = str(cell.variants) if cell.variants else "–"
        marks = [str(notes.setdefault(reason, len(notes) + 1)) for reason in cell.reasons]
        if marks:
            text += f" \\[{','.join(marks)}]"
        types = (
            cell.element.value
            if cell.aux_element is None
            else f"{cell.element.value}/{cell.aux_element.value}"
        )
        lines.setdefault((cell.op.name.lower(), types), {})[cell.arch] = text
    for (op, types), by_tier in lines.items():
        rows.add_row(op, types, *(by_tier.get(tier, "") for tier in tiers))
    out.print(rows)
    for reason, number in notes.items():
        out.print(f"\\[{number}] {reason}")
    if wanted is None:
        for category, names in matrix.reserved:
            out.print(f"not in this library yet, {category.value}: {', '.join(names)}")
    return 0


def _types(sku: Any) -> str:
    aux = "" if sku.aux_element is None else f"/{sku.aux_element.value}"
    return f"{sku.element.value}{aux}"


def _order(guarantee: Any) -> str:
    if guarantee.bit_stable_on_same_hardware and guarantee.deterministic:
        return "fixed"
    return "not deterministic" if not guarantee.deterministic else "not bit-stable"


def _print_sku(sku: Any) -> None:
    guarantee = sku.precision_guarantee
    out = console()
    out.print(str(sku), style="bold", soft_wrap=True)
    out.print(
        f"{sku.category.value} {sku.op.name.lower()}, {_types(sku)}, tier {sku.arch.value}, "
        f"{sku.backend.value}: arithmetic in {guarantee.math_precision.value}, sums in "
        f"{guarantee.accumulator.value}, order {_order(guarantee)}"
    )
