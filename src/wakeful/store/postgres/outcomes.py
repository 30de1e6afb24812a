"""How attempts end in PostgreSQL: the outcome behind its fence, and all that follows from it, in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from wakeful.outcome import Finished
from wakeful.run import Follower, NewRun
from wakeful.store.consequences import JobEffects, job_effects
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.deliveries import add_deliveries
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.usage import note_failed, spend
from wakeful.stored_text import cleaned

if TYPE_CHECKING:
    from asyncpg import Record

    from wakeful.store.postgres.connection import Db, TransactionEvents

Follow = Callable[[Follower], NewRun]

_STORED = Finished._fields.index("usage") + 1


async def finish(
    db: Db, tell: TransactionEvents, now_ms: int, worker: str, finished: Sequence[Finished], follow: Follow
) -> set[str]:
    """Write these outcomes, as far as the worker still holds their runs. See `Store.finish`."""
    if not finished:
        return set()
    if len({outcome[0] for outcome in finished}) < len(finished):
        finished = list({outcome.run_id: outcome for outcome in reversed(finished)}.values())[::-1]
    plain = all(f.state == "succeeded" and not f.delete_job and f.disable_job is None for f in finished)
    ticking: set[str] = set()
    if not plain:
        ticking = await _lock_halting(db, finished)
    in_order = sorted(finished, key=itemgetter(0))  # whoever locks several runs, does it in this order
    silent = plain and all(
        f.output is None and f.error is None and f.reason is None and f.usage is None for f in finished
    )
    if silent:
        run_ids, _, attempts, _, started_ms, finished_ms, *_ = zip(*in_order, strict=True)
        response_codes = [outcome.response_code for outcome in in_order]
        columns = map(sql.numbers, (attempts, started_ms, finished_ms, response_codes))
        row = await db.fetchrow(sql.SUCCEED, worker, ",".join(run_ids), *columns)
    else:
        row = await db.fetchrow(sql.FINISH, worker, list(map(_stored, in_order)))
    if row is None or row[0] is None:
        return set()
    ids, any_failing, any_follower, any_waiting = row
    written = set(ids.split(","))
    if len(written) < len(finished):
        finished = [outcome for outcome in finished if outcome.run_id in written]
    tell.ended([outcome.run_id for outcome in finished if outcome.state != "running"])
    if not plain:
        await _stay_alive(db, tell, worker, finished)
    effects = None
    if any_failing or not plain:
        effects = await _job_effects(db, finished, ticking, any_failing)
    failed = [] if plain else [outcome.run_id for outcome in finished if outcome.state == "failed"]
    if failed:
        await note_failed(db, tell, now_ms, failed)
    if not silent and any(outcome.usage is not None for outcome in finished):
        await spend(db, tell, now_ms, finished)
    if effects is not None:
        await _disable(db, tell, effects.disabled)
        await delete_jobs(db, tell, effects.deleted, "job_deleted")
    waking = [outcome.run_id for outcome in finished if outcome.wake_heartbeat]
    if any_follower or waking:
        await _chain(db, tell, now_ms, finished, follow, waking)
    await add_deliveries(db, tell, now_ms, finished)
    if any_waiting and await db.fetchval(sql.ANY_WAITING_OF, _jobs_of(finished)):
        tell("runs")
    return written


async def _lock_halting(db: Db, finished: Iterable[Finished]) -> set[str]:
    """Lock the cursors of the jobs that may be deleted or disabled: before their runs, as planners do.

    Returns which of them have a tick to come.
    """
    halting = {
        f.job_id
        for f in finished
        if f.job_id is not None and (f.delete_job or f.disable_job is not None or f.disable_after is not None)
    }
    rows = await db.fetch(sql.LOCK_CURSORS, list(halting)) if halting else []
    return {job_id for job_id, has_tick in rows if has_tick}


def _stored(outcome: Finished) -> tuple[object, ...]:
    """What is written of an outcome; of its texts, what PostgreSQL can keep (no NUL, no half characters)."""
    stored = (*outcome[:_STORED], outcome.failed_attempts, outcome.response_code)
    if outcome.output is None and outcome.error is None:
        return stored
    return tuple([cleaned(each) if isinstance(each, str) else each for each in stored])


def _jobs_of(finished: Iterable[Finished]) -> str:
    return ",".join([outcome.job_id for outcome in finished if outcome.job_id is not None])


async def _stay_alive(db: Db, tell: TransactionEvents, worker: str, finished: Sequence[Finished]) -> None:
    """What is to be tried again, or is parked, is not over."""
    retrying = [outcome for outcome in finished if outcome.state == "retrying"]
    alive = [outcome.run_id for outcome in finished if outcome.state in ("retrying", "running")]
    if alive:
        await db.execute(sql.STAY_ALIVE, alive)
    if retrying:
        await db.execute(sql.ADD_ATTEMPTS, list(map(_stored, retrying)), worker)
        tell("runs")


async def _job_effects(
    db: Db, finished: Sequence[Finished], ticking: set[str], any_failing: bool
) -> JobEffects:
    """What these do to their jobs, and write the failures of these. Read before anything else is written."""
    counted = {f.job_id for f in finished if f.state == "failed" and f.job_id is not None}
    if any_failing:
        fine = _jobs_of(outcome for outcome in finished if outcome.state == "succeeded")
        counted.update(job_id for (job_id,) in await db.fetch(sql.WHICH_FAIL, fine))
    failures: dict[str, int] = {}
    if counted:
        failures = {row[0]: row[1] for row in await db.fetch(sql.LOCK_FAILURES, list(counted))}
    edited: set[str] = set()
    if ticking:
        of_ticking = [outcome.run_id for outcome in finished if outcome.job_id in ticking]
        edited = {run_id for (run_id,) in await db.fetch(sql.WHICH_WERE_EDITED, of_ticking)}
    effects = job_effects(finished, failures, ticking, edited)
    if failures:
        await db.execute(sql.SET_FAILURES, list(effects.failures), list(effects.failures.values()))
    return effects


async def _chain(
    db: Db,
    tell: TransactionEvents,
    now_ms: int,
    finished: Sequence[Finished],
    follow: Follow,
    waking: Sequence[str],
) -> None:
    """Give the jobs that fire after these their runs, and so the heartbeats that some of them wake."""
    over = ",".join([f.run_id for f in finished if f.state in ("succeeded", "failed")])
    followers = [Follower(*row) for row in await db.fetch(sql.FOLLOWERS, over)]
    if waking:
        followers += [Follower(*row) for row in await db.fetch(sql.HEARTBEATS, waking)]
    await insert_runs(db, tell, now_ms, [follow(follower) for follower in followers])


async def _disable(db: Db, tell: TransactionEvents, jobs: Mapping[str, tuple[int, str]]) -> None:
    """Disable these jobs, each at its time and for its reason, and withdraw what they have planned."""
    if not jobs:
        return
    at = [at_ms for at_ms, _ in jobs.values()]
    reasons = [reason for _, reason in jobs.values()]
    rows = await db.fetch(sql.DISABLE_JOBS, list(jobs), at, reasons)
    tell.changed(rows)
    await withdraw(db, tell, {row[0]: jobs[row[0]][0] for row in rows}, "job_disabled")


async def delete_jobs(db: Db, tell: TransactionEvents, jobs: Mapping[str, int], reason: str) -> bool:
    """Delete these jobs, each at its time, and cancel their pending runs. Whether there were any."""
    if not jobs:
        return False
    rows = await db.fetch(sql.DELETE_JOBS, list(jobs), list(jobs.values()))
    tell.changed(rows)
    deleted = {row[0]: jobs[row[0]] for row in rows}
    gone = await db.fetch(sql.CANCEL_PENDING, list(deleted), list(deleted.values()), reason)
    _cancelled(tell, gone)
    return bool(deleted)


async def withdraw(db: Db, tell: TransactionEvents, jobs: Mapping[str, int], reason: str) -> None:
    """Cancel the ticks of these jobs that are pending, each job's at its time."""
    if jobs:
        _cancelled(tell, await db.fetch(sql.WITHDRAW, list(jobs), list(jobs.values()), reason))


def _cancelled(tell: TransactionEvents, rows: Sequence[Record]) -> None:
    if rows:
        tell.ended([row[0] for row in rows])
        tell("runs")


async def cancel(db: Db, tell: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]) -> None:
    """Cancel these live runs, each for its reason; whoever runs one is told to stop."""
    reasons = dict(runs)
    for run_id, was in await db.fetch(sql.CANCEL, list(reasons), list(reasons.values()), now_ms):
        tell.ended([run_id])
        tell("runs")
        if was == "running":
            tell(f"stop:{run_id}")
