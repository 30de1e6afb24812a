"""Pull targets: nothing is launched. The run stays pending until an executor claims it.

    {"kind": "pull", "claimTimeoutMs": 600000}

An executor keeps a claimed run by its heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.job.job import Json

_FIELDS: Final = frozenset({"kind", "claimTimeoutMs"})
_YEAR_MS: Final = 366 * 86_400_000


def check_pull(target: Mapping[str, Json]) -> None:
    """Raise InvalidArgument for an invalid pull target.

    >>> check_pull({"kind": "pull", "claimTimeoutMs": "5m"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: target: claimTimeoutMs is a whole number of milliseconds, such as 600000
    """
    unknown = sorted(target.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(
            f"target: a pull target has no field '{unknown[0][:64]}'; its only field is claimTimeoutMs"
        )
    wait_ms = target.get("claimTimeoutMs", 1)
    if not isinstance(wait_ms, int) or isinstance(wait_ms, bool) or not 1 <= wait_ms <= _YEAR_MS:
        raise InvalidArgument("target: claimTimeoutMs is a whole number of milliseconds, such as 600000")
