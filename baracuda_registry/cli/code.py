"""`source`, `ptx`, `sass` and `resources`: a variant's code and what it uses."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .common import command, console, nbytes, print_json, table

_WORDS = "id, or words that only one variant has: op types design"


def add(commands: Any) -> None:
    """Add the commands."""
    for name, summary, examples in (
        ("source", "print a variant's CUDA source", ("group_norm bf16 f32 split_v8",)),
        ("ptx", "print a variant's PTX", ("per_group f32 s8 elementwise_v1 --arch sm_90",)),
        (
            "sass",
            "print a variant's machine code (needs nvdisasm or cuobjdump)",
            ("per_group f32 s8 elementwise_v1 --arch sm_80 -o kernel.sass",),
        ),
    ):
        printing = command(commands, name, summary, _RUN[name], examples)
        printing.add_argument("variant", nargs="+", help=_WORDS)
        if name != "source":
            printing.add_argument("--arch", help="sm_90, … (default: the GPU's here, else sm_90)")
        printing.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it there")

    using = command(
        commands,
        "resources",
        "show registers, spills, shared memory and theoretical occupancy",
        _resources,
        (
            "group_norm bf16 f32 split_v8 --device H200",
            "group_norm bf16 f32 split_v8 --device H200 --problem shape=2,64,1048576 groups=8 dtype=bf16",
        ),
    )
    using.add_argument("variant", nargs="+", help=_WORDS)
    using.add_argument("--arch", help="sm_90, … (default: the device's)")
    using.add_argument("--device", metavar="NAME", help="GPU by name, for the occupancy")
    using.add_argument(
        "--problem",
        nargs="+",
        metavar="FIELD=VALUE",
        help="a problem, for block sizes and dynamic shared memory",
    )


def _emit(options: argparse.Namespace, variant: Any, text: str, lexer: str, architecture: str | None) -> int:
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
    if options.json:
        print_json({"variant": variant.id, "architecture": architecture, "text": text})
    elif options.output is None:
        if sys.stdout.isatty():
            from rich.syntax import Syntax

            console().print(Syntax(text, lexer, background_color="default", word_wrap=True))
        else:
            sys.stdout.write(text)
    return 0


def _source(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.code import source
    from ..inspect.names import variant_named

    held = registry()
    variant = variant_named(held, " ".join(options.variant))
    return _emit(options, variant, source(held, variant), "cuda", None)


def _ptx(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.code import architecture_named, ptx
    from ..inspect.names import variant_named

    held = registry()
    variant = variant_named(held, " ".join(options.variant))
    architecture = architecture_named(variant, options.arch)
    return _emit(options, variant, ptx(held, variant, architecture), "ptx", architecture)


def _sass(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.code import architecture_named, sass
    from ..inspect.names import variant_named

    held = registry()
    variant = variant_named(held, " ".join(options.variant))
    architecture = architecture_named(variant, options.arch)
    return _emit(options, variant, sass(held, variant, architecture), "nasm", architecture)


_RUN = {"source": _source, "ptx": _ptx, "sass": _sass}


def _resources(options: argparse.Namespace) -> int:
    from ..catalog import registry
    from ..inspect.names import variant_named
    from ..inspect.ops import entry_of
    from ..inspect.usage import resources

    held = registry()
    variant = variant_named(held, " ".join(options.variant))
    desc = None if options.problem is None else entry_of(variant.sku.op).parse(options.problem)
    device = options.device or ("H200" if desc is not None else None)
    uses = resources(held, variant, architecture=options.arch, device=device, descriptor=desc)
    if options.json:
        print_json({"variant": variant.id, "device": device, "kernels": [use.to_dict() for use in uses]})
        return 0
    out = console()
    out.print(f"{variant.id} for {uses[0].architecture}", style="bold", soft_wrap=True)
    rows = table("kernel", *(use.role for use in uses), right=[use.role for use in uses])
    lines: dict[str, Any] = {
        "registers a thread": lambda use: str(use.used.registers),
        "spills": lambda use: nbytes(use.used.spill_store_bytes + use.used.spill_load_bytes),
        "stack": lambda use: nbytes(use.used.stack_bytes),
        "static shared memory": lambda use: nbytes(use.used.shared_bytes),
        "dynamic shared memory": lambda use: _or_unknown(use.dynamic_shared_bytes, nbytes),
        "threads a block": lambda use: _or_unknown(use.threads, str),
    }
    if device is not None:
        lines |= {
            "blocks a multiprocessor": lambda use: _or_unknown(use.occupancy, lambda fits: str(fits.blocks)),
            "theoretical occupancy": lambda use: _or_unknown(
                use.occupancy, lambda fits: f"{fits.fraction:.0%}"
            ),
            "limited by": lambda use: _or_unknown(use.occupancy, lambda fits: ", ".join(fits.limited_by)),
        }
    for name, text in lines.items():
        rows.add_row(name, *(text(use) for use in uses))
    out.print(rows)
    if device is None:
        out.print("name a device for the occupancy, and a problem for block sizes and dynamic shared memory")
    return 0


def _or_unknown(value: Any, text: Any) -> str:
    return "?" if value is None else str(text(value))
