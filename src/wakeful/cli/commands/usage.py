"""`wakeful peaks`, the load of the coming week, and `wakeful cost`, tokens and cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, cast
from zoneinfo import ZoneInfo

import typer
from rich.table import Table
from rich.text import Text

from wakeful.cli.output import Cell, table
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import instant, local_zone, moment, span
from wakeful.client.types import (
    AgentCostShape,
    BudgetStateShape,
    CostShape,
    JobCostShape,
    PeakShape,
    PeaksShape,
)
from wakeful.values.plural import plural

_BARS: Final = " ▁▂▃▄▅▆▇█"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "peaks",
        examples=("wakeful peaks", "wakeful peaks --agent ops --json"),
        panel="Administration",
    )
    async def peaks(s: CliSession) -> None:
        """Show when many jobs start in the coming week, and quieter minutes nearby."""
        found = await s.out.wait_for(s.client.get_peaks(agent=s.agent))
        tz = local_zone()
        total = f"{plural(found['starts'], 'start')} of {plural(found['jobs'], 'job')} in the coming week"
        age = Text(f"computed {span(found['ageMs'])} ago", "dim")
        if not found["peaks"]:
            s.out.show(found, Text("no job starts in the coming week", "green"), age)
            return
        s.out.show(found, Text(total, "bold"), *week_chart(found, tz), peak_table(found, tz), age)

    @command(
        app,
        "cost",
        examples=("wakeful cost", "wakeful cost --from 2027-03-01 --to 2027-03-31 --json"),
        panel="Administration",
    )
    async def cost(
        s: CliSession,
        first: Annotated[
            str | None, typer.Option("--from", metavar="DATE", help="the first day (UTC); 30 days by default")
        ] = None,
        last: Annotated[
            str | None, typer.Option("--to", metavar="DATE", help="the last day; today by default")
        ] = None,
        limit: Annotated[
            int, typer.Option("--limit", "-n", min=1, max=50, help="how many agents and jobs at most")
        ] = 20,
    ) -> None:
        """Show what runs used by day, agent and job, and what is left of the budgets today."""
        found = await s.out.wait_for(s.client.get_cost(from_=first, to=last, agent=s.agent, limit=limit))
        if not found["tokens"] and not found["cost"] and not found["budgets"]:
            s.out.show(found, Text(f"no run used anything from {found['from']} to {found['to']}", "dim"))
            return
        shown: list[Text | Table] = [total_line(found), *day_chart(found)]
        if found["agents"]:
            shown.append(cost_table("AGENT", found["agents"], found))
        if found["jobs"]:
            shown.append(cost_table("JOB", found["jobs"], found))
        if found["budgets"]:
            shown.append(budget_table(found["budgets"]))
        s.out.show(found, *shown)


def week_chart(found: PeaksShape, tz: str) -> list[Text]:
    """Return a line for each day with a bar for each hour: the starts in its busiest minute."""
    most = max(hour["peakStarts"] for hour in found["hours"])
    days: dict[str, dict[int, int]] = {}
    for hour in found["hours"]:
        at = datetime.fromisoformat(hour["at"]).astimezone(ZoneInfo(tz))
        day = days.setdefault(f"{at:%a %d}", {})
        day[at.hour] = max(hour["peakStarts"], day.get(at.hour, 0))
    lines = [Text(f"{'':7}{'00':6}{'06':6}{'12':6}{'18':6}", "dim").append(f"{tz}", "dim")]
    for name, hours in days.items():
        bars = "".join(_bar(hours.get(hour, 0), most) for hour in range(24))
        line = Text(f"{name:7}").append(bars, "cyan")
        lines.append(line.append(f"  {max(hours.values()):,}", "dim"))
    return lines


def peak_table(found: PeaksShape, tz: str) -> Table:
    """Return a table of the busiest minutes."""
    now_ms = instant(found["from"])
    rows: list[list[Cell]] = [
        [moment(peak["atMs"], tz, now_ms), f"{peak['starts']:,}", _schedules(peak), _quiet(peak, tz)]
        for peak in found["peaks"]
    ]
    return table(["PEAK", "STARTS", "SCHEDULES", "QUIETER"], rows, elastic="SCHEDULES")


def _bar(value: float, most: float) -> str:
    """Return a bar; any value is visible."""
    return _BARS[-int(-value * (len(_BARS) - 1) // most)] if most else " "


def _schedules(peak: PeakShape) -> str:
    return "; ".join(f"{each['explain']}: {each['jobs']:,}" for each in peak["schedules"])


def _quiet(peak: PeakShape, tz: str) -> str:
    at = peak["quietAt"]
    if at is None:
        return ""
    return f"{datetime.fromisoformat(at).astimezone(ZoneInfo(tz)):%H:%M} ({peak['quietStarts']:,})"


def money(cost: float) -> str:
    """Return a cost as text: more digits for small ones.

    >>> money(0), money(0.00042), money(1234.5)
    ('0', '0.00042', '1,234.50')
    """
    if cost == 0:
        return "0"
    return f"{cost:,.2f}" if cost >= 1 else f"{cost:.2g}"


def total_line(found: CostShape) -> Text:
    """Return the sums of the report."""
    line = Text(f"{found['from']} to {found['to']}: ", "dim")
    return line.append(f"cost {money(found['cost'])}, {found['tokens']:,} tokens", "bold")


def day_chart(found: CostShape) -> list[Text]:
    """Return a bar for each day: its cost, or its tokens if nothing has a cost."""
    values = [day["cost"] if found["cost"] else float(day["tokens"]) for day in found["days"]]
    most = max(values)
    if not most:
        return []
    bars = "".join(_bar(value, most) for value in values)
    highest = money(most) if found["cost"] else f"{most:,.0f} tokens"
    return [Text(bars, "cyan").append(f"  at most {highest} a day", "dim")]


def cost_table(title: str, rows: Sequence[AgentCostShape], found: CostShape) -> Table:
    """Return a table of agents or jobs, with their share of all."""
    whole = found["cost"] or found["tokens"]
    cells: list[list[Cell]] = [
        [
            _name(row),
            money(row["cost"]),
            f"{row['tokens']:,}",
            _share(row["cost"] if found["cost"] else row["tokens"], whole),
        ]
        for row in rows
    ]
    return table([title, "COST", "TOKENS", "SHARE"], cells, elastic=title)


def budget_table(budgets: Sequence[BudgetStateShape]) -> Table:
    """Return a table of the budgets, with what is left of them today."""
    cells: list[list[Cell]] = [
        [
            _owner(budget),
            budget["cap"],
            _amount(budget, budget["used"]),
            _amount(budget, budget["limit"]),
            Text("used up", "red") if budget["exhausted"] else Text(_amount(budget, budget["remaining"])),
        ]
        for budget in budgets
    ]
    return table(["BUDGET", "CAP", "USED TODAY", "LIMIT", "LEFT"], cells, elastic="BUDGET")


def _name(row: AgentCostShape) -> str:
    if "jobId" not in row:
        return row["agentId"]
    job = cast(JobCostShape, row)
    return f"{job['agentId']}/{job['job'] or job['jobId']}{' (deleted)' if job['deleted'] else ''}"


def _owner(budget: BudgetStateShape) -> str:
    if budget["agentId"] is None:
        return "the workspace"
    if budget["jobId"] is None:
        return budget["agentId"]
    return f"{budget['agentId']}/{budget['job'] or budget['jobId']}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def _amount(budget: BudgetStateShape, value: float) -> str:
    return money(value) if budget["cap"] == "costPerDay" else f"{value:,.0f}"
