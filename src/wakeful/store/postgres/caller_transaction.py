"""Jobs and runs that are added in the transaction of the caller, on any driver of PostgreSQL.

Nothing of the connection is changed. All names have their schema, whatever the search path is; all arguments
and results are texts, whatever codecs and row factories are set; rows are JSON, which the server reads.

The caller may commit much later. So no row is locked that others need to write: not the head of the audit,
whose entries are appended after the commit (`audit_waiting`), nor the quotas, which are charged with them,
nor the row of the job of a run beyond `FOR KEY SHARE`, which excludes a deletion.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from wakeful.errors import FailedPrecondition
from wakeful.job.job import StaleJob, check_chain
from wakeful.run.conversations import job_session
from wakeful.run.run import NewRun, RunDetails
from wakeful.store.accounts import AgentChanged
from wakeful.store.audit import AuditEntry
from wakeful.store.caller_transaction import JobKey, PlannedJob, PlannedRun, PlannedWrite, Sql, perform
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import column_name
from wakeful.store.idempotency import ABANDONED_MS, KEPT_MS, Keyed, StoredResponse, conflict
from wakeful.store.postgres.connection import Pool
from wakeful.store.postgres.jobs import check_quotas, hold_agents
from wakeful.store.postgres.session import Db
from wakeful.store.postgres.statements import insert_cursors_from, insert_jobs_from, insert_runs_from
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import JobRow, RunView
from wakeful.store.sql.jobs import name_taken
from wakeful.values.clock import Clock
from wakeful.values.ids import is_id
from wakeful.values.stored_text import clean_text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Fields that end in `_ms` and are no instants.
_DURATIONS: Final = frozenset({"claim_timeout_ms"})

#: The start of the server, the database and the table `runs`: a copy of a database differs in the first, a
#: copy on the same server in the second. And whether the role may write
IDENTITY: Final = """
    SELECT extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text, d.oid::text, c.oid::text,
        CASE WHEN pg_catalog.has_schema_privilege(n.oid, 'USAGE')
            AND pg_catalog.has_table_privilege(c.oid, 'INSERT') THEN 'yes' ELSE 'no' END, current_user::text
    FROM pg_catalog.pg_database d
    LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = $1::text
    LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = 'runs'
    WHERE d.datname = pg_catalog.current_database()"""

_WAITING: Final = "workspace, actor, action, subject, details, address, agent, jobs"
_WAITING_TYPES: Final = """
            workspace text, actor text, action text, subject text, details text, address text, agent text,
            jobs integer"""
_RUN: Final = "held CROSS JOIN json_populate_record(NULL::{schema}.run_record, $1::text::json)"
_DETAILS: Final = {
    "session": "$4::text",
    "depth": "$5::text::integer",
    "context": "$6::text",
    "chain_length": "$7::text::integer",
}
#: the primary key of jobs. Returns no row if the job does not exist, or was changed since the run was
#: planned: the run would wait where the target said before. The snapshot of a transaction with a higher
#: isolation level may be older than a job that was saved for this call
ADD_RUN: Final = f"""
    WITH locked AS MATERIALIZED (
        SELECT id FROM {{schema}}.jobs WHERE id = $2::text::uuid AND deleted_at IS NULL
            AND (version = coalesce($10::text::integer, version)
                OR current_setting('transaction_isolation') <> 'read committed')
        FOR KEY SHARE),
    held (held_id) AS (
        SELECT id FROM locked
        UNION ALL
        SELECT $2::text::uuid WHERE current_setting('transaction_isolation') <> 'read committed'
            AND NOT EXISTS (SELECT FROM {{schema}}.jobs WHERE id = $2::text::uuid)),
    {insert_runs_from(_RUN, "$3::text::timestamptz", "{schema}.", _DETAILS)},
    recorded AS (
        INSERT INTO {{schema}}.audit_waiting ({_WAITING})
        SELECT e.* FROM inserted CROSS JOIN json_to_recordset($8::text::json) e ({_WAITING_TYPES}))
    SELECT i.id::text FROM inserted i CROSS JOIN LATERAL pg_catalog.pg_notify($9::text, 'runs')"""
#: the primary key. The agent stays as it is until the end of the transaction: the job inherits from it
HOLD_AGENT: Final = """
    SELECT CASE WHEN (target, active, secret, old_secret, old_secret_until_at) IS NOT DISTINCT FROM
        ($3::text, $4::text::boolean, decode($5::text, 'hex'), decode($6::text, 'hex'),
            $7::text::timestamptz) THEN 'same' ELSE 'changed' END
    FROM {schema}.agents WHERE workspace = $1::text AND name = $2::text FOR SHARE"""
#: the primary key, on a connection of the store
FIND_AGENT: Final = "SELECT true FROM agents WHERE workspace = $1 AND name = $2"
#: the primary key
ADD_AGENT: Final = """
    INSERT INTO {schema}.agents (workspace, name, active, description, version, created_at, updated_at)
    VALUES ($1::text, $2::text, true, '', 1, $3::text::timestamptz, $3::text::timestamptz)
    ON CONFLICT DO NOTHING"""
_JOB_VALUES: Final = "json_populate_record(NULL::{schema}.job_values, $1::text::json)"
#: jobs_name leaves out a name that is taken; the primary keys of sessions and their history
ADD_JOB: Final = f"""
    WITH made AS ({insert_jobs_from(_JOB_VALUES, "{schema}.")} ON CONFLICT DO NOTHING RETURNING id),
    planned AS ({insert_cursors_from(f"{_JOB_VALUES} WHERE EXISTS (SELECT FROM made)", "{schema}.")}),
    noted AS (
        INSERT INTO {{schema}}.changes (at, kind, count, items)
        SELECT $2::text::timestamptz, 'job.changed', 1, $3::text FROM made),
    recorded AS (
        INSERT INTO {{schema}}.audit_waiting ({_WAITING})
        SELECT e.* FROM made CROSS JOIN json_to_recordset($4::text::json) e ({_WAITING_TYPES})),
    forgotten AS (
        DELETE FROM {{schema}}.session_history h USING made
        WHERE h.workspace = $6::text AND h.agent = $7::text AND h.session = $8::text),
    ended AS (
        DELETE FROM {{schema}}.sessions s USING made
        WHERE s.workspace = $6::text AND s.agent = $7::text AND s.name = $8::text)
    SELECT m.id::text FROM made m CROSS JOIN LATERAL pg_catalog.pg_notify($5::text, 'jobs')"""
_CHAINED: Final = "j.workspace = $1::text AND j.agent = $2::text AND j.deleted_at IS NULL"
#: jobs_name, once for each job; UNION ends at a job that was found before
BEFORE: Final = f"""
    WITH RECURSIVE found (name, after_job) AS (
        SELECT j.name, j.after_job FROM {{schema}}.jobs j WHERE {_CHAINED} AND j.name = $3::text
        UNION
        SELECT j.name, j.after_job FROM found f JOIN {{schema}}.jobs j ON {_CHAINED} AND j.name = f.after_job)
    SELECT name, after_job FROM found"""
_FIND: Final = """
    SELECT row_to_json(f)::text FROM (
        SELECT j.*, encode(j.secret, 'hex') AS secret_hex, encode(j.old_secret, 'hex') AS old_secret_hex,
            c.next_at, c.wake_at, c.run_count
        FROM {schema}.jobs j JOIN {schema}.cursors c ON c.job_id = j.id
        WHERE j.workspace = $1::text AND j.agent = $2::text AND j.deleted_at IS NULL AND"""
#: jobs_name
FIND_JOB: Final = f"{_FIND} j.name = $3::text) f"
#: the primary key
FIND_JOB_BY_ID: Final = f"{_FIND} j.id = $3::text::uuid) f"
#: the primary key; an expired or abandoned row is taken over
CLAIM_KEY: Final = """
    INSERT INTO {schema}.idempotency_keys AS a (workspace, key, fingerprint, status, body, created_at)
    VALUES ($1::text, $2::text, $3::text, $4::text::integer, $5::text, $6::text::timestamptz)
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, status = EXCLUDED.status,
        body = EXCLUDED.body, created_at = EXCLUDED.created_at
    WHERE a.created_at < $7::text::timestamptz OR a.status IS NULL AND a.created_at < $8::text::timestamptz
    RETURNING a.key"""
#: the primary key
READ_KEY: Final = """
    SELECT workspace, key, fingerprint, status::text, body FROM {schema}.idempotency_keys
    WHERE workspace = $1::text AND key = $2::text"""


class DatabaseIdentity(NamedTuple):
    """What tells the database apart from all others."""

    server: str
    database: str
    table: str | None


class PostgresCallerTransaction:
    """Writes in transactions of callers. Implements `CallerTransaction`."""

    allows_other_writers = True

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._own: DatabaseIdentity | None = None

    @property
    def _schema(self) -> str:
        return self._pool.address.schema

    async def _fetch(self, text: str, *args: str | None) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = await perform(Sql(text.replace("{schema}", f'"{self._schema}"'), args))
        return rows

    async def prepare(self) -> None:
        """Read the identity of the database."""

        async def read(db: Db) -> DatabaseIdentity:
            row = await db.fetchrow(IDENTITY, self._schema)
            assert row is not None
            return DatabaseIdentity(*row[:3])

        self._own = await self._pool.read(read)

    @property
    def is_prepared(self) -> bool:
        """Whether the identity of the database is known. It is read again after a failover."""
        return self._own is not None

    async def check_planned(self, planned: Sequence[PlannedWrite]) -> None:
        """Raise ResourceExhausted if there are too many jobs; jobs of open transactions do not count.

        Also adds the agents of jobs: others that create jobs of a new agent would wait for the caller.
        """
        for each in planned:
            if not isinstance(each, PlannedJob):
                continue
            row = each.row
            if each.allowance is not None:
                await self._pool.read(check_quotas, self._clock.now_ms(), [row], each.allowance)
            if await self._pool.read(_has_agent, row) is None:
                await self._pool.write(_add_agent, self._clock.now_ms(), row)

    async def check(self) -> bool:
        """Return whether the connection is one to the same database. Raise if its role may not write."""
        ((*identity, may_write, role),) = await self._fetch(IDENTITY, self._schema)
        if DatabaseIdentity(*identity) != self._own:
            return False
        if may_write != "yes":
            raise FailedPrecondition(
                f"connection: its role '{role}' may not write to the tables of Wakeful; grant it USAGE on "
                f'the schema "{self._schema}", and SELECT, INSERT, UPDATE and DELETE on its tables'
            )
        return True

    async def find_job(self, key: JobKey) -> JobRow | None:
        """Return a job as the transaction sees it."""
        rows = await self._fetch(FIND_JOB_BY_ID if is_id(key[2]) else FIND_JOB, *key)
        return _read_job(json.loads(rows[0][0])) if rows else None

    async def write(self, planned: Sequence[PlannedWrite]) -> None:
        """Write what is planned, in a savepoint."""
        async with _savepoint():
            for each in planned:
                if isinstance(each, PlannedJob):
                    await self._create_job(each)
                else:
                    await self._add_run(each)

    async def _add_run(self, planned: PlannedRun) -> None:
        run, now_ms = planned.run, self._clock.now_ms()
        if planned.keyed is not None:
            await self._claim_key(planned.keyed, [view_of_new_run(run, now_ms)], now_ms)
        details = run.details or RunDetails()
        added = await self._fetch(
            ADD_RUN,
            write_row(run, NewRun._fields[: NewRun._fields.index("details")]),
            run.job_id,
            _instant(now_ms),
            details.session,
            str(details.depth),
            details.context,
            str(details.chain_length),
            write_waiting(planned.entries),
            self._schema,
            None if planned.version is None else str(planned.version),
        )
        if not added:
            raise StaleJob(f"job '{run.job_name}' was changed or deleted meanwhile")

    async def _create_job(self, planned: PlannedJob) -> None:
        row, agent, now_ms = planned.row, planned.agent, self._clock.now_ms()
        inherited = (
            agent.target,
            str(agent.active),
            _hex(agent.secret),
            _hex(agent.old_secret),
            _instant(agent.old_secret_until_ms),
        )
        while not (held := (await self._fetch(HOLD_AGENT, row.workspace, row.agent, *inherited))):
            await self._fetch(ADD_AGENT, row.workspace, row.agent, _instant(now_ms))
        if held[0][0] != "same":
            raise AgentChanged(row.agent)
        made = await self._fetch(
            ADD_JOB,
            write_row(row, JobRow._fields),
            _instant(now_ms),
            "\t".join((row.id, *row.key)),
            write_waiting(planned.entries, row.agent, jobs=0 if planned.allowance is None else 1),
            self._schema,
            row.workspace,
            row.agent,
            job_session(row.name),
        )
        if not made:
            raise name_taken(row)
        if row.after_job is not None:  # the job before it may be of this transaction, too
            check_chain(row.name, dict(await self._fetch(BEFORE, row.workspace, row.agent, row.name)))

    async def _claim_key(self, keyed: Keyed[list[RunView]], views: list[RunView], now_ms: int) -> None:
        """Write the key with its response, or raise AlreadyPerformed with that of an earlier call.

        Waits while another transaction holds the same key.
        """
        status, body = keyed.render(views)
        limits = _instant(now_ms - KEPT_MS), _instant(now_ms - ABANDONED_MS)
        created = _instant(keyed.claim(now_ms).created_ms)
        claim = keyed.workspace, keyed.key, keyed.fingerprint, str(status), body, created
        while not (await self._fetch(CLAIM_KEY, *claim, *limits)):
            rows = await self._fetch(READ_KEY, keyed.workspace, keyed.key)
            for workspace, key, fingerprint, found_status, found_body in rows:
                number = None if found_status is None else int(found_status)
                found = StoredResponse(workspace, key, fingerprint, number, found_body, now_ms)
                raise conflict(found, keyed.fingerprint)


async def _has_agent(db: Db, row: JobRow) -> object:
    return await db.fetchval(FIND_AGENT, row.workspace, row.agent)


async def _add_agent(db: Db, events: TransactionEvents, now_ms: int, row: JobRow) -> None:
    await hold_agents(db, now_ms, [(row.workspace, row.agent)])


@asynccontextmanager
async def _savepoint() -> AsyncIterator[None]:
    """Write in a savepoint: after an error, or a cancellation, the transaction is as before."""
    await perform(Sql("SAVEPOINT wakeful"))
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        await perform(Sql("ROLLBACK TO SAVEPOINT wakeful", undoes=True))
        await perform(Sql("RELEASE SAVEPOINT wakeful", undoes=True))
        raise
    await perform(Sql("RELEASE SAVEPOINT wakeful"))


def _instant(ms: int | None) -> str | None:
    return None if ms is None else (_EPOCH + timedelta(milliseconds=ms)).isoformat()


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _is_instant(field: str) -> bool:
    return field.endswith("_ms") and field not in _DURATIONS


def _column(field: str) -> str:
    """Return the column of a field in PostgreSQL."""
    return "old_secret_until_at" if field == "old_secret_until_ms" else column_name(field)


def write_row(row: tuple[Any, ...], fields: Sequence[str]) -> str:
    """Return a row as an object with the columns of these fields."""
    columns: dict[str, object] = {}
    for field, value in zip(fields, row, strict=False):
        if _is_instant(field):
            value = _instant(value)
        elif isinstance(value, bytes):
            value = f"\\x{value.hex()}"
        columns[_column(field)] = value
    return json.dumps(columns, ensure_ascii=False)


def _read_job(columns: dict[str, Any]) -> JobRow:
    values: list[Any] = []
    for field in JobRow._fields:
        if field in ("secret", "old_secret"):
            text = columns[f"{field}_hex"]
            values.append(None if text is None else bytes.fromhex(text))
            continue
        value = columns[_column(field)]
        if value is not None and _is_instant(field):
            value = (datetime.fromisoformat(value) - _EPOCH) // timedelta(milliseconds=1)
        values.append(value)
    return JobRow(*values)


def write_waiting(entries: Sequence[AuditEntry], agent: str = "", jobs: int = 0) -> str:
    """Return audit entries as rows of `audit_waiting`; the first has the jobs that are charged."""
    rows = []
    for number, entry in enumerate(entries):
        texts = {name: value and clean_text(value) for name, value in entry._asdict().items()}
        rows.append({**texts, "agent": agent, "jobs": jobs if number == 0 else 0})
    return json.dumps(rows, ensure_ascii=False)
