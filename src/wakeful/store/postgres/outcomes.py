"""Outcomes of attempts in PostgreSQL, each written behind its fence and together with its effects.

This module reads facts and writes effects. What follows from an outcome is decided by the function that the
caller passes (`wakeful.run.consequences`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from wakeful.run.consequences import (
    Candidate,
    Consequences,
    Effects,
    Facts,
    JobEnd,
    Needs,
    edit_times,
    fires_followers,
    first_of_each_run,
    needs,
    resets_failures,
)
from wakeful.run.outcome import Finished, storable
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.job_changes import MissedReason, ended_jobs, overdue_runs
from wakeful.store.postgres import statements as sql
from wakeful.store.postgres.changelog import AuditHeads, OneStatement, audit_parameters
from wakeful.store.postgres.insert_runs import insert_runs
from wakeful.store.postgres.mailbox import expose
from wakeful.store.postgres.session import Db, PostgresSession
from wakeful.store.postgres.signal_outcomes import Opened, open_mailboxes, write_directives
from wakeful.store.postgres.waiting_runs import delete_jobs, withdraw
from wakeful.store.rows import JobRow
from wakeful.store.sql import budgets, chains, history, incidents, prechecks, verifications
from wakeful.store.sql.deliveries import add_deliveries, add_emitted
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sql.usage import add_usage, read_owners
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id

_stored: Final = attrgetter(*sql.OUTCOME_FIELDS)


#: Of so few outcomes, the statement that writes them also looks for runs that wait for their jobs.
_FEW: Final = 10


class _Written(NamedTuple):
    """The runs whose outcome was written, and whether small indexes hold anything."""

    run_ids: set[str]
    any_failing: bool
    any_follower: bool
    #: the topic for runs that wait for these jobs, of many outcomes for any job; None: none wait
    waiting: str | None


async def finish(
    db: Db,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    worker: str | None,
    finished: Sequence[Finished],
    consequences: Consequences,
    idle: set[str] | None = None,
) -> set[str]:
    """Write the outcomes of the runs that the worker still holds. See `Store.finish`.

    The next runs of their instances are exposed. With `idle`, the instances are added to it instead.
    """
    if not finished:
        return set()
    finished = first_of_each_run(storable(finished))
    mailboxes: Opened | None = None
    entries = [entry for each in finished for entry in each.history]
    # Sessions are locked first, as by a message that stops a turn.
    added = await history.lock(PostgresSession(db), entries, now_ms) if entries else ()
    # Cursors, jobs and instances are locked before runs, as planners do.
    if any(each.instance_id is not None for each in finished):
        finished, mailboxes = await open_mailboxes(db, now_ms, finished)
        need, has_next = needs(finished), mailboxes.has_next
    else:
        need = needs(finished)
        has_next = await _lock_cursors(db, need.ending_jobs)
    few = len(finished) <= _FEW
    written = await _write(db, worker, few, finished, need)
    if written is None:
        await history.unlock(PostgresSession(db), added, ())
        if mailboxes is not None:
            await write_directives(db, events, clock, now_ms, (), mailboxes)
        return set()
    if len(written.run_ids) < len(finished):
        finished = [each for each in finished if each.run_id in written.run_ids]
        need = needs(finished)
    if entries:
        await history.unlock(PostgresSession(db), added, need.history)
        await history.append(PostgresSession(db), need.history, now_ms)
    emitted: Sequence[str] = ()
    if mailboxes is not None:  # before the facts: a schedule that its own run sets anew is not over
        has_next, emitted = await write_directives(db, events, clock, now_ms, finished, mailboxes)
    reports = [each for each in need.special if each.evidence is not None or each.verification is not None]
    if reports:
        await verifications.write_reports(PostgresSession(db), events, now_ms, worker, reports)
    facts = await _facts(db, finished, need, written, has_next, now_ms)
    effects = consequences(finished, facts)
    events.record_retried([each.run_id for each in need.special if each.state == "retrying"])
    events.record_ended([each.run_id for each in finished if each.state not in ("running", "retrying")])
    if need.special:
        await _update_live(db, need.special)
    if ends := ended_jobs(effects, has_next):
        await _record_due(db, events, now_ms, ends)
    await _apply(db, events, clock, now_ms, worker, effects)
    if emitted:
        await add_emitted(PostgresSession(db), events, now_ms, emitted)
    if mailboxes is not None and idle is not None:
        idle.update(mailboxes.instances)
    elif mailboxes is not None:
        await expose(db, events, now_ms, mailboxes.instances)
    waiting = written.waiting
    if waiting is not None and not few:
        waiting = await db.fetchval(sql.WAITING_OF, _job_ids(finished))
    if waiting is not None:
        events.publish(waiting)
    return written.run_ids


async def finish_at_once(
    db: Db,
    known: AuditHeads,
    channel: str,
    now_ms: int,
    worker: str | None,
    finished: Sequence[Finished],
    entries: Sequence[AuditEntry],
) -> OneStatement[set[str]] | None:
    """Write these outcomes with one statement. None: nothing is written."""
    heads = known.find(sorted({entry.workspace for entry in entries}))
    if heads is None:
        return None
    in_order = sorted(finished, key=attrgetter("run_id"))  # every transaction locks runs in this order
    run_ids = [each.run_id for each in finished]
    audit, after = audit_parameters(entries, heads, now_ms)
    rows = await db.fetch(
        sql.FINISH_AT_ONCE, worker, list(map(_stored, in_order)), *audit, now_ms, "\n".join(run_ids), channel
    )
    if not rows[0]["ok"]:
        return None
    return OneStatement(set(run_ids), [row["topic"] for row in rows if row["topic"] is not None], after)


def fits_one_statement(finished: Sequence[Finished]) -> bool:
    """Return whether `finish_at_once` can write these outcomes: few plain successes of different runs."""
    return (
        0 < len(finished) <= _FEW
        and len({each.run_id for each in finished}) == len(finished)
        and all(
            each.is_plain and each.state == "succeeded" and each.instance_id is None and is_id(each.run_id)
            for each in finished
        )
    )


async def _lock_cursors(db: Db, job_ids: Collection[str]) -> set[str]:
    """Lock the cursors of these jobs. Return the jobs that have a next tick."""
    rows = await db.fetch(sql.LOCK_CURSORS, list(job_ids)) if job_ids else []
    return {job_id for job_id, has_next in rows if has_next}


async def _write(
    db: Db, worker: str | None, few: bool, finished: Sequence[Finished], need: Needs
) -> _Written | None:
    """Write these outcomes to their runs. Return None if the worker holds none of them."""
    in_order = sorted(finished, key=attrgetter("run_id"))  # every transaction locks runs in this order
    succeeded = all(each.state == "succeeded" for each in need.special)
    if succeeded and not any(map(_has_text, finished)):
        row = await db.fetchrow(
            sql.SUCCEED,
            worker,
            few,
            ",".join([each.run_id for each in in_order]),
            sql.numbers([each.attempt for each in in_order]),
            sql.numbers([each.started_ms for each in in_order]),
            sql.numbers([each.finished_ms for each in in_order]),
            sql.numbers([each.response_code for each in in_order]),
        )
    else:
        row = await db.fetchrow(sql.FINISH, worker, few, list(map(_stored, in_order)))
    if row is None or row["run_ids"] is None:
        return None
    run_ids = set(row["run_ids"].split(","))
    return _Written(run_ids, row["any_failing"], row["any_follower"], row["waiting"])


def _has_text(outcome: Finished) -> bool:
    return not (
        outcome.output is None and outcome.error is None and outcome.reason is None and outcome.usage is None
    )


def _job_ids(finished: Sequence[Finished]) -> str:
    return ",".join([each.job_id for each in finished if each.job_id is not None])


async def _facts(
    db: Db, finished: Sequence[Finished], need: Needs, written: _Written, has_next: set[str], now_ms: int
) -> Facts:
    """Read what the consequences of these outcomes depend on; for most batches, nothing."""
    counted = set(need.failed_jobs)
    if written.any_failing and (succeeded := resets_failures(finished)):
        counted.update(job_id for (job_id,) in await db.fetch(sql.WHICH_FAIL, ",".join(succeeded)))
    locked = {*counted, *need.checked_jobs}
    jobs = await db.fetch(sql.LOCK_FAILURES, list(locked)) if locked else ()
    session = PostgresSession(db)
    failed = need.failed_jobs
    # After the jobs, which are locked now: so are the incidents of a job.
    troubled = {*counted, *need.ending_jobs} if written.any_failing or failed else ()
    edits = await db.fetch(sql.EDITS, list(need.ending_runs)) if has_next and need.ending_runs else ()
    followed = fires_followers(finished) if written.any_follower else ()
    most = chains.most_candidates(len(finished))
    followers = await db.fetch(sql.FOLLOWERS, ",".join(followed), most) if followed else ()
    chains.check_follow_ups(len(followers), len(finished))
    heartbeats = await db.fetch(sql.HEARTBEATS, list(need.waking_runs)) if need.waking_runs else ()
    owners, spent = await read_owners(PostgresSession(db), need.usage_runs) if need.usage_runs else ({}, {})
    return Facts(
        {row["id"]: row["failures"] for row in jobs if row["id"] in counted},
        has_next,
        {run_id: edit_times(created_ms, updated_ms, now_ms) for run_id, created_ms, updated_ms in edits},
        [Candidate(*row) for row in followers],
        [Candidate(*row) for row in heartbeats],
        owners,
        await incidents.jobs(session, failed) if failed else {},
        await incidents.of_jobs(session, troubled, now_ms) if troubled else (),
        {row["id"]: row["precheck_revision"] for row in jobs},
        spent,
    )


async def _update_live(db: Db, outcomes: Sequence[Finished]) -> None:
    """Copy the new state of runs that are retried, or await a callback, to `live_runs`."""
    live = [each.run_id for each in outcomes if each.state in ("retrying", "running")]
    if live:
        await db.execute(sql.ADD_LIVE_RUNS, live)
    cleared = [each.run_id for each in outcomes if each.suspect is False]
    if cleared:
        await db.execute(sql.CLEAR_LOSSES, cleared)


async def _apply(
    db: Db, events: TransactionEvents, clock: Clock, now_ms: int, worker: str | None, effects: Effects
) -> None:
    """Write the effects."""
    if effects.attempts:
        workers = [each.executor or worker for each in effects.attempts]
        await db.execute(sql.ADD_ATTEMPTS, list(map(_stored, effects.attempts)), workers)
        events.publish("runs")
    if effects.failures:
        await db.execute(sql.SET_FAILURES, list(effects.failures), list(effects.failures.values()))
    if effects.precheck_states:
        await prechecks.set_states(PostgresSession(db), effects.precheck_states)
    if effects.incidents:
        await incidents.write(PostgresSession(db), events, effects.incidents)
    if effects.usage:
        await add_usage(PostgresSession(db), events, now_ms, effects.usage)
    if effects.settled:
        await budgets.settle(PostgresSession(db), effects.settled)
    if effects.disabled:
        await _disable(db, events, effects.disabled)
    if effects.deleted:
        await delete_jobs(db, events, effects.deleted)
    if effects.withdrawn:
        # Not the time from before the wait for locks: runs that started since then continue.
        await withdraw(db, events, effects.withdrawn, max(now_ms, clock.now_ms()))
    if effects.runs:
        await insert_runs(db, events, now_ms, effects.runs)
    if effects.deliveries:
        await add_deliveries(PostgresSession(db), events, now_ms, effects.deliveries)


async def _record_due(
    db: Db, events: TransactionEvents, now_ms: int, ends: Mapping[str, tuple[int, MissedReason]]
) -> None:
    """Record the ticks that were due and not planned yet when outcomes end their jobs; these are locked."""
    rows = [JobRow(*row) for row in await db.fetch(sql.JOBS_BY_ID, list(ends))]
    due = [run for row in rows for run in overdue_runs(row, *ends[row.id])]
    check_written(due, await insert_runs(db, events, now_ms, due))


async def _disable(db: Db, events: TransactionEvents, jobs: Mapping[str, JobEnd]) -> None:
    at_ms, reasons = map(list, zip(*jobs.values(), strict=True))
    events.record_changed_jobs(await db.fetch(sql.DISABLE_JOBS, list(jobs), at_ms, reasons))
