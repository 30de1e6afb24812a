"""Detects connection poolers that share the sessions of the server between clients.

Wakeful needs sessions of its own: `LISTEN`, settings and prepared statements last for a session. A pooler in
transaction or statement mode gives each transaction any free session. This check tests the property itself,
and so does not depend on the product. It uses only statements without parameters, since prepared statements
may fail in such a pooler.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

import asyncpg

from wakeful.errors import FailedPrecondition
from wakeful.store.postgres.connect import Raw

#: One round in five misses it while other clients keep the pooler busy.
_ROUNDS: Final = 8
_NOTIFIED_S: Final = 10
_CHANNEL: Final = "wakeful_session_check"

#: Errors of a statement that another session of the server has prepared, or has not.
LOST_STATEMENT: Final = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)


class SharedSessions(FailedPrecondition):
    """A connection pooler shares the sessions of the server between its clients."""

    def __init__(self, shown: str) -> None:
        super().__init__(
            f"the address {shown} is a connection pooler in transaction or statement mode, which Wakeful "
            "cannot use: set it to session mode, or connect to PostgreSQL directly"
        )


async def check_sessions(first: Raw, second: Raw, shown: str) -> None:
    """Raise SharedSessions unless each of two connections has a session of its own."""
    try:
        shared = await _is_shared(first, second)
    except LOST_STATEMENT as error:
        raise SharedSessions(shown) from error
    except asyncpg.PostgresConnectionError as error:
        if "transaction block" not in str(error):
            raise
        raise SharedSessions(shown) from error  # PgBouncer in statement mode refuses BEGIN and disconnects
    if shared:
        raise SharedSessions(shown)
    if not await _notifies(first, second):
        raise FailedPrecondition(
            f"notifications (LISTEN, NOTIFY) of {shown} do not arrive, and Wakeful needs them: connect to "
            "PostgreSQL directly instead of through a connection pooler"
        )


async def _is_shared(first: Raw, second: Raw) -> bool:
    """Return whether a setting of one session is seen, or missed, in the wrong connection.

    While the second connection is in a transaction, the first gets another session from a pooler, unless the
    second has the session of the first: both are seen. Other clients of the pooler may hide it in one round.
    """
    value = secrets.token_hex(8)
    asked = f"SELECT 1 WHERE current_setting('wakeful.session', true) = '{value}'"
    await first.execute(f"SET wakeful.session = '{value}'")
    for _ in range(_ROUNDS):
        if await second.execute(f"BEGIN; {asked}") != "SELECT 0":
            return True  # without another question: the pooler may have only this session
        if await first.execute(asked) != "SELECT 1":
            return True
        await second.execute("COMMIT")
    await first.execute("RESET wakeful.session")
    return False


async def _notifies(listening: Raw, sending: Raw) -> bool:
    """Return whether a notification arrives at a connection that sends nothing itself."""
    value, arrived = secrets.token_hex(8), asyncio.Event()

    def on_notification(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == value:
            arrived.set()

    await listening.add_listener(_CHANNEL, on_notification)
    await sending.execute(f"NOTIFY {_CHANNEL}, '{value}'")
    try:
        async with asyncio.timeout(_NOTIFIED_S):
            await arrived.wait()
    except TimeoutError:
        return False
    await listening.remove_listener(_CHANNEL, on_notification)
    return True
