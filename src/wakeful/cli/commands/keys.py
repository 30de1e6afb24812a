"""`wakeful keys`: create, list, revoke, and print the variables for other programs."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import CreateAgent, now_ms
from wakeful.cli.session import Session, command, command_group
from wakeful.cli.show.admin import key_table


def register(app: typer.Typer) -> None:
    """Register the commands."""
    group = command_group(app, "keys", "API keys: create, list, revoke, export.", panel="Administration")

    @command(
        group,
        "create",
        examples=(
            "wakeful keys create ci",
            "wakeful keys create bot --agent writer --expires 2030-01-01T00:00:00Z",
        ),
    )
    async def create(
        s: Session,
        name: Annotated[str, typer.Argument(metavar="NAME", help="the owner or purpose of the key")],
        role: Annotated[str, typer.Option("--role", help="admin, member or agent")] = "member",
        expires: Annotated[
            str | None, typer.Option("--expires", metavar="TIME", help="as in 2030-01-01T00:00:00Z")
        ] = None,
        create_agent: CreateAgent = False,
    ) -> None:
        """Create a key. It is shown only once. With --agent, the key is limited to that agent."""
        role = "agent" if s.agent and role == "member" else role
        # The server refuses an admin's key with an agent; WAKEFUL_AGENT alone does not ask for one.
        agent = s.agent if role == "agent" or s.agent_option else None
        if role == "agent" and agent is not None:
            await s.check_agents(create=create_agent)
        given = {"name": name, "role": role, "agent": agent, "expiresAt": expires}
        key = await s.out.wait_for(
            s.client.keys.create({field: value for field, value in given.items() if value is not None})
        )
        s.out.show(
            key,
            Text("key  ", "bold").append(str(key.get("key", "")), "green"),
            Text("     store it now: it is not shown again. The CLI reads it from WAKEFUL_KEY", "dim"),
        )

    @command(group, "list", examples=("wakeful keys list",))
    async def list_keys(s: Session) -> None:
        """Show the keys of the workspace, without their secrets."""
        keys = await s.out.wait_for(s.client.keys.list())
        s.out.show({"keys": keys}, key_table(keys, now_ms()))

    @command(group, "env", examples=("wakeful keys env",))
    async def env(s: Session) -> None:
        """Print the URL and the key that this command line uses, as variables for a shell.

        Use it as `eval "$(wakeful keys env)"`: then curl and other programs can use $WAKEFUL_URL and
        $WAKEFUL_KEY. The server is asked first, so the key is valid.
        """
        await s.out.wait_for(s.client.status())
        variables = {"WAKEFUL_URL": s.client.url, "WAKEFUL_KEY": s.client.key or ""}
        s.out.show(
            variables, *(Text(f"export {name}={shlex.quote(value)}") for name, value in variables.items())
        )

    @command(group, "revoke", examples=("wakeful keys revoke 01980000-0000-7000-8000-000000000000",))
    async def revoke(
        s: Session,
        key_id: Annotated[str, typer.Argument(metavar="KEY", help="the key's id from `wakeful keys list`")],
    ) -> None:
        """Revoke a key, effective at once."""
        await s.out.wait_for(s.client.keys.revoke(key_id))
        s.out.show({"revoked": key_id}, Text(f"revoked {key_id}", "green"))
