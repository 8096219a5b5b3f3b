"""Sphinx's configuration; op pages and the reference are written from the registry and the docstrings first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import baracuda_registry  # noqa: E402

project = "baracuda_registry"
author = "the baracuda_registry authors"
release = version = baracuda_registry.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"baracuda_registry {release}"
default_role = "code"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_rtype = False
# Fields are documented by their class, once: under Attributes.
napoleon_use_ivar = True
exclude_patterns = ["build"]
suppress_warnings = ["ref.python"]


def setup(app: Any) -> None:
    """Write the generated pages before anything is read."""
    import pages

    app.connect("builder-inited", lambda _: pages.write(HERE))
