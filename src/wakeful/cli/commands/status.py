"""How the server is: `status`; and `mcp`."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import typer

from wakeful.cli.commands.serving import keep_log
from wakeful.cli.session import Session, command
from wakeful.cli.show.admin import status_page
from wakeful.errors import FailedPrecondition


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "status", panel="Server")
    async def status(s: Session) -> None:
        """Show how the server is, and how well it keeps its promises."""
        status, slo = await s.out.ask(asyncio.gather(s.client.status(), s.client.slo()))
        s.out.show({**status, "slo": slo}, status_page(s.client.url, status, slo))

    @command(app, "mcp", panel="Server")
    async def mcp(s: Session) -> None:
        """Speak MCP on stdin and stdout, for an agent that schedules its own work.

        An agent's key says whose jobs they are; with another, --agent does. Logs go to stderr.
        """
        if find_spec("mcp") is None:
            raise FailedPrecondition("this takes the library of MCP: pip install 'wakeful[mcp]'")
        from wakeful.api.mcp.stdio import speak

        keep_log("warning")
        await speak(s.client, s.agent)
