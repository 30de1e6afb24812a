"""Runs that executors outside claim, in SQLite: claiming, what becomes of those nobody
claims, and how a run becomes one of them or stops being one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from wakeful.store.port import TURN_MS, UNCLAIMED
from wakeful.store.rows import Finished, LostRun, Move, TakenRun
from wakeful.store.sqlite import pull_statements as sql
from wakeful.store.sqlite.connection import Tell
from wakeful.store.sqlite.outcomes import Follow, settle
from wakeful.store.sqlite.statements import BEAT


def claim(
    db: sqlite3.Connection,
    tell: Tell,
    now_ms: int,
    worker: str,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
    limit: int,
) -> list[TakenRun]:
    """Mark due pull runs of a workspace as running under this executor. See `Store.claim`."""
    given = (workspace, now_ms, _lanes(lanes), limit)
    if agents is None:
        due = db.execute(sql.CLAIMABLE, given).fetchall()
    else:
        due = [row for agent in set(agents) for row in db.execute(sql.CLAIMABLE_OF_AGENT, (*given, agent))]
        due = sorted(due, key=lambda row: row[-2:])[:limit]
    if due:
        db.execute(BEAT, (worker, now_ms))
        db.executemany(sql.MARK_CLAIMED, [(worker, now_ms, row[8], row[-1]) for row in due])
        tell.started([row[0] for row in due])
    return [TakenRun(*row[:-2]) for row in due]


def next_claim_ms(
    db: sqlite3.Connection,
    after_ms: int,
    workspace: str,
    agents: Sequence[str] | None,
    lanes: Sequence[str] | None,
) -> int | None:
    """When the next one is due that could be claimed. See `Store.next_claim_ms`."""
    of_agents = None if agents is None else json.dumps(list(agents))
    row = db.execute(sql.NEXT_CLAIMABLE, (workspace, after_ms, _lanes(lanes), of_agents)).fetchone()
    return None if row is None else int(row[0])


def expire(
    db: sqlite3.Connection,
    tell: Tell,
    now_ms: int,
    limit: int,
    judge: Callable[[LostRun], Finished],
    follow: Follow,
) -> list[str]:
    """End what nobody claimed in time. See `Store.expire`."""
    held_up = db.execute(sql.HELD_UP, (now_ms + TURN_MS, now_ms, limit)).fetchall()
    db.executemany(sql.WAIT_ANEW, [(now_ms, rowid) for (rowid,) in held_up])
    expired = [LostRun(*row) for row in db.execute(sql.EXPIRED, (now_ms, limit))]
    if not expired:
        return []
    db.executemany(sql.MARK_UNCLAIMED, [(UNCLAIMED, run.id) for run in expired])
    ended = settle(db, tell, now_ms, UNCLAIMED, [judge(run) for run in expired], follow)
    db.executemany(sql.NEVER_STARTED, [(run_id,) for run_id in ended])
    return [run.id for run in expired if run.id in ended]


def move(db: sqlite3.Connection, tell: Tell, now_ms: int, job_id: str, to: Move) -> None:
    """Let the job's runs that wait do so in another lane. See `Store.change_job`."""
    if db.execute(sql.MOVE, (job_id, to.lane, now_ms, to.claim_ms)).rowcount:
        tell("runs")


def _lanes(lanes: Sequence[str] | None) -> str | None:
    return None if lanes is None else json.dumps(list(lanes))
