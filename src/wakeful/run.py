"""The run: the record of one tick, or of one manual trigger, and the moves it may make."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final, Literal

from wakeful.errors import FailedPrecondition

TriggerName = Literal["schedule", "user", "agent", "replay", "backfill", "chain", "heartbeat", "alert"]


class RunState(StrEnum):
    """Where a run stands. It never moves backwards, and a terminal one never moves again."""

    PENDING = "pending"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def terminal(self) -> bool:
        """Whether nothing can happen to it any more."""
        return not MOVES[self]

    def move(self, to: RunState) -> RunState:
        """`to`, if a run may go there from here; FailedPrecondition otherwise.

        >>> RunState.PENDING.move(RunState.RUNNING)
        <RunState.RUNNING: 'running'>
        """
        if to not in MOVES[self]:
            allowed = " or ".join(sorted(MOVES[self])) or "nothing: it is over"
            raise FailedPrecondition(f"a {self} run cannot become {to}; it can become {allowed}")
        return to


#: What may follow what. A run is born pending, running, skipped or missed. A pending one fails when nobody
#: claims it in time; one that waited only to be superseded is cancelled. A running one is skipped when it
#: turns out, before its target is launched, that there is nothing to do (`precheck`), no budget left, or that
#: its job runs at other hours.
MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.PENDING: frozenset({RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
    RunState.RUNNING: frozenset(
        {RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.RETRYING, RunState.SKIPPED}
    ),
    RunState.RETRYING: frozenset({RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
    RunState.SKIPPED: frozenset(),
    RunState.MISSED: frozenset(),
}
BIRTHS: Final = frozenset({RunState.PENDING, RunState.RUNNING, RunState.SKIPPED, RunState.MISSED})


def tick_key(job_id: str, scheduled_ms: int) -> str:
    """A tick's idempotency key: the same on every replica, through every retry and replay.

    >>> tick_key("j", 1_741_392_000_000) == hashlib.sha256(b"j:1741392000").hexdigest()
    True
    >>> tick_key("j", 1_741_392_000_250) == hashlib.sha256(b"j:1741392000.250").hexdigest()
    True
    """
    seconds, ms = divmod(scheduled_ms, 1000)
    epoch = f"{seconds}.{ms:03d}" if ms else str(seconds)
    return hashlib.sha256(f"{job_id}:{epoch}".encode()).hexdigest()


def check_cancellable(run_id: str, state: str, *, running: bool) -> None:
    """Refuse to cancel a run that does not wait or, with `running`, to stop one that does not run.

    >>> check_cancellable("r1", "retrying", running=False)
    >>> check_cancellable("r1", "retrying", running=True)
    Traceback (most recent call last):
    wakeful.errors.FailedPrecondition: run 'r1' is retrying: cancel it instead
    """
    waits = state in (RunState.PENDING, RunState.RETRYING)
    if state == RunState.RUNNING if running else waits:
        return
    advice = (
        "cancel it instead" if waits else
        "stop it instead" if state == RunState.RUNNING else
        "it is over and does not change"
    )  # fmt: skip
    raise FailedPrecondition(f"run '{run_id}' is {state}: {advice}")
