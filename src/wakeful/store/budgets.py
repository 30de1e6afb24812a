"""Budgets: what runs used per day, and which caps are reached.

- `spending`: what runs used (`Finished.usage`) per day (UTC) of a job, an agent and a workspace. The
  transaction of an outcome adds to it, whether or not the attempt succeeded.
- `budget_blocks`: caps that are reached. Budgets belong to jobs (in their `work`), agents and workspaces.
  Whenever use is added, or a budget changes, the budgets concerned are checked in the same transaction.
  Topic: `holds`.
- `reservations`: what running attempts under a budget have reserved, and what they have used so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.run.usage import ReservationRequest, Reserved, Spent


class BudgetStore(Protocol):
    """The part of a store that holds spending and budget blocks."""

    async def spent(self, owner: BudgetOwner, day: int) -> Spent:
        """Return what was used on that day."""
        ...

    async def budget_blocks(self, day: int, workspace: str | None = None) -> list[BudgetBlock]:
        """Return the caps that are reached on that day; of one workspace, or of all."""
        ...

    async def budget_owners(self) -> set[BudgetOwner]:
        """Return all agents and workspaces that have a budget."""
        ...

    async def budget_owners_of(self, workspace: str, agents: Sequence[str]) -> set[BudgetOwner]:
        """Return those of a workspace and these agents of it that have a budget."""
        ...

    async def reserve(self, now_ms: int, request: ReservationRequest) -> Reserved:
        """Reserve what the next step of a running attempt may use, and count what it has used so far.

        Reservations of one workspace are made one after another. A reservation ends when the run ends, is
        lost or is tried again. Without a budget nothing is written. Of an attempt that was stopped, what it
        has used is counted.
        """
        ...

    async def prune_budgets(self, before_ms: int) -> None:
        """Delete spending, blocks and cool-downs from before then, and what ended runs had reserved."""
        ...
