"""Documents that replace or patch a definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.job_documents import (
    DAILY,
    NINE_IN_BERLIN,
    RICH,
    WEBHOOK,
    WORKFLOW,
    error_of,
    patched,
    read,
)
from wakeful.document import (
    Defaults,
    write_definition,
)
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job.job import Chain, Timing
from wakeful.schedule.calendars import NOTHING, parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every
from wakeful.values.duration import DAY, HOUR, MINUTE

REMINDER = {"name": "reminder", "schedule": {"kind": "at", "at": "2027-03-01T09:00"}, "tz": "Europe/Berlin"}
LATER = NINE_IN_BERLIN + DAY


def test_a_past_time_may_stay_but_not_be_set():
    old = read(REMINDER)
    assert read(REMINDER, now=LATER, old=old) == old
    assert read({**REMINDER, "message": "hi"}, now=LATER, old=old).work.message == "hi"
    assert "is in the past" in error_of(REMINDER, now=LATER)
    assert "is in the past" in error_of({**REMINDER, "schedule": "2027-03-01T09:30"}, now=LATER, old=old)


def test_an_interval_is_the_same_whether_utc_is_said_or_not():
    assert (
        read(schedule="every 5m")
        == read(schedule="every 5m", tz="UTC")
        == read(schedule={"kind": "every", "every": "5m", "tz": "UTC"})
    )


def test_a_patch_changes_what_it_names_and_nothing_else():
    old = read(RICH)
    assert patched(old) == old
    assert patched(old, enabled=False, agent_id="other") == old
    assert patched(old, description="mornings") == replace(old, description="mornings")
    assert patched(old, timeout="1m") == replace(old, policy=replace(old.policy, timeout_ms=MINUTE))
    assert patched(old, max_attempts=3) == replace(old, policy=replace(old.policy, max_attempts=3))
    assert patched(old, payload=[1]) == replace(old, work=replace(old.work, payload=[1]))
    assert patched(old, name="news") == replace(old, name="news")
    assert patched(old, after="extract") == replace(old, after=Chain("extract"))


@pytest.mark.parametrize(
    ("field", "old", "default"),
    [
        ("timeout", read(RICH), lambda job: job.policy.timeout_ms is None),
        ("timeoutMs", read(RICH), lambda job: job.policy.timeout_ms is None),
        ("overlap_policy", read(RICH), lambda job: job.policy.overlap == "allow"),
        ("payload", read(RICH), lambda job: job.work.payload is None),
        ("target", read(RICH), lambda job: job.work.target is None),
        ("webhookUrl", read(RICH), lambda job: job.work.target is None),
        ("exclude", read(RICH), lambda job: job.timing.exclude == NOTHING),
        ("labels", read(RICH), lambda job: job.labels == {}),
        ("description", read(RICH), lambda job: job.description == ""),
        ("tz", read(RICH), lambda job: job.timing.schedule == CronSchedule("0 7 * * *", "Asia/Tokyo")),
    ],
)
def test_a_null_puts_a_field_back_to_its_default(field, old, default):
    assert default(patched(old, defaults=Defaults(tz="Asia/Tokyo", overlap="allow"), **{field: None}))


@pytest.mark.parametrize(
    ("patch", "schedule"),
    [
        ({"schedule": "0 8 * * *"}, CronSchedule("0 8 * * *", "Europe/Berlin")),
        ({"cron": "0 8 * * *"}, CronSchedule("0 8 * * *", "Europe/Berlin")),
        ({"schedule": {"kind": "cron", "expr": "0 8 * * *"}}, CronSchedule("0 8 * * *", "Europe/Berlin")),
        (
            {"schedule": {"kind": "cron", "expr": "0 8 * * *", "tz": "Asia/Tokyo"}},
            CronSchedule("0 8 * * *", "Asia/Tokyo"),
        ),
        ({"scheduleText": "every day at 8 Asia/Tokyo"}, CronSchedule("0 8 * * *", "Asia/Tokyo")),
        ({"schedule": "0 8 * * * Asia/Tokyo"}, CronSchedule("0 8 * * *", "Asia/Tokyo")),
        ({"schedule": "every day at 8"}, CronSchedule("0 8 * * *", "Europe/Berlin")),
        ({"schedule": "0 8 * * *", "tz": "Asia/Tokyo"}, CronSchedule("0 8 * * *", "Asia/Tokyo")),
        ({"tz": "Asia/Tokyo"}, CronSchedule("0 7 * * *", "Asia/Tokyo")),
        ({"schedule": "every 1h"}, Every(HOUR, "Europe/Berlin")),
        ({"schedule": "2027-03-01T09:00"}, At(NINE_IN_BERLIN, "Europe/Berlin")),
        ({"schedule": "0 8 * * *", "tz": None}, CronSchedule("0 8 * * *", "UTC")),
    ],
)
def test_a_patched_schedule_keeps_the_zone_unless_it_brings_one(patch, schedule):
    assert patched(read(RICH), **patch).timing == Timing(schedule, exclude=parse_exclude(["holidays:DE"]))


def test_whether_a_job_is_deleted_follows_the_kind_of_schedule_unless_somebody_chose():
    cron, once = read(), read(schedule="in 20m")
    assert patched(cron, schedule="in 20m").policy.delete_after_run
    assert not patched(once, schedule="@daily").policy.delete_after_run
    assert patched(once, schedule="in 1h").policy.delete_after_run
    kept = read(schedule="in 20m", deleteAfterRun=False)
    assert not patched(kept, schedule="in 1h").policy.delete_after_run
    assert patched(kept, deleteAfterRun=None).policy.delete_after_run
    assert patched(read(deleteAfterRun=True), schedule="@hourly").policy.delete_after_run


def test_a_patch_is_validated_as_a_whole():
    old = read(RICH)
    for patch, said in (
        ({"name": None}, "name: it is missing"),
        ({"schedule": None}, "schedule: it is missing"),
        ({"maxAttempts": 0}, "maxAttempts: 0 is out of range"),
        ({"maxAttempt": 1}, "did you mean maxAttempts?"),
        (
            {"schedule": {"kind": "cron", "expr": "@daily", "tz": "Asia/Tokyo"}, "tz": "UTC"},
            "give one of the two",
        ),
        ({"startAt": "2027-01-01T00:00", "endAt": "2027-01-01T07:00"}, "schedule: it never fires"),
        ({"after": "digest"}, "after: a job cannot come after itself"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            patched(old, **patch)
        assert said in refused.value.message


def test_a_job_may_lose_its_schedule_when_it_comes_after_another():
    job = patched(read(RICH), schedule=None, after="extract")
    assert (job.timing, job.after) == (None, Chain("extract"))
    with pytest.raises(InvalidArgument, match="schedule: it is missing"):
        patched(job, after=None)
    assert patched(job, schedule="@daily", after=None).timing == Timing(DAILY)


def test_a_job_whose_time_is_over_can_still_be_described():
    old = read(REMINDER)
    assert patched(old, now=LATER, description="done") == replace(old, description="done")
    assert patched(old, now=LATER, **write_definition(old)) == old
    with pytest.raises(InvalidSchedule, match="is in the past"):
        patched(old, now=LATER, exclude=["2027-12-24"])
    ended = read(endAt="2027-01-01T00:00")
    assert patched(ended, now=LATER, description="done") == replace(ended, description="done")


@pytest.mark.parametrize(
    ("old", "patch", "target"),
    [
        (WEBHOOK, {"target": {"kind": "pull"}}, {"kind": "pull"}),
        ({**WEBHOOK, "completion": "callback"}, {"webhookUrl": "https://b.example"},
         {"kind": "webhook", "url": "https://b.example", "completion": "callback"}),
        ({"kind": "pull"}, {"webhookUrl": "https://b.example"}, {"kind": "webhook", "url": "https://b.example"}),
        ({"kind": "pull"}, {"webhookUrl": None}, {"kind": "pull"}),
        (WORKFLOW, {"version": 4}, {**WORKFLOW, "version": 4}),
        (WORKFLOW, {"userId": "u"}, {**WORKFLOW, "userId": "u"}),
        ({**WORKFLOW, "userId": "u"}, {"user_id": None}, WORKFLOW),
        ({**WORKFLOW, "to": WEBHOOK}, {"version": 4}, {**WORKFLOW, "version": 4, "to": WEBHOOK}),
        ({**WORKFLOW, "to": WEBHOOK}, {"workflowId": None}, WEBHOOK),
        (WORKFLOW, {"webhookUrl": WEBHOOK["url"]}, {**WORKFLOW, "to": WEBHOOK}),
        (WORKFLOW, {"target": WEBHOOK}, WEBHOOK),
        (WORKFLOW, {"target": None}, None),
        (WEBHOOK, {"workflowId": "invoices", "version": 3}, {**WORKFLOW, "to": WEBHOOK}),
        (None, {"workflowId": "invoices", "version": 3}, WORKFLOW),
    ],
)  # fmt: skip
def test_a_target_is_patched_in_whichever_field_it_is_named(old, patch, target):
    assert patched(read(target=old), **patch).work.target == target


def test_a_workflow_cannot_lose_its_version():
    with pytest.raises(InvalidArgument, match="version: it is missing"):
        patched(read(target=WORKFLOW), version=None)
