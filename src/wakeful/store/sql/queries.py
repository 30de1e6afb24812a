"""Small queries of sessions, deliveries, the changelog and statistics that both databases share."""

from __future__ import annotations

from typing import Final

from wakeful.forecast.peaks import TimingCount
from wakeful.job.start_rules import (
    Capabilities,
    capabilities_from_text,
)
from wakeful.store.changelog import FINISHED, RETRYING, ChangeRow
from wakeful.store.deliveries import DeliveryView
from wakeful.store.sql.base import SqlBase
from wakeful.store.sql.driver import Session
from wakeful.store.stats import Backlog, ConnectionUse, DueRequirement, RecentRun, WorkspaceStats
from wakeful.values.ids import first_id

#: sessions_due: its first entry, and its first after that instant
NEXT_TURN: Final = """
    SELECT EXISTS (SELECT 1 FROM sessions WHERE due_at <= $1),
        (SELECT min(due_at) FROM sessions WHERE due_at > $1)"""
#: the primary key: its beginning
PRUNE_TURNS: Final = "DELETE FROM turns WHERE run_id < $1 AND NOT live"
#: the table, all of it; for each, turns_live
PRUNE_SESSIONS: Final = """
    DELETE FROM sessions WHERE updated_at < $1 AND due_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM turns t WHERE t.live AND t.workspace = sessions.workspace
        AND t.agent = sessions.agent AND t.session = sessions.name)"""
#: deliveries_due: the first entry after that instant
NEXT_DELIVERY: Final = "SELECT min(due_at) FROM deliveries WHERE due_at > $1"
#: changes_seq (PostgreSQL) or the primary key (SQLite), in its order
CHANGES: Final = """
    SELECT seq - count + 1, kind, at, items FROM changes
    WHERE seq IS NOT NULL AND seq > $1 ORDER BY seq LIMIT $2"""
#: runs_of_workspace: its end, backwards
RECENT_RUNS: Final = """
    SELECT state, trigger, attempt, fire_at, started_at FROM runs
    WHERE workspace = $1 AND id >= $2 AND (CAST($4 AS text) IS NULL OR agent = $4)
    ORDER BY id DESC LIMIT $3"""
#: the table, all of it
WORKERS: Final = "SELECT name FROM workers WHERE beat_at >= $1 ORDER BY name"
#: the table, all of it
CAPABILITIES: Final = "SELECT capabilities FROM workers WHERE beat_at >= $1"
#: runs_dead: its end, backwards; the primary key for each
DEAD_LETTERS: Final = """
    SELECT newest.reason, count(*) FROM (
        SELECT coalesce(reason, '') AS reason FROM runs /*+ INDEXED BY runs_dead */
        WHERE dead AND workspace = $1 ORDER BY id DESC LIMIT $2) newest
    GROUP BY 1 ORDER BY 2 DESC, 1"""
#: runs_dead, all of it; the primary key for each
ALL_DEAD_LETTERS: Final = """
    SELECT newest.reason, count(*) FROM (
        SELECT coalesce(reason, '') AS reason FROM runs /*+ INDEXED BY runs_dead */ WHERE dead
        LIMIT $1) newest
    GROUP BY 1 ORDER BY 2 DESC, 1"""
#: the primary key: its end, backwards
ALL_DELIVERIES: Final = """
    SELECT newest.channel, newest.state, count(*) FROM (
        SELECT coalesce(channel, '') AS channel, state FROM deliveries
        WHERE run_id >= $1 ORDER BY run_id DESC LIMIT $2) newest
    GROUP BY 1, 2 ORDER BY 1, 2"""
#: the primary key: its end, backwards; that of runs for each. A CROSS JOIN: SQLite would read all runs first
DELIVERIES: Final = """
    SELECT newest.channel, newest.state, count(*) FROM (
        SELECT coalesce(channel, '') AS channel, state, run_id FROM deliveries
        WHERE run_id >= $1 ORDER BY run_id DESC LIMIT $2) newest
    CROSS JOIN runs r WHERE r.id = newest.run_id AND r.workspace = $3
    GROUP BY 1, 2 ORDER BY 1, 2"""

#: the primary key: its end, backwards; that of runs for each. A CROSS JOIN, as for `DELIVERIES`
RECENT_DELIVERIES: Final = """
    SELECT newest.run_id::text, r.agent, r.job_id::text, r.job_name, newest.channel, newest.send_to,
        newest.state, newest.attempt, newest.at, newest.error
    FROM (SELECT * FROM deliveries WHERE run_id >= $1 ORDER BY run_id DESC LIMIT $2) newest
    CROSS JOIN runs r WHERE r.id = newest.run_id AND r.workspace = $3
    ORDER BY newest.run_id DESC LIMIT $4"""

#: schema_version, all of it
SCHEMA: Final = "SELECT max(version) FROM schema_version"


async def schema(session: Session) -> int:
    """Return the newest migration of the database."""
    row = await session.row(SCHEMA)
    return int(row[0]) if row else 0


async def next_turn(session: Session, now_ms: int) -> tuple[bool, int | None]:
    """Return whether any session is due, and when the next one will be."""
    row = await session.row(NEXT_TURN, now_ms)
    return (False, None) if row is None else (bool(row[0]), row[1])


async def prune_sessions(session: Session, before_ms: int) -> None:
    """Delete turns that ended and began before then, and sessions without messages since."""
    await session.execute(PRUNE_TURNS, first_id(before_ms))
    await session.execute(PRUNE_SESSIONS, before_ms)


async def next_delivery_ms(session: Session, after_ms: int) -> int | None:
    """Return when the next delivery is due or times out, after that instant."""
    row = await session.row(NEXT_DELIVERY, after_ms)
    return None if row is None else row[0]


async def changes(session: Session, after: int, limit: int) -> list[ChangeRow]:
    """Return the rows of the changelog that hold a number above `after`."""
    return [
        ChangeRow(row[0], FINISHED if row[1] == RETRYING else row[1], row[2], tuple(row[3].split("\n")))
        for row in await session.rows(CHANGES, after, limit)
    ]


async def recent_runs(
    session: Session, workspace: str, since_ms: int, limit: int, agent: str | None
) -> list[RecentRun]:
    """Return the newest runs of a workspace or agent that were created since then."""
    rows = await session.rows(RECENT_RUNS, workspace, first_id(since_ms), limit, agent)
    return [RecentRun(*row) for row in rows]


async def workers(session: Session, since_ms: int) -> list[str]:
    """Return the names of the workers with a heartbeat since then."""
    return [row[0] for row in await session.rows(WORKERS, since_ms)]


async def capabilities(session: Session, since_ms: int) -> list[Capabilities]:
    """Return what the processes of recent workers can launch."""
    return [capabilities_from_text(row[0]) for row in await session.rows(CAPABILITIES, since_ms)]


async def dead_letters_by_reason(
    session: Session, workspace: str | None, limit: int
) -> list[tuple[str, int]]:
    """Return the number of dead letters by reason."""
    if workspace is None:
        rows = await session.rows(ALL_DEAD_LETTERS, limit)
    else:
        rows = await session.rows(DEAD_LETTERS, workspace, limit)
    return [(row[0], row[1]) for row in rows]


async def delivery_counts(
    session: Session, workspace: str | None, since_ms: int, limit: int
) -> list[tuple[str, str, int]]:
    """Return the number of recent deliveries by channel and state."""
    first = first_id(since_ms)
    if workspace is None:
        rows = await session.rows(ALL_DELIVERIES, first, limit)
    else:
        rows = await session.rows(DELIVERIES, first, limit, workspace)
    return [(row[0], row[1], row[2]) for row in rows]


async def recent_deliveries(
    session: Session, workspace: str, since_ms: int, considered: int, limit: int
) -> list[DeliveryView]:
    """Return the newest deliveries of a workspace."""
    rows = await session.rows(RECENT_DELIVERIES, first_id(since_ms), considered, workspace, limit)
    return [DeliveryView(*row) for row in rows]


#: Changes that are further ahead were written while the clock was wrong.
_FUTURE_MS: Final = 3_600_000


class SqlStats(SqlBase):
    """The changelog, and counts."""

    async def _number_changes(self) -> None:
        """Number committed changes, in a database that does not number them when they are written."""

    async def changes(self, after: int, limit: int = 20) -> list[ChangeRow]:
        """Return up to `limit` rows that hold a number above `after`, in order.

        The first may begin before it. If it begins later than `after + 1`, the rows between are pruned.
        No rows: nothing has changed since, or `after` is not a number of this log.
        """
        await self._number_changes()
        return await self._read(changes, after, limit)

    async def last_change(self) -> int:
        """Return the number of the newest change; 0: there is none."""
        await self._number_changes()
        return await self._driver.read(self._operations.changelog.last_change)

    async def prune_changes(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` older rows, from the first on, but never the newest. Returns how many.

        Rows of an hour and more ahead were written while the clock was wrong, and count as old.

        Rows stay until their runs are counted (`wakeful.store.sql.run_counts`), if any were ever counted.
        """
        await self._number_changes()  # a pruned row without a number would leave no gap to detect
        future_ms, prune = self.clock.now_ms() + _FUTURE_MS, self._operations.changelog.prune_changes
        return await self._driver.write_one(prune, before_ms, limit, future_ms)

    async def workspace_stats(self, workspace: str, agent: str | None = None) -> WorkspaceStats:
        """Return the counts of a workspace, or of one of its agents."""
        return await self._driver.read(self._operations.stats.workspace_stats, workspace, agent)

    async def recent_runs(
        self, workspace: str, since_ms: int, limit: int, agent: str | None = None
    ) -> list[RecentRun]:
        """Return the newest runs of a workspace, or of one of its agents, that were created since then."""
        return await self._read(recent_runs, workspace, since_ms, limit, agent)

    async def backlog(self, now_ms: int, alive_since_ms: int, agents: int) -> Backlog:
        """Return the work that waits, and the number of workers with a heartbeat since then.

        `pull_by_agent` has at most so many agents.
        """
        return await self._driver.read(self._operations.stats.backlog, now_ms, alive_since_ms, agents)

    async def workers(self, since_ms: int) -> list[str]:
        """Return the names of the workers with a heartbeat since then."""
        return await self._read(workers, since_ms)

    async def capabilities(self, since_ms: int) -> list[Capabilities]:
        """Return what the processes of the workers with a heartbeat since then can launch."""
        return await self._read(capabilities, since_ms)

    async def due_requirements(self, now_ms: int) -> list[DueRequirement]:
        """Return the due runs that require something, by requirement, longest due first."""
        return await self._driver.read(self._operations.stats.due_requirements, now_ms)

    async def expired_leases(self, workspace: str | None, before_ms: int) -> int:
        """Return the number of running runs whose lease or callback time ended before then; None: of all.

        `rescue` ends them within seconds: if there are any, no replica does it.
        """
        return await self._driver.read(self._operations.stats.expired_leases, workspace, before_ms)

    async def dead_letters_by_reason(self, workspace: str | None, limit: int) -> list[tuple[str, int]]:
        """Return the number of dead letters by reason, most frequent first; at most the newest are counted.

        `workspace` None: of all workspaces. A dead letter without a reason counts as ''.
        """
        return await self._read(dead_letters_by_reason, workspace, limit)

    async def delivery_counts(
        self, workspace: str | None, since_ms: int, limit: int
    ) -> list[tuple[str, str, int]]:
        """Return the number of deliveries by channel and state, of runs that were created since then.

        At most the newest deliveries are counted. `workspace` None: of all workspaces.
        """
        return await self._read(delivery_counts, workspace, since_ms, limit)

    async def timings(self, workspace: str, agent: str | None = None) -> list[TimingCount]:
        """Return the timings of the enabled jobs of a workspace or agent, each with its number of jobs.

        Jobs with the same timing and policy are counted together; those with an interval, if their ticks are
        in the same minutes. Each count has the first of its jobs as an example.
        """
        read = self._operations.stats.timings_page
        after: tuple[str, str] | None = ("", "")
        found: dict[tuple[str, str, int], TimingCount] = {}
        while after is not None:
            page, after = await self._driver.read(read, workspace, agent, after)
            for each in page:
                known = found.get(each[:3])
                found[each[:3]] = each if known is None else known.merged(each)
        return list(found.values())

    async def database_size(self) -> int:
        """Return the size of the database in bytes."""
        return await self._driver.read(self._operations.stats.database_size)

    async def connection_use(self) -> ConnectionUse | None:
        """Return the connections of the database server; None if the database is a file."""
        return None
