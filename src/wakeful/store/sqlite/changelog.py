"""Looking on, in SQLite: the log of changes, and how much there is.

There is one writer at a time, so the order in which transactions write is that in which they commit: a row of
the log has its number from the start.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from wakeful.ids import first_id
from wakeful.store.changelog import ChangeRow
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sqlite.connection import Connection
from wakeful.store.sqlite.records import job_row, run_view
from wakeful.store.sqlite.statements import JOB_COLUMNS, LIVE_ROWS, RUN_VIEW
from wakeful.store.stats import Backlog, RecentRun, WorkspaceStats

#: the primary key, in its order
CHANGES: Final = "SELECT seq - count + 1, kind, at, items FROM changes WHERE seq > ? ORDER BY seq LIMIT ?"
#: the primary key: its last entry
LAST_CHANGE: Final = "SELECT coalesce(max(seq), 0) FROM changes"
#: the primary key, from its beginning
PRUNE_CHANGES: Final = """
    DELETE FROM changes WHERE seq IN (
        SELECT seq FROM (SELECT seq, at FROM changes ORDER BY seq LIMIT ?2) WHERE at < ?1)
    AND seq < (SELECT max(seq) FROM changes)"""
#: the primary key, once for each
RUNS_BY_IDS: Final = f"SELECT {RUN_VIEW} FROM runs WHERE id IN (SELECT value FROM json_each(?))"
JOBS_BY_IDS: Final = f"""
    SELECT {JOB_COLUMNS} FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL"""
#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT coalesce(sum(enabled), 0), count(*) FROM jobs INDEXED BY jobs_name
    WHERE workspace = ? AND deleted_at IS NULL"""
#: runs_running and runs_waiting, all of them
COUNT_LIVE: Final = f"""
    SELECT state, count(*), count(DISTINCT iif(worker >= 'pull:' AND worker < 'pull;', worker, NULL))
    FROM runs NOT INDEXED
    WHERE workspace = ? AND rowid IN ({LIVE_ROWS}) GROUP BY state"""
#: jobs_wake, in its order, up to the first of the workspace
NEXT_TICK: Final = """
    SELECT next_at FROM jobs INDEXED BY jobs_wake
    WHERE wake_at > 0 AND next_at IS NOT NULL AND workspace = ? ORDER BY wake_at LIMIT 1"""
#: runs_of_workspace: its end, backwards
RECENT_RUNS: Final = """
    SELECT state, trigger, attempt, fire_at, started_at FROM runs INDEXED BY runs_of_workspace
    WHERE workspace = ? AND id >= ? ORDER BY id DESC LIMIT ?"""
#: runs_dead, all of it: it holds the dead letters and nothing else
COUNT_DEAD: Final = "SELECT count(*) FROM runs INDEXED BY runs_dead WHERE dead"
#: runs_due, all of it: it holds what waits and nothing else
COUNT_DUE: Final = """
    SELECT lane, count(*) FROM runs INDEXED BY runs_due
    WHERE state IN ('pending', 'retrying') AND due_at <= ? GROUP BY lane"""
ALIVE: Final = "SELECT name FROM workers WHERE beat_at >= ? ORDER BY name"


class SqliteWatching:
    """What `SqliteStore` does for whoever watches. See `watching.Watching`."""

    kind = "sqlite"
    notifies_other_processes = False
    _connection: Connection

    async def changes(self, after: int, limit: int = 20) -> list[ChangeRow]:
        """The rows of the log that hold a number above `after`."""

        def read(db: sqlite3.Connection) -> list[ChangeRow]:
            return [
                ChangeRow(first, kind, at, tuple(items.split("\n")))
                for first, kind, at, items in db.execute(CHANGES, (after, limit))
            ]

        return await self._connection.read(read)

    async def last_change(self) -> int:
        """The number of the newest change."""
        return await self._connection.read(lambda db: int(db.execute(LAST_CHANGE).fetchone()[0]))

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        """Delete rows of the log that are older."""
        return await self._connection.write(
            lambda db, _: db.execute(PRUNE_CHANGES, (before_ms, limit)).rowcount
        )

    async def runs_by_ids(self, ids: Sequence[str]) -> list[RunView]:
        """Those of these runs that there are."""
        which = json.dumps(list(ids))
        return await self._connection.read(
            lambda db: [run_view(row) for row in db.execute(RUNS_BY_IDS, (which,))]
        )

    async def jobs_by_ids(self, ids: Sequence[str]) -> list[JobRow]:
        """Those of these jobs that there are."""
        which = json.dumps(list(ids))
        return await self._connection.read(
            lambda db: [job_row(row) for row in db.execute(JOBS_BY_IDS, (which,))]
        )

    async def census(self, workspace: str) -> WorkspaceStats:
        """How much there is in a workspace."""

        def read(db: sqlite3.Connection) -> WorkspaceStats:
            active, jobs = db.execute(COUNT_JOBS, (workspace,)).fetchone()
            counted = db.execute(COUNT_LIVE, (workspace,)).fetchall()
            live: dict[str, int] = {row[0]: row[1] for row in counted}
            tick = db.execute(NEXT_TICK, (workspace,)).fetchone()
            next_ms = None if tick is None else tick[0]
            return WorkspaceStats(active, jobs - active, live, next_ms, sum(row[2] for row in counted))

        return await self._connection.read(read)

    async def recent_runs(self, workspace: str, since_ms: int, limit: int) -> list[RecentRun]:
        """The newest runs of a workspace that were made since then."""
        given = (workspace, first_id(since_ms), limit)
        return await self._connection.read(
            lambda db: [RecentRun(*row) for row in db.execute(RECENT_RUNS, given)]
        )

    async def backlog(self, now_ms: int) -> Backlog:
        """What waits."""
        return await self._connection.read(
            lambda db: Backlog(
                db.execute(COUNT_DEAD).fetchone()[0], dict(db.execute(COUNT_DUE, (now_ms,)).fetchall())
            )
        )

    async def workers(self, since_ms: int) -> list[str]:
        """The names of the workers that have beaten since then."""
        return await self._connection.read(lambda db: [name for (name,) in db.execute(ALIVE, (since_ms,))])
