"""Reads responses to webhooks: text, usage, errors and `Retry-After`."""

from __future__ import annotations

import json
import zlib
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from wakeful.launch.http.messages import Response
from wakeful.launch.port import MAX_FAILED_OUTPUT, MAX_OUTPUT, truncate
from wakeful.run.outcome import Failed

#: The longest `Retry-After` that is accepted.
MAX_RETRY_AFTER_MS: Final = 24 * 3_600_000

#: The largest usage of a run that is kept, in bytes.
MAX_USAGE: Final = 4_096

_SHOWN: Final = 200
#: Detect gzip or zlib by the header.
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


def read_text(response: Response, limit: int = MAX_OUTPUT) -> str:
    """Return the beginning of a response as text, up to `limit` bytes.

    Requests accept no compression. A response that is compressed nevertheless is decompressed only up to
    the limit.
    """
    body = response.body
    if not body:
        return ""
    coding = response.header(b"content-encoding")
    if coding is not None and coding.lower() in ("gzip", "deflate", "x-gzip"):
        try:
            body = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit)
        except zlib.error:
            return ""
    return truncate(body.decode("utf-8", "replace"), limit)


def read_usage(header: str | None, text: str) -> str | None:
    """Return the usage in a response as compact JSON: from the header, else from `usage` in a JSON body.

    >>> read_usage(None, '{"ok": true, "usage": {"tokens": 1200}}')
    '{"tokens":1200}'
    >>> read_usage('{"cost": 0.5}', "done"), read_usage("much", "done")
    ('{"cost":0.5}', None)
    """
    if header is None and '"usage"' not in text:
        return None
    try:
        value = json.loads(text if header is None else header)
        if header is None:
            value = value.get("usage") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not value:
            return None
        usage = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return usage if len(usage) <= MAX_USAGE else None


def failed_response(response: Response, text: str, now_ms: int) -> Failed:
    """Return the failure of a response that is not 2xx. 410 and 413 are permanent."""
    status = response.status
    try:
        error = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        error = f"HTTP {status}"
    location = response.header(b"location")
    if 300 <= status < 400 and location:
        error += f", to {location[:_SHOWN]}; redirects are not followed: set that URL if it is right"
    elif text:
        error += f": {' '.join(text[: _SHOWN * 2].split())[:_SHOWN]}"
    failed = Failed(
        truncate(error), reason="http", response_code=status, output=truncate(text, MAX_FAILED_OUTPUT) or None
    )
    if status == 410:
        return failed._replace(permanent=True, pause_job=True, reason="gone")
    if status == 413:
        return failed._replace(permanent=True, reason="too_large")
    return failed._replace(retry_after_ms=retry_after_ms(response.header(b"retry-after"), now_ms))


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """Return the wait of a `Retry-After` header (seconds or an HTTP date); at most a day.

    >>> retry_after_ms("120", 0), retry_after_ms("Thu, 01 Jan 1970 00:01:00 GMT", 0)
    (120000, 60000)
    >>> retry_after_ms("soon", 0), retry_after_ms(None, 0)
    (None, None)
    """
    value = value.strip() if value else ""
    if value.isascii() and value.isdigit():
        # That many digits exceed the limit in any case, and int() refuses thousands of digits.
        return min(int(value) * 1000, MAX_RETRY_AFTER_MS) if len(value) < 20 else MAX_RETRY_AFTER_MS
    try:
        date = parsedate_to_datetime(value)
        until = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0, min(int(until.timestamp() * 1000) - now_ms, MAX_RETRY_AFTER_MS))
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
