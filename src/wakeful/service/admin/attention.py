"""What needs attention in a workspace, most urgent first, each with what to do.

`concerns` has the rules and is pure; `Attention` reads the facts, each by a bounded statement.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.engine.rescuer import LEASE_MS
from wakeful.job.start_rules import Requirement, can_take
from wakeful.run.usage import utc_day
from wakeful.service.admin.diagnosis import LATE_MS, check_clock
from wakeful.service.auth.access import Principal, visible_agent
from wakeful.service.auth.accounts import Accounts
from wakeful.store.port import Store
from wakeful.store.stats import Troubles

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


class Facts(NamedTuple):
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
        blocked = await self._store.blocked_runs(workspace, agent, now_ms, missing, limit) if missing else 0
        facts = Facts(troubles, missed_today, blocked, missing[0] if missing else None, None)
        if agent is None:
            facts = facts._replace(
                workers=len(await self._store.workers(now_ms - LEASE_MS)),
                full_lanes=await self._full_lanes(now_ms),
                skew_ms=now_ms - round(1000 * time.time()),
            )
        return concerns(facts)

    async def _missing(self, now_ms: int) -> list[Requirement]:
        """Return what due runs require and no running process has."""
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


def concerns(facts: Facts) -> list[Concern]:
    """Return what needs attention, most urgent first.

    >>> found = concerns(Facts(Troubles(3, 0, 0, 0, 0, 0), 0, 0, None, 1))
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
    add(
        "incidents", "error", troubles.new_incidents, "open incident", "open incidents",
        "Look at the cause, and acknowledge it while you work on it."
        + (f" {acknowledged} more are acknowledged." if acknowledged else ""),
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
