"""Statements sent to a database directly, bypassing its stores."""

from __future__ import annotations

import asyncpg


async def say(url: str, statement: str, *given: object) -> object:
    """Execute a statement and return its first value."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement, *given)
    finally:
        await connection.close()


async def throw_out(url: str) -> None:
    """Terminate every other connection to the database."""
    await say(
        url,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
