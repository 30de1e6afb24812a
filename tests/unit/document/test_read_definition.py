"""Job documents that are valid: the definitions that they become."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.job_documents import (
    DAILY,
    NINE_IN_BERLIN,
    WEBHOOK,
    WORKFLOW,
    error_of,
    ms,
    patched,
    read,
)
from wakeful.document import (
    Defaults,
    read_definition,
)
from wakeful.errors import InvalidArgument
from wakeful.job.job import Chain, Definition, Timing, Work
from wakeful.job.policy import Backoff, Policy
from wakeful.schedule.calendars import parse_exclude
from wakeful.schedule.schedules import At, CronSchedule, Every
from wakeful.values.duration import DAY, HOUR, MINUTE, SECOND


def test_a_name_and_a_schedule_make_a_job():
    assert read({"name": "digest", "schedule": "0 7 * * *"}) == Definition(
        "digest", Timing(CronSchedule("0 7 * * *", "UTC"))
    )


def test_the_smallest_webhook_job_needs_no_nesting():
    document = {
        "name": "daily-digest",
        "cron": "0 7 * * *",
        "webhookUrl": "https://a.example/hook",
        "payload": {"to": ["me"]},
        "maxAttempts": 5,
    }
    assert read(document) == Definition(
        "daily-digest", Timing(CronSchedule("0 7 * * *", "UTC")), work=Work(WEBHOOK, {"to": ["me"]})
    )


def test_a_message_has_its_delivery_fields():
    document = {
        "name": "morning-briefing",
        "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Asia/Ho_Chi_Minh"},
        "message": "Give me a brief summary of today's news.",
        "deliver": True,
        "channel": "telegram",
        "to": "123456789",
        "agentId": "3f2a1b4c-0000-0000-0000-000000000000",
        "enabled": False,
    }
    job = read(document)
    assert job.timing == Timing(CronSchedule("0 7 * * *", "Asia/Ho_Chi_Minh"))
    assert job.work == Work(
        message="Give me a brief summary of today's news.", deliver=True, channel="telegram", to="123456789"
    )


def test_a_workflow_job_says_which_workflow_and_for_whom():
    document = {
        "name": "invoices",
        "cron": "0 9 * * *",
        "tz": "America/New_York",
        "workflow_id": "invoices",
        "version": 3,
        "user_id": "u-1",
        "jitter_ms": 500,
        "overlap_policy": "queue",
        "catchup_policy": "spread",
        "start_at": "2027-01-01T00:00",
        "end_at": "2028-01-01T00:00",
    }
    assert read(document) == Definition(
        "invoices",
        Timing(
            CronSchedule("0 9 * * *", "America/New_York"),
            ms("2027-01-01T00:00-05:00"),
            ms("2028-01-01T00:00-05:00"),
        ),
        Policy(jitter_ms=500, overlap="queue", catchup="spread"),
        Work({**WORKFLOW, "userId": "u-1"}),
    )


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({"overlapPolicy": "queue", "maxQueued": 10_000}, Policy(overlap="queue", max_queued=10_000)),
        ({"overlap_policy": "queue_one"}, Policy(overlap="queue_one")),
        ({"catchupPolicy": "fire_immediately", "catchupWindow": "12h"},
         Policy(catchup="fire_immediately", catchup_window_ms=12 * HOUR)),
        ({"catchup_window_ms": 0}, Policy(catchup_window_ms=0)),
        ({"misfireGrace": "5m"}, Policy(misfire_grace_ms=5 * MINUTE)),
        ({"jitterMs": 5000}, Policy(jitter_ms=5000)),
        ({"jitter": "24h"}, Policy(jitter_ms=DAY)),
        ({"jitter": "0s"}, Policy()),
        ({"maxAttempts": 1}, Policy(max_attempts=1)),
        ({"max_attempts": 100}, Policy(max_attempts=100)),
        ({"maxAttempts": 3.0}, Policy(max_attempts=3)),
        ({"backoff": {"baseMs": 100, "maxMs": 200}}, Policy(backoff=Backoff(100, 200))),
        ({"backoff": {"base": "2s", "max": "30s"}}, Policy(backoff=Backoff(2000, 30000))),
        ({"backoff": {"base_ms": 100, "max": "1m"}}, Policy(backoff=Backoff(100, MINUTE))),
        ({"backoff": {"base": "1m"}}, Policy(backoff=Backoff(MINUTE, MINUTE))),
        ({"backoff": {"max": "1s"}}, Policy(backoff=Backoff(SECOND, SECOND))),
        ({"backoff": {}}, Policy()),
        ({"timeoutMs": 3e4}, Policy(timeout_ms=30_000)),
        ({"timeout": "30s"}, Policy(timeout_ms=30_000)),
        ({"timeout": timedelta(minutes=1)}, Policy(timeout_ms=MINUTE)),
        ({"timeout": "30s", "timeoutMs": None}, Policy(timeout_ms=30_000)),
        ({"timeoutMs": None, "maxRuns": None, "overlapPolicy": None, "deleteAfterRun": None}, Policy()),
        ({"maxRuns": 1}, Policy(max_runs=1)),
        ({"onLost": "fail"}, Policy(on_lost="fail")),
        ({"disableAfter": 3}, Policy(disable_after=3)),
        ({"deleteAfterRun": True}, Policy(delete_after_run=True)),
        ({"claimTimeout": "2h"}, Policy(claim_timeout_ms=2 * HOUR)),
        ({"schedule": "in 20m"}, Policy(delete_after_run=True)),
        ({"schedule": "in 20m", "deleteAfterRun": False}, Policy()),
    ],
)  # fmt: skip
def test_policies_are_read_in_either_spelling_and_either_unit(fields, policy):
    assert read(**fields).policy == policy


@pytest.mark.parametrize(
    ("fields", "timing"),
    [
        ({"schedule": "every 15m"}, Timing(Every(15 * MINUTE))),
        ({"schedule": "every 15m", "tz": "UTC"}, Timing(Every(15 * MINUTE))),
        ({"schedule": "every 15m", "tz": "Asia/Tokyo"}, Timing(Every(15 * MINUTE, "Asia/Tokyo"))),
        ({"schedule": {"kind": "every", "every_ms": 60_000}}, Timing(Every(MINUTE))),
        ({"schedule": Every(MINUTE)}, Timing(Every(MINUTE))),
        ({"schedule": timedelta(minutes=1)}, Timing(Every(MINUTE))),
        ({"schedule": "2027-03-01T09:00", "tz": "Europe/Berlin"},
         Timing(At(NINE_IN_BERLIN, "Europe/Berlin"))),
        ({"schedule": datetime(2027, 3, 1, 8, tzinfo=UTC)}, Timing(At(NINE_IN_BERLIN))),
        ({"schedule": "0 9 * * MON-FRI", "tz": "Europe/Berlin"},
         Timing(CronSchedule("0 9 * * MON-FRI", "Europe/Berlin"))),
        ({"schedule": {"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Tokyo"}, "tz": "Asia/Tokyo"},
         Timing(CronSchedule("0 9 * * *", "Asia/Tokyo"))),
        ({"startAt": "2027-03-01T09:00", "tz": "Europe/Berlin"},
         Timing(CronSchedule("0 0 * * *", "Europe/Berlin"), NINE_IN_BERLIN)),
        ({"startAt": "2027-03-01T09:00+01:00", "endAt": NINE_IN_BERLIN + DAY},
         Timing(DAILY, NINE_IN_BERLIN, NINE_IN_BERLIN + DAY)),
        ({"start_at": datetime(2027, 3, 1, 8, tzinfo=UTC)}, Timing(DAILY, NINE_IN_BERLIN)),
        ({"startAt": 0}, Timing(DAILY, 0)),
        ({"dstGap": "skip", "dst_overlap": "both"}, Timing(DAILY, dst_gap="skip", dst_overlap="both")),
        ({"exclude": ["2026-12-24/2027-01-02", "holidays:de-by"]},
         Timing(DAILY, exclude=parse_exclude(["2026-12-24/2027-01-02", "holidays:DE-BY"]))),
        ({"exclude": "holidays:DE"}, Timing(DAILY, exclude=parse_exclude(["holidays:DE"]))),
        ({"exclude": []}, Timing(DAILY)),
    ],
)  # fmt: skip
def test_timings_are_read(fields, timing):
    assert read(**fields).timing == timing


@pytest.mark.parametrize(
    ("fields", "work"),
    [
        ({"payload": {"a": (1, 2.5, None, True, "ö")}}, Work(payload={"a": [1, 2.5, None, True, "ö"]})),
        ({"payload": []}, Work(payload=[])),
        ({"payload": 0}, Work(payload=0)),
        ({"payload": "x" * 65534}, Work(payload="x" * 65534)),
        ({"message": " hello "}, Work(message=" hello ")),
        ({"stateless": True, "wakeHeartbeat": True}, Work(stateless=True, wake_heartbeat=True)),
        ({"lane": "subagent"}, Work(lane="subagent")),
        ({"precheck": {"kind": "function", "name": "any", "timeout": "5s"}},
         Work(precheck={"kind": "function", "name": "any", "timeoutMs": 5000})),
        ({"precheck": {"kind": "webhook", "url": "https://a.example", "timeout_ms": 5e3}},
         Work(precheck={"kind": "webhook", "url": "https://a.example", "timeoutMs": 5000})),
        ({"precheck": {"kind": "command", "argv": ("test", "-s", "/in"), "env": {"a_b": "c"}, "cwd": "/"}},
         Work(precheck={"kind": "command", "argv": ["test", "-s", "/in"], "env": {"a_b": "c"}, "cwd": "/"})),
        ({"budget": {"tokens_per_day": 2e5, "costPerDay": 0.5}},
         Work(budget={"tokensPerDay": 200000, "costPerDay": 0.5})),
        ({"target": {"kind": "pull"}}, Work({"kind": "pull"})),
        ({"target": {"kind": "agent"}}, Work({"kind": "agent"})),
        (
            {"target": {"kind": "agent", "instance": "eu", "signal": "report.generate"}},
            Work({"kind": "agent", "instance": "eu", "signal": "report.generate"}),
        ),
        ({"target": {"kind": "function", "name": "standup"}}, Work({"kind": "function", "name": "standup"})),
        ({"target": {**WEBHOOK, "completion": "callback"}}, Work({**WEBHOOK, "completion": "callback"})),
        ({"target": WEBHOOK, "webhookUrl": WEBHOOK["url"]}, Work(WEBHOOK)),
        ({"webhook_url": "http://[::1]:8080/x?y=1"}, Work({"kind": "webhook", "url": "http://[::1]:8080/x?y=1"})),
        ({"target": None, "message": None}, Work()),
        ({"target": WORKFLOW}, Work(WORKFLOW)),
        ({"target": {"kind": "workflow", "workflow_id": "invoices", "version": 3}}, Work(WORKFLOW)),
        ({"target": WORKFLOW, "workflowId": "invoices"}, Work(WORKFLOW)),
        ({"target": {"kind": "workflow"}, "workflowId": "invoices", "version": 3}, Work(WORKFLOW)),
        ({"workflowId": "invoices", "version": 3, "target": {"kind": "pull"}},
         Work({**WORKFLOW, "to": {"kind": "pull"}})),
        ({"workflowId": "invoices", "version": 3, "webhookUrl": WEBHOOK["url"]},
         Work({**WORKFLOW, "to": WEBHOOK})),
        ({"target": {**WORKFLOW, "to": WEBHOOK}}, Work({**WORKFLOW, "to": WEBHOOK})),
    ],
)  # fmt: skip
def test_work_is_read_from_its_many_spellings(fields, work):
    assert read(**fields).work == work


def test_active_hours_are_those_of_the_jobs_own_zone():
    berlin = Defaults(tz="Europe/Berlin")
    for fields, zone_of_hours in [
        ({"schedule": "0 9 * * *", "tz": "Asia/Tokyo"}, "Asia/Tokyo"),
        ({"schedule": "0 9 * * *"}, "Europe/Berlin"),
        ({"schedule": "every 5m"}, "Europe/Berlin"),
        ({"schedule": "every 5m", "tz": "UTC"}, "UTC"),
        ({"after": "extract"}, "Europe/Berlin"),
    ]:
        work = read({"name": "load", **fields, "activeHours": "8-22"}, defaults=berlin).work
        assert (work.active_hours, work.hours_tz) == ("08:00-22:00", zone_of_hours)
    job = read({"name": "load", "schedule": "0 9 * * *", "activeHours": "8-22"}, defaults=berlin)
    moved = patched(job, tz="Asia/Tokyo").work
    assert (moved.active_hours, moved.hours_tz) == ("08:00-22:00", "Asia/Tokyo")
    assert patched(job, activeHours=None).work == replace(job.work, active_hours=None, hours_tz=None)


def test_a_description_loses_the_tabs_that_indent_it():
    assert read(description="\tCheck\n\t\tthe \tserver\n").description == "Check\nthe \tserver\n"


def test_a_job_that_comes_after_another_needs_no_schedule():
    job = read({"name": "load", "after": "extract"})
    assert (job.timing, job.after) == (None, Chain("extract"))
    assert read({"name": "alarm", "after": {"job": "extract", "on": "failed"}}).after == Chain(
        "extract", "failed"
    )


def test_the_operators_defaults_hold_where_a_document_says_nothing():
    defaults = Defaults(tz="Europe/Berlin", overlap="allow", catchup="latest", jitter_ms=500)
    job = read(defaults=defaults)
    assert job.timing == Timing(CronSchedule("0 0 * * *", "Europe/Berlin"))
    assert job.policy == Policy(overlap="allow", catchup="latest", jitter_ms=500)
    assert read(defaults=defaults, tz="UTC", overlapPolicy="skip", jitter="0s").policy == Policy(
        catchup="latest"
    )


def test_only_zones_that_the_operator_allows_may_be_named():
    defaults = Defaults(tz_allowlist=frozenset({"Europe/Berlin", "Asia/Tokyo"}))
    assert read(defaults=defaults, tz="Asia/Tokyo").timing == Timing(CronSchedule("0 0 * * *", "Asia/Tokyo"))
    said = "tz: 'Asia/Kolkata' is not allowed here; the operator allows Asia/Tokyo, Europe/Berlin"
    assert error_of(defaults=defaults, tz="Asia/Kolkata") == said
    assert (
        error_of(defaults=defaults, schedule={"kind": "every", "every": "1h", "tz": "Asia/Kolkata"}) == said
    )
    assert error_of(defaults=defaults, schedule="every day at 9 Asia/Kolkata") == said
    assert error_of(defaults=defaults, schedule="every 1h", tz="UTC").startswith("tz: 'UTC' is not allowed")


@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata"])
def test_a_zone_that_is_inherited_must_be_allowed_too(tz: str):
    defaults = Defaults(tz=tz, tz_allowlist=frozenset({"Europe/Berlin"}))
    assert error_of(defaults=defaults) == (
        f"tz: '{tz}', the zone of jobs that name none, is not allowed here; name one of these: Europe/Berlin"
    )
    hours = {"name": "job", "after": "other", "activeHours": "08:00-22:00"}
    with pytest.raises(InvalidArgument, match=f"activeHours: '{tz}', the zone of jobs"):
        read_definition(hours, now_ms=0, defaults=defaults)
    assert read(defaults=defaults, tz="Europe/Berlin").timing is not None


def test_an_interval_in_utc_has_no_zone_to_be_allowed():
    defaults = Defaults(tz_allowlist=frozenset({"Europe/Berlin"}))
    assert read(defaults=defaults, schedule="every 1h").timing == Timing(Every(3_600_000))
