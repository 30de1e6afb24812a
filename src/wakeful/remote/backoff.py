"""Delays between tries to reach a server."""

from __future__ import annotations

import random
from typing import NamedTuple


class Backoff(NamedTuple):
    """Delays that double up to a maximum, each ± 25 %, so that many workers do not return at once."""

    base_s: float = 0.5
    max_s: float = 15.0

    def delay(self, failures: int) -> float:
        """Return the delay after this number of failures in a row.

        >>> 15 * 0.75 <= Backoff().delay(20) <= 15 * 1.25
        True
        """
        seconds = min(self.max_s, self.base_s * 2.0 ** min(failures - 1, 30))
        return seconds * random.uniform(0.75, 1.25)
