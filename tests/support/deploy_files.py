"""What the files in `deploy/` have in common: the settings that they name."""

from __future__ import annotations

import re
from dataclasses import fields

from wakeful.settings import PREFIX, Settings

_NAME = re.compile(rf"\b{PREFIX}[A-Z][A-Z_]*[A-Z]\b")
#: Settings of clients, and those that collect a prefix.
_OTHERS = ("URL", "KEY", "WORKSPACE", "AGENT")


def unknown_settings(text: str) -> set[str]:
    """Return the names in a text that look like settings and are none."""
    known = {PREFIX + field.name.upper() for field in fields(Settings)}
    known |= {PREFIX + name for name in _OTHERS}
    return {
        name for name in _NAME.findall(text) if name not in known and not name.startswith(PREFIX + "LANE_")
    }
