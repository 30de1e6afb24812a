"""The tables of `wakeful cost`."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from wakeful.cli.commands.usage import budget_table, cost_table, day_chart, total_line


def _report(**given: Any) -> Any:
    return {
        "workspace": "default",
        "agentId": None,
        "from": "2027-03-01",
        "to": "2027-03-03",
        "tokens": 3_000,
        "cost": 4.0,
        "days": [
            {"date": "2027-03-01", "tokens": 0, "cost": 0.0},
            {"date": "2027-03-02", "tokens": 1_000, "cost": 1.0},
            {"date": "2027-03-03", "tokens": 2_000, "cost": 3.0},
        ],
        "agents": [],
        "jobs": [
            {"agentId": "a", "jobId": "1", "job": "dear", "deleted": False, "tokens": 2_000, "cost": 3.0},
            {"agentId": "a", "jobId": "2", "job": None, "deleted": True, "tokens": 1_000, "cost": 1.0},
        ],
        "budgets": [],
        **given,
    }


def _text(*parts: Any) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get()


def test_sums_and_days_are_shown() -> None:
    found = _report()
    shown = _text(total_line(found), *day_chart(found))
    assert "cost 4.00, 3,000 tokens" in shown
    assert " ▃█  at most 3.00 a day" in shown


def test_without_a_cost_tokens_are_compared() -> None:
    found = _report(cost=0.0)
    assert "at most 2,000 tokens a day" in _text(*day_chart(found))
    assert "67 %" in _text(cost_table("JOB", found["jobs"], found))
    assert day_chart(_report(cost=0.0, tokens=0, days=[{"date": "x", "tokens": 0, "cost": 0.0}])) == []


def test_jobs_have_their_share_and_deleted_ones_say_so() -> None:
    found = _report()
    shown = _text(cost_table("JOB", found["jobs"], found))
    assert "a/dear" in shown
    assert "75 %" in shown
    assert "a/2 (deleted)" in shown


def test_budgets_say_what_is_left() -> None:
    budget = {"agentId": None, "jobId": None, "job": None, "cap": "costPerDay", "limit": 8.0, "used": 2.0}
    rest: Any = [
        {**budget, "remaining": 6.0, "exhausted": False},
        {**budget, "agentId": "a", "cap": "tokensPerDay", "limit": 10, "used": 12, "remaining": 0,
         "exhausted": True},
    ]  # fmt: skip
    shown = _text(budget_table(rest))
    assert "the workspace" in shown
    assert "6.00" in shown
    assert "used up" in shown
