"""Compression of responses with gzip: pages, and JSON of GET requests.

A response is compressed if it is complete (not a stream), large enough and of a type in `_TYPES`.

The size of a compressed response depends on its text: a site that makes a browser request pages with chosen
parameters, and that sees the sizes, can guess a secret of the page (the BREACH attack). Against that:

- The session cookie is `SameSite=Strict`: requests of other sites do not have it.
- A request that the browser marks as made by another origin (`Sec-Fetch-Site`) is not compressed.
- The only secret of all pages, the CSRF token, is masked with new random bytes in each response
  (`session_cookie.masked`), so its text is never the same twice.
- Only responses to GET are compressed: new keys are shown in responses to POST.

A response with an `ETag` is not compressed. It names the version of a job, which clients send in `If-Match`;
a compressed response would need another `ETag`.
"""

from __future__ import annotations

import re
import zlib
from asyncio import to_thread
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

#: The smallest body that is compressed: smaller ones fit into one packet anyway.
SMALLEST: Final = 1_400
#: A body of this size is compressed in a thread: it takes a hundredth of a second or more.
_LARGE: Final = 1 << 20
#: The types of compressed responses. An event stream is not among them.
_TYPES: Final = ("text/html", "application/json")
#: A quarter of the time of level 9, and pages are at most a few percent larger.
_LEVEL: Final = 4
_GZIP_WINDOW: Final = 31
_CODING: Final = re.compile(r"\s*(gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?", re.IGNORECASE)
_OWN_SITES: Final = (None, "same-origin", "none")


def accepts_gzip(header: str | None) -> bool:
    """Return whether an `Accept-Encoding` allows gzip.

    >>> [accepts_gzip(text) for text in ("gzip, br", "br;q=1.0, *;q=0.1", "gzip;q=0, *", "identity", None)]
    [True, True, False, False, False]
    """
    quality: dict[str, bool] = {}
    for part in (header or "").split(","):
        found = _CODING.fullmatch(part)
        if found is not None:
            quality[found[1].lower()] = found[2] is None or any(digit in "123456789" for digit in found[2])
    return quality.get("gzip", quality.get("x-gzip", quality.get("*", False)))


def may_compress(headers: Headers) -> bool:
    """Return whether the response to a request with these headers may be compressed."""
    return accepts_gzip(headers.get("accept-encoding")) and headers.get("sec-fetch-site") in _OWN_SITES


def compress(body: bytes, level: int = _LEVEL) -> bytes:
    """Return the body, compressed with gzip. The same body gives the same bytes."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(body) + packer.flush()


def compressing(method: str, headers: Headers, send: Send) -> Send:
    """Return a `send` that compresses the response to a request where that is allowed."""
    if method not in ("GET", "HEAD"):
        return send
    accepted = may_compress(headers)
    waiting: Message | None = None

    async def respond(message: Message) -> None:
        nonlocal waiting
        if message["type"] == "http.response.start" and _is_candidate(message):
            # The length is known only with the body.
            waiting = message
            return
        if waiting is not None:
            start, waiting = waiting, None
            if accepted and not message.get("more_body") and len(message.get("body", b"")) >= SMALLEST:
                body = message["body"]
                small = len(body) < _LARGE
                message = {**message, "body": compress(body) if small else await to_thread(compress, body)}
                sent = MutableHeaders(scope=start)
                sent["content-encoding"] = "gzip"
                sent["content-length"] = str(len(message["body"]))
            await send(start)
        await send(message)

    return respond


def _is_candidate(start: Message) -> bool:
    """Return whether a response may be compressed, and say in it that its form depends on the request."""
    headers = MutableHeaders(scope=start)
    if start["status"] in (204, 304) or not headers.get("content-type", "").startswith(_TYPES):
        return False
    if "content-encoding" in headers or "etag" in headers:
        return False
    headers.add_vary_header("accept-encoding")
    return True
