"""Trigger URLs of jobs, by the SHA-256 of their token: the token itself is not stored.

`hooks` has one row per URL (`HookRow`). A job has at most two: the present one, and the one before it until
it expires. A URL of a deleted job is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wakeful.job.job import check_version
from wakeful.job.self_scheduling import ChargeRule
from wakeful.store.audit import AuditEntry
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import insert, next_row, select_list
from wakeful.store.idempotency import Keyed
from wakeful.store.rows import JobRow
from wakeful.store.sql.base import Recorded, SqlBase, reads_now, writes
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.store.sql.jobs import JOB_ROW, job_row
from wakeful.values.ids import is_id


class HookRow(NamedTuple):
    """A trigger URL of a job."""

    #: SHA-256 of the token
    hash: bytes
    job_id: str
    created_ms: int
    #: role and actor
    created_by: str
    #: until when a URL works that was replaced; None: it is the present one
    expires_ms: int | None = None

    @property
    def id(self) -> str:
        """Names the URL in runs, logs and responses; the token does not follow from it."""
        return self.hash[:6].hex()


_COLUMNS: Final = select_list(HookRow._fields, "h", {"job_id": "h.job_id::text"})
_WORKS: Final = "h.hash = $1 AND (h.expires_at IS NULL OR h.expires_at > $2) AND j.deleted_at IS NULL"
#: the primary keys of hooks and jobs, and in PostgreSQL of cursors
HOOK: Final = Texts(
    sqlite=f"""
    SELECT {_COLUMNS}, {JOB_ROW.sqlite} FROM hooks h CROSS JOIN jobs j ON j.id = h.job_id WHERE {_WORKS}""",
    postgresql=f"""
    SELECT {_COLUMNS}, {JOB_ROW.postgresql}
    FROM hooks h JOIN jobs j ON j.id = h.job_id JOIN cursors c ON c.job_id = j.id WHERE {_WORKS}""",
)
#: hooks_of_job
HOOKS_OF_JOB: Final = f"""
    SELECT {_COLUMNS} FROM hooks h
    WHERE h.job_id = $1 AND (h.expires_at IS NULL OR h.expires_at > $2) ORDER BY h.expires_at IS NOT NULL"""
#: the primary key. Two requests for one job replace its URL one after the other
LOCK_JOB: Final = """
    SELECT id::text, workspace, agent, name, version FROM jobs
    WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE"""
#: hooks_of_job
DELETE_OLD: Final = "DELETE FROM hooks WHERE job_id = $1 AND expires_at IS NOT NULL"
#: hooks_of_job
EXPIRE: Final = "UPDATE hooks SET expires_at = $2 WHERE job_id = $1"
ADD_HOOK: Final = insert("hooks", HookRow._fields)
#: hooks_of_job
DELETE_HOOKS: Final = "DELETE FROM hooks WHERE job_id = $1"
#: the table, all of it; for each, the primary key of jobs
PRUNE: Final = """
    DELETE FROM hooks WHERE expires_at <= $1
    OR NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = hooks.job_id AND j.deleted_at IS NULL)"""


async def hook(session: SqlSession, now_ms: int, hash: bytes) -> tuple[HookRow, JobRow] | None:
    """Return the URL of that hash and its job, unless it has expired or its job is deleted."""
    row = await session.row(HOOK, hash, now_ms)
    if row is None:
        return None
    values = iter(row)
    return next_row(values, HookRow), job_row(values)


async def hooks_of_job(session: SqlSession, now_ms: int, job_id: str) -> list[HookRow]:
    """Return the URLs of a job that work, the newest first."""
    if not is_id(job_id):
        return []
    return [HookRow(*row) for row in await session.rows(HOOKS_OF_JOB, job_id, now_ms)]


async def replace_hook(
    session: SqlSession, events: TransactionEvents, row: HookRow, until_ms: int, version: int | None
) -> tuple[bool, HookRow | None]:
    """Add this URL to its job. Returns whether the job exists, and the URL that was replaced."""
    job = await _lock_job(session, row.job_id, version)
    if job is None:
        return False, None
    before = await hooks_of_job(session, row.created_ms, row.job_id)
    replaced = next((each for each in before if each.expires_ms is None), None)
    await session.execute(DELETE_OLD, row.job_id)
    await session.execute(EXPIRE, row.job_id, until_ms)
    await session.execute(ADD_HOOK, *row)
    events.record_changed_jobs([job])
    return True, replaced


async def delete_hooks(
    session: SqlSession, events: TransactionEvents, job_id: str, version: int | None
) -> bool:
    """Delete all URLs of a job. Returns whether there was one."""
    job = await _lock_job(session, job_id, version)
    if job is None or not await session.execute(DELETE_HOOKS, job_id):
        return False
    events.record_changed_jobs([job])
    return True


async def _lock_job(
    session: SqlSession, job_id: str, expected: int | None
) -> tuple[str, str, str, str] | None:
    """Lock the job. Returns its id and names. FailedPrecondition: it is at another version."""
    row = await session.row(LOCK_JOB, job_id) if is_id(job_id) else None
    if row is None:
        return None
    found_id, workspace, agent, name, version = row
    check_version(name, version, expected)
    return found_id, workspace, agent, name


async def prune(session: SqlSession, now_ms: int) -> int:
    """Delete URLs that have expired or whose job is deleted. Returns how many."""
    return await session.execute(PRUNE, now_ms)


class SqlHooks(SqlBase):
    """Trigger URLs."""

    hook = reads_now(hook)
    hooks_of_job = reads_now(hooks_of_job)

    async def replace_hook(
        self,
        row: HookRow,
        until_ms: int,
        entries: Callable[[HookRow | None], Sequence[AuditEntry]],
        version: int | None = None,
        keyed: Keyed[tuple[bool, HookRow | None]] | None = None,
        charge: ChargeRule | None = None,
    ) -> tuple[bool, HookRow | None]:
        """Add this URL to its job. The one before it works until `until_ms`; older ones are deleted.

        Returns whether the job exists, and the URL that was replaced, which `entries` gets. The change of the
        job is published. FailedPrecondition: the job is not at this version. `charge` is as in `create_jobs`.
        """

        recorded: Recorded[tuple[bool, HookRow | None]] = Recorded(
            lambda result: entries(result[1]), lambda result: result[0], keyed, charge
        )
        return await self._record(recorded, self._with_events(replace_hook), row, until_ms, version)

    async def delete_hooks(
        self, job_id: str, entries: Sequence[AuditEntry] = (), version: int | None = None
    ) -> bool:
        """Delete all URLs of a job. Returns whether there was one. The change of the job is published.

        FailedPrecondition: the job is not at this version.
        """
        return await self._record(Recorded(entries), self._with_events(delete_hooks), job_id, version)

    prune_hooks = writes(prune)
