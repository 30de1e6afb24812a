"""Tokens and cost: a chart of the days, and tables of agents, jobs and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from rich.table import Table
from rich.text import Text

from wakeful.cli.show.tables import Cell, table
from wakeful.client.types import AgentCostShape, BudgetShape, CostShape, JobCostShape

_BARS: Final = " ▁▂▃▄▅▆▇█"


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
    bars = "".join(_BARS[-int(-value * (len(_BARS) - 1) // most)] for value in values)
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


def budget_table(budgets: Sequence[BudgetShape]) -> Table:
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


def _owner(budget: BudgetShape) -> str:
    if budget["agentId"] is None:
        return "the workspace"
    if budget["jobId"] is None:
        return budget["agentId"]
    return f"{budget['agentId']}/{budget['job'] or budget['jobId']}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def _amount(budget: BudgetShape, value: float) -> str:
    return money(value) if budget["cap"] == "costPerDay" else f"{value:,.0f}"
