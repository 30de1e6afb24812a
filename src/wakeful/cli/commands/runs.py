"""`wakeful runs`, `cancel`, `stop`, `verify` and `tail`."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing, suppress
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import Cursor, Limit, RunId, job_names, now_ms
from wakeful.cli.exit_codes import OK
from wakeful.cli.pages import RUNS, event_line, run_page
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import local_zone
from wakeful.client.types import EventShape
from wakeful.errors import InvalidArgument, NotFound
from wakeful.model.enums import RunState
from wakeful.values.ids import is_id

_PANEL = "Runs"
#: The states of runs that start or end.
_STATES: Final = tuple(
    state.value for state in RunState if state not in (RunState.PENDING, RunState.RETRYING)
)
_TYPES: Final = ("run.started", "run.finished")
_RESET: Final = "reset"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "runs",
        examples=(
            "wakeful runs",
            "wakeful runs digest --state failed --limit 5",
            "wakeful runs --agent daily-report --instance eu",
            "wakeful runs --to-confirm",
            "wakeful runs 01980000-0000-7000-8000-000000000000",
        ),
        panel=_PANEL,
    )
    async def runs(
        s: CliSession,
        name: Annotated[
            str | None,
            typer.Argument(
                metavar="NAME|RUN",
                autocompletion=job_names,
                help="those of a job (name or id), or one run (id)",
            ),
        ] = None,
        state: Annotated[
            list[str] | None,
            typer.Option("--state", help="only runs in this state, also verifying; repeatable"),
        ] = None,
        instance: Annotated[
            str | None, typer.Option("--instance", help="only of this instance of --agent (default: default)")
        ] = None,
        to_confirm: Annotated[
            bool,
            typer.Option("--to-confirm", help="only runs that wait for a person to confirm their work"),
        ] = False,
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> None:
        """Show runs, newest first: all, those of a job, or one run with its attempts."""
        unknown: NotFound | None = None
        job_id: str | None = None
        if name and is_id(name):
            try:
                run = await s.out.wait_for(s.client.get_run(name))
            except NotFound as error:
                unknown, job_id = error, name  # the id of a job, which may be deleted
            else:
                s.out.show(run, *run_page(run, now_ms()))
                return
        elif name:
            agent, slug = await s.find_job(name)
            # By id: that endpoint filters by state. Getting the job first reports an unknown name.
            job_id = (await s.out.wait_for(s.client.get_job(agent, slug)))["id"]
        found = await s.out.wait_for(
            s.client.list_all_runs(
                agent=None if job_id else s.agent if instance is None else s.own_agent,
                job_id=job_id,
                state=",".join(state or ()) or None,
                instance=instance,
                to_confirm=to_confirm or None,
                limit=limit,
                cursor=cursor,
            )
        )
        if unknown is not None and not found and not await _is_job(s, str(name)):
            raise unknown
        s.out.show_page("runs", found, RUNS.render(found, now_ms(), wide=s.out.wide))

    @command(app, "cancel", examples=("wakeful cancel 01980000-0000-7000-8000-000000000000",), panel=_PANEL)
    async def cancel(s: CliSession, run_id: RunId) -> None:
        """Cancel a run that is pending or retrying."""
        run = await s.out.wait_for(s.client.cancel_run(run_id))
        s.out.show(run, Text(f"{run['id']} is {run['state']}", "green"))

    @command(app, "stop", examples=("wakeful stop 01980000-0000-7000-8000-000000000000",), panel=_PANEL)
    async def stop(s: CliSession, run_id: RunId) -> None:
        """Stop a running run, on whichever replica it runs."""
        run = await s.out.wait_for(s.client.stop_run(run_id))
        s.out.show(run, Text(f"{run['id']} is {run['state']}", "green"))

    @command(
        app,
        "verify",
        examples=(
            "wakeful verify 01980000-0000-7000-8000-000000000000 --attempt 1",
            "wakeful verify 01980000-0000-7000-8000-000000000000 --reject --reason 'the page is empty'",
        ),
        panel=_PANEL,
    )
    async def verify(
        s: CliSession,
        run_id: RunId,
        reject: Annotated[bool, typer.Option("--reject", help="the work was not done")] = False,
        reason: Annotated[str | None, typer.Option("--reason", help="with --reject: why")] = None,
        attempt: Annotated[
            int | None,
            typer.Option("--attempt", min=1, help="the attempt you looked at, and no later one"),
        ] = None,
    ) -> None:
        """Confirm the work of a run that waits to be verified, or reject it.

        A rejected attempt has failed and is retried like any other.
        """
        if reason is not None and not reject:
            raise InvalidArgument("--reason works with --reject only")
        call = s.client.verify_run(run_id, verified=not reject, reason=reason, attempt=attempt)
        run = await s.out.wait_for(call)
        s.out.show(run, Text(f"{run['id']} is {run['state']}", "yellow" if reject else "green"))

    @command(
        app,
        "tail",
        examples=(
            "wakeful tail",
            "wakeful tail --agent ops --state failed",
            "wakeful tail --job ops/backup --json",
        ),
        panel="Runs",
    )
    async def tail(
        s: CliSession,
        job: Annotated[
            str | None,
            typer.Option(
                "--job",
                metavar="NAME",
                autocompletion=job_names,
                help="only runs of this job: name, agent/name or id",
            ),
        ] = None,
        state: Annotated[
            list[str] | None,
            typer.Option("--state", help=f"only runs in this state; repeatable: {', '.join(_STATES)}"),
        ] = None,
        count: Annotated[
            int | None, typer.Option("--count", "-n", min=1, help="end after this many lines")
        ] = None,
    ) -> int:
        """Show runs as they start and end, one line per change, until Ctrl-C.

        After a lost connection or a restart of the server it continues where it stopped: no change is missed.
        With --json each line is an event, a JSON object.
        """
        states = _states(state)
        agent, name = await _job(s, job)
        with suppress(asyncio.CancelledError):  # Ctrl-C
            await _follow(s, agent, name, states, count)
        return OK


async def _is_job(s: CliSession, job_id: str) -> bool:
    try:
        await s.client.find_job(job_id)
    except NotFound:
        return False
    return True


async def _follow(
    s: CliSession, agent: str | None, job: str | None, states: frozenset[str], count: int | None
) -> None:
    connections = 0

    def on_connection(connected: bool) -> None:
        nonlocal connections
        if not connected:
            s.out.warn(f"the connection to {s.client.url} is lost; reconnecting")
            return
        connections += 1
        how = "connected" if connections == 1 else "connected again"
        s.out.note(f"{how} to {s.client.url}; Ctrl-C ends")

    events = s.client.events(
        agent=agent, job=job, types=_TYPES, patience=math.inf, on_connection=on_connection
    )
    shown, tz = 0, local_zone()
    async with aclosing(events):
        async for event in events:
            if event["type"] == _RESET:
                s.out.warn("some changes are no longer stored; `wakeful runs` lists all runs")
            if not _matches(event, states):
                continue
            s.out.show_line(event, event_line(event, tz))
            shown += 1
            if shown == count or s.out.unread:
                return


def _matches(event: EventShape, states: frozenset[str]) -> bool:
    run = event["run"]
    if run is None:
        return False
    return (
        not states
        or (event["type"] == _TYPES[0] and "running" in states)
        or (event["type"] == _TYPES[1] and run["state"] in states)
    )


def _states(given: list[str] | None) -> frozenset[str]:
    for state in given or ():
        if state not in _STATES:
            raise InvalidArgument(
                f"--state: '{state}' is not a state of a run that starts or ends; give {', '.join(_STATES)}"
            )
    return frozenset(given or ())


async def _job(s: CliSession, job: str | None) -> tuple[str | None, str | None]:
    """Return the agent and the job of the filter, which must exist."""
    if job is None:
        if s.agent is not None:
            await s.out.wait_for(s.client.get_agent(s.agent))
        return s.agent, None
    agent, name = await s.find_job(job)
    found = await s.out.wait_for(s.client.get_job(agent, name))
    return found["agentId"], found["id"] if is_id(name) else found["name"]
