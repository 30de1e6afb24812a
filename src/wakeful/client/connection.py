"""Requests to a server: one request, one response, or the error that it reports.

The HTTP library is imported with the first request: commands without a request start without it.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack, cast
from urllib.parse import quote, urlsplit

from wakeful.client.tls import ClientTls
from wakeful.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    ItemError,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    WakefulError,
)
from wakeful.model import Page
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
Query = Mapping[str, str | int | bool | Sequence[str] | None]

_JSON: Final[dict[str, str]] = {"Content-Type": "application/json"}
#: A body of so many bytes is sent as a file.
_LARGE: Final = 512 * 1024
#: Seconds to connect, without the wait for the end of other requests.
_CONNECT_TIMEOUT: Final = 10.0
#: Seconds without data after which a stream counts as broken: the server sends something every 15.
_READ_TIMEOUT: Final = 45.0
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


class Connection:
    """HTTP connections to one server, with one key."""

    def __init__(
        self,
        url: str,
        key: str | None,
        timeout: float = 30.0,
        tls: ClientTls | None = None,
        key_source: str = "",
        run_id: str | None = None,
    ) -> None:
        self.url = url.strip().rstrip("/")
        self.key = key and key.strip()  # a file of a secret ends with a line end
        #: where the key comes from and what to do if it is refused, in words
        self.key_source = key_source
        #: the run that makes the requests
        self.run_id = run_id
        self._timeout = timeout
        self._tls = tls or ClientTls()
        #: by event loop: each has its own connections. Those of a loop that a fork left behind stay here,
        #: because their descriptors are also those of the parent process
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def open(self) -> aiohttp.ClientSession:
        """Return the connections of the running event loop; send nothing yet."""
        import aiohttp

        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            check_address(self.url)
            self._forget_ended_loops()
            headers = {"Accept": "application/json"}
            if self.key:
                _check_header("the key", self.key, self.key_source)
                headers["Authorization"] = f"Bearer {self.key}"
            if self.run_id:
                _check_header("the id of the run", self.run_id, "see WAKEFUL_RUN_ID")
                headers["x-wakeful-run-id"] = self.run_id
            context = self._tls.context()
            connector = None if context is None else aiohttp.TCPConnector(ssl=context)
            session = self._sessions[loop] = aiohttp.ClientSession(headers=headers, connector=connector)
        return session

    async def close(self) -> None:
        """Close the connections of the running event loop, and forget those of loops that have ended."""
        self._forget_ended_loops()
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _forget_ended_loops(self) -> None:
        for loop in [loop for loop in list(self._sessions) if loop.is_closed()]:
            loop.set_exception_handler(lambda loop, context: None)  # no message about open connections
            session = self._sessions.pop(loop, None)
            if session is not None:  # another thread forgets them too
                session.detach()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        extra_timeout: float = 0.0,
        optional: bool = False,
    ) -> tuple[int, Json]:
        """Return the status and the object of the response; raise the error that the server reports.

        `extra_timeout` is added to the timeout, for requests in which the server itself waits. None: the
        response has no content, which it may to a DELETE and to a request with `optional`.
        """
        import aiohttp

        session = await self.open()
        timeout = self._timeout + extra_timeout
        try:
            async with session.request(
                method,
                self.url + path,
                data=None if body is None else _payload(body),
                params=_pairs(query or {}),
                headers=headers if body is None else {**_JSON, **(headers or {})},
                timeout=aiohttp.ClientTimeout(
                    total=timeout, sock_connect=min(self._timeout, _CONNECT_TIMEOUT)
                ),
                allow_redirects=False,
            ) as response:
                reply = self._read_json(response, await response.read())
                empty = response.status == 204 and (optional or method == "DELETE")
                if not isinstance(reply, dict) and not (reply is None and empty):
                    raise self._unreadable()
                return response.status, reply
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(error, timeout) from error

    @asynccontextmanager
    async def stream(self, path: str, *, query: Query) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream a response in chunks; Unavailable when the connection breaks."""
        import aiohttp

        session = await self.open()
        try:
            async with session.get(
                self.url + path,
                params=_pairs(query),
                headers={"Accept": "text/event-stream"},
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=_READ_TIMEOUT, sock_connect=_CONNECT_TIMEOUT, sock_read=_READ_TIMEOUT
                ),
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    self._read_json(response, await response.read())
                if response.status != 200 or response.content_type != "text/event-stream":
                    raise self._unreadable()
                yield response.content.iter_any()
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(error, _READ_TIMEOUT) from error

    def _read_json(self, response: aiohttp.ClientResponse, content: bytes) -> Json:
        text = content.decode(errors="replace")
        try:
            value: Json = json.loads(text) if text.strip() else None
        except (ValueError, RecursionError):
            if response.status < 300:
                raise self._unreadable() from None
            value = None
        if response.status < 300:
            return value
        error = reported_error(response.status, value, response.reason or "")
        retry_after = response.headers.get("Retry-After", "")
        if re.fullmatch("[0-9]{1,9}", retry_after):
            error.retry_after_s = int(retry_after)
        if isinstance(error, Unauthenticated):
            raise self._refused_key(error, sent="Authorization" in response.request_info.headers)
        raise error

    def _unreadable(self) -> Unavailable:
        return Unavailable(f"{self.url} responded, but not as Wakeful does; check the address")

    def _refused_key(self, error: Unauthenticated, *, sent: bool) -> Unauthenticated:
        """Return the error with where the key comes from, or that there is none."""
        if not sent:
            return Unauthenticated(
                f"{self.url} requires a key; set WAKEFUL_KEY, or run this on the machine of `wakeful serve`"
            )
        return Unauthenticated(f"{error.message}; {self.key_source}") if self.key_source else error

    def _failure(self, error: Exception, timeout: float) -> WakefulError:
        """Return the error for a request without a response."""
        import aiohttp

        if isinstance(error, TimeoutError):
            return Unavailable(f"{self.url} did not respond within {timeout:g} s; try again later")
        if isinstance(error, aiohttp.InvalidURL):
            return _no_address(self.url)
        return Unavailable(
            f"no response from {self.url}: {_cause(error)}; start a server with `wakeful serve`, or set "
            "WAKEFUL_URL to its address"
        )


def check_address(url: str) -> None:
    """Raise InvalidArgument for a text that cannot be the address of a server.

    >>> check_address("https://wakeful.example/base")
    >>> check_address("127.0.0.1:9253")
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: '127.0.0.1:9253' is not the address of a server; ...
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        valid = parts.scheme in ("http", "https") and host and parts.port != 0
    except ValueError:  # of the port, of an IPv6 address, or of a part of a name that is too long
        valid = False
    if not valid or parts.query or parts.fragment or " " in url or not url.isprintable():
        raise _no_address(url)


def _check_header(what: str, text: str, hint: str) -> None:
    """Raise InvalidArgument for text that a header cannot carry. It may be secret, so it is not shown."""
    if not text.isprintable():
        more = f"; {hint}" if hint else ""
        raise InvalidArgument(f"{what} has a line break or another character that cannot be sent{more}")


def _no_address(url: str) -> InvalidArgument:
    return InvalidArgument(
        f"'{url}' is not the address of a server; set WAKEFUL_URL or --server to one such as "
        "http://127.0.0.1:9253"
    )


class RequestOptions(TypedDict, total=False):
    """What a request has besides its route, as `Connection.request` describes it."""

    body: Json
    query: Query | None
    if_version: int | None
    extra_timeout: float
    optional: bool
    #: lists that the reply must have, with the class of their items
    lists: Mapping[str, type]


class WorkspaceConnection:
    """A connection, for requests about one workspace."""

    def __init__(self, connection: Connection, workspace: str) -> None:
        self._connection = connection
        self.workspace = workspace

    async def _request(self, route: str, *parts: str | int, **options: Unpack[RequestOptions]) -> T:
        """Send a request with a path of the workspace. The caller says what the reply is.

        `route` is the method, and the path after the workspace with `{}` for each of the parts.
        """
        (method, place), given = route.split(), map(str, parts)
        version = options.get("if_version")
        _, reply = await self._connection.request(
            method,
            path(self.workspace, *(next(given) if each == "{}" else each for each in place.split("/"))),
            body=options.get("body"),
            query=options.get("query"),
            headers=None if version is None else {"If-Match": f'"{version}"'},
            extra_timeout=options.get("extra_timeout", 0.0),
            optional=options.get("optional", False),
        )
        for name, kind in options.get("lists", {}).items():
            read_list(reply, name, kind)
        return cast(T, reply)

    async def _request_list(
        self, name: str, kind: type, route: str, *parts: str | int, **options: Unpack[RequestOptions]
    ) -> list[T]:
        """Return the list of that name in a reply; if it is `optional`, it may be empty."""
        reply: Json = await self._request(route, *parts, **options)
        return [] if reply is None and options.get("optional") else read_list(reply, name, kind)

    async def _request_page(
        self, name: str, kind: type, route: str, *parts: str | int, **options: Unpack[RequestOptions]
    ) -> Page[T]:
        """Return the list of that name in a reply, with the cursor of the next page."""
        reply: Json = await self._request(route, *parts, **options)
        found: list[T] = read_list(reply, name, kind)
        assert isinstance(reply, dict)
        cursor = reply.get("cursor")
        if not isinstance(cursor, str | None):
            raise Unavailable("the server responded, but not as Wakeful does: the cursor is not text")
        return Page(found, cursor)


def path(*parts: str) -> str:
    """Return a path under /api/workspaces, with its parts quoted.

    >>> path("default", "agents", "a b")
    '/api/workspaces/default/agents/a%20b'
    """
    for part in parts:
        if part in ("", ".", ".."):  # the address would lead elsewhere, quoted or not
            raise InvalidArgument(f"'{part}' is not a name or an id")
        check_text(part)
    return "/api/workspaces/" + "/".join(quote(part, safe="") for part in parts)


def check_text(text: str) -> str:
    """Return text that can be part of an address; InvalidArgument for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{text!a:.64} is not text in Unicode") from None
    return text


def check_next(cursor: str | None, following: str) -> str:
    """Return the cursor that follows another one; Unavailable if it is the same, so that pages never end."""
    if following == cursor:
        raise Unavailable("the server responded, but not as Wakeful does: a page is its own next page")
    return following


def read_list(reply: object, name: str, kind: type) -> list[T]:
    """Return the list of that name in a reply; Unavailable if there is none, or an item is of another kind.

    >>> read_list({"runs": []}, "runs", dict)
    []
    """
    found = reply.get(name) if isinstance(reply, dict) else None
    if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
        raise Unavailable(f"the server responded, but not as Wakeful does: there is no list '{name}'")
    return found


def error_of_code(code: str) -> type[WakefulError]:
    """Return the class of errors with this code.

    >>> error_of_code("not-found").__name__
    'NotFound'
    """
    return _BY_CODE.get(code, InvalidArgument)


def reported_error(status: int, content: object, text: str = "") -> WakefulError:
    """Return the error that a response reports.

    >>> reported_error(404, {"code": "not-found", "detail": "no job 'digest'"})
    NotFound("no job 'digest'")
    """
    problem = content if isinstance(content, dict) else {}
    code, detail = problem.get("code"), problem.get("detail") or problem.get("title")
    kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status)
    if kind is None:
        kind = InvalidArgument if 400 <= status < 500 else Unavailable
    sentence = str(detail) if detail else f"the server responded {status} {text[:200]}".rstrip()
    error = kind(sentence)
    error.errors = [_item_error(each) for each in problem.get("errors") or () if isinstance(each, dict)]
    return error


def _item_error(content: dict[str, Json]) -> ItemError:
    index, field = content.get("index"), content.get("field")
    return ItemError(
        index if isinstance(index, int) else 0,
        field if isinstance(field, str) else None,
        str(content.get("code")),
        str(content.get("message")),
    )


def _payload(body: Json) -> bytes | io.BytesIO:
    """Return the body of a request. aiohttp warns of large ones that are not files."""
    try:
        content = json.dumps(body).encode()
    except (TypeError, ValueError, RecursionError) as error:  # of a number with thousands of digits
        raise InvalidArgument(f"a value cannot be written as JSON: {error}") from error
    return content if len(content) < _LARGE else io.BytesIO(content)


def _pairs(query: Query) -> list[tuple[str, str]]:
    return [
        (name, _text(name, each))
        for name, value in query.items()
        if value is not None
        for each in (value if isinstance(value, Iterable) and not isinstance(value, str) else [value])
    ]


def _text(name: str, value: str | int | bool | None) -> str:
    if not isinstance(value, str | int):
        raise InvalidArgument(f"{name}: {value!r:.64} is neither text nor a whole number")
    return str(value).lower() if isinstance(value, bool) else check_text(str(value))


def _cause(error: Exception) -> str:
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number).lower() if number and number > 0 else str(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    return str(error) or type(error).__name__
