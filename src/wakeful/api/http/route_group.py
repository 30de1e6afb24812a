"""Routes under one path: a request for another path skips all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

_NONE: Final[tuple[Match, Scope]] = Match.NONE, {}


class RouteGroup(BaseRoute):
    """Routes whose paths all begin with `prefix`. As one after the other, but faster."""

    def __init__(self, prefix: str, routes: Sequence[BaseRoute]) -> None:
        self._prefix = prefix
        #: the routes, in the order in which they are tried
        self.routes = tuple(routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return the first route that matches the path and the method, else one that matches the path."""
        path: str = scope.get("path", "")
        if not path.removeprefix(scope.get("root_path", "")).startswith(self._prefix):
            return _NONE
        found = _NONE
        for route in self.routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return match, {**child, "grouped": route}
            if match is Match.PARTIAL and found is _NONE:
                found = match, {**child, "grouped": route}
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with the route that matched."""
        route: BaseRoute = scope["grouped"]
        await route.handle(scope, receive, send)
