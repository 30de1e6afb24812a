"""No argument is dropped: what an action cannot use is reported, and what is given twice too."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.service.cron_tool.test_normalize_arguments import (
    EVERY_15M,
    LATER,
    LATER_S,
    NINE,
    NOW_MS,
    schedule,
)
from wakeful import InvalidArgument
from wakeful.document import Defaults, read_definition, write_definition
from wakeful.service.cron_tool.normalize_arguments import document, normalize

_EVERY_FIELD = {
    name: value
    for name, value in write_definition(
        read_definition(
            {
                "name": "a",
                "schedule": "@daily",
                "message": "x",
                "channel": "c",
                "to": "t",
                "budget": {"tokensPerDay": 5},
                "activeHours": "08:00-22:00",
                "exclude": ["2030-12-24"],
                "labels": {"a": "b"},
                "endAt": "2040-01-01T00:00Z",
                "maxRuns": 5,
                "disableAfter": 3,
                "dstGap": "skip",
                "dstOverlap": "both",
                "timeoutMs": 5_000,
                "payload": {"a": 1},
            },
            now_ms=NOW_MS,
            defaults=Defaults(),
        )
    ).items()
    if value is not None
}


def _quoted(value: object) -> object:
    """The value as a model may write it: everything in quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def test_every_field_of_a_job_is_understood_flat_nested_quoted_and_in_snake_case():
    snake = {re.sub("([A-Z])", r"_\1", name).lower(): value for name, value in _EVERY_FIELD.items()}
    quoted = {name: _quoted(value) for name, value in snake.items()}
    assert len(_EVERY_FIELD) > 25
    for arguments in (_EVERY_FIELD, snake, quoted, {"job": snake}, {"job": json.dumps(_EVERY_FIELD)}):
        asked = normalize({"action": "add", **arguments})
        assert not asked.problems
        made = document(asked.fields, now_ms=NOW_MS, tz="UTC")
        assert made == _EVERY_FIELD


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"action": "list", "state": "paused"}, "state: the action list takes no such argument; it takes"),
        ({"action": "list", "jobId": "a"}, "jobId: the action list takes no such argument"),
        ({"action": "status", "limit": 3}, "limit: the action status takes no such argument; it takes no"),
        ({"action": "run", "jobId": "a", "message": "x"}, "message: the action run takes no such argument"),
        ({"action": "remove", "jobId": "a", "cursor": "b"}, "cursor: the action remove takes no such"),
        ({"action": "get", "jobId": "a", "id": "b"}, "jobId: two jobs are named; name one"),
        ({"action": "update", "jobId": "a", "prompt": "x", "message": "y"}, "message: it is given twice, as"),
        ({"action": "update", "jobId": "a", "max_runs": 1, "maxRuns": 2}, "maxRuns: it is given twice, as"),
        ({"action": "update", "jobId": "a", "tz": "UTC", "job": {"tz": "Asia/Tokyo"}}, "tz: it is given"),
        ({"action": "update", "jobId": "a", "patch": "later"}, "patch: give an object"),
    ],
)
def test_an_argument_that_an_action_does_not_take_is_reported(arguments: dict[str, object], says: str):
    with pytest.raises(InvalidArgument) as refused:
        normalize(arguments)
    assert says in refused.value.message


def test_all_errors_are_reported_together():
    with pytest.raises(InvalidArgument) as refused:
        normalize({"action": "list", "limit": "many", "state": "x", "agentId": ""})
    assert [line.partition(":")[0] for line in refused.value.message.split("\n")] == [
        "state", "agentId", "limit",
    ]  # fmt: skip


def test_empty_arguments_are_ignored():
    """Clients that must fill in every argument of the schema send empty ones."""
    asked = normalize(
        {"action": "list", "jobId": "", "job": {}, "mode": None, "cursor": "", "context": {}, "message": ""}
    )
    assert (asked.job, asked.cursor) == (None, None)


@pytest.mark.parametrize("name", ["id", "jobId"])
def test_an_id_of_a_new_job_is_its_name(name: str):
    asked = normalize({"action": "add", name: "check-build", "message": "x"})
    assert dict(asked.fields) == {"name": "check-build", "message": "x"}
    assert "jobId" in normalize({"action": "add", "jobId": "a", "name": "b"}).problems


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "@daily", "at": "tomorrow at 9"},
        {"kind": "every", "schedule": {"kind": "cron", "expr": "0 9 * * *"}},
        {"schedule": {"cron": "0 9 * * *", "expr": "0 8 * * *"}},
    ],
)
def test_a_schedule_that_is_given_twice_is_refused(fields: dict[str, object]):
    with pytest.raises(InvalidArgument, match="given twice"):
        schedule(**fields)


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"kind": "every", "everyMs": "900000"}, EVERY_15M),
        ({"kind": "every", "schedule": "15m"}, EVERY_15M),
        ({"kind": "cron", "schedule": "0 9 * * 1-5"}, NINE),
        ({"kind": "at", "schedule": LATER_S}, LATER),
    ],
)
def test_a_flat_kind_goes_with_the_schedule(fields: dict[str, object], meant: object):
    assert schedule(**fields) == meant


def test_a_kind_that_contradicts_the_schedule_is_left_to_the_service_layer():
    said = {"kind": "at", "everyMs": 900_000}
    assert schedule(schedule=said) == said
    assert schedule(**said) == said
    assert document({"kind": "webhook"}, now_ms=NOW_MS, tz="UTC") == {"kind": "webhook"}
