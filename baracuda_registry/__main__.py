"""`python -m baracuda_registry`."""

import sys

from .cli import main

sys.exit(main())
