"""Requests as bytes, responses, and the errors of a request without a response."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from yarl import URL

from wakeful.errors import InvalidArgument
from wakeful.launch.address_guard import AddressRefused
from wakeful.launch.port import truncate
from wakeful.run.outcome import Failed
from wakeful.values.bounded_cache import MB, bounded_cache, text_size
from wakeful.values.json_value import Json

#: Control characters, except the tab.
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Receivers that use interim responses send one or two; 103 Early Hints may repeat.
MAX_INTERIM: Final = 16


#: The most headers that a job sets, and the most characters of one.
_MAX_HEADERS: Final = 32
MAX_HEADER: Final = 4_096
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PRINTABLE: Final = re.compile(r"[\t\x20-\x7e]*")


class UrlOrigin(NamedTuple):
    """What a connection is open to."""

    tls: bool
    host: str
    port: int


class Destination(NamedTuple):
    """The parts of a URL that a request needs."""

    origin: UrlOrigin
    #: path and query
    path: str
    #: the value of the header `Host`
    host: str
    #: the value of the header `Authorization`, if the URL has a user
    authorization: str | None


@bounded_cache(4 * MB, lambda destination, url: 1_000 + 6 * text_size(str(url)))
def parse_destination(url: URL) -> Destination:
    """Return the destination of an absolute URL.

    >>> parse_destination(URL("https://me:secret@example.com/hook?a=b#c"))[1:]
    ('/hook?a=b', 'example.com', 'Basic bWU6c2VjcmV0')
    """
    host, port = url.raw_host, url.port
    assert host, "the caller checks the URL"
    assert port, "the caller checks the URL"
    authorization = None
    if url.raw_user or url.raw_password:
        user = f"{url.user or ''}:{url.password or ''}"
        authorization = f"Basic {b64encode(user.encode('latin1')).decode()}"
    return Destination(
        UrlOrigin(url.scheme == "https", host, port),
        url.raw_path_qs,
        url.host_port_subcomponent or host,
        authorization,
    )


def request_bytes(
    method: str, destination: Destination, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """Return a request. Raises ValueError for headers that cannot be sent.

    >>> request_bytes("GET", parse_destination(URL("http://example.com/")), {"accept": "*/*"}, None)
    b'GET / HTTP/1.1\\r\\nHost: example.com\\r\\naccept: */*\\r\\n\\r\\n'
    """
    lines = [f"{method} {destination.path} HTTP/1.1", f"Host: {destination.host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if destination.authorization is not None:
        if "authorization" in headers:
            raise ValueError("the url has a user, and headers have authorization; set only one")
        lines.append(f"Authorization: {destination.authorization}")
    if body is None:
        body = b""
    else:
        lines.append(f"Content-Length: {len(body)}")
    if not "".join(lines).isprintable() and any(map(_FORBIDDEN.search, lines)):
        raise ValueError("a header has a control character")
    lines.append("\r\n")
    return "\r\n".join(lines).encode() + body


def read_headers(value: Json, reserved: re.Pattern[str]) -> dict[str, str]:
    """Return the headers of a target, of requests or of messages. Raises InvalidArgument."""
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MAX_HEADERS:
        raise InvalidArgument(
            f"target: headers is an object with at most {_MAX_HEADERS} names and text values"
        )
    headers: dict[str, str] = {}
    for name, text in value.items():
        if not _NAME.fullmatch(name) or reserved.fullmatch(name):
            raise InvalidArgument(
                f"target: a job cannot set the header '{name[:64]}'; it is reserved, or not valid"
            )
        if not isinstance(text, str) or len(text) > MAX_HEADER or not _PRINTABLE.fullmatch(text):
            raise InvalidArgument(
                f"target: the header '{name[:64]}' is not one line of ASCII, at most {MAX_HEADER} characters"
            )
        headers[name] = text
    return headers


@dataclass(slots=True, eq=False)
class Response:
    """A response. The body may be cut at the limit of the request."""

    status: int
    #: the headers as they were received
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> str | None:
        """Return the first header of that name, which is in lower case; None if there is none.

        >>> Response(200, [(b"Retry-After", b"120")], b"").header(b"retry-after")
        '120'
        """
        for field, value in self.fields:
            if field.lower() == name:
                return _text(value)
        return None

    @property
    def headers(self) -> list[tuple[str, str]]:
        """All headers, with their names as they were received."""
        return [(_text(name), _text(value)) for name, value in self.fields]


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("utf-8", "replace")


class HttpError(Exception):
    """There is no response. The message says why."""


class InvalidTarget(HttpError):
    """A request that can never be sent."""


class ConnectionClosed(HttpError):
    """The connection ended before a response arrived."""

    def __init__(self, error: Exception | None = None, *, silent: bool) -> None:
        # The name of the class is that of earlier versions: the text is the cause of an incident.
        text = f"ClientOSError: {error}" if isinstance(error, OSError) else None
        super().__init__(text or "the connection was closed before a response arrived")
        #: whether not even a part of a response arrived
        self.silent = silent


class ResponseCutOff(HttpError):
    """The connection ended in the middle of the body."""

    def __init__(self) -> None:
        super().__init__("the response was cut off")


class MalformedResponse(HttpError):
    """The receiver sent something else than HTTP, or a head that is too large."""

    def __init__(self, detail: object) -> None:
        super().__init__(f"the response is not valid HTTP: {detail}")


class TooManyInterimResponses(HttpError):
    """The receiver sent more interim responses than are accepted."""

    def __init__(self) -> None:
        super().__init__(
            f"the receiver sent more than {MAX_INTERIM} interim responses (1xx) and no final one"
        )


def connection_failure(error: HttpError | OSError) -> Failed:
    """Return the failure of an attempt without a response."""
    if isinstance(error, AddressRefused):
        return Failed(truncate(str(error)), permanent=True, reason="address_refused")
    if isinstance(error, InvalidTarget):
        return Failed(truncate(f"target: {error}"), permanent=True, reason="invalid_target")
    if isinstance(error, HttpError):
        return Failed(truncate(str(error)), reason="network")
    return Failed(truncate(f"{type(error).__name__}: {error}"), reason="network")
