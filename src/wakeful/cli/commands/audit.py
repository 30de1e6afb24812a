"""Who did what: `audit list | verify`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import Limit, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.admin import audit_table


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""
    group = typer.Typer(help="Who did what: list, verify.", no_args_is_help=True)
    app.add_typer(group, name="audit", rich_help_panel="Office")

    @command(group, "list")
    async def list_entries(
        s: Session,
        limit: Limit = 50,
        cursor: Annotated[str | None, typer.Option("--cursor", help="go on where --json ended")] = None,
    ) -> None:
        """Show who did what, newest first."""
        entries = await s.out.ask(s.client.audit.list(limit=limit, cursor=cursor))
        shown = audit_table(entries, now_ms()) if entries else Text("nobody has done anything yet", "dim")
        s.out.show({"entries": entries, "cursor": entries.cursor}, shown)

    @command(group, "verify")
    async def verify(s: Session) -> int:
        """Follow the chain of hashes from its beginning; exit code 1 where it is broken."""
        found = await s.out.ask(s.client.audit.verify(), "following the chain")
        flaw, count = found.get("flaw"), found.get("count")
        shown = (
            Text(f"{count} entries, and none was changed, removed or reordered", "green")
            if flaw is None
            else Text(f"the chain is broken: {flaw}", "red")
        )
        s.out.show(found, shown)
        return exit_codes.OK if flaw is None else exit_codes.NOT_DONE
