"""Budgets and cost: what runs used per day, and which caps are reached.

- `spending`: what runs used (`Finished.usage`) per day (UTC, counted from 1970) of a job, an agent and a
  workspace. The transaction of an outcome adds to it, whether or not the attempt succeeded. An owner is an
  agent and a job of a workspace; the job '' stands for the whole agent, the agent '' for the whole workspace.
- `budget_blocks`: caps that are reached. Budgets belong to jobs (in their `work`), agents and workspaces.
  Whenever use is added, or a budget changes, the budgets concerned are checked in the same transaction.
  Topic: `holds`.
- `reservations`: what running attempts under a budget have reserved, and what they have used so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

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


class DayRange(NamedTuple):
    """Days, both included."""

    first: int
    last: int


class SpendingRow(NamedTuple):
    """What an owner used on one day."""

    agent: str
    job: str
    day: int
    tokens: int
    cost: float


class BudgetRow(NamedTuple):
    """An agent with a budget, and what it used on one day."""

    agent: str
    #: compact JSON
    budget: str
    tokens: int
    cost: float


class BlockRow(NamedTuple):
    """A budget of a job that is used up."""

    agent: str
    job: str
    cap: str
    most: float
    tokens: int
    cost: float


class JobTitle(NamedTuple):
    """The name of a job, which may have been deleted."""

    id: str
    name: str
    deleted: bool
    #: its `work` as text, with its budget
    work: str


class CostStore(Protocol):
    """The part of a store that reads spending for reports. Each call reads a bounded number of rows."""

    async def spending(
        self, workspace: str, owners: Sequence[tuple[str, str]], days: DayRange
    ) -> list[SpendingRow]:
        """Return what these owners (agent, job) used on each day."""
        ...

    async def top_agents(
        self, workspace: str, days: DayRange, per_day: int, limit: int
    ) -> list[tuple[str, str]]:
        """Return the agents that are among the `per_day` most expensive of a day, as owners.

        The sums of these days decide which are returned. Agents without a cost are compared by tokens.
        """
        ...

    async def top_jobs(
        self, workspace: str, agent: str | None, days: DayRange, per_day: int, limit: int
    ) -> list[tuple[str, str]]:
        """Return the jobs of the workspace, or of one agent, likewise."""
        ...

    async def agent_budgets(self, workspace: str, day: int, limit: int) -> list[BudgetRow]:
        """Return agents that have a budget, by name, with their use of that day."""
        ...

    async def job_blocks(self, workspace: str, day: int, limit: int) -> list[BlockRow]:
        """Return the budgets of jobs that are used up on that day."""
        ...

    async def job_titles(self, job_ids: Sequence[str]) -> list[JobTitle]:
        """Return the names of these jobs, also of deleted ones, as long as their rows exist."""
        ...
