"""How the server is: `status`; and `mcp`."""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec

import typer

from wakeful.cli.session import Session, command
from wakeful.cli.show.office import status_page
from wakeful.errors import FailedPrecondition

_MCP = "wakeful.api.mcp"


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "status", panel="Server")
    async def status(s: Session) -> None:
        """Show how the server is, and how well it keeps its promises."""
        status, slo = await s.out.ask(asyncio.gather(s.client.status(), s.client.slo()))
        s.out.show({**status, "slo": slo}, status_page(s.client.url, status, slo))

    @command(app, "mcp", panel="Server")
    async def mcp(s: Session) -> None:
        """Speak MCP on stdin and stdout, for an agent that schedules its own work."""
        speak = getattr(import_module(_MCP), "stdio", None) if find_spec(_MCP) else None
        if speak is None:
            raise FailedPrecondition("there is no MCP in this version yet; use HTTP, or the other commands")
        await speak(s.client, s.agent or "default")
