"""From the address of a database to its store."""

from __future__ import annotations

from wakeful.errors import InvalidArgument
from wakeful.store.port import Store


def store_at(url: str) -> Store:
    """The store for `sqlite:///path` or `postgresql://…`; a driver is imported only when it is asked for."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        from wakeful.store.sqlite import SqliteStore

        return SqliteStore(rest.removeprefix("/") or ":memory:")
    if scheme in ("postgresql", "postgres"):
        try:
            from wakeful.store.postgres import PostgresStore
        except ImportError as error:
            raise InvalidArgument("PostgreSQL needs its driver: pip install 'wakeful[postgres]'") from error
        return PostgresStore(url)
    raise InvalidArgument(f"'{url}' is no database address; give sqlite:///wakeful.db or postgresql://…")
