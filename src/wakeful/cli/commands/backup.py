"""`wakeful backup`: copy the database of a server to a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.exit_codes import OK
from wakeful.cli.serve_options import Db, database_text, settings_with
from wakeful.cli.session import Afterwards, CliSession, command


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "backup",
        examples=(
            "wakeful backup backup.db",
            "wakeful backup backup.dump --db postgresql://localhost/wakeful",
        ),
        panel="Server",
        calls_server=False,
    )
    async def backup(
        s: CliSession,
        file: Annotated[Path, typer.Argument(metavar="FILE", help="a new file for the backup")],
        db: Db = None,
    ) -> Afterwards:
        """Back up the database to a new file, also while servers use it.

        SQLite: a verified copy, and the key file of the webhook secrets beside it. PostgreSQL: `pg_dump`,
        which must be installed here.
        """
        # Outside of the event loop: Ctrl-C ends the copy at once.
        return partial(_write_backup, s, file, db)


def _write_backup(s: CliSession, file: Path, db: str | None) -> int:
    from wakeful.service.admin.backup import back_up_database

    settings = settings_with(db=db)
    done = back_up_database(settings.db, file, partial(s.out.show_progress, "pages"))
    name, key = database_text(settings, None), done.key_file
    lines = [Text(f"{file} is a backup of {name} ({done.size / 1e6:,.1f} MB)", "green")]
    if key is not None:
        lines.append(Text(f"{key} decrypts the webhook secrets in it: keep both"))
    elif settings.secret_key:
        lines.append(Text("WAKEFUL_SECRET_KEY decrypts the webhook secrets in it: keep both"))
    value = {"db": name, "file": str(file), "bytes": done.size, "keyFile": str(key) if key else None}
    s.out.show(value, *lines)
    return OK
