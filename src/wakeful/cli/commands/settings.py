"""`wakeful settings`: the settings of the server."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.session import Session, command
from wakeful.cli.show.operations import setting_table


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "settings",
        examples=("wakeful settings", "wakeful settings retention", "wakeful settings --changed --json"),
        panel="Server",
    )
    async def settings(
        s: Session,
        text: Annotated[
            str | None, typer.Argument(metavar="TEXT", help="only settings whose name contains this")
        ] = None,
        changed: Annotated[
            bool, typer.Option("--changed", help="only settings that do not have their default")
        ] = False,
    ) -> None:
        """Show the settings of the server and where they come from; of a secret, only whether it is set.

        Requires a key for all workspaces.
        """
        found = [
            each
            for each in await s.out.wait_for(s.client.operations.settings())
            if (text or "").lower() in each["name"].lower() and not (changed and each["source"] == "default")
        ]
        shown = setting_table(found, wide=s.out.wide) if found else Text("no such settings", "dim")
        s.out.show({"settings": found}, shown)
