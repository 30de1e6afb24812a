"""`wakeful tail`: show runs as they start and end."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Annotated, Final

import typer

from wakeful.cli.completion import job_names
from wakeful.cli.exit_codes import OK
from wakeful.cli.session import Session, command
from wakeful.cli.show.runs import event_line
from wakeful.cli.times import local_zone
from wakeful.client.types import EventShape
from wakeful.errors import InvalidArgument
from wakeful.values.ids import is_id

#: The states of runs that start or end.
_STATES: Final = ("running", "succeeded", "failed", "cancelled", "skipped", "missed")
_TYPES: Final = ("run.started", "run.finished")
_RESET: Final = "reset"


def register(app: typer.Typer) -> None:
    """Register the commands."""

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
        s: Session,
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


async def _follow(
    s: Session, agent: str | None, job: str | None, states: frozenset[str], count: int | None
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


async def _job(s: Session, job: str | None) -> tuple[str | None, str | None]:
    """Return the agent and the job of the filter, which must exist."""
    if job is None:
        if s.agent is not None:
            await s.out.wait_for(s.client.agents.get(s.agent))
        return s.agent, None
    jobs, name = await s.find_job(job)
    found = await s.out.wait_for(jobs.get(name))
    return found["agentId"], found["id"] if is_id(name) else found["name"]
