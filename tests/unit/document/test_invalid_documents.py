"""Job documents that are invalid: every problem is reported, with its field and a suggestion."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.support.job_documents import (
    NINE_IN_BERLIN,
    NOW,
    WEBHOOK,
    WORKFLOW,
    error_of,
    ms,
    read,
)
from wakeful.document import (
    Defaults,
    read_definition,
)
from wakeful.errors import InvalidArgument, InvalidSchedule
from wakeful.values.duration import DAY

IN_2020 = ms("2020-01-01T00:00Z")


def says(fields, said) -> None:
    """Assert that the error is one line and contains this text."""
    message = error_of({"name": "job", "schedule": "@daily", **fields})
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
def test_common_mistakes_have_clear_errors(fields, said):
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
def test_an_invalid_name_is_refused(fields, said):
    says(fields, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"schedule": None},
            "schedule: it is missing; write '0 9 * * 1-5' or 'every 15m', or name another job in `after` "
            "or an event in `on`, or set `triggerUrl` to true",
        ),
        ({"on": "ticket.created"}, 'on: \'ticket.created\' is not an object; write {"server": "crm"'),
        ({"on": {"server": "crm"}}, "on: it names no event; write"),
        ({"on": {"server": "CRM!", "event": "a"}}, "on: server: 'CRM!' is not a slug"),
        ({"on": {"server": "crm", "event": "a", "filter": 1}}, "on: it has no 'filter'; it takes"),
        ({"on": {"server": "crm", "event": "a", "arguments": [1]}}, "on: arguments: [1] is not an object"),
        ({"on": {"server": "crm", "event": "a", "arguments": {"q": "a" * 9000}}}, "on: "),
        ({"schedule": None, "triggerUrl": False}, "schedule: it is missing"),
        ({"triggerUrl": "yes"}, "triggerUrl: "),
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
def test_an_invalid_schedule_is_refused(fields, said):
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
        ({"precheck": {"name": "any"}}, "precheck: it has no kind; it is 'webhook', 'function' or 'command'"),
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
        ({"budget": {"costPerDay": float("nan")}}, "budget: costPerDay: nan is out of range"),
        ({"budget": {"costPerRun": 10**400}}, "budget: costPerRun: 1000"),
        ({"budget": {"tokensPerDay": 10**5000}}, "budget: tokensPerDay: a number too long to print"),
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
def test_invalid_work_is_refused(fields, said):
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
            "target: the kind 'smtp' is not known; it is 'webhook', 'function', 'agent', 'command', 'c",
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
        (
            {"target": {**WORKFLOW, "to": {"kind": "agent"}}},
            "target: a workflow cannot go to an agent class; as 'to', give what runs its DAG",
        ),
        (
            {"target": {"kind": "agent", "instance": "E\nU"}},
            "target: instance: the name has the control charact",
        ),
        ({"target": {"kind": "agent", "instance": 5}}, "target: instance: 5 is not text; give the name of"),
        ({"target": {"kind": "agent", "signal": ""}}, "target: signal: it is empty; give it some text"),
        ({"target": {"kind": "agent", "signal": "a.*"}}, "target: signal: 'a.*' is a pattern; a signal has"),
        (
            {"target": {"kind": "agent", "name": "eu"}},
            "target: an agent target has no 'name'; it has instance and signal, both optional",
        ),
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
        ({"paused": True}, "paused: a job has no such field; did you mean enabled?"),
        ({"agent": "ada"}, "agent: a job has no such field; did you mean agentId?"),
        ({"priority": 5}, "priority: a job has no such field; did you mean lane?"),
        ({"SCHEDULE": "@daily"}, "SCHEDULE: a job has no such field; did you mean schedule?"),
        ({"owner": "ada"}, "owner: a job has no such field; leave it out"),
        ({"xyzzy": 1}, "xyzzy: a job has no such field; leave it out"),
        ({5: 1}, "5: a job has no such field"),
    ],
)
def test_an_unknown_field_is_refused_with_the_name_that_was_meant(fields, said):
    says(fields, said)


def test_a_payload_that_never_ends_is_refused():
    endless: list[object] = []
    endless.append(endless)
    assert error_of(payload=endless) == "payload: it is nested deeper than 100 levels; flatten it"


def test_schedule_fields_are_refused_without_a_schedule():
    fields = {"tz": "UTC", "startAt": NINE_IN_BERLIN, "exclude": ["2026-12-24"], "dstGap": "skip"}
    lines = error_of({"name": "load", "after": "extract", **fields}).splitlines()
    assert [line.partition(":")[0] for line in lines] == list(fields)
    assert {line.partition(": ")[2] for line in lines} == {
        "it has no effect without a schedule; give one, or leave it out"
    }


def test_all_errors_are_reported_at_once():
    message = error_of(
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


def test_the_number_of_reported_errors_is_limited():
    lines = error_of({"name": "job", "schedule": "@daily", **{f"x{n}": n for n in range(1000)}}).splitlines()
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
