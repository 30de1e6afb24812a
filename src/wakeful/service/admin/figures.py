"""Figures of the dashboard, and what needs attention.

The figures are outcomes by hour and day, start delays, workers, cost and upcoming runs. What needs attention
is sorted by urgency, each with what to do: `concerns` has the rules and is pure, `Attention` reads the facts.
Each method reads a bounded number of rows. A key of the role `agent` sees the figures of its own agent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.errors import InvalidArgument
from wakeful.forecast.peaks import Week
from wakeful.job.policy import DAY_MS
from wakeful.job.start_rules import BudgetOwner, Requirement, can_take
from wakeful.run.usage import Spent, utc_day
from wakeful.service.admin.diagnosis import LATE_MS, check_clock
from wakeful.service.admin.peaks import PeakService
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.service.jobs.job_query import no_job
from wakeful.store.port import Store
from wakeful.store.sql.run_counts import HOUR_MS, DayCount, HourCount
from wakeful.store.stats import LiveWorker, Troubles, UpcomingRun
from wakeful.values.duration import MINUTE

#: The longest time of hourly counts in one call.
MOST_HOURS: Final = 24 * 100
#: The most days of a job in one call.
MOST_DAYS: Final = 400
#: The number of newest runs whose start delay is measured.
MEASURED: Final = 1_000
#: How many upcoming runs have a name, and how many jobs of all workspaces are read for that.
NAMED: Final = 30
_SCANNED: Final = 1_000
_MINUTES: Final = 60


class Outcomes(NamedTuple):
    """Finished runs by state: since midnight, and until the same time yesterday."""

    since_ms: int
    today: dict[str, int]
    yesterday: dict[str, int]


class Drift(NamedTuple):
    """How late runs started, in milliseconds: half of them at most `p50`, 99 of 100 at most `p99`."""

    #: None: no run was measured
    p50_ms: int | None
    p99_ms: int | None
    runs: int


class Upcoming(NamedTuple):
    """The runs of the next hour."""

    #: the beginning of the first minute
    start_ms: int
    #: the expected number in each minute; None: it is being computed
    minutes: tuple[float, ...] | None
    #: the next ones by name
    named: list[UpcomingRun]


class Figures:
    """Reads the figures of a workspace."""

    def __init__(self, store: Store, accounts: Accounts, peaks: PeakService) -> None:
        self._store = store
        self._accounts = accounts
        self._peaks = peaks

    async def hours(
        self, principal: Principal, workspace: str, from_ms: int, until_ms: int, agent: str | None = None
    ) -> list[HourCount]:
        """Return finished runs by hour (UTC) and state, of the hours that begin in [from_ms, until_ms)."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        if until_ms - from_ms > MOST_HOURS * HOUR_MS:
            raise InvalidArgument(f"from: choose at most {MOST_HOURS // 24} days")
        return await self._store.run_counts(workspace, visible_agent(principal, agent), from_ms, until_ms)

    async def job_days(
        self, principal: Principal, workspace: str, agent: str, job_id: str, days: int = 30
    ) -> list[DayCount]:
        """Return the finished runs of a job on the last days (UTC), by day and state. Today is the last."""
        await self._accounts.authorize(principal, "read", workspace, agent)
        if not 1 <= days <= MOST_DAYS:
            raise InvalidArgument(f"days: give a whole number from 1 to {MOST_DAYS}")
        job = await self._store.job_by_id(job_id, deleted=True)
        if job is None or (job.workspace, job.agent) != (workspace, agent):
            raise no_job(job_id[:64])
        from_ms = self._store.clock.now_ms() - (days - 1) * DAY_MS
        return await self._store.job_run_counts(job.id, from_ms)

    async def outcomes(self, principal: Principal, workspace: str, tz: str = "UTC") -> Outcomes:
        """Return what finished since midnight in this zone, and until the same time yesterday.

        Counts are by hour: a part of an hour of yesterday is estimated from the whole hour. In a zone whose
        hours do not begin with those of UTC, midnight is rounded up to the next hour of UTC.
        """
        await self._accounts.authorize(principal, "read", workspace)
        now_ms = self._store.clock.now_ms()
        today_ms, yesterday_ms = midnights(now_ms, tz)
        agent = visible_agent(principal, None)
        counts = await self._store.run_counts(workspace, agent, yesterday_ms, now_ms + 1)
        return compare(counts, today_ms, yesterday_ms, now_ms)

    async def drift(self, principal: Principal, workspace: str) -> Drift:
        """Return how late the newest runs of the last day started."""
        await self._accounts.authorize(principal, "read", workspace)
        since_ms = self._store.clock.now_ms() - DAY_MS
        agent = visible_agent(principal, None)
        return measure_drift(await self._store.start_delays(workspace, agent, since_ms, MEASURED))

    async def workers(self, principal: Principal, workspace: str) -> list[LiveWorker]:
        """Return the processes with a recent heartbeat that launch runs."""
        await self._accounts.authorize(principal, "read", workspace)
        return await self._store.live_workers(self._store.clock.now_ms() - LEASE_MS)

    async def cost_today(self, principal: Principal, workspace: str) -> Spent:
        """Return what the runs of the workspace, or of the caller's agent, used today (UTC)."""
        await self._accounts.authorize(principal, "read", workspace)
        owner = BudgetOwner(workspace, visible_agent(principal, None) or "")
        return await self._store.read_spent(owner, utc_day(self._store.clock.now_ms()))

    async def upcoming(self, principal: Principal, workspace: str) -> Upcoming:
        """Return the runs of the next hour: their number by minute, and the first ones by name."""
        now_ms = self._store.clock.now_ms()
        computed = await self._peaks.recent(principal, workspace)
        start_ms = now_ms // MINUTE * MINUTE
        agent = visible_agent(principal, None)
        named = await self._store.upcoming_runs(
            workspace, agent, start_ms + _MINUTES * MINUTE, _SCANNED, NAMED
        )
        minutes = None if computed is None else list_minutes(computed.week, start_ms)
        return Upcoming(start_ms, minutes, named)


def midnights(now_ms: int, tz: str) -> tuple[int, int]:
    """Return the last midnight in a zone, and the one before.

    >>> midnights(1_800_000_000_000, "Asia/Tokyo")
    (1799938800000, 1799852400000)
    """
    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(f"tz: '{tz[:64]}' is no time zone; write an IANA name") from None
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now_ms)
    today = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    yesterday = (today - timedelta(days=1)).replace(fold=0)  # arithmetic on the wall clock
    return round(today.timestamp() * 1000), round(yesterday.timestamp() * 1000)


def compare(counts: list[HourCount], today_ms: int, yesterday_ms: int, now_ms: int) -> Outcomes:
    """Return the outcomes of today, and of yesterday until the same time after midnight.

    >>> hour = 3_600_000
    >>> counts = [HourCount(0, "failed", 5), HourCount(1, "failed", 10), HourCount(24, "failed", 2)]
    >>> compare(counts, 24 * hour, 0, 25 * hour + hour // 2)
    Outcomes(since_ms=86400000, today={'failed': 2}, yesterday={'failed': 10})
    """
    until_ms = yesterday_ms + now_ms - today_ms
    today: dict[str, int] = {}
    yesterday: dict[str, float] = {}
    for count in counts:
        if count.at_ms >= today_ms:
            today[count.state] = today.get(count.state, 0) + count.runs
        elif count.at_ms < min(until_ms, today_ms):
            share = min(1.0, (until_ms - count.at_ms) / HOUR_MS)
            yesterday[count.state] = yesterday.get(count.state, 0) + share * count.runs
    return Outcomes(today_ms, today, {state: round(runs) for state, runs in yesterday.items()})


def measure_drift(delays: list[int]) -> Drift:
    """Return the percentiles of start delays.

    >>> measure_drift(list(range(1, 201)))
    Drift(p50_ms=100, p99_ms=198, runs=200)
    >>> measure_drift([])
    Drift(p50_ms=None, p99_ms=None, runs=0)
    """
    if not delays:
        return Drift(None, None, 0)
    ordered = sorted(delays)
    p50, p99 = (ordered[-(-len(ordered) * part // 100) - 1] for part in (50, 99))
    return Drift(p50, p99, len(ordered))


def list_minutes(week: Week, start_ms: int) -> tuple[float, ...]:
    """Return the expected starts in each minute of an hour; 0 for minutes that are not in the week."""
    first = (start_ms - week.start_ms) // MINUTE
    return tuple(
        week.starts[minute] if 0 <= minute < len(week.starts) else 0.0
        for minute in range(first, first + _MINUTES)
    )


# --- what needs attention --------------------------------------------------------------------------

ConcernKind = Literal[
    "workers",
    "clock",
    "blocked_runs",
    "incidents",
    "dead_letters",
    "failing_jobs",
    "unclaimed_runs",
    "lanes",
    "budgets",
    "missed",
]
#: Numbers are counted up to this one.
LIMIT: Final = 1_000
#: How long a run waits in a full lane until that is reported.
_WAITS_MS: Final = 1_000


class Concern(NamedTuple):
    """Something that needs attention."""

    kind: ConcernKind
    severity: Literal["error", "warning"]
    #: how many there are; None if it is not a number of things
    number: int | None
    #: whether there are more than counted
    more: bool
    #: what it is, after the number
    text: str
    #: what to do
    advice: str


class AttentionFacts(NamedTuple):
    """What the rules judge."""

    troubles: Troubles
    missed_today: int
    #: due runs that no running process can launch, and what one of them requires
    blocked_runs: int
    missing: Requirement | None
    #: None: the caller does not see processes
    workers: int | None
    #: the lanes of this process that are full while runs wait in them
    full_lanes: Sequence[str] = ()
    #: how far the clock of the database is ahead of that of this process
    skew_ms: int = 0


class Attention:
    """Reads what needs attention."""

    def __init__(
        self, store: Store, accounts: Accounts, launchers: LauncherRegistry, metrics: Metrics
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._launchers = launchers
        self._metrics = metrics

    async def concerns(self, principal: Principal, workspace: str, missed_today: int) -> list[Concern]:
        """Return what needs attention, most urgent first; an agent's key sees what concerns its agent.

        `missed_today` is the number of ticks that were missed today (`Figures.outcomes`).
        """
        await self._accounts.authorize(principal, "read", workspace)
        agent = visible_agent(principal, None)
        now_ms = self._store.clock.now_ms()
        day, limit = utc_day(now_ms), LIMIT + 1
        troubles = await self._store.troubles(workspace, agent, day, now_ms - LATE_MS, limit)
        missing = await self._missing(now_ms)
        blocked = await self._store.blocked_runs(workspace, agent, now_ms, missing, limit) if missing else {}
        most = max(blocked, key=blocked.__getitem__, default=None)
        facts = AttentionFacts(troubles, missed_today, sum(blocked.values()), most, None)
        if agent is None:
            facts = facts._replace(
                workers=len(await self._store.workers(now_ms - LEASE_MS)),
                full_lanes=await self._full_lanes(now_ms),
                skew_ms=now_ms - round(1000 * time.time()),
            )
        return concerns(facts)

    async def _missing(self, now_ms: int) -> list[Requirement]:
        """Return what due runs of all workspaces require and no running process has."""
        due = await self._store.due_requirements(now_ms)
        if not due:
            return []
        running = await self._store.capabilities(now_ms - LEASE_MS)
        if not running:
            return []  # that there are no workers is a concern of its own
        return [
            each.requirement
            for each in due
            if not any(can_take(capabilities, each.requirement) for capabilities in running)
        ]

    async def _full_lanes(self, now_ms: int) -> list[str]:
        """Return the lanes of this process that are full while runs wait in them."""
        full = [lane for lane, (used, size) in sorted(self._metrics.lanes().items()) if used >= size]
        capabilities = self._launchers.capabilities()
        waiting = []
        for lane in full:
            due_ms = await self._store.next_due_ms(0, [lane], capabilities)
            if due_ms is not None and due_ms <= now_ms - _WAITS_MS:
                waiting.append(lane)
        return waiting


def concerns(facts: AttentionFacts) -> list[Concern]:
    """Return what needs attention, most urgent first.

    >>> found = concerns(AttentionFacts(Troubles(3, 0, 0, 0, 0, 0), 0, 0, None, 1))
    >>> [(each.kind, each.number, each.text) for each in found]
    [('dead_letters', 3, 'dead letters')]
    """
    troubles = facts.troubles
    found: list[Concern] = []

    def add(
        kind: ConcernKind,
        severity: Literal["error", "warning"],
        number: int,
        one: str,
        many: str,
        advice: str,
    ) -> None:
        if number:
            text = one if number == 1 else many
            found.append(Concern(kind, severity, min(number, LIMIT), number > LIMIT, text, advice))

    if facts.workers == 0:
        text, advice = (
            "No worker is running",
            "Start `wakeful serve` or `wakeful worker`: nothing runs until then.",
        )
        found.append(Concern("workers", "error", None, False, text, advice))
    clock = check_clock("clock", facts.skew_ms, "the clock of the database", "that of the server")
    if clock.state != "ok":
        advice = (clock.action or "").capitalize()
        found.append(Concern("clock", "error", None, False, _sentence(clock.message), f"{advice}."))
    what = "a function or agent class" if facts.missing is None else facts.missing.description
    add(
        "blocked_runs", "error", facts.blocked_runs,
        "due run that no process can launch", "due runs that no process can launch",
        f"No running process has {what}: start one that registers it, or change the target.",
    )  # fmt: skip
    acknowledged = troubles.open_incidents - troubles.new_incidents
    more = (
        f" {acknowledged} more {'is' if acknowledged == 1 else 'are'} acknowledged." if acknowledged else ""
    )
    add(
        "incidents", "error", troubles.new_incidents, "open incident", "open incidents",
        f"Look at the cause, and acknowledge it while you work on it.{more}",
    )  # fmt: skip
    add(
        "dead_letters", "error", troubles.dead_letters, "dead letter", "dead letters",
        "Fix the cause, then replay or discard these failed runs.",
    )  # fmt: skip
    add(
        "failing_jobs", "error", troubles.failing_jobs, "failing job", "failing jobs",
        "Their last runs failed. Open a job to see why, or pause it.",
    )  # fmt: skip
    add(
        "unclaimed_runs", "warning", troubles.unclaimed_runs, "unclaimed run", "unclaimed runs",
        "They wait for an executor for over a minute: start one for their agents.",
    )  # fmt: skip
    if facts.full_lanes:
        lanes = ", ".join(facts.full_lanes)
        add(
            "lanes", "warning", len(facts.full_lanes), f"full lane: {lanes}", f"full lanes: {lanes}",
            "Runs wait for a free slot. Look for runs that hang, raise the size of the lane, or add workers.",
        )  # fmt: skip
    add(
        "budgets", "warning", troubles.exhausted_budgets, "exhausted budget", "exhausted budgets",
        "Runs are skipped until midnight UTC. Raise the budget to continue today.",
    )  # fmt: skip
    add(
        "missed", "warning", facts.missed_today, "tick missed today", "ticks missed today",
        "Nothing ran at these times. Set `catchupPolicy` on jobs that must catch up.",
    )  # fmt: skip
    return found


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
