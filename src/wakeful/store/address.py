"""Addresses of databases in messages: never with a password."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

#: One or several hosts, each with its port or without.
_HOSTS: Final = re.compile(r"((\[[0-9A-Fa-f:.%]*\]|[^:,\[\]]*)(:\d{1,5})?(,|$))*")


def split_address(url: str) -> SplitResult | None:
    """The parts of a database URL; None where it cannot be parsed.

    A `/`, `?`, `#` or `[` in a password has to be percent-encoded. Where it is not, the parts are wrong, and
    the end of the password is in the path: such a URL cannot be parsed either.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    hosts = parts.netloc.rpartition("@")[2]
    if not _HOSTS.fullmatch(hosts) or "@" in parts.path or parts.fragment:
        return None
    return parts


def shown_address(url: str) -> str:
    """The address of a database as it may stand in a message: without the password and the options.

    >>> shown_address("postgresql://ada:secret@db.example:5432/main?password=secret")
    'postgresql://ada@db.example:5432/main'
    >>> shown_address("mysql://ada:sec/ret@db.example/main"), shown_address("sqlite:///wakeful.db")
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
