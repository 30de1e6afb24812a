"""`wakeful migrate`: create or upgrade the tables of the database, without a server."""

from __future__ import annotations

import typer
from rich.text import Text

from wakeful.cli.commands.serve import Db, WaitForDb, settings_with
from wakeful.cli.session import Session, command
from wakeful.store.address import shown_address
from wakeful.store.connect import open_within, store_at


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
        store = store_at(settings.db)
        try:
            await open_within(store, settings.wait_for_db or 0)
            schema = await store.schema()
        finally:
            await store.close()
        db_name = shown_address(settings.db)
        s.out.show({"db": db_name, "schema": schema}, Text(f"{db_name} has schema {schema}"))
