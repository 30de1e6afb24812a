"""Pull targets: nothing is launched. The run waits, pending, until an executor outside claims it.

    {"kind": "pull", "claimTimeoutMs": 600000}

Who claims a run holds it as a worker does: by its heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.job import Json

_FIELDS: Final = frozenset({"kind", "claimTimeoutMs"})
_YEAR_MS: Final = 366 * 86_400_000


def check_pull(target: Mapping[str, Json]) -> None:
    """Refuse a pull target that says what it may not.

    >>> check_pull({"kind": "pull", "claimTimeoutMs": "5m"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: target: claimTimeoutMs is a whole number of milliseconds, such as 600000
    """
    unknown = sorted(target.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(
            f"target: a pull target has no field '{unknown[0][:64]}'; it has claimTimeoutMs, if anything"
        )
    wait_ms = target.get("claimTimeoutMs", 1)
    if not isinstance(wait_ms, int) or isinstance(wait_ms, bool) or not 1 <= wait_ms <= _YEAR_MS:
        raise InvalidArgument("target: claimTimeoutMs is a whole number of milliseconds, such as 600000")
