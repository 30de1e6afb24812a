"""The rules of evolution, each on a month with a known right answer and on months where it stays silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.run_months import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Recorded,
    failing,
    overlapping,
    sharing_slots,
    summarize,
    timing_out,
    varying,
)
from wakeful.document import Defaults, read_definition
from wakeful.evolution.rules import NO_RUNS, AnalyzedJob, Proposal, is_recurring, propose
from wakeful.evolution.suggestion import FIGURE, RULES, describe
from wakeful.values.json_value import Json

HALF_MINUTE = 30 * SECOND
Month = Callable[[], list[Recorded]]


def job(schedule: object = "every 1m", timeout_ms: int | None = 10 * MINUTE, **fields: Json) -> AnalyzedJob:
    """Return a job with this schedule, and the timeout of its target unless it sets one."""
    document = {"name": "work", "schedule": schedule, "target": {"kind": "echo"}, **fields}
    definition = read_definition(document, now_ms=START, defaults=Defaults())
    return AnalyzedJob(definition, definition.policy.timeout_ms or timeout_ms)


def proposals(found: AnalyzedJob, month: list[Recorded], name: str = "work") -> dict[str, Proposal]:
    return {each.rule: each for each in propose(found, summarize(month, name))}


# --- widen_interval -------------------------------------------------------------------------------------


def test_an_interval_that_each_run_exceeds_is_widened_to_the_next_round_one() -> None:
    # A run takes about 150 s, so 2 of 3 ticks overlap. 1.2 times the longest is below 4 minutes.
    month = overlapping("work", MINUTE, varying(150 * SECOND, 0.1, seed=1))
    found = proposals(job("every 1m"), month)["widen_interval"]
    assert found.change == {"schedule": {"kind": "every", "everyMs": 4 * MINUTE}}
    assert found.before == {"schedule": {"kind": "every", "everyMs": MINUTE}}
    assert found.figures["overlapShare"] == pytest.approx(2 / 3, abs=0.01)
    assert found.figures["newIntervalMs"] == 4 * MINUTE
    # With that interval, the same runs do not overlap.
    wider = overlapping("work", 4 * MINUTE, varying(150 * SECOND, 0.1, seed=1))
    assert summarize(wider, "work").overlapped == 0


@settings(max_examples=15, deadline=None)
@given(
    interval=st.sampled_from([MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE]),
    factor=st.floats(1.1, 6.0),
    seed=st.integers(0, 1_000),
)
def test_the_suggested_interval_ends_the_overlaps_of_the_same_runs(
    interval: int, factor: float, seed: int
) -> None:
    typical = round(interval * factor)
    until = START + 4 * DAY
    month = overlapping("work", interval, varying(typical, 0.05, seed), until=until)
    found = proposals(job({"kind": "every", "everyMs": interval}), month)["widen_interval"]
    schedule = found.change["schedule"]
    assert isinstance(schedule, dict)
    every = schedule["everyMs"]
    assert isinstance(every, int)
    wider = overlapping("work", every, varying(typical, 0.05, seed), until=until)
    assert summarize(wider, "work").overlapped == 0
    assert every <= 4 * typical, "and it is not much longer than needed"


@pytest.mark.parametrize(
    ("expr", "duration", "wider"),
    [
        ("* * * * *", 130 * SECOND, "*/3 * * * *"),
        ("*/10 * * * *", 14 * MINUTE, "*/20 * * * *"),
        ("*/30 * * * *", 50 * MINUTE, "0 * * * *"),
        ("0 * * * *", 95 * MINUTE, "0 */2 * * *"),
        ("0 */12 * * *", 15 * HOUR, "0 0 * * *"),
    ],
)
def test_a_cron_expression_with_an_even_step_is_widened_to_another_one(
    expr: str, duration: int, wider: str
) -> None:
    steps = {"* * * * *": MINUTE, "*/10 * * * *": 10 * MINUTE, "*/30 * * * *": 30 * MINUTE}
    steps |= {"0 * * * *": HOUR, "0 */12 * * *": 12 * HOUR}
    month = overlapping("work", steps[expr], lambda _: duration)
    zoned = {"kind": "cron", "expr": expr, "tz": "Europe/Berlin"}
    found = proposals(job(zoned), month)["widen_interval"]
    assert found.change == {"schedule": {**zoned, "expr": wider}}
    assert found.before == {"schedule": zoned}


def test_runs_that_are_always_replaced_get_twice_the_interval() -> None:
    month = overlapping("work", MINUTE, lambda _: HOUR, overlap="replace")[:-1]
    found = proposals(job("every 1m", overlapPolicy="replace"), month)["widen_interval"]
    assert found.change == {"schedule": {"kind": "every", "everyMs": 2 * MINUTE}}


@pytest.mark.parametrize(
    "month",
    [
        # five seconds a minute never overlap
        lambda: overlapping("work", MINUTE, varying(5 * SECOND, 0.5, seed=2)),
        # one hung day in a month: 3.6 % of the ticks
        lambda: overlapping("work", MINUTE, lambda n: DAY if n == 9_000 else 20 * SECOND),
        # every tenth run is slow
        lambda: overlapping("work", MINUTE, lambda n: 100 * SECOND if n % 10 == 0 else 10 * SECOND),
        # always, but only for the last hours: the job is too new
        lambda: overlapping("work", MINUTE, lambda _: 3 * MINUTE, until=START + 8 * HOUR),
    ],
    ids=["short", "one-hung-day", "every-tenth", "too-new"],
)
def test_the_interval_stays_if_runs_do_not_always_overlap(month: Month) -> None:
    assert "widen_interval" not in proposals(job("every 1m"), month())


def test_a_fixed_time_is_not_widened() -> None:
    month = overlapping("work", DAY, lambda _: 30 * HOUR)
    assert "widen_interval" not in proposals(job("0 9 * * *"), month)


def test_an_interval_is_not_widened_beyond_a_week() -> None:
    month = overlapping("work", 12 * HOUR, lambda _: 7 * DAY)
    assert "widen_interval" not in proposals(job("every 12h"), month)


# --- raise_timeout --------------------------------------------------------------------------------------


def test_a_timeout_that_is_always_hit_is_doubled() -> None:
    month = timing_out("work", HOUR, HALF_MINUTE, varying(50 * SECOND, 0.1, seed=3), attempts=3)
    found = proposals(job("every 1h", timeout="30s"), month)["raise_timeout"]
    assert found.change == {"timeoutMs": MINUTE}
    assert found.before == {"timeoutMs": HALF_MINUTE}
    assert found.figures["timedOut"] == found.figures["runs"] == 28 * 24
    assert found.figures["lostMsPerRun"] == HALF_MINUTE
    # With that timeout, the same runs succeed.
    assert {run.state for run in timing_out("work", HOUR, MINUTE, varying(50 * SECOND, 0.1, seed=3))} == {
        "succeeded"
    }


def test_the_timeout_of_the_target_is_raised_by_setting_one_on_the_job() -> None:
    month = timing_out("work", HOUR, HALF_MINUTE, lambda _: 45 * SECOND)
    found = proposals(job("every 1h", timeout_ms=HALF_MINUTE), month)["raise_timeout"]
    assert (found.change, found.before) == ({"timeoutMs": MINUTE}, {"timeoutMs": None})


def test_a_few_successes_do_not_hide_a_timeout_that_is_nearly_always_hit() -> None:
    month = timing_out("work", HOUR, HALF_MINUTE, lambda n: 5 * SECOND if n % 10 == 0 else MINUTE)
    assert "raise_timeout" in proposals(job("every 1h", timeout="30s"), month)


@pytest.mark.parametrize(
    "month",
    [
        lambda: timing_out("work", HOUR, HALF_MINUTE, varying(10 * SECOND, 0.5, seed=4)),
        lambda: timing_out("work", HOUR, HALF_MINUTE, lambda n: MINUTE if n % 3 == 0 else SECOND),
        # two bad days of a month
        lambda: timing_out("work", HOUR, HALF_MINUTE, lambda n: MINUTE if n < 48 else SECOND),
        lambda: timing_out("work", HOUR, HALF_MINUTE, lambda _: MINUTE)[:9],
        lambda: failing("work", HOUR, lambda _: True),
    ],
    ids=["never", "every-third", "two-days", "nine-runs", "other-failures"],
)
def test_the_timeout_stays_if_it_is_not_always_hit(month: Month) -> None:
    assert "raise_timeout" not in proposals(job("every 1h", timeout="30s"), month())


@pytest.mark.parametrize("timeout_ms", [None, DAY])
def test_a_job_without_a_timeout_or_with_the_longest_one_keeps_it(timeout_ms: int | None) -> None:
    month = timing_out("work", HOUR, HALF_MINUTE, lambda _: MINUTE)
    assert "raise_timeout" not in proposals(job("every 1h", timeout_ms=timeout_ms), month)


# --- pause_failing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("interval", "failed"), [(DAY, 28), (6 * HOUR, 112), (5 * MINUTE, 8_064)])
def test_a_job_that_always_fails_is_paused(interval: int, failed: int) -> None:
    month = failing("work", interval, lambda _: True)
    found = proposals(job({"kind": "every", "everyMs": interval}), month)["pause_failing"]
    assert (found.change, found.before) == ({"enabled": False}, {"enabled": True})
    assert found.figures["failed"] == failed
    assert found.figures["failedPerDay"] == pytest.approx(failed / 28, rel=0.05)


@pytest.mark.parametrize(
    "month",
    [
        lambda: failing("work", HOUR, lambda _: False),
        lambda: failing("work", HOUR, lambda n: n != 400),
        # everything failed for the two days that the job exists
        lambda: failing("work", HOUR, lambda _: True, until=START + 2 * DAY),
        # four weekly runs
        lambda: failing("work", 7 * DAY, lambda _: True),
    ],
    ids=["never", "one-success", "two-days", "four-runs"],
)
def test_a_job_that_does_not_always_fail_goes_on(month: Month) -> None:
    assert "pause_failing" not in proposals(job("every 1h"), month())


def test_a_job_that_fails_at_its_timeout_gets_a_longer_one_instead_of_a_pause() -> None:
    month = timing_out("work", HOUR, HALF_MINUTE, lambda _: MINUTE)
    assert set(proposals(job("every 1h", timeout="30s"), month)) == {"raise_timeout"}
    assert set(proposals(job("every 1h", timeout="1d"), month)) == {"pause_failing"}


# --- stagger_peak ---------------------------------------------------------------------------------------


def crowd(count: int, offset: int = 9 * HOUR, every: int = DAY) -> list[tuple[str, int, int]]:
    return [("work", offset, every), *((f"other-{n}", offset, every) for n in range(count - 1))]


def test_a_job_that_starts_late_at_a_peak_gets_a_jitter() -> None:
    # 20 jobs at nine o'clock wait for two slots, 20 s each: "work" is the last, and starts 180 s late.
    month = sharing_slots(crowd(20), slots=2, duration=20 * SECOND)
    found = proposals(job("0 9 * * *"), month)["stagger_peak"]
    assert found.change == {"jitterMs": 6 * MINUTE}
    assert found.before == {"jitterMs": 0}
    assert found.figures["peakJobs"] == 20
    assert found.figures["peakTicks"] == 28
    assert found.figures["startDelayMs"] == found.figures["peakDelayMs"] == 180 * SECOND


@pytest.mark.parametrize(
    "month",
    [
        # enough slots for all
        lambda: sharing_slots(crowd(20), slots=20, duration=20 * SECOND),
        # late, but three jobs are no peak
        lambda: sharing_slots(crowd(3), slots=1, duration=MINUTE),
        # the others fire an hour later
        lambda: sharing_slots([("work", 8 * HOUR, DAY), *crowd(20)[1:]], slots=2, duration=20 * SECOND),
        # one tick a day of 24 is in a peak
        lambda: sharing_slots([("work", 0, HOUR), *crowd(20)[1:]], slots=2, duration=20 * SECOND),
    ],
    ids=["slots", "three-jobs", "other-hour", "one-of-24"],
)
def test_a_job_that_is_not_delayed_by_a_peak_keeps_its_time(month: Month) -> None:
    assert "stagger_peak" not in proposals(job("0 9 * * *"), month())


def test_a_job_that_is_as_late_at_other_times_is_not_staggered() -> None:
    month = sharing_slots(crowd(20), slots=2, duration=20 * SECOND)
    other = [
        Recorded("work", at, at, "succeeded", started=at + 170 * SECOND, finished=at + 200 * SECOND)
        for at in range(START + 15 * HOUR, START + 28 * DAY, DAY)
    ]
    assert "stagger_peak" not in proposals(job("0 9,15 * * *"), [*month, *other])


def test_a_jitter_that_is_large_enough_a_queue_and_executors_are_left_alone() -> None:
    month = sharing_slots(crowd(20), slots=2, duration=20 * SECOND)
    assert "stagger_peak" not in proposals(job("0 9 * * *", jitter="10m"), month)
    assert "stagger_peak" not in proposals(job("0 9 * * *", overlapPolicy="queue"), month)
    assert "stagger_peak" not in proposals(job("0 9 * * *", target={"kind": "pull"}), month)


def test_a_jitter_is_never_more_than_a_quarter_of_the_period() -> None:
    until = START + 2 * DAY
    month = sharing_slots(crowd(20, 0, 10 * MINUTE), slots=2, duration=20 * SECOND, until=until)
    assert proposals(job("*/10 * * * *"), month)["stagger_peak"].change == {"jitterMs": 2 * MINUTE}
    month = sharing_slots(crowd(12, 0, MINUTE), slots=2, duration=9 * SECOND, until=until)
    assert "stagger_peak" not in proposals(job("* * * * *"), month)


# --- all ------------------------------------------------------------------------------------------------


def test_a_job_without_runs_gets_no_suggestion() -> None:
    assert propose(job(), NO_RUNS) == []


def test_a_healthy_month_gets_no_suggestion() -> None:
    month = overlapping("work", 5 * MINUTE, varying(40 * SECOND, 0.9, seed=5))
    assert proposals(job("every 5m"), month) == {}


def test_one_time_jobs_are_not_analyzed() -> None:
    assert not is_recurring(job({"kind": "at", "atMs": START + DAY}).definition)
    assert is_recurring(job("every 5m").definition)


def test_every_rule_has_its_figure_and_a_sentence() -> None:
    months = [
        (job("every 1m"), overlapping("work", MINUTE, lambda _: 150 * SECOND)),
        (job("every 1h", timeout="30s"), timing_out("work", HOUR, HALF_MINUTE, lambda _: MINUTE)),
        (job("every 1h"), failing("work", HOUR, lambda _: True)),
        (job("0 9 * * *"), sharing_slots(crowd(20), slots=2, duration=20 * SECOND)),
    ]
    texts = {}
    for each, month in months:
        for rule, found in proposals(each, month).items():
            assert FIGURE[found.rule] in found.figures
            texts[rule] = describe(found.rule, found.figures, found.change)
    assert set(texts) == set(RULES)
    assert texts == {
        "widen_interval": "26880 of 40320 ticks overlapped with an earlier run; an interval of 3 minutes "
        "instead of 1 minute leaves time for each run.",
        "raise_timeout": "672 of 672 runs ended at the timeout of 30 seconds; allow 1 minute.",
        "pause_failing": "All 672 runs of the last 28 days failed; pause the job.",
        "stagger_peak": "It fires together with 19 other jobs, and starts 3 minutes late on average; a "
        "jitter of 6 minutes spreads its starts.",
    }
