"""Cost: tokens and cost by day, agent and job, and budgets with what is left of them today.

Days are days in UTC. Agents and jobs are found among the most expensive of each day (`PER_DAY`), so a report
reads a bounded number of rows; their sums are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from wakeful.document import payload_from_text, work_from_text
from wakeful.errors import InvalidArgument
from wakeful.run.usage import Spent, utc_day
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.store.sql.reports import DayRange, SpendingRow
from wakeful.values.json_value import Json

#: How many of the most expensive agents and jobs of each day are considered.
PER_DAY: Final = 100
#: How many agents, and how many jobs, a report has.
LISTED: Final = 50
#: How many days a report has at most, and without a range.
MAX_DAYS: Final = 92
DEFAULT_DAYS: Final = 30
#: How many of those considered are summed, for each one that is listed.
_CANDIDATES: Final = 2
#: How many budgets of agents, and how many used up ones of jobs, a report has.
_BUDGETS: Final = 200
_EPOCH: Final = date(1970, 1, 1)
_CAPS: Final = ("tokensPerDay", "costPerDay")


class Usage(NamedTuple):
    """What an agent or a job used: the sum, and each day of the range."""

    #: '' for the whole workspace
    agent: str
    #: the id of the job; '' for the whole agent
    job_id: str
    #: the name of the job; None: its row is gone
    job: str | None
    deleted: bool
    total: Spent
    #: one for each day of the range, oldest first
    days: tuple[Spent, ...]


class BudgetState(NamedTuple):
    """A cap of a budget, and what was used of it today."""

    #: None: of the whole workspace
    agent: str | None
    job_id: str | None
    job: str | None
    #: `tokensPerDay` or `costPerDay`
    cap: str
    limit: float
    used: float

    @property
    def remaining(self) -> float:
        """What is left today."""
        return max(0.0, self.limit - self.used)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is started any more today."""
        return self.used >= self.limit


class CostReport(NamedTuple):
    """A report about one workspace, or one of its agents."""

    workspace: str
    agent: str | None
    first: date
    last: date
    whole: Usage
    #: most expensive first
    agents: tuple[Usage, ...]
    jobs: tuple[Usage, ...]
    #: used up ones first
    budgets: tuple[BudgetState, ...]

    @property
    def dates(self) -> list[date]:
        """The days of the report, oldest first."""
        return [self.first + timedelta(days=number) for number in range(len(self.whole.days))]


class CostService:
    """Reports what runs used."""

    def __init__(self, store: Store, accounts: Accounts) -> None:
        self._store = store
        self._accounts = accounts

    async def report(
        self,
        principal: Principal,
        workspace: str,
        *,
        first: str | None = None,
        last: str | None = None,
        agent: str | None = None,
        limit: int = 20,
    ) -> CostReport:
        """Return the report for these days (`2027-03-01`), both included; by default the last 30.

        A key of the role `agent` sees its own agent. `limit` bounds the agents and the jobs.
        """
        await self._accounts.authorize(principal, "read", workspace, agent)
        only = visible_agent(principal, agent)
        if agent is not None and principal.role != "agent":
            await self._accounts.agent(workspace, agent)
        today = utc_day(self._store.clock.now_ms())
        days = read_days(first, last, today)
        agents, most = list[tuple[str, str]](), _CANDIDATES * limit
        if only is None:
            agents = await self._store.top_owners(workspace, None, days, PER_DAY, most, jobs=False)
        jobs = await self._store.top_owners(workspace, only, days, PER_DAY, most, jobs=True)
        whole = (only or "", "")
        spent = by_owner(await self._store.spending(workspace, [whole, *agents, *jobs], days), days)
        budgets = await self._budgets(workspace, only, today)
        listed = most_expensive(spent, jobs, limit)
        titles = {
            title.id: title
            for title in await self._store.job_titles(
                sorted({job for _, job in listed} | {each.job_id for each in budgets if each.job_id})
            )
        }
        blocked = {each.job_id for each in budgets}
        if days.last == today:
            for agent_name, job_id in listed:
                title = titles.get(job_id)
                if title is not None and not title.deleted and job_id not in blocked:
                    used = spent[agent_name, job_id][-1]
                    budgets += job_caps(agent_name, job_id, title.name, title.work, used)

        def usage(owner: tuple[str, str]) -> Usage:
            title = titles.get(owner[1])
            series = spent.get(owner) or (Spent(),) * (days.last - days.first + 1)
            name = title.name if title else None
            return Usage(
                *owner, name, bool(owner[1]) and (title is None or title.deleted), total(series), series
            )

        return CostReport(
            workspace,
            only,
            date_of(days.first),
            date_of(days.last),
            usage(whole),
            tuple(map(usage, most_expensive(spent, agents, limit))),
            tuple(map(usage, listed)),
            tuple(
                each._replace(job=titles[each.job_id].name) if each.job_id in titles else each
                for each in sorted(budgets, key=_used_share, reverse=True)
            ),
        )

    async def _budgets(self, workspace: str, only: str | None, today: int) -> list[BudgetState]:
        """Return the budgets of the workspace and its agents, and those of jobs that are used up."""
        found: list[BudgetState] = []
        if only is None:
            row = await self._store.workspace(workspace)
            used = await self._store.spending(workspace, [("", "")], DayRange(today, today))
            if row is not None and row.budget:
                found += caps(None, row.budget, _sum(used))
        for each in await self._store.agent_budgets(workspace, today, _BUDGETS, only):
            found += caps(each.agent, each.budget, Spent(each.tokens, each.cost))
        for block in await self._store.job_blocks(workspace, today, _BUDGETS, only):
            spent = block.tokens if block.cap == "tokensPerDay" else block.cost
            found.append(
                BudgetState(block.agent, block.job, None, block.cap, block.most, max(spent, block.most))
            )
        return found


def read_days(first: str | None, last: str | None, today: int) -> DayRange:
    """Return the days of a report; InvalidArgument for dates that make no range.

    >>> read_days("1970-01-03", None, today=4)
    DayRange(first=2, last=4)
    >>> read_days("1970-01-03", "1970-01-02", today=4)
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: to: 1970-01-02 is before from, 1970-01-03
    """
    end = today if last is None else _day("to", last)
    begin = max(0, end - DEFAULT_DAYS + 1) if first is None else _day("from", first)
    if end < begin:
        raise InvalidArgument(f"to: {date_of(end)} is before from, {date_of(begin)}")
    if end - begin >= MAX_DAYS:
        raise InvalidArgument(
            f"from: a report has at most {MAX_DAYS} days; set from to {date_of(end - MAX_DAYS + 1)} or later"
        )
    return DayRange(begin, end)


def date_of(day: int) -> date:
    """Return the date of a day that is counted from 1970."""
    return _EPOCH + timedelta(days=day)


def by_owner(rows: Iterable[SpendingRow], days: DayRange) -> dict[tuple[str, str], tuple[Spent, ...]]:
    """Return what each owner used on each day of the range.

    >>> by_owner([SpendingRow("a", "", 8, 5, 0.5)], DayRange(7, 8))
    {('a', ''): (Spent(tokens=0, cost=0.0), Spent(tokens=5, cost=0.5))}
    """
    found: dict[tuple[str, str], list[Spent]] = defaultdict(lambda: [Spent()] * (days.last - days.first + 1))
    for row in rows:
        found[row.agent, row.job][row.day - days.first] = Spent(row.tokens, row.cost)
    return {owner: tuple(series) for owner, series in found.items()}


def total(series: Iterable[Spent]) -> Spent:
    """Return the sum."""
    listed = list(series)
    return Spent(sum(each.tokens for each in listed), sum(each.cost for each in listed))


def most_expensive(
    spent: Mapping[tuple[str, str], Sequence[Spent]], owners: Iterable[tuple[str, str]], limit: int
) -> list[tuple[str, str]]:
    """Return the owners with the highest cost, or the most tokens without a cost."""
    sums = {owner: total(spent.get(owner, ())) for owner in owners}
    ranked = sorted(sums, key=lambda owner: (-sums[owner].cost, -sums[owner].tokens, owner))
    return ranked[:limit]


def caps(agent: str | None, budget: str, used: Spent) -> list[BudgetState]:
    """Return the caps of a budget, with what was used.

    >>> caps("a", '{"costPerDay":2}', Spent(7, 0.5))[0].remaining
    1.5
    """
    read = payload_from_text(budget)
    return [] if not isinstance(read, dict) else _caps(agent, None, None, read, used)


def job_caps(agent: str, job_id: str, name: str, work: str, used: Spent) -> list[BudgetState]:
    """Return the caps of the budget of a job, which is part of its `work`."""
    try:
        budget = work_from_text(work).budget or {}
    except InvalidArgument:  # the planner reports it
        return []
    return _caps(agent, job_id, name, budget, used)


def _caps(
    agent: str | None, job_id: str | None, job: str | None, budget: Mapping[str, Json], used: Spent
) -> list[BudgetState]:
    found = []
    for cap, spent in zip(_CAPS, used, strict=True):
        most = budget.get(cap)
        if isinstance(most, int | float):
            found.append(BudgetState(agent, job_id, job, cap, float(most), float(spent)))
    return found


def _used_share(budget: BudgetState) -> float:
    return budget.used / budget.limit if budget.limit else 1.0


def _sum(rows: Iterable[SpendingRow]) -> Spent:
    return total(Spent(row.tokens, row.cost) for row in rows)


def _day(name: str, text: str) -> int:
    try:
        read = date.fromisoformat(text)
    except ValueError:
        read = None
    if read is None or read < _EPOCH or len(text) != len("2027-03-01"):
        raise InvalidArgument(f"{name}: '{text[:64]}' is not a date such as 2027-03-01")
    return utc_day(round(datetime(read.year, read.month, read.day, tzinfo=UTC).timestamp() * 1000))
