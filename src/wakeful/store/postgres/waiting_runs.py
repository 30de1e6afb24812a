"""Runs in PostgreSQL that wait again, or elsewhere: released by their worker, or moved with their job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wakeful.store.postgres import pull_statements
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.mailbox import expose, move_to_mailboxes
from wakeful.store.rows import Move

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, TransactionEvents


async def release_runs(db: Db, events: TransactionEvents, now_ms: int, held: Sequence[str]) -> None:
    """Retry these running runs: immediately, or at their instant if that is later."""
    if held:
        await db.execute(sql.RELEASE, held, now_ms)
        await db.execute(sql.ADD_LIVE_RUNS, held)
        events.retried(held)
        events.publish("runs")


async def move(
    db: Db, events: TransactionEvents, now_ms: int, jobs: Mapping[str, Move], instances: Sequence[str]
) -> None:
    """Move unfinished runs to another lane, requirement or mailbox. See `Store.change_job`.

    `instances` are those that `lock_for_move` has locked for these jobs.
    """
    if not jobs:
        return
    await move_to_mailboxes(db, now_ms, jobs, instances)
    lanes, timeouts = [to.lane for to in jobs.values()], [to.claim_timeout_ms for to in jobs.values()]
    requires = [to.requires for to in jobs.values()]
    await db.execute(pull_statements.FOLLOW, list(jobs), requires, lanes, timeouts)
    if await db.fetch(pull_statements.MOVE, list(jobs), lanes, timeouts, now_ms, requires):
        events.publish("runs")
    await expose(db, events, now_ms, instances)
