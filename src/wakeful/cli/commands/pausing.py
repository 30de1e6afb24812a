"""Holding jobs back: `pause`, `resume`, `skip-next`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.jobs import next_at, standing
from wakeful.cli.times import moment

_PANEL = "Jobs"


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "pause", panel=_PANEL)
    async def pause(
        s: Session,
        name: JobName,
        note: Annotated[str | None, typer.Option("--note", help="why, for those who see it paused")] = None,
        until: Annotated[
            str | None, typer.Option("--until", metavar="TIME", help="resume then: a time, or as in 'in 2h'")
        ] = None,
    ) -> None:
        """Pause a job. Time while it is paused is never missed."""
        jobs, slug = s.job(name)
        job = await s.out.ask(jobs.pause(slug, note=note, until=until))
        s.out.show(job, Text(f"{slug} is ", "yellow").append(standing(job)))

    @command(app, "resume", panel=_PANEL)
    async def resume(s: Session, name: JobName) -> None:
        """Resume a job: its ticks count from now."""
        jobs, slug = s.job(name)
        job = await s.out.ask(jobs.resume(slug))
        s.out.show(job, Text(f"{slug} is on, next ", "green").append(next_at(job, now_ms())))

    @command(app, "skip-next", panel=_PANEL)
    async def skip_next(s: Session, name: JobName) -> None:
        """Skip the next tick of a job. It is recorded as skipped, and the one after it is the next."""
        jobs, slug = s.job(name)
        done = await s.out.ask(jobs.skip_next(slug))
        tick = moment(done["skipped"]["scheduledAtMs"], done["tz"])
        line = Text(f"{slug} skips {tick}, next ", "yellow").append(next_at(done, now_ms()))
        s.out.show(done, line)
