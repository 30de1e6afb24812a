"""The store in PostgreSQL: for any number of equal processes that share one database.

Each call is one transaction on a pooled connection. There is no leader: processes find work with
`FOR UPDATE SKIP LOCKED` and share it. The database's clock applies to all, and what one process publishes
reaches the others (`listener`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.errors import Unavailable
from wakeful.run.consequences import Consequences, Facts
from wakeful.run.outcome import Finished, storable
from wakeful.run.run import NewRun
from wakeful.store.audit import AuditEntry
from wakeful.store.claim_requests import ClaimedRun, ClaimRequest
from wakeful.store.port import Store
from wakeful.store.postgres import (
    changelog,
    executors,
    insert_runs,
    instances,
    jobs,
    leases,
    outcomes,
    planning,
    runs,
)
from wakeful.store.postgres.caller_transaction import PostgresCallerTransaction
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.executors import claim_at_once
from wakeful.store.postgres.index_builder import IndexBuilder
from wakeful.store.postgres.listener import Listener
from wakeful.store.postgres.outcomes import finish_at_once
from wakeful.store.postgres.outcomes import fits_one_statement as outcomes_fit
from wakeful.store.postgres.runs import add_at_once, fits_one_statement
from wakeful.store.postgres.session import Db
from wakeful.store.rows import RunView
from wakeful.store.sql.driver import Row, SqlSession
from wakeful.store.sql.operations import Operations
from wakeful.store.stats import ConnectionUse
from wakeful.values.clock import Clock, SteeredClock
from wakeful.values.process_share import current_share

_OPERATIONS: Operations[Db] = Operations(
    changelog=changelog,
    executors=executors,
    insert_runs=insert_runs,
    instances=instances,
    jobs=jobs,
    leases=leases,
    outcomes=outcomes,
    planning=planning,
    runs=runs,
)


#: the primary key of workspaces, at most one row of it: whether our tables can be read
READ_ONLY: Final = """
    SELECT current_setting('transaction_read_only') = 'on',
        (SELECT name FROM workspaces ORDER BY name LIMIT 1)"""
#: the connections of the server, which is the view pg_stat_activity without the names of databases and roles
CONNECTION_USE: Final = """
    SELECT current_setting('max_connections')::integer
            - current_setting('superuser_reserved_connections')::integer
            - coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::integer,
        count(*)::integer
    FROM pg_stat_get_activity(NULL)
    WHERE datid IS NOT NULL
        AND NOT coalesce(application_name = $1 OR starts_with(application_name, $1 || ' '), false)"""


#: After a completion that one statement could not write, so many are not tried with one.
_NOT_AT_ONCE: Final = 20


class PostgresStore(Store):
    """A store in a PostgreSQL database.

    `url` is `postgresql://user:password@host/database`; `?schema=` names the schema of its tables
    (default: `wakeful`). Without a `clock`, the database's clock is used.
    """

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        steered = SteeredClock()
        self._pool = Pool(url, clock or steered)
        self._listener = Listener(self._pool, steered if clock is None else None)
        self._indexes = IndexBuilder(self._pool)
        #: how many more completions are not tried with one statement
        self._not_at_once = 0
        self.caller_transaction = PostgresCallerTransaction(self._pool, clock or steered)
        super().__init__(self._pool, _OPERATIONS, clock or steered)

    async def open(self) -> None:
        """Check the server, listen to other processes, and migrate the schema; some indexes follow later."""
        try:
            async with self._pool.translate_errors():
                await self._listener.start()
            await super().open()
            if self._pool.has_pending_indexes:
                self._indexes.start()
        except BaseException:
            await self.close()
            raise

    async def _add_at_once(
        self,
        runs: Sequence[NewRun],
        entries: Sequence[AuditEntry],
        versions: Sequence[int | None],
        day: int | None,
    ) -> list[RunView] | None:
        if not fits_one_statement(runs, versions):
            return None
        now_ms = self.clock.now_ms()
        return await self._pool.write_at_once(
            lambda db, heads, channel: add_at_once(db, heads, channel, now_ms, runs, entries, versions, day)
        )

    async def _complete_at_once(
        self,
        holder: str | None,
        finished: Sequence[Finished],
        consequences: Consequences,
        entries: Sequence[AuditEntry],
    ) -> set[str] | None:
        if self._not_at_once:
            self._not_at_once -= 1
            return None
        outcomes = storable(finished)
        if not outcomes_fit(outcomes) or any(consequences(outcomes, Facts())):
            return None
        now_ms = self.clock.now_ms()
        written = await self._pool.write_at_once(
            lambda db, heads, channel: finish_at_once(db, heads, channel, now_ms, holder, outcomes, entries)
        )
        if written is None:  # most often because jobs follow others, or fail: that lasts
            self._not_at_once = _NOT_AT_ONCE
        return written

    async def claim(
        self, now_ms: int, workspace: str, requests: Sequence[ClaimRequest]
    ) -> list[list[ClaimedRun]]:
        """Mark pull runs as running under executors. See `SqlExecutors.claim`."""
        agents = requests[0].scope.agents if len(requests) == 1 else ()
        if agents is None or len(agents) == 1:
            claimed = await self._pool.write_at_once(
                lambda db, heads, channel: claim_at_once(db, now_ms, workspace, requests[0])
            )
            if claimed is not None:
                return claimed
        return await super().claim(now_ms, workspace, requests)

    async def close(self) -> None:
        """Disconnect."""
        try:
            await self._indexes.stop()
            await self._listener.stop()
        finally:
            await super().close()

    async def build_indexes(self) -> None:
        """Wait until the indexes that migrations left for later are built."""
        await self._indexes.wait()

    async def ping(self) -> None:
        """Raise Unavailable if the database does not respond or is read-only, or sessions are shared."""
        if self._listener.problem is not None:
            raise Unavailable(self._listener.problem)
        is_read_only, _ = await self._read(_first, READ_ONLY)
        if is_read_only:
            await self._pool.expire()
            raise Unavailable(f"the database {self._pool.address.masked} is read-only")

    async def connection_use(self) -> ConnectionUse:
        """Return the connections of the server, and how many a process of this one opens at most."""
        address = self._pool.address
        name = address.application_name or current_share().server_connections
        # One more is open for notifications.
        most, used = await self._read(_first, CONNECTION_USE, name)
        return ConnectionUse(most, used, address.pool_size + 1)

    async def append_waiting_audit(self) -> None:
        """Append the entries of transactions of callers."""
        while await self._pool.read(changelog.any_waiting):
            if await self._pool.write(changelog.append_waiting, self.clock) < changelog.WAITING_BATCH:
                return

    async def _number_changes(self) -> None:
        while await self._pool.read(changelog.any_unnumbered):
            if await self._pool.write(changelog.number) < changelog.BATCH:
                return


async def _first(session: SqlSession, statement: str, *args: object) -> Row:
    """Return the only row of a statement."""
    row = await session.row(statement, *args)
    assert row is not None
    return row
