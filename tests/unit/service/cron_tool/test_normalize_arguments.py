"""What models write, and what is made of it. It is 2027-01-15, 08:00 UTC (09:00 in Berlin), a Friday."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import InvalidArgument, InvalidSchedule
from wakeful.job.job import check_slug
from wakeful.service.auth.agent_policy import check_not_reserved
from wakeful.service.cron_tool.normalize_arguments import (
    ACTIONS,
    check_message,
    document,
    name_from,
    normalize,
)

NOW_MS = 1_800_000_000_000
NINE = {"kind": "cron", "expr": "0 9 * * 1-5"}
LATER_S = 1_900_000_000
LATER = {"kind": "at", "atMs": LATER_S * 1000}
EVERY_15M = {"kind": "every", "everyMs": 900_000}


def schedule(home: str = "UTC", /, **fields: object) -> Any:
    asked = normalize({"action": "add", "message": "x", **fields})
    return document(asked.fields, now_ms=NOW_MS, tz=home)["schedule"]


# --- instances ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"signal": "report.generate", "instance": "eu", "data": {"month": 3}},
        {"type": "report.generate", "instance_id": "eu", "data": {"month": 3}},
        {"signal": {"type": "report.generate", "data": {"month": 3}}, "instance": "eu"},
        {"signal": '{"type": "report.generate", "data": {"month": 3}}', "instance": " eu "},
    ],
)
def test_a_signal_is_its_type_or_an_event(said: dict[str, object]):
    asked = normalize({"action": "signal", **said})
    assert (asked.instance, dict(asked.fields)) == (
        "eu",
        {"signal": "report.generate", "data": {"month": 3}},
    )


def test_an_instance_is_named_by_its_id():
    for name in ("instance", "id", "instanceId", "name"):
        assert normalize({"action": "instance", name: "eu"}).instance == "eu"
    assert normalize({"action": "instance"}).instance is None
    assert normalize({"action": "signal", "signal": "x", "id": "7"}).fields["id"] == "7"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"action": "signal", "signal": "x", "schedule": "in 5m"}, "schedule"),
        ({"action": "signal", "signal": "x", "type": "y"}, "signal"),
        ({"action": "instance", "id": "eu", "instance": "us"}, "instance"),
        ({"action": "instances", "status": "paused"}, "status"),
        ({"action": "instances", "limit": 0}, "limit"),
        ({"action": "signal", "signal": "x", "instance": 7}, "instance"),
    ],
)
def test_wrong_arguments_about_instances_are_refused_by_name(said: dict[str, object], named: str):
    with pytest.raises(InvalidArgument, match=f"^{named}: "):
        normalize(said)


# --- which action ------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_known_however_it_is_written(action: str):
    for spelled in (action, action.upper(), f" {action} ", f"cron.{action}"):
        assert normalize({"action": spelled}).action == action


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("create", "add"), ("schedule", "add"), ("delete", "remove"), ("cancel", "remove"),
        ("edit", "update"), ("trigger", "run"), ("run_now", "run"), ("history", "runs"), ("disable", "pause"),
        ("enable", "resume"), ("show", "get"), ("send_signal", "signal"), ("list_instances", "instances"),
    ],
)  # fmt: skip
def test_other_names_of_actions_are_understood(said: str, action: str):
    assert normalize({"action": said}).action == action


@pytest.mark.parametrize("action", ["explode", "", 7, None, ["add"]])
def test_an_unknown_action_is_refused_with_the_list(action: object):
    with pytest.raises(
        InvalidArgument, match="there are add, get, list, update, pause, resume, remove, run, runs, status"
    ):
        normalize({"action": action})


# --- which job ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"jobId": "digest"},
        {"job_id": "digest"},
        {"id": "digest"},
        {"name": "digest"},
        {"job": "digest"},
        {"job": {"name": "digest"}},
        {"job": {"id": "digest"}},
        {"job": '{"jobId": "digest"}'},
        {"jobId": " digest "},
    ],
)
@pytest.mark.parametrize("action", ["get", "pause", "resume", "remove", "run", "runs", "update"])
def test_the_job_is_found_by_any_of_its_names(action: str, arguments: dict[str, object]):
    asked = normalize({"action": action, **arguments})
    assert asked.job == "digest"
    assert not asked.fields


@pytest.mark.parametrize(
    "arguments",
    [
        {"jobId": "old", "job": {"name": "new"}},
        {"jobId": "old", "patch": {"name": "new"}},
        {"name": "old", "patch": {"name": "new"}},
        {"id": "old", "name": "new"},
    ],
)
def test_a_job_can_be_given_another_name(arguments: dict[str, object]):
    asked = normalize({"action": "update", **arguments})
    assert (asked.job, dict(asked.fields)) == ("old", {"name": "new"})


@pytest.mark.parametrize("field", ["agentId", "agent_id", "agent"])
def test_the_agent_is_named_beside_the_job_or_in_it(field: str):
    assert normalize({"action": "list", field: "writer"}).agent == "writer"
    asked = normalize({"action": "add", "job": {field: "writer", "message": "x"}})
    assert (asked.agent, dict(asked.fields)) == ("writer", {"message": "x"})


@pytest.mark.parametrize("job", ["", " ", "a\x00b", "x" * 1000, 7, [], {"name": "\n"}])
def test_an_invalid_name_is_refused_before_the_look_up(job: object):
    with pytest.raises(InvalidArgument, match="jobId: give a name or an id"):
        normalize({"action": "remove", "job": job})


# --- the fields --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"job": {"name": "a", "schedule": "@daily", "message": "x", "maxAttempts": 3}},
        {"name": "a", "schedule": "@daily", "message": "x", "maxAttempts": 3},
        {"name": "a", "schedule": "@daily", "prompt": "x", "max_attempts": "3"},
        {"name": " a ", "job": {"schedule": " @daily ", "text": "\tx", "max_attempts": "3"}},
        {"job": '{"name": "a", "schedule": "@daily", "message": "x", "max_attempts": 3}'},
    ],
)
def test_flat_nested_and_snake_case_arguments_are_equal(arguments: dict[str, object]):
    asked = normalize({"action": "add", **arguments})
    assert document(asked.fields, now_ms=NOW_MS, tz="UTC") == {
        "name": "a", "schedule": "@daily", "message": "x", "maxAttempts": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("hello", "hello"),
        ("\t\thello\n", "hello"),
        ("    one\n    two", "one\ntwo"),
        ("\tone\n\t\ttwo", "one\n\ttwo"),
        ("one\n        two\n        three", "one\ntwo\nthree"),
        ("Do:\n- one\n  - more", "Do:\n- one\n  - more"),
    ],
)
def test_indentation_is_taken_off_messages_and_descriptions(said: str, kept: str):
    fields = document({"message": said, "description": said}, now_ms=NOW_MS, tz="UTC")
    assert fields == {"message": kept, "description": kept}


@pytest.mark.parametrize(
    ("field", "said", "meant"),
    [
        ("enabled", "false", False),
        ("enabled", "yes", True),
        ("deleteAfterRun", "True", True),
        ("maxRuns", "10", 10),
        ("timeoutMs", "30000", 30_000),
        ("target", '{"kind": "pull"}', {"kind": "pull"}),
        ("tz", " UTC ", "UTC"),
        ("enabled", "perhaps", "perhaps"),  # for the service layer to refuse
        ("maxRuns", "many", "many"),
        ("labels", {"a": "1"}, {"a": "1"}),
    ],
)
def test_quoted_numbers_and_objects_are_parsed(field: str, said: object, meant: object):
    assert document({field: said}, now_ms=NOW_MS, tz="UTC") == {field: meant}


def test_a_payload_that_is_only_a_message_is_one():
    payload = {"kind": "agentTurn", "message": "\tgo"}
    assert document({"payload": payload}, now_ms=NOW_MS, tz="UTC") == {"message": "go"}
    other = {"message": "go", "to": "ada"}
    assert document({"payload": other}, now_ms=NOW_MS, tz="UTC") == {"payload": other}


def test_the_context_fills_in_what_the_job_does_not_say():
    arguments = {"action": "add", "message": "x", "to": "@bob", "context": {"channel": "mail", "to": "@ada"}}
    meta = {"channel": "telegram", "deliver": True, "secret": "kept out"}
    fields = normalize(arguments, meta).fields
    assert fields == {"message": "x", "to": "@bob", "channel": "mail", "deliver": True}
    assert "channel" not in normalize({"action": "update", "jobId": "a"}, meta).fields


def test_a_recipient_is_not_taken_from_another_channel():
    here = {"channel": "telegram", "to": "123"}
    add = {"action": "add", "message": "x", "channel": "mail"}
    for call in (normalize({**add, "context": here}), normalize(add, here), normalize(add, {"to": "123"})):
        assert (call.fields["channel"], call.fields.get("to")) == ("mail", None)
    assert normalize({**add, "channel": "telegram"}, here).fields["to"] == "123"
    of_context = normalize({"action": "add", "message": "x", "context": {"channel": "mail"}}, here)
    assert of_context.fields == {"message": "x", "channel": "mail", "deliver": True}


def test_a_job_that_is_made_in_a_channel_delivers_there_unless_it_says_otherwise():
    add = {"action": "add", "message": "x", "context": {"channel": "mail", "to": "@ada"}}
    assert normalize(add).fields["deliver"] is True
    assert normalize({**add, "deliver": False}).fields["deliver"] is False
    assert normalize({**add, "context": {"channel": "mail", "deliver": False}}).fields["deliver"] is False
    assert "deliver" not in normalize({**add, "context": {"to": "@ada"}}).fields
    unset = {"deliver": None, "channel": None, "to": None}
    assert normalize({**add, **unset}).fields == normalize(add).fields


# --- the schedule ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": {"kind": "cron", "expr": "0 9 * * 1-5"}},
        {"schedule": '{"kind": "cron", "expr": "0 9 * * 1-5"}'},
        {"schedule": {"cron": "0 9 * * 1-5"}},
        {"schedule": {"type": "cron", "expression": " 0 9 * * 1-5 "}},
        {"schedule": {"kind": "cron", "cronExpr": "0 9 * * 1-5"}},
        {"schedule": {"kind": "cron", "cron_expr": "0 9 * * 1-5"}},
        {"schedule": {"kind": "cron", "schedule": "0 9 * * 1-5"}},
        {"cron": "0 9 * * 1-5"},
        {"cronExpr": "0 9 * * 1-5"},
        {"cron_expression": "0 9 * * 1-5"},
        {"expression": "0 9 * * 1-5"},
    ],
)
def test_a_cron_expression_under_any_name(fields: dict[str, object]):
    assert schedule(**fields) == NINE


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": LATER},
        {"schedule": {"kind": "at", "atMs": LATER_S}},
        {"schedule": {"kind": "at", "atMs": str(LATER_S)}},
        {"schedule": {"kind": "at", "at": LATER_S * 1000}},
        {"schedule": {"kind": "at", "at_ms": str(LATER_S * 1000)}},
        {"schedule": LATER_S},
        {"schedule": str(LATER_S)},
        {"at": LATER_S},
        {"atMs": float(LATER_S)},
        {"at_ms": f"{LATER_S}000"},
    ],
)
def test_an_instant_in_seconds_or_milliseconds_with_or_without_quotes(fields: dict[str, object]):
    assert schedule(**fields) == LATER


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": EVERY_15M},
        {"schedule": {"kind": "every", "everyMs": "900000"}},
        {"schedule": {"kind": "every", "every": "15m"}},
        {"schedule": {"kind": "every", "every": "15 minutes"}},
        {"schedule": {"every": "every 15m"}},
        {"schedule": {"kind": "every", "everySeconds": 900}},
        {"schedule": {"kind": "every 15m"}},
        {"everyMinutes": 15},
        {"every_minutes": "15"},
        {"everySeconds": "900"},
        {"every_hours": 0.25},
        {"every": "15m"},
        {"interval": "15 minutes"},
        {"when": "every 15 minutes"},
        {"schedule": "every 15m"},
    ],
)
def test_an_interval_in_any_unit(fields: dict[str, object]):
    assert schedule(**fields) == EVERY_15M


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "tomorrow at 9"},
        {"schedule": {"kind": "at", "at": "tomorrow at 9"}},
        {"schedule": {"at": "tomorrow 9am", "tz": "Europe/Berlin"}},
        {"schedule": {"when": "tomorrow at 9"}},
        {"when": "tomorrow at 9", "tz": "Europe/Berlin"},
        {"at": "tomorrow at 9", "timezone": "Europe/Berlin"},
    ],
)
def test_natural_language_times_are_in_the_jobs_zone(fields: dict[str, object]):
    expected = {"kind": "at", "at": "2027-01-16T09:00", "tz": "Europe/Berlin"}
    assert schedule("Europe/Berlin", **fields) == expected


@pytest.mark.parametrize(
    "fields", [{"in": "20m"}, {"when": "in 20 minutes"}, {"in_minutes": "20"}, {"delaySeconds": 1200}]
)
def test_a_time_relative_to_now(fields: dict[str, object]):
    assert schedule(**fields) == {"kind": "at", "atMs": NOW_MS + 1_200_000}


def test_a_zone_of_its_own_stays_with_a_schedule():
    own = {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "Asia/Tokyo"}
    assert schedule(schedule=own) == own
    assert schedule(schedule={"cron": "0 9 * * 1-5", "timeZone": "Asia/Tokyo"}) == own
    at = {"kind": "at", "at": "2027-03-01T09:00", "tz": "Asia/Tokyo"}
    assert schedule(schedule=at) == at


@pytest.mark.parametrize(
    "said",
    [
        "whenever it suits", "0 25 * * *", "@daily", "2027-03-01T09:00", {"kind": "at"}, [], True,
        {"kind": "every", "everyMs": 1, "cron": "0 9 * * *"}, {"kind": "sometimes", "often": 1},
    ],
)  # fmt: skip
def test_other_schedules_are_left_to_the_service_layer(said: object):
    assert schedule(schedule=said) == said


def test_a_vague_time_is_refused_with_a_hint():
    with pytest.raises(InvalidSchedule, match=r"^schedule: 'every morning' has no time of day; write one"):
        schedule(schedule="every morning")


def test_an_unknown_zone_is_left_to_the_service_layer():
    assert schedule("Mars/Olympus", schedule="tomorrow at 9")["tz"] == "Mars/Olympus"


# --- what is missing ---------------------------------------------------------------------------------


def test_an_empty_job_is_refused():
    with pytest.raises(InvalidArgument, match="message: it is missing"):
        check_message({"schedule": "@daily"})
    for field, value in (
        ("message", "x"),
        ("payload", {}),
        ("target", {"kind": "pull"}),
        ("workflowId", "w"),
    ):
        check_message({"schedule": "@daily", field: value})


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Check the build, and tell Ada!", "check-the-build-and-tell-ada"),
        ("one two three four five six seven eight nine ten", "one-two-three-four-five-six-seven-eight"),
        ("x" * 100, "x" * 40),
        ("日本語", "job"),
        ("", "job"),
        ("Wakeful: read what is new", "job-wakeful-read-what-is-new"),
    ],
)
def test_a_name_is_generated_from_the_message(message: str, name: str):
    assert name_from(message) == name
    check_slug(f"{name}-50")
    check_not_reserved(name)


@pytest.mark.parametrize("limit", ["many", 0, -1, True])
def test_a_limit_is_a_number(limit: object):
    with pytest.raises(InvalidArgument, match="limit: write a whole number"):
        normalize({"action": "list", "limit": limit})
    assert normalize({"action": "list", "limit": "7"}).limit == 7


_NAMES = st.sampled_from(
    "action job patch jobId id name schedule when at atMs at_ms every everyMs every_minutes cron expr kind "
    "type tz message payload limit context enabled agentId cursor mode maxRuns in_days".split()
)


@pytest.mark.parametrize("field", ["schedule", "when", "at"])
def test_a_zone_in_the_text_that_contradicts_tz_is_refused(field: str):
    for said, tz, wrong in (
        ("tomorrow at 9am Europe/Berlin", "America/New_York", True),
        ("tomorrow at 9am UTC", "Asia/Tokyo", True),
        ("tomorrow at 9am Europe/Berlin", " europe/berlin ", False),
        ("tomorrow at 9am UTC", "Etc/UTC", False),
        ("tomorrow at 9am Europe/Berlin", None, False),
        ("tomorrow at 9am", "Asia/Tokyo", False),
    ):
        with pytest.raises(InvalidArgument, match="and tz is") if wrong else nullcontext():
            document({field: said, "tz": tz}, now_ms=NOW_MS, tz="Asia/Tokyo")


_SAID = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(
    ["every 15m", "tomorrow at 9", "0 9 * * *", "2027-03-01T09:00", "12", "true", '{"kind": "at"}', "{", "x"]
)  # fmt: skip
_JSON = st.recursive(
    _SAID,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from([*ACTIONS]), st.dictionaries(_NAMES | st.text(max_size=8), _JSON, max_size=6))
def test_any_arguments_are_normalized_or_refused(action: str, arguments: dict[str, object]):
    with suppress(InvalidArgument):
        asked = normalize({**arguments, "action": action})
        document(asked.fields, now_ms=NOW_MS, tz="Europe/Berlin")
