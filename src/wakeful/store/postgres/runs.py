"""Runs in PostgreSQL, as users see and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.errors import AlreadyExists
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun, check_cancellable
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.plans import LiveRuns, ManualRunRule
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.changelog import AuditHeads, OneStatement, audit_parameters
from wakeful.store.postgres.insert_runs import FEW, insert_runs
from wakeful.store.postgres.mailbox import lock_of_runs
from wakeful.store.postgres.outcomes import finish
from wakeful.store.postgres.session import Db, PostgresSession
from wakeful.store.postgres.waiting_runs import cancel
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import RunView
from wakeful.store.sql.new_runs import hold_jobs
from wakeful.store.sql.runs import lock_run, read_run
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

#: live_runs_of_job and the runs' primary key: running and retrying runs, and those that wait for their
#: turn
LIVE: Final = """
    SELECT r.id::text, r.state FROM live_runs l JOIN runs r ON r.id = l.run_id AND r.state = l.state
    WHERE l.job_id = $1 AND (r.state IN ('running', 'retrying')
        OR (r.serial OR r.instance_id IS NOT NULL) AND r.trigger IN ('schedule', 'user', 'agent', 'event'))"""


async def add_runs(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    runs: Sequence[NewRun],
    versions: Sequence[int | None] = (),
) -> list[RunView]:
    written = await insert_runs(db, events, now_ms, runs, strict=True, versions=versions)
    inserted = {run.id: run for run in written}
    for run in runs:
        if run.id not in inserted:
            raise AlreadyExists(f"there is a run '{run.id}' already")
    return [view_of_new_run(inserted[run.id], now_ms) for run in runs]


def fits_one_statement(runs: Sequence[NewRun], versions: Sequence[int | None]) -> bool:
    """Return whether `add_at_once` can add these runs: nothing else follows from them."""
    return (
        0 < len(runs) <= FEW
        and len(runs) == len(versions)
        and None not in versions
        and all(
            run.state == "pending"
            and run.instance_id is None
            and run.details is None
            and run.replay_of is None
            and run.job_id is not None
            for run in runs
        )
    )


async def add_at_once(
    db: Db,
    known: AuditHeads,
    channel: str,
    now_ms: int,
    runs: Sequence[NewRun],
    entries: Sequence[AuditEntry],
    versions: Sequence[int | None],
    day: int | None,
) -> OneStatement[list[RunView]] | None:
    """Add these runs as `add_runs` does, in one statement. None: nothing is written."""
    heads = known.find(sorted({entry.workspace for entry in entries}))
    # Two runs of a job may be of different versions: then one of them is stale.
    jobs = sorted({(str(run.job_id), version) for run, version in zip(runs, versions, strict=True)})
    job_ids = [job_id for job_id, _ in jobs]
    if heads is None or not all(map(is_id, job_ids)):
        return None
    events = TransactionEvents()
    events.publish_pending(runs)
    audit, after = audit_parameters(entries, heads, now_ms)
    rows = await db.fetch(
        sql.ADD_AT_ONCE,
        [run.column_values for run in runs], now_ms, job_ids, [version for _, version in jobs], day, *audit,
        channel, events.topics, list({run.workspace for run in runs}),
    )  # fmt: skip
    if not rows[0]["ok"]:
        return None
    return OneStatement([view_of_new_run(run, now_ms) for run in runs], events.topics, after)


async def add_manual_run(
    db: Db,
    events: TransactionEvents,
    now_ms: int,
    run: NewRun,
    judge: ManualRunRule,
    version: int | None = None,
) -> RunView:
    # The cursor is locked by planners and by workers that start a serial run: until the end neither changes.
    await db.execute(sql.LOCK_CURSORS, [run.job_id])
    await hold_jobs(PostgresSession(db), [run], [version])
    found = await db.fetch(LIVE, run.job_id)
    live = LiveRuns(
        tuple(run_id for run_id, state in found if state != "pending"),
        tuple(run_id for run_id, state in found if state == "pending"),
    )
    judged = judge(run, live)
    if judged.cancelled:
        await cancel(db, events, now_ms, list(judged.cancelled))
    (added,) = await insert_runs(db, events, now_ms, [judged.run], strict=True)
    events.publish("runs")
    return view_of_new_run(added, now_ms)


async def cancel_run(
    db: Db, events: TransactionEvents, run_id: str, now_ms: int, reason: str, running: bool
) -> RunView | None:
    if is_id(run_id):
        await lock_of_runs(db, [run_id])  # before the run
    found = await lock_run(PostgresSession(db), run_id)
    if found is None:
        return None
    check_cancellable(run_id, found.state, running=running)
    await cancel(db, events, now_ms, [(run_id, reason)])
    return await read_run(PostgresSession(db), run_id)


async def cancel_runs(
    db: Db, events: TransactionEvents, now_ms: int, runs: Sequence[tuple[str, str]]
) -> None:
    await cancel(db, events, now_ms, runs)


async def complete_run(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    finished: Finished,
    consequences: Consequences,
) -> bool:
    """Write the outcome of a run that was reported from outside. See `Store.complete_run`.

    The run is not locked before `finish` has locked its job. So between the two statements the worker may let
    the run await its callback. This happens once in an attempt: the second try finds it so.
    """
    for _ in range(2 if is_id(finished.run_id) else 0):
        row = await db.fetchrow(sql.HOLDER, finished.run_id, finished.attempt)
        if row is None:
            return False
        worker, is_pull, instance_id = row
        finished = finished._replace(instance_id=instance_id)
        if await finish(db, events, clock, now_ms, worker, [finished], consequences):
            if worker is not None and not is_pull:
                events.publish(f"stop:{finished.run_id}:{finished.attempt}")
            return True
    return False
