"""`wakeful sessions`: list, show, delete."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import Limit, check_given, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.sessions import session_page, session_table
from wakeful.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "sessions",
        examples=(
            "wakeful sessions writer",
            "wakeful sessions writer telegram:123456789",
            "wakeful sessions writer telegram:123456789 --delete",
        ),
        panel="Runs",
    )
    async def sessions(
        s: Session,
        name: Annotated[
            str | None, typer.Argument(metavar="AGENT", help="the agent's name (default: default)")
        ] = None,
        session: Annotated[
            str | None, typer.Argument(metavar="SESSION", help="show this session with its history")
        ] = None,
        delete: Annotated[
            bool, typer.Option("--delete", help="delete the session with its history; stop its turns")
        ] = False,
        limit: Limit = 50,
        cursor: Annotated[
            str | None, typer.Option("--cursor", help="the `cursor` of the previous page's --json output")
        ] = None,
    ) -> None:
        """Show the sessions of an agent, or one of them with what was said and answered."""
        check_given("AGENT", name)
        agent = s.named_agent(name or s.agent or "default")
        agents = s.client.agents
        if delete:
            if session is None:
                raise InvalidArgument(
                    "--delete: name the session too: wakeful sessions AGENT SESSION --delete"
                )
            await s.out.wait_for(agents.delete_session(agent, session))
            s.out.show({"deleted": session}, Text(f"deleted the session {session} of {agent}", "green"))
            return
        if session is not None:
            found = await s.out.wait_for(agents.session(agent, session, limit=limit, cursor=cursor))
            s.out.show(found, *session_page(found, now_ms()))
            if found["cursor"]:
                s.out.say(Text("older entries exist; raise --limit to show them", "dim"))
            return
        listed = await s.out.wait_for(agents.sessions(agent, limit=limit, cursor=cursor))
        shown = session_table(listed, now_ms()) if listed else Text("no sessions", "dim")
        s.out.show({"sessions": list(listed), "cursor": listed.cursor}, shown)
        if listed.cursor:
            s.out.say(Text("more sessions exist; raise --limit to show them", "dim"))
