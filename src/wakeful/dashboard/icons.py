"""The icons of the pages: each is drawn once in a page, as a symbol, and used by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from markupsafe import Markup

#: The lines of each icon, in a square of 24 by 24.
PATHS: Final[Mapping[str, str]] = {
    "home": "M3 10.5 12 3l9 7.5V21h-6v-6H9v6H3z",
    "inbox": "M4 13 7 4h10l3 9v7H4zM4 13h5l1.5 3h3L15 13h5",
    "jobs": "M4 5h16v4H4zM4 11h16v4H4zM4 17h10v3H4z",
    "runs": "M6 4l14 8-14 8z",
    "calendar": "M4 6h16v14H4zM4 10h16M8 3v5M16 3v5",
    "agents": "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4.5 3.5-7 8-7s8 2.5 8 7",
    "dead-letters": "M4 6h16v12H4zM4 6l8 7 8-7",
    "incidents": "M12 3 22 20H2zM12 10v4M12 17v.5",
    "cost": "M12 3v18M16.5 7.5C16 6 14 5.5 12 5.5c-2.5 0-4.5 1-4.5 3s2 2.8 4.5 3.3 4.7 1.2 4.7 3.4"
    "-2 3.3-4.7 3.3c-2.4 0-4.4-.9-4.9-2.7",
    "suggestions": "M9 18h6M10 21h4M12 3a6 6 0 0 0-4 10.5c.8.8 1 1.5 1 2.5h6"
    "c0-1 .2-1.7 1-2.5A6 6 0 0 0 12 3z",
    "audit": "M6 3h9l4 4v14H6zM9 11h7M9 15h7",
    "keys": "M14 10a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM13.5 11.5 21 19M18 16l2-2",
    "quotas": "M4 20V10M10 20V4M16 20v-7M21 20H3",
    "channels": "M4 10v4h4l6 5V5L8 10zM17 9a4 4 0 0 1 0 6",
    "subscriptions": "M5 19a14 14 0 0 1 14-14M5 19a8 8 0 0 1 8-8M6 18h.5M15 19h4v-4",
    "workers": "M4 5h16v6H4zM4 13h16v6H4zM7 8h.5M7 16h.5",
    "workspace": "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
    "settings": "M4 7h10M18 7h2M4 17h2M10 17h10M14 4.5v5M7 14.5v5",
    "check": "M5 12.5l4.5 4.5L19 7.5",
    "cross": "M6 6l12 12M18 6L6 18",
    "clock": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.5 2",
    "retry": "M20 12a8 8 0 1 1-2.5-5.8M20 4v4h-4",
    "pause": "M8 5v14M16 5v14",
    "skip": "M5 5l9 7-9 7zM18 5v14",
    "dash": "M6 12h12",
    "eye": "M2 12s3.5-6 10-6 10 6 10 6-3.5 6-10 6-10-6-10-6zM12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
    "plus": "M12 5v14M5 12h14",
    "search": "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 21 21",
    "copy": "M9 9h11v11H9zM5 15H4V4h11v1",
    "edit": "M4 20l1-4L16.5 4.5l3 3L8 19z",
    "trash": "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
    "more": "M6 12h.5M12 12h.5M18 12h.5",
    "menu": "M4 7h16M4 12h16M4 17h16",
    "theme": "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z",
    "person": "M12 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM5 21c0-4 3-6 7-6s7 2 7 6",
    "robot": "M5 9h14v10H5zM12 9V5M9 13h.5M15 13h.5M9 16.5h6",
    "stop": "M6 6h12v12H6z",
    "out": "M14 4h6v16h-6M10 8l-4 4 4 4M6 12h9",
    "link": "M10 14l4-4M8 11l-3 3a3.5 3.5 0 0 0 5 5l3-3M16 13l3-3a3.5 3.5 0 0 0-5-5l-3 3",
}


@cache
def icon(name: str) -> Markup:
    """Return a decorative icon: the text beside it says the same.

    >>> icon("plus")
    Markup('<svg class="icon" aria-hidden="true"><use href="#i-plus"/></svg>')
    """
    if name not in PATHS:
        raise LookupError(f"there is no icon {name}")
    return Markup(f'<svg class="icon" aria-hidden="true"><use href="#i-{name}"/></svg>')


@cache
def symbols() -> Markup:
    """Return the symbols of all icons, for the beginning of a page."""
    drawn = (
        f'<symbol id="i-{name}" viewBox="0 0 24 24"><path d="{path}"/></symbol>'
        for name, path in PATHS.items()
    )
    return Markup(f'<svg class="symbols" aria-hidden="true">{"".join(drawn)}</svg>')
