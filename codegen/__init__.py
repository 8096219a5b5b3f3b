"""Build time: expands the op tables through Jinja templates into `generated/`.

Nothing at run time imports this package; what the run time needs of a variant is data in `generated/manifest.json`.
"""
