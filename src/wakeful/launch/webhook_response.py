"""Reads responses to webhooks: text, usage, errors and `Retry-After`; and judges those of the check `http`.

The `http` check of a verification gets a URL, and compares the response:

    {"kind": "http", "url": …, "status": 200, "contains": "Monday", "newerThanMs": 3600000}

Without `status`, any 2xx will do. Redirects are not followed. Any response is an answer; only a response that
does not arrive fails the check itself.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from wakeful.launch.http.messages import Response
from wakeful.launch.port import MAX_FAILED_OUTPUT, MAX_OUTPUT, truncate
from wakeful.run.outcome import Failed
from wakeful.run.verification import Verdict
from wakeful.values.duration import spell_duration
from wakeful.values.json_value import Json

#: The longest `Retry-After` that is accepted.
MAX_RETRY_AFTER_MS: Final = 24 * 3_600_000

#: The largest usage of a run that is kept, in bytes.
MAX_USAGE: Final = 4_096

_SHOWN: Final = 200
#: Detect gzip or zlib by the header.
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
#: How much of a response is searched for `contains`, in bytes.
MAX_BODY: Final = 1024 * 1024
#: How far `Last-Modified` may lie in the future: clocks differ.
MAX_SKEW_MS: Final = 300_000
#: `Last-Modified` has whole seconds.
_SECOND_MS: Final = 1_000


def read_text(response: Response, limit: int = MAX_OUTPUT) -> str:
    """Return the beginning of a response as text, up to `limit` bytes.

    Requests accept no compression. A response that is compressed nevertheless is decompressed only up to
    the limit.
    """
    return truncate(_body(response, limit).decode("utf-8", "replace"), limit)


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


def body_limit(verify: Mapping[str, Json]) -> int:
    """Return how much of the body the check needs, in bytes."""
    return MAX_BODY if isinstance(verify.get("contains"), str) else 0


def judge_response(response: Response, verify: Mapping[str, Json], now_ms: int) -> Verdict:
    """Return whether the response is as the check requires."""
    status, location = response.status, response.header(b"location")
    expected = verify.get("status")
    if status != expected if isinstance(expected, int) else not 200 <= status < 300:
        wanted = expected if isinstance(expected, int) else "2xx"
        moved = f" to {location[:200]}; redirects are not followed" if location else ""
        return Verdict(False, f"HTTP {status} instead of {wanted}{moved}")
    newer_ms = verify.get("newerThanMs")
    if isinstance(newer_ms, int):
        problem = _age_problem(response.header(b"last-modified"), newer_ms, now_ms)
        if problem is not None:
            return Verdict(False, problem)
    contains = verify.get("contains")
    if isinstance(contains, str) and contains.encode() not in _body(response, MAX_BODY):
        return Verdict(False, f"the response does not contain '{contains[:200]}'")
    return Verdict(True)


def _age_problem(header: str | None, newer_ms: int, now_ms: int) -> str | None:
    """Return why a `Last-Modified` is not new enough; None: it is.

    >>> _age_problem("Thu, 01 Jan 1970 00:10:00 GMT", 60_000, 630_000)
    >>> _age_problem("Thu, 01 Jan 1970 00:10:00 GMT", 60_000, 700_000)
    'Last-Modified is 1 minute 40 seconds old; at most 1 minute is allowed'
    """
    if header is None:
        return "the response has no Last-Modified"
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, IndexError, TypeError, OverflowError):
        return f"Last-Modified is not a date: '{header[:64]}'"
    at = date if date.tzinfo else date.replace(tzinfo=UTC)
    age_ms = now_ms - int(at.timestamp() * 1000)
    if age_ms < -MAX_SKEW_MS:
        return f"Last-Modified is in the future: '{header[:64]}'; the clock of the server is wrong"
    if age_ms >= newer_ms + _SECOND_MS:
        age = spell_duration(age_ms // _SECOND_MS * _SECOND_MS)
        return f"Last-Modified is {age} old; at most {spell_duration(newer_ms)} is allowed"
    return None


def _body(response: Response, limit: int) -> bytes:
    coding = response.header(b"content-encoding")
    if coding is not None and coding.lower() in ("gzip", "deflate", "x-gzip"):
        try:
            return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(response.body, limit)
        except zlib.error:
            return b""
    return response.body
