"""Property tests of `decide`: random jobs, random facts and a clock that jumps both ways.

Each story runs pass after pass, with every plan as the input of the next pass. The result is compared with an
enumeration of the ticks that does not use `Ticks`, and a computation of jitter that does not use `planning`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise, product
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.effort import cases
from wakeful.job.job import Definition, Timing
from wakeful.job.policy import Policy
from wakeful.job.start_rules import BlockReason
from wakeful.run import planning
from wakeful.run.planning import (
    IDLE,
    Becomes,
    JobState,
    Limits,
    Plan,
    PlanningFacts,
    TickVerdict,
    begin,
    decide,
)
from wakeful.schedule.calendars import NOTHING, parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every
from wakeful.schedule.ticks import Ticks
from wakeful.values.duration import DAY, HOUR, MINUTE, SECOND

FIRST_DAY = date(2027, 3, 1)
T0 = round(datetime(2027, 3, 1, tzinfo=UTC).timestamp() * 1000)
JOB = "0197f9b2"
RUNS = {Becomes.STARTED, Becomes.PLANNED, Becomes.QUEUED}
OVERLAPS = ["allow", "skip", "queue", "queue_one", "replace"]
CATCHUPS = ["none", "latest", "fire_immediately", "spread"]
QUIET = [HealthCheck.too_slow]  # a slow machine is not a failure
stories_are_told = settings(deadline=None, max_examples=cases(100, 100), suppress_health_check=QUIET)


# --- a job and its enumerated ticks -----------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """The timing of a job and all its ticks, enumerated to well past the end of the story."""

    timing: Timing
    anchor: int
    created: int
    end: int
    all_ticks: list[int] = field(repr=False)

    def ticks(self) -> Ticks:
        """Return its `Ticks`, as a process that has just started computes them."""
        timing = self.timing
        return Ticks(timing.schedule, self.anchor, timing.start_ms, timing.end_ms, timing.exclude)

    def between(self, first: int, last: int) -> list[int]:
        """Return the ticks from `first` to `last`, both inclusive."""
        return self.all_ticks[bisect_left(self.all_ticks, first) : bisect_right(self.all_ticks, last)]

    def after(self, instant: int) -> int | None:
        """Return the first later tick."""
        index = bisect_right(self.all_ticks, instant)
        return self.all_ticks[index] if index < len(self.all_ticks) else None

    def fires(self, tick: int, jitter_ms: int) -> int:
        """Return the fire time of a tick, from the hash of its key; less than half-way to a neighbour."""
        index = bisect_left(self.all_ticks, tick)
        assert self.all_ticks[index] == tick, "not a tick"
        near = self.all_ticks[max(0, index - 1) : index + 2]
        room = min([jitter_ms, *((two - one - 1) // 2 for one, two in pairwise(near))])
        second = f"{tick // 1000}" + (f".{tick % 1000:03d}" if tick % 1000 else "")
        key = hashlib.sha256(f"{JOB}:{second}".encode()).hexdigest()
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
        return tick + number % (2 * room + 1) - room


one_in_four = st.sampled_from([False, False, False, True])


@st.composite
def lives(draw) -> Life:
    created = T0 + draw(st.sampled_from([0, 250, 12 * HOUR + 17]))
    kind = draw(st.sampled_from(["every", "every", "every", "clock", "clock", "at"]))
    schedule: At | Every | CronSchedule
    anchor, start, excludable, end = created, None, True, created + 8 * DAY
    if kind == "at":
        schedule = At(created + draw(st.integers(1, 3 * DAY)))
        found = [schedule.at_ms]
    elif kind == "every":
        usual = st.sampled_from([SECOND, 1_001, 7 * SECOND, MINUTE, 15 * MINUTE, HOUR])
        schedule = Every(draw(usual | st.integers(SECOND, 4 * HOUR)))
        step = schedule.every_ms
        start = draw(st.sampled_from([None, None, created - 7 * step - 5, created, created + 3 * step + 5]))
        anchor = created if start is None else start
        excludable = step >= 10 * MINUTE
        end = created + min(8 * DAY, 400 * step)
        first = anchor + step if start is None else anchor
        found = list(range(first, end + (10 * DAY if excludable else 20 * step), step))
    else:
        minutes = draw(st.sets(st.integers(0, 59), min_size=1, max_size=4))
        hours = draw(st.sets(st.integers(0, 23), min_size=1, max_size=6))
        schedule = CronSchedule(f"{_listed(minutes)} {_listed(hours)} * * *", "UTC")
        start = draw(st.sampled_from([None, None, T0, created + 30 * HOUR]))
        found = [
            T0 + day * DAY + hour * HOUR + minute * MINUTE
            for day in range(-12, 22)
            for hour in sorted(hours)
            for minute in sorted(minutes)
        ]
    stop = draw(st.sampled_from(found) | st.integers(created, end)) if draw(one_in_four) else None
    days = draw(st.sets(st.integers(0, 8), max_size=3)) if excludable and draw(one_in_four) else set()
    exclude = parse_exclude([str(FIRST_DAY + timedelta(days=day)) for day in days]) if days else NOTHING
    all_ticks = [
        tick
        for tick in found
        if (start is None or start <= tick)
        and (stop is None or tick <= stop)
        and (tick - T0) // DAY not in days
    ]
    return Life(Timing(schedule, start, stop, exclude), anchor, created, end, all_ticks)


def _listed(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


# --- a story ----------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """The input and output of one planning pass."""

    before: JobState
    facts: PlanningFacts
    now: int
    limits: Limits
    plan: Plan


class Story(NamedTuple):
    """A job, its policies, and the times and facts of the planning passes."""

    life: Life
    policy: Policy
    limits: Limits
    looks: list[tuple[int, PlanningFacts]]
    #: the number of earlier runs; may exceed `max_runs`, which can be lowered
    run_count: int = 0

    def fires(self, tick: int) -> int:
        return self.life.fires(tick, self.policy.jitter_ms)

    def late(self, tick: int, now: int) -> bool:
        """Whether the tick and its grace are both in the past."""
        return max(tick, self.fires(tick)) + self.policy.misfire_grace_ms < now

    def spoken_for(self, verdict: TickVerdict) -> list[int]:
        """Return the ticks that a verdict covers."""
        last = verdict.scheduled_ms if verdict.until_ms is None else verdict.until_ms
        return self.life.between(verdict.scheduled_ms, last)

    def passes(self) -> Iterator[Pass]:
        """Run the passes; each starts from the state that the plan before left."""
        definition = Definition("digest", self.life.timing, self.policy)
        cursor, wake = begin(JOB, definition, self.life.anchor, self.life.created)
        run_count, last = self.run_count, max(now for now, _ in self.looks)
        missed, spread = 0, None
        looks = [(now, facts, self.limits) for now, facts in self.looks]
        while looks or (wake is not None and wake <= last):
            # Afterwards an idle planner continues until nothing is due.
            now, facts, limits = (
                looks.pop(0) if looks else (last, IDLE, self.limits._replace(max_catchup=500))
            )
            before = JobState(JOB, self.life.ticks(), self.policy, cursor, run_count, missed, spread)
            plan = decide(before, facts, now, limits)
            yield Pass(before, facts, now, limits, plan)
            assert plan.verdicts or wake is None or wake > now or plan.next_ms is None, (
                "the planner would spin"
            )
            cursor, wake, run_count = plan.next_ms, plan.wake_ms, plan.run_count
            missed, spread = plan.missed, plan.spread
            if cursor is None:
                break


policies = st.builds(
    Policy,
    overlap=st.sampled_from(OVERLAPS),
    max_queued=st.sampled_from([0, 1, 3, 100]),
    catchup=st.sampled_from(CATCHUPS),
    catchup_window_ms=st.sampled_from([0, 90 * SECOND, 10 * MINUTE, 5 * HOUR, DAY]),
    misfire_grace_ms=st.sampled_from([0, 500, MINUTE, 20 * MINUTE]),
    jitter_ms=st.sampled_from([0, 0, 0, 1, 300, 25 * SECOND, 40 * MINUTE, 3 * DAY]),
    max_runs=st.sampled_from([None, None, None, None, 0, 1, 2, 5, 12]),
)
all_limits = st.sampled_from(
    [Limits(*limits) for limits in product([0, 1, 1_000, 60_000], [1, 2, 3, 10, 100], [0, 250, 5_000])]
)
BLOCKED: list[BlockReason | None] = [None, None, None, None, None, "budget"]
some_facts = st.sampled_from(
    [
        PlanningFacts(running, waiting, blocked)
        for running in [(), (), ("r1",), ("r1", "r2")]
        for waiting in [(), (), ("w1",), ("w1", "w2", "w3")]
        for blocked in BLOCKED
    ]
)


@st.composite
def stories(draw) -> Story:
    life, policy = draw(lives()), draw(policies)
    known = life.between(life.created, life.end) or [life.created]
    edges = (0, 0, policy.misfire_grace_ms, policy.catchup_window_ms)
    beside = [edge + by for edge in edges for by in (-300, -1, 0, 1, 300)]
    # Moves by a few or many ticks, sometimes back, and then to a time near the tick.
    hops = st.sampled_from([0, 1, 1, 1, 2, 3, 6, 15, 40, 150, -1, -20])
    place, looks = 0, []
    for hop, by, facts in draw(
        st.lists(st.tuples(hops, st.sampled_from(beside), some_facts), min_size=1, max_size=8)
    ):
        place = min(max(0, place + hop), len(known) - 1)
        looks.append((min(max(life.created, known[place] + by), life.end), facts))
    return Story(life, policy, draw(all_limits), looks, draw(st.sampled_from([0, 0, 0, 5])))


# --- exactly once, and no tick is lost --------------------------------------------------------------------


@stories_are_told
@given(stories())
def test_every_tick_up_to_now_has_exactly_one_verdict(story):
    spoken: Counter[int] = Counter()
    finished, latest = None, max(now for now, _ in story.looks)
    for one in story.passes():
        for verdict in one.plan.verdicts:
            spoken.update(story.spoken_for(verdict))
        finished = finished or one.plan.finished
    assert set(spoken.values()) <= {1}, "no tick has two"
    of_the_job = story.life.between(story.life.created + 1, story.life.all_ticks[-1]) if spoken else []
    assert sorted(spoken) == of_the_job[: len(spoken)], "none is passed over"
    if finished != "max_runs":
        due = [
            tick
            for tick in story.life.between(story.life.created + 1, latest + 3 * DAY)
            if story.fires(tick) <= latest
        ]
        assert set(due) <= set(spoken), "none that is due is left"
    for tick in spoken:
        assert story.fires(tick) <= latest + story.limits.lead_ms, "and none gets it before its time"


@stories_are_told
@given(stories())
def test_the_verdicts_of_a_pass_follow_the_cursor_tick_by_tick(story):
    for one in story.passes():
        spoken = [tick for verdict in one.plan.verdicts for tick in story.spoken_for(verdict)]
        cursor = one.before.next_ms
        if spoken:
            assert cursor is not None
            assert spoken == story.life.between(cursor, spoken[-1])
            cursor = story.life.after(spoken[-1])
        assert one.plan.next_ms == (None if one.plan.finished else cursor)


@stories_are_told
@given(stories())
def test_a_missed_row_has_the_exact_range_and_count(story):
    for one in story.passes():
        for index, verdict in enumerate(one.plan.verdicts):
            ticks = story.spoken_for(verdict)
            assert verdict.covers == len(ticks)
            assert (ticks[0], ticks[-1]) == (verdict.scheduled_ms, verdict.until_ms or verdict.scheduled_ms)
            assert (verdict.until_ms is not None) == (verdict.becomes is Becomes.MISSED)
            assert index == 0 or verdict.becomes is not Becomes.MISSED, "one row, and it comes first"


@stories_are_told
@given(stories())
def test_the_cursor_never_moves_back_and_the_wake_time_is_its_fire_time(story):
    for one in story.passes():
        before, after = one.before.next_ms, one.plan.next_ms
        if after is None:
            assert one.plan.wake_ms is None
            assert before is None or one.plan.finished is not None
            continue
        assert before is not None
        assert before <= after
        assert one.plan.wake_ms == story.fires(after)
        assert one.plan.finished is None
        assert (before == after) == (one.plan.verdicts == ())


# --- limits of a pass -------------------------------------------------------------------------------------


@stories_are_told
@given(stories())
def test_a_pass_is_limited_to_the_cap_and_otherwise_leaves_nothing_due(story):
    for one in story.passes():
        verdicts = one.plan.verdicts
        missed = sum(verdict.becomes is Becomes.MISSED for verdict in verdicts)
        assert len(verdicts) <= one.limits.max_catchup + missed
        if len(verdicts) < one.limits.max_catchup and one.plan.wake_ms is not None:
            assert one.plan.wake_ms > one.now
            if one.plan.wake_ms <= one.now + one.limits.lead_ms:
                busy = one.facts.running or one.facts.waiting or {v.becomes for v in verdicts} & RUNS
                overlap_is_open = busy and story.policy.overlap != "allow"
                block_is_older = one.facts.blocked is not None and verdicts
                assert overlap_is_open or block_is_older, "other ticks are recorded early"


@stories_are_told
@given(stories())
def test_runs_are_counted_exactly_and_never_exceed_max_runs(story):
    for one in story.passes():
        runs = sum(verdict.becomes in RUNS for verdict in one.plan.verdicts)
        assert one.plan.run_count == one.before.run_count + runs
        max_runs = story.policy.max_runs
        if max_runs is not None:
            assert one.plan.run_count <= max(max_runs, one.before.run_count)
            assert (one.plan.finished == "max_runs") == (one.plan.run_count >= max_runs)
            assert one.plan.finished != "max_runs" or one.plan.next_ms is None
        if one.plan.finished == "no_more_ticks":
            assert (
                story.life.after(one.plan.verdicts[-1].until_ms or one.plan.verdicts[-1].scheduled_ms) is None
            )


@stories_are_told
@given(stories(), st.integers(1, 400 * DAY))
def test_a_clock_set_back_changes_nothing(story, back):
    for one in story.passes():
        after = one.before._replace(
            next_ms=one.plan.next_ms, run_count=one.plan.run_count, missed=one.plan.missed
        )
        if after.next_ms is None:
            assert decide(after, one.facts, one.now - back, one.limits).verdicts == ()
            continue
        assert one.plan.wake_ms is not None
        earlier = min(one.now, one.plan.wake_ms - one.limits.lead_ms) - back
        assert decide(after, one.facts, earlier, one.limits) == Plan(
            (), after.next_ms, one.plan.wake_ms, after.run_count, missed=after.missed
        )


@stories_are_told
@given(lives(), policies, all_limits, some_facts, st.integers(0, 10**13))
def test_a_paused_job_gets_an_empty_plan(life, policy, limits, facts, now):
    paused = JobState(JOB, life.ticks(), replace(policy, max_runs=None), None, 7)
    assert decide(paused, facts, now, limits) == Plan((), None, None, 7)


@stories_are_told
@given(stories())
def test_the_fast_path_gives_the_same_plan_as_the_full_planner(story):
    for before, facts, now, limits, plan in story.passes():
        assert plan == planning._JobPlanner(before, facts, now, limits).plan()


# --- late ticks -------------------------------------------------------------------------------------------


@stories_are_told
@given(stories())
def test_a_tick_is_missed_only_when_it_is_late_and_by_the_catchup_policy(story):
    policy = story.policy
    for one in story.passes():
        oldest = one.now - policy.catchup_window_ms
        once = isinstance(one.before.ticks.schedule, At)
        for verdict in one.plan.verdicts:
            if verdict.becomes is Becomes.MISSED:
                assert verdict.until_ms is not None
                assert not once, "a one-time job always catches up"
                assert story.late(verdict.until_ms, one.now)
                held_back = policy.catchup == "latest" and one.facts.blocked is not None
                if not held_back:
                    assert (verdict.reason == "downtime") == (policy.catchup == "none")
                if verdict.reason == "newer_tick_runs":
                    assert policy.catchup == "latest"
                    assert one.plan.verdicts[1].scheduled_ms >= oldest
                    late = story.late(one.plan.verdicts[1].scheduled_ms, one.now)
                    assert late or policy.overlap == "allow", "one that is on time starts in its place"
                    newer = [each for each in one.plan.verdicts if each.becomes in RUNS]
                    assert newer, "the record is true: a newer tick runs"
                if verdict.reason == "too_old":
                    assert verdict.until_ms < oldest
            elif story.late(verdict.scheduled_ms, one.now) and not once:
                assert policy.catchup != "none"
                assert verdict.scheduled_ms >= oldest
                following = story.life.after(verdict.scheduled_ms)
                if policy.catchup == "latest" and following is not None:
                    assert not story.late(following, one.now), "only the newest of them runs"


def window_end(one: Pass) -> int:
    """Return the latest fire time of a caught-up tick: a continued spread keeps its window."""
    end = one.now + one.limits.lookahead_ms
    return end if one.before.spread is None else max(end, one.before.spread.until_ms)


@stories_are_told
@given(stories())
def test_a_spread_keeps_the_order_of_the_ticks_across_passes(story):
    before = None
    for one in story.passes():
        continued = one.before.spread is not None and one.now <= one.before.spread.until_ms
        caught_up = [each for each in one.plan.verdicts if each.becomes is Becomes.PLANNED]
        fires = [each.fire_ms for each in caught_up]
        assert fires == sorted(fires)
        if continued and before is not None and fires:
            assert fires[0] >= before, "a later pass continues where the one before ended"
        if one.plan.spread is not None:
            assert story.policy.catchup == "spread"
            assert len(one.plan.verdicts) >= one.limits.max_catchup
            assert one.plan.spread.until_ms >= one.plan.spread.from_ms >= max(fires, default=one.now)
        before = fires[-1] if fires else before


@stories_are_told
@given(stories())
def test_every_missed_tick_is_counted_before_exactly_one_run(story):
    for one in story.passes():
        newly = sum(each.covers for each in one.plan.verdicts if each.becomes is Becomes.MISSED)
        counted = sum(each.missed for each in one.plan.verdicts)
        assert all(not each.missed for each in one.plan.verdicts if each.becomes not in RUNS)
        assert one.before.missed + newly == counted + one.plan.missed


@stories_are_told
@given(stories())
def test_jitter_is_within_its_bounds_and_the_same_after_a_restart(story):
    for one in story.passes():
        for verdict in one.plan.verdicts:
            tick, fire = verdict.scheduled_ms, verdict.fire_ms
            if verdict.becomes is Becomes.MISSED:
                continue
            if story.late(tick, one.now) and not isinstance(one.before.ticks.schedule, At):
                assert one.now <= fire <= window_end(one), "what is caught up fires from now"
                continue
            assert fire == story.fires(tick)
            assert abs(fire - tick) <= story.policy.jitter_ms
            following = story.life.after(tick)
            assert following is None or fire < following


@stories_are_told
@given(stories())
def test_no_tick_fires_early_and_overlap_is_never_decided_early(story):
    for one in story.passes():
        for verdict in one.plan.verdicts:
            if verdict.becomes is Becomes.PLANNED:
                assert story.policy.catchup == "spread"
                assert one.now < verdict.fire_ms <= window_end(one)
            elif verdict.fire_ms > one.now and verdict.reason != "budget":
                assert verdict.becomes is Becomes.STARTED
                assert verdict.fire_ms <= one.now + one.limits.lead_ms


@stories_are_told
@given(lives(), policies, st.integers(1, 40), st.sampled_from([0, 1, MINUTE, HOUR]))
def test_the_cap_loses_no_tick_and_changes_no_verdict(life, policy, cap, later):
    policy = replace(policy, max_runs=None)
    now = max(life.between(life.created, life.end)[:200], default=life.created) + later
    cursor, _ = begin(JOB, Definition("digest", life.timing, policy), life.anchor, life.created)
    whole = decide(JobState(JOB, life.ticks(), policy, cursor), IDLE, now, Limits(max_catchup=10_000))
    parts: list[TickVerdict] = []
    missed, spread = 0, None
    while True:
        # In the next pass, started ticks are running and queued ones are waiting.
        became = Counter(verdict.becomes for verdict in parts)
        facts = PlanningFacts(("r",) * became[Becomes.STARTED], ("w",) * became[Becomes.QUEUED])
        before = JobState(JOB, life.ticks(), policy, cursor, missed=missed, spread=spread)
        plan = decide(before, facts, now, Limits(max_catchup=cap))
        if not plan.verdicts:
            break
        parts += plan.verdicts
        cursor, missed, spread = plan.next_ms, plan.missed, plan.spread
    assert [(one.scheduled_ms, one.covers) for one in parts] == [
        (one.scheduled_ms, one.covers) for one in whole.verdicts
    ]
    assert cursor == whole.next_ms
    if policy.catchup == "spread":
        caught_up = [
            (one, other) for one, other in zip(parts, whole.verdicts, strict=True) if other.becomes in RUNS
        ]
        apart = 60_000 / max(1, len(caught_up))
        assert all(abs(one.fire_ms - other.fire_ms) <= apart + len(parts) for one, other in caught_up)
    if policy.overlap in ("allow", "skip", "queue") and policy.catchup in ("none", "latest"):
        assert tuple(parts) == whole.verdicts


# --- overlap ----------------------------------------------------------------------------------------------


def expected_of(overlap: str, due: int, running: int, waiting: int, max_queued: int) -> list[str]:
    """Return the expected verdicts of so many due ticks, in closed form."""
    first = ["started"] if not running + waiting else []
    rest = due - len(first)
    match overlap:
        case "allow":
            return ["started"] * due
        case "skip":
            return first + ["overlap"] * rest
        case "queue":
            fit = max(0, min(rest, max_queued - waiting))
            return first + ["queued"] * fit + ["queue_full"] * (rest - fit)
        case "queue_one":
            return first + ["superseded"] * (rest - 1) + ["queued"] * (rest > 0)
        case _:
            return ["replaced"] * (due - 1) + ["started"]


@settings(deadline=None, max_examples=cases(200, 200))
@given(
    st.sampled_from(OVERLAPS),
    st.integers(1, 12),
    st.integers(0, 2),
    st.integers(0, 6),
    st.integers(0, 8),
    st.integers(0, 50),
)
def test_several_due_ticks_follow_the_overlap_policy(overlap, due, running, waiting, max_queued, run_count):
    facts = PlanningFacts(tuple(f"r{n}" for n in range(running)), tuple(f"w{n}" for n in range(waiting)))
    policy = Policy(overlap=overlap, max_queued=max_queued)
    plan = decide(
        JobState(JOB, Ticks(Every(SECOND), T0), policy, T0 + SECOND, run_count), facts, T0 + due * SECOND
    )
    assert [verdict.scheduled_ms for verdict in plan.verdicts] == [T0 + n * SECOND for n in range(1, due + 1)]
    words = [str(verdict.reason or verdict.becomes) for verdict in plan.verdicts]
    assert words == expected_of(overlap, due, running, waiting, max_queued)
    for verdict in plan.verdicts:
        assert (verdict.becomes is Becomes.SKIPPED) == (verdict.reason is not None)
    assert plan.run_count == run_count + words.count("started") + words.count("queued")
    gives_way = overlap == "replace" and (due > 1 or running + waiting > 0)
    assert plan.replaced == ((*facts.running, *facts.waiting) if gives_way else ())
    assert plan.superseded == (facts.waiting if overlap == "queue_one" and "queued" in words else ())


class Workshop:
    """A job with a tick per minute and one worker, whose runs have these durations in turn."""

    def __init__(self, policy: Policy, lengths: list[int]) -> None:
        self.policy, self.lengths = policy, lengths
        self.ticks = Ticks(Every(MINUTE), T0)
        self.cursor, self.wake = begin(JOB, Definition("digest", Timing(Every(MINUTE)), policy), T0, T0)
        self.now = T0
        self.running: dict[int, int] = {}  # tick: when it ends
        self.waiting: deque[int] = deque()
        self.started: list[int] = []
        self.skipped: list[TickVerdict] = []
        self.deepest = 0

    def work(self, until: int, asleep: tuple[int, int] = (0, 0)) -> Workshop:
        """Process events in order. While the planner is asleep, the worker continues."""
        while self.wake is not None:
            wake = asleep[1] if asleep[0] <= self.wake < asleep[1] else self.wake
            self.now = max(self.now, min([wake, *self.running.values()]))
            if self.now > until:
                break
            self.running = {tick: end for tick, end in self.running.items() if end > self.now}
            if self.waiting and not self.running:
                self._start(self.waiting.popleft())
            if wake <= self.now:
                self._plan()
        return self

    def _plan(self) -> None:
        facts = PlanningFacts(tuple(map(str, self.running)), tuple(map(str, self.waiting)))
        plan = decide(JobState(JOB, self.ticks, self.policy, self.cursor), facts, self.now)
        self.cursor, self.wake = plan.next_ms, plan.wake_ms
        for run in plan.replaced:
            del self.running[int(run)]
        for run in plan.superseded:
            self.waiting.remove(int(run))
        for verdict in plan.verdicts:
            if verdict.becomes is Becomes.STARTED:
                self._start(verdict.scheduled_ms)
            elif verdict.becomes is Becomes.QUEUED:
                self.waiting.append(verdict.scheduled_ms)
            else:
                self.skipped.append(verdict)
        self.deepest = max(self.deepest, len(self.waiting))

    def _start(self, tick: int) -> None:
        assert not self.running, "two at once"
        self.started.append(tick)
        self.running[tick] = self.now + self.lengths[len(self.started) % len(self.lengths)]


lengths = st.lists(st.integers(1, 4 * MINUTE), min_size=1, max_size=6)
jitters = st.sampled_from([0, 500, 20 * SECOND, HOUR])
WORKDAY = T0 + 3 * HOUR


@settings(deadline=None, max_examples=cases(40, 40))
@given(lengths, jitters, st.integers(0, 100), st.integers(0, 60))
def test_with_queue_an_outage_loses_no_tick_and_keeps_the_order(lengths, jitter_ms, asleep_from, asleep_for):
    policy = Policy(overlap="queue", max_queued=1_000, catchup="fire_immediately", jitter_ms=jitter_ms)
    asleep = T0 + asleep_from * MINUTE, T0 + (asleep_from + asleep_for) * MINUTE
    shop = Workshop(policy, lengths).work(WORKDAY, asleep)
    assert shop.skipped == []
    every_tick = [T0 + number * MINUTE for number in range(1, 181)]
    assert shop.started + list(shop.waiting) == every_tick[: len(shop.started) + len(shop.waiting)]
    assert len(shop.started) + len(shop.waiting) >= 179


@settings(deadline=None, max_examples=cases(40, 40))
@given(lengths, jitters, st.integers(1, 5))
def test_a_queue_never_exceeds_max_queued(lengths, jitter_ms, max_queued):
    shop = Workshop(Policy(overlap="queue", max_queued=max_queued, jitter_ms=jitter_ms), lengths).work(
        WORKDAY
    )
    assert shop.deepest <= max_queued
    assert shop.started == sorted(shop.started)
    assert {verdict.reason for verdict in shop.skipped} <= {"queue_full"}


@settings(deadline=None, max_examples=cases(40, 40))
@given(st.integers(0, 27 * SECOND))
def test_with_skip_a_five_second_job_every_minute_never_skips(jitter_ms):
    shop = Workshop(Policy(overlap="skip", jitter_ms=jitter_ms), [5 * SECOND]).work(WORKDAY)
    assert shop.skipped == []
    assert len(shop.started) >= 179


@settings(deadline=None, max_examples=cases(40, 40))
@given(lengths, jitters)
def test_with_skip_no_two_runs_overlap_and_skipped_ticks_have_a_reason(lengths, jitter_ms):
    shop = Workshop(Policy(overlap="skip", jitter_ms=jitter_ms), lengths).work(WORKDAY)
    assert {verdict.reason for verdict in shop.skipped} <= {"overlap"}
    assert len(shop.started) + len(shop.skipped) >= 179
    assert not shop.waiting


@settings(deadline=None, max_examples=cases(40, 40))
@given(lengths, jitters)
def test_with_queue_one_at_most_one_waits_and_it_is_the_newest(lengths, jitter_ms):
    shop = Workshop(Policy(overlap="queue_one", jitter_ms=jitter_ms), lengths).work(WORKDAY)
    assert shop.deepest <= 1
    assert shop.skipped == []
    assert shop.started == sorted(shop.started)
    assert max([*shop.started, *shop.waiting]) >= WORKDAY - MINUTE


@settings(deadline=None, max_examples=cases(40, 40))
@given(lengths, jitters)
def test_with_replace_every_tick_starts(lengths, jitter_ms):
    shop = Workshop(Policy(overlap="replace", jitter_ms=jitter_ms), lengths).work(WORKDAY)
    assert shop.started == [T0 + number * MINUTE for number in range(1, len(shop.started) + 1)]
    assert len(shop.started) >= 179


# --- arbitrary input --------------------------------------------------------------------------------------

any_instant = st.integers(0, 2 * 10**13) | st.integers(T0 - HOUR, T0 + HOUR)
any_schedule = st.one_of(
    st.builds(At, any_instant),
    st.builds(Every, st.integers(SECOND, 10**12)),
    st.sampled_from([CronSchedule(expr, "UTC") for expr in ("* * * * * *", "0 9 * * 1-5", "0 0 29 2 *")]),
)


@settings(deadline=None, max_examples=cases(200, 200), suppress_health_check=QUIET)
@given(any_schedule, st.tuples(any_instant, any_instant, any_instant), policies, all_limits, some_facts)
def test_any_input_gives_a_plan_that_makes_progress(schedule, instants, policy, limits, facts):
    # Even a cursor that is not a tick: the rules of the time zone may have changed since it was stored.
    anchor, cursor, now = instants
    before = JobState(JOB, Ticks(schedule, anchor), policy, cursor)
    plan = decide(before, facts, now, limits)
    assert plan == decide(before, facts, now, limits)
    assert plan.next_ms is None or plan.next_ms >= cursor
    assert (plan.next_ms is None) == (plan.wake_ms is None) == (plan.finished is not None)
    assert plan.verdicts == tuple(sorted(plan.verdicts, key=lambda verdict: verdict.scheduled_ms))
    assert len(plan.verdicts) <= limits.max_catchup + 1
    assert plan.next_ms != cursor or not plan.verdicts
