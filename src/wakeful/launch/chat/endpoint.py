"""The HTTP client of chat endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final, NamedTuple

from aiohttp import ClientError, ClientSession
from yarl import URL

from wakeful.clock import Clock
from wakeful.document.values import compact
from wakeful.errors import InvalidArgument
from wakeful.job import Json
from wakeful.launch.address_guard import AddressGuard, AddressRefused, GuardedResolver
from wakeful.launch.guarded_http import connection_failure, guarded_session
from wakeful.launch.port import truncate
from wakeful.launch.webhook_response import MAX_RETRY_AFTER_MS, read_text, retry_after_ms
from wakeful.outcome import Failed

#: The largest response that is read, in bytes.
MAX_RESPONSE: Final = 4 * 1024 * 1024
_CONNECTIONS: Final = 500


class Reply(NamedTuple):
    """The response of an endpoint."""

    status: int
    text: str
    #: the delay that it requests
    retry_after_ms: int | None


class ChatEndpoint:
    """Posts requests to allowed addresses. `on_response` is called with each status, or None."""

    def __init__(
        self,
        guard: AddressGuard,
        clock: Clock,
        on_response: Callable[[int | None], None],
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._on_response = on_response
        self._resolver = GuardedResolver(guard)
        self._agent = f"wakeful/{version('wakeful')}"
        self._session: ClientSession | None = None

    async def open(self) -> None:
        """Create the client."""
        self._session = guarded_session(
            self._guard, self._resolver, connections=_CONNECTIONS, per_host=_CONNECTIONS
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            await self._resolver.close()
            self._session = None

    def check(self, url: URL) -> None:
        """Raise InvalidArgument for a host that can never be reached."""
        try:
            self._guard.check_host(url.raw_host or "")
        except AddressRefused as error:
            raise InvalidArgument(f"target: {error}") from error

    async def post(self, url: URL, headers: Mapping[str, str], body: dict[str, Json]) -> Reply | Failed:
        """Post a request and return the response, or why there is none."""
        assert self._session is not None, "open() comes first"
        sent = {
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": self._agent,
            **headers,
        }
        try:
            self._guard.check_host(url.raw_host or "")  # for a clear error; the socket does the real check
            data = compact(body).encode("utf-8", "replace")
            async with self._session.post(url, data=data, headers=sent, allow_redirects=False) as response:
                self._on_response(response.status)
                text = await read_text(response, MAX_RESPONSE)
                if len(text) >= MAX_RESPONSE:
                    return Failed(
                        f"the response is larger than {MAX_RESPONSE // 1024} KB", reason="bad_response"
                    )
                return Reply(response.status, text, self._wait_ms(response.headers))
        except (ClientError, OSError) as error:
            self._on_response(None)
            return connection_failure(error)
        except ValueError as error:  # aiohttp refuses to send it
            return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")

    def _wait_ms(self, headers: Mapping[str, str]) -> int | None:
        exact = headers.get("retry-after-ms", "")
        if exact.isascii() and exact.isdigit() and len(exact) < 20:
            return min(int(exact), MAX_RETRY_AFTER_MS)
        return retry_after_ms(headers.get("retry-after"), self._clock.now_ms())
