"""Registering agent classes: what is checked, what is reported, and what the database gets."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest

from wakeful import Agent, Schedule, Signal, on
from wakeful.agents.class_registry import ClassRegistry, read_class
from wakeful.agents.schedules import read_schedule
from wakeful.document import Defaults, policy_from_text
from wakeful.errors import AlreadyExists, InvalidArgument
from wakeful.job.policy import Backoff, Policy
from wakeful.schedule.schedules import CronSchedule


class Report(Agent):
    name = "daily-report"
    state: ClassVar[Any] = {"count": 0}
    schedules: ClassVar[Any] = [
        Schedule("0 6 * * *", "report.generate", job_id="daily", tz="America/New_York", data={"full": True}),
        Schedule(timedelta(minutes=5), Signal("report.check", [1]), timeout="5s", catchup_policy="latest"),
    ]

    @on("report.*")
    async def handle(self, signal: Any, ctx: Any) -> None: ...


def changed(**attributes: Any) -> type[Agent]:
    return type("Changed", (Report,), attributes)


def test_a_class_has_the_defaults_of_the_contract():
    registered = read_class(Report)

    assert registered.policy == Policy(max_attempts=5, timeout_ms=60_000, backoff=Backoff(500, 30_000))
    assert (registered.version, registered.mailbox, registered.lane) == (1, 1000, "team")
    assert (registered.dedupe_ms, registered.hibernate_ms) == (7 * 86_400_000, 900_000)
    assert registered.initial_text == '{"count":0}'
    assert registered.warnings == ()


def test_the_database_gets_the_definition_of_the_class():
    agent_class = read_class(Report, "acme").agent_class

    assert agent_class[:3] == ("acme", "daily-report", 1)
    assert policy_from_text(agent_class.policy) == read_class(Report).policy
    assert agent_class.handles == ("report.*",)
    daily, check = agent_class.schedules
    options = {"maxAttempts": 5, "backoff": {"baseMs": 500, "maxMs": 30_000}, "lane": "team"}
    assert daily == (
        "daily",
        {
            **options,
            "timeoutMs": 60_000,
            "overlapPolicy": "skip",
            "catchupPolicy": "none",
            "schedule": "0 6 * * *",
            "tz": "America/New_York",
            "payload": {"full": True},
            "target": {"kind": "agent", "signal": "report.generate"},
        },
    )
    assert check == (
        "report.check",
        {
            **options,
            "overlapPolicy": "skip",
            "timeout": "5s",
            "catchupPolicy": "latest",
            "schedule": {"kind": "every", "everyMs": 300_000},
            "payload": [1],
            "target": {"kind": "agent", "signal": "report.check"},
        },
    )


def test_a_declared_schedule_becomes_the_definition_of_a_job():
    (daily, _) = read_class(Report).schedules

    definition = read_schedule(daily.document, "eu-daily", "eu", now_ms=0, defaults=Defaults(overlap="queue"))

    assert definition.timing is not None
    assert definition.timing.schedule == CronSchedule("0 6 * * *", "America/New_York")
    assert definition.work.target == {"kind": "agent", "signal": "report.generate", "instance": "eu"}
    assert (definition.name, definition.work.lane, definition.work.payload) == (
        "eu-daily",
        "team",
        {"full": True},
    )
    assert (definition.policy.overlap, definition.policy.max_attempts) == ("skip", 5)


def test_the_hash_changes_with_the_schedules_only():
    same = changed(mailbox=5, version=2)
    other = changed(schedules=[Schedule("0 7 * * *", "report.generate", job_id="daily")])
    slower = changed(timeout="2m")
    hashes = [read_class(cls).agent_class.hash for cls in (Report, same, other, slower)]

    assert hashes[0] == hashes[1]
    assert len({*hashes}) == 3


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "Daily Report"}, "class Changed: name: 'Daily Report' is not a slug"),
        ({"name": None}, "class Changed: it has no name; set name = 'daily-report'"),
        ({"version": 0}, "version: 0 is out of range"),
        ({"version": "2"}, "version: '2' is not a whole number"),
        ({"max_attempts": 0}, "maxAttempts: 0 is out of range"),
        ({"timeout": 60}, "timeout: 60 is not a duration"),
        ({"backoff": {"base": "1m"}}, "backoff: maxMs 30000 is less than baseMs 60000"),
        ({"backoff": "fast"}, "backoff: 'fast' is not an object"),
        ({"mailbox": 0}, "mailbox: 0 is out of range"),
        ({"dedupe_for": "0s"}, "dedupe_for: 0 is out of range"),
        ({"dedupe_for": 7}, "dedupe_for: 7 is not a duration"),
        ({"hibernate_after": "soon"}, "hibernate_after: 'soon' is not a duration"),
        ({"lane": "My Lane"}, "lane: 'My Lane' is not a slug"),
        ({"state": 5}, "state: 5 cannot be a state"),
        ({"state": {"tags": {1}}}, "class Changed: state: tags: set is not JSON"),
        ({"schedules": [("0 6 * * *", "report.generate")]}, "is not a schedule; write Schedule"),
        ({"schedules": Schedule("@daily", "report.a")}, r"is not a list; write \[Schedule"),
        ({"schedules": None}, "schedules: null is not a list"),
        ({"timeout": on("timeout")(lambda self: None)}, "the handler 'timeout' has the name of an attribute"),
        ({"name": on("name")(lambda self: None)}, "the handler 'name' has the name of an attribute"),
        (
            {"schedules": [Schedule("@daily", "report.a", "x"), Schedule("@hourly", "report.b", "x")]},
            "schedules: 'x' is declared twice",
        ),
    ],
)
def test_a_class_with_an_error_is_refused(attributes: dict[str, Any], message: str):
    with pytest.raises(InvalidArgument, match=message):
        read_class(changed(**attributes))


def test_attributes_are_durations_numbers_and_parts_of_a_backoff():
    cls = changed(
        timeout=timedelta(seconds=5), backoff={"base": "1s"}, hibernate_after=timedelta(0), dedupe_for="1h"
    )
    registered = read_class(cls)

    assert (registered.policy.timeout_ms, registered.policy.backoff) == (5_000, Backoff(1_000, 30_000))
    assert (registered.hibernate_ms, registered.dedupe_ms) == (0, 3_600_000)
    assert read_class(changed(timeout_ms=250)).policy.timeout_ms == 250


@pytest.mark.parametrize("cls", [Agent, int, Report(), None])
def test_what_is_no_agent_class_is_refused(cls: Any):
    with pytest.raises(InvalidArgument, match="is not an agent class"):
        read_class(cls)


def test_a_class_without_a_handler_is_refused():
    class Silent(Agent):
        name = "silent"

    with pytest.raises(InvalidArgument, match="class Silent: it has no handler"):
        read_class(Silent)


def test_one_invalid_schedule_is_reported_and_the_others_work(caplog: pytest.LogCaptureFixture):
    schedules = [
        Schedule("61 * * * *", "report.a", "expression"),
        Schedule("@daily", "report.b", "zone", tz="Mars/Olympus"),
        Schedule("@daily", "report.c", "good", tz=ZoneInfo("Europe/Berlin")),
        Schedule("@daily", "report.d", "option", overlap_policy="maybe"),
        Schedule("@daily", "report.e", "object", timeout=object()),
        Schedule("in 5m", "report.f", "relative"),
        Schedule("@daily", "other.type", "unhandled"),
    ]
    with caplog.at_level(logging.WARNING, "wakeful.agents"):
        registered = ClassRegistry().register(changed(schedules=schedules))

    bad = ["expression", "zone", "option", "object", "relative", "unhandled"]
    assert [warning.partition(":")[0] for warning in registered.warnings] == [
        f"schedule '{name}'" for name in bad
    ]
    assert len([record for record in caplog.records if "agent.schedule_invalid" in record.getMessage()]) == 6
    # All ids stay in the definition, so that jobs which exist for them are kept.
    assert [each.schedule_id for each in registered.agent_class.schedules] == [
        "expression", "zone", "good", "option", "object", "relative", "unhandled",
    ]  # fmt: skip
    readable = []
    for each in registered.schedules:
        try:
            read_schedule(each.document, "job", "eu", now_ms=0, defaults=Defaults())
        except InvalidArgument:
            continue
        readable.append(each.schedule_id)
    assert readable == ["good", "unhandled"]  # a newer version of the class may handle it


def test_a_misspelled_attribute_is_reported_with_the_name_that_is_meant(caplog: pytest.LogCaptureFixture):
    class Base(changed(max_attempt=3, mail_box=5, hibernate="1m")):  # type: ignore[misc]
        def on_hibernated(self) -> None: ...

    class Derived(Base):
        schedule = (Schedule("@daily", "report.a"),)

    with caplog.at_level(logging.WARNING, "wakeful.agents"):
        ClassRegistry().register(Derived)

    found = [record.getMessage() for record in caplog.records]
    for wrong, meant in {
        "max_attempt": "max_attempts", "mail_box": "mailbox", "hibernate": "hibernate_after",
        "on_hibernated": "on_hibernate", "schedule": "schedules",
    }.items():  # fmt: skip
        assert any(f"'{wrong}' is not a" in text and f"did you mean '{meant}'" in text for text in found)
    assert len(found) == 5


def test_attributes_of_the_user_are_not_reported(caplog: pytest.LogCaptureFixture):
    class Own(changed(regions=("eu",), TIMEOUT=5, _timeouts={}, client=object(), url="https://example.com")):  # type: ignore[misc]
        def schedule(self) -> None: ...
        def timeouts(self) -> None: ...

        @property
        def session(self) -> None: ...

        @on("report.states")
        def states(self) -> None: ...

    with caplog.at_level(logging.WARNING, "wakeful.agents"):
        ClassRegistry().register(Own)

    assert caplog.records == []


def test_classes_are_found_by_workspace_and_agent():
    registry = ClassRegistry()
    one = registry.register(Report)
    two = registry.register(changed(version=3), "acme")

    assert registry.get("default", "daily-report") is one
    assert registry.get("acme", "daily-report") is two
    assert registry.get("default", "other") is None
    assert list(registry) == [one, two]
    assert registry.capabilities == {"agent:default/daily-report": 1, "agent:acme/daily-report": 3}


def test_an_agent_has_one_class():
    registry = ClassRegistry()
    registry.register(Report)
    registry.register(Report)

    with pytest.raises(AlreadyExists, match="the agent 'daily-report' has the class Report already"):
        registry.register(changed())
