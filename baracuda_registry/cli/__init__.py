"""The command line: `baracuda-registry`, or `python -m baracuda_registry`.

One file a group of commands; each adds its parsers and imports what it runs only when it runs.  Exit codes: 0 = done,
1 = done with findings (a spill, a wrong result, a problem in the set-up), 2 = bad input or a set-up that does not allow
the command.  What a command finds goes to standard output, progress and errors to standard error.
"""

from .main import main

__all__ = ["main"]
