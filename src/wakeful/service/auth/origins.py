"""Checks of the `Origin` and `Host` headers: which web pages may use the server.

A page of another site can open a WebSocket or send a request to any server that the browser can reach, also
on a private network. The browser sends the site of the page in `Origin`. With DNS rebinding, the name of that
site resolves to the server, so that `Host` and `Origin` agree: then only a list of hosts helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wakeful.errors import InvalidArgument, PermissionDenied
from wakeful.settings import PREFIX

ORIGINS: Final = f"{PREFIX}ALLOWED_ORIGINS"
HOSTS: Final = f"{PREFIX}ALLOWED_HOSTS"
ANY: Final = "*"
_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class Origins:
    """The origins and hosts that the operator allows.

    >>> Origins((), ()).check_origin("https://wakeful.example", "wakeful.example")
    >>> Origins((), ()).check_origin("https://evil.example", "wakeful.example")
    Traceback (most recent call last):
    wakeful.errors.PermissionDenied: pages of 'https://evil.example' may not use this server; an operator \
allows them with WAKEFUL_ALLOWED_ORIGINS
    """

    def __init__(self, origins: Iterable[str], hosts: Iterable[str]) -> None:
        self._origins = frozenset(_read(ORIGINS, _ORIGIN, each, "https://app.example") for each in origins)
        self._hosts = frozenset(_read(HOSTS, _HOST, each, "wakeful.example.com") for each in hosts)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Raise PermissionDenied for a page of another site that is not allowed. No `Origin`: not a page."""
        if origin is None or ANY in self._origins or origin.lower() in self._origins:
            return
        scheme, _, site = origin.lower().partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        if port and host and site.removesuffix(port) == host.lower().removesuffix(port):
            return
        raise PermissionDenied(
            f"pages of '{origin[:200]}' may not use this server; an operator allows them with {ORIGINS}"
        )

    def check_host(self, host: str | None) -> None:
        """Raise PermissionDenied for a host that is not in the list, if there is a list."""
        if not self._hosts:
            return
        name = (host or "").lower()
        found = _HOST.fullmatch(name)
        if found is None or not {name, found[1]} & self._hosts:
            raise PermissionDenied(
                f"this server does not answer for the host '{name[:200]}'; an operator allows it with {HOSTS}"
            )


def _read(setting: str, form: re.Pattern[str], entry: str, example: str) -> str:
    text = entry.lower().rstrip("/") if "://" in entry else entry.lower()
    if not form.fullmatch(text):
        raise InvalidArgument(f"{setting}: '{entry[:200]}' is not valid; write it as {example}")
    return text
