"""Looking on, in PostgreSQL: the log of changes, and how much there is.

Whoever writes leaves rows without a number; whoever reads gives them one first, one reader at a time. So the
order of the numbers is an order in which everybody could see the rows, however their transactions overlapped,
and none can turn up later with a number that has been passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from wakeful.ids import first_id
from wakeful.run import PULL
from wakeful.store.changelog import ChangeRow
from wakeful.store.postgres.records import is_id
from wakeful.store.postgres.statements import jobs_where, runs_where
from wakeful.store.rows import JobRow, RunView
from wakeful.store.stats import Backlog, RecentRun, WorkspaceStats

if TYPE_CHECKING:
    from wakeful.store.postgres.connection import Db, Pool, TransactionEvents

#: How many rows get their numbers in one transaction.
NUMBERED: Final = 5_000

#: changes_new: its first entry
ANY_NEW: Final = "SELECT EXISTS (SELECT FROM changes WHERE seq IS NULL)"
LOCK_HEAD: Final = "SELECT last FROM changes_head FOR UPDATE"
#: changes_new, in its order; the primary key, once for each
NUMBER: Final = """
    WITH found AS (
        SELECT id, sum(count) OVER (ORDER BY id) AS place FROM (
            SELECT id, count FROM changes WHERE seq IS NULL ORDER BY id LIMIT $2) n),
    numbered AS (
        UPDATE changes c SET seq = $1::bigint + f.place FROM found f WHERE c.id = f.id RETURNING c.seq),
    head AS (SELECT max(seq) AS last, count(*) AS rows FROM numbered)
    UPDATE changes_head SET last = head.last FROM head WHERE head.rows > 0 RETURNING head.rows"""
#: changes_seq, in its order
CHANGES: Final = """
    SELECT seq - count + 1, kind, at, items FROM changes
    WHERE seq IS NOT NULL AND seq > $1 ORDER BY seq LIMIT $2"""
LAST_CHANGE: Final = "SELECT last FROM changes_head"
#: the primary key, from its beginning
PRUNE_CHANGES: Final = """
    WITH gone AS (
        DELETE FROM changes WHERE id = ANY(ARRAY(
            SELECT id FROM (SELECT id, seq, at FROM changes ORDER BY id LIMIT $2) o
            WHERE at < $1 AND seq < (SELECT last FROM changes_head))) RETURNING id)
    SELECT count(*) FROM gone"""
#: the primary keys, once for each
RUNS_BY_IDS: Final = runs_where("r.id = ANY(string_to_array($1, ',')::uuid[])")
JOBS_BY_IDS: Final = jobs_where("c.job_id = ANY(string_to_array($1, ',')::uuid[]) AND j.deleted_at IS NULL")
#: jobs_name: the workspace's part of it
COUNT_JOBS: Final = """
    SELECT count(*) FILTER (WHERE enabled), count(*) FROM jobs WHERE workspace = $1 AND deleted_at IS NULL"""
#: live_runs, all of it; the runs' primary key, once for each
COUNT_LIVE: Final = f"""
    SELECT l.state, count(*), count(DISTINCT r.worker) FILTER (WHERE starts_with(r.worker, '{PULL}'))
    FROM live_runs l CROSS JOIN LATERAL (
        SELECT workspace, worker FROM runs WHERE id = l.run_id OFFSET 0) r
    WHERE r.workspace = $1 GROUP BY 1"""
#: cursors_wake, in its order, up to the first of the workspace; the jobs' primary key, once for each
NEXT_TICK: Final = """
    SELECT c.next_at FROM cursors c JOIN jobs j ON j.id = c.job_id
    WHERE c.wake_at IS NOT NULL AND CASE WHEN c.next_at IS NOT NULL THEN j.workspace = $1 END
    ORDER BY c.wake_at LIMIT 1"""
#: runs_of_workspace: its end, backwards
RECENT_RUNS: Final = """
    SELECT state, trigger, attempt, fire_at, started_at FROM runs
    WHERE workspace = $1 AND id >= $2 ORDER BY id DESC LIMIT $3"""
#: runs_dead, all of it: it holds the dead letters and nothing else
COUNT_DEAD: Final = "SELECT count(*) FROM runs WHERE dead"
#: live_runs_due, all of it: it holds what waits and nothing else
COUNT_DUE: Final = "SELECT lane, count(*) FROM live_runs WHERE due_at <= $1 GROUP BY lane"
ALIVE: Final = "SELECT name FROM workers WHERE beat_at >= $1 ORDER BY name"


class PostgresWatching:
    """What `PostgresStore` does for whoever watches. See `watching.Watching`."""

    kind = "postgresql"
    notifies_other_processes = True
    _pool: Pool

    async def changes(self, after: int, limit: int = 20) -> list[ChangeRow]:
        """The rows of the log that hold a number above `after`."""
        await self._number()
        rows = await self._pool.read(lambda db: db.fetch(CHANGES, after, limit))
        return [ChangeRow(first, kind, at, tuple(items.split("\n"))) for first, kind, at, items in rows]

    async def last_change(self) -> int:
        """The number of the newest change."""
        await self._number()
        return int(await self._pool.read(lambda db: db.fetchval(LAST_CHANGE)))

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        """Delete rows of the log that are older. None goes without a number: so nobody passes over a gap."""
        await self._number()
        return int(await self._pool.read(lambda db: db.fetchval(PRUNE_CHANGES, before_ms, limit)))

    async def _number(self) -> None:
        """Give all that has been committed its number."""
        while await self._pool.read(lambda db: db.fetchval(ANY_NEW)):
            if await self._pool.write(_number) < NUMBERED:
                return

    async def runs_by_ids(self, ids: Sequence[str]) -> list[RunView]:
        """Those of these runs that there are."""
        which = ",".join(filter(is_id, ids))
        return [RunView(*row) for row in await self._pool.read(lambda db: db.fetch(RUNS_BY_IDS, which))]

    async def jobs_by_ids(self, ids: Sequence[str]) -> list[JobRow]:
        """Those of these jobs that there are."""
        which = ",".join(filter(is_id, ids))
        return [JobRow(*row) for row in await self._pool.read(lambda db: db.fetch(JOBS_BY_IDS, which))]

    async def census(self, workspace: str) -> WorkspaceStats:
        """How much there is in a workspace."""

        async def read(db: Db) -> WorkspaceStats:
            jobs = await db.fetchrow(COUNT_JOBS, workspace)
            active, all_jobs = (0, 0) if jobs is None else jobs
            counted = await db.fetch(COUNT_LIVE, workspace)
            live: dict[str, int] = {row[0]: row[1] for row in counted}
            next_ms = await db.fetchval(NEXT_TICK, workspace)
            return WorkspaceStats(active, all_jobs - active, live, next_ms, sum(row[2] for row in counted))

        return await self._pool.read(read)

    async def recent_runs(self, workspace: str, since_ms: int, limit: int) -> list[RecentRun]:
        """The newest runs of a workspace that were made since then."""
        rows = await self._pool.read(lambda db: db.fetch(RECENT_RUNS, workspace, first_id(since_ms), limit))
        return [RecentRun(*row) for row in rows]

    async def backlog(self, now_ms: int) -> Backlog:
        """What waits."""

        async def read(db: Db) -> Backlog:
            due: dict[str, int] = {row[0]: row[1] for row in await db.fetch(COUNT_DUE, now_ms)}
            return Backlog(await db.fetchval(COUNT_DEAD), due)

        return await self._pool.read(read)

    async def workers(self, since_ms: int) -> list[str]:
        """The names of the workers that have beaten since then."""
        return [name for (name,) in await self._pool.read(lambda db: db.fetch(ALIVE, since_ms))]


async def _number(db: Db, tell: TransactionEvents) -> int:
    """Number some rows, while nobody else does. Returns how many."""
    last = await db.fetchval(LOCK_HEAD)
    return int(await db.fetchval(NUMBER, last, NUMBERED) or 0)
