"""The `http` check of a verification: GET a URL, and compare the response.

    {"kind": "http", "url": …, "status": 200, "contains": "Monday", "newerThanMs": 3600000}

Without `status`, any 2xx will do. Redirects are not followed. Any response is an answer; only a response that
does not arrive fails the check itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from wakeful.duration import spell_duration
from wakeful.job.job import Json
from wakeful.launch.http.messages import Response
from wakeful.run.verification import Verdict

#: How much of a response is searched for `contains`, in bytes.
MAX_BODY: Final = 1024 * 1024
#: How far `Last-Modified` may lie in the future: clocks differ.
MAX_SKEW_MS: Final = 300_000
#: `Last-Modified` has whole seconds.
_SECOND_MS: Final = 1_000
#: Detect gzip or zlib by the header.
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


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
    if isinstance(contains, str) and contains.encode() not in _body(response):
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


def _body(response: Response) -> bytes:
    coding = response.header(b"content-encoding")
    if coding is not None and coding.lower() in ("gzip", "deflate", "x-gzip"):
        try:
            return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(response.body, MAX_BODY)
        except zlib.error:
            return b""
    return response.body
