"""Regions of pages, cached for two seconds: many equal dashboards cost one rendering.

A response is shared by callers who see the same: of the same workspace, role, agent and time zone. So a
region must not show anything about the caller's own key or session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from starlette.responses import Response

from wakeful.api.http.compression import SMALLEST, compress
from wakeful.bounded_cache import MB, BoundedCache
from wakeful.service.auth.access import Principal

#: How long a region is kept, in seconds.
KEPT_S: Final = 2.0
#: How many regions a request may name.
MOST_REGIONS: Final = 10
_BUDGET: Final = 16 * MB

Key = tuple[str | None, str, str | None, str, str, str]


class _Kept(NamedTuple):
    body: bytes
    #: None: it is too small
    compressed: bytes | None
    headers: dict[str, str]
    at: float

    def response(self, gzip: bool) -> Response:
        headers = {**self.headers, "vary": "x-wakeful-region, accept-encoding"}
        if not gzip or self.compressed is None:
            return Response(self.body, headers=headers)
        return Response(self.compressed, headers={**headers, "content-encoding": "gzip"})


def region_names(header: str | None) -> tuple[str, ...]:
    """Return the regions that a request asks for; none: the whole page.

    >>> region_names("runs, figures"), region_names(None)
    (('runs', 'figures'), ())
    """
    names = [name.strip() for name in (header or "").split(",")]
    return tuple(dict.fromkeys(filter(None, names)))[:MOST_REGIONS]


def region_key(principal: Principal, url: str, header: str, zone: str = "UTC") -> Key:
    """Return what a cached response depends on."""
    return principal.workspace, principal.role, principal.agent, url, header, zone


class RegionCache:
    """Responses with regions, for a short time. Equal requests at the same time are handled once."""

    def __init__(self) -> None:
        self._kept: BoundedCache[Key, _Kept] = BoundedCache(_BUDGET)
        self._making: dict[Key, asyncio.Task[Response | _Kept]] = {}

    async def get(self, key: Key, make: Callable[[], Awaitable[Response]], *, gzip: bool = False) -> Response:
        """Return the cached response, or make one. Only a success is kept, and compressed only once."""
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept.at < KEPT_S:
            return kept.response(gzip)
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.ensure_future(self._make(key, make))
            task.add_done_callback(lambda _: self._making.pop(key, None))
        made = await asyncio.shield(task)
        if isinstance(made, _Kept):
            return made.response(gzip)
        return Response(made.body, made.status_code, dict(made.headers))

    async def _make(self, key: Key, make: Callable[[], Awaitable[Response]]) -> Response | _Kept:
        response = await make()
        if response.status_code != 200:
            return response
        body = bytes(response.body)
        compressed = compress(body) if len(body) >= SMALLEST else None
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        kept = _Kept(body, compressed, headers, time.monotonic())
        self._kept.put(key, kept, len(body) + len(compressed or b"") + 2_000)
        return kept
