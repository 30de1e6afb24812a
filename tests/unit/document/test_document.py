"""Job documents: what is read, what is refused and in which words, patches, and the way out and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.calendars import NOTHING, parse_exclude
from wakeful.document import (
    Defaults,
    patch_definition,
    payload_from_text,
    payload_to_text,
    policy_from_text,
    policy_to_text,
    read_definition,
    timing_from_text,
    timing_to_text,
    work_from_text,
    work_to_text,
    write_definition,
)
from wakeful.duration import DAY, HOUR, MINUTE, SECOND
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.job import Chain, Definition, Json, Timing, Work
from wakeful.policy import Backoff, Policy
from wakeful.schedule import LATEST_MS, At, CronSchedule, Every


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = ms("2026-11-14T12:00:05Z")
NINE_IN_BERLIN = ms("2027-03-01T09:00+01:00")
DAILY = CronSchedule("0 0 * * *", "UTC")
WEBHOOK: dict[str, Json] = {"kind": "webhook", "url": "https://a.example/hook"}
WORKFLOW: dict[str, Json] = {"kind": "workflow", "workflowId": "invoices", "version": 3}


def read(document=None, *, now=NOW, stored=False, old=None, defaults=None, **fields) -> Definition:
    """A job named `job`, daily unless said otherwise."""
    whole = {"name": "job", "schedule": "@daily", **fields} if document is None else document
    return read_definition(whole, now_ms=now, defaults=defaults or Defaults(), stored=stored, old=old)


def refusal(document=None, **fields) -> str:
    with pytest.raises(InvalidArgument) as refused:
        read(document, **fields)
    message = refused.value.message
    assert refused.value.code == "invalid-argument"
    assert len(message) < 5000
    message.encode()
    return message


def patched(old: Definition, now=NOW, defaults=None, **patch) -> Definition:
    return patch_definition(old, patch, now_ms=now, defaults=defaults or Defaults())


# --- what is read -----------------------------------------------------------------------------------------


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


def test_a_message_for_an_agent_is_delivered_where_it_says():
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
    assert refusal(defaults=defaults, tz="Asia/Kolkata") == said
    assert refusal(defaults=defaults, schedule={"kind": "every", "every": "1h", "tz": "Asia/Kolkata"}) == said
    assert refusal(defaults=defaults, schedule="every 1h", tz="UTC").startswith("tz: 'UTC' is not allowed")


@pytest.mark.parametrize("tz", ["UTC", "Asia/Kolkata"])
def test_a_zone_that_is_inherited_must_be_allowed_too(tz: str):
    defaults = Defaults(tz=tz, tz_allowlist=frozenset({"Europe/Berlin"}))
    assert refusal(defaults=defaults) == (
        f"tz: '{tz}', the zone of jobs that name none, is not allowed here; name one of these: Europe/Berlin"
    )
    hours = {"name": "job", "after": "other", "activeHours": "08:00-22:00"}
    with pytest.raises(InvalidArgument, match=f"activeHours: '{tz}', the zone of jobs"):
        read_definition(hours, now_ms=0, defaults=defaults)
    assert read(defaults=defaults, tz="Europe/Berlin").timing is not None


def test_an_interval_in_utc_has_no_zone_to_be_allowed():
    defaults = Defaults(tz_allowlist=frozenset({"Europe/Berlin"}))
    assert read(defaults=defaults, schedule="every 1h").timing == Timing(Every(3_600_000))


# --- what is refused --------------------------------------------------------------------------------------

IN_2020 = ms("2020-01-01T00:00Z")


def says(fields, said) -> None:
    """The refusal is one line, and says this."""
    message = refusal({"name": "job", "schedule": "@daily", **fields})
    assert "\n" not in message
    assert said in message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"tz": "Europe/Berln"},
            "tz: unknown time zone 'Europe/Berln'; give an IANA name such as 'Europe/Berlin' or 'UTC'",
        ),
        (
            {"schedule": {"kind": "every", "everyMs": 300000, "tz": "Mars"}},
            "schedule: unknown time zone 'Mars'; give an IANA",
        ),
        (
            {"cron": "0 9 * * 1-5 2027", "schedule": None},
            "cron: day-of-week: '2027': 2027 is out of range; day-of-week goes from 0 to 7 (a year goes",
        ),
        ({"message": ""}, "message: it is empty; give it some text, or leave the field out"),
        ({"message": " \n"}, "message: it is empty"),
        (
            {"name": "Daily Report"},
            "name: 'Daily Report' is not a slug; use lowercase letters, digits and inner hyphens",
        ),
        (
            {"schedule": {"kind": "at", "atMs": IN_2020}},
            "schedule: atMs 1577836800000 is in the past; it is now 2026-11-14 12:00:05 UTC",
        ),
    ],
)
def test_the_mistakes_that_people_make_are_answered_with_a_sentence(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": None}, "name: it is missing; give the job a name such as 'daily-report'"),
        ({"name": 5}, "name: 5 is not text; give a slug"),
        ({"name": "a" * 65}, "at most 64 in all"),
        ({"name": "a\nb"}, "name: 'a b' is not a slug"),
    ],
)
def test_a_name_that_is_none_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"schedule": None},
            "schedule: it is missing; write '0 9 * * 1-5' or 'every 15m', or name another job in `after`",
        ),
        ({"schedule": 300000}, "schedule: a schedule is text or an object with a kind, not int"),
        ({"schedule": "sometimes"}, "schedule: 'sometimes' is not a schedule; write a cron expression"),
        ({"schedule": "0 0 31 2 *"}, "schedule: '0 0 31 2 *' never fires"),
        (
            {"schedule": {"kind": "at", "at_ms": 1, "atMs": 2}},
            "schedule: 'atMs' is given in two spellings; give it once",
        ),
        (
            {"schedule": "@daily", "cron": "@daily"},
            "schedule: it is given twice, as schedule and cron; give it once",
        ),
        (
            {"schedule": {"kind": "cron", "expr": "@daily", "tz": "Asia/Tokyo"}, "tz": "UTC"},
            "schedule: its tz 'Asia/Tokyo' is not the job's, 'UTC'; give one of the two",
        ),
        ({"tz": 5}, "tz: 5 is not text; give the name of a zone, such as 'Europe/Berlin'"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"startAt": "2027-13-01T00:00"}, "startAt: '2027-13-01T00:00' is not a time"),
        ({"startAt": "2027-01-01"}, "startAt: '2027-01-01' has no time of day"),
        (
            {"startAt": True},
            "startAt: true is not a time; write '2027-03-01T09:00', or milliseconds",
        ),
        ({"startAt": -1}, "startAt: -1 is out of range; milliseconds since 1970 go up to"),
        ({"endAt": 10**18}, "endAt: 1000000000000000000 is out of range"),
        (
            {"endAt": "2026-11-14T12:00"},
            "endAt: 2026-11-14 12:00 (UTC) is in the past; it is now 2026-11-14 12:00:05 (UTC)",
        ),
        (
            {"startAt": "2027-01-02T00:00", "endAt": "2027-01-01T00:00"},
            "endAt: 2027-01-01 00:00 (UTC) is not after startAt, 2027-01-02 00:00 (UTC); move one of them",
        ),
        ({"startAt": NINE_IN_BERLIN, "endAt": NINE_IN_BERLIN}, "is not after startAt"),
        (
            {"startAt": "2027-01-01T00:01", "endAt": "2027-01-01T23:59"},
            "schedule: it never fires: it has no tick from startAt on, up to endAt; choose",
        ),
        (
            {"schedule": "every 1h", "exclude": ["0001-01-01/9999-12-31"]},
            "schedule: it never fires: it has no tick outside the days of exclude",
        ),
        (
            {"schedule": "0 9 24 12 *", "exclude": ["2026-12-24"], "endAt": "2027-12-01T00:00"},
            "it never fires: it has no tick up to endAt, outside the days of exclude",
        ),
        (
            {"schedule": "2026-12-25T09:00", "tz": "Europe/Berlin", "exclude": ["holidays:DE"]},
            "schedule: 2026-12-25 09:00 (Europe/Berlin) is on an excluded day",
        ),
        (
            {"schedule": "2026-12-25T09:00", "startAt": "2027-01-01T00:00"},
            "schedule: 2026-12-25 09:00 (UTC) is before startAt, 2027-01-01 00:00 (UTC)",
        ),
        (
            {"schedule": "2026-12-25T09:00", "endAt": "2026-12-01T00:00"},
            "schedule: 2026-12-25 09:00 (UTC) is after endAt, 2026-12-01 00:00 (UTC)",
        ),
        ({"exclude": ["holidays:XX"]}, "exclude: 'holidays:XX': no holidays are known for 'XX'"),
        ({"exclude": 5}, "exclude: is a list of texts; write '2026-12-24'"),
        ({"exclude": ["2026-12-24"] * 101}, "exclude: has 101 entries; at most 100"),
        ({"dstGap": "after"}, "dstGap: 'after' is not known; write 'run_after' or 'skip'"),
        ({"dstOverlap": 2}, "dstOverlap: 2 is not known; write 'first', 'second' or 'both'"),
    ],
)
def test_limits_that_leave_no_tick_are_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"overlapPolicy": "skp"},
            "overlapPolicy: 'skp' is not known; write 'allow', 'skip', 'queue', 'queue_one' or 'replace'",
        ),
        ({"overlap_policy": ["skip"]}, "overlapPolicy: ['skip'] is not known"),
        ({"maxQueued": 0}, "maxQueued: 0 is out of range; give a whole number from 1 to 10000"),
        ({"maxQueued": 10_001}, "maxQueued: 10001 is out of range"),
        ({"maxQueued": True}, "maxQueued: true is not a whole number; give one from 1 to 10000"),
        (
            {"catchupPolicy": "all"},
            "catchupPolicy: 'all' is not known; write 'none', 'latest', 'fire_immediately' or 'spread'",
        ),
        ({"catchupWindowMs": -1}, "catchupWindowMs: -1 is out of range; it goes from 0 to"),
        ({"misfireGraceMs": 0}, "misfireGraceMs: 0 is out of range; it goes from 1000"),
        (
            {"jitterMs": DAY + 1},
            "jitterMs: 86400001 is out of range; it goes from 0 to 86400000 ms (1 day)",
        ),
        ({"jitterMs": -1}, "jitterMs: -1 is out of range"),
        (
            {"jitterMs": 1.5},
            "jitterMs: 1.5 is not a whole number of milliseconds; give one, or leave the Ms off",
        ),
        ({"jitterMs": float("nan")}, "jitterMs: nan is not a whole number"),
        ({"jitter": "25h"}, "jitter: 90000000 is out of range"),
        (
            {"jitter": 5},
            "jitter: 5 is not a duration; write '30s' or '5m', or add Ms to the name for milliseconds",
        ),
        ({"timeout": "30"}, "timeout: '30' is not a duration: the unit is missing; write '30m' or '30s'"),
        ({"timeoutMs": "30s"}, "timeoutMs: '30s' is not a whole number of milliseconds"),
        ({"timeoutMs": 0}, "timeoutMs: 0 is out of range"),
        ({"timeoutMs": 10**5000}, "timeoutMs: a number too long to print is out of range"),
        ({"maxAttempts": 0}, "maxAttempts: 0 is out of range; give a whole number from 1 to 100"),
        ({"max_attempts": 101}, "maxAttempts: 101 is out of range"),
        ({"maxAttempts": "5"}, "maxAttempts: '5' is not a whole number"),
        (
            {"maxAttempts": 5, "max_attempts": 5},
            "maxAttempts: it is given twice, as maxAttempts and max_attempts; give it once",
        ),
        (
            {"timeout": "1s", "timeoutMs": 1000},
            "timeoutMs: it is given twice, as timeout and timeoutMs; give it once",
        ),
        ({"backoff": "2s"}, 'backoff: \'2s\' is not an object; write {"base": "2s", "max": "30s"}'),
        ({"backoff": {"base": 2}}, "backoff: 2 is not a duration"),
        ({"backoff": {"baseMs": 0}}, "backoff: 0 is out of range"),
        ({"backoff": {"base": "1m", "max": "1s"}}, "backoff: maxMs 1000 is less than baseMs 60000"),
        ({"backoff": {"base": "1m", "baseMs": 1}}, "backoff: base and baseMs are the same; give one of them"),
        (
            {"backoff": {"factor": 2}},
            "backoff: it has no 'factor'; it takes 'baseMs', 'maxMs', 'base' or 'max'",
        ),
        ({"maxRuns": 0}, "maxRuns: 0 is out of range"),
        ({"onLost": "ignore"}, "onLost: 'ignore' is not known; write 'retry' or 'fail'"),
        ({"disableAfter": 0}, "disableAfter: 0 is out of range"),
        (
            {"deleteAfterRun": "yes"},
            "deleteAfterRun: 'yes' is neither true nor false; write one of them, without quotes",
        ),
    ],
)
def test_a_policy_out_of_its_limits_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"deliver": 1}, "deliver: 1 is neither true nor false"),
        ({"to": 123456789}, "to: 123456789 is not text; put it in quotes"),
        ({"message": "a\x00b"}, "message: it has a character that cannot be stored"),
        ({"message": "\ud800"}, "message: it has a character that cannot be stored"),
        ({"message": "x" * 65537}, "message: it has 65537 characters; at most 65536"),
        ({"lane": "Fast Lane"}, "lane: 'Fast Lane' is not a slug"),
        ({"activeHours": 8}, "activeHours: 8 is not text; write from when to when, such as '08:00-22:00'"),
        ({"activeHours": "always"}, "activeHours: 'always' is not a range of hours; write from when to when"),
        ({"precheck": "true"}, "precheck: 'true' is not an object with fields"),
        ({"precheck": {"kind": "command"}}, "precheck: a precheck of the kind 'command' needs an argv"),
        ({"precheck": {"kind": "oracle"}}, "precheck: the kind 'oracle' is not known; it is "),
        ({"precheck": {"name": "any"}}, "precheck: it has no kind; it is 'function', 'webhook' or 'command'"),
        ({"precheck": {"kind": "function"}}, "precheck: a precheck of the kind 'function' needs a n"),
        ({"precheck": {"kind": "webhook", "url": ""}}, "precheck: a precheck of the kind 'webhook' needs"),
        (
            {"precheck": {"kind": "function", "name": "a", "url": "b"}},
            "precheck: a precheck of the kind 'function' has no field 'url'; it has kind, name, timeoutMs",
        ),
        (
            {"precheck": {"kind": "function", "name": "a", "timeout": "5s", "timeoutMs": 5}},
            "precheck: timeout and timeoutMs are the same; give one of them",
        ),
        ({"precheck": {"kind": "function", "name": "a", "timeoutMs": 0}}, "precheck: timeoutMs: 0 is out"),
        ({"budget": {}}, "budget: {} is not an object with fields; write {"),
        ({"budget": {"tokens": 5}}, "budget: a budget has no field 'tokens'; it has tokensPerDay"),
        ({"budget": {"tokensPerDay": 0}}, "budget: tokensPerDay: 0 is out of range"),
        ({"budget": {"costPerDay": -1}}, "budget: costPerDay: -1 is out of range; give a number above 0"),
        ({"budget": {"costPerDay": "5"}}, "budget: costPerDay: '5' is not a number"),
        ({"description": 5}, "description: 5 is not text"),
        (
            {"labels": ["a"]},
            'labels: [\'a\'] is not an object; write names and texts, such as {"team": "billing"}',
        ),
        ({"labels": {"a": 1}}, "labels: 'a' is 1; names and values are text: put them in quotes"),
        ({"labels": {str(n): "" for n in range(33)}}, "labels: it has 33 labels; at most 32"),
        ({"labels": {"": "x"}}, "labels: a name is empty"),
        (
            {"labels": {"a": "x" * 256}},
            "cannot be stored; a name has at most 63 characters, a value at most 255",
        ),
        ({"after": "Other Job"}, "after: job: 'Other Job' is not a slug"),
        ({"after": {"on": "failed"}}, 'after: it names no job; write "other-job"'),
        (
            {"after": {"job": "a", "on": "start"}},
            "after: 'start' is not known; write 'succeeded', 'failed' or 'finished'",
        ),
        ({"after": ["a"]}, "after: ['a'] is not a job; write \"other-job\""),
        ({"after": "job"}, "after: a job cannot come after itself"),
    ],
)
def test_work_that_cannot_be_kept_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"payload": {"when": datetime(2027, 1, 1)}},
            "payload: when: datetime is not JSON; use text, numbers",
        ),
        ({"payload": [{"x": float("nan")}]}, "payload: 0.x: nan is not a number in JSON; give null or text"),
        ({"payload": float("inf")}, "payload: inf is not a number in JSON"),
        ({"payload": {1: 2}}, "payload: the name 1 is not text"),
        ({"payload": {"a": {"b": b"x"}}}, "payload: a.b: bytes is not JSON"),
        ({"payload": "\ud800"}, "payload: a text has half of a surrogate pair"),
        ({"payload": 10**5000}, "payload: a number is too large for JSON"),
        ({"payload": "x" * 65535}, "payload: it has 65537 bytes as JSON; at most 65536"),
        ({"payload": "ö" * 32768}, "payload: it has 65538 bytes as JSON"),
    ],
)
def test_a_payload_that_is_no_json_or_too_large_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"target": "webhook"},
            'target: \'webhook\' is not an object; write {"kind": "webhook", "url": "https://…"}',
        ),
        ({"target": {"url": "https://a.example"}}, "target: it has no kind; it is 'webhook', 'function'"),
        (
            {"target": {"kind": "smtp"}},
            "target: the kind 'smtp' is not known; it is 'webhook', 'function', 'command', 'workflow'",
        ),
        ({"target": {"kind": ["webhook"]}}, "target: the kind ['webhook'] is not known"),
        (
            {"target": {"kind": "webhook"}},
            "target: the url is missing; give one such as 'https://example.com/hook'",
        ),
        ({"target": {"kind": "webhook", "url": 5}}, "target: 5 is not a url"),
        ({"webhookUrl": "ftp://a.example"}, "webhookUrl: 'ftp://a.example' is not an http or https address"),
        ({"webhookUrl": "a.example/hook"}, "webhookUrl: 'a.example/hook' is not an http or https address"),
        ({"webhookUrl": "https://"}, "webhookUrl: 'https://' is not an http or https address"),
        ({"webhookUrl": "https://a.example:99999/"}, "is not an http or https address"),
        ({"webhookUrl": "https://[::1/"}, "is not an http or https address"),
        ({"webhookUrl": "https://a.example/a b"}, "has a space or a control character in it"),
        ({"webhookUrl": "https://a.example/" + "x" * 2048}, "the url has 2066 characters; at most 2048"),
        (
            {"webhookUrl": "https://b.example", "target": WEBHOOK},
            "webhookUrl: the document has a different target too; give one of the two",
        ),
        (
            {"webhookUrl": "https://b.example", "target": {"kind": "pull"}},
            "webhookUrl: the document has a different target too",
        ),
        ({"workflowId": "invoices"}, "version: it is missing; a workflow needs it, such as 3"),
        (
            {"userId": "u-1", "version": 1},
            "workflowId: it is missing; a workflow needs it, such as 'invoices'",
        ),
        ({"workflowId": "invoices", "version": "3"}, "version: '3' is not a whole number"),
        (
            {"workflowId": "other", "target": WORKFLOW},
            "workflowId: 'other' is not what the target has, 'invoices'; give one",
        ),
        ({"target": {**WORKFLOW, "version": 0}}, "target: version: 0 is out of range"),
        (
            {"target": {"kind": "workflow", "version": 0}, "workflowId": "a"},
            "target: version: 0 is out of range",
        ),
        ({"target": {**WORKFLOW, "to": WORKFLOW}}, "target: a workflow cannot go to another workflow"),
        ({"target": {**WORKFLOW, "to": {"kind": "webhook"}}}, "target: the url is missing"),
    ],
)
def test_a_target_that_cannot_be_reached_or_says_two_things_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"overlapPolcy": "skip"}, "overlapPolcy: a job has no such field; did you mean overlapPolicy?"),
        ({"max_retrys": 3}, "max_retrys: a job has no such field; did you mean maxAttempts?"),
        ({"timezone": "UTC"}, "timezone: a job has no such field; did you mean tz?"),
        ({"every": "5m"}, "every: a job has no such field; did you mean schedule?"),
        ({"xyzzy": 1}, "xyzzy: a job has no such field; leave it out"),
        ({5: 1}, "5: a job has no such field"),
    ],
)
def test_an_unknown_field_is_refused_with_the_name_that_was_meant(fields, said):
    says(fields, said)


def test_a_payload_that_never_ends_is_refused():
    endless: list[object] = []
    endless.append(endless)
    assert refusal(payload=endless) == "payload: it is nested deeper than 100 levels; flatten it"


def test_what_only_a_schedule_gives_a_meaning_is_refused_without_one():
    fields = {"tz": "UTC", "startAt": NINE_IN_BERLIN, "exclude": ["2026-12-24"], "dstGap": "skip"}
    lines = refusal({"name": "load", "after": "extract", **fields}).splitlines()
    assert [line.partition(":")[0] for line in lines] == list(fields)
    assert {line.partition(": ")[2] for line in lines} == {
        "it has no effect without a schedule; give one, or leave it out"
    }


def test_all_that_is_wrong_is_said_at_once():
    message = refusal(
        {"name": "A", "schedule": "61 * * * *", "tz": "Mars", "jitter": 5, "lean": 1, "deliver": 0}
    )
    assert [line.partition(":")[0] for line in message.splitlines()] == [
        "lean",
        "jitter",
        "name",
        "tz",
        "schedule",
        "deliver",
    ]


def test_a_document_of_nothing_but_mistakes_is_answered_within_reason():
    lines = refusal({"name": "job", "schedule": "@daily", **{f"x{n}": n for n in range(1000)}}).splitlines()
    assert (len(lines), lines[-1]) == (21, "… and 980 more")


@pytest.mark.parametrize("document", [None, [], "job", 5])
def test_a_document_that_is_no_object_is_refused(document):
    with pytest.raises(InvalidArgument, match="a job is an object with a name and a schedule, not "):
        read_definition(document, now_ms=NOW, defaults=Defaults())


def test_a_wrong_schedule_is_an_invalid_schedule_and_anything_else_an_invalid_argument():
    for fields in (
        {"schedule": "x"},
        {"tz": "Mars"},
        {"schedule": "x", "deliver": 1},
        {"exclude": ["0001-01-01/9999-12-31"]},
    ):
        with pytest.raises(InvalidSchedule):
            read(**fields)
    with pytest.raises(InvalidArgument) as refused:
        read(deliver=1)
    assert type(refused.value) is InvalidArgument


# --- a document in place of another -----------------------------------------------------------------------

REMINDER = {"name": "reminder", "schedule": {"kind": "at", "at": "2027-03-01T09:00"}, "tz": "Europe/Berlin"}
LATER = NINE_IN_BERLIN + DAY


def test_a_time_that_is_over_may_stay_but_not_come_in():
    old = read(REMINDER)
    assert read(REMINDER, now=LATER, old=old) == old
    assert read({**REMINDER, "message": "hi"}, now=LATER, old=old).work.message == "hi"
    assert "is in the past" in refusal(REMINDER, now=LATER)
    assert "is in the past" in refusal({**REMINDER, "schedule": "2027-03-01T09:30"}, now=LATER, old=old)


def test_an_interval_is_the_same_whether_utc_is_said_or_not():
    assert (
        read(schedule="every 5m")
        == read(schedule="every 5m", tz="UTC")
        == read(schedule={"kind": "every", "every": "5m", "tz": "UTC"})
    )


# --- patches ----------------------------------------------------------------------------------------------

RICH = {
    "name": "digest",
    "schedule": "0 7 * * *",
    "tz": "Europe/Berlin",
    "exclude": ["holidays:DE"],
    "webhookUrl": "https://a.example/hook",
    "payload": {"to": "me"},
    "timeout": "30s",
    "overlapPolicy": "queue",
    "description": "every morning",
    "labels": {"team": "billing"},
}


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


def test_a_patch_is_judged_whole():
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


# --- the way out and back ---------------------------------------------------------------------------------


def test_a_written_document_has_every_field():
    document = write_definition(read(RICH))
    fields = """
        name schedule tz target payload message stateless deliver channel to deleteAfterRun
        wakeHeartbeat lane overlapPolicy maxQueued catchupPolicy catchupWindowMs misfireGraceMs jitterMs
        maxAttempts backoff timeoutMs startAt endAt maxRuns onLost disableAfter claimTimeoutMs dstGap
        dstOverlap exclude activeHours precheck budget after description labels
    """
    assert set(document) == set(fields.split())
    assert document["schedule"] == {"kind": "cron", "expr": "0 7 * * *", "tz": "Europe/Berlin"}
    assert document["backoff"] == {"baseMs": 2000, "maxMs": 30000}
    workflow = write_definition(read(target=WORKFLOW))
    assert [workflow[name] for name in ("workflowId", "version", "userId")] == ["invoices", 3, None]


def test_what_is_written_does_not_hang_on_the_defaults_of_the_day():
    other = Defaults(tz="Asia/Tokyo", overlap="replace", catchup="spread", jitter_ms=1)
    for job in (read(RICH), read(schedule="every 5m"), read(schedule="in 5m")):
        assert read(write_definition(job), defaults=other) == job


PAST_AND_FUTURE = st.integers(0, NOW + 10_000 * DAY)
LINE = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | LINE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LINE, inner, max_size=3),
    max_leaves=8,
)
SLUGS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
ZONES = st.sampled_from([None, "Europe/Berlin", "Asia/Tokyo", "America/New_York"])
OBJECTS = st.dictionaries(LINE, JSON, min_size=1, max_size=3)
SCHEDULES = st.one_of(
    st.builds(At, PAST_AND_FUTURE, ZONES),
    st.builds(Every, st.integers(1000, 1000 * DAY), ZONES),
    st.builds(CronSchedule, st.sampled_from(["0 9 * * 1-5", "*/5 * * * *", "0 0 L * *"]), ZONES.filter(bool)),
)
TIMINGS = st.builds(
    Timing,
    SCHEDULES,
    st.none() | PAST_AND_FUTURE,
    st.none() | PAST_AND_FUTURE,
    st.sampled_from(
        [NOTHING, parse_exclude(["2026-12-24"]), parse_exclude(["holidays:DE-BY", "2027-01-01/2027-01-05"])]
    ),
    st.sampled_from(["run_after", "skip"]),
    st.sampled_from(["first", "second", "both"]),
)
LENGTHS = st.integers(1000, DAY)
POLICIES = st.builds(
    Policy,
    overlap=st.sampled_from(["allow", "skip", "queue", "queue_one", "replace"]),
    max_queued=st.integers(1, 10_000),
    catchup=st.sampled_from(["none", "latest", "fire_immediately", "spread"]),
    catchup_window_ms=LENGTHS,
    misfire_grace_ms=LENGTHS,
    jitter_ms=LENGTHS | st.just(0),
    max_attempts=st.integers(1, 100),
    backoff=st.builds(lambda base, more: Backoff(base, base + more), LENGTHS, LENGTHS),
    timeout_ms=st.none() | LENGTHS,
    max_runs=st.none() | st.integers(1, 1000),
    on_lost=st.sampled_from(["retry", "fail"]),
    disable_after=st.none() | st.integers(1, 1000),
    delete_after_run=st.booleans(),
    claim_timeout_ms=LENGTHS,
)
TARGETS = st.one_of(
    st.none(),
    st.just(WEBHOOK),
    st.builds(
        lambda more, kind: {**more, "kind": kind}, OBJECTS, st.sampled_from(["pull", "function", "command"])
    ),
    st.just({**WORKFLOW, "userId": "u", "to": WEBHOOK}),
)
WORKS = st.builds(
    Work,
    target=TARGETS,
    payload=JSON,
    message=st.none() | LINE,
    lane=SLUGS,
    stateless=st.booleans(),
    deliver=st.booleans(),
    channel=st.none() | LINE,
    to=st.none() | LINE,
    wake_heartbeat=st.booleans(),
    precheck=st.none() | st.builds(lambda name: {"kind": "function", "name": name}, LINE),
    budget=st.none() | st.builds(lambda tokens: {"tokensPerDay": tokens}, st.integers(1, 2**53)),
)
PLAIN_DEFINITIONS = st.builds(
    Definition,
    st.just("job"),
    TIMINGS,
    POLICIES,
    WORKS,
    st.none()
    | st.builds(
        Chain, SLUGS.filter(lambda name: name != "job"), st.sampled_from(["succeeded", "failed", "finished"])
    ),
    LINE | st.just(""),
    st.dictionaries(LINE.filter(lambda name: len(name) < 64), LINE, max_size=3),
)


def with_hours(job: Definition, hours: str | None) -> Definition:
    tz = (job.timing.schedule.tz or "UTC") if job.timing and hours else None
    return replace(job, work=replace(job.work, active_hours=hours, hours_tz=tz))


DEFINITIONS = st.builds(
    with_hours, PLAIN_DEFINITIONS, st.sampled_from([None, None, "08:00-22:00", "22:00-06:00"])
)


@settings(max_examples=60, deadline=None)
@given(DEFINITIONS)
def test_what_is_written_is_read_back_as_it_was(job):
    document = write_definition(job)
    assert json.loads(json.dumps(document)) == document
    assert read(document, stored=True) == job
    assert patched(job) == job


@settings(max_examples=60, deadline=None)
@given(DEFINITIONS)
def test_a_stored_definition_comes_back_from_its_texts(job):
    work = work_from_text(work_to_text(job.work))
    assert timing_from_text(timing_to_text(job.timing)) == job.timing
    assert policy_from_text(policy_to_text(job.policy)) == job.policy
    assert replace(work, payload=payload_from_text(payload_to_text(job.work.payload))) == job.work


ANYTHING = st.one_of(
    JSON,
    st.datetimes() | st.timedeltas() | st.binary(max_size=3),
    st.sampled_from(
        [0, 1, -1, 1e300, LATEST_MS, LATEST_MS + 1, 10**400, True, "", "0s", "1d", "a", "\ud800", "\x00"]
    ),
    st.sampled_from(
        ["every 1s", "0 0 29 2 *", "9998-12-31T23:59", "1970-01-01T00:00", "Asia/Tokyo", "holidays:DE"]
    ),
    st.builds(
        lambda key, item: {key: item}, st.sampled_from(["kind", "atMs", "at", "job", "on", "base"]), JSON
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*write_definition(read(target=WORKFLOW)), "cron", "timeout"]) | LINE, ANYTHING
    )
)
def test_whatever_is_given_is_read_or_refused_in_words(fields):
    try:
        job = read({"name": "job", "schedule": "@daily", **fields})
    except InvalidArgument as error:
        error.message.encode()
    else:
        assert read(write_definition(job)) == job


def test_equal_parts_have_equal_texts_and_one_object():
    a, b = read(timeout="30s", labels={"a": "1"}), read(labels={"b": "2"}, timeoutMs=30_000)
    assert policy_to_text(a.policy) == policy_to_text(b.policy) == '{"timeoutMs":30000}'
    assert policy_from_text(policy_to_text(a.policy)) is policy_from_text(policy_to_text(b.policy))
    assert work_to_text(Work({"kind": "pull", "a": 1})) == work_to_text(Work({"a": 1, "kind": "pull"}))
    assert timing_to_text(Timing(Every(MINUTE))) == '{"schedule":{"everyMs":60000,"kind":"every"}}'
    assert (policy_to_text(Policy()), work_to_text(Work())) == ("{}", "{}")


def test_a_stored_policy_is_not_judged_again():
    odd = Policy(max_queued=0, max_attempts=1000, misfire_grace_ms=0, backoff=Backoff(0, 0))
    assert policy_from_text(policy_to_text(odd)) == odd


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (timing_from_text, ""),
        (timing_from_text, "{}"),
        (timing_from_text, "[]"),
        (timing_from_text, '{"schedule":null}'),
        (timing_from_text, '{"schedule":{"kind":"every"}}'),
        (timing_from_text, '{"schedule":{"kind":"every","everyMs":1000},"startAt":"now"}'),
        (timing_from_text, '{"schedule":{"kind":"every","everyMs":1000},"exclude":["soon"]}'),
        (policy_from_text, "null"),
        (policy_from_text, '{"maxAttempts":"3"}'),
        (policy_from_text, '{"maxAttempts":true}'),
        (policy_from_text, '{"overlapPolicy":"never"}'),
        (policy_from_text, '{"backoff":{"baseMs":1}}'),
        (policy_from_text, '{"backoff":{"baseMs":1,"maxMs":null}}'),
        (policy_from_text, '{"unknown":1}'),
        (work_from_text, '{"target":"https://a.example"}'),
        (work_from_text, '{"payload":1}'),
        (payload_from_text, "{"),
    ],
)
def test_a_stored_text_that_cannot_be_read_is_refused_as_a_whole(reader, text):
    with pytest.raises(InvalidArgument):
        reader(text)
