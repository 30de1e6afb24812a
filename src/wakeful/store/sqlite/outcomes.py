"""Outcomes of attempts in SQLite, each written behind its fence and together with its effects.

This module reads facts and writes effects. What follows from an outcome is decided by the function that the
caller passes (`wakeful.run.consequences`). `finish` writes first and counts, because the caller nearly always
holds all the runs that it reports. Only if the count is too low does it start again and look which it holds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from wakeful.run.consequences import (
    Candidate,
    Consequences,
    Effects,
    Facts,
    Needs,
    edit_times,
    fires_followers,
    first_of_each_run,
    needs,
    resets_failures,
)
from wakeful.run.outcome import Finished, storable
from wakeful.run.signal_rules import refuse
from wakeful.store.changelog import TransactionEvents
from wakeful.store.job_changes import ended_jobs, overdue_runs
from wakeful.store.rows import AttemptView
from wakeful.store.sql import budgets, chains, history, incidents, prechecks, verifications
from wakeful.store.sql.deliveries import add_deliveries, add_emitted
from wakeful.store.sql.jobs import job_row
from wakeful.store.sql.new_runs import check_written
from wakeful.store.sql.usage import add_usage, read_owners
from wakeful.store.sqlite import statements as sql
from wakeful.store.sqlite.connection import begin_again
from wakeful.store.sqlite.insert_runs import write_runs
from wakeful.store.sqlite.mailbox import expose
from wakeful.store.sqlite.session import SqliteSession
from wakeful.store.sqlite.signal_outcomes import StoredFacts, read_facts, write_directives
from wakeful.store.sqlite.waiting_runs import delete_job, withdraw
from wakeful.values.clock import Clock

_OUTCOME_FIELDS: Final = (
    *("run_id", "attempt", "state", "started_ms", "finished_ms", "due_ms", "output", "error", "reason"),
    *("usage", "failed_attempts", "response_code"),
)
_outcome_values: Final = attrgetter(*_OUTCOME_FIELDS)


async def finish(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    worker: str | None,
    finished: Sequence[Finished],
    consequences: Consequences,
    idle: set[str] | None = None,
) -> set[str]:
    """Write the outcomes of the runs that the worker still holds. See `Store.finish`.

    The next runs of their instances are exposed. With `idle`, their instances are added to it instead.
    """
    finished = storable(finished)
    directives = await read_facts(db, now_ms, finished)
    checked = finished if directives is None else refuse(finished, directives.facts)
    if _write(db, worker, checked) < len(checked):
        begin_again(db)
        return await settle(db, events, clock, now_ms, worker, finished, consequences, idle)
    await _follow_up(db, events, clock, now_ms, worker, checked, consequences, directives, idle)
    return {outcome.run_id for outcome in finished}


async def settle(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    worker: str | None,
    finished: Sequence[Finished],
    consequences: Consequences,
    idle: set[str] | None = None,
) -> set[str]:
    """As `finish`, but look first: for a transaction that has written something else already."""
    held: Sequence[Finished] = _find_held(db, worker, first_of_each_run(storable(finished)))
    directives = await read_facts(db, now_ms, held)
    if directives is not None:
        held = refuse(held, directives.facts)
    _write(db, worker, held)
    await _follow_up(db, events, clock, now_ms, worker, held, consequences, directives, idle)
    return {outcome.run_id for outcome in held}


def _find_held(db: sqlite3.Connection, worker: str | None, finished: Sequence[Finished]) -> list[Finished]:
    """Return the outcomes of runs that the worker holds in that attempt."""
    run_ids = json.dumps([outcome.run_id for outcome in finished])
    held = set(db.execute(sql.WHICH_ARE_HELD, (run_ids, worker)))
    return [outcome for outcome in finished if (outcome.run_id, outcome.attempt) in held]


def _write(db: sqlite3.Connection, worker: str | None, finished: Iterable[Finished]) -> int:
    """Write the outcomes whose fence holds. Return how many."""
    plain: list[tuple[object, ...]] = []
    with_output: list[tuple[object, ...]] = []
    with_response: list[tuple[object, ...]] = []
    other: list[dict[str, object]] = []
    for each in finished:
        if each.state == "succeeded" and each.error is None and each.reason is None and each.usage is None:
            row = each.run_id, each.attempt, each.started_ms, each.finished_ms
            if each.response_code is not None:
                with_response.append((*row, each.output, each.response_code))
            elif each.output is None:
                plain.append(row)
            else:
                with_output.append((*row, each.output))
            continue
        retrying = each.state == "retrying"
        over = not retrying and each.state != "running"
        columns = dict(zip(_OUTCOME_FIELDS, _outcome_values(each), strict=True))
        other.append({**columns, "worker": worker, "retrying": retrying, "over": over})
    written = 0
    for statement, rows in (
        (sql.SUCCEED, plain),
        (sql.SUCCEED_WITH_OUTPUT, with_output),
        (sql.SUCCEED_WITH_RESPONSE, with_response),
    ):
        written += statement.execute(db, rows, worker)
    if other:
        written += db.executemany(sql.FINISH, other).rowcount
        db.executemany(sql.CLEAR_LOSSES, [(each.run_id,) for each in finished if each.suspect is False])
    return written


def _attempt(outcome: Finished, worker: str | None) -> AttemptView:
    return AttemptView(
        attempt=outcome.attempt,
        worker=outcome.executor or worker,
        started_ms=outcome.started_ms,
        finished_ms=outcome.finished_ms,
        error=outcome.error,
        response_code=outcome.response_code,
        output=outcome.output,
    )


async def _follow_up(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    worker: str | None,
    finished: Sequence[Finished],
    consequences: Consequences,
    directives: StoredFacts | None,
    idle: set[str] | None,
) -> None:
    """Write what follows from these outcomes, which are written."""
    emitted: list[str] = []
    if directives is not None:  # first: a schedule that its own run sets anew is not over
        emitted = await write_directives(db, events, clock, now_ms, finished, directives)
    need = needs(finished)
    reports = [each for each in need.special if each.evidence is not None or each.verification is not None]
    if reports:
        await verifications.write_reports(SqliteSession(db), events, now_ms, worker, reports)
    facts = await _facts(db, finished, need, now_ms)
    effects = consequences(finished, facts)
    events.record_retried([outcome.run_id for outcome in need.special if outcome.state == "retrying"])
    events.record_ended(
        [outcome.run_id for outcome in finished if outcome.state not in ("running", "retrying")]
    )
    if effects.disabled or effects.deleted:
        _record_due(db, events, now_ms, effects)
    await _apply(db, events, clock, now_ms, worker, effects)
    if need.history:
        await history.append(SqliteSession(db), need.history, now_ms)
    if emitted:
        await add_emitted(SqliteSession(db), events, now_ms, emitted)
    instances = {each.instance_id for each in finished if each.instance_id is not None}
    if idle is None:
        expose(db, events, now_ms, instances)
    else:
        idle |= instances
    if _any_job(finished) and db.execute(sql.ANY_WAITING).fetchone() is not None:
        jobs = json.dumps([outcome.job_id for outcome in finished if outcome.job_id is not None])
        (topic,) = db.execute(sql.WAITING_OF, (jobs,)).fetchone()
        if topic is not None:
            events.publish(topic)


def _any_job(finished: Iterable[Finished]) -> bool:
    """Return whether any of the runs has a job. Most signals have none."""
    return any(each.job_id is not None for each in finished)


async def _facts(db: sqlite3.Connection, finished: Sequence[Finished], need: Needs, now_ms: int) -> Facts:
    """Read what the consequences of these outcomes depend on; for most batches, nothing."""
    failures: dict[str, int] = {}
    jobs = _any_job(finished)
    any_failing = jobs and db.execute(sql.ANY_FAILING).fetchone() is not None
    if any_failing:
        failures.update(db.execute(sql.FAILING, (json.dumps(resets_failures(finished)),)))
    if need.failed_jobs:
        failures.update(db.execute(sql.FAILURES, (json.dumps(list(need.failed_jobs)),)))
    session = SqliteSession(db)
    troubled = {*failures, *need.ending_jobs} if any_failing or need.failed_jobs else ()
    has_next: set[str] = set()
    edits: dict[str, tuple[int, int]] = {}
    if need.ending_runs:
        for run_id, created_ms, updated_ms, job_id in db.execute(sql.EDITS, (json.dumps(need.ending_runs),)):
            has_next.add(job_id)
            edits[run_id] = edit_times(created_ms, updated_ms, now_ms)
    followers: list[Candidate] = []
    if jobs and db.execute(sql.ANY_FOLLOWER).fetchone() is not None:
        followed = json.dumps(fires_followers(finished))
        most = chains.most_candidates(len(finished))
        followers = [Candidate(*row) for row in db.execute(sql.FOLLOWERS, (followed, most))]
        chains.check_follow_ups(len(followers), len(finished))
    heartbeats: list[Candidate] = []
    if need.waking_runs:
        waking = json.dumps(need.waking_runs)
        heartbeats = [Candidate(*row) for row in db.execute(sql.HEARTBEATS, (waking,))]
    owners, spent = await read_owners(SqliteSession(db), need.usage_runs) if need.usage_runs else ({}, {})
    return Facts(
        failures,
        has_next,
        edits,
        followers,
        heartbeats,
        owners,
        await incidents.jobs(session, need.failed_jobs) if need.failed_jobs else {},
        await incidents.of_jobs(session, troubled, now_ms) if troubled else (),
        await prechecks.revisions(session, list(need.checked_jobs)) if need.checked_jobs else {},
        spent,
    )


def _record_due(db: sqlite3.Connection, events: TransactionEvents, now_ms: int, effects: Effects) -> None:
    """Record the ticks that were due and not planned yet when outcomes end their jobs."""
    ended = json.dumps([*effects.disabled, *effects.deleted])
    ends = ended_jobs(effects, {job_id for (job_id,) in db.execute(sql.WITH_NEXT, (ended,))})
    for job_id, end in ends.items():
        due = overdue_runs(job_row(db.execute(sql.JOB_BY_ID, (job_id,)).fetchone()), *end)
        check_written(due, write_runs(db, events, now_ms, due))


async def _apply(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    worker: str | None,
    effects: Effects,
) -> None:
    """Write the effects."""
    if effects.attempts:
        db.executemany(sql.ADD_ATTEMPT, [(each.run_id, *_attempt(each, worker)) for each in effects.attempts])
        events.publish("runs")
    if effects.failures:
        db.executemany(sql.SET_FAILURES, [(count, job_id) for job_id, count in effects.failures.items()])
    if effects.precheck_states:
        await prechecks.set_states(SqliteSession(db), effects.precheck_states)
    if effects.incidents:
        await incidents.write(SqliteSession(db), events, effects.incidents)
    if effects.usage:
        await add_usage(SqliteSession(db), events, now_ms, effects.usage)
    if effects.settled:
        await budgets.settle(SqliteSession(db), effects.settled)
    for job_id, (at_ms, reason) in effects.disabled.items():
        if db.execute(sql.DISABLE_JOB, (reason, at_ms, job_id)).rowcount:
            events.record_changed_jobs(db.execute(sql.JOB_NAMES, (job_id,)))
    for job_id, at_ms in effects.deleted.items():
        delete_job(db, events, job_id, at_ms)
    for withdrawal in effects.withdrawn:
        # Not the time from before the wait for the lock: runs that started since then continue.
        withdraw(db, events, withdrawal, max(now_ms, clock.now_ms()))
    if effects.runs:
        write_runs(db, events, now_ms, effects.runs)
    if effects.deliveries:
        await add_deliveries(SqliteSession(db), events, now_ms, effects.deliveries)
