"""What a tick becomes: the core rules of Wakeful. Pure.

`decide` takes the state of a job, the facts about its runs, and the time. It returns what each due tick
becomes, and the new state of the job. The planner writes this in one transaction. For any input:

- each tick gets exactly one verdict, in the order of the ticks; none is left out;
- a tick never moves: jitter and catch-up change when it fires, not what it is;
- the cursor (`next_ms`) never goes back, and is later than every tick that has a verdict;
- a pass returns at most `max_catchup` verdicts; the rest is due again at once, in the next pass.

Instants are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from functools import partial
from typing import Final, Literal, NamedTuple

from wakeful.job.job import NO_WORK, Definition, JobRecord, Work
from wakeful.job.policy import OverlapAction, Policy, overlap_action, spread_evenly
from wakeful.job.start_rules import BlockReason
from wakeful.run.run import tick_key
from wakeful.schedule.day_rules import within
from wakeful.schedule.schedules import At
from wakeful.schedule.ticks import Ticks

Reason = Literal[
    "overlap",  # an earlier run has not finished
    "queue_full",  # `max_queued` runs wait already
    "replaced",  # a newer tick of the same pass runs instead
    "superseded",  # a newer tick of the same pass waits instead
    "budget",  # the budget of the day is used up (`Facts.blocked`)
    "outside_hours",  # outside the active hours of the job (`Facts.blocked`)
    "downtime",  # no replica was running, and the job does not catch up
    "too_old",  # older than the catch-up window
    "newer_tick_runs",  # the job catches up with the latest tick only
    "paused",  # it was due and not yet planned when the job was paused
    "deleted",  # it was due and not yet planned when the job was deleted
    "edited",  # it was due and not yet planned when the job got other ticks
    "job_disabled",  # it was due and not yet planned when an outcome disabled the job
    "asked",  # a request skipped it (`skip-next`)
]


class Spread(NamedTuple):
    """The rest of a catch-up window over which later passes spread their ticks."""

    from_ms: int
    until_ms: int


class JobState(NamedTuple):
    """The state of a job that planning needs."""

    job_id: str
    ticks: Ticks
    policy: Policy
    #: the first tick that has no verdict yet; None when there is none, or while the job is paused
    next_ms: int | None
    #: how many of its ticks have become runs
    run_count: int = 0
    #: how many ticks were missed since the last one that became a run
    missed: int = 0
    #: the window of a spread that the previous pass did not complete
    spread: Spread | None = None
    #: its active hours limit the jitter
    work: Work = NO_WORK


class PlanningFacts(NamedTuple):
    """The facts about the runs of a job: those that run, and those that wait."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    #: why no run of the job may start now, or None
    blocked: BlockReason | None = None


IDLE: Final = PlanningFacts()


class Limits(NamedTuple):
    """The operator's limits on a pass."""

    lookahead_ms: int = 60_000
    max_catchup: int = 100
    #: how long before it fires the tick of an idle job may be recorded
    lead_ms: int = 0


DEFAULT_LIMITS: Final = Limits()


class Becomes(StrEnum):
    """What a tick becomes."""

    STARTED = "started"  # run now, or on its instant if that is within the lead
    PLANNED = "planned"  # run at `fire_ms`, which is later
    QUEUED = "queued"  # run when the earlier run has finished
    SKIPPED = "skipped"
    MISSED = "missed"


class TickVerdict(NamedTuple):
    """What one tick becomes. A `missed` verdict may cover several, from `scheduled_ms` to `until_ms`."""

    scheduled_ms: int
    fire_ms: int
    becomes: Becomes
    reason: Reason | None = None
    covers: int = 1
    until_ms: int | None = None
    #: of a tick that becomes a run: how many were missed since the previous one that did
    missed: int = 0


class Plan(NamedTuple):
    """What the planner writes, in one transaction."""

    verdicts: tuple[TickVerdict, ...]
    next_ms: int | None
    wake_ms: int | None
    run_count: int
    #: live runs to cancel: a newer run replaces them
    replaced: tuple[str, ...] = ()
    #: waiting runs to cancel: only the newest waits
    superseded: tuple[str, ...] = ()
    #: why the job has no further ticks; None if it has
    finished: str | None = None
    #: how many ticks were missed since the last one that became a run
    missed: int = 0
    #: the window in which the next pass continues a spread, if any
    spread: Spread | None = None


class Cursor(NamedTuple):
    """A job's next tick, and when the planner handles it: `wake_ms` is when the tick `next_ms` fires."""

    next_ms: int | None
    wake_ms: int | None


def begin(
    job_id: str, definition: Definition, anchor_ms: int, now_ms: int, decided: Collection[int] = ()
) -> Cursor:
    """Return the cursor of a job that is created, resumed or edited at `now_ms`: at its next tick.

    A tick of `decided` has a record: it is never the next one.
    """
    if definition.timing is None:
        return Cursor(None, None)
    ticks = definition.timing.ticks(anchor_ms).without(decided)
    return _cursor_at(job_id, ticks, definition.policy, ticks.next(now_ms), definition.work)


def overdue(job: JobState, now_ms: int, reason: Reason) -> TickVerdict | None:
    """Return the verdict for due ticks without one when the job is paused, edited or ends: missed."""
    first, ticks = job.next_ms, job.ticks
    if first is not None and first in ticks.taken:
        first = ticks.next(first)

    def is_due(tick: int) -> bool:
        return fire_ms(job.job_id, ticks, job.policy, tick, job.work) <= now_ms

    if first is None or not is_due(first):
        return None
    # Jitter moves a tick by less than half the way to its neighbour, so the newest due tick is near now.
    last, following = ticks.prev(now_ms + 1), ticks.next(now_ms)
    if following is not None and is_due(following):
        last = following
    elif last is not None and not is_due(last):
        last = ticks.prev(last)
    last = first if last is None else max(first, last)
    return TickVerdict(first, first, Becomes.MISSED, reason, ticks.count(first - 1, last), last)


def job_state(job: JobRecord) -> JobState | None:
    """Return the state of a job for planning; None for a job without a schedule."""
    ticks = job.open_ticks
    if ticks is None:
        return None
    definition = job.definition
    return JobState(job.id, ticks, definition.policy, job.next_ms, job.run_count, work=definition.work)


def fire_ms(job_id: str, ticks: Ticks, policy: Policy, tick: int, work: Work = NO_WORK) -> int:
    """Return when a tick fires: at its own time, or with jitter before or after, equal on every replica.

    The offset is uniform in ±`jitter_ms`, but less than half the way to either neighbour: all ticks fire in
    their order. A tick within the active hours fires within them, and one outside of them outside.
    """
    limit = policy.jitter_ms
    if limit == 0:
        return tick
    ticks = ticks.without(())  # what has a record already does not change when another tick fires
    for neighbour in (ticks.prev(tick), ticks.next(tick)):
        if neighbour is not None:
            limit = min(limit, (abs(neighbour - tick) - 1) // 2)
    offset = spread_evenly(tick_key(job_id, tick), limit)
    if work.active_hours is None:
        return tick + offset
    active = partial(within, work.active_hours, work.hours_tz or "UTC")
    return next(at for at in (tick + offset, tick - offset, tick) if active(at) == active(tick))


def decide(job: JobState, facts: PlanningFacts, now_ms: int, limits: Limits = DEFAULT_LIMITS) -> Plan:
    """Return what the job's due ticks become, and the new state of the job."""
    return _fast_path(job, facts, now_ms, limits) or _JobPlanner(job, facts, now_ms, limits).plan()


def _fast_path(job: JobState, facts: PlanningFacts, now_ms: int, limits: Limits) -> Plan | None:
    """Return the plan of an idle job with one tick due, on time: nearly every job, at a fraction of the cost.

    It is the plan that `_JobPlanner` returns; None in any other case.
    """
    policy, tick = job.policy, job.next_ms
    if (
        tick is None
        or policy.jitter_ms
        or policy.max_runs is not None
        or job.missed
        or job.ticks.taken
        or facts != IDLE
        or not now_ms - policy.misfire_grace_ms <= tick <= now_ms + limits.lead_ms
    ):
        return None
    following = job.ticks.next(tick)
    if following is None or following <= now_ms + limits.lead_ms:
        return None
    verdict = TickVerdict(tick, tick, Becomes.STARTED)
    return Plan((verdict,), following, following, job.run_count + 1)


class _JobPlanner:
    """One planning pass over one job. It takes ticks from the cursor in order and gives each a verdict."""

    __slots__ = (
        "busy", "caught_up", "cursor", "facts", "job", "limits", "missed", "now", "replaced", "run_count",
        "spread", "superseded", "verdicts", "waiting",
    )  # fmt: skip

    def __init__(self, job: JobState, facts: PlanningFacts, now_ms: int, limits: Limits) -> None:
        self.job, self.facts, self.now, self.limits = job, facts, now_ms, limits
        self.cursor = job.next_ms
        if self.cursor is not None and self.cursor in job.ticks.taken:
            self.cursor = job.ticks.next(self.cursor)
        self.verdicts: list[TickVerdict] = []
        self.run_count, self.missed = job.run_count, job.missed
        self.spread: Spread | None = None
        self.busy, self.waiting = bool(facts.running), len(facts.waiting)
        self.caught_up = False
        self.replaced: tuple[str, ...] = ()
        self.superseded: tuple[str, ...] = ()

    def plan(self) -> Plan:
        """Handle missed ticks, then due ones."""
        late = None if self._exhausted else self._last_missed()
        if late is not None and self.cursor is not None:
            self._catch_up(self.cursor, late)
        self._fire()
        finished = None
        if self._exhausted:
            self.cursor, finished = None, "max_runs"
        elif self.cursor is None and self.job.next_ms is not None:
            finished = "no_more_ticks"
        job = self.job
        next_ms, wake_ms = _cursor_at(job.job_id, job.ticks, job.policy, self.cursor, job.work)
        return Plan(
            tuple(self.verdicts), next_ms, wake_ms, self.run_count, self.replaced, self.superseded, finished,
            self.missed, self.spread,
        )  # fmt: skip

    @property
    def _full(self) -> bool:
        return len(self.verdicts) >= self.limits.max_catchup

    @property
    def _exhausted(self) -> bool:
        max_runs = self.job.policy.max_runs
        return max_runs is not None and self.run_count >= max_runs

    def _fires_at(self, tick: int) -> int:
        return fire_ms(self.job.job_id, self.job.ticks, self.job.policy, tick, self.job.work)

    def _last_missed(self) -> int | None:
        """Return the newest tick from the cursor on that should have fired longer ago than the grace.

        A tick that jitter fires early counts only once its own time is over.
        """
        ticks, edge = self.job.ticks, self.now - self.job.policy.misfire_grace_ms
        if self.cursor is None or isinstance(ticks.schedule, At):
            return None
        if max(self.cursor, self._fires_at(self.cursor)) >= edge:
            return None
        last = ticks.prev(edge)
        if last is not None and last > self.cursor and self._fires_at(last) >= edge:
            last = ticks.prev(last)  # and this one fired before `last` was due
        return self.cursor if last is None or last < self.cursor else last

    def _catch_up(self, first: int, last: int) -> None:
        """Give the missed ticks from `first` to `last` their verdicts, up to the limit of a pass."""
        ticks, policy = self.job.ticks, self.job.policy
        if policy.catchup == "none":
            return self._miss(first, last, "downtime")
        oldest = self.now - policy.catchup_window_ms
        if last < oldest:
            return self._miss(first, last, "too_old")
        if policy.catchup == "latest":
            return self._catch_up_latest(first, last)
        if first < oldest:
            self._miss(first, ticks.prev(oldest) or first, "too_old")
        self.caught_up = True
        if policy.catchup == "spread":
            return self._spread_until(last)
        while self.cursor is not None and self.cursor <= last and not self._full and not self._exhausted:
            self._emit(self.cursor, self.now)

    def _spread_until(self, last: int) -> None:
        """Spread the ticks up to `last` over the lookahead: one window for all passes.

        A pass that is late keeps the distance between two ticks and moves the end of the window.
        """
        job, now = self.job, self.now
        begin, end = now, now + self.limits.lookahead_ms
        if job.spread is not None and now <= job.spread.until_ms:
            begin = max(now, job.spread.from_ms)
            end = begin + job.spread.until_ms - job.spread.from_ms
        left = 0 if self.cursor is None else job.ticks.count(self.cursor - 1, last)
        if job.policy.max_runs is not None:
            left = min(left, job.policy.max_runs - self.run_count)
        number = 0
        while self.cursor is not None and self.cursor <= last and not self._exhausted:
            # Ticks that a budget skips do not count as runs, so there may be more than `left`.
            fire = begin + (end - begin) * min(number, left) // max(1, left)
            if self._full:
                self.spread = Spread(fire, end)
                return
            self._emit(self.cursor, fire, later=fire > now)
            number += 1

    def _catch_up_latest(self, first: int, last: int) -> None:
        """Run the newest missed tick and record the others as missed.

        If a tick that is on time starts now whatever else runs, it is enough: all others are missed.
        """
        following = self.job.ticks.next(last)
        if (
            following is not None
            and self.job.policy.overlap == "allow"
            and self.facts.blocked is None
            and self._fires_at(following) <= self.now
        ):
            self._miss(first, last, "newer_tick_runs")
            return self._emit(following, self._fires_at(following))
        if first < last:
            reason: Reason = "newer_tick_runs" if self.facts.blocked is None else "downtime"
            self._miss(first, self.job.ticks.prev(last) or first, reason)
        self.cursor = last
        self.caught_up = True
        self._emit(last, self.now)
        self.caught_up = False

    def _fire(self) -> None:
        """Give the ticks that are due and on time their verdicts."""
        while self.cursor is not None and not self._full and not self._exhausted:
            fire = self._fires_at(self.cursor)
            if fire > self.now + self.limits.lead_ms:
                break
            if fire > self.now and (self.busy or self.waiting) and self.job.policy.overlap != "allow":
                break  # overlap is decided when the tick would start, never before
            if fire > self.now and self.facts.blocked is not None and self.verdicts:
                break  # the block is that of an earlier tick
            self._emit(self.cursor, fire)

    def _miss(self, first: int, last: int, reason: Reason) -> None:
        count = self.job.ticks.count(first - 1, last)
        self.missed += count
        self.verdicts.append(TickVerdict(first, first, Becomes.MISSED, reason, count, last))
        self.cursor = self.job.ticks.next(last)

    def _emit(self, tick: int, fire: int, *, later: bool = False) -> None:
        """Give one tick its verdict: started, planned, queued or skipped."""
        becomes, reason = self._outcome(later)
        missed = 0
        if becomes is not Becomes.SKIPPED:
            missed, self.missed = self.missed, 0
        self.verdicts.append(TickVerdict(tick, fire, becomes, reason, missed=missed))
        if becomes is Becomes.STARTED:
            self.busy = True
        elif becomes is not Becomes.SKIPPED:
            self.waiting += 1
        self.run_count += becomes is not Becomes.SKIPPED
        self.cursor = self.job.ticks.next(tick)

    def _outcome(self, later: bool) -> tuple[Becomes, Reason | None]:
        """Return what a tick becomes, and apply the overlap policy to earlier runs and ticks."""
        if self.facts.blocked is not None:
            return Becomes.SKIPPED, self.facts.blocked
        if later:
            return Becomes.PLANNED, None
        policy = self.job.policy
        action = overlap_action(policy.overlap, policy.max_queued, running=self.busy, waiting=self.waiting)
        if action is OverlapAction.START:
            return Becomes.STARTED, None
        if self.caught_up or action is OverlapAction.QUEUE:  # a caught-up run waits under every policy
            return Becomes.QUEUED, None
        if action is OverlapAction.SKIP:
            return Becomes.SKIPPED, "overlap"
        if action is OverlapAction.QUEUE_FULL:
            return Becomes.SKIPPED, "queue_full"
        self.waiting = 0
        if action is OverlapAction.SUPERSEDE:
            self.superseded = self.facts.waiting
            self._withdraw((Becomes.QUEUED,), "superseded")
            return Becomes.QUEUED, None
        self.replaced = (*self.facts.running, *self.facts.waiting)
        self._withdraw((Becomes.STARTED, Becomes.QUEUED), "replaced")
        return Becomes.STARTED, None

    def _withdraw(self, becomes: tuple[Becomes, ...], reason: Reason) -> None:
        """Skip earlier ticks of this pass that a newer one replaces. They have not started."""
        for index, verdict in enumerate(self.verdicts):
            if verdict.becomes in becomes:
                self.verdicts[index] = verdict._replace(becomes=Becomes.SKIPPED, reason=reason, missed=0)
                self.missed += verdict.missed
                self.run_count -= 1


def _cursor_at(job_id: str, ticks: Ticks, policy: Policy, tick: int | None, work: Work) -> Cursor:
    return Cursor(None, None) if tick is None else Cursor(tick, fire_ms(job_id, ticks, policy, tick, work))
