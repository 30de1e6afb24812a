"""A cost report as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import date

from wakeful.model.codec import JsonObject
from wakeful.run.usage import Spent
from wakeful.service.admin.cost import BudgetState, CostReport, Usage
from wakeful.values.json_value import Json


def serialize_cost(report: CostReport) -> JsonObject:
    """Return a report. Days without use are left out of agents and jobs."""
    dates = report.dates
    return {
        "workspace": report.workspace,
        "agentId": report.agent,
        "from": report.first.isoformat(),
        "to": report.last.isoformat(),
        **_spent(report.whole.total),
        "days": [_day(day, spent) for day, spent in zip(dates, report.whole.days, strict=True)],
        "agents": [
            {"agentId": each.agent, **_spent(each.total), "days": _days(dates, each)}
            for each in report.agents
        ],
        "jobs": [
            {
                "agentId": each.agent,
                "jobId": each.job_id,
                "job": each.job,
                "deleted": each.deleted,
                **_spent(each.total),
                "days": _days(dates, each),
            }
            for each in report.jobs
        ],
        "budgets": [_budget(each) for each in report.budgets],
    }


def cost_csv(report: CostReport) -> str:
    """Return a report as CSV: a line for each day with use of the workspace, an agent or a job."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(("date", "level", "agent", "job", "job_id", "tokens", "cost"))
    for level, usages in (
        ("agent" if report.agent else "workspace", [report.whole]),
        ("agent", report.agents),
        ("job", report.jobs),
    ):
        writer.writerows(_lines(report.dates, level, usages))
    return text.getvalue()


def _lines(dates: Sequence[date], level: str, usages: Sequence[Usage]) -> Iterator[tuple[object, ...]]:
    for usage in usages:
        for day, spent in zip(dates, usage.days, strict=True):
            if spent != Spent():
                yield (day.isoformat(), level, usage.agent, usage.job or "", usage.job_id, *spent)


def _spent(spent: Spent) -> JsonObject:
    return {"tokens": spent.tokens, "cost": spent.cost}


def _day(day: date, spent: Spent) -> JsonObject:
    return {"date": day.isoformat(), **_spent(spent)}


def _days(dates: Sequence[date], usage: Usage) -> list[Json]:
    return [_day(day, spent) for day, spent in zip(dates, usage.days, strict=True) if spent != Spent()]


def _budget(budget: BudgetState) -> JsonObject:
    return {
        "agentId": budget.agent,
        "jobId": budget.job_id,
        "job": budget.job,
        "cap": budget.cap,
        "limit": budget.limit,
        "used": budget.used,
        "remaining": budget.remaining,
        "exhausted": budget.exhausted,
    }
