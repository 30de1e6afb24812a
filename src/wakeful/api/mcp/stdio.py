"""MCP on stdin and stdout, for clients that start their servers themselves: `wakeful mcp`."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from wakeful.api.mcp.remote import RemoteScheduler
from wakeful.api.mcp.server import make_server
from wakeful.client.rest import RestClient


async def serve_stdio(client: RestClient, agent: str | None = None) -> None:
    """Serve until stdin closes. The server that the client calls need not be running yet."""
    scheduler = RemoteScheduler(client, agent)
    server = make_server(lambda ctx: scheduler)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
