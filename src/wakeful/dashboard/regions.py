"""Regions of pages, cached for two seconds: many equal dashboards cost one rendering.

A page that received an event gets a response that was rendered after it: it names the number of that event.

A response is shared by callers who see the same: of the same workspace, role, agent and time zone, either
people or calls of a run. So a region must not show anything about the caller's own key or session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from starlette.responses import Response

from wakeful.api.http.compression import SMALLEST, compress
from wakeful.service.auth.access import Principal
from wakeful.values.bounded_cache import MB, BoundedCache

#: How long a region is kept, in seconds.
KEPT_S: Final = 2.0
#: How many regions a request may name.
MOST_REGIONS: Final = 10
_BUDGET: Final = 16 * MB

Key = tuple[str | None, str, str | None, str | None, str, str, str]


class _Kept(NamedTuple):
    body: bytes
    #: None: it is too small
    compressed: bytes | None
    headers: dict[str, str]
    at: float
    position: int

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


def wanted_position(header: str | None) -> int | None:
    """Return the number of the last event that a page has received; None: it wants what is stored now.

    >>> wanted_position("12"), wanted_position("now"), wanted_position(None)
    (12, None, 0)
    """
    if header is None:
        return 0
    return int(header) if header.isascii() and header.isdecimal() and len(header) < 19 else None


def region_key(principal: Principal, url: str, header: str, zone: str = "UTC") -> Key:
    """Return what a cached response depends on."""
    # A run may do less than a person, and one less than another: `may` decides which buttons there are.
    return principal.workspace, principal.role, principal.agent, principal.run_id, url, header, zone


class _Making(NamedTuple):
    position: int
    task: asyncio.Task[Response | _Kept]


class RegionCache:
    """Responses with regions, for a short time. Equal requests at the same time are handled once."""

    def __init__(self) -> None:
        self._kept: BoundedCache[Key, _Kept] = BoundedCache(_BUDGET)
        self._making: dict[Key, _Making] = {}

    async def get(
        self,
        key: Key,
        make: Callable[[], Awaitable[Response]],
        *,
        position: int = 0,
        after: int | None = 0,
        gzip: bool = False,
    ) -> Response:
        """Return a response that shows all events up to `after`; None: what is stored now.

        `position` is the number of the last event that a response shows which is made now. Only a success is
        kept. It is compressed once.
        """
        kept = self._kept.get(key)
        if kept is not None and _shows(kept.position, after) and time.monotonic() - kept.at < KEPT_S:
            return kept.response(gzip)
        making = self._making.get(key)
        if making is None or not _shows(making.position, after):
            task = asyncio.ensure_future(self._make(key, make, position))
            self._making[key] = making = _Making(position, task)
            task.add_done_callback(lambda _: self._finish_region(key, task))
        made = await asyncio.shield(making.task)
        if isinstance(made, _Kept):
            return made.response(gzip)
        return Response(made.body, made.status_code, dict(made.headers))

    def _finish_region(self, key: Key, task: asyncio.Task[Response | _Kept]) -> None:
        if key in self._making and self._making[key].task is task:
            del self._making[key]

    async def _make(
        self, key: Key, make: Callable[[], Awaitable[Response]], position: int
    ) -> Response | _Kept:
        response = await make()
        if response.status_code != 200:
            return response
        body = bytes(response.body)
        compressed = compress(body) if len(body) >= SMALLEST else None
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        kept = _Kept(body, compressed, headers, time.monotonic(), position)
        named = sum(len(each or "") for each in key)  # an address may be long
        self._kept.put(key, kept, len(body) + len(compressed or b"") + named + 2_000)
        return kept


def _shows(position: int, after: int | None) -> bool:
    return after is not None and position >= after
