"""The parser, and what all commands share: errors in one line, interruption, a closed pipe."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import BaracudaError
from .common import PROGRAM, Formatter

GROUPS: dict[str, tuple[str, ...]] = {
    "catalog": ("list", "show", "coverage"),
    "choice": ("explain",),
    "code": ("source", "ptx", "sass", "resources"),
    "compiling": ("compile",),
    "verify": ("verify",),
    "measure": ("bench", "tune"),
    "cache": ("cache",),
    "doctor": ("doctor",),
    "report": ("report",),
    "completion": ("completion",),
}
"""Commands by the module that adds them; a run imports that of its own command only."""

EPILOG = """\
examples:
  baracuda-registry list --op group_norm --element bf16
  baracuda-registry explain group_norm shape=32,320,64,64 groups=32 dtype=bf16 --device H200
  baracuda-registry coverage --op lp_pool1d
  baracuda-registry doctor
"""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of every command, or of those in the module that adds the command `only`."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Inspect, compile, check and measure the registry's kernel variants.",
        epilog=EPILOG,
        formatter_class=Formatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module, names in GROUPS.items():
        if only is None or only in names:
            importlib.import_module(f".{module}", __package__).add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 = done, 1 = done with findings, 2 = bad input or set-up.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in words if not word.startswith("-")), None)
    known = [name for names in GROUPS.values() for name in names]
    if command is not None and command not in known:
        from ..inspect.names import unknown

        print(f"{PROGRAM}: error: {unknown('command', command, known)}", file=sys.stderr)
        return 2
    options = build_parser(command).parse_args(words)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BaracudaError as error:
        if options.debug:
            raise
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough (`| head`); what Python flushes at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if options.debug:
            raise
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        print(f"{PROGRAM}: error: {what}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; what was done is kept", file=sys.stderr)
        return 2
