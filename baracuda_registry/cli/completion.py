"""`completion`: a script that teaches a shell the commands and their options."""

from __future__ import annotations

import argparse
from typing import Any

from .common import PROGRAM, command, print_json


def add(commands: Any) -> None:
    """Add the command."""
    completing = command(
        commands,
        "completion",
        "print a completion script for bash, zsh or tcsh",
        _complete,
        (
            "bash > ~/.local/share/bash-completion/completions/baracuda-registry",
            "zsh > ~/.zfunc/_baracuda-registry",
        ),
    )
    completing.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def _complete(options: argparse.Namespace) -> int:
    import shtab

    from .main import build_parser

    parser = build_parser()
    parser.prog = PROGRAM
    script = shtab.complete(parser, shell=options.shell)
    if options.json:
        print_json({"shell": options.shell, "script": script})
    else:
        print(script)
    return 0
