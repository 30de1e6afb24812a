"""`wakeful run` and `wakeful backfill`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import JobName, Payload, json_argument, now_ms
from wakeful.cli.output import full_name
from wakeful.cli.pages import RUNS, progress_line, run_page
from wakeful.cli.selection import (
    AllOption,
    Filter,
    JobNames,
    LabelOption,
    YesOption,
    find_jobs,
    print_failures,
    read_filter,
    request_in_parts,
)
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import local_zone, parse_time
from wakeful.client.fields import given_fields
from wakeful.client.rest import RestClient
from wakeful.client.types import BulkRunsShape, RunShape
from wakeful.errors import Unavailable
from wakeful.run.run import RunState
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

_PANEL = "Runs"
#: Seconds after which a command that prints nothing says what it waits for.
SLOW_S: Final = 2.0

WaitOption = Annotated[
    bool, typer.Option("--wait", "-w", help="wait for the run; the exit code is 0 only if it succeeds")
]
WaitTimeout = Annotated[
    float | None, typer.Option("--timeout", min=0, help="with --wait: wait at most this many seconds")
]


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "run",
        examples=(
            "wakeful run digest --wait",
            "wakeful run sync --payload '{\"full\": true}'",
            "wakeful run --agent ops --label team=ops --yes",
        ),
        panel=_PANEL,
    )
    async def run(
        s: CliSession,
        names: JobNames = None,
        wait: WaitOption = False,
        due: Annotated[bool, typer.Option("--due", help="only if a tick is due")] = False,
        payload: Payload = None,
        overlap: Annotated[
            str | None,
            typer.Option(
                "--overlap",
                help="if another run is running: allow (default), skip, queue, queue_one, replace",
            ),
        ] = None,
        wait_s: WaitTimeout = None,
        label: LabelOption = None,
        all_: AllOption = False,
        yes: YesOption = False,
    ) -> int:
        """Run jobs now, regardless of their schedule. A filter runs the enabled jobs that it finds."""
        only = read_filter(s, "run", names, label, all_)
        request = RunRequest("due" if due else "force", await json_argument("--payload", payload), overlap)
        if only is not None or names is None or len(names) > 1:
            return await _run_several(s, only, names or [], request, wait=wait, wait_s=wait_s, yes=yes)
        agent, slug = await s.find_job(names[0])
        started = await s.out.wait_for(request.start(s.client, agent, slug))
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
        return show_finished(s, await follow_until(s, run_id, wait_s))

    @command(
        app,
        "backfill",
        examples=("wakeful backfill digest --from 2026-01-01T00:00 --to 2026-01-07T00:00",),
        panel=_PANEL,
    )
    async def backfill(
        s: CliSession,
        name: JobName,
        start: Annotated[
            str, typer.Option("--from", metavar="TIME", help="the start, an ISO 8601 time in the past")
        ],
        end: Annotated[str, typer.Option("--to", metavar="TIME", help="the end; both are inclusive")],
        overlap: Annotated[
            str | None,
            typer.Option("--overlap", help="queue: one run after another; allow: all at once"),
        ] = None,
    ) -> None:
        """Run a job for each tick of its schedule between two times in the past."""
        from wakeful.cron import zone

        agent, slug = await s.find_job(name)
        times = [parse_time(option, text) for option, text in (("--from", start), ("--to", end))]
        own = zone(local_zone())
        first, last = ((at if at.tzinfo else own.to_utc(at)).isoformat() for at in times)
        planned = await s.out.wait_for(
            s.client.backfill_job(agent, slug, start=first, end=last, overlap_policy=overlap)
        )
        s.out.show(planned, Text(f"planned {plural(int(str(planned['count'])), 'run')} of {slug}", "green"))


class RunRequest(NamedTuple):
    """How jobs are run."""

    mode: str
    payload: Json
    overlap: str | None

    async def start(self, client: RestClient, agent: str, name: str) -> RunShape | None:
        """Run a job; None if no tick of it is due."""
        return await client.run_job(
            agent, name, mode=self.mode, payload=self.payload, overlap_policy=self.overlap
        )

    async def start_several(self, client: RestClient, select: Mapping[str, Json]) -> BulkRunsShape:
        """Run several jobs."""
        fields = given_fields({"mode": self.mode, "payload": self.payload, "overlapPolicy": self.overlap})
        return await client.run_jobs({**select, **fields})


async def _run_several(
    s: CliSession,
    only: Filter | None,
    names: list[str],
    request: RunRequest,
    *,
    wait: bool,
    wait_s: float | None,
    yes: bool,
) -> int:
    found, sure = await find_jobs(s, "run", only, names, s.client.run_jobs, yes=yes)
    if not sure:
        s.out.show({"runs": [], "notDue": [], "errors": []})
        return exit_codes.NOT_DONE if found else exit_codes.OK
    results, stopped = await request_in_parts(s, found, partial(request.start_several, s.client))
    runs = [run for result in results for run in result["runs"]]
    not_due = [full_name(job["agentId"], job["name"]) for result in results for job in result["notDue"]]
    errors = [error for result in results for error in result["errors"]]
    if wait:
        try:
            async with asyncio.timeout(wait_s):
                waiting = asyncio.gather(*(_finish(s, run["id"], poll=0.2) for run in runs))
                runs = await s.out.wait_for(waiting, f"waiting for {plural(len(runs), 'run')}")
        except TimeoutError:
            raise Unavailable(f"not all runs have finished after {wait_s:g} s; see `wakeful runs`") from None
    bad = [run for run in runs if run["state"] == "skipped" or (wait and run["state"] != "succeeded")]
    lines: list[RenderableType] = [RUNS.render(runs, now_ms(), wide=s.out.wide)] if runs else []
    if not_due:
        lines.append(Text(f"no tick is due: {', '.join(not_due)}", "yellow"))
    lines.append(Text(f"started {plural(len(runs), 'run')}", "bold"))
    s.out.show({"runs": runs, "notDue": not_due, "errors": errors}, *lines)
    return print_failures("run", errors, stopped) or (exit_codes.NOT_DONE if bad else exit_codes.OK)


async def _finish(
    s: CliSession, run_id: str, *, poll: float, on_poll: Callable[[RunShape], None] | None = None
) -> RunShape:
    """Wait until a run finishes, and return it. `on_poll` gets each state that is read."""
    from wakeful.client.runs import LONGEST_POLL, poll_until

    return await poll_until(
        lambda: s.client.get_run(run_id),
        lambda run: RunState(run["state"]).terminal,
        poll=poll,
        longest=LONGEST_POLL,
        on_poll=on_poll,
        reached=True,
    )


def show_finished(s: CliSession, run: RunShape) -> int:
    """Show a run after `follow`, and return its exit code."""
    s.out.show(run, "", *run_page(run, now_ms()))
    return run_exit_code(run)


def run_exit_code(run: RunShape) -> int:
    """Return the exit code of a finished run."""
    return exit_codes.OK if run["state"] == "succeeded" else exit_codes.NOT_DONE


async def follow_until(s: CliSession, run_id: str, seconds: float | None) -> RunShape:
    """Do `follow`; raise Unavailable if the run has not finished after this time."""
    try:
        async with asyncio.timeout(seconds):
            return await follow(s, run_id)
    except TimeoutError:
        state = progress_line(await s.client.get_run(run_id)).plain
        raise Unavailable(
            f"run {run_id} has not finished after {seconds:g} s; it is {state}; "
            f"`wakeful runs {run_id}` shows it"
        ) from None


async def follow(s: CliSession, run_id: str, *, quiet: bool = False) -> RunShape:
    """Wait until a run finishes and print each change of its state; return the finished run.

    With `quiet`, the state is shown only while it waits, and only on a terminal. Elsewhere a note says once
    what a run waits for that takes long.
    """
    last: tuple[str, int, str | None] | None = None
    slow_at: float | None = asyncio.get_running_loop().time() + SLOW_S
    status = s.out.stderr.status("") if s.out.stderr.is_terminal and not s.out.as_json else None

    def show(run: RunShape) -> None:
        nonlocal last, slow_at
        if quiet and not status and slow_at is not None and asyncio.get_running_loop().time() >= slow_at:
            slow_at = None
            if not RunState(run["state"]).terminal:
                s.out.note(progress_line(run).plain)
        now = run["state"], run["attempt"], run.get("waitingFor")
        if now == last:
            return
        last = now
        if status:
            status.update(progress_line(run))
        if not quiet:
            s.out.say(progress_line(run))

    if status:
        status.start()
    try:
        return await _finish(s, run_id, poll=0.1, on_poll=show)
    finally:
        if status:
            status.stop()
