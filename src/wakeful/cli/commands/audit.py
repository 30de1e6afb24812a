"""`wakeful audit`: list, verify."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, cast

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.arguments import Limit, now_ms
from wakeful.cli.concurrency import full_page
from wakeful.cli.session import Session, command, command_group
from wakeful.cli.show.admin import audit_table
from wakeful.client.types import AuditShape
from wakeful.model import Page
from wakeful.values.plural import plural


def register(app: typer.Typer) -> None:
    """Register the commands."""
    group = command_group(app, "audit", "The audit log: list, verify.", panel="Administration")

    @command(group, "list", examples=("wakeful audit list --limit 10", "wakeful audit list --action key"))
    async def list_entries(
        s: Session,
        actor: Annotated[
            str | None, typer.Option("--actor", help="only of this actor, such as key:ID")
        ] = None,
        action: Annotated[
            str | None, typer.Option("--action", help="only this action, or this kind, such as job")
        ] = None,
        subject: Annotated[
            str | None, typer.Option("--subject", help="only about this subject, such as agent/job")
        ] = None,
        limit: Limit = 50,
        cursor: Annotated[
            str | None, typer.Option("--cursor", help="the `cursor` of the previous page's --json output")
        ] = None,
    ) -> None:
        """Show the audit log, newest first."""

        def fetch(size: int, after: str | None) -> Awaitable[Page[AuditShape]]:
            return s.client.audit.list(actor=actor, action=action, subject=subject, limit=size, cursor=after)

        entries = await s.out.wait_for(full_page(fetch, limit, cursor))
        none = "no entry matches" if actor or action or subject else "the audit log is empty"
        shown = audit_table(entries, now_ms()) if entries else Text(none, "dim")
        s.out.show({"entries": entries, "cursor": entries.cursor}, shown)

    @command(group, "verify", examples=("wakeful audit verify",))
    async def verify(s: Session) -> int:
        """Verify the hash chain of the audit log. The exit code is 1 if it is broken."""
        found = await s.out.wait_for(s.client.audit.verify(), "verifying the hash chain")
        flaw, count = found.get("flaw"), cast(int, found.get("count", 0))
        entries = plural(count, "entry", "entries")
        shown = (
            Text(
                f"{entries} verified: none was changed, removed or reordered",
                "green",
            )
            if flaw is None
            else Text(f"the hash chain is broken: {flaw}", "red")
        )
        s.out.show(found, shown)
        return exit_codes.OK if flaw is None else exit_codes.NOT_DONE
