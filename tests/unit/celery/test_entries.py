"""The entries of a beat schedule as jobs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from celery.beat import BeatLazyFunc
from celery.schedules import crontab, solar

from wakeful.celery.entries import convert_entries, job_names
from wakeful.document import Defaults, read_definition
from wakeful.errors import InvalidArgument
from wakeful.job.job import check_slug
from wakeful.run.planning import IDLE, Becomes, JobState, decide
from wakeful.store.internal_jobs import is_reserved


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
