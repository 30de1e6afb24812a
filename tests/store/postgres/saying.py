"""Saying something to a database behind its stores' backs."""

from __future__ import annotations

import asyncpg


async def say(url: str, statement: str, *given: object) -> object:
    """The first thing that the database answers."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement, *given)
    finally:
        await connection.close()


async def throw_out(url: str) -> None:
    """Break every connection to the database but the one that says so."""
    await say(
        url,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
