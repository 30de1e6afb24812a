"""Claims and leases of executors in SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from wakeful.store.jobs import WorkflowRow
from wakeful.store.port import claim_topic
from wakeful.store.rows import RunView, TakenRun, UnfinishedRun
from wakeful.store.sqlite import pull_statements as sql
from wakeful.store.sqlite.connection import TransactionEvents
from wakeful.store.sqlite.runs import RUNS_BY_IDS, run_view
from wakeful.store.sqlite.waiting_runs import release_runs


async def claim(
    db: sqlite3.Connection,
    events: TransactionEvents,
    now_ms: int,
    worker: str,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
    limit: int,
    claim_id: str | None,
) -> list[tuple[TakenRun, RunView]]:
    """Mark due pull runs of a workspace as running under this executor. See `Store.claim`."""
    parameters = (workspace, now_ms, _lanes(lanes), limit)
    if agents is None:
        due = db.execute(sql.CLAIMABLE, parameters).fetchall()
    else:
        due = [
            row for agent in set(agents) for row in db.execute(sql.CLAIMABLE_OF_AGENT, (*parameters, agent))
        ]
        due = sorted(due, key=lambda row: row[-2:])[:limit]
    if not due:
        return []
    db.executemany(sql.MARK_CLAIMED, [(worker, now_ms, row[8], row[-1], claim_id) for row in due])
    ids = [row[0] for row in due]
    events.started(ids)
    views = {row[0]: run_view(row) for row in db.execute(RUNS_BY_IDS, (json.dumps(ids),))}
    return [(TakenRun(*row[:-2]), views[row[0]]) for row in due]


async def taken_runs(db: sqlite3.Connection, ids: Sequence[str]) -> list[tuple[TakenRun, RunView]]:
    """Return runs that are running, with what a launch needs of each."""
    given = (json.dumps(list(ids)),)
    views = {row[0]: run_view(row) for row in db.execute(RUNS_BY_IDS, given)}
    return [(TakenRun(*row[:-2]), views[row[0]]) for row in db.execute(sql.TAKEN_RUNS, given)]


async def renew(
    db: sqlite3.Connection,
    now_ms: int,
    workspace: str,
    held: Sequence[tuple[str, int]],
    agent: str | None,
    worker: str | None,
    waiting: Mapping[str, str],
) -> list[UnfinishedRun]:
    """Renew the leases of these runs. See `Store.renew`."""
    claimed = db.execute(sql.CLAIMED, (json.dumps(list(held)), workspace, agent, worker)).fetchall()
    if claimed:
        db.execute(sql.RENEW, (now_ms, json.dumps([(row[-1], waiting.get(row[0])) for row in claimed])))
    return [UnfinishedRun(*row[:-1]) for row in claimed]


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
    """Retry claimed runs immediately. See `Store.release_claims`."""
    whose = workspace, agent, worker, now_ms
    held = set(db.execute(sql.RETURNABLE, (json.dumps(list(runs)), *whose)))
    if claim_id is not None:
        held |= set(db.execute(sql.RETURNABLE_OF_CLAIM, (claim_id, *whose)))
        events.publish(claim_topic(workspace, worker, claim_id))
    release_runs(db, events, now_ms, sorted(held))
    return [row[0] for row in held]


async def workflows(
    db: sqlite3.Connection, workspace: str, wanted: Sequence[tuple[str, int]]
) -> list[WorkflowRow]:
    """Return these workflow versions, without those that do not exist. See `Store.workflows`."""
    return [WorkflowRow(*row) for row in db.execute(sql.WORKFLOWS, (workspace, json.dumps(list(wanted))))]


async def next_claim_ms(
    db: sqlite3.Connection,
    after_ms: int,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
) -> int | None:
    """Return when the next claimable run is due. See `Store.next_claim_ms`."""
    names = None if agents is None else json.dumps(list(agents))
    row = db.execute(sql.NEXT_CLAIMABLE, (workspace, after_ms, _lanes(lanes), names)).fetchone()
    return None if row is None else int(row[0])


def _lanes(lanes: Sequence[str] | None) -> str | None:
    return None if lanes is None else json.dumps(list(lanes))
