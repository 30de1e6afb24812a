"""Runs that executors claim, in SQLite: claims, leases, and runs that nobody claimed in time.

`claim_timeout_ms` is how long such a run waits for an executor each time it is due. `claim_deadline` is the
end of its current or last wait. Each statement names its index; the rules are those of `statements`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import Consequences
from wakeful.run.outcome import Finished
from wakeful.store.changelog import TransactionEvents, claim_topic
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest, assign_runs, plan_ranges
from wakeful.store.columns import fields_before, select_list
from wakeful.store.plans import TURN_MS
from wakeful.store.rows import Renewal, RunView, TakenRun, UnfinishedRun
from wakeful.store.sql.budgets import find_budget_owners
from wakeful.store.sql.runs import runs_by_ids
from wakeful.store.sqlite.leases import DueRun, longest_due, read_due_runs
from wakeful.store.sqlite.outcomes import settle
from wakeful.store.sqlite.session import Bulk, SqliteSession
from wakeful.store.sqlite.statements import DUE_RUN, HAS_THE_TURN, OF_DUE_RUN, marks
from wakeful.store.sqlite.waiting_runs import HeldRun, release_runs
from wakeful.values.clock import Clock

_WAITING: Final = "r.state IN ('pending', 'retrying')"
_WAITING_PULL: Final = f"{_WAITING} AND r.is_pull"
_OF_LANES: Final = "(?3 IS NULL OR r.lane IN (SELECT value FROM json_each(?3)))"
#: runs_claimable: a range of it, in its order
CLAIMABLE: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_claimable {OF_DUE_RUN}
    WHERE r.workspace = ?1 AND r.due_at <= ?2 AND {_WAITING_PULL} AND {_OF_LANES}
        AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?4"""
#: runs_claimable_of_agent: a range of it, in its order
CLAIMABLE_OF_AGENT: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_claimable_of_agent {OF_DUE_RUN}
    WHERE r.workspace = ?1 AND r.agent = ?5 AND r.due_at <= ?2 AND {_WAITING_PULL} AND {_OF_LANES}
        AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?4"""
#: the primary key of runs, once for each
TAKEN_RUNS: Final = f"""
    SELECT {DUE_RUN} FROM json_each(?1) e CROSS JOIN runs r ON r.id = e.value {OF_DUE_RUN}"""
_UNFINISHED_RUN: Final = select_list(
    fields_before(UnfinishedRun, "instance_id"),
    "r",
    {"policy": "coalesce(j.policy, '{}')", "response_code": "NULL"},
)
#: by rowid
MARK_CLAIMED: Final = Bulk(
    """UPDATE runs SET state = 'running', started_at = ?1, beat_at = ?1, due_at = NULL, waiting = NULL,
        worker = v.column1, attempt = v.column2, claim_id = v.column3 FROM (VALUES""",
    f"({marks(4)})",
    ") v WHERE runs.rowid = v.column4",
    shared=1,
)
#: the primary keys of runs and jobs, once for each. With the rowid last. One that is being verified is over
#: for its executor
CLAIMED: Final = f"""
    SELECT {_UNFINISHED_RUN}, r.rowid
    FROM json_each(?1) h CROSS JOIN runs r ON r.id = json_extract(h.value, '$[0]')
    LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.attempt = json_extract(h.value, '$[1]') AND r.state = 'running'
        AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = ?2
        AND r.agent = coalesce(json_extract(h.value, '$[2]'), r.agent)
        AND r.worker IS coalesce(json_extract(h.value, '$[3]'), r.worker)"""
#: by rowid. The work of a run that waits has not started
RENEW: Final = """
    UPDATE runs SET beat_at = ?1, waiting = json_extract(h.value, '$[1]'),
        started_at = iif(json_extract(h.value, '$[1]') IS NULL, started_at, ?1)
    FROM json_each(?2) h WHERE runs.rowid = json_extract(h.value, '$[0]')"""
_RETURNABLE: Final = """
    r.state = 'running' AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = ?2
    AND (?3 IS NULL OR r.agent = ?3) AND r.worker = ?4"""
_RETURNED: Final = "r.id, r.attempt, r.worker, iif(r.fire_at <= ?5, r.started_at, NULL)"
#: the primary key of runs, once for each. What is released of each run
RETURNABLE: Final = f"""
    SELECT {_RETURNED} FROM json_each(?1) h CROSS JOIN runs r ON r.id = json_extract(h.value, '$[0]')
    WHERE r.attempt = json_extract(h.value, '$[1]') AND {_RETURNABLE}"""
#: runs_running, all of it: as `statements.HELD_BY`
RETURNABLE_OF_CLAIM: Final = f"""
    SELECT {_RETURNED} FROM runs r INDEXED BY runs_running
    WHERE r.claim_id = ?1 AND {_RETURNABLE}"""

# runs_running and runs_waiting, once for each. True if another run of its job is running or retrying: then
# this one waits for its turn, not for an executor.
_BUSY: Final = """
    r.serial AND (
        EXISTS (SELECT 1 FROM runs o INDEXED BY runs_running
            WHERE o.job_id = r.job_id AND o.state = 'running')
        OR EXISTS (SELECT 1 FROM runs o INDEXED BY runs_waiting
            WHERE o.job_id = r.job_id AND o.state IN ('pending', 'retrying') AND o.state = 'retrying'
            AND o.id <> r.id))"""
_OUT_OF_TURN: Final = f"""
    CROSS JOIN runs r INDEXED BY runs_waiting ON r.job_id = o.job_id AND {_WAITING}
    WHERE r.serial AND r.claim_deadline <= ?1 AND r.due_at <= ?2"""
#: all of runs_running and runs_retrying, which have only such runs; runs_waiting, once for each
BLOCKED: Final = f"""
    SELECT r.rowid FROM runs o INDEXED BY runs_running {_OUT_OF_TURN} AND o.state = 'running'
    UNION ALL
    SELECT r.rowid FROM runs o INDEXED BY runs_retrying {_OUT_OF_TURN}
        AND o.state = 'retrying' AND o.claim_deadline IS NOT NULL AND r.state = 'pending' LIMIT ?3"""
#: by rowid
RESTART_WAIT: Final = "UPDATE runs SET due_at = ?1, claim_deadline = ?1 + claim_timeout_ms WHERE rowid = ?2"
#: runs_unclaimed: a range of it, in its order
EXPIRED: Final = f"""
    SELECT {_UNFINISHED_RUN}
    FROM runs r INDEXED BY runs_unclaimed LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.claim_deadline <= ?1 AND {_WAITING} AND NOT ({_BUSY})
    ORDER BY r.claim_deadline, r.rowid LIMIT ?2"""
#: the primary key. The fence of `finish` requires a running run; this one has no worker
MARK_EXPIRED: Final = "UPDATE runs SET state = 'running', due_at = NULL WHERE id = ?"
#: the primary key
CLEAR_START: Final = "UPDATE runs SET started_at = NULL WHERE id = ?"


async def claim(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    workspace: str,
    requests: Sequence[ClaimRequest],
) -> list[list[ClaimedRun]]:
    given = assign_runs(requests, _claimable(db, now_ms, workspace, requests), _owner)
    marked = [
        (request.worker, each.run.attempt, request.claim_id, each.rowid)
        for request, runs in zip(requests, given, strict=True)
        for each in runs
    ]
    if not marked:
        return [[] for _ in requests]
    MARK_CLAIMED.execute(db, marked, now_ms)
    taken = [each.run for runs in given for each in runs]
    ids = [run.id for run in taken]
    events.record_started(ids)
    views = await _views(db, ids)
    agents = sorted({run.agent for run in taken})
    owners = await find_budget_owners(SqliteSession(db), workspace, agents)
    return [
        [
            ClaimedRun(
                each.run,
                views[each.run.id],
                not owners.isdisjoint((BudgetOwner(workspace, each.run.agent), BudgetOwner(workspace))),
            )
            for each in runs
        ]
        for runs in given
    ]


def _claimable(
    db: sqlite3.Connection, now_ms: int, workspace: str, requests: Sequence[ClaimRequest]
) -> list[DueRun]:
    """Return runs that these requests could get, longest due first, each once."""
    found: dict[int, DueRun] = {}
    ranges = plan_ranges(requests)
    for part, most in ranges:
        lanes = None if part.lanes is None else json.dumps(sorted(part.lanes))
        statement = CLAIMABLE if part.agents is None else CLAIMABLE_OF_AGENT
        whose = () if part.agents is None else (part.agent,)
        rows = db.execute(statement, (workspace, now_ms, lanes, most, *whose))
        found.update((each.rowid, each) for each in read_due_runs(rows))
    return sorted(found.values(), key=longest_due)


def _owner(due: DueRun) -> tuple[str, str]:
    return due.run.agent, due.run.lane


async def _views(db: sqlite3.Connection, ids: Sequence[str]) -> dict[str, RunView]:
    return {view.id: view for view in await runs_by_ids(SqliteSession(db), ids)}


async def taken_runs(db: sqlite3.Connection, ids: Sequence[str]) -> list[tuple[TakenRun, RunView]]:
    """Return runs that are running, with what a launch needs of each."""
    views = await _views(db, ids)
    due = read_due_runs(db.execute(TAKEN_RUNS, (json.dumps(list(ids)),)))
    return [(each.run, views[each.run.id]) for each in due]


async def renew(
    db: sqlite3.Connection,
    now_ms: int,
    workspace: str,
    renewals: Sequence[Renewal],
) -> list[UnfinishedRun]:
    waiting = {each.run_id: each.waiting for each in renewals}
    runs: list[UnfinishedRun] = []
    renewed: list[tuple[int, str | None]] = []
    for *columns, rowid in db.execute(CLAIMED, (json.dumps(list(renewals)), workspace)):
        run = UnfinishedRun(*columns)
        runs.append(run)
        renewed.append((rowid, waiting[run.id]))
    if renewed:
        db.execute(RENEW, (now_ms, json.dumps(renewed)))
    return runs


async def release_claims(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    workspace: str,
    worker: str,
    runs: Sequence[tuple[str, int]],
    claim_id: str | None,
    agent: str | None,
) -> list[str]:
    whose = workspace, agent, worker, now_ms
    held = {HeldRun(*row) for row in db.execute(RETURNABLE, (json.dumps(list(runs)), *whose))}
    if claim_id is not None:
        held |= {HeldRun(*row) for row in db.execute(RETURNABLE_OF_CLAIM, (claim_id, *whose))}
        events.publish(claim_topic(workspace, worker, claim_id))
    release_runs(db, events, now_ms, sorted(held))
    return [run.id for run in held]


async def expire(
    db: sqlite3.Connection,
    events: TransactionEvents,
    clock: Clock,
    now_ms: int,
    limit: int,
    judge: Callable[[UnfinishedRun], Finished],
    consequences: Consequences,
) -> list[str]:
    blocked = db.execute(BLOCKED, (now_ms + TURN_MS, now_ms, limit)).fetchall()
    db.executemany(RESTART_WAIT, [(now_ms, rowid) for (rowid,) in blocked])
    expired = [UnfinishedRun(*row) for row in db.execute(EXPIRED, (now_ms, limit))]
    if not expired:
        return []
    db.executemany(MARK_EXPIRED, [(run.id,) for run in expired])
    ended = await settle(db, events, clock, now_ms, None, [judge(run) for run in expired], consequences)
    db.executemany(CLEAR_START, [(run_id,) for run_id in ended])
    return [run.id for run in expired if run.id in ended]
