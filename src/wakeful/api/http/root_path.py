"""The path below which a host application serves the API and the dashboard: `/wakeful`; empty for a server.

A request has it in its scope (`root_path`, before the path of the route). Addresses in pages and responses
begin with it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from starlette._utils import get_route_path
from starlette.types import Scope

#: The name in the scope of a request to a mounted app: returns the user that the host authenticated, or None.
HOST_USER: Final = "wakeful.host_user"
_ROOT: Final[ContextVar[str]] = ContextVar("wakeful_root_path", default="")


def use_root_path(scope: Scope) -> None:
    """Use the root path of a request for all addresses that are made for it."""
    _ROOT.set(str(scope.get("root_path", "")).rstrip("/"))


def root_path() -> str:
    """Return the root path of the current request, without a slash at its end."""
    return _ROOT.get()


def href(path: str) -> str:
    """Return the address of a path of this app on its host.

    >>> use_root_path({"root_path": "/wakeful"})
    >>> href("/sign-in")
    '/wakeful/sign-in'
    >>> use_root_path({})
    >>> href("/sign-in")
    '/sign-in'
    """
    return _ROOT.get() + path


def route_path(scope: Scope) -> str:
    """Return the path of a request below the root path."""
    return get_route_path(scope)
