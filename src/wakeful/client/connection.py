"""The way to the server and back: one request, one answer, or the error that it means.

The HTTP library is imported when something is first asked: a command that asks nobody starts without it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast
from urllib.parse import quote

from wakeful.client.tls import ClientTls
from wakeful.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    WakefulError,
)
from wakeful.job import Json

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
Query = Mapping[str, str | int | bool | list[str] | None]

#: Seconds to reach the server at most.
_CONNECTED: Final = 10.0
#: Seconds without a byte after which a stream is broken: the server says something every 15.
_SILENCE: Final = 45.0
_BY_CODE: Final[dict[str, type[WakefulError]]] = {
    kind.code: kind
    for kind in (
        InvalidArgument,
        Unauthenticated,
        PermissionDenied,
        NotFound,
        AlreadyExists,
        FailedPrecondition,
        ResourceExhausted,
        Unavailable,
    )
}
_BY_STATUS: Final[dict[int, type[WakefulError]]] = {
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    409: FailedPrecondition,
    429: ResourceExhausted,
}


class Page(list[T], Generic[T]):
    """A page of a list, and the cursor to the next one; None where there is none."""

    def __init__(self, answer: Json, name: str) -> None:
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(found, list):
            raise Unavailable(f"the server answered, but not as Wakeful does: there are no {name} in it")
        super().__init__(cast(list[T], found))
        self.cursor = cast(str | None, answer.get("cursor"))


class Connection:
    """A server that can be asked, by those who hold one of its keys."""

    def __init__(
        self, url: str, key: str | None, timeout: float = 30.0, tls: ClientTls | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.key = key
        self._timeout = timeout
        self._tls = tls or ClientTls()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Be ready to ask; nothing is sent yet."""
        import aiohttp

        if self._session is None:
            headers = {"Accept": "application/json"}
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
            context = self._tls.context()
            connector = None if context is None else aiohttp.TCPConnector(ssl=context)
            self._session = aiohttp.ClientSession(headers=headers, connector=connector)

    async def close(self) -> None:
        """Let go of the server."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> Json:
        """What the server answers; what it refuses is raised, in its own words.

        `patience` is how many seconds more than usual it may take, where the server itself waits.
        """
        import aiohttp

        await self.open()
        assert self._session is not None
        longest = self._timeout + (patience or 0.0)
        try:
            async with self._session.request(
                method,
                self.url + path,
                json=body,
                params=_told(query or {}),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=longest, connect=min(self._timeout, _CONNECTED)),
                allow_redirects=False,
            ) as response:
                return _answer(response, await response.read(), self.url)
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(error, longest) from error

    @asynccontextmanager
    async def stream(self, path: str, *, query: Query) -> AsyncIterator[AsyncIterator[bytes]]:
        """What the server sends for as long as it does; Unavailable when it is not there any more."""
        import aiohttp

        await self.open()
        assert self._session is not None
        try:
            async with self._session.get(
                self.url + path,
                params=_told(query),
                headers={"Accept": "text/event-stream"},
                timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECTED, sock_read=_SILENCE),
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    _answer(response, await response.read(), self.url)
                yield response.content.iter_any()
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(error, _SILENCE) from error

    def _failure(self, error: Exception, longest: float) -> WakefulError:
        """What it means that there was no answer."""
        import aiohttp

        if isinstance(error, TimeoutError):
            return Unavailable(f"{self.url} did not answer in {longest:g} s; try again later")
        if isinstance(error, aiohttp.InvalidURL):
            return InvalidArgument(
                f"'{self.url}' is no address of a server; give one such as http://127.0.0.1:9253"
            )
        return Unavailable(
            f"there is no answer from {self.url}: {_why(error)}; start one with `wakeful serve`, or say "
            "where it is by WAKEFUL_URL"
        )


def path(*parts: str) -> str:
    """The path of something under /api/workspaces, whatever characters it has.

    >>> path("default", "agents", "a b")
    '/api/workspaces/default/agents/a%20b'
    """
    return "/api/workspaces/" + "/".join(quote(part, safe="") for part in parts)


def refusal(status: int, content: object, text: str = "") -> WakefulError:
    """The error that a refusal means.

    >>> refusal(404, {"code": "not-found", "detail": "no job 'digest'"})
    NotFound("no job 'digest'")
    """
    problem = content if isinstance(content, dict) else {}
    code, detail = problem.get("code"), problem.get("detail") or problem.get("title")
    kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status)
    if kind is None:
        kind = InvalidArgument if 400 <= status < 500 else Unavailable
    sentence = str(detail) if detail else f"the server answered {status} {text[:200]}".rstrip()
    return kind(sentence)


def _answer(response: aiohttp.ClientResponse, content: bytes, url: str) -> Json:
    text = content.decode(errors="replace")
    try:
        value: Json = json.loads(text) if text.strip() else None
    except ValueError:
        if response.status < 300:
            raise Unavailable(f"{url} answered, but not as Wakeful does; is it the right address?") from None
        value = None
    if response.status < 300:
        return value
    error = refusal(response.status, value, response.reason or "")
    if isinstance(error, Unauthenticated) and "Authorization" not in response.request_info.headers:
        raise Unauthenticated(
            f"{url} wants a key; give it one by WAKEFUL_KEY, or run this where `wakeful serve` left its own"
        )
    raise error


def _told(query: Query) -> list[tuple[str, str]]:
    return [
        (name, _spelled(each))
        for name, value in query.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]


def _spelled(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _why(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number).lower() if number and number > 0 else str(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it hung up"
    return str(error) or type(error).__name__


async def pause(seconds: float) -> None:
    """Wait between two looks."""
    await asyncio.sleep(seconds)
