"""The words of alerts: one line for machines; for people a title, and below it the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from wakeful.run.alerts import AlertEvent, AlertJob, DueIncident, Recipients, decide, judge
from wakeful.run.incidents import Incident
from wakeful.run.run import NewRun
from wakeful.store.internal_jobs import AGENT_ALERTS, AGENT_CHANNEL

AT = 1_741_392_000_250  # 2025-03-08T00:00:00.250Z
WEBHOOK = AlertJob("s1", "ops", AGENT_ALERTS, "{}")
CHANNEL = AlertJob("s2", "ops", AGENT_CHANNEL, "{}")


def event(kind: str, *, senders: tuple[Any, ...] = (WEBHOOK, CHANNEL), **given: Any) -> AlertEvent:
    fields: dict[str, Any] = {
        "id": 1, "at_ms": AT, "kind": kind, "workspace": "acme", "agent": "ops", "job_id": "j1",
        "run_id": "r1", "times": 3, "details": "{}", "job_name": "digest", **given,
    }  # fmt: skip
    return AlertEvent(**fields, recipients=Recipients("{}", *senders))


def incident(**given: Any) -> DueIncident:
    row = Incident("i1", "acme", "ops", "j1", "digest", "http 503", "HTTP 503", AT, AT, 3, 3, "r1", "r1")
    return DueIncident(row._replace(**given), None, Recipients("{}", WEBHOOK, CHANNEL))


def payloads(runs: Sequence[NewRun]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a message says to machines, and what it says to people."""
    machines, people = (json.loads(run.payload or "") for run in runs)
    return machines, people


def judged(event: AlertEvent) -> tuple[dict[str, Any], dict[str, Any]]:
    (alert,) = judge(event, AT)
    return payloads(alert.runs)


def decided(due: DueIncident) -> tuple[dict[str, Any], dict[str, Any]]:
    return payloads(decide(due, AT).runs)


def test_a_failure_says_what_is_wrong_first():
    machines, people = decided(incident())
    assert machines["message"] == "job 'digest' of agent 'ops' has failed 3 times in a row: HTTP 503"
    assert people == {
        "title": "Wakeful: job 'digest' of agent 'ops' has failed 3 times in a row",
        "body": "HTTP 503\n\nworkspace acme\nincident i1\nrun r1\n2025-03-08 00:00:00 UTC",
        "kind": "failure",
    }
    machines, people = decided(incident(in_a_row=1))
    assert machines["message"] == (
        "a run of job 'digest' of agent 'ops' is a dead letter; replay or discard it: HTTP 503"
    )
    assert people["title"] == "Wakeful: a run of job 'digest' of agent 'ops' is a dead letter"
    assert people["body"].startswith("HTTP 503\nReplay or discard it\n\n")


def test_a_recovery_is_no_failure():
    _, people = decided(incident(notified=True, closed_ms=AT, closed_reason="succeeded", closed_by_run="r4"))
    assert people == {
        "title": "Wakeful: job 'digest' of agent 'ops' has recovered after 3 failed runs (http 503)",
        "body": "workspace acme\nincident i1\nrun r4\n2025-03-08 00:00:00 UTC",
        "kind": "success",
    }


def test_missed_ticks_and_a_reached_budget_are_described():
    missed, people = judged(event("missed", times=59))
    assert missed["message"] == "job 'digest' of agent 'ops' missed 59 ticks: no replica was running"
    assert people["title"] == "Wakeful: job 'digest' of agent 'ops' missed 59 ticks"
    assert people["body"].startswith("No replica was running\n\nworkspace acme\n")
    details = '{"cap":"costPerDay","most":5.0,"used":5.25}'
    spent, people = judged(
        event("budget", agent="", job_id=None, job_name=None, run_id=None, details=details)
    )
    assert people["title"] == (
        "Wakeful: workspace 'acme' has used 5.25 cost today; its budget is 5 (costPerDay)"
    )
    assert people["body"] == (
        "Its ticks are skipped until midnight UTC\n\nworkspace acme\n2025-03-08 00:00:00 UTC"
    )
    assert spent["message"].endswith("(costPerDay); its ticks are skipped until midnight UTC")


def test_a_long_error_is_shortened_more_for_a_telephone():
    machines, people = decided(incident(error="x" * 2_000))
    assert machines["message"].endswith("row: " + "x" * 500)
    assert people["body"].split("\n")[0] == "X" + "x" * 298 + "…"


def test_a_failure_without_an_error_has_no_second_line():
    _, people = decided(incident(error=None))
    assert people["body"].startswith("workspace acme\n")


@pytest.mark.parametrize(
    ("senders", "names"),
    [((WEBHOOK, None), [AGENT_ALERTS]), ((None, CHANNEL), [AGENT_CHANNEL]), ((None, None), None)],
)
def test_alerts_go_only_to_configured_destinations(senders: tuple[Any, ...], names: list[str] | None):
    alerts = judge(event("missed", senders=senders), AT)
    assert [[run.job_name for run in alert.runs] for alert in alerts] == ([] if names is None else [names])
