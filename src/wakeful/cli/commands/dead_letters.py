"""Dead letters: `dead-letters`, `replay`, `discard`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import Limit, now_ms
from wakeful.cli.commands.running import follow
from wakeful.cli.session import Session, command
from wakeful.cli.show.runs import run_table
from wakeful.errors import InvalidArgument

_PANEL = "Dead letters"
RunIds = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help="ids, as `wakeful dead-letters` shows them")
]
All = Annotated[bool, typer.Option("--all", help="all there are")]


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "dead-letters", panel=_PANEL)
    async def dead_letters(s: Session, limit: Limit = 50) -> None:
        """Show failed runs that nobody has replayed or discarded, newest first."""
        found = await s.out.ask(s.runs().dead_letters(limit=limit, all_agents=s.all_agents))
        shown = (
            run_table(found, now_ms(), wide=s.out.wide)
            if found
            else Text("there are no dead letters", "green")
        )
        s.out.show({"deadLetters": found, "cursor": found.cursor}, shown)
        if found:
            s.out.say(Text("wakeful replay RUN runs one again, wakeful discard RUN puts it away", "dim"))

    @command(app, "replay", panel=_PANEL)
    async def replay(
        s: Session,
        ids: RunIds = None,
        all_: All = False,
        wait: Annotated[bool, typer.Option("--wait", "-w", help="follow it, if it is one")] = False,
    ) -> int:
        """Run dead letters again: each a new run with the same idempotency key."""
        chosen = _chosen(ids, all_, "replay")
        if chosen is None or len(chosen) > 1:
            if wait:
                raise InvalidArgument("--wait follows one run; name one")
            done = await s.out.ask(s.client.runs.replay_many(chosen))
            s.out.show({"replayed": done}, Text(f"{len(done)} replayed", "green"))
            return exit_codes.OK
        run = await s.out.ask(s.client.runs.replay(chosen[0]))
        if wait:
            run = await follow(s, run["id"])
        s.out.show(run, Text(f"{run['job']} runs again: {run['id']}" if not wait else run["id"], "green"))
        return exit_codes.OK if not wait or run["state"] == "succeeded" else exit_codes.NOT_DONE

    @command(app, "discard", panel=_PANEL)
    async def discard(s: Session, ids: RunIds = None, all_: All = False) -> None:
        """Put dead letters away. They stay failed runs."""
        chosen = _chosen(ids, all_, "discard")
        if chosen is not None and len(chosen) == 1:  # which is told why not, where it is none
            await s.out.ask(s.client.runs.discard(chosen[0]))
            done = chosen
        else:
            done = await s.out.ask(s.client.runs.discard_many(chosen))
        s.out.show({"discarded": done}, Text(f"{len(done)} discarded", "green"))


def _chosen(ids: list[str] | None, all_: bool, verb: str) -> list[str] | None:
    if bool(ids) == all_:
        raise InvalidArgument(f"say which: `wakeful {verb} RUN`, or `wakeful {verb} --all`")
    return None if all_ else ids
