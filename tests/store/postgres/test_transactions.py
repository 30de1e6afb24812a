"""Transactions that are cancelled leave nothing open."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from tests.support.factories import given_job
from wakeful.store.postgres import PostgresStore

#: Iterations of the event loop after which a call is cancelled: some of them cancel its BEGIN.
_ITERATIONS = range(1, 20)


async def test_a_call_cancelled_at_any_moment_leaves_no_transaction_open(store: PostgresStore) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    cancelled = 0
    for iterations in _ITERATIONS:
        await store.ping()  # so that a connection is open
        call = asyncio.create_task(given_job(store, name=f"job-{iterations}"))
        for _ in range(iterations):
            await asyncio.sleep(0)
        # The server executes what was sent, and this process does not read the response.
        time.sleep(0.01)  # noqa: ASYNC251
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        cancelled += call.cancelled()
    assert cancelled
    assert reported == []
