"""`wakeful status` and `wakeful mcp`."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import typer

from wakeful.cli.session import Session, command
from wakeful.cli.show.admin import status_page
from wakeful.errors import FailedPrecondition


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "status",
        examples=(
            "wakeful status",
            "wakeful status --json",
        ),
        panel="Server",
    )
    async def status(s: Session) -> None:
        """Show the state of the server and its service level objectives."""
        status, slo = await s.out.wait_for(asyncio.gather(s.client.status(), s.client.slo()))
        s.out.show({**status, "slo": slo}, status_page(s.client.url, status, slo))

    @command(app, "mcp", examples=("wakeful mcp --agent writer",), panel="Server")
    async def mcp(s: Session) -> None:
        """Serve MCP on stdin and stdout, for an agent that schedules its own work.

        The key of an agent determines the agent; with any other key, set --agent. Logs go to stderr.
        """
        if find_spec("mcp") is None:
            raise FailedPrecondition("the MCP library is not installed: pip install 'wakeful[mcp]'")
        from wakeful.api.mcp.stdio import serve_stdio
        from wakeful.logs.setup import configure

        configure("console", "warning")
        await serve_stdio(s.client, s.agent)
