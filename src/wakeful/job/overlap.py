"""What the overlap policy does with a run that would start beside others of its job. Pure.

The planner applies it to ticks, the service to manual runs that name a policy.
"""

from __future__ import annotations

from enum import Enum

from wakeful.job.policy import Overlap


class OverlapAction(Enum):
    """What becomes of a run that would start now."""

    START = "start"
    #: it waits until no other run of its job is live
    QUEUE = "queue"
    #: it waits, and runs that wait already are cancelled
    SUPERSEDE = "supersede"
    #: it starts, and all other live runs are cancelled. One that waits is older: it must not start later
    REPLACE = "replace"
    #: it is skipped: another run is live
    SKIP = "skip"
    #: it is skipped: `max_queued` runs wait already
    QUEUE_FULL = "queue_full"


def overlap_action(overlap: Overlap, max_queued: int, *, running: bool, waiting: int) -> OverlapAction:
    """Return what becomes of a run, given whether others of its job run and how many wait.

    >>> overlap_action("skip", 100, running=True, waiting=0).name
    'SKIP'
    >>> overlap_action("queue", 100, running=False, waiting=0).name
    'START'
    """
    if overlap == "allow" or not (running or waiting):
        return OverlapAction.START
    if overlap == "skip":
        return OverlapAction.SKIP
    if overlap == "queue":
        return OverlapAction.QUEUE_FULL if waiting >= max_queued else OverlapAction.QUEUE
    return OverlapAction.SUPERSEDE if overlap == "queue_one" else OverlapAction.REPLACE
