"""Epoch milliseconds as datetimes and as text. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

LATEST_MS: Final = 253_370_764_799_999
"""The last millisecond of the year 9998: time zones and calendars may add up to a year."""


def utc_datetime(ms: int) -> datetime:
    """Return epoch milliseconds as an aware UTC datetime, exactly.

    >>> utc_datetime(1_741_392_000_250).isoformat(timespec="milliseconds")
    '2025-03-08T00:00:00.250+00:00'
    """
    seconds, rest = divmod(ms, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


def iso_utc(ms: int) -> str:
    """Return epoch milliseconds in ISO 8601, with milliseconds only if there are any.

    >>> iso_utc(1_741_392_000_000), iso_utc(1_741_392_000_250)
    ('2025-03-08T00:00:00Z', '2025-03-08T00:00:00.250Z')
    """
    text = utc_datetime(ms).isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")
