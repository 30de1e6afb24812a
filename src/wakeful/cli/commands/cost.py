"""`wakeful cost`: tokens and cost."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from wakeful.cli.session import Session, command
from wakeful.cli.show.cost import budget_table, cost_table, day_chart, total_line


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "cost",
        examples=("wakeful cost", "wakeful cost --from 2027-03-01 --to 2027-03-31 --json"),
        panel="Administration",
    )
    async def cost(
        s: Session,
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
        found = await s.out.wait_for(s.client.cost(first=first, last=last, agent=s.agent, limit=limit))
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
