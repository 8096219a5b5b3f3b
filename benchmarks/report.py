"""`python -m benchmarks.report FILE…`: the generated parts of the documents, the README's line, and the plots.

Documents hold markers, `<!-- begin NAME -->` … `<!-- end NAME -->`; what is between them is written here, from the
results alone, so that no figure in a document can differ from what was measured.  `--check` writes nothing and fails
where a document is not what the results say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from . import results, tables
from .results import Report

ROOT = Path(__file__).parent.parent


class DocumentError(ValueError):
    """A document that lacks a marker."""


def fill(document: str, sections: dict[str, str], name: str) -> str:
    """The document with what belongs between its markers.

    Raises:
        DocumentError: a section's markers are missing.
    """
    for section, text in sections.items():
        markers = f"(<!-- begin {section} -->\n).*?(<!-- end {section} -->)"
        found = re.search(markers, document, re.DOTALL)
        if found is None:
            raise DocumentError(f"{name} has no <!-- begin {section} --> … <!-- end {section} -->")
        document = document[: found.end(1)] + text + document[found.start(2) :]
    return document


def documents(report: Report, root: Path) -> dict[Path, str]:
    """What the documents below a root must say, by path."""
    performance, front, pytorch = (
        root / "docs" / "performance.md",
        root / "README.md",
        root / "docs" / "pytorch.md",
    )
    sections = {name: make(report) for name, make in tables.SECTIONS.items()}
    return {
        performance: fill(performance.read_text(encoding="utf-8"), sections, performance.name),
        front: fill(front.read_text(encoding="utf-8"), {"performance": tables.readme(report)}, front.name),
        pytorch: fill(pytorch.read_text(encoding="utf-8"), {"network": networks(root)}, pytorch.name),
    }


def networks(root: Path) -> str:
    """Tables of every network that was timed, from `benchmarks/results/network/`, which `benchmarks.network` writes."""
    lines = []
    for path in sorted((root / "benchmarks" / "results" / "network").glob("*.json")):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            shape = "×".join(str(extent) for extent in found["rows"][0]["shape"])
            lines += [f"{found['gpu']}, PyTorch {found['torch']}, input {shape}:", ""]
            lines += ["| dtype | step | way | torch µs | baracuda µs | × |", "|---|---|---|---:|---:|---:|"]
            for row in found["rows"]:
                theirs, ours = (row["times"][name]["median_us"] for name in ("torch", "baracuda"))
                lines.append(
                    f"| {row['dtype']} | {row['step']} | {row['way']} | {theirs:.0f} | {ours:.0f} | {theirs / ours:.2f} |"
                )
            lines += ["", "| a call on a tiny tensor | µs of the host |", "|---|---:|"]
            lines += [f"| `{name}` | {cost:.1f} |" for name, cost in found["host_us"].items()]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise results.ResultsError(f"{path} is no network's results file: {error!r}") from error
        lines.append("")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, or check, the documents; 1 if a check finds one that differs, 2 for a file that is no results file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="results files; they are merged")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a document differs")
    parser.add_argument("--no-plots", dest="plots", action="store_false", help="leave the plots alone")
    parser.add_argument("--root", type=Path, default=ROOT, help="where README.md and docs/ are")
    options = parser.parse_args(arguments)
    try:
        report = results.merge(results.load(path) for path in options.files)
        wanted = documents(report, options.root)
    except (results.ResultsError, DocumentError) as error:
        print(error, file=sys.stderr)
        return 2
    stale = [path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    if options.check:
        for path in stale:
            print(f"{path} is not what the results say; run python -m benchmarks.report", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
        print(f"wrote {path}")
    if options.plots:
        try:
            from . import plots
        except ImportError as error:
            print(f"plots need matplotlib ({error}); install it or say --no-plots", file=sys.stderr)
            return 2
        for path in plots.draw(report, options.root / "docs" / "plots"):
            print(f"wrote {path}")
    print(tables.target_summary(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
