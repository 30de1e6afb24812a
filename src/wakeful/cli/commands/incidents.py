"""`wakeful incidents`: list, show, acknowledge."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import Limit, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.incidents import incident_page, incident_table
from wakeful.errors import InvalidArgument

_ACK: Final = "ack"
#: The states that the list shows unless the command names others.
_UNRESOLVED: Final = ("open", "acknowledged")


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
        s: Session,
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
        job: Annotated[str | None, typer.Option("--job", help="only of this job: its name or id")] = None,
        note: Annotated[str | None, typer.Option("--note", help="with `ack`: why, for other people")] = None,
        limit: Limit = 50,
    ) -> None:
        """Show the incidents, show one, or acknowledge one.

        Failures of one job with one cause are one incident. An acknowledged incident causes no reminder.
        """
        acks, incident_id = _read(words or [])
        if note is not None and not acks:
            raise InvalidArgument("--note works with `wakeful incidents ack INCIDENT` only")
        if incident_id is not None:
            if state is not None or job is not None:
                raise InvalidArgument("--state and --job work for the list only")
            rest = s.client.incidents
            call = rest.ack(incident_id, note=note) if acks else rest.get(incident_id)
            incident = await s.out.wait_for(call)
            s.out.show(incident, incident_page(incident, now_ms()))
            return
        states = () if state == "all" else _UNRESOLVED if state is None else state.split(",")
        found = await s.out.wait_for(
            s.client.incidents.list(states=states, agent=s.agent, job=job, limit=limit)
        )
        none = Text("no incidents" if state else "no open incidents", "green")
        shown = incident_table(found, now_ms(), wide=s.out.wide) if found else none
        s.out.show({"incidents": found, "cursor": found.cursor}, shown)
        if any(each["state"] == "open" for each in found):
            s.out.say(Text("acknowledge one with: wakeful incidents ack INCIDENT", "dim"))


def _read(words: list[str]) -> tuple[bool, str | None]:
    """Return whether to acknowledge, and the id of the incident."""
    acks = words[:1] == [_ACK]
    ids = words[1:] if acks else words
    if len(ids) > 1 or (acks and not ids):
        raise InvalidArgument("give one incident: `wakeful incidents INCIDENT`, or `ack INCIDENT`")
    return acks, ids[0] if ids else None
