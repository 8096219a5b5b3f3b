"""One self-contained page about the registry: what there is, what wins where, what was measured.

The page is a static document (`page.html`, `page.css`, `page.js`) into which data is put as compressed JSON; nothing is
fetched, no template engine runs.  Sources make up most of it and repeat each other, so all of them go into one stream.
"""

from .data import gather
from .page import assemble

__all__ = ["assemble", "gather"]
