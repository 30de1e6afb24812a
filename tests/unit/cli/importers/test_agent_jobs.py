"""Reading the `jobs.json` of OpenClaw and of Hermes."""

from __future__ import annotations

import json

import pytest

from wakeful.cli.importers.agent_jobs import read_hermes, read_openclaw
from wakeful.cli.importers.entries import ImportEntry, ReadResult
from wakeful.errors import InvalidArgument
from wakeful.values.json_value import Json

CLAW: dict[str, Json] = {
    "id": "job-1",
    "name": "Morning brief",
    "enabled": True,
    "createdAtMs": 1_700_000_000_000,
    "updatedAtMs": 1_700_000_000_000,
    "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "America/Los_Angeles"},
    "sessionTarget": "isolated",
    "wakeMode": "next-heartbeat",
    "payload": {"kind": "agentTurn", "message": "Summarize overnight updates."},
    "delivery": {"mode": "announce", "channel": "slack", "to": "channel:C1"},
    "state": {"nextRunAtMs": 1_700_000_100_000},
}
HERMES: dict[str, Json] = {
    "id": "a1b2c3",
    "name": "Morning feeds",
    "prompt": "Summarize the feeds.",
    "schedule": {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *"},
    "repeat": {"times": None, "completed": 3},
    "enabled": True,
    "state": "scheduled",
    "deliver": "telegram:123",
    "skills": [],
}


def claw(**changes: Json) -> ReadResult:
    return read_openclaw(json.dumps({"version": 1, "jobs": [{**CLAW, **changes}]}), file="jobs.json")


def hermes(**changes: Json) -> ReadResult:
    return read_hermes(json.dumps({"jobs": [{**HERMES, **changes}]}), file="jobs.json")


def only(reading: ReadResult) -> ImportEntry:
    assert reading.refused == ()
    (entry,) = reading.entries
    return entry


def noted(reading: ReadResult) -> set[str | None]:
    return {note.field for note in reading.notes}


def test_an_isolated_turn_becomes_a_job_with_a_message_and_a_delivery():
    reading = claw()

    entry = only(reading)
    assert (entry.name, entry.schedule, entry.tz) == ("morning-brief", "0 7 * * *", "America/Los_Angeles")
    assert entry.fields == {
        "message": "Summarize overnight updates.",
        "stateless": True,
        "deliver": True,
        "channel": "slack",
        "to": "channel:C1",
        "description": "Morning brief",
    }
    assert noted(reading) == {"wakeMode"}


def test_a_system_event_becomes_a_message():
    reading = claw(
        sessionTarget="main",
        wakeMode="now",
        payload={"kind": "systemEvent", "text": "Check the docs."},
        schedule={"kind": "at", "at": "2027-02-01T16:00:00"},
        delivery=None,
        deleteAfterRun=True,
    )

    entry = only(reading)
    assert (entry.schedule, entry.tz) == ({"kind": "at", "at": "2027-02-01T16:00:00"}, "UTC")
    assert entry.fields == {
        "message": "Check the docs.",
        "deleteAfterRun": True,
        "description": "Morning brief",
    }
    assert noted(reading) == {"sessionTarget"}


def test_intervals_keep_their_anchor_and_a_stagger_becomes_jitter():
    every = only(claw(schedule={"kind": "every", "everyMs": 60_000, "anchorMs": 5}))
    assert (every.schedule, every.fields["startAt"]) == ({"kind": "every", "everyMs": 60_000}, 5)

    staggered = claw(schedule={"kind": "cron", "expr": "0 * * * *", "staggerMs": 300_000})
    assert only(staggered).fields["jitterMs"] == 150_000
    assert "schedule.staggerMs" in noted(staggered)


def test_each_field_that_is_lost_or_passed_on_is_named():
    reading = claw(
        wakeMode="now",
        agentId="ops",
        sessionKey="agent:main",
        enabled=False,
        payload={
            "kind": "agentTurn",
            "message": "Go.",
            "model": "opus",
            "thinking": "high",
            "timeoutSeconds": 90,
            "allowUnsafeExternalContent": True,
        },
        delivery={"mode": "announce", "channel": "last", "accountId": "bot-2", "bestEffort": True},
    )

    entry = only(reading)
    assert entry.agent == "ops"
    assert entry.fields["payload"] == {"message": "Go.", "model": "opus", "thinking": "high"}
    assert (entry.fields["timeoutMs"], entry.fields["enabled"], entry.fields["wakeHeartbeat"]) == (
        90_000,
        False,
        True,
    )
    assert noted(reading) == {
        "sessionKey",
        "payload.model",
        "payload.thinking",
        "payload.allowUnsafeExternalContent",
        "delivery",
        "delivery.accountId",
        "delivery.bestEffort",
    }


def test_the_older_delivery_fields_of_the_payload_are_read():
    payload: Json = {"kind": "agentTurn", "message": "Go.", "deliver": True, "channel": "telegram", "to": "1"}

    fields = only(claw(delivery=None, payload=payload)).fields

    assert (fields["deliver"], fields["channel"], fields["to"]) == (True, "telegram", "1")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"payload": {"kind": "script", "text": "x"}}, "payload.kind 'script'"),
        ({"payload": {"kind": "agentTurn"}}, "no message"),
        ({"schedule": {"kind": "lunar"}}, "schedule.kind 'lunar'"),
        ({"schedule": None}, "schedule: it is missing"),
        ({"payload": {"kind": "agentTurn", "message": "x", "timeoutSeconds": 1e308}}, "too large"),
    ],
)
def test_a_job_that_cannot_be_converted_is_refused(changes: dict[str, Json], reason: str):
    reading = claw(**changes)

    assert reading.entries == ()
    assert reason in reading.refused[0].why


@pytest.mark.parametrize(
    "text",
    [
        "{", "{}", '"jobs"', "[" * 100_000,
        '[{"name": "a", "payload": {"kind": "agentTurn", "message": "x", "timeoutSeconds": Infinity}}]',
    ],
)  # fmt: skip
def test_another_file_is_an_error(text: str):
    with pytest.raises(InvalidArgument, match=r"jobs\.json"):
        read_openclaw(text, file="jobs.json")


def test_a_job_of_hermes_becomes_a_job():
    reading = hermes(model="opus", failure_deliver="local")

    entry = only(reading)
    assert (entry.name, entry.schedule) == ("morning-feeds", "0 9 * * *")
    assert entry.fields == {
        "message": "Summarize the feeds.",
        "payload": {"message": "Summarize the feeds.", "model": "opus"},
        "deliver": True,
        "channel": "telegram",
        "to": "123",
        "stateless": True,
        "description": "Morning feeds",
    }
    assert noted(reading) == {"model", "failure_deliver"}


def test_schedules_and_repeats_of_hermes():
    every = only(hermes(schedule={"kind": "interval", "minutes": 30}, repeat={"times": 5, "completed": 2}))
    assert (every.schedule, every.fields["maxRuns"]) == ({"kind": "every", "everyMs": 1_800_000}, 3)
    once = only(hermes(schedule={"kind": "once", "run_at": "2027-02-03T14:00:00+01:00"}, deliver="local"))
    assert once.schedule == {"kind": "at", "at": "2027-02-03T14:00:00+01:00"}
    assert "deliver" not in once.fields
    origin = only(hermes(deliver="origin", origin={"platform": "discord", "chat_id": 7}))
    assert (origin.fields["channel"], origin.fields["to"]) == ("discord", "7")


@pytest.mark.parametrize("expression", ["0 9 * * * 5", "0 9 * * * 5 2027", "@daily", None])
def test_an_expression_that_would_mean_something_else_is_refused(expression: Json):
    """In the library that Hermes uses, seconds are the last field."""
    reading = hermes(schedule={"kind": "cron", "expr": expression})
    assert "does not have five fields" in reading.refused[0].why


def test_a_script_of_hermes_without_an_agent_is_refused():
    assert "command target" in hermes(no_agent=True, script="x.py").refused[0].why
