"""`wakeful history`: the changes of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.diff import field_lines
from wakeful.cli.show.tables import escaped
from wakeful.cli.times import instant, moment, relative
from wakeful.client.types import RevisionShape


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "history",
        examples=("wakeful history digest", "wakeful history digest --restore 3"),
        panel="Jobs",
    )
    async def history(
        s: Session,
        name: JobName,
        restore: Annotated[
            int | None, typer.Option("--restore", help="give the job the fields of this revision")
        ] = None,
    ) -> None:
        """Show who changed which fields of a job, and when; or restore an earlier revision.

        To restore is an edit: the pause and the secret of the job stay.
        """
        jobs, slug = await s.find_job(name)
        if restore is not None:
            job = await s.out.wait_for(jobs.restore(slug, restore))
            done = f"{slug} has the fields of revision {restore} (revision {job['revision']} now)"
            s.out.show(job, Text(done, "green"))
            return
        found = await s.out.wait_for(jobs.revisions(slug))
        s.out.show({"revisions": found}, *_lines(found))


def _lines(revisions: list[RevisionShape]) -> Iterator[RenderableType]:
    for each in revisions:
        at_ms = instant(each["at"])
        when = "" if at_ms is None else f"{moment(at_ms, None)} ({relative(at_ms, now_ms())})"
        line = Text(f"{each['revision']:>4}", "bold").append(f"  {when}  ")
        line.append(escaped(Text(each["by"] or "unknown", "cyan")))
        if not each["changes"]:
            line.append("  created")
        yield line
        shown = [change for change in each["changes"] if not change["hidden"]]
        yield from field_lines({change["field"]: (change["before"], change["after"]) for change in shown})
        for change in each["changes"]:
            if change["hidden"]:
                yield Text(f"    {change['field']}: credentials changed", "dim")
