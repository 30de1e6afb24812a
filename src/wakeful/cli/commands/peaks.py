"""`wakeful peaks`: the load of the coming week."""

from __future__ import annotations

import typer
from rich.text import Text

from wakeful.cli.session import Session, command
from wakeful.cli.show.peaks import peak_table, week_chart
from wakeful.cli.times import local_zone, span
from wakeful.values.plural import plural


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "peaks",
        examples=("wakeful peaks", "wakeful peaks --agent ops --json"),
        panel="Administration",
    )
    async def peaks(s: Session) -> None:
        """Show when many jobs start in the coming week, and quieter minutes nearby."""
        found = await s.out.wait_for(s.jobs().peaks(all_agents=s.all_agents))
        tz = local_zone()
        total = f"{plural(found['starts'], 'start')} of {plural(found['jobs'], 'job')} in the coming week"
        age = Text(f"computed {span(found['ageMs'])} ago", "dim")
        if not found["peaks"]:
            s.out.show(found, Text("no job starts in the coming week", "green"), age)
            return
        s.out.show(found, Text(total, "bold"), *week_chart(found, tz), peak_table(found, tz), age)
