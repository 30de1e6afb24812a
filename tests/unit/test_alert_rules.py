"""The words of alerts: one line for machines; for people a title, and below it the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wakeful.alert_rules import Incident, judge
from wakeful.store.alerts import AGENT_ALERTS, AGENT_CHANNEL

AT = 1_741_392_000_250  # 2025-03-08T00:00:00.250Z
WEBHOOK = ("s1", "ops", AGENT_ALERTS, "{}")
CHANNEL = ("s2", "ops", AGENT_CHANNEL, "{}")
NONE = (None, None, None, None)


def incident(kind: str, *, senders: tuple[Any, ...] = (WEBHOOK, CHANNEL), **given: Any) -> Incident:
    fields: dict[str, Any] = {
        "id": 1, "at_ms": AT, "kind": kind, "workspace": "acme", "agent": "ops", "job_id": "j1",
        "run_id": "r1", "times": 3, "details": "{}", "job_name": "digest", "error": None, "alerts": "{}",
        **given,
    }  # fmt: skip
    return Incident(*fields.values(), *senders[0], *senders[1])


def payloads(incident: Incident) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each alert, what machines and what people are told."""
    alerts = []
    for alert in judge(incident, AT):
        machines, people = (json.loads(run.payload or "") for run in alert.runs)
        alerts.append((machines, people))
    return alerts


def test_a_failure_says_what_is_wrong_first():
    (failures, _), (dead, _) = payloads(incident("failed", error="HTTP 503"))
    assert failures["message"] == "job 'digest' of agent 'ops' has failed 3 times in a row: HTTP 503"
    assert dead["message"] == (
        "a run of job 'digest' of agent 'ops' is a dead letter; replay or discard it: HTTP 503"
    )
    (_, first), (_, second) = payloads(incident("failed", error="HTTP 503"))
    assert first == {
        "title": "Wakeful: job 'digest' of agent 'ops' has failed 3 times in a row",
        "body": "HTTP 503\n\nworkspace acme\nrun r1\n2025-03-08 00:00:00 UTC",
        "kind": "failure",
    }
    assert second["title"] == "Wakeful: a run of job 'digest' of agent 'ops' is a dead letter"
    assert second["body"].startswith("HTTP 503\nReplay or discard it\n\n")


def test_missed_ticks_and_a_reached_budget_are_described():
    ((missed, people),) = payloads(incident("missed", times=59))
    assert missed["message"] == "job 'digest' of agent 'ops' missed 59 ticks: no replica was running"
    assert people["title"] == "Wakeful: job 'digest' of agent 'ops' missed 59 ticks"
    assert people["body"].startswith("No replica was running\n\nworkspace acme\n")
    details = '{"cap":"costPerDay","most":5.0,"used":5.25}'
    ((spent, people),) = payloads(
        incident("budget", agent="", job_id=None, job_name=None, run_id=None, details=details)
    )
    assert people["title"] == (
        "Wakeful: workspace 'acme' has used 5.25 cost today; its budget is 5 (costPerDay)"
    )
    assert people["body"] == (
        "Its ticks are skipped until midnight UTC\n\nworkspace acme\n2025-03-08 00:00:00 UTC"
    )
    assert spent["message"].endswith("(costPerDay); its ticks are skipped until midnight UTC")


def test_a_long_error_is_shortened_more_for_a_telephone():
    ((machines, people), _) = payloads(incident("failed", error="x" * 2_000))
    assert machines["message"].endswith("row: " + "x" * 500)
    assert people["body"].split("\n")[0] == "X" + "x" * 298 + "…"


def test_a_failure_without_an_error_has_no_second_line():
    ((_, people), _) = payloads(incident("failed"))
    assert people["body"].startswith("workspace acme\n")


@pytest.mark.parametrize(
    ("senders", "names"),
    [((WEBHOOK, NONE), [AGENT_ALERTS]), ((NONE, CHANNEL), [AGENT_CHANNEL]), ((NONE, NONE), None)],
)
def test_alerts_go_only_to_configured_destinations(senders: tuple[Any, ...], names: list[str] | None):
    alerts = judge(incident("missed", senders=senders), AT)
    assert [[run.job_name for run in alert.runs] for alert in alerts] == ([] if names is None else [names])
