"""What pages show of agents: their fields with counts, heartbeat, class and budget."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Final

from wakeful.document import payload_from_text
from wakeful.errors import InvalidArgument
from wakeful.job.job import JobRecord
from wakeful.run.instances import AgentClass
from wakeful.service.admin.limits import Budgets
from wakeful.service.agents.internal_jobs import Heartbeats
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.store.accounts import AgentRow
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import RunView
from wakeful.store.stats import AgentOverview
from wakeful.values.json_value import Json

#: Counts end here: of one agent, and of each agent of a list.
COUNTED: Final = 1_000
COUNTED_IN_LIST: Final = 200


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """An agent with what it has."""

    row: AgentRow
    overview: AgentOverview
    #: the job of its heartbeat, and the newest run of it
    heartbeat: JobRecord | None
    last_beat: RunView | None
    #: what it used today, if it has a budget
    spent: dict[str, Json] | None


class AgentOverviews:
    """Reads agents for pages."""

    def __init__(self, store: Store, accounts: Accounts, budgets: Budgets) -> None:
        self._store = store
        self._accounts = accounts
        self._budgets = budgets

    async def list(
        self,
        principal: Principal,
        workspace: str,
        *,
        search: str = "",
        after: str | None = None,
        limit: int = 50,
    ) -> builtins.list[AgentSummary]:
        """List agents by name, after that name; an agent's key sees its own agent only."""
        await self._accounts.authorize(principal, "read", workspace)
        only = visible_agent(principal, None)
        if only is not None:
            rows = [await self._accounts.agent(workspace, only)] if after is None else []
        else:
            rows = await self._store.agents_page(workspace, after, limit, search[:64].lower())
        return await self._summaries(workspace, rows, COUNTED_IN_LIST)

    async def get(self, principal: Principal, workspace: str, name: str) -> AgentSummary:
        """Return one agent."""
        await self._accounts.authorize(principal, "read", workspace, name)
        row = await self._accounts.agent(workspace, name)
        (summary,) = await self._summaries(workspace, [row], COUNTED)
        return summary

    async def agent_class(self, principal: Principal, workspace: str, name: str) -> AgentClass | None:
        """Return the class of an agent, as the database knows it."""
        await self._accounts.authorize(principal, "read", workspace, name)
        return await self._store.agent_class(workspace, name)

    async def _summaries(
        self, workspace: str, rows: builtins.list[AgentRow], most: int
    ) -> builtins.list[AgentSummary]:
        found = await self._store.agent_overviews(workspace, [row.name for row in rows], most)
        beats = [each for each in found.values() if each.heartbeat_job is not None]
        jobs = {
            row.id: row
            for row in (
                await self._store.jobs_by_ids([str(each.heartbeat_job) for each in beats]) if beats else []
            )
            if Heartbeats.owns(row)
        }
        run_ids = [each.heartbeat_run for each in beats if each.heartbeat_run is not None]
        runs = {run.id: run for run in (await self._store.runs_by_ids(run_ids) if run_ids else [])}
        summaries = []
        for row in rows:
            overview = found.get(row.name) or AgentOverview(row.name, 0, 0, 0, None, None, None)
            job = jobs.get(overview.heartbeat_job or "")
            record = None
            if job is not None:
                try:
                    record = job_from_row(job)
                except InvalidArgument:  # the job page says why
                    record = None
            spent = None if row.budget is None else await self._budgets.spent(workspace, row.name)
            summaries.append(
                AgentSummary(row, overview, record, runs.get(overview.heartbeat_run or ""), spent)
            )
        return summaries


def remaining(budget: str | None, spent: dict[str, Json] | None) -> builtins.list[tuple[str, float, float]]:
    """Return the limits of a budget with what is used: (name, used, limit).

    >>> remaining('{"tokensPerDay":100,"costPerDay":2}', {"tokens": 40, "cost": 0.5})
    [('tokens', 40, 100), ('cost', 0.5, 2)]
    """
    limits = payload_from_text(budget)
    if not isinstance(limits, dict) or spent is None:
        return []
    found: builtins.list[tuple[str, float, float]] = []
    for name, key in (("tokens", "tokensPerDay"), ("cost", "costPerDay")):
        limit, used = limits.get(key), spent.get(name)
        if isinstance(limit, int | float) and isinstance(used, int | float):
            found.append((name, used, limit))
    return found
