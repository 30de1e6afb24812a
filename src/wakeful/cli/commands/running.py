"""Making jobs run: `run`, `backfill`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, cast

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import JobName, Payload, json_argument, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.runs import change, run_page
from wakeful.cli.times import local_zone
from wakeful.client.types import RunShape
from wakeful.cron import zone
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.policy import Overlap

_PANEL = "Runs"


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "run", panel=_PANEL)
    async def run(
        s: Session,
        name: JobName,
        wait: Annotated[
            bool, typer.Option("--wait", "-w", help="follow it; the exit code is 0 only if it succeeds")
        ] = False,
        due: Annotated[bool, typer.Option("--due", help="only if one of its ticks is due")] = False,
        payload: Payload = None,
        overlap: Annotated[
            str | None,
            typer.Option(
                "--overlap", help="while another runs: allow (default), skip, queue, queue_one, replace"
            ),
        ] = None,
        longest: Annotated[
            float | None, typer.Option("--timeout", min=0, help="seconds to follow it for at most")
        ] = None,
    ) -> int:
        """Run a job now, whatever its schedule says."""
        jobs, slug = s.job(name)
        given = await json_argument("--payload", payload)
        begun = await s.out.ask(
            jobs.run(
                slug,
                mode="due" if due else "force",
                payload=given,
                overlap_policy=cast(Overlap | None, overlap),
            )
        )
        if begun is None:
            s.out.show(None, Text(f"no tick of {slug} is due", "yellow"))
            return exit_codes.OK
        if begun["state"] == "skipped":
            s.out.show(begun, Text(f"{slug} is skipped: {begun['reason']}", "yellow"))
            return exit_codes.NOT_DONE
        if not wait:
            hint = Text(f"{slug} runs: {begun['id']}", "green")
            s.out.show(begun, hint, Text(f"follow it with: wakeful runs {begun['id']}", "dim"))
            return exit_codes.OK
        try:
            async with asyncio.timeout(longest):
                over = await follow(s, begun["id"])
        except TimeoutError:
            raise Unavailable(
                f"run {begun['id']} is not over after {longest:g} s; `wakeful runs {begun['id']}` shows it"
            ) from None
        s.out.show(over, "", *run_page(over, now_ms()))
        return exit_codes.OK if over["state"] == "succeeded" else exit_codes.NOT_DONE

    @command(app, "backfill", panel=_PANEL)
    async def backfill(
        s: Session,
        name: JobName,
        start: Annotated[str, typer.Option("--from", metavar="TIME", help="an ISO 8601 time in the past")],
        end: Annotated[str, typer.Option("--to", metavar="TIME", help="another; both are included")],
    ) -> None:
        """Run the ticks that a job had, or would have had, between two times in the past."""
        jobs, slug = s.job(name)
        span = _instant("--from", start), _instant("--to", end)
        count = await s.out.ask(jobs.backfill(slug, *span))
        s.out.show({"count": count}, Text(f"{count} runs of {slug} are planned", "green"))


async def follow(s: Session, run_id: str) -> RunShape:
    """Wait for the end of a run; on a terminal its state turns, else each change is a line."""
    last: tuple[str, int] | None = None
    status = s.out.aside.status("") if s.out.aside.is_terminal and not s.out.as_json else None

    def seen(run: RunShape) -> None:
        nonlocal last
        now = run["state"], run["attempt"]
        if now == last:
            return
        last = now
        if status:
            status.update(change(run))
        s.out.say(change(run))

    if status:
        status.start()
    try:
        return await s.client.runs.wait(run_id, seen=seen)
    finally:
        if status:
            status.stop()


def _instant(option: str, text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{option}: '{text}' is no time; write one such as 2027-03-01T09:00") from None
    return at if at.tzinfo else zone(local_zone()).utc_of(at)
