"""`wakeful run` and `wakeful backfill`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import JobName, Payload, json_argument, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.runs import progress_line, run_page
from wakeful.cli.times import local_zone
from wakeful.client.runs import LONGEST_POLL
from wakeful.client.types import RunShape
from wakeful.cron import zone
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.run import RunState
from wakeful.scheduler import poll_until

_PANEL = "Runs"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(app, "run", panel=_PANEL)
    async def run(
        s: Session,
        name: JobName,
        wait: Annotated[
            bool,
            typer.Option("--wait", "-w", help="wait for the run; the exit code is 0 only if it succeeds"),
        ] = False,
        due: Annotated[bool, typer.Option("--due", help="only if a tick is due")] = False,
        payload: Payload = None,
        overlap: Annotated[
            str | None,
            typer.Option(
                "--overlap",
                help="if another run is running: allow (default), skip, queue, queue_one, replace",
            ),
        ] = None,
        wait_s: Annotated[
            float | None, typer.Option("--timeout", min=0, help="with --wait: wait at most this many seconds")
        ] = None,
    ) -> int:
        """Run a job now, regardless of its schedule."""
        jobs, slug = s.job(name)
        started = await s.out.wait_for(
            jobs.run(
                slug,
                mode="due" if due else "force",
                payload=await json_argument("--payload", payload),
                overlap_policy=overlap,
            )
        )
        if started is None:
            s.out.show(None, Text(f"no tick of {slug} is due", "yellow"))
            return exit_codes.OK
        run_id = started["id"]
        if started["state"] == "skipped":
            s.out.show(started, Text(f"{slug} is skipped: {started['reason']}", "yellow"))
            return exit_codes.NOT_DONE
        if not wait:
            line = Text(f"started {slug}: run {run_id}", "green")
            s.out.show(started, line, Text(f"show it with: wakeful runs {run_id}", "dim"))
            return exit_codes.OK
        try:
            async with asyncio.timeout(wait_s):
                finished = await follow(s, run_id)
        except TimeoutError:
            raise Unavailable(
                f"run {run_id} has not finished after {wait_s:g} s; `wakeful runs {run_id}` shows it"
            ) from None
        s.out.show(finished, "", *run_page(finished, now_ms()))
        return exit_codes.OK if finished["state"] == "succeeded" else exit_codes.NOT_DONE

    @command(app, "backfill", panel=_PANEL)
    async def backfill(
        s: Session,
        name: JobName,
        start: Annotated[
            str, typer.Option("--from", metavar="TIME", help="the start, an ISO 8601 time in the past")
        ],
        end: Annotated[str, typer.Option("--to", metavar="TIME", help="the end; both are inclusive")],
    ) -> None:
        """Run a job for each tick of its schedule between two times in the past."""
        jobs, slug = s.job(name)
        span = _instant("--from", start).isoformat(), _instant("--to", end).isoformat()
        count = await s.out.wait_for(jobs.backfill(slug, *span))
        s.out.show({"count": count}, Text(f"planned {count} runs of {slug}", "green"))


async def follow(s: Session, run_id: str) -> RunShape:
    """Wait until a run finishes and print each change of its state; return the finished run."""
    last: tuple[str, int] | None = None
    status = s.out.stderr.status("") if s.out.stderr.is_terminal and not s.out.as_json else None

    def show(run: RunShape) -> None:
        nonlocal last
        now = run["state"], run["attempt"]
        if now == last:
            return
        last = now
        if status:
            status.update(progress_line(run))
        s.out.say(progress_line(run))

    if status:
        status.start()
    try:
        return await poll_until(
            lambda: s.client.runs.get(run_id),
            lambda run: RunState(run["state"]).terminal,
            poll=0.1,
            longest=LONGEST_POLL,
            on_poll=show,
        )
    finally:
        if status:
            status.stop()


def _instant(option: str, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{option}: '{text}' is not a time; write one such as 2027-03-01T09:00"
        ) from None
    return at if at.tzinfo else zone(local_zone()).utc_of(at)
