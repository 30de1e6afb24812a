"""The decisions of the planner, case by case. Property tests: test_planning_properties.py."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime
from functools import partial
from itertools import pairwise
from time import process_time

import pytest

from wakeful.job.job import Definition, JobRecord, Timing
from wakeful.job.policy import Policy, spread_evenly
from wakeful.run import planning
from wakeful.run.planning import (
    DEFAULT_LIMITS,
    Cursor,
    JobState,
    Limits,
    Plan,
    PlanningFacts,
    TickVerdict,
    begin,
    decide,
    fire_ms,
    job_state,
    overdue,
)
from wakeful.run.run import tick_key
from wakeful.schedule.calendars import parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every, Schedule
from wakeful.schedule.ticks import Ticks
from wakeful.values.duration import DAY, HOUR, MINUTE, SECOND
from wakeful.values.instants import LATEST_MS


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


T0 = ms("2027-03-01T00:00Z")
MINUTELY = Ticks(Every(MINUTE), T0)  # ticks at T0 + 1 min, T0 + 2 min …
IDLE = PlanningFacts()
BUSY = PlanningFacts(running=("r1",))
BUSY_WITH_ONE_WAITING = PlanningFacts(running=("r1",), waiting=("w1",))
AHEAD = Limits(lead_ms=1_000)


def minute(number: float) -> int:
    """Return the time so many minutes after the creation of the job; its ticks are on whole minutes."""
    return T0 + round(number * MINUTE)


def plan(
    now: int,
    facts: PlanningFacts = IDLE,
    limits: Limits = DEFAULT_LIMITS,
    *,
    ticks: Ticks = MINUTELY,
    cursor: int | None = minute(1),
    run_count: int = 0,
    **policy,
) -> Plan:
    return decide(JobState("j1", ticks, Policy(**policy), cursor, run_count), facts, now, limits)


def told(plan: Plan) -> list[str]:
    """Return the verdicts as text."""
    return [_tell(verdict) for verdict in plan.verdicts]


def _tell(verdict: TickVerdict) -> str:
    number = f"{(verdict.scheduled_ms - T0) / MINUTE:g}"
    if verdict.until_ms is not None:
        number += f"-{(verdict.until_ms - T0) / MINUTE:g} ({verdict.covers})"
    return f"{number} {verdict.becomes}" + (f": {verdict.reason}" if verdict.reason else "")


def untouched(after: Plan, *, cursor: int | None, run_count: int = 0) -> bool:
    """Whether a plan leaves the job unchanged."""
    return after == Plan((), cursor, after.wake_ms, run_count)


# --- on time ----------------------------------------------------------------------------------------------


def test_a_tick_is_started_when_it_is_due():
    due = plan(minute(1))
    assert told(due) == ["1 started"]
    assert due == Plan((TickVerdict(minute(1), minute(1), due.verdicts[0].becomes),), minute(2), minute(2), 1)


def test_the_default_limits_match_the_settings():
    assert Limits() == (60_000, 100, 0)


def test_a_skipped_tick_has_no_missed_ticks_before_it():
    (skipped,) = plan(minute(1), BUSY, overlap="skip").verdicts
    assert (skipped.becomes, skipped.missed) == ("skipped", 0)


def test_a_verdict_covers_one_tick_by_default():
    assert TickVerdict(1, 2, planning.Becomes.STARTED) == (1, 2, "started", None, 1, None, 0)


def test_a_tick_gets_no_verdict_before_it_is_due():
    assert plan(minute(1) - 1) == Plan((), minute(1), minute(1), 0)


def test_a_tick_that_is_planned_late_keeps_its_scheduled_time():
    (verdict,) = plan(minute(1) + 777).verdicts
    assert (verdict.scheduled_ms, verdict.fire_ms) == (minute(1), minute(1))


def test_two_due_ticks_get_their_verdicts_in_order():
    assert told(plan(minute(2), overlap="allow")) == ["1 started", "2 started"]


def test_a_tick_gets_only_one_verdict():
    first = plan(minute(1))
    assert untouched(
        plan(minute(1), cursor=first.next_ms, run_count=first.run_count), cursor=minute(2), run_count=1
    )


def test_the_same_input_gives_the_same_plan():
    asked = partial(plan, minute(500), BUSY_WITH_ONE_WAITING, overlap="queue", jitter_ms=20_000)
    assert asked() == asked()


# --- recording ahead --------------------------------------------------------------------------------------


def test_the_tick_of_an_idle_job_is_recorded_ahead_and_fires_on_time():
    ahead = plan(minute(1) - 1_000, limits=AHEAD)
    assert told(ahead) == ["1 started"]
    assert ahead.verdicts[0].fire_ms == minute(1)


def test_a_tick_beyond_the_lead_gets_no_verdict():
    assert untouched(plan(minute(1) - 1_001, limits=AHEAD), cursor=minute(1))


@pytest.mark.parametrize("overlap", ["skip", "queue", "queue_one", "replace"])
@pytest.mark.parametrize("facts", [BUSY, PlanningFacts(waiting=("w1",))])
def test_overlap_is_not_decided_before_the_run_would_start(overlap, facts):
    early = plan(minute(1) - 1, facts, AHEAD, overlap=overlap)
    assert untouched(early, cursor=minute(1))
    assert early.wake_ms == minute(1), "it is looked at again on the instant"
    assert plan(minute(1), facts, AHEAD, overlap=overlap).verdicts


def test_the_tick_of_a_busy_job_that_may_overlap_is_recorded_ahead():
    assert told(plan(minute(1) - 1, BUSY, AHEAD, overlap="allow")) == ["1 started"]


def test_only_the_first_of_several_ticks_within_the_lead_is_recorded():
    secondly = Ticks(Every(SECOND), T0)
    ahead = plan(T0, limits=Limits(lead_ms=5_000), ticks=secondly, cursor=T0 + SECOND)
    assert [verdict.scheduled_ms for verdict in ahead.verdicts] == [T0 + SECOND]
    assert ahead.wake_ms == T0 + 2 * SECOND
    together = plan(T0, limits=Limits(lead_ms=5_000), ticks=secondly, cursor=T0 + SECOND, overlap="allow")
    assert [verdict.scheduled_ms for verdict in together.verdicts] == [T0 + n * SECOND for n in range(1, 6)]


# --- the grace --------------------------------------------------------------------------------------------


def test_a_tick_exactly_as_late_as_the_grace_fires():
    assert told(plan(minute(1) + 60_000, cursor=minute(1), overlap="allow")) == ["1 started", "2 started"]


def test_a_tick_one_millisecond_later_than_the_grace_is_missed():
    late = plan(minute(1) + 60_001, cursor=minute(1), overlap="allow")
    assert told(late) == ["1-1 (1) missed: downtime", "2 started"]
    assert late.run_count == 1


@pytest.mark.parametrize("grace", [0, 1, 5_000, 10 * MINUTE])
def test_each_job_has_its_own_grace(grace):
    hourly = Ticks(Every(HOUR), T0)
    late = partial(plan, ticks=hourly, cursor=T0 + HOUR, misfire_grace_ms=grace)
    assert told(late(T0 + HOUR + grace)) == ["60 started"]
    assert told(late(T0 + HOUR + grace + 1)) == ["60-60 (1) missed: downtime"]


def test_with_jitter_the_grace_counts_from_the_fire_time():
    hourly, policy = Ticks(Every(HOUR), T0), Policy(jitter_ms=10 * MINUTE)
    tick = next(
        tick for tick in hourly.upcoming(T0, 50) if fire_ms("j1", hourly, policy, tick) > tick + 2 * MINUTE
    )
    fire = fire_ms("j1", hourly, policy, tick)
    late = partial(plan, ticks=hourly, cursor=tick, jitter_ms=10 * MINUTE)
    assert late(fire + 60_000).verdicts[0].becomes == "started"
    assert late(fire + 60_001).verdicts[0].becomes == "missed"


@pytest.mark.parametrize(("jitter_ms", "most"), [(100, 100), (499, 499), (HOUR, 499)])
def test_jitter_is_less_than_half_the_distance_to_the_next_tick(jitter_ms, most):
    secondly, tick = Ticks(Every(SECOND), T0), T0 + 10 * SECOND
    expected = tick + spread_evenly(tick_key("j1", tick), most)
    assert fire_ms("j1", secondly, Policy(jitter_ms=jitter_ms), tick) == expected


def test_a_tick_with_negative_jitter_is_not_missed_before_its_scheduled_time():
    # Created or restarted between the fire time and the tick itself: late, but still in time.
    daily, policy = Ticks(CronSchedule("0 9 * * *", "UTC"), 0), Policy(jitter_ms=HOUR)
    tick = next(
        tick for tick in daily.upcoming(T0, 50) if fire_ms("j1", daily, policy, tick) < tick - 10 * MINUTE
    )
    fire = fire_ms("j1", daily, policy, tick)
    late = partial(plan, ticks=daily, cursor=tick, jitter_ms=HOUR)
    for now in (fire, fire + 60_001, tick - MINUTE, tick, tick + 60_000):
        (verdict,) = late(now).verdicts
        assert (verdict.becomes, verdict.scheduled_ms, verdict.fire_ms) == ("started", tick, fire)
    assert late(tick + 60_001).verdicts[0].becomes == "missed"


# --- downtime and catch-up --------------------------------------------------------------------------------


def test_an_hour_of_downtime_is_one_missed_row_with_its_range_and_count():
    back = plan(minute(61))
    assert told(back) == ["1-59 (59) missed: downtime", "60 started", "61 skipped: overlap"]
    assert (back.next_ms, back.wake_ms, back.run_count) == (minute(62), minute(62), 1)


def test_a_job_fires_again_after_an_outage():
    back = plan(minute(60.5))
    assert told(back) == ["1-59 (59) missed: downtime", "60 started"]
    assert told(plan(minute(61), cursor=back.next_ms)) == ["61 started"]


def test_a_missed_row_covers_no_excluded_day_and_nothing_outside_start_and_end():
    ticks = Ticks(Every(HOUR), T0, start_ms=T0, end_ms=T0 + 5 * DAY, exclude=parse_exclude(["2027-03-02"]))
    back = plan(T0 + 9 * DAY, ticks=ticks, cursor=T0)
    (row,) = back.verdicts
    assert (row.scheduled_ms, row.until_ms, row.covers) == (T0, T0 + 5 * DAY, 4 * 24 + 1)
    assert (back.next_ms, back.finished) == (None, "no_more_ticks")


def test_latest_runs_once_for_the_newest_missed_tick():
    back = plan(minute(60.5), catchup="latest", overlap="allow", misfire_grace_ms=1_000)
    assert told(back) == ["1-59 (59) missed: newer_tick_runs", "60 started"]
    assert back.verdicts[1].fire_ms == minute(60.5), "it fires now"
    assert back.run_count == 1


def test_latest_records_no_missed_row_for_a_single_missed_tick():
    assert told(plan(minute(2.5), catchup="latest", overlap="queue")) == ["1 started", "2 queued"]


@pytest.mark.parametrize(("grace_ms", "started"), [(1_000, ["60"]), (90_000, ["59", "60"])])
def test_latest_runs_no_missed_tick_if_one_that_is_on_time_starts_anyway(grace_ms, started):
    back = plan(minute(60) + 900, catchup="latest", overlap="allow", misfire_grace_ms=grace_ms)
    last = 60 - len(started)
    row = f"1-{last} ({last}) missed: newer_tick_runs"
    assert told(back) == [row, *(f"{tick} started" for tick in started)]
    assert [verdict.missed for verdict in back.verdicts] == [0, last, *[0] * (len(started) - 1)]


@pytest.mark.parametrize("overlap", ["skip", "queue", "queue_one", "replace"])
@pytest.mark.parametrize("facts", [BUSY, BUSY_WITH_ONE_WAITING, PlanningFacts(waiting=("w1",))])
def test_the_latest_tick_waits_for_the_current_run_under_every_overlap_policy(overlap, facts):
    hourly = Ticks(Every(HOUR), T0)
    asked = partial(plan, ticks=hourly, cursor=T0 + HOUR, catchup="latest", max_queued=0)
    back = asked(T0 + 5 * HOUR + 30 * MINUTE, facts, overlap=overlap)
    assert told(back) == ["60-240 (4) missed: newer_tick_runs", "300 queued"]
    assert (back.replaced, back.superseded, back.run_count) == ((), (), 1)


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("skip", ["59 queued", "60 skipped: overlap"]),
        ("queue", ["59 queued", "60 queued"]),
        ("queue_one", ["59 skipped: superseded", "60 queued"]),
        ("replace", ["59 skipped: replaced", "60 started"]),
    ],
)
def test_a_tick_on_time_after_the_latest_follows_the_overlap_policy(overlap, expected):
    back = plan(minute(60.5), BUSY, catchup="latest", overlap=overlap)
    assert told(back) == ["1-58 (58) missed: newer_tick_runs", *expected]
    assert back.replaced == (("r1",) if overlap == "replace" else ())
    assert back.run_count == sum("skipped" not in each for each in expected)


def test_latest_reports_downtime_where_the_newest_tick_is_blocked():
    back = plan(minute(60.5), PlanningFacts(blocked="budget"), catchup="latest")
    assert told(back) == ["1-58 (58) missed: downtime", "59 skipped: budget", "60 skipped: budget"]


def test_fire_immediately_runs_every_missed_tick_oldest_first():
    back = plan(minute(60.5), catchup="fire_immediately")
    assert told(back) == ["1 started"] + [f"{number} queued" for number in range(2, 61)]
    assert {verdict.fire_ms for verdict in back.verdicts[:59]} == {minute(60.5)}
    assert back.run_count == 60


def test_fire_immediately_starts_all_missed_ticks_where_they_may_overlap():
    back = plan(minute(60.5), catchup="fire_immediately", overlap="allow")
    assert told(back) == [f"{number} started" for number in range(1, 61)]


@pytest.mark.parametrize("overlap", ["skip", "queue", "queue_one", "replace"])
def test_caught_up_ticks_are_serial_under_every_overlap_policy_but_allow(overlap):
    back = plan(minute(10.5), BUSY, catchup="fire_immediately", overlap=overlap, max_queued=3)
    assert told(back) == [f"{number} queued" for number in range(1, 11)]
    assert (back.replaced, back.superseded) == ((), ())


def test_a_pass_is_limited_to_the_cap_and_later_passes_plan_the_rest():
    cursor, seen, passes = minute(1), [], 0
    while passes < 100:
        back = plan(minute(250.5), PlanningFacts(waiting=("w",)), catchup="fire_immediately", cursor=cursor)
        passes += 1
        assert len(back.verdicts) <= 100
        seen += [verdict.scheduled_ms for verdict in back.verdicts]
        assert back.next_ms is not None
        assert back.wake_ms is not None
        cursor = back.next_ms
        if back.wake_ms > minute(250.5):
            break
    assert passes == 3
    assert seen == [minute(number) for number in range(1, 251)]


def test_ticks_beyond_the_cap_are_due_immediately():
    back = plan(minute(250.5), catchup="fire_immediately")
    assert len(back.verdicts) == 100
    assert back.next_ms == back.wake_ms == minute(101)
    assert back.finished is None


def test_the_cap_applies_to_ticks_that_are_on_time():
    secondly = Ticks(Every(SECOND), T0)
    due = plan(minute(1), limits=Limits(max_catchup=7), ticks=secondly, cursor=T0 + SECOND, overlap="allow")
    assert [verdict.scheduled_ms for verdict in due.verdicts] == [T0 + n * SECOND for n in range(1, 8)]
    assert due.wake_ms == T0 + 8 * SECOND


def test_a_missed_row_does_not_block_the_next_tick():
    back = plan(minute(60.5), limits=Limits(max_catchup=1))
    assert told(back) == ["1-59 (59) missed: downtime"]
    assert back.wake_ms == minute(60)
    assert told(plan(minute(60.5), limits=Limits(max_catchup=1), cursor=minute(60))) == ["60 started"]


def test_spread_keeps_every_tick_and_spreads_the_fire_times():
    now = minute(60.5)
    back = plan(now, catchup="spread", overlap="allow")
    caught_up, on_time = back.verdicts[:59], back.verdicts[59:]
    assert [verdict.scheduled_ms for verdict in caught_up] == [minute(number) for number in range(1, 60)]
    assert [verdict.becomes for verdict in caught_up] == ["started"] + ["planned"] * 58
    fires = [verdict.fire_ms - now for verdict in caught_up]
    assert fires == [number * 60_000 // 59 for number in range(59)]
    assert [_tell(verdict) for verdict in on_time] == ["60 started"]


def in_passes(now: int, limits: Limits, *, late_by: int = 0, **policy) -> list[TickVerdict]:
    """Return the verdicts of a spread over all its passes, each `late_by` later than the one before."""
    job = JobState("j1", MINUTELY, Policy(catchup="spread", **policy), minute(1))
    verdicts: list[TickVerdict] = []
    while True:
        done = decide(job, PlanningFacts(waiting=("w",) if verdicts else ()), now, limits)
        verdicts += done.verdicts
        if done.spread is None:
            return verdicts
        assert done.wake_ms is not None
        assert done.wake_ms <= now, "the next pass is due at once"
        job = job._replace(
            next_ms=done.next_ms, run_count=done.run_count, missed=done.missed, spread=done.spread
        )
        now += late_by


@pytest.mark.parametrize("max_catchup", [1, 4, 7, 100])
@pytest.mark.parametrize("late_by", [0, 3])
def test_a_spread_of_several_passes_is_one_spread(max_catchup, late_by):
    now, limits = minute(500.5), Limits(lookahead_ms=60_000, max_catchup=max_catchup)
    verdicts = [one for one in in_passes(now, limits, late_by=late_by) if one.scheduled_ms <= minute(499)]
    assert [verdict.scheduled_ms for verdict in verdicts] == [minute(number) for number in range(1, 500)]
    fires = [verdict.fire_ms - now for verdict in verdicts]
    apart = [after - before for before, after in pairwise(fires)]
    assert (fires[0], min(apart) >= 119, max(apart) <= 122) == (0, True, True), "evenly"
    assert fires[-1] == pytest.approx(60_000 * 498 / 499, abs=5)
    assert [verdict.becomes for verdict in verdicts] == ["started"] + ["planned"] * 498


def test_a_late_pass_continues_the_spread_at_the_same_pace():
    now, limits = minute(500.5), Limits(lookahead_ms=60_000, max_catchup=100)
    first = plan(now, limits=limits, catchup="spread")
    assert first.spread is not None
    job = JobState("j1", MINUTELY, Policy(catchup="spread"), first.next_ms, spread=first.spread)
    late = decide(job, IDLE, now + 30_000, limits).verdicts
    assert late[0].fire_ms == now + 30_000
    assert late[-1].fire_ms - late[0].fire_ms == pytest.approx(99 * 60_000 / 499, abs=2)
    stale = decide(job, IDLE, now + 60_001, limits).verdicts
    assert stale[0].fire_ms == now + 60_001, "the window is over: what is left gets another"
    assert stale[-1].fire_ms - stale[0].fire_ms == pytest.approx(99 * 60_000 / 400, abs=2)


def test_spread_counts_only_the_runs_left_under_max_runs():
    now = minute(500.5)
    back = plan(now, catchup="spread", max_runs=4)
    assert [verdict.fire_ms - now for verdict in back.verdicts] == [0, 15_000, 30_000, 45_000]


def test_ticks_that_a_budget_skips_do_not_move_a_spread_beyond_its_window():
    now = minute(500.5)
    job = JobState("j1", MINUTELY, Policy(catchup="spread", max_runs=4), minute(1))
    skipped = decide(job, PlanningFacts(blocked="budget"), now, Limits(lookahead_ms=60_000, max_catchup=100))
    assert {verdict.reason for verdict in skipped.verdicts} == {"budget"}
    assert max(verdict.fire_ms for verdict in skipped.verdicts) <= now + 60_000
    assert skipped.spread is not None
    assert skipped.spread.from_ms <= skipped.spread.until_ms


def test_a_complete_spread_leaves_no_state_for_the_next_pass():
    assert plan(minute(60.5), catchup="spread").spread is None
    job = JobState("j1", MINUTELY, Policy(), minute(1), spread=planning.Spread(T0, T0 + MINUTE))
    assert decide(job, IDLE, minute(1)).spread is None


def test_a_too_old_row_counts_for_the_cap_but_not_for_the_spread():
    now, limits = minute(500), Limits(lookahead_ms=100_000, max_catchup=4)
    back = plan(now, limits=limits, catchup="spread", catchup_window_ms=100 * MINUTE)
    assert told(back) == ["1-399 (399) missed: too_old", "400 started", "401 planned", "402 planned"]
    apart = 100_000 // 99  # of the ticks 400 to 498
    assert [verdict.fire_ms - now for verdict in back.verdicts[1:]] == [0, apart, 2 * apart]


# --- missed ticks before a run ----------------------------------------------------------------------------


def missed_before(plan: Plan) -> list[int]:
    """Return the number of ticks missed before each tick that runs."""
    return [
        verdict.missed for verdict in plan.verdicts if verdict.becomes in ("started", "queued", "planned")
    ]


def test_a_run_has_the_number_of_ticks_missed_before_it():
    back = plan(minute(60.5))
    assert (missed_before(back), back.missed) == ([59], 0)
    assert missed_before(plan(minute(60.5), catchup="latest", overlap="queue")) == [58, 0]
    assert missed_before(plan(minute(3.5), catchup="fire_immediately")) == [0, 0, 0]


def test_missed_ticks_are_counted_until_a_tick_runs():
    hourly = Ticks(Every(HOUR), T0)
    back = plan(T0 + 5 * HOUR + 30 * MINUTE, ticks=hourly, cursor=T0 + HOUR)
    assert (told(back), back.missed) == (["60-300 (5) missed: downtime"], 5)
    job = JobState("j1", hourly, Policy(), back.next_ms, missed=back.missed)
    skipped = decide(job, BUSY, T0 + 6 * HOUR)
    assert (told(skipped), skipped.missed) == (["360 skipped: overlap"], 5)
    ran = decide(job, IDLE, T0 + 6 * HOUR)
    assert (missed_before(ran), ran.missed) == ([5], 0)


@pytest.mark.parametrize("overlap", ["queue_one", "replace"])
def test_a_superseded_or_replaced_tick_passes_its_missed_count_on(overlap):
    back = plan(minute(60.5), BUSY, catchup="latest", overlap=overlap)
    assert [verdict.missed for verdict in back.verdicts] == [0, 0, 58]


def test_the_first_tick_of_a_spread_is_queued_for_a_busy_job():
    back = plan(minute(3.5), BUSY, catchup="spread")
    assert told(back) == ["1 queued", "2 planned", "3 queued"]


@pytest.mark.parametrize("catchup", ["latest", "fire_immediately", "spread"])
def test_a_tick_exactly_as_old_as_the_window_is_caught_up_an_older_one_is_not(catchup):
    back = partial(plan, catchup=catchup, catchup_window_ms=3 * MINUTE, overlap="queue")
    assert told(back(minute(4)))[0] == (
        "1-1 (1) missed: newer_tick_runs" if catchup == "latest" else "1 started"
    )
    older = back(minute(4) + 1)
    assert told(older)[0] == (
        "1-2 (2) missed: newer_tick_runs" if catchup == "latest" else "1-1 (1) missed: too_old"
    )
    assert older.verdicts[1].becomes == "started"


@pytest.mark.parametrize("catchup", ["latest", "fire_immediately", "spread"])
def test_nothing_older_than_the_window_is_caught_up(catchup):
    daily = Ticks(CronSchedule("0 9 * * *", "UTC"), 0)
    nine = T0 + 9 * HOUR
    back = partial(plan, ticks=daily, cursor=nine - 5 * DAY, catchup=catchup, catchup_window_ms=HOUR)
    (row,) = back(nine + 2 * HOUR).verdicts
    assert (row.becomes, row.reason, row.covers, row.until_ms) == ("missed", "too_old", 6, nine)
    assert told(back(nine + HOUR))[-1] == "540 started"


def test_the_default_catchup_window_is_a_day():
    back = plan(minute(60 * 24 + 5), catchup="fire_immediately")
    assert told(back)[:2] == ["1-4 (4) missed: too_old", "5 started"]


@pytest.mark.parametrize("catchup", ["none", "latest", "fire_immediately", "spread"])
@pytest.mark.parametrize("late", [0, 60_001, DAY + 1, 3_000 * DAY])
def test_a_one_time_job_always_catches_up(catchup, late):
    ticks = Ticks(At(minute(7)), T0)
    back = plan(minute(7) + late, ticks=ticks, cursor=minute(7), catchup=catchup, catchup_window_ms=0)
    assert told(back) == ["7 started"]
    assert (back.next_ms, back.wake_ms, back.run_count) == (None, None, 1)
    assert back.finished == "no_more_ticks"


@pytest.mark.parametrize(
    "schedule", [Every(SECOND), CronSchedule("* * * * * *", "Europe/Berlin")], ids=["every", "cron"]
)
@pytest.mark.parametrize("jitter_ms", [0, 250])
@pytest.mark.parametrize("catchup", ["none", "latest", "fire_immediately", "spread"])
def test_a_year_of_seconds_is_planned_without_visiting_every_tick(schedule, catchup, jitter_ms):
    ticks, now = Ticks(schedule, T0), T0 + 365 * DAY
    plan(
        now, ticks=ticks, cursor=T0 + SECOND, catchup=catchup
    )  # warms up the evaluator, which looks a century ahead once
    began = process_time()
    back = plan(now, ticks=ticks, cursor=T0 + SECOND, catchup=catchup, jitter_ms=jitter_ms)
    assert process_time() - began < 0.25, "to step through them takes a hundred times as long"
    row = back.verdicts[0]
    assert (row.scheduled_ms, row.becomes) == (T0 + SECOND, "missed")
    assert row.until_ms is not None
    assert row.covers == (row.until_ms - T0) // SECOND
    kept = DAY if catchup in ("fire_immediately", "spread") else MINUTE
    assert row.until_ms == pytest.approx(now - kept, abs=2 * SECOND)
    assert len(back.verdicts) <= 101


def test_the_latest_supported_time_can_be_planned():
    ticks = Ticks(CronSchedule("*/5 * * * *", "Europe/Berlin"), 0)
    began = process_time()
    assert plan(LATEST_MS, ticks=ticks, cursor=T0).verdicts[0].becomes == "missed"
    assert process_time() - began < 5


# --- overlap ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "queue_one", "replace"])
def test_an_idle_job_is_started_under_every_overlap_policy(overlap):
    idle = plan(minute(1), overlap=overlap)
    assert told(idle) == ["1 started"]
    assert (idle.replaced, idle.superseded) == ((), ())


def test_allow_starts_a_tick_concurrently_with_the_running_one():
    beside = plan(minute(1), BUSY_WITH_ONE_WAITING, overlap="allow")
    assert told(beside) == ["1 started"]
    assert (beside.replaced, beside.superseded) == ((), ())


@pytest.mark.parametrize("facts", [BUSY, BUSY_WITH_ONE_WAITING, PlanningFacts(waiting=("w1",))])
def test_skip_records_the_tick_as_skipped_with_its_reason(facts):
    skipped = plan(minute(1), facts, run_count=4)
    assert told(skipped) == ["1 skipped: overlap"]
    assert (skipped.next_ms, skipped.run_count) == (minute(2), 4)


def test_skip_skips_the_second_of_two_due_ticks():
    assert told(plan(minute(2), overlap="skip")) == ["1 started", "2 skipped: overlap"]


def test_queue_queues_a_tick_of_a_busy_job():
    assert told(plan(minute(1), BUSY, overlap="queue")) == ["1 queued"]
    assert told(plan(minute(2), overlap="queue")) == ["1 started", "2 queued"]


def test_queue_keeps_the_order_of_the_ticks_even_where_no_run_is_running():
    assert told(plan(minute(1), PlanningFacts(waiting=("w1",)), overlap="queue")) == ["1 queued"]


def test_queue_is_limited_to_max_queued():
    due = partial(plan, ticks=Ticks(Every(SECOND), T0), cursor=T0 + SECOND, overlap="queue", max_queued=3)
    full = due(T0 + 5 * SECOND, BUSY_WITH_ONE_WAITING)
    assert [(verdict.becomes, verdict.reason) for verdict in full.verdicts] == [
        ("queued", None),
        ("queued", None),
        ("skipped", "queue_full"),
        ("skipped", "queue_full"),
        ("skipped", "queue_full"),
    ]
    assert full.run_count == 2
    idle = due(T0 + 5 * SECOND)
    assert [verdict.becomes for verdict in idle.verdicts] == [
        "started",
        "queued",
        "queued",
        "queued",
        "skipped",
    ]


def test_the_default_queue_limit_is_a_hundred():
    ninety_nine = PlanningFacts(("r",), tuple(f"w{number}" for number in range(99)))
    assert told(plan(minute(1), ninety_nine, overlap="queue")) == ["1 queued"]
    hundred = PlanningFacts(("r",), tuple(f"w{number}" for number in range(100)))
    assert told(plan(minute(1), hundred, overlap="queue")) == ["1 skipped: queue_full"]


def test_queue_one_keeps_only_the_newest_tick_waiting():
    facts = PlanningFacts(("r1",), ("w1", "w2"))
    newest = plan(minute(1), facts, overlap="queue_one", run_count=3)
    assert told(newest) == ["1 queued"]
    assert (newest.superseded, newest.replaced, newest.run_count) == (("w1", "w2"), (), 4)


def test_queue_one_supersedes_ticks_of_the_same_pass():
    newest = plan(minute(2), BUSY_WITH_ONE_WAITING, overlap="queue_one")
    assert told(newest) == ["1 skipped: superseded", "2 queued"]
    assert (newest.superseded, newest.run_count) == (("w1",), 1)
    secondly = Ticks(Every(SECOND), T0)
    idle = plan(T0 + 4 * SECOND, ticks=secondly, cursor=T0 + SECOND, overlap="queue_one")
    assert [(verdict.becomes, verdict.reason) for verdict in idle.verdicts] == [
        ("started", None),
        ("skipped", "superseded"),
        ("skipped", "superseded"),
        ("queued", None),
    ]
    assert (idle.superseded, idle.run_count) == ((), 2)


def test_queue_one_supersedes_nothing_before_its_tick_is_due():
    assert plan(minute(1) - 1, BUSY_WITH_ONE_WAITING, overlap="queue_one").superseded == ()


def test_replace_cancels_the_running_runs_and_starts():
    facts = PlanningFacts(running=("r1", "r2"))
    replaced = plan(minute(1), facts, overlap="replace", run_count=2)
    assert told(replaced) == ["1 started"]
    assert (replaced.replaced, replaced.superseded, replaced.run_count) == (("r1", "r2"), (), 3)


def test_replace_cancels_waiting_runs_so_that_no_older_one_starts_later():
    assert plan(minute(1), BUSY_WITH_ONE_WAITING, overlap="replace").replaced == ("r1", "w1")
    assert plan(minute(1), PlanningFacts(waiting=("w1",)), overlap="replace").replaced == ("w1",)


def test_replace_starts_only_the_newest_of_several_due_ticks():
    secondly = Ticks(Every(SECOND), T0)
    for facts in (IDLE, BUSY):
        newest = plan(T0 + 3 * SECOND, facts, ticks=secondly, cursor=T0 + SECOND, overlap="replace")
        assert [(verdict.becomes, verdict.reason) for verdict in newest.verdicts] == [
            ("skipped", "replaced"),
            ("skipped", "replaced"),
            ("started", None),
        ]
        assert (newest.replaced, newest.run_count) == (facts.running, 1)


def test_replace_cancels_nothing_before_its_tick_is_due():
    assert plan(minute(1) - 1, BUSY, overlap="replace").replaced == ()


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue", "queue_one", "replace"])
@pytest.mark.parametrize("facts", [PlanningFacts(blocked="budget"), BUSY._replace(blocked="budget")])
def test_a_tick_of_a_blocked_job_is_skipped_and_does_not_count(overlap, facts):
    held = plan(minute(1), facts, overlap=overlap)
    assert told(held) == ["1 skipped: budget"]
    assert (held.next_ms, held.run_count, held.replaced, held.superseded) == (minute(2), 0, (), ())


def test_caught_up_ticks_of_a_blocked_job_are_skipped():
    facts = PlanningFacts(blocked="budget")
    assert told(plan(minute(3.5), facts, catchup="fire_immediately")) == [
        "1 skipped: budget",
        "2 skipped: budget",
        "3 skipped: budget",
    ]


# --- start, end and max_runs ------------------------------------------------------------------------------


def test_the_start_is_a_tick_of_an_interval():
    timing = Timing(Every(MINUTE), start_ms=minute(5))
    place = begin("j1", Definition("digest", timing), minute(5), T0)
    assert place == Cursor(minute(5), minute(5))
    assert told(plan(minute(5), ticks=timing.ticks(minute(5)), cursor=place.next_ms)) == ["5 started"]


def test_start_and_end_are_inclusive_for_an_expression():
    nine, ten = ms("2027-03-01T09:00Z"), ms("2027-03-01T10:00Z")
    timing = Timing(CronSchedule("0 * * * *", "UTC"), start_ms=nine, end_ms=ten)
    assert begin("j1", Definition("digest", timing), T0, T0).next_ms == nine
    first = plan(nine, ticks=timing.ticks(T0), cursor=nine)
    assert (first.next_ms, first.finished) == (ten, None)
    last = plan(ten, ticks=timing.ticks(T0), cursor=ten)
    assert told(last) == ["600 started"]
    assert (last.next_ms, last.wake_ms, last.finished) == (None, None, "no_more_ticks")
    before = Timing(CronSchedule("0 * * * *", "UTC"), start_ms=nine + 1, end_ms=ten - 1)
    assert begin("j1", Definition("digest", before), T0, T0) == Cursor(None, None)


def test_a_tick_before_the_end_is_not_lost_when_it_is_planned_after_the_end():
    ticks = Ticks(Every(MINUTE), T0, end_ms=minute(3))
    over = plan(minute(3) + 59_000, ticks=ticks, cursor=minute(3))
    assert told(over) == ["3 started"]
    assert over.finished == "no_more_ticks"


def test_the_last_run_finishes_the_job():
    last = plan(minute(1), max_runs=3, run_count=2)
    assert told(last) == ["1 started"]
    assert last == Plan(last.verdicts, None, None, 3, finished="max_runs")


def test_the_second_to_last_run_does_not_finish_the_job():
    assert plan(minute(1), max_runs=3, run_count=1).finished is None


def test_a_pass_starts_no_more_ticks_than_runs_left_under_max_runs():
    secondly = Ticks(Every(SECOND), T0)
    last = plan(T0 + 9 * SECOND, ticks=secondly, cursor=T0 + SECOND, overlap="allow", max_runs=5, run_count=3)
    assert [verdict.scheduled_ms for verdict in last.verdicts] == [T0 + SECOND, T0 + 2 * SECOND]
    assert (last.run_count, last.next_ms, last.finished) == (5, None, "max_runs")


@pytest.mark.parametrize("catchup", ["latest", "fire_immediately", "spread"])
def test_caught_up_runs_count_for_max_runs(catchup):
    last = plan(minute(60.5), catchup=catchup, overlap="allow", max_runs=1)
    assert last.verdicts[-1].becomes == "started"
    assert (last.run_count, last.finished) == (1, "max_runs")
    assert told(last)[-1] == ("60 started" if catchup == "latest" else "1 started")


def test_skipped_or_missed_ticks_do_not_count_for_max_runs():
    skipped = plan(minute(1), BUSY, max_runs=1)
    assert told(skipped) == ["1 skipped: overlap"]
    assert (skipped.run_count, skipped.finished) == (0, None)
    missed = plan(minute(60.5), max_runs=1)
    assert told(missed) == ["1-59 (59) missed: downtime", "60 started"]
    assert (missed.run_count, missed.finished) == (1, "max_runs")


@pytest.mark.parametrize("catchup", ["none", "latest", "fire_immediately", "spread"])
@pytest.mark.parametrize("run_count", [3, 5])
@pytest.mark.parametrize("now", [minute(0), minute(1), minute(60.5)])
def test_a_job_that_has_reached_max_runs_gets_no_more_runs(catchup, run_count, now):
    # `max_runs` was lowered below the number of past runs.
    over = plan(now, catchup=catchup, max_runs=3, run_count=run_count)
    assert over == Plan((), None, None, run_count, finished="max_runs")


# --- pauses and clocks ------------------------------------------------------------------------------------


def test_a_tick_missed_while_paused_is_not_caught_up():
    definition = Definition("digest", Timing(Every(MINUTE)), Policy(catchup="fire_immediately"))
    resumed = begin("j1", definition, T0, minute(60.5))
    assert resumed == Cursor(minute(61), minute(61))
    assert told(plan(minute(61), cursor=resumed.next_ms, catchup="fire_immediately")) == ["61 started"]


# --- jitter -----------------------------------------------------------------------------------------------

HOURLY = Ticks(Every(HOUR), T0)
NINE = T0 + 9 * HOUR


def offset(tick: int, ticks: Ticks = HOURLY, job_id: str = "j1", jitter_ms: int = 10 * MINUTE) -> int:
    return fire_ms(job_id, ticks, Policy(jitter_ms=jitter_ms), tick) - tick


def test_without_jitter_a_tick_fires_at_its_scheduled_time():
    assert offset(NINE, jitter_ms=0) == 0


def test_the_jitter_offset_is_derived_from_the_key_of_the_tick():
    key = hashlib.sha256(f"j1:{NINE // 1000}".encode()).hexdigest()
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    assert offset(NINE) == number % 1_200_001 - 600_000
    assert offset(NINE) == 172330, "a replica of another version agrees"
    assert offset(NINE) == offset(NINE, ticks=Ticks(Every(HOUR), T0)), "and one that has just been started"


def test_each_tick_and_each_job_has_its_own_offset():
    assert len({offset(tick) for tick in HOURLY.upcoming(T0, 100)}) > 95
    assert len({offset(NINE, job_id=f"j{number}") for number in range(100)}) > 95


def test_offsets_are_uniformly_distributed_around_the_tick():
    offsets = [offset(NINE, job_id=f"j{number}") for number in range(3_000)]
    assert all(-10 * MINUTE <= one <= 10 * MINUTE for one in offsets)
    drawn = Counter((one + 10 * MINUTE) * 12 // (20 * MINUTE + 1) for one in offsets)
    assert set(drawn) == set(range(12))
    chi_square = sum((count - 250) ** 2 / 250 for count in drawn.values())
    assert chi_square < 31.3, "eleven degrees of freedom: one draw in a thousand is further off"


def test_jitter_changes_the_fire_time_but_not_the_scheduled_time():
    fire = NINE + offset(NINE)
    early = plan(fire - 1, ticks=HOURLY, cursor=NINE, jitter_ms=10 * MINUTE)
    assert early == Plan((), NINE, fire, 0)
    due = plan(fire, ticks=HOURLY, cursor=NINE, jitter_ms=10 * MINUTE)
    (verdict,) = due.verdicts
    assert (verdict.scheduled_ms, verdict.fire_ms, verdict.becomes) == (NINE, fire, "started")
    assert due.next_ms == NINE + HOUR
    assert due.wake_ms == NINE + HOUR + offset(NINE + HOUR)


UNEVEN = {
    "an interval": Ticks(Every(MINUTE), T0),
    "an interval that ends": Ticks(Every(MINUTE), T0, end_ms=minute(100)),
    "an interval that starts": Ticks(Every(MINUTE), T0, start_ms=T0),
    "the smallest interval": Ticks(Every(SECOND), T0),
    "two in the morning": Ticks(CronSchedule("0,1 9 * * *", "UTC"), 0),
    "an hour of minutes": Ticks(CronSchedule("* 9 * * *", "UTC"), 0),
    "days between": Ticks(Every(7 * MINUTE), T0, exclude=parse_exclude(["2027-03-01/2027-03-04"])),
}


@pytest.mark.parametrize("ticks", UNEVEN.values(), ids=UNEVEN.keys())
@pytest.mark.parametrize("jitter_ms", [1, 400, 20_000, 5 * MINUTE, 3 * DAY])
def test_jittered_ticks_fire_in_order_and_never_past_a_neighbour(ticks, jitter_ms):
    for job_id in ("j1", "j2", "j3"):
        upcoming = ticks.upcoming(T0 - 1, 102)
        fires = [tick + offset(tick, ticks, job_id, jitter_ms) for tick in upcoming]
        assert fires == sorted(set(fires))
        for index, fire in enumerate(fires):
            assert abs(fire - upcoming[index]) <= jitter_ms
            assert index == 0 or upcoming[index - 1] < fire
            assert index + 1 == len(upcoming) or fire < upcoming[index + 1]


def test_jitter_does_not_move_two_ticks_so_close_that_a_short_job_is_skipped():
    # Five seconds of work at 09:00 and at 09:01; ten minutes of jitter could make them overlap.
    ticks = UNEVEN["two in the morning"]
    for first in ticks.upcoming(T0, 200)[::2]:
        due = plan(first + offset(first, ticks), ticks=ticks, cursor=first, jitter_ms=10 * MINUTE)
        assert [verdict.becomes for verdict in due.verdicts] == ["started"]


def test_jitter_applies_to_a_one_time_job():
    ticks = Ticks(At(minute(7)), T0)
    offsets = {offset(minute(7), ticks, f"j{number}", 3 * DAY) for number in range(200)}
    assert min(offsets) < -2 * DAY
    assert max(offsets) > 2 * DAY


def test_the_last_missed_tick_is_found_with_jitter():
    # On whichever side of the edge jitter puts a tick, the row ends with the last tick that is too late.
    for job_id in (f"j{number}" for number in range(30)):
        policy = Policy(jitter_ms=25_000, overlap="allow")
        now = minute(30.2)
        verdicts = decide(JobState(job_id, MINUTELY, policy, minute(1)), IDLE, now).verdicts
        late = [
            tick
            for tick in MINUTELY.upcoming(T0, 40)
            if max(tick, fire_ms(job_id, MINUTELY, policy, tick)) < now - 60_000
        ]
        assert (verdicts[0].until_ms, verdicts[0].covers) == (late[-1], len(late))
        assert [verdict.scheduled_ms for verdict in verdicts[1:]] == [
            tick for tick in MINUTELY.upcoming(late[-1], 5) if fire_ms(job_id, MINUTELY, policy, tick) <= now
        ]


# --- the first tick of a job ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "first"),
    [
        (Every(MINUTE), minute(1)),
        (CronSchedule("*/5 * * * *", "UTC"), minute(5)),
        (At(minute(7)), minute(7)),
        (At(T0), None),
        (At(T0 - 1), None),
    ],
)
def test_a_job_begins_with_the_first_tick_after_now(schedule: Schedule, first: int | None):
    place = begin("j1", Definition("digest", Timing(schedule)), T0, T0)
    assert place == Cursor(first, first)


def test_the_wake_time_of_a_new_job_is_the_fire_time_of_its_first_tick():
    definition = Definition("digest", Timing(Every(HOUR)), Policy(jitter_ms=10 * MINUTE))
    place = begin("j1", definition, T0, NINE - 1)
    assert place == Cursor(NINE, NINE + offset(NINE))


def job(timing: Timing | None) -> JobRecord:
    return JobRecord(
        id="j1",
        workspace="default",
        agent="default",
        definition=Definition("digest", timing, Policy(overlap="queue")),
        enabled=True,
        anchor_ms=T0,
        next_ms=minute(4),
        wake_ms=minute(4),
        created_ms=T0 - DAY,
        updated_ms=T0,
        run_count=3,
    )


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (0.99, None),
        (1, "1-1 (1) missed: paused"),
        (1.99, "1-1 (1) missed: paused"),
        (4, "1-4 (4) missed: paused"),
    ],
)
def test_overdue_covers_the_ticks_that_are_due_and_no_others(now, said):
    verdict = overdue(JobState("j1", MINUTELY, Policy(), minute(1)), minute(now), "paused")
    assert (verdict and _tell(verdict)) == said


def test_overdue_uses_the_fire_times_of_the_ticks():
    policy = Policy(jitter_ms=20 * SECOND)
    job = JobState("j1", MINUTELY, policy, minute(1))
    for number in range(1, 20):
        for now in (fire_ms("j1", MINUTELY, policy, minute(number)), minute(number)):
            due = [tick for tick in map(minute, range(1, 30)) if fire_ms("j1", MINUTELY, policy, tick) <= now]
            verdict = overdue(job, now, "edited")
            assert (verdict and (verdict.covers, verdict.until_ms)) == ((len(due), due[-1]) if due else None)


def test_overdue_is_none_for_a_job_without_due_ticks():
    assert overdue(JobState("j1", MINUTELY, Policy(), None), minute(5), "paused") is None
    once = JobState("j1", Ticks(At(minute(3)), T0), Policy(), minute(3))
    assert overdue(once, minute(2), "edited") is None
    missed = overdue(once, minute(9), "edited")
    assert missed is not None
    assert _tell(missed) == "3-3 (1) missed: edited"


def test_job_state_has_the_fields_that_planning_needs():
    assert job_state(job(Timing(Every(MINUTE)))) == JobState(
        "j1", MINUTELY, Policy(overlap="queue"), minute(4), 3
    )


def test_a_job_without_a_schedule_is_never_planned():
    assert job_state(job(None)) is None
    assert begin("j1", Definition("digest", None), T0, T0) == Cursor(None, None)
