"""From the address of a database to its store."""

from __future__ import annotations

from wakeful.errors import InvalidArgument
from wakeful.store.port import Store


def store_at(url: str) -> Store:
    """The store for `sqlite:///path` or `postgresql://…`; a driver is imported only when it is asked for."""
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        from wakeful.store.sqlite import SqliteStore

        return SqliteStore(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from wakeful.store.postgres import PostgresStore
        except ImportError as error:
            raise InvalidArgument("PostgreSQL needs its driver: pip install 'wakeful[postgres]'") from error
        return PostgresStore(url)
    raise InvalidArgument(f"'{url}' is no database address; give sqlite:///wakeful.db or postgresql://…")


def sqlite_path(url: str) -> str | None:
    """The path of the file that an SQLite address names, or `:memory:`; None for any other database.

    >>> sqlite_path("sqlite:///wakeful.db"), sqlite_path("postgresql://localhost/wakeful")
    ('wakeful.db', None)
    """
    if not url.startswith("sqlite://"):
        return None
    from wakeful.store.sqlite.connection import path_of

    return path_of(url)
