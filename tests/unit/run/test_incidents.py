"""Incidents and their messages, from the first failure to the recovery.

The cause of a failure is the same for each failure of one kind, and another for each kind.
"""

from __future__ import annotations

import json
import string
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful.run.alerts import AlertJob, DueIncident, Notification, Recipients, decide
from wakeful.run.incidents import (
    MAX_CAUSE,
    REMIND_AFTER_MS,
    REOPEN_WITHIN_MS,
    Incident,
    IncidentJob,
    IncidentLog,
    acknowledge,
    close,
    failure_cause,
    recover,
)
from wakeful.run.outcome import Finished
from wakeful.store.internal_jobs import AGENT_ALERTS

AT = 1_741_392_000_250  # 2025-03-08T00:00:00.250Z
HOUR, DAY = 3_600_000, 86_400_000
JOB = IncidentJob("j1", "acme", "ops", "digest", has_alerts=True)
HEX = "0123456789abcdef"
VARIABLE = st.one_of(
    st.integers(0, 10**12).map(str),
    st.uuids().map(str),
    st.datetimes().map(lambda at: at.isoformat()),
    st.ip_addresses(v=4).map(str),
    st.tuples(st.ip_addresses(v=4), st.integers(1, 65535)).map(lambda each: f"{each[0]}:{each[1]}"),
    st.integers(0, 2**64).map(hex),
    st.text(string.ascii_letters, min_size=1, max_size=9).map(lambda text: f"'{text}'"),
    st.text(string.ascii_letters, min_size=1, max_size=9).map(lambda text: f"https://{text}.example/x?y"),
    st.text(HEX, min_size=6, max_size=40).map(lambda text: f"7{text}"),
)
TEXTS = [
    "could not read order {} of customer {}",
    "worker {} lost the connection to {}",
    "no space left for {}",
    "{} is not a valid date",
]


class World:
    """One job with its incidents, and the messages that were sent."""

    def __init__(self, **settings: object) -> None:
        self.settings: dict[str, object] | None = settings
        self.incidents: dict[str, Incident] = {}
        self.sent: list[tuple[str, str]] = []
        self.now = AT
        self.in_a_row = 0

    def ends(self, state: str, reason: str = "timeout") -> None:
        """End a run of the job, and let the alerter work."""
        log = IncidentLog({"j1": JOB}, self.incidents.values(), lambda _: f"i{len(self.incidents)}")
        run = Finished(f"r{self.now}", "j1", 1, state, self.now, self.now, error="no", reason=reason)
        self.in_a_row = self.in_a_row + 1 if state == "failed" else 0
        if state == "failed":
            log.add_failure(run, self.in_a_row)
        else:
            log.recover_job(run)
        self.incidents.update((change.incident.id, change.incident) for change in log.changes())

    def alerter(self) -> None:
        """Decide about all incidents that are due."""
        for incident in list(self.incidents.values()):
            if incident.notify_ms is not None and incident.notify_ms <= self.now:
                same = [each for each in self.incidents.values() if each.cause == incident.cause]
                alerted = max((each.alerted_ms for each in same if each.alerted_ms), default=None)
                done = decide(DueIncident(incident, alerted, self.recipients()), self.now)
                self.incidents[incident.id] = done.incident
                self.sent += [(kind_of(run.payload), incident.cause) for run in done.runs]

    def recipients(self) -> Recipients:
        """Return the alert settings with a webhook."""
        if self.settings is None:
            return Recipients()
        return Recipients(json.dumps(self.settings), AlertJob("s1", "ops", AGENT_ALERTS, "{}"))

    def step(self, state: str | None = None, reason: str = "timeout", after: int = 60_000) -> None:
        """Let some time pass, end a run, and let the alerter work."""
        self.now += after
        if state is not None:
            self.ends(state, reason)
        self.alerter()

    def kinds(self) -> list[str]:
        """Return the kinds of the sent messages."""
        return [kind for kind, _ in self.sent]


def kind_of(payload: str | None) -> str:
    return str(json.loads(payload or "{}")["kind"])


def test_three_failures_are_one_alert_one_reminder_and_one_recovery():
    world = World()
    for _ in range(3):
        world.step("failed")
    assert world.kinds() == ["dead_letter"]
    (incident,) = world.incidents.values()
    assert (incident.state, incident.failed_runs, incident.cause) == ("open", 3, "timeout")
    world.step(after=DAY - 120_001)
    assert world.kinds() == ["dead_letter"]
    world.step(after=1)
    assert world.kinds() == ["dead_letter", "reminder"]
    world.step("failed", after=3 * DAY)
    world.step("succeeded")
    world.step("succeeded")
    assert world.kinds() == ["dead_letter", "reminder", "recovered"]
    assert [each.state for each in world.incidents.values()] == ["recovered"]


def test_the_alert_waits_for_the_number_of_failures_in_a_row():
    world = World(failures=3, deadLetter=False)
    world.step("failed")
    world.step("failed")
    world.step("succeeded")
    assert world.sent == []
    for _ in range(4):
        world.step("failed")
    assert world.kinds() == ["failures"]
    world.step("succeeded")
    assert world.kinds() == ["failures", "recovered"]


def test_another_cause_is_another_incident_with_its_own_alert():
    world = World()
    world.step("failed", "timeout")
    world.step("failed", "lost")
    world.step("failed", "timeout")
    assert world.sent == [("dead_letter", "timeout"), ("dead_letter", "lost")]
    world.step("succeeded")
    assert sorted(world.sent[2:]) == [("recovered", "lost"), ("recovered", "timeout")]


@pytest.mark.parametrize("flaps", [False, True])
def test_a_job_that_fails_in_another_way_each_time_has_few_incidents(flaps: bool):
    world = World()
    for number in range(50):
        world.step("failed", f"reason_{number}", after=1_000)
        if flaps:
            world.step("succeeded", after=1_000)
    causes = [f"reason_{number}" for number in range(20)]
    assert [each.cause for each in world.incidents.values()] == [*causes, "other causes"]
    assert [each.failed_runs for each in world.incidents.values()] == [*[1] * 20, 30]
    world.step("failed", "reason_0")
    assert world.incidents["i0"].failed_runs == 2
    world.step("succeeded")
    assert {each.state for each in world.incidents.values()} == {"recovered"}


def test_an_acknowledged_incident_has_no_reminder_and_one_recovery():
    world = World()
    world.step("failed")
    (incident,) = world.incidents.values()
    world.incidents[incident.id] = acknowledge(incident, world.now, "ada", "known")
    world.step("failed")
    world.step("failed", after=2 * DAY)
    assert world.kinds() == ["dead_letter"]
    assert [each.state for each in world.incidents.values()] == ["acknowledged"]
    world.step("succeeded")
    assert world.kinds() == ["dead_letter", "recovered"]


def test_an_incident_that_is_acknowledged_before_its_alert_has_none():
    world = World()
    world.now += 1
    world.ends("failed")
    (incident,) = world.incidents.values()
    world.incidents[incident.id] = acknowledge(incident, world.now, "ada", None)
    world.step("failed")
    world.step("succeeded")
    assert world.sent == []


def test_a_flapping_job_reopens_its_incident_and_alerts_once_per_cooldown():
    world = World(cooldownMs=HOUR)
    for _ in range(10):
        world.step("failed")
        world.step("succeeded")
    assert world.kinds() == ["dead_letter", "recovered"]
    (incident,) = world.incidents.values()
    assert (incident.failed_runs, incident.reopened) == (10, 9)
    world.step("failed")
    world.step(after=HOUR)
    assert world.kinds() == [
        "dead_letter",
        "recovered",
        "dead_letter",
    ]  # it is still open after the cool-down
    world.step("succeeded")
    assert world.kinds()[3:] == ["recovered"]


def test_a_failure_long_after_the_recovery_is_a_new_incident():
    world = World()
    world.step("failed")
    world.step("succeeded")
    world.step("failed", after=REOPEN_WITHIN_MS + 1)
    assert [each.state for each in world.incidents.values()] == ["recovered", "open"]
    assert world.kinds() == ["dead_letter", "recovered", "dead_letter"]


def test_a_reopened_incident_is_not_acknowledged():
    world = World()
    world.step("failed")
    (incident,) = world.incidents.values()
    world.incidents[incident.id] = acknowledge(incident, world.now, "ada", "known")
    world.step("succeeded")
    world.step("failed")
    (incident,) = world.incidents.values()
    assert (incident.state, incident.acknowledged_by, incident.note) == ("open", None, None)


def test_a_recovery_before_the_alerter_works_sends_the_alert_and_the_recovery():
    world = World()
    world.now += 1
    world.ends("failed")
    world.now += 1
    world.ends("succeeded")
    world.alerter()
    assert world.kinds() == ["dead_letter", "recovered"]


def test_a_failure_before_the_recovery_is_sent_sends_nothing():
    world = World()
    world.step("failed")
    world.now += 1
    world.ends("succeeded")
    world.now += 1
    world.ends("failed")
    world.alerter()
    assert world.kinds() == ["dead_letter"]
    world.step(after=REMIND_AFTER_MS)
    for state in ("succeeded", "failed"):
        world.now += 1
        world.ends(state)
    world.step(after=REMIND_AFTER_MS)
    world.step("succeeded")
    assert world.kinds() == ["dead_letter", "reminder", "recovered"]


def test_a_closed_incident_sends_no_recovery():
    world = World()
    world.step("failed")
    (incident,) = world.incidents.values()
    world.incidents[incident.id] = close(incident, world.now, "job_deleted")
    world.step(after=2 * DAY)
    assert world.kinds() == ["dead_letter"]
    assert world.incidents[incident.id].state == "closed"


def test_without_alert_settings_nothing_is_sent():
    world = World()
    world.settings = None
    world.step("failed")
    world.step(after=DAY)
    world.step("succeeded")
    assert world.sent == []
    assert [each.notify_ms for each in world.incidents.values()] == [None]


@pytest.mark.parametrize("has_alerts", [True, False])
def test_a_failure_is_due_for_the_alerter_only_with_alert_settings(has_alerts: bool):
    log = IncidentLog({"j1": JOB._replace(has_alerts=has_alerts)}, [], lambda _: "i1")
    log.add_failure(Finished("r1", "j1", 1, "failed", AT, AT), 1)
    (change,) = log.changes()
    assert change.incident.notify_ms == (AT if has_alerts else None)


def test_text_that_cannot_be_stored_is_replaced():
    log = IncidentLog({"j1": JOB}, [], lambda _: "i1")
    log.add_failure(Finished("r1", "j1", 1, "failed", AT, AT, error="a\x00b"), 1)
    (change,) = log.changes()
    assert (change.incident.cause, change.incident.error) == ("a\ufffdb", "a\ufffdb")


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["failed", "succeeded", "ack", None]),
        st.sampled_from(["timeout", "lost"]),
        st.sampled_from([1, 60_000, HOUR, DAY]),
        st.booleans(),
    ),
    max_size=30,
)


@given(EVENTS, st.sampled_from([0, HOUR, DAY]), st.integers(1, 3), st.booleans())
def test_messages_alternate_and_reminders_follow_an_alert(
    events: list[tuple[str | None, str, int, bool]], cooldown_ms: int, failures: int, dead_letter: bool
) -> None:
    """For each cause: an alert, at most one reminder, a recovery, and again."""
    world = World(cooldownMs=cooldown_ms, failures=failures, deadLetter=dead_letter)
    for what, cause, after, works in events:
        world.now += after
        if what == "ack":
            for each in world.incidents.values():
                if each.state == "open":
                    world.incidents[each.id] = acknowledge(each, world.now, "ada", None)
        elif what is not None:
            world.ends(what, cause)
        if works:
            world.alerter()
    world.alerter()
    for cause in ("timeout", "lost"):
        letters = {"reminder": "r", "recovered": "v"}
        kinds = "".join(letters.get(kind, "a") for kind, of in world.sent if of == cause)
        rest = kinds.replace("arv", "").replace("av", "")
        assert rest in ("", "a", "ar")
        opened = [each for each in world.incidents.values() if each.cause == cause and each.is_open]
        assert len(opened) <= 1
        assert (rest != "") == any(each.notified for each in opened)


def test_a_recovery_keeps_who_acknowledged_it():
    incident = Incident("i1", "acme", "ops", "j1", "digest", "lost", None, AT, AT, 1, 1, "r1", "r1")
    done = recover(acknowledge(incident, AT + 1, "ada", "known"), "r2", AT + 2)
    assert (done.state, done.acknowledged_by, done.closed_by_run) == ("recovered", "ada", "r2")


def messages(incident: Incident, **settings: object) -> list[dict[str, Any]]:
    world = World(**settings)
    done: Notification = decide(DueIncident(incident, None, world.recipients()), AT)
    return [json.loads(run.payload or "") for run in done.runs]


def test_a_webhook_gets_the_incident_and_its_cause():
    incident = Incident(
        "i1", "acme", "ops", "j1", "digest", "http 503", "HTTP 503", AT, AT, 3, 3, "r1", "r3", notify_ms=AT
    )
    assert messages(incident) == [
        {
            "kind": "failures",
            "workspace": "acme",
            "agent": "ops",
            "job": "digest",
            "run": "r3",
            "count": 3,
            "message": "job 'digest' of agent 'ops' has failed 3 times in a row: HTTP 503",
            "at": "2025-03-08T00:00:00.250Z",
            "incident": "i1",
            "cause": "http 503",
        }
    ]
    (reminder,) = messages(incident._replace(notified=True))
    assert reminder["message"] == (
        "job 'digest' of agent 'ops' still fails: 3 failed runs since 2025-03-08 00:00 UTC; acknowledge the "
        "incident if you know of it: wakeful incidents ack i1: HTTP 503"
    )
    (recovered,) = messages(recover(incident._replace(notified=True), "r4", AT + 1))
    assert (recovered["kind"], recovered["run"], recovered["count"]) == ("recovered", "r4", 3)
    assert recovered["message"] == "job 'digest' of agent 'ops' has recovered after 3 failed runs (http 503)"


@given(st.sampled_from(TEXTS), st.lists(VARIABLE, min_size=4, max_size=4))
@example(TEXTS[0], ["1", "2", "3.5", "4e9"])
def test_the_same_failure_with_other_ids_numbers_and_addresses_has_the_same_cause(
    text: str, values: list[str]
) -> None:
    first, again = text.format(*values[:2]), text.format(*values[2:])
    assert failure_cause(None, None, first) == failure_cause(None, None, again)


@given(st.lists(st.sampled_from(TEXTS), min_size=2, max_size=2, unique=True), VARIABLE, VARIABLE)
def test_other_texts_are_other_causes(texts: list[str], one: str, two: str) -> None:
    first, second = (failure_cause(None, None, text.format(one, two)) for text in texts)
    assert first != second


@given(st.none() | st.text(max_size=20), st.none() | st.integers(100, 599), st.none() | st.text())
def test_every_failure_has_a_short_cause(reason: str | None, code: int | None, error: str | None) -> None:
    cause = failure_cause(reason, code, error)
    assert 0 <= len(cause) <= MAX_CAUSE
    assert "\n" not in cause or reason


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (("http", 500, "HTTP 500 Internal Server Error: trace 81"), "http 500"),
        (("http", 503, "HTTP 503 Service Unavailable"), "http 503"),
        (("gone", 410, "HTTP 410 Gone"), "http 410"),
        (("timeout", None, "timed out after 30 s"), "timeout"),
        (("timeout", 202, "not completed in time"), "timeout"),
        (("lost", None, "worker host:81:0a1b is lost"), "lost"),
        (("address_refused", None, "10.0.0.1 is a private address"), "address_refused"),
        (("unverified", None, "no evidence"), "unverified"),
        (("exit", None, "exit 2: usage: x"), "exit 2"),
        (("exit", None, "exit 3: usage: x"), "exit 3"),
        (("killed", None, "killed by SIGKILL"), "killed by SIGKILL"),
        ((None, None, "ValueError: 17 is odd"), "ValueError"),
        ((None, None, "asyncpg.exceptions.UniqueViolationError: key 9"), "UniqueViolationError"),
        (("permanent", None, "it never works"), "it never works"),
        (("permanent", None, "KeyError: 'x'"), "KeyError"),
        ((None, None, "the API said status: 429 for request 8f2e"), "the API said status: 429 for request #"),
        ((None, None, "cannot read /var/tmp/run-81/out.txt"), "cannot read #"),
        ((None, None, "first line 1\nsecond line"), "first line #"),
        ((None, None, None), "failed"),
        (("failed", None, ""), "failed"),
        (("network", None, ""), "network"),
    ],
)
def test_causes(failure: tuple[str | None, int | None, str | None], cause: str) -> None:
    assert failure_cause(*failure) == cause


@pytest.mark.parametrize(
    "part", ["a", "_a", "Aa.", "A", "a.", "a-", "a+", "/-", "/a", "a/", "//", "'", "@", "a@", ":", "1", "#,"]
)
@pytest.mark.parametrize("start", ["", "A", "Aa", "/", "#"])
def test_no_error_takes_long(start: str, part: str) -> None:
    text = f"{start}{part * (16_384 // len(part))}!"
    began = time.thread_time()
    failure_cause(None, None, text)
    failure_cause("network", None, text)
    assert time.thread_time() - began < 1.0
