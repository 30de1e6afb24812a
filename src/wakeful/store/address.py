"""Database addresses, as messages show them: without a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

#: One or several hosts, each with its port or without.
_HOSTS: Final = re.compile(r"((\[[0-9A-Fa-f:.%]*\]|[^:,\[\]]*)(:\d{1,5})?(,|$))*")


def split_address(url: str) -> SplitResult | None:
    """Return the parts of a database URL; None if it cannot be parsed.

    A `/`, `?`, `#` or `[` in a password has to be percent-encoded. Otherwise the end of the password would be
    in the path: such a URL is not parsed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    hosts = parts.netloc.rpartition("@")[2]
    if not _HOSTS.fullmatch(hosts) or "@" in parts.path or parts.fragment:
        return None
    return parts


def mask_address(url: str) -> str:
    """Return the address of a database for a message: without the password and the options.

    >>> mask_address("postgresql://ada:secret@db.example:5432/main?password=secret")
    'postgresql://ada@db.example:5432/main'
    >>> mask_address("mysql://ada:sec/ret@db.example/main"), mask_address("sqlite:///wakeful.db")
    ('mysql://…', 'sqlite:///wakeful.db')
    """
    scheme, mark, _ = url.partition("://")
    if scheme == "sqlite":
        return url
    parts = split_address(url) if mark else None
    if parts is None or ("@" in parts.query and "@" not in parts.netloc):
        return f"{scheme}://…" if mark else "…"
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}"
