"""Cost: tokens and cost by day, agent and job, and the budgets."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, PageRequest, page_router
from wakeful.dashboard.formats import money, number
from wakeful.errors import InvalidArgument
from wakeful.run.usage import Spent, utc_day
from wakeful.service.admin.cost import CostReport, Usage, date_of
from wakeful.service.report_serializers import cost_csv

router = page_router()

#: The ranges that can be chosen, in days.
RANGES: Final = (7, 30, 90)
_LISTED: Final = 20
_LISTED_IN_CSV: Final = 50


@router.get("/cost")
async def cost(page: PageDep) -> Response:
    """Show what runs used; `?format=csv` returns it as a file."""
    days = _days(page)
    last = date_of(utc_day(page.now_ms))
    as_csv = page.query.get("format") == "csv"
    report = await page.services.admin.cost.report(
        page.principal,
        page.workspace,
        first=(last - timedelta(days=days - 1)).isoformat(),
        last=last.isoformat(),
        agent=page.query.get("agent"),
        limit=_LISTED_IN_CSV if as_csv else _LISTED,
    )
    if as_csv:
        name = f"wakeful-cost-{page.workspace}-{report.first}-{report.last}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(cost_csv(report), headers=headers, media_type="text/csv; charset=utf-8")
    by_cost = report.whole.total.cost > 0
    return page.render(
        "cost.html",
        title="Cost",
        active="cost",
        report=report,
        days=days,
        ranges=RANGES,
        by_cost=by_cost,
        values=[_value(spent, by_cost) for spent in report.whole.days],
        titles=_titles(report),
        today=report.whole.days[-1],
        per_day=_per_day(report),
        sparks=lambda usage: [_value(spent, by_cost) for spent in usage.days],
        share=lambda usage: _share(usage, report, by_cost),
    )


def _days(page: PageRequest) -> int:
    text = page.query.get("days", "30")
    if text not in map(str, RANGES):
        raise InvalidArgument("days: choose one of 7, 30 and 90")
    return int(text)


def _value(spent: Spent, by_cost: bool) -> float:
    return spent.cost if by_cost else float(spent.tokens)


def _titles(report: CostReport) -> list[str]:
    return [
        f"{day}: {money(spent.cost)}, {number(spent.tokens)} tokens"
        for day, spent in zip(report.dates, report.whole.days, strict=True)
    ]


def _per_day(report: CostReport) -> Spent:
    """Return the mean of the days since the first with use."""
    used = next((index for index, spent in enumerate(report.whole.days) if spent != Spent()), 0)
    days = len(report.whole.days) - used
    total = report.whole.total
    return Spent(round(total.tokens / days), total.cost / days)


def _share(usage: Usage, report: CostReport, by_cost: bool) -> float:
    whole = _value(report.whole.total, by_cost)
    return _value(usage.total, by_cost) / whole if whole else 0.0
