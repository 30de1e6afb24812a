"""Budgets while runs are launched: which are used up, and the reservations of attempts.

The cache knows who has a budget, and which budgets are used up today, so that most runs need no query. It
is read again when a change is announced, when the day (UTC) changes, and otherwise after `max_age_ms`.
Every replica knows of a new budget, and of a used-up one, within that time. Many budgets take long to read,
so they are read less often. The planner skips ticks by the cache.

An attempt under a budget also needs a reservation, which the database decides: before it starts, and before
each request to a model. A cap that is reached ends the run. If the rest of a budget is only reserved, by
what other runs have under way, a start is tried again later, and a request waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.errors import Unavailable
from wakeful.job.start_rules import BUDGET, BudgetBlock, BudgetOwner, describe_block, find_block, is_skipped
from wakeful.launch.port import Launch
from wakeful.launch.precheck import PRECHECK_FAILED
from wakeful.run.outcome import Failed, Skipped
from wakeful.run.usage import ReservationRequest, Reserved, Spent, utc_day
from wakeful.store.port import Store
from wakeful.values.clock import Clock

#: From so many budgets on, they are read at most every ms for ten of them, and at least every minute: reading
#: 100,000 takes up to a second.
_MANY: Final = 5_000
_LONGEST_REST_MS: Final = 60_000
#: The first and the longest pause before a request asks again, in seconds.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_ALL_RESERVED: Final = "the rest of a budget is reserved by other runs; it is tried again"
_LOST: Final = Failed("the attempt is not running any more", reason="lost", counted=False)


class BudgetCache:
    """The budget blocks of today. True if there are any, which is rare."""

    def __init__(self, store: Store, max_age_ms: int) -> None:
        self._store = store
        self._max_age_ms = max_age_ms
        self._blocks: dict[BudgetOwner, BudgetBlock] = {}
        #: the agents and workspaces that have a budget
        self._owners: set[BudgetOwner] = set()
        self._day = -1
        self._read_ms = 0
        self._reading = asyncio.Lock()
        #: counts announced changes, and its value at the last read
        self._changes = 0
        self._read_changes = -1

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def invalidate(self) -> None:
        """Read again at the next refresh: budget blocks changed."""
        self._changes += 1

    async def refresh(self, now_ms: int) -> None:
        """Read the budget blocks if the cache is too old."""
        if self._fresh(now_ms):
            return
        async with self._reading:
            if self._fresh(now_ms):  # another task has read them meanwhile
                return
            day, changes = utc_day(now_ms), self._changes  # a change from now on may be missing in the result
            self._owners = await self._store.budget_owners()
            self._blocks = {block.owner: block for block in await self._store.budget_blocks(day)}
            self._day, self._read_ms, self._read_changes = day, now_ms, changes

    def _fresh(self, now_ms: int) -> bool:
        age_ms, many = now_ms - self._read_ms, len(self._owners) + len(self._blocks)
        if many >= _MANY and 0 <= age_ms < min(many // 10, _LONGEST_REST_MS):
            return True
        return (
            self._read_changes == self._changes
            and self._day == utc_day(now_ms)
            and 0 <= age_ms < self._max_age_ms
        )

    def apply_to(self, workspace: str, agent: str) -> bool:
        """Return whether the agent or its workspace has a budget."""
        owners = self._owners
        return bool(owners) and (BudgetOwner(workspace, agent) in owners or BudgetOwner(workspace) in owners)

    def find(self, workspace: str, agent: str, job_id: str | None, at_ms: int) -> BudgetBlock | None:
        """Return the used-up budget that applies to a job that starts at this instant, or None.

        A run can start on the day after that of the cache: it is planned shortly before its instant.
        """
        if not self._blocks or utc_day(at_ms) != self._day:
            return None
        return find_block(self._blocks, workspace, agent, job_id)


class BudgetGate:
    """Asks the store for reservations."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def start(self, run: Launch) -> Failed | Skipped | None:
        """Reserve what an attempt may use. Returns the outcome of one that may not start."""
        # The reason tells the next attempt that nothing was launched, and whether to ask the precheck.
        reason = PRECHECK_FAILED if run.unchecked else BUDGET
        try:
            answer = await self._ask(run, None, None)
        except Unavailable as error:
            return Failed(error.message, reason=reason, counted=False)
        if answer.wait:
            return Failed(_ALL_RESERVED, reason=reason, counted=False)
        return _outcome(run, answer, used=False)

    async def reserve(self, run: Launch, used: Spent, need: Spent) -> Failed | Skipped | None:
        """Reserve what the next request of an attempt may use, and count what it has used so far.

        Waits while the rest of a budget is reserved. Returns the outcome of an attempt that must end.
        """
        pause_s = _FIRST_PAUSE_S
        while (answer := await self._ask(run, used, need)).wait:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return _outcome(run, answer, used=used != Spent())

    async def count(self, run: Launch, used: Spent) -> None:
        """Count what an attempt has used that was stopped: it has no outcome that could report it."""
        await self._ask(run, used, Spent())

    async def verify(self, run: Launch) -> Failed | None:
        """Return the outcome of a run that may not be verified, because a cap is reached."""
        reached = (await self._ask(run, None, Spent())).reached
        return None if reached is None else _failure(run, reached)

    async def _ask(self, run: Launch, used: Spent | None, need: Spent | None) -> Reserved:
        request = ReservationRequest(run.workspace, run.agent, run.id, run.attempt, used, need)
        return await self._store.reserve(self._clock.now_ms(), request)


def _outcome(run: Launch, answer: Reserved, *, used: bool) -> Failed | Skipped | None:
    if answer.lost:
        return _LOST
    if answer.reached is None:
        return None
    if is_skipped(run.trigger, retried=run.retried or used):
        return Skipped(describe_block(answer.reached, run.job), BUDGET)
    return _failure(run, answer.reached)


def _failure(run: Launch, reached: BudgetBlock) -> Failed:
    return Failed(describe_block(reached, run.job), permanent=True, reason=BUDGET)
