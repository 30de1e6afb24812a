"""What becomes of suggestions: opened, refreshed, withdrawn, kept away by a decision, judged after a week."""

from __future__ import annotations

import json
from itertools import count
from time import process_time
from typing import Any

import pytest

from tests.support.run_months import DAY, SECOND, START
from wakeful.evolution.evaluation import (
    EVALUATE_UNTIL_MS,
    JobProposals,
    SuggestionChanges,
    evaluate,
    is_evaluated,
    reconcile,
)
from wakeful.evolution.rules import Proposal, RunSummary
from wakeful.evolution.suggestion import FIGURE, RuleName, Suggestion

NOW = START + 28 * DAY


def proposal(rule: RuleName = "pause_failing", figure: float = 24.0) -> Proposal:
    return Proposal(rule, {FIGURE[rule]: figure}, {"enabled": False}, {"enabled": True})


def suggestion(rule: RuleName = "pause_failing", figure: float = 24.0, **fields: Any) -> Suggestion:
    row = Suggestion(
        "s1", "default", "ops", "j1", "digest", rule, "open", json.dumps({FIGURE[rule]: figure}),
        '{"enabled":false}', '{"enabled":true}', 3, START, START,
    )  # fmt: skip
    return row._replace(**fields)


def decided(status: str, **fields: Any) -> Suggestion:
    return suggestion(**{"status": status, "decided_ms": START + DAY, "decided_by": "ada", **fields})


def job(*proposals: Proposal, **fields: Any) -> JobProposals:
    return JobProposals("j1", "digest", 3, START, proposals)._replace(**fields)


def changes(analyzed: list[JobProposals], *existing: Suggestion) -> SuggestionChanges:
    numbers = count(2)
    return reconcile("default", "ops", analyzed, existing, NOW, lambda _: f"s{next(numbers)}")


# --- analysis -------------------------------------------------------------------------------------------


def test_the_suggestions_of_many_jobs_take_little_time() -> None:
    ids = [f"j{number}" for number in range(4_000)]
    analyzed = [job(proposal(), job_id=each) for each in ids]
    existing = [decided("dismissed", job_id=each) for each in ids]
    began = process_time()
    assert changes(analyzed, *existing) == SuggestionChanges([], [], [])
    assert process_time() - began < 1, (
        "to compare each proposal with all suggestions takes many times as long"
    )


def test_a_new_proposal_becomes_an_open_suggestion() -> None:
    (new,) = changes([job(proposal())]).opened
    assert new == Suggestion(
        "s2", "default", "ops", "j1", "digest", "pause_failing", "open", '{"failedPerDay":24.0}',
        '{"enabled":false}', '{"enabled":true}', 3, NOW, NOW,
    )  # fmt: skip


def test_an_open_suggestion_that_still_holds_gets_the_new_figures_and_keeps_its_id() -> None:
    found = changes([job(proposal(figure=30.0), version=5)], suggestion())
    assert (found.opened, found.withdrawn) == ([], [])
    (new,) = found.refreshed
    assert (new.id, new.figure, new.created_ms, new.updated_ms, new.job_version) == (
        "s1",
        30.0,
        START,
        NOW,
        5,
    )


@pytest.mark.parametrize("analyzed", [[], [job()]], ids=["job-deleted", "no-proposal"])
def test_an_open_suggestion_that_no_longer_holds_is_withdrawn(analyzed: list[JobProposals]) -> None:
    found = changes(analyzed, suggestion())
    assert [(each.id, each.status, each.decided_ms) for each in found.withdrawn] == [("s1", "withdrawn", NOW)]


@pytest.mark.parametrize("status", ["dismissed", "rolled_back"])
def test_a_decision_holds_while_figures_and_job_stay(status: str) -> None:
    assert changes([job(proposal(figure=35.9))], decided(status)) == SuggestionChanges([], [], [])


@pytest.mark.parametrize("status", ["dismissed", "rolled_back"])
def test_a_suggestion_returns_when_its_figure_is_half_as_bad_again(status: str) -> None:
    assert len(changes([job(proposal(figure=36.0))], decided(status)).opened) == 1


@pytest.mark.parametrize("status", ["dismissed", "rolled_back"])
def test_a_suggestion_returns_when_its_job_was_changed_since(status: str) -> None:
    assert len(changes([job(proposal(), updated_ms=START + DAY + 1)], decided(status)).opened) == 1
    assert changes([job(proposal(), updated_ms=START + DAY)], decided(status)).opened == []


def test_a_decision_about_one_rule_or_job_does_not_hold_for_another() -> None:
    other_job = decided("dismissed", job_id="j2")
    other_rule = decided("dismissed", rule="raise_timeout", figure=1e9)
    assert len(changes([job(proposal())], other_job, other_rule).opened) == 1


def test_an_applied_suggestion_is_evaluated_before_the_rule_suggests_more() -> None:
    assert changes([job(proposal())], decided("applied")).opened == []
    assert len(changes([job(proposal())], decided("applied", evaluated_ms=NOW)).opened) == 1
    assert len(changes([job(proposal(), version=4)], decided("applied")).opened) == 1


# --- evaluation -----------------------------------------------------------------------------------------


def since(**fields: Any) -> RunSummary:
    return RunSummary(START, NOW, ticks=100, started=100, succeeded=100)._replace(**fields)


@pytest.mark.parametrize(
    ("rule", "before", "runs", "verdict", "after"),
    [
        ("stagger_peak", 60_000, since(delay_ms=4_000), "improved", 4_000),
        ("stagger_peak", 60_000, since(delay_ms=64_000), "unchanged", 64_000),
        ("stagger_peak", 60_000, since(delay_ms=90_000), "worse", 90_000),
        ("widen_interval", 0.5, since(overlapped=0), "improved", 0.0),
        ("widen_interval", 0.5, since(overlapped=53), "unchanged", 0.53),
        ("widen_interval", 0.5, since(overlapped=67), "worse", 0.67),
        ("raise_timeout", 30_000, since(), "improved", 0),
        # as many timeouts as before, and each takes twice as long
        ("raise_timeout", 30_000, since(succeeded=0, failed=100, timed_out=100), "worse", 60_000),
        ("raise_timeout", 30_000, since(succeeded=50, failed=50, timed_out=50), "unchanged", 30_000),
        ("pause_failing", 24.0, RunSummary(), "improved", 0.0),
    ],
)
def test_the_figure_is_compared_with_the_time_since(
    rule: RuleName, before: float, runs: RunSummary, verdict: str, after: float
) -> None:
    applied = suggestion(rule, before, status="applied", decided_ms=NOW - 7 * DAY)
    found = evaluate(applied, 3, runs, 60 * SECOND, NOW)
    assert found._asdict() == {
        "verdict": verdict, "figure": FIGURE[rule], "before": before, "after": after, "ticks": runs.ticks,
    }  # fmt: skip


def test_it_is_too_early_without_time_or_ticks() -> None:
    applied = suggestion("widen_interval", 0.5, status="applied", decided_ms=NOW - 2 * DAY)
    assert evaluate(applied, 3, since(), None, NOW).verdict == "too_early"
    applied = applied._replace(decided_ms=NOW - 7 * DAY)
    assert evaluate(applied, 3, since(ticks=4), None, NOW).verdict == "too_early"


@pytest.mark.parametrize("version", [4, None], ids=["changed", "deleted"])
def test_a_job_that_was_changed_since_is_not_judged(version: int | None) -> None:
    applied = suggestion("widen_interval", 0.5, status="applied", decided_ms=NOW - 7 * DAY)
    assert evaluate(applied, version, since(overlapped=90), None, NOW).verdict == "superseded"


def test_only_applied_suggestions_of_the_last_weeks_are_evaluated() -> None:
    applied = decided("applied", decided_ms=NOW - 7 * DAY)
    assert is_evaluated(applied, NOW)
    assert is_evaluated(applied._replace(evaluation='{"verdict":"unchanged"}'), NOW)
    assert not is_evaluated(applied._replace(evaluation='{"verdict":"superseded"}'), NOW)
    assert not is_evaluated(applied._replace(decided_ms=NOW - EVALUATE_UNTIL_MS - 1), NOW)
    assert not is_evaluated(applied._replace(status="rolled_back"), NOW)
