"""`wakeful pause`, `resume` and `skip-next`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.jobs import next_at, status
from wakeful.cli.times import moment

_PANEL = "Jobs"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(app, "pause", panel=_PANEL)
    async def pause(
        s: Session,
        name: JobName,
        note: Annotated[str | None, typer.Option("--note", help="the reason, shown with the job")] = None,
        until: Annotated[
            str | None, typer.Option("--until", metavar="TIME", help="resume at this time, such as 'in 2h'")
        ] = None,
    ) -> None:
        """Pause a job. Ticks during a pause do not count as missed."""
        jobs, slug = s.job(name)
        job = await s.out.wait_for(jobs.pause(slug, note=note, until=until))
        s.out.show(job, Text(f"{slug} is ", "yellow").append(status(job)))

    @command(app, "resume", panel=_PANEL)
    async def resume(s: Session, name: JobName) -> None:
        """Resume a job. Its next tick is computed from now."""
        jobs, slug = s.job(name)
        job = await s.out.wait_for(jobs.resume(slug))
        s.out.show(job, Text(f"{slug} is on, next ", "green").append(next_at(job, now_ms())))

    @command(app, "skip-next", panel=_PANEL)
    async def skip_next(s: Session, name: JobName) -> None:
        """Skip the next tick of a job. The tick is recorded as a skipped run."""
        jobs, slug = s.job(name)
        job = await s.out.wait_for(jobs.skip_next(slug))
        tick = moment(job["skipped"]["scheduledAtMs"], job["tz"])
        line = Text(f"{slug} skips {tick}, next ", "yellow").append(next_at(job, now_ms()))
        s.out.show(job, line)
