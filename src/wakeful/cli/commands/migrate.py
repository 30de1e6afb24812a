"""`wakeful migrate`: create or upgrade the tables of the database, without a server."""

from __future__ import annotations

import typer
from rich.text import Text

from wakeful.cli.serve_options import Db, WaitForDb, settings_with, shown_database
from wakeful.cli.session import Session, command
from wakeful.service.admin.status import migrate_database


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "migrate",
        examples=["wakeful migrate", "wakeful migrate --db postgresql://owner@db/main"],
        panel="Server",
        calls_server=False,
    )
    async def migrate(s: Session, db: Db = None, wait_for_db: WaitForDb = None) -> None:
        """Create or upgrade the tables of the database.

        `serve` and `worker` do the same at start. Use this if their database role may not create tables.
        """
        settings = settings_with(db=db, wait_for_db=wait_for_db)
        schema = await migrate_database(settings.db, settings.wait_for_db or 0)
        db_name = shown_database(settings, None)
        s.out.show({"db": db_name, "schema": schema}, Text(f"{db_name} has schema {schema}"))
