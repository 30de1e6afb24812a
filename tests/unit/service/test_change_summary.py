"""Summaries of changes: counts, bounded lists, and the scope of a workspace or an agent."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful.service import change_summary
from wakeful.service.change_summary import (
    FIGURES,
    LISTED,
    Change,
    ChangeSummary,
    Scope,
    event_json,
    figures_to_json,
    summarize,
)
from wakeful.store.stats import LiveFigures


def _run(kind: str, number: int, state: str = "running", agent: str = "ada") -> Change:
    return Change(kind, "acme", agent, f"run-{number}", f"job-{number}", state)


def test_a_run_counts_once_as_started_and_once_in_its_final_state():
    summary = ChangeSummary()
    for change in (
        _run("run.started", 1),
        _run("run.finished", 1, "retrying"),
        _run("run.started", 1),
        _run("run.finished", 1, "succeeded"),
        _run("run.finished", 1, "succeeded"),
        _run("run.finished", 2, "failed"),
    ):
        summary.add(change)
    assert summary.to_json() == {
        "runs": {"started": 1, "finished": {"failed": 1, "succeeded": 1}},
        "changed": {
            "jobs": ["job-1", "job-2"],
            "agents": ["ada"],
            "runs": ["run-1", "run-2"],
            "incidents": [],
            "suggestions": [],
        },
        "many": [],
        "kinds": ["runs"],
    }


def test_long_lists_are_cut_and_named():
    summary = ChangeSummary()
    for number in range(LISTED + 1):
        summary.add(_run("run.finished", number, "succeeded"))
    found: Any = summary.to_json()
    assert found["many"] == ["jobs", "runs"]
    assert len(found["changed"]["runs"]) == LISTED
    assert found["runs"] == {"started": 0, "finished": {"succeeded": LISTED + 1}}


def test_a_summary_that_is_never_sent_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(change_summary, "COUNTED", 3)
    summary = ChangeSummary()
    for number in range(9):
        summary.add(_run("run.started", number))
        summary.add(_run("run.finished", number, "failed"))
    assert summary.to_json()["runs"] == {"started": 3, "finished": {"failed": 3}}


def test_a_summary_has_only_the_changes_of_its_scope():
    changes = [
        _run("run.started", 1),
        _run("run.started", 2, agent="bob"),
        Change("job.changed", "other", "ada", "job-9", "job-9"),
        Change("incident.opened", "acme", "ada", "incident-1", "job-1"),
    ]
    assert not summarize(changes, Scope("nowhere", None))
    ada: Any = summarize(changes, Scope("acme", "ada")).to_json()
    assert (ada["kinds"], ada["changed"]["runs"], ada["changed"]["incidents"]) == (
        ["incidents", "runs"],
        ["run-1"],
        ["incident-1"],
    )
    acme: Any = summarize(changes, Scope("acme", None)).to_json()
    assert acme["runs"]["started"] == 2
    assert summarize(changes, Scope("other", None)).to_json()["kinds"] == ["jobs"]


def test_every_figure_has_a_name_in_the_event():
    figures = LiveFigures(1, 2, 3, 4, 5, 6, 7, None, ("dead_letters",))
    assert set(FIGURES.values()) == set(LiveFigures._fields) - {"more"}
    assert figures_to_json(figures)["more"] == ["deadLetters"]
    event: Any = event_json(9, Scope("acme", None), 0, ChangeSummary(), figures)
    assert (event["seq"], event["figures"]["deadLetters"], event["figures"]["nextTickMs"]) == (9, 4, None)
