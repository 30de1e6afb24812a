"""The store in a PostgreSQL database."""

from wakeful.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
