"""Subscriptions of jobs to events of other MCP servers (`on`).

`event_sources` has one row per subscription (`EventSource`). It follows from the job: `sync_event_sources`
adds a row for an enabled job with `on`, and marks it as `ending` if the job is paused, deleted or has
another `on`; a job has at most one that does not end. A worker takes a row that is due with a lease: it moves
`due_at` to the end of the lease, so another worker takes it if the first one dies. What a worker writes is
fenced by its name, which `ending` removes.

An event becomes a run in one transaction with its key (`Keyed`) and the position of the subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from wakeful.errors import NotFound
from wakeful.run.incidents import IncidentLog
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.audit import always
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import select_list
from wakeful.store.idempotency import Keyed
from wakeful.store.plans import ManualRunRule
from wakeful.store.rows import RunView
from wakeful.store.sql import incidents
from wakeful.store.sql.base import Recorded, SqlBase, reads, writes
from wakeful.store.sql.driver import SqlSession
from wakeful.values.ids import is_id, new_id


class EventSource(NamedTuple):
    """A subscription of a job."""

    id: str
    job_id: str
    #: of the job, when `source` was read from it
    version: int
    workspace: str
    agent: str
    #: `on` of the job, compact JSON
    source: str
    #: `pending`, `active`, `failed` or `ending`
    state: str
    #: `webhook` or `poll`
    mode: str
    #: of the signatures, encrypted; None: events are polled
    secret: bytes | None
    #: its id at the server
    remote_id: str | None
    #: the cursor of the server
    position: str | None
    error: str | None
    #: requests that failed in a row
    failures: int
    worker: str | None
    #: when the worker acts again; the end of the lease of a worker that acts now
    due_ms: int
    #: when it must be renewed at the latest
    expires_ms: int | None
    #: when the last event arrived
    received_ms: int | None
    created_ms: int


class EventJob(NamedTuple):
    """An enabled job with `on` whose row is missing or was read from another version of it."""

    id: str
    version: int
    workspace: str
    agent: str
    work: str
    #: its row
    source_id: str | None
    source: str | None


_IDS: Final = {"id": "s.id::text", "job_id": "s.job_id::text"}
_ROW: Final = select_list(EventSource._fields, "s", _IDS)


#: jobs_on_event; event_sources_job for each
CHANGED: Final = """
    SELECT j.id::text, j.version, j.workspace, j.agent, j.work, s.id::text, s.source
    FROM jobs j /*+ INDEXED BY jobs_on_event */
    LEFT JOIN event_sources s ON s.job_id = j.id AND s.state <> 'ending'
    WHERE j.deleted_at IS NULL AND strpos(j.work, '"on":{"') > 0
        AND j.enabled AND (s.id IS NULL OR s.version <> j.version)"""
#: event_sources_job, all of it; the primary key of jobs for each
ORPHANS: Final = """
    SELECT s.id::text FROM event_sources s LEFT JOIN jobs j ON j.id = s.job_id
    WHERE s.state <> 'ending' AND (j.id IS NULL OR j.deleted_at IS NOT NULL OR NOT j.enabled)"""
#: event_sources_job; writes nothing if another replica has added one
ADD: Final = """
    INSERT INTO event_sources (id, job_id, version, workspace, agent, source, state, mode, secret, due_at, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $8, $9, $9)
    ON CONFLICT (job_id) WHERE state <> 'ending' DO NOTHING"""  # noqa: E501
#: the primary key
SET_VERSION: Final = "UPDATE event_sources SET version = $2, agent = $3 WHERE id = $1 AND state <> 'ending'"
#: the primary key
END: Final = """
    UPDATE event_sources SET state = 'ending', worker = NULL, failures = 0, due_at = $2
    WHERE id = $1 AND state <> 'ending'"""
#: event_sources_due, in its order
DUE: Final = f"""
    SELECT {_ROW} FROM event_sources s WHERE s.due_at <= $1 ORDER BY s.due_at LIMIT $2
    FOR UPDATE SKIP LOCKED"""
#: the primary key
TAKE: Final = "UPDATE event_sources SET worker = $2, due_at = $3 WHERE id = $1"
#: the primary key
SAVE: Final = """
    UPDATE event_sources SET state = $3, mode = $4, remote_id = $5, position = $6, error = $7, failures = $8,
        due_at = $9, expires_at = $10, worker = NULL
    WHERE id = $1 AND worker = $2"""
#: the primary key
DELETE: Final = "DELETE FROM event_sources WHERE id = $1 AND worker = $2"
#: event_sources_due: its first entry after that instant
NEXT: Final = "SELECT min(due_at) FROM event_sources WHERE due_at > $1"
#: the primary key
SOURCE: Final = f"SELECT {_ROW} FROM event_sources s WHERE s.id = $1"
#: event_sources_job
OF_JOB: Final = f"SELECT {_ROW} FROM event_sources s WHERE s.job_id = $1 AND s.state <> 'ending'"
#: the primary key
RECEIVE: Final = """
    UPDATE event_sources SET position = coalesce($2, position), received_at = $3
    WHERE id = $1 AND state <> 'ending'"""

#: event_sources_due: its beginning
PRUNE: Final = "DELETE FROM event_sources WHERE due_at < $1"
#: the primary key
FAIL: Final = """
    UPDATE event_sources SET state = 'failed', error = $2, due_at = $3, worker = NULL, expires_at = NULL
    WHERE id = $1"""


#: the primary key
CHAIN: Final = "SELECT coalesce(chain_length, 0) FROM runs WHERE id = $1"


async def chain_length(session: SqlSession, run_id: str) -> int | None:
    """Return how many runs in a row led to a run; None: there is no such run in this database."""
    found: int | None = await session.value(CHAIN, run_id) if is_id(run_id) else None
    return found


async def changed_jobs(session: SqlSession) -> tuple[list[EventJob], list[str]]:
    """Return the jobs whose rows must be written, and the rows that must end."""
    found = [EventJob(*row) for row in await session.rows(CHANGED)]
    return found, await session.column(ORPHANS)


async def sync(
    session: SqlSession, now_ms: int, mode: str, read: Callable[[EventJob], tuple[str, bytes | None] | None]
) -> bool:
    """Make the rows follow their jobs; `read` returns `on` of a job and a new secret."""
    jobs, orphans = await changed_jobs(session)
    for job in jobs:
        wanted = read(job)
        if job.source_id is not None and wanted is not None and wanted[0] == job.source:
            await session.execute(SET_VERSION, job.source_id, job.version, job.agent)
            continue
        if job.source_id is not None:
            orphans.append(job.source_id)
            await session.execute(END, job.source_id, now_ms)
        if wanted is not None:
            source, secret = wanted
            owner = job.id, job.version, job.workspace, job.agent
            await session.execute(ADD, new_id(now_ms), *owner, source, mode, secret, now_ms)
    await session.execute_many(END, [(orphan, now_ms) for orphan in orphans])
    return bool(jobs or orphans)


async def take(session: SqlSession, now_ms: int, worker: str, until_ms: int, limit: int) -> list[EventSource]:
    """Take subscriptions that are due for this worker, with a lease, longest due first."""
    taken = [EventSource(*row) for row in await session.rows(DUE, now_ms, limit)]
    await session.execute_many(TAKE, [(each.id, worker, until_ms) for each in taken])
    return taken


async def save(session: SqlSession, worker: str, row: EventSource) -> bool:
    """Write a subscription that this worker has taken, and release it. False: it was lost, or ends."""
    return bool(
        await session.execute(
            SAVE, row.id, worker, row.state, row.mode, row.remote_id, row.position, row.error, row.failures,
            row.due_ms, row.expires_ms,
        )
    )  # fmt: skip


async def delete(session: SqlSession, worker: str, source_id: str) -> None:
    """Delete a subscription that this worker has taken and that has ended."""
    await session.execute(DELETE, source_id, worker)


async def next_due_ms(session: SqlSession, after_ms: int) -> int | None:
    """Return when the next subscription is due after that instant."""
    found: int | None = await session.value(NEXT, after_ms)
    return found


async def source(session: SqlSession, source_id: str) -> EventSource | None:
    """Return the subscription of that id."""
    row = await session.row(SOURCE, source_id) if is_id(source_id) else None
    return None if row is None else EventSource(*row)


async def of_job(session: SqlSession, job_id: str) -> EventSource | None:
    """Return the subscription of a job, unless it is ending."""
    row = await session.row(OF_JOB, job_id) if is_id(job_id) else None
    return None if row is None else EventSource(*row)


async def receive(session: SqlSession, source_id: str, position: str | None, now_ms: int) -> None:
    """Write the position after an event. NotFound: the subscription has ended."""
    if not await session.execute(RECEIVE, source_id, position, now_ms):
        raise NotFound("the subscription has ended")


async def prune(session: SqlSession, before_ms: int) -> int:
    """Delete subscriptions that were due before: no process has their server any more. Returns how many."""
    return await session.execute(PRUNE, before_ms)


class SqlEventSources(SqlBase):
    """Subscriptions of jobs to events of other servers."""

    async def sync_event_sources(
        self, now_ms: int, mode: str, read: Callable[[EventJob], tuple[str, bytes | None] | None]
    ) -> bool:
        """Make the subscriptions follow their jobs. Returns whether any changed.

        `read` returns `on` of a job as compact JSON, and the encrypted secret of a new subscription; None: it
        has none. New ones have the mode. Without changes, nothing is written.
        """
        jobs, orphans = await self._read(changed_jobs)
        # The text may be in another part of the work.
        if not orphans and all(job.source_id is None and read(job) is None for job in jobs):
            return False
        return await self._driver.write(self._shared(sync), now_ms, mode, read)

    take_event_sources = writes(take)
    next_event_source_ms = reads(next_due_ms)
    save_event_source = writes(save)
    delete_event_source = writes(delete)
    event_source = reads(source)
    event_source_of_job = reads(of_job)
    chain_length = reads(chain_length)

    async def add_event_run(
        self,
        source_id: str,
        position: str | None,
        run: NewRun,
        judge: ManualRunRule,
        keyed: Keyed[object],
        version: int,
    ) -> RunView:
        """Add the run of an event as `add_manual_run` does, and write the position of the subscription.

        The key names the event: AlreadyPerformed if it has a run. NotFound: the subscription has ended.
        """
        add, now_ms = self._operations.runs.add_manual_run, self.clock.now_ms()

        async def write(db: Any, events: TransactionEvents) -> RunView:
            await receive(self._driver.session(db), source_id, position, now_ms)
            return await add(db, events, now_ms, run, judge, version)

        return await self._record(Recorded((), always, keyed), write)

    prune_event_sources = writes(prune)

    async def repeat_event(self, source_id: str, position: str) -> None:
        """Write the position after an event that has a run already. NotFound: the subscription has ended.

        Otherwise the server would send it again until its key is too old, and it would get a second run.
        """
        await self._driver.write(self._shared(receive), source_id, position, self.clock.now_ms())

    async def record_event_problem(
        self,
        source_id: str,
        position: str | None,
        run: NewRun,
        finished: Finished,
        keyed: Keyed[object] | None,
        again_ms: int | None = None,
    ) -> bool:
        """Add a skipped run that stands for events that were lost, and open an incident of its job.

        `finished` is what the incident is about. With `again_ms` the subscription has failed, and is due
        again then. NotFound: the subscription has ended.
        """
        now_ms = self.clock.now_ms()

        async def write(db: Any, events: TransactionEvents) -> bool:
            session, ids = self._driver.session(db), [str(run.job_id)]
            await receive(session, source_id, position, now_ms)
            if again_ms is not None:
                await session.execute(FAIL, source_id, finished.error, again_ms)
            await self._operations.runs.add_runs(db, events, now_ms, [run], ())
            found = await incidents.of_jobs(session, ids, now_ms)
            log = IncidentLog(await incidents.jobs(session, ids), found, new_id)
            log.add_failure(finished, 1)
            await incidents.write(session, events, log.changes())
            return True

        return await self._record(Recorded((), always, keyed), write)
