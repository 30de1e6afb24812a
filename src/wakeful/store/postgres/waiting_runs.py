"""Runs in PostgreSQL that start later or not at all: cancelled, withdrawn, released, moved with their job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from asyncpg import Record

from wakeful.run.consequences import Withdrawal
from wakeful.store.changelog import TransactionEvents
from wakeful.store.lane_shares import ON_LOST_FAIL
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.mailbox import expose, lock, lock_of_jobs, lock_of_runs, move_to_mailboxes
from wakeful.store.postgres.session import Db
from wakeful.store.rows import Move

#: live_runs_of_job, once for each job; the primary keys of runs and live_runs for the rows found. What a
#: signal requires follows from its instance
MOVE: Final = """
    WITH picked AS (
        SELECT r.id, t.lane, t.claim_timeout_ms, t.requires
        FROM unnest($1::uuid[], $2::text[], $3::bigint[], $5::text[])
            t (job_id, lane, claim_timeout_ms, requires)
        CROSS JOIN LATERAL (
            SELECT l.run_id, l.state FROM live_runs l
            WHERE l.job_id = t.job_id
                AND (l.due_at IS NOT NULL OR l.instance_id IS NOT NULL AND l.state = 'pending')
                AND (l.lane <> t.lane OR l.is_pull <> (t.claim_timeout_ms IS NOT NULL)
                    OR l.instance_id IS NULL AND l.requires <> t.requires) OFFSET 0) l
        JOIN runs r ON r.id = l.run_id AND r.state = l.state ORDER BY r.id FOR UPDATE OF r),
    moved AS (
        UPDATE runs r SET lane = p.lane, is_pull = p.claim_timeout_ms IS NOT NULL,
            claim_timeout_ms = p.claim_timeout_ms,
            claim_deadline = greatest(r.due_at, $4::timestamptz) + p.claim_timeout_ms * interval '1 ms',
            requires = CASE WHEN r.instance_id IS NULL THEN p.requires ELSE r.requires END
        FROM picked p WHERE r.id = p.id RETURNING r.*)
    UPDATE live_runs l SET lane = m.lane, is_pull = m.is_pull, claim_deadline = m.claim_deadline,
        workspace = m.workspace, agent = m.agent, requires = m.requires
    FROM moved m WHERE l.run_id = m.id RETURNING true"""
#: live_runs_of_job, once for each job; the primary keys of runs and live_runs for the rows found. The next
#: attempt of a running run has the changed target too: `claim_timeout_ms` says whether an executor claims it.
#: `is_pull` follows when the run waits again
FOLLOW: Final = """
    WITH picked AS (
        SELECT r.id, t.requires, t.lane, t.claim_timeout_ms
        FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[])
            t (job_id, requires, lane, claim_timeout_ms)
        CROSS JOIN LATERAL (
            SELECT l.run_id FROM live_runs l
            WHERE l.job_id = t.job_id AND l.state = 'running' AND l.instance_id IS NULL OFFSET 0) l
        JOIN runs r ON r.id = l.run_id AND r.state = 'running' ORDER BY r.id FOR UPDATE OF r),
    following AS (
        UPDATE runs r SET requires = p.requires, lane = p.lane, claim_timeout_ms = p.claim_timeout_ms,
            claim_deadline = CASE WHEN p.claim_timeout_ms IS NOT NULL THEN r.claim_deadline END
        FROM picked p WHERE r.id = p.id)
    UPDATE live_runs l SET requires = p.requires, lane = p.lane FROM picked p WHERE l.run_id = p.id"""


async def cancel(db: Db, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]) -> None:
    """Cancel these live runs, each for its reason. The workers of running ones are notified."""
    reasons = dict(runs)
    instances = set(await lock_of_runs(db, list(reasons)))
    cancelled = await db.fetch(sql.CANCEL, list(reasons), list(reasons.values()), now_ms)
    _announce(events, cancelled)
    found = {row["instance_id"] for row in cancelled if row["instance_id"] is not None}
    moved = found - instances
    if moved:  # to another mailbox, with their job, before they were locked
        await lock(db, moved)
    await expose(db, events, now_ms, instances | moved)


async def withdraw(
    db: Db, events: TransactionEvents, withdrawals: Sequence[Withdrawal], now_ms: int | None
) -> None:
    """Cancel the runs of these jobs that have not started. Without `now_ms`, only those that are pending."""
    if withdrawals:
        job_ids = [each.job_id for each in withdrawals]
        at_ms = [each.at_ms for each in withdrawals]
        reasons, manual = [each.reason for each in withdrawals], [each.manual for each in withdrawals]
        instances = await lock_of_jobs(db, job_ids)
        _announce(events, await db.fetch(sql.WITHDRAW, job_ids, at_ms, reasons, manual, now_ms))
        await expose(db, events, max(at_ms), instances)


async def delete_jobs(db: Db, events: TransactionEvents, jobs: Mapping[str, int]) -> bool:
    """Mark these jobs as deleted, each at its time. Return whether any was not deleted before."""
    rows = await db.fetch(sql.DELETE_JOBS, list(jobs), list(jobs.values())) if jobs else []
    events.record_changed_jobs(rows)
    return bool(rows)


def _announce(events: TransactionEvents, cancelled: Sequence[Record]) -> None:
    """Announce runs that were cancelled, each with the state that it had, its job and the reason."""
    if cancelled:
        events.record_ended([row["id"] for row in cancelled])
        events.publish("runs")
    for row in cancelled:
        events.cancelled.append((row["id"], row["job_id"], row["reason"]))
        if row["was"] == "running":
            events.publish(f"stop:{row['id']}")


async def release_runs(db: Db, events: TransactionEvents, now_ms: int, held: Sequence[str]) -> None:
    """Retry these running runs: immediately, or at their instant if that is later."""
    if held:
        await db.execute(sql.RELEASE, held, now_ms)
        await db.execute(sql.ADD_LIVE_RUNS, held)
        events.record_retried(held)
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
    await db.execute(FOLLOW, list(jobs), requires, lanes, timeouts)
    if await db.fetch(MOVE, list(jobs), lanes, timeouts, now_ms, requires):
        events.publish("runs")
    await expose(db, events, now_ms, instances)


async def settle_ahead(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    jobs: Mapping[str, tuple[str, Callable[[int], str | None]]],
) -> None:
    """Cancel or release the ticks of these jobs that are recorded as running before their instant.

    `jobs` has the policy of each job, and a function that returns the reason to cancel a tick; None releases
    it, so that it starts with the changed job. In both cases `stop:` notifies its worker. That may be too
    late: the worker starts the tick nevertheless, so one that must not start twice is not released.
    """
    cancelled: dict[str, str] = {}
    released: dict[str, int] = {}
    for row in await db.fetch(sql.AHEAD, list(jobs), now_ms) if jobs else ():
        run_id, job_id = row["id"], row["job_id"]
        policy, reason_of = jobs[job_id]
        reason = reason_of(row["scheduled_at"])
        if reason is not None:
            cancelled[run_id] = reason
            events.cancelled.append((run_id, job_id, reason))
        elif not row["was_released"] and ON_LOST_FAIL not in policy:
            released[run_id] = row["attempt"]
    if cancelled:
        await db.execute(sql.WITHDRAW_AHEAD, list(cancelled), list(cancelled.values()), now_ms)
        events.record_ended(cancelled)
        events.publish("runs")
        for run_id in cancelled:
            events.publish(f"stop:{run_id}")
    await release_runs(db, events, now_ms, list(released))
    for run_id, attempt in released.items():
        events.publish(f"stop:{run_id}:{attempt}")
