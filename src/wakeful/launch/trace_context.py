"""The trace of a run: W3C trace contexts that follow from the run itself.

All attempts of a run, and its replays, are one trace: its id is the beginning of their idempotency key. The
id of a launch span follows from the key and the attempt. So every replica knows the spans of every other one
without storing them, and a receiver gets the same ids whether or not tracing is on.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NO_TRACE: Final = "0" * 32


class SpanIds(NamedTuple):
    """The ids of a span, as numbers."""

    trace_id: int
    span_id: int

    def traceparent(self, sampled: bool = True) -> str:
        """Return the header `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(sampled):02d}"


def launch_ids(idempotency_key: str, attempt: int) -> SpanIds:
    """Return the ids of the launch span of an attempt.

    >>> launch_ids("0123456789abcdef" * 4, 1).traceparent()
    '00-0123456789abcdef0123456789abcdef-0123456789abcdf1-01'
    """
    digits = _digits(idempotency_key)
    # All zeros is invalid.
    return SpanIds(int(digits[:32], 16) or 1, _span_id(digits, attempt))


def launch_traceparent(idempotency_key: str, attempt: int) -> str:
    """Return the header `traceparent` of an attempt: that of `launch_ids`, for every webhook.

    >>> launch_traceparent("manual:0190", 2) == launch_ids("manual:0190", 2).traceparent()
    True
    """
    digits = _digits(idempotency_key)
    trace = digits[:32]
    if trace == _NO_TRACE:
        return launch_ids(idempotency_key, attempt).traceparent()
    return f"00-{trace}-{_span_id(digits, attempt):016x}-01"


def _digits(idempotency_key: str) -> str:
    # The key of a tick is a hash already.
    if _DIGEST.fullmatch(idempotency_key):
        return idempotency_key
    return sha256(idempotency_key.encode()).hexdigest()


def _span_id(digits: str, attempt: int) -> int:
    return (int(digits[32:48], 16) + attempt) % (2**64 - 1) + 1
