"""`wakeful incidents`: list, show, acknowledge."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from wakeful.cli.arguments import Limit, OfJob, now_ms, read_verb
from wakeful.cli.output import first_line, page
from wakeful.cli.session import CliSession, command
from wakeful.cli.tables import AGENT, Column, ResourceTable
from wakeful.cli.times import moment_text
from wakeful.client.types import IncidentShape
from wakeful.errors import InvalidArgument

_USAGE: Final = "give one incident: `wakeful incidents INCIDENT`, or `ack INCIDENT`"
#: The states that the list shows unless the command names others.
_UNRESOLVED: Final = "open,acknowledged"
_STATES: Final = {"open": "red", "acknowledged": "yellow", "recovered": "green", "closed": "dim"}


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "incidents",
        examples=(
            "wakeful incidents",
            "wakeful incidents --state all --job digest",
            "wakeful incidents 01980000-0000-7000-8000-000000000000",
            "wakeful incidents ack 01980000-0000-7000-8000-000000000000 --note 'the database is being moved'",
        ),
        panel="Dead letters",
    )
    async def incidents(
        s: CliSession,
        words: Annotated[
            list[str] | None,
            typer.Argument(metavar="[ack] INCIDENT", help="an incident's id; with `ack`, acknowledge it"),
        ] = None,
        state: Annotated[
            str | None,
            typer.Option(
                "--state",
                help="open, acknowledged, recovered or closed, several with commas, or all "
                "(default: open,acknowledged)",
            ),
        ] = None,
        job: OfJob = None,
        note: Annotated[str | None, typer.Option("--note", help="with `ack`: why, for other people")] = None,
        limit: Limit = 50,
    ) -> None:
        """Show the incidents, show one, or acknowledge one.

        Failures of one job with one cause are one incident. An acknowledged incident causes no reminder.
        """
        verb, incident_id = read_verb(words, ("ack",), _USAGE)
        if note is not None and verb is None:
            raise InvalidArgument("--note works with `wakeful incidents ack INCIDENT` only")
        if incident_id is not None:
            if state is not None or job is not None:
                raise InvalidArgument("--state and --job work for the list only")
            if verb:
                incident = await s.out.wait_for(s.client.acknowledge_incident(incident_id, note=note))
            else:
                incident = await s.out.wait_for(s.client.get_incident(incident_id))
            s.out.show(incident, incident_page(incident, now_ms()))
            return
        states = None if state == "all" else _UNRESOLVED if state is None else state
        agent, job = s.split_filter(job)
        found = await s.out.wait_for(s.client.list_incidents(state=states, agent=agent, job=job, limit=limit))
        if not found:
            await s.check_filter(agent, job)
        none = Text("no incidents" if state else "no open incidents", "green")
        s.out.show_page("incidents", found, INCIDENTS.render(found, now_ms(), wide=s.out.wide), none=none)
        if any(each["state"] == "open" for each in found):
            s.out.say(Text("acknowledge one with: wakeful incidents ack INCIDENT", "dim"))


def incident_state(incident: IncidentShape) -> Text:
    """Return the state of an incident in its colour."""
    return Text(incident["state"], _STATES.get(incident["state"], ""))


INCIDENTS: Final = ResourceTable[IncidentShape](
    Column("INCIDENT", "id", "dim"),
    Column("JOB", "job", "bold"),
    AGENT,
    Column("STATE", lambda incident, _: incident_state(incident)),
    Column("CAUSE", "cause"),
    Column("RUNS", "failedRuns"),
    Column("OPENED", "openedAt"),
    Column("LAST FAILED", "lastFailedAt", wide=True),
    Column("ERROR", lambda incident, _: first_line(incident["error"]), wide=True),
    elastic=["ERROR", "CAUSE"],
)


def incident_page(incident: IncidentShape, now_ms: int) -> Table:
    """Return a page with all fields of an incident."""
    by = incident["acknowledgedByName"] or incident["acknowledgedBy"]
    acknowledged = moment_text(incident["acknowledgedAt"], now_ms)
    recovered = moment_text(incident["recoveredAt"], now_ms)
    closed = moment_text(incident["closedAt"], now_ms)
    return page(
        {
            "incident": Text(incident["id"], "bold"),
            "job": incident["job"],
            "agent": f"{incident['agentId']} in {incident['workspace']}",
            "state": incident_state(incident),
            "cause": incident["cause"],
            "error": None if incident["error"] is None else Text(incident["error"], "red"),
            "opened": moment_text(incident["openedAt"], now_ms),
            "reopened": f"{incident['reopened']} times" if incident["reopened"] else None,
            "last failed": moment_text(incident["lastFailedAt"], now_ms),
            "failed runs": str(incident["failedRuns"]),
            "first run": incident["firstRunId"],
            "last run": incident["lastRunId"],
            "alert": moment_text(incident["alertedAt"], now_ms),
            "reminder": moment_text(incident["remindedAt"], now_ms),
            "acknowledged": acknowledged and f"{acknowledged}, by {by}",
            "note": incident["note"],
            "recovered": recovered and f"{recovered}, by run {incident['recoveredByRunId']}",
            "closed": closed and f"{closed}: {(incident['closedReason'] or '').replace('_', ' ')}",
        }
    )
