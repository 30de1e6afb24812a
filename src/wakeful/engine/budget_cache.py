"""Which budgets are spent today, as this process knows it: at hand, so that no tick asks the database.

They are read again when a hold is announced, when the day (UTC) is another, and otherwise no later than the
engine sleeps: so all replicas know within that time, and what they start until then is what a cap may be
overrun by, besides what is under way.
"""

from __future__ import annotations

import asyncio

from wakeful.store.budgets import BudgetOwner
from wakeful.store.port import Store
from wakeful.store.quotas import day_of
from wakeful.store.rows import DueJob, TakenRun

#: What waits for its first attempt though nobody asked for it just now. What was begun is brought to an end,
#: and what somebody asks for was refused, or asked for before.
_OF_ITSELF = ("schedule", "chain", "heartbeat", "backfill")


class BudgetCache:
    """The holds of today. True where there are any, which mostly there are not."""

    def __init__(self, store: Store, longest_ms: int) -> None:
        self._store = store
        self._longest_ms = longest_ms
        self._held: frozenset[BudgetOwner] = frozenset()
        self._day = -1
        self._asked_ms = 0
        self._asking = asyncio.Lock()
        #: how often somebody has said that they are others now, and how often when we last asked
        self._news = 0
        self._known = -1

    def __bool__(self) -> bool:
        return bool(self._held)

    def heard(self) -> None:
        """Somebody has said that they are others now."""
        self._news += 1

    async def refresh(self, now_ms: int) -> None:
        """See to it that what is known is not too old."""
        if self._fresh(now_ms):
            return
        async with self._asking:
            if self._fresh(now_ms):  # somebody else has asked meanwhile
                return
            day, news = day_of(now_ms), self._news  # what is announced from now on may not be in the answer
            self._held = frozenset(row.owner for row in await self._store.holds(day))
            self._day, self._asked_ms, self._known = day, now_ms, news

    def _fresh(self, now_ms: int) -> bool:
        return (
            self._known == self._news
            and self._day == day_of(now_ms)
            and 0 <= now_ms - self._asked_ms < self._longest_ms
        )

    def of(self, job: DueJob) -> bool:
        """Whether a tick of this job may not run."""
        return self._any(job.workspace, job.agent, job.id)

    def stop(self, run: TakenRun) -> bool:
        """Whether a run that waited, and is to be launched now, may not be."""
        if run.attempt > 1 or run.trigger not in _OF_ITSELF:
            return False
        return self._any(run.workspace, run.agent, run.job_id or "")

    def _any(self, workspace: str, agent: str, job_id: str) -> bool:
        held = self._held
        return (
            BudgetOwner(workspace) in held
            or BudgetOwner(workspace, agent) in held
            or BudgetOwner(workspace, agent, job_id) in held
        )
