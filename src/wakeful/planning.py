"""What a tick becomes: the heart of Wakeful, and pure.

`decide` takes where a job stands, what is known of its runs, and the time, and says what each due tick
becomes and where the job stands afterwards. The planner carries it out in one transaction. It promises,
whatever it is given:

- each tick gets exactly one verdict, in the order of the ticks, and none is passed over in silence;
- a tick never moves: jitter and catch-up change when it fires, not what it is;
- the cursor (`next_ms`) never goes back, and lies after every tick that has its verdict;
- a pass gives at most `max_catchup` verdicts; what is left is due again at once, in the next pass.

Instants are epoch milliseconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

from wakeful.job import Definition, JobRecord
from wakeful.policy import Policy, spread_evenly
from wakeful.run import tick_key
from wakeful.schedule import At
from wakeful.start_rules import BlockReason
from wakeful.ticks import Ticks

Reason = Literal[
    "overlap",  # the run before has not finished
    "queue_full",  # as many wait as may
    "replaced",  # a newer tick of the same pass runs in its place
    "superseded",  # a newer tick of the same pass waits in its place
    "budget",  # what it may use today is used up (`Facts.blocked`)
    "outside_hours",  # the job runs at other hours of the day (`Facts.blocked`)
    "downtime",  # nobody was awake, and the job does not catch up
    "too_old",  # older than the catch-up window
    "newer_tick_runs",  # the job catches up with the latest only
    "paused",  # it was due, and nobody had come to it, when the job was paused
    "deleted",  # likewise, when the job was deleted
    "edited",  # likewise, when the job was given other ticks
    "asked",  # a request skipped it (`skip-next`)
]


class Spread(NamedTuple):
    """The part of a spread's window that is left for the ticks of later passes."""

    from_ms: int
    until_ms: int


class JobState(NamedTuple):
    """Where a job stands: what planning needs of it, and nothing else."""

    job_id: str
    ticks: Ticks
    policy: Policy
    #: the first tick that has no verdict yet; None when there is none, or while the job is paused
    next_ms: int | None
    #: how many of its ticks have become runs
    run_count: int = 0
    #: how many of its ticks were missed since the last one that became a run
    missed: int = 0
    #: where the previous pass left a spread that it did not complete
    spread: Spread | None = None


class Facts(NamedTuple):
    """What the database knows beside the job: its runs under way, and those that wait for them."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    #: why no run of the job may start now, or None
    blocked: BlockReason | None = None


IDLE: Final = Facts()


class Limits(NamedTuple):
    """What the operator allows a pass."""

    lookahead_ms: int = 60_000
    max_catchup: int = 100
    #: a tick of an idle job may be recorded so long before it fires; it fires on time all the same
    lead_ms: int = 0


DEFAULT_LIMITS: Final = Limits()


class Becomes(StrEnum):
    """What a tick can become."""

    STARTED = "started"  # run now, or on its instant if that is within the lead
    PLANNED = "planned"  # run at `fire_ms`, which is later
    QUEUED = "queued"  # run when the one before has finished
    SKIPPED = "skipped"
    MISSED = "missed"


class Verdict(NamedTuple):
    """What one tick becomes; a `missed` one may speak for several, from `scheduled_ms` to `until_ms`."""

    scheduled_ms: int
    fire_ms: int
    becomes: Becomes
    reason: Reason | None = None
    covers: int = 1
    until_ms: int | None = None
    #: of one that runs: how many ticks were missed since the last one that became a run
    missed: int = 0


class Plan(NamedTuple):
    """What is to be written, all at once."""

    verdicts: tuple[Verdict, ...]
    next_ms: int | None
    wake_ms: int | None
    run_count: int
    #: live runs to cancel, because a newer one replaces them
    replaced: tuple[str, ...] = ()
    #: waiting runs to cancel, because only the newest waits
    superseded: tuple[str, ...] = ()
    #: why the job has no further ticks, where it has none
    finished: str | None = None
    #: the ticks missed since the last one that became a run
    missed: int = 0
    #: where the next pass continues a spread; None: there is nothing to continue
    spread: Spread | None = None


class Cursor(NamedTuple):
    """A job's cursor and when the planner should look at it: `wake_ms` is when the tick `next_ms` fires."""

    next_ms: int | None
    wake_ms: int | None


def begin(job_id: str, definition: Definition, anchor_ms: int, now_ms: int) -> Cursor:
    """The cursor of a job that is created, resumed or edited at `now_ms`: what was before does not count."""
    if definition.timing is None:
        return Cursor(None, None)
    ticks = definition.timing.ticks(anchor_ms)
    return _place(job_id, ticks, definition.policy, ticks.next(now_ms))


def overdue(job: JobState, now_ms: int, reason: Reason) -> Verdict | None:
    """What becomes of the ticks that are due, and have no verdict, when a job stops having them: missed."""
    first, ticks = job.next_ms, job.ticks

    def is_due(tick: int) -> bool:
        return fire_ms(job.job_id, ticks, job.policy, tick) <= now_ms

    if first is None or not is_due(first):
        return None
    # Jitter moves a tick by less than half the way to its neighbour: the newest that is due is near.
    last, following = ticks.prev(now_ms + 1), ticks.next(now_ms)
    if following is not None and is_due(following):
        last = following
    elif last is not None and not is_due(last):
        last = ticks.prev(last)
    last = first if last is None else max(first, last)
    return Verdict(first, first, Becomes.MISSED, reason, ticks.count(first - 1, last), last)


def standing(job: JobRecord) -> JobState | None:
    """What planning needs of a job; None for one that has no schedule of its own."""
    timing = job.definition.timing
    if timing is None:
        return None
    return JobState(job.id, timing.ticks(job.anchor_ms), job.definition.policy, job.next_ms, job.run_count)


def fire_ms(job_id: str, ticks: Ticks, policy: Policy, tick: int) -> int:
    """When a tick fires: its own time, or with jitter a little before or after, the same on every replica.

    The offset is uniform in ±`jitter_ms`, but less than half-way to the tick before and to the next: so no
    tick fires past its neighbours, and all fire in their order, one after the other.
    """
    limit = policy.jitter_ms
    if limit == 0:
        return tick
    for neighbour in (ticks.prev(tick), ticks.next(tick)):
        if neighbour is not None:
            limit = min(limit, (abs(neighbour - tick) - 1) // 2)
    return tick + spread_evenly(tick_key(job_id, tick), limit)


def decide(job: JobState, facts: Facts, now_ms: int, limits: Limits = DEFAULT_LIMITS) -> Plan:
    """What the job's due ticks become, and where the job stands afterwards."""
    return _ordinary(job, facts, now_ms, limits) or _JobPlanner(job, facts, now_ms, limits).plan()


def _ordinary(job: JobState, facts: Facts, now_ms: int, limits: Limits) -> Plan | None:
    """The plan of an idle job with one tick due, on time: nearly every job, for a fraction of the cost.

    It says what the pass would say, or None.
    """
    policy, tick = job.policy, job.next_ms
    if (
        tick is None
        or policy.jitter_ms
        or policy.max_runs is not None
        or job.missed
        or facts != IDLE
        or not now_ms - policy.misfire_grace_ms <= tick <= now_ms + limits.lead_ms
    ):
        return None
    following = job.ticks.next(tick)
    if following is None or following <= now_ms + limits.lead_ms:
        return None
    verdict = Verdict(tick, tick, Becomes.STARTED)
    return Plan((verdict,), following, following, job.run_count + 1)


class _JobPlanner:
    """One planning pass over one job: ticks are taken from the cursor in order, each with its verdict."""

    __slots__ = (
        "busy", "caught_up", "cursor", "facts", "job", "limits", "missed", "now", "replaced", "run_count",
        "spread", "superseded", "verdicts", "waiting",
    )  # fmt: skip

    def __init__(self, job: JobState, facts: Facts, now_ms: int, limits: Limits) -> None:
        self.job, self.facts, self.now, self.limits = job, facts, now_ms, limits
        self.cursor = job.next_ms
        self.verdicts: list[Verdict] = []
        self.run_count, self.missed = job.run_count, job.missed
        self.spread: Spread | None = None
        self.busy, self.waiting = bool(facts.running), len(facts.waiting)
        self.caught_up = False
        self.replaced: tuple[str, ...] = ()
        self.superseded: tuple[str, ...] = ()

    def plan(self) -> Plan:
        """Take what was missed, then what is due."""
        late = None if self._worn_out else self._last_missed()
        if late is not None and self.cursor is not None:
            self._catch_up(self.cursor, late)
        self._fire()
        finished = None
        if self._worn_out:
            self.cursor, finished = None, "max_runs"
        elif self.cursor is None and self.job.next_ms is not None:
            finished = "no_more_ticks"
        next_ms, wake_ms = _place(self.job.job_id, self.job.ticks, self.job.policy, self.cursor)
        return Plan(
            tuple(self.verdicts), next_ms, wake_ms, self.run_count, self.replaced, self.superseded, finished,
            self.missed, self.spread,
        )  # fmt: skip

    @property
    def _full(self) -> bool:
        return len(self.verdicts) >= self.limits.max_catchup

    @property
    def _worn_out(self) -> bool:
        max_runs = self.job.policy.max_runs
        return max_runs is not None and self.run_count >= max_runs

    def _fires_at(self, tick: int) -> int:
        return fire_ms(self.job.job_id, self.job.ticks, self.job.policy, tick)

    def _last_missed(self) -> int | None:
        """The newest tick, from the cursor on, that is over and should have fired longer ago than the grace.

        A tick that jitter brings forward can be due and not over: late it is, but not missed.
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
        """Give the missed ticks from `first` to `last` their verdicts, as far as a pass may."""
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
        while self.cursor is not None and self.cursor <= last and not self._full and not self._worn_out:
            self._emit(self.cursor, self.now)

    def _spread_until(self, last: int) -> None:
        """Spread the ticks up to `last` over the lookahead: one window for all of them, however many passes.

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
        while self.cursor is not None and self.cursor <= last and not self._worn_out:
            fire = begin + (end - begin) * number // max(1, left)
            if self._full:
                self.spread = Spread(fire, end)
                return
            self._emit(self.cursor, fire, later=fire > now)
            number += 1

    def _catch_up_latest(self, first: int, last: int) -> None:
        """Run the newest missed tick and record the others; ticks on time follow the overlap policy."""
        if first < last:
            reason: Reason = "newer_tick_runs" if self.facts.blocked is None else "downtime"
            self._miss(first, self.job.ticks.prev(last) or first, reason)
        self.cursor = last
        self.caught_up = True
        self._emit(last, self.now)
        self.caught_up = False

    def _fire(self) -> None:
        """Give the ticks that are due, and not too late, their verdicts."""
        while self.cursor is not None and not self._full and not self._worn_out:
            fire = self._fires_at(self.cursor)
            if fire > self.now + self.limits.lead_ms:
                break
            if fire > self.now and self._engaged and self.job.policy.overlap != "allow":
                break  # whether it overlaps is judged when it would start, never before
            self._emit(self.cursor, fire)

    def _miss(self, first: int, last: int, reason: Reason) -> None:
        count = self.job.ticks.count(first - 1, last)
        self.missed += count
        self.verdicts.append(Verdict(first, first, Becomes.MISSED, reason, count, last))
        self.cursor = self.job.ticks.next(last)

    @property
    def _engaged(self) -> bool:
        return self.busy or self.waiting > 0

    def _emit(self, tick: int, fire: int, *, later: bool = False) -> None:
        """One tick that may run: started, planned, queued or skipped, as the overlap policy says."""
        becomes, reason = self._judge(later)
        missed = 0
        if becomes is not Becomes.SKIPPED:
            missed, self.missed = self.missed, 0
        self.verdicts.append(Verdict(tick, fire, becomes, reason, missed=missed))
        if becomes is Becomes.STARTED:
            self.busy = True
        elif becomes is not Becomes.SKIPPED:
            self.waiting += 1
        self.run_count += becomes is not Becomes.SKIPPED
        self.cursor = self.job.ticks.next(tick)

    def _judge(self, later: bool) -> tuple[Becomes, Reason | None]:
        overlap = self.job.policy.overlap
        if self.facts.blocked is not None:
            return Becomes.SKIPPED, self.facts.blocked
        if later:
            return Becomes.PLANNED, None
        if overlap == "allow" or not self._engaged:
            return Becomes.STARTED, None
        if self.caught_up:  # a run that is caught up waits, whatever the policy for ticks that are on time
            return Becomes.QUEUED, None
        if overlap == "skip":
            return Becomes.SKIPPED, "overlap"
        if overlap == "queue":
            if self.waiting >= self.job.policy.max_queued:
                return Becomes.SKIPPED, "queue_full"
            return Becomes.QUEUED, None
        if overlap == "queue_one":
            self.superseded = self.facts.waiting
            self._withdraw((Becomes.QUEUED,), "superseded")
            self.waiting = 0
            return Becomes.QUEUED, None
        # What waits is older too: it must not start after the newer one has.
        self.replaced = (*self.facts.running, *self.facts.waiting)
        self._withdraw((Becomes.STARTED, Becomes.QUEUED), "replaced")
        self.waiting = 0
        return Becomes.STARTED, None

    def _withdraw(self, becomes: tuple[Becomes, ...], reason: Reason) -> None:
        """Skip the earlier ticks of this pass that a newer one replaces: they have not started."""
        for index, verdict in enumerate(self.verdicts):
            if verdict.becomes in becomes:
                self.verdicts[index] = verdict._replace(becomes=Becomes.SKIPPED, reason=reason, missed=0)
                self.missed += verdict.missed
                self.run_count -= 1


def _place(job_id: str, ticks: Ticks, policy: Policy, tick: int | None) -> Cursor:
    return Cursor(None, None) if tick is None else Cursor(tick, fire_ms(job_id, ticks, policy, tick))
