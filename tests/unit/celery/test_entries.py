"""The entries of a beat schedule as jobs, and their schedules."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from celery.beat import BeatLazyFunc
from celery.schedules import crontab, schedule, solar
from hypothesis import given
from hypothesis import strategies as st

from wakeful.celery.entries import convert_entries, convert_schedule, crontab_expression, job_names
from wakeful.cron import Cron
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job.job import check_slug
from wakeful.run.planning import IDLE, Becomes, JobState, decide
from wakeful.store.internal_jobs import is_reserved


def _field(low: int, high: int) -> st.SearchStrategy[object]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number,
        st.sets(number, min_size=1, max_size=6),
        st.builds("*/{}".format, st.integers(1, high)),
        st.builds("{}-{}".format, number, number),  # may pass the end: 22-2
        st.lists(number, min_size=1, max_size=5).map(lambda found: ",".join(map(str, found))),
    )


@given(
    minute=_field(0, 59),
    hour=_field(0, 23),
    day=_field(1, 31),
    month=_field(1, 12),
    weekday=_field(0, 6),
    days=st.integers(0, 1500),
    minutes=st.integers(0, 1439),
)
def test_an_expression_fires_when_all_fields_of_the_crontab_match(
    minute: object, hour: object, day: object, month: object, weekday: object, days: int, minutes: int
) -> None:
    entry = crontab(minute, hour, day_of_week=weekday, day_of_month=day, month_of_year=month)
    try:
        expression = crontab_expression(entry)
    except InvalidSchedule:  # both day fields are limited, without the 1st and without Sunday
        assert 1 not in entry.day_of_month
        assert 0 not in entry.day_of_week
        return
    at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=days, minutes=minutes)
    matches = (
        at.minute in entry.minute
        and at.hour in entry.hour
        and at.day in entry.day_of_month
        and at.month in entry.month_of_year
        and at.isoweekday() % 7 in entry.day_of_week
    )
    try:
        cron = Cron(expression)
    except InvalidSchedule:  # such as 31 February: it never fires in Celery either
        assert not matches
        return
    assert (cron.next(at - timedelta(minutes=1)) == at) is matches


@pytest.mark.parametrize(
    ("entry", "expression"),
    [
        (crontab(), "* * * * *"),
        (crontab(minute=0, hour="*/3"), "0 */3 * * *"),
        (crontab(minute=30, hour=7, day_of_week="sunday"), "30 7 * * 0"),
        (
            crontab(minute=0, hour=0, day_of_month="2-30/2"),
            "0 0 2,4,6,8,10,12,14,16,18,20,22,24,26,28,30 * *",
        ),
        (crontab(minute=0, hour=0, day_of_month="8-14", day_of_week="tue,thu"), "0 0 * * TUE#2,THU#2"),
        (crontab(minute=0, hour=0, day_of_month="13", day_of_week="sun,fri"), "0 0 13 * */7,5"),
        (crontab(minute=0, hour=0, day_of_month="*/2", day_of_week="mon"), "0 0 */2 * 1"),
    ],
)
def test_crontabs_are_written_as_short_expressions(entry: crontab, expression: str) -> None:
    assert crontab_expression(entry) == expression


def test_an_interval_counts_from_the_creation_of_the_job() -> None:
    assert convert_schedule(timedelta(hours=6), "UTC") == {
        "schedule": {"kind": "every", "everyMs": 21_600_000}
    }


def test_a_relative_interval_falls_on_full_hours() -> None:
    fields = convert_schedule(schedule(timedelta(hours=6), relative=True), "UTC")
    assert fields["startAt"] == "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (solar.__new__(solar), "celery.schedules.solar has no equivalent"),
        (0.5, "an interval of 0.5 s is too short"),
        (crontab(0, 0, day_of_month=13, day_of_week=5), "must both match in Celery"),
        ("0 7 * * *", "builtins.str has no equivalent"),
    ],
)
def test_what_cannot_be_kept_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        convert_schedule(value, "UTC")


def test_an_entry_becomes_a_job_with_the_policies_of_beat() -> None:
    entry = {
        "task": "shop.report",
        "schedule": crontab(minute=0, hour=7),
        "args": ("me",),
        "kwargs": {"pages": 2},
        "options": {"queue": "reports", "expires": 60, "priority": 3},
    }
    (job,) = convert_entries({"Daily report": entry}, "shop", "Europe/Berlin").values()
    assert job == {
        "name": "daily-report",
        "description": "The entry 'Daily report' of the beat schedule of shop.",
        "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin"},
        "target": {
            "kind": "celery",
            "task": "shop.report",
            "args": ["me"],
            "kwargs": {"pages": 2},
            "queue": "reports",
            "options": {"expires": 60, "priority": 3},
        },
        "overlapPolicy": "allow",
        "catchupPolicy": "latest",
        "misfireGrace": "1s",
        "maxAttempts": 1,
        "timeout": "24h",
        "labels": {"celery-beat": "shop"},
    }
    assert read_definition(job, now_ms=0, defaults=Defaults()).name == "daily-report"


def test_an_entry_can_set_fields_of_its_job() -> None:
    options = {"wakeful": {"overlapPolicy": "skip", "maxAttempts": 3}, "priority": 1}
    (job,) = convert_entries({"a": {"task": "a", "schedule": 60, "options": options}}, "shop", "UTC").values()
    assert (job["overlapPolicy"], job["maxAttempts"]) == ("skip", 3)
    assert job["target"] == {"kind": "celery", "task": "a", "options": {"priority": 1}}


def test_targets_can_name_the_app() -> None:
    (job,) = convert_entries({"a": {"task": "a", "schedule": 60}}, "shop", "UTC", in_target=True).values()
    assert job["target"] == {"kind": "celery", "task": "a", "app": "shop"}


@pytest.mark.parametrize("seconds", [1, 2, 30, 60])
@pytest.mark.parametrize("pause_s", [3, 10, 59, 60, 3_600])
def test_ticks_that_are_overdue_when_beat_starts_are_sent_once(seconds: int, pause_s: int) -> None:
    (job,) = convert_entries({"a": {"task": "a", "schedule": seconds}}, "shop", "UTC").values()
    definition = read_definition(job, now_ms=0, defaults=Defaults())
    assert definition.timing is not None
    ticks = definition.timing.ticks(0)
    state = JobState("j1", ticks, definition.policy, ticks.next(0))
    for now_ms in (1_000 * pause_s + 1, 1_000 * pause_s + 500, 1_000 * pause_s + 999):
        verdicts = decide(state, IDLE, now_ms).verdicts
        sent = [each.scheduled_ms for each in verdicts if each.becomes is Becomes.STARTED]
        overdue = [tick for tick in sent if tick < now_ms - 1_000]
        assert len(overdue) <= 1
        assert len(sent) - len(overdue) == (now_ms % (1_000 * seconds) <= 1_000 and now_ms > 1_000 * seconds)
        assert sent == sorted(sent)
        assert bool(sent) == (now_ms >= 1_000 * seconds)


def test_an_entry_can_set_a_duration_in_milliseconds() -> None:
    options = {"wakeful": {"misfireGraceMs": 5_000, "timeoutMs": 60_000}}
    (job,) = convert_entries({"a": {"task": "a", "schedule": 60, "options": options}}, "shop", "UTC").values()
    policy = read_definition(job, now_ms=0, defaults=Defaults()).policy
    assert (policy.misfire_grace_ms, policy.timeout_ms) == (5_000, 60_000)


def test_dates_and_uuids_among_the_arguments_reach_the_task_as_such() -> None:
    from kombu.utils import json as kombu_json

    given = [datetime(2027, 3, 1, tzinfo=UTC), uuid.UUID(int=7)]
    (job,) = convert_entries({"a": {"task": "a", "schedule": 60, "args": given}}, "shop", "UTC").values()
    target = job["target"]
    assert isinstance(target, dict)
    sent = kombu_json.dumps(target["args"])  # type: ignore[no-untyped-call]
    assert kombu_json.loads(sent) == given  # type: ignore[no-untyped-call]


def test_one_error_names_all_entries_that_cannot_be_scheduled() -> None:
    entries = {
        "fine": {"task": "a", "schedule": 60},
        "sunset": {"task": "a", "schedule": solar.__new__(solar)},
        "lazy": {"task": "a", "schedule": 60, "args": (BeatLazyFunc(datetime.now, UTC),)},
        "untimed": {"task": "a"},
        "nameless": {"schedule": 60},
        "own": {"task": "a", "schedule": 60, "options": {"wakeful": {"target": None}}},
    }
    with pytest.raises(InvalidArgument) as error:
        convert_entries(entries, "shop", "UTC")
    lines = str(error.value).splitlines()
    assert lines[0] == "beat_schedule: 5 entries cannot be scheduled:"
    assert [line.split("'")[1] for line in lines[1:]] == ["sunset", "lazy", "untimed", "nameless", "own"]


def test_every_name_of_an_entry_becomes_a_slug_of_its_own() -> None:
    names = job_names(["tests.add(1, 2)", "tests.add (1,2)", "", "–", "x" * 100, "x" * 101, "Über"])
    assert len(set(names.values())) == len(names)
    for name in names.values():
        check_slug(name, "name")
    assert names["Über"] == "ber"


@pytest.mark.parametrize("name", ["heartbeat", "Wakeful wake", "wakeful-" + "x" * 80])
def test_an_entry_with_a_reserved_name_becomes_a_job_with_another_one(name: str) -> None:
    (job,) = job_names([name]).values()
    assert not is_reserved(job)
    assert check_slug(job, "name") == job
