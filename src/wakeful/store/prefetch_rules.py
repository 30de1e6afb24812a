"""Which due runs a worker may claim before it has a free slot for them, the same for every store. Pure.

The start of such a run is not written before its launch. So only a run that may start twice is claimed early,
and only its first attempt: if the worker dies, the next attempt is claimed with a slot, and its start is
written. Then a run that kills its process is not retried without limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, TypeVar

from wakeful.run.outcome import TAKEN_OVER

T = TypeVar("T")

#: a part of the stored policy of each job whose runs must not start twice
ON_LOST_FAIL: Final = '"onLost":"fail"'


def may_prefetch(attempt: int, policy: str, reason: str | None, is_signal: bool) -> bool:
    """Return whether a run may be claimed before a slot is free. `policy` is the stored text.

    A run that was taken over has the same attempt again, so its `reason` tells that it is not the first time.

    >>> may_prefetch(1, "{}", None, False), may_prefetch(2, "{}", None, False)
    (True, False)
    >>> may_prefetch(1, '{"maxAttempts":3,"onLost":"fail"}', None, False)
    False
    """
    first = attempt == 1 and reason != TAKEN_OVER
    return first and not is_signal and ON_LOST_FAIL not in policy


def divide(due: Sequence[T], free: int, allowed: Callable[[T], bool]) -> tuple[Sequence[T], list[T]]:
    """Return the runs for the free slots of a lane, and those to prefetch. `due` is longest due first.

    A run that may not be prefetched ends the second list: otherwise runs behind it would overtake it again
    and again.

    >>> divide([1, 2, 3, 4, -5, 6], 2, lambda number: number > 0)
    ([1, 2], [3, 4])
    """
    return due[:free], list(takewhile(allowed, due[free:]))


def totals(free: Mapping[str, int], prefetch: Mapping[str, int]) -> dict[str, int]:
    """Return how many runs to claim in each lane, without lanes that need none.

    >>> totals({"cron": 2, "main": 0}, {"cron": 3})
    {'cron': 5}
    """
    lanes = {lane: free.get(lane, 0) + prefetch.get(lane, 0) for lane in {**free, **prefetch}}
    return {lane: count for lane, count in lanes.items() if count > 0}
