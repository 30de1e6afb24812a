"""The objects of the start: modules, routes and templates, which stay until the process ends.

A full garbage collection looks at each object. With those of the start, about 180,000, it stops all requests
for a tenth of a second.
"""

from __future__ import annotations

import gc


def exempt_startup_objects() -> None:
    """Exempt all objects that exist now from garbage collection. For processes that only run a server."""
    gc.freeze()
