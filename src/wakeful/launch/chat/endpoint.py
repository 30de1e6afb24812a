"""The HTTP client of chat endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final, NamedTuple

from yarl import URL

from wakeful.document.values import compact
from wakeful.errors import InvalidArgument
from wakeful.job.job import Json
from wakeful.launch.address_guard import AddressGuard, AddressRefused, GuardedResolver
from wakeful.launch.chat.failures import CONTEXT_LENGTH
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.errors import HttpError, connection_failure
from wakeful.launch.http.messages import Response
from wakeful.launch.port import truncate
from wakeful.launch.webhook_response import MAX_RETRY_AFTER_MS, read_text, retry_after_ms
from wakeful.run.outcome import Failed
from wakeful.values.clock import Clock

#: The largest response that is read, in bytes, and the largest request: it has the answers of a turn.
MAX_RESPONSE: Final = 4 * 1024 * 1024
MAX_REQUEST: Final = 2 * MAX_RESPONSE
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
        self._resolver = GuardedResolver(guard, threads=_CONNECTIONS)
        self._agent = f"wakeful/{version('wakeful')}"
        self._client: HttpClient | None = None

    async def open(self) -> None:
        """Create the client."""
        self._client = HttpClient(
            self._guard, self._resolver, connections=_CONNECTIONS, per_host=_CONNECTIONS
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            await self._resolver.close()
            self._client = None

    def check(self, url: URL) -> None:
        """Raise InvalidArgument for a host that can never be reached."""
        try:
            self._guard.check_host(url.raw_host or "")
        except AddressRefused as error:
            raise InvalidArgument(f"target: {error}") from error

    async def post(
        self,
        url: URL,
        headers: Mapping[str, str],
        body: dict[str, Json],
        on_sent: Callable[[], None] | None = None,
    ) -> Reply | Failed:
        """Post a request and return the response, or why there is none. `on_sent`: see `HttpClient`."""
        assert self._client is not None, "open() comes first"
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
            if len(data) > MAX_REQUEST:
                return Failed(
                    f"the request is larger than {MAX_REQUEST // 1024} KB, with what the model has answered "
                    "in this turn",
                    permanent=True,
                    reason=CONTEXT_LENGTH,
                )
            response = await self._client.request("POST", url, sent, data, MAX_RESPONSE, on_sent)
        except (HttpError, OSError) as error:
            self._on_response(None)
            return connection_failure(error)
        except ValueError as error:  # a header that cannot be sent
            return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")
        self._on_response(response.status)
        text = read_text(response, MAX_RESPONSE)
        if len(text) >= MAX_RESPONSE:
            return Failed(f"the response is larger than {MAX_RESPONSE // 1024} KB", reason="bad_response")
        return Reply(response.status, text, self._wait_ms(response))

    def _wait_ms(self, response: Response) -> int | None:
        exact = response.header(b"retry-after-ms") or ""
        if exact.isascii() and exact.isdigit() and len(exact) < 20:
            return min(int(exact), MAX_RETRY_AFTER_MS)
        return retry_after_ms(response.header(b"retry-after"), self._clock.now_ms())
