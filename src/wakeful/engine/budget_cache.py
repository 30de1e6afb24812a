"""Who has a budget, and which budgets are used up today: kept in memory, so that most runs need no query.

The cache is read again when a change is announced, when the day (UTC) changes, and otherwise after
`max_age_ms`. Every replica knows of a new budget, and of a used-up one, within that time. Many budgets take
long to read, so they are read less often. The planner skips ticks by the cache; an attempt under a budget
also needs a reservation, which the database decides.
"""

from __future__ import annotations

import asyncio
from typing import Final

from wakeful.job.start_rules import BudgetBlock, BudgetOwner, find_block
from wakeful.run.usage import day_of
from wakeful.store.port import Store

#: From so many budgets on, they are read at most every ms for ten of them, and at least every minute: reading
#: 100,000 takes up to a second.
_MANY: Final = 5_000
_LONGEST_REST_MS: Final = 60_000


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
            day, changes = day_of(now_ms), self._changes  # a change from now on may be missing in the result
            self._owners = await self._store.budget_owners()
            self._blocks = {block.owner: block for block in await self._store.budget_blocks(day)}
            self._day, self._read_ms, self._read_changes = day, now_ms, changes

    def _fresh(self, now_ms: int) -> bool:
        age_ms, many = now_ms - self._read_ms, len(self._owners) + len(self._blocks)
        if many >= _MANY and 0 <= age_ms < min(many // 10, _LONGEST_REST_MS):
            return True
        return (
            self._read_changes == self._changes
            and self._day == day_of(now_ms)
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
        if not self._blocks or day_of(at_ms) != self._day:
            return None
        return find_block(self._blocks, workspace, agent, job_id)
