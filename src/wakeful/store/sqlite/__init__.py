"""The store in one SQLite file."""

from wakeful.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
