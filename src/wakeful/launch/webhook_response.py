"""What an answer to a webhook means, and how much of it is read."""

from __future__ import annotations

import json
import zlib
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from aiohttp import ClientResponse

from wakeful.launch.port import MAX_OUTPUT, kept
from wakeful.outcome import Failed

#: The longest wait that a receiver may ask for with `Retry-After`.
MAX_RETRY_AFTER_MS: Final = 24 * 3_600_000

#: The most that is kept of what a run says it used, in bytes.
MAX_USAGE: Final = 4_096

_SHOWN: Final = 200
#: zlib's word for "gzip or zlib, find out by the header".
_EITHER: Final = zlib.MAX_WBITS | 32


async def read_text(response: ClientResponse) -> str:
    """The beginning of an answer, as much as is kept. The rest is not read: aiohttp closes the connection.

    We ask for no compression; one that comes all the same is undone no further than what is kept, however
    much it would swell to.
    """
    length = response.content_length
    if length is not None and length <= MAX_OUTPUT:
        body = await response.read()
    else:
        body = b""
        while len(body) < MAX_OUTPUT:
            piece = await response.content.read(MAX_OUTPUT - len(body))
            if not piece:
                break
            body += piece
    coding = response.headers.get("content-encoding", "").lower()
    if coding in ("gzip", "deflate", "x-gzip") and body:
        try:
            body = zlib.decompressobj(_EITHER).decompress(body, MAX_OUTPUT)
        except zlib.error:
            return ""
    return kept(body.decode("utf-8", "replace"))


def usage_in(header: str | None, text: str) -> str | None:
    """What a run used, as its answer says: in the header, or else as `usage` in a JSON body; compact JSON.

    >>> usage_in(None, '{"ok": true, "usage": {"tokens": 1200}}')
    '{"tokens":1200}'
    >>> usage_in('{"cost": 0.5}', "done"), usage_in("much", "done")
    ('{"cost":0.5}', None)
    """
    if header is None and '"usage"' not in text:
        return None
    try:
        said = json.loads(text if header is None else header)
        if header is None:
            said = said.get("usage") if isinstance(said, dict) else None
        if not isinstance(said, dict) or not said:
            return None
        usage = json.dumps(said, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return usage if len(usage) <= MAX_USAGE else None


def failure(response: ClientResponse, text: str, now_ms: int) -> Failed:
    """What an answer other than 2xx means. Only 410 is final: anything else may be mended by its owner."""
    status = response.status
    try:
        said = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        said = f"HTTP {status}"
    location = response.headers.get("location")
    if 300 <= status < 400 and location:
        said += (
            f", to {location[:_SHOWN]}; redirects are not followed, so give the job that url if it is right"
        )
    elif text:
        said += f": {' '.join(text[: _SHOWN * 2].split())[:_SHOWN]}"
    if status == 410:
        return Failed(kept(said), permanent=True, pause_job=True, reason="gone", response_code=status)
    wait_ms = retry_after_ms(response.headers.get("retry-after"), now_ms)
    return Failed(kept(said), retry_after_ms=wait_ms, reason="http", response_code=status)


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """How long `Retry-After` asks to wait: seconds, or an HTTP date; never more than a day.

    >>> retry_after_ms("120", 0), retry_after_ms("Thu, 01 Jan 1970 00:01:00 GMT", 0)
    (120000, 60000)
    >>> retry_after_ms("soon", 0), retry_after_ms(None, 0)
    (None, None)
    """
    value = value.strip() if value else ""
    if value.isascii() and value.isdigit():
        # So many digits are past the limit whatever they are, and int() refuses thousands.
        return min(int(value) * 1000, MAX_RETRY_AFTER_MS) if len(value) < 20 else MAX_RETRY_AFTER_MS
    try:
        date = parsedate_to_datetime(value)
        until = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0, min(int(until.timestamp() * 1000) - now_ms, MAX_RETRY_AFTER_MS))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
