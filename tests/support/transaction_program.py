"""A program that enqueues a call in its own transaction, says so, and waits: to be killed then.

`python -m tests.support.transaction_program DATABASE`
"""

from __future__ import annotations

import asyncio
import sys

from tests.support.caller_connections import POSTGRES, SQLITE
from wakeful import Wakeful


async def enqueue_and_wait(database: str) -> None:
    """Enqueue a call in a transaction of each driver; with SQLite, which has one writer, of the first."""
    app = Wakeful(database, secret_key="a key for tests")

    @app.function()
    async def note(number: int) -> int:
        return number

    async with app:
        await app.enqueue(note, 0).result()
        for number, driver in enumerate(SQLITE[:1] if database.startswith("sqlite") else POSTGRES, 1):
            connection = driver(database)
            await connection.begin()
            await connection.execute(f"INSERT INTO orders VALUES ({number})")
            await connection.enqueue(app, note, number)
        sys.stdout.write("enqueued\n")
        sys.stdout.flush()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(enqueue_and_wait(sys.argv[1]))
