"""Why a job does not run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wakeful.document import Defaults, read_definition
from wakeful.job.job import JobRecord
from wakeful.job.start_rules import Requirement
from wakeful.service.jobs.job_details import JobFacts, blockers

FACTS = JobFacts(0)


def job(document: dict[str, Any] | None = None, **fields: Any) -> JobRecord:
    given = {"name": "digest", "schedule": "@daily", "target": {"kind": "echo"}, **(document or {})}
    made = {
        "id": "j1", "workspace": "default", "agent": "writer", "enabled": True, "anchor_ms": 0, "next_ms": 5,
        "wake_ms": 5, "created_ms": 0, "updated_ms": 0, **fields,
    }  # fmt: skip
    return JobRecord(definition=read_definition(given, now_ms=0, defaults=Defaults()), **made)


def texts(found: JobRecord, facts: JobFacts = FACTS) -> list[str]:
    return [each.text for each in blockers(found, facts)]


def test_a_job_that_runs_has_no_reason() -> None:
    assert blockers(job(), JobFacts(0, slots=(29, 30))) == []


@pytest.mark.parametrize(
    ("reason", "text", "remedy"),
    [
        ("paused", "The job is paused", "resume"),
        ("agent_inactive", "Its agent is not active", "agent"),
        ("approval", "It waits for approval", "resume"),
        ("failed", "It was disabled because it failed", "resume"),
        ("gone", "its receiver answered 410", "edit"),
        ("max_runs", "as often as maxRuns allows", "edit"),
        ("no_more_ticks", "has no more ticks", "edit"),
        ("something_new", "It is disabled: something new", "resume"),
    ],
)
def test_every_way_to_be_disabled_says_what_to_do(reason: str, text: str, remedy: str) -> None:
    (found,) = blockers(job(enabled=False, disabled_reason=reason, next_ms=None), FACTS)
    assert text in found.text
    assert (found.remedy, found.blocks) == (remedy, True)
    assert found.advice


def test_a_pause_has_its_note_and_its_end() -> None:
    paused = job(enabled=False, disabled_reason="paused", pause_note="maintenance", pause_until_ms=60_000)
    (found,) = blockers(paused, FACTS)
    assert found.text == "The job is paused: maintenance"
    assert found.advice.startswith("It resumes by itself at 1970-01-01T00:01:00.000Z.")


def test_a_job_without_a_schedule_runs_on_request_only() -> None:
    wakes = job(next_ms=None)  # an internal job
    wakes = replace(wakes, definition=replace(wakes.definition, timing=None))
    (found,) = blockers(wakes, FACTS)
    assert (found.text, found.blocks) == ("It has no schedule", False)
    assert texts(job({"schedule": None, "after": "extract"}, next_ms=None)) == []


def test_what_keeps_runs_from_starting_is_named() -> None:
    assert texts(job(), JobFacts(0, budget="job 'digest' used $5"))[0].startswith("A budget is used up")
    assert texts(job(), JobFacts(0, unmet=Requirement("function:digest"))) == [
        "No running process can launch it"
    ]
    assert texts(job(), JobFacts(0, workers=False)) == ["No process that starts runs is alive"]
    assert texts(job(), JobFacts(0, slots=(30, 30))) == ["Lane cron is full (30 of 30)"]


def test_a_pull_job_needs_an_executor_and_no_worker() -> None:
    pull = job({"target": {"kind": "pull"}})
    assert texts(pull, JobFacts(0, workers=False, slots=(30, 30))) == []
    (text,) = texts(pull, JobFacts(0, executor=False))
    assert text.startswith("No executor has asked for runs of agent writer")
