"""Creates and migrates the tables of an SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from wakeful.store.migrations import Migration, check_schema, pending

_HAS_VERSIONS: Final = "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"
_VERSION: Final = "SELECT coalesce(max(version), 0) FROM schema_version"
_CREATE_VERSION: Final = """
    CREATE TABLE IF NOT EXISTS schema_version (
        version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"""
_ADD_VERSION: Final = "INSERT INTO schema_version (version, name, applied_at) VALUES (?, ?, ?)"
_MARK_COMPATIBLE: Final = "UPDATE schema_version SET breaking = 0 WHERE version = ?"
#: the newest breaking migration; the column exists from schema 9 on
_REQUIRED_SCHEMA: Final = "SELECT max(version) FROM schema_version WHERE breaking"


def migrate(db: sqlite3.Connection, steps: Sequence[Migration], now_ms: int) -> None:
    """Apply the pending migrations, all or none, under an exclusive lock.

    IncompatibleSchema: the database has a breaking migration that is not among them.
    """
    installed = installed_schema(db)
    if installed is not None:
        if installed > steps[-1].number:
            check_schema(db.execute(_REQUIRED_SCHEMA).fetchone()[0] or 0, steps[-1].number)
        if not pending(steps, installed):
            return
    db.execute("BEGIN EXCLUSIVE")
    try:
        db.execute(_CREATE_VERSION)
        for step in pending(steps, installed_schema(db) or 0):  # another process may have applied some
            for statement in _statements(step.sql):
                db.execute(statement)
            db.execute(_ADD_VERSION, (step.number, step.name, now_ms))
            if not step.breaking:
                db.execute(_MARK_COMPATIBLE, (step.number,))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def installed_schema(db: sqlite3.Connection) -> int | None:
    """Return the newest migration of the database; None if it has no table of them."""
    if db.execute(_HAS_VERSIONS).fetchone() is None:
        return None
    return int(db.execute(_VERSION).fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script: `executescript` would commit the transaction."""
    *pieces, rest = script.split(";")
    statement = ""
    for piece in pieces:
        statement += piece + ";"
        if sqlite3.complete_statement(statement):  # and not within a text, a comment or a trigger
            yield statement
            statement = ""
    yield statement + rest
