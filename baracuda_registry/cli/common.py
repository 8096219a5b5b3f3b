"""What the commands share: parsers with examples, output as text or JSON, and progress bars."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidProblem

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..preference import PlanPreference

PROGRAM = "baracuda-registry"


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help that keeps examples as written and fits a narrow terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)


def command(
    commands: Any,
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
    examples: Sequence[str],
    description: str = "",
) -> argparse.ArgumentParser:
    """Add a command with `--json` and `--debug`, and examples under its help."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description or f"{summary[0].upper()}{summary[1:]}.", 79),
        epilog="examples:\n" + "\n".join(f"  {PROGRAM} {name} {example}".rstrip() for example in examples),
        formatter_class=Formatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser.set_defaults(run=run)
    return parser


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Options by which variants are filtered."""
    parser.add_argument("pattern", nargs="?", help="text in the id or summary; * and ? as in file names")
    parser.add_argument("--category", help="pooling, normalization or quantization")
    parser.add_argument("--op", help="operation, such as group_norm_backward")
    parser.add_argument("--element", "--dtype", help="type of the main tensors: f32, f64, f16, bf16")
    parser.add_argument("--aux", help="second type (codes, statistics); none = those without")
    parser.add_argument("--tier", help="architecture tier: sm80, sm90a, host, …")
    parser.add_argument("--backend", help="bespoke (generated CUDA) or reference (NumPy)")
    parser.add_argument(
        "--guarantee", help="deterministic, bit-stable, not-deterministic, not-bit-stable, or its text"
    )


def filters_of(options: argparse.Namespace) -> dict[str, Any]:
    """What `add_filters` parsed, as arguments of `Registry.find`."""
    return {
        "category": options.category,
        "op": options.op,
        "element": options.element,
        "aux_element": options.aux,
        "arch": options.tier,
        "backend": options.backend,
        "guarantee": options.guarantee,
        "pattern": options.pattern,
    }


def add_preference(parser: argparse.ArgumentParser) -> None:
    """Options of a `PlanPreference`."""
    wishes = parser.add_argument_group("preference")
    wishes.add_argument("--max-workspace", type=int, metavar="BYTES", help="largest workspace")
    wishes.add_argument("--no-sm90a", action="store_true", help="leave out variants of the sm90a tier")
    wishes.add_argument("--prefer-backend", metavar="NAME", help="the backend that must serve it")
    wishes.add_argument("--bit-stable", action="store_true", help="only bit-stable variants")
    wishes.add_argument("--deterministic", action="store_true", help="only deterministic variants")
    wishes.add_argument("--variant", metavar="ID", help="pin one variant by id or design")


def preference_of(options: argparse.Namespace) -> PlanPreference:
    """What `add_preference` parsed.

    Raises:
        InvalidProblem: a value that is not one.
    """
    from ..preference import PlanPreference

    backend = None
    if options.prefer_backend is not None:
        from ..inspect.names import member
        from ..sku import BackendKind

        backend = member(BackendKind, options.prefer_backend, "backend")
    return PlanPreference(
        max_workspace_bytes=options.max_workspace,
        allow_sm90a=not options.no_sm90a,
        prefer_backend=backend,
        require_bit_stable=options.bit_stable,
        require_deterministic=options.deterministic,
        variant=options.variant,
    )


def print_json(value: Any) -> None:
    """One document on standard output."""
    json.dump(value, sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")


def console(*, stderr: bool = False) -> Console:
    """A console that has colour on terminals only."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def table(*headings: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """A table without vertical rules; the headings named in `right` are numbers."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, title_style="bold")
    numbers = set(right)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    return made


def print_rows(
    headings: Sequence[str], rows: Sequence[Sequence[str]], title: str, numbers: Sequence[str]
) -> None:
    """A long table at once, its last column wrapped to the terminal's width, or put below where little is left of it.

    Rich takes longer to lay out a hundred rows than everything else together, so long lists do without it.
    """
    import shutil

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    below = widths[-1] > width - before and width - before < 30
    lines = [f"{bold}{title}{plain}"]
    for index, row in enumerate((headings, *rows)):
        texts = textwrap.wrap(row[-1], width - 4 if below else min(widths[-1], width - before)) or [""]
        beside = "" if below else texts.pop(0)
        cells = [
            text.rjust(size) if heading in numbers else text.ljust(size)
            for heading, text, size in zip(headings, [*row[:-1], beside], widths)
        ]
        line = "  ".join(cells).rstrip()
        lines.append(f"{bold}{line}{plain}" if index == 0 else line)
        lines += [" " * (4 if below else before) + part for part in texts]
    print("\n".join(lines))


def track(items: Iterable[Any], what: str, total: int, *, quiet: bool = False) -> Iterator[Any]:
    """Go through items with a progress bar on standard error; none where that is no terminal, or when quiet."""
    if quiet or not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track as progress

    yield from progress(items, what, total=total, console=console(stderr=True), transient=True)


def nbytes(size: float) -> str:
    """A size in bytes for a person: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" or size == int(size) else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def seconds(value: float) -> str:
    """A duration for a person: `12.3 µs`."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if value * factor < 1000:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def positive(text: str) -> int:
    """An int above 0, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def no_variants(options: argparse.Namespace) -> InvalidProblem:
    """The error for filters that leave nothing."""
    given = ", ".join(f"{name} {value}" for name, value in filters_of(options).items() if value is not None)
    return InvalidProblem(f"no variant has {given}; `{PROGRAM} list` shows what there is")
