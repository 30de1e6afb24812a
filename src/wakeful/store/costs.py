"""Cost: reads of `spending` for reports. Rows belong to a day (UTC, counted from 1970).

An owner is an agent and a job of a workspace; the job '' stands for the whole agent, the agent '' for the
whole workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


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
