"""Incidents of jobs, alerts about single events, and the jobs that send both.

- `job_incidents` has one row per incident (`wakeful.run.incidents`). UNIQUE (job_id, cause) among open ones.
  The transaction of an outcome writes it, as part of the consequences. In PostgreSQL that transaction locks
  the job first, then its incidents. Topic: `incidents`, if a message may be due. An incident outlives its
  job.
- `incidents` is the queue of events (`AlertEvent`): ticks missed during downtime, and budget caps that were
  reached. An event is written in the transaction of its cause if the agent or the workspace has `alerts`
  (topic: `incidents`). The transaction that removes it decides whether an alert is sent, so at most one is.
  Its name is that of an earlier version, whose replicas may use it at the same time. They write failed runs
  too, which become incidents of jobs.
- `alert_cooldowns`: when the last alert was sent, from which a cool-down counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from wakeful.run.alerts import SKEW_MS, AlertEvent, AlertJob, DueIncident, Notification, Recipients
from wakeful.run.incidents import (
    REOPEN_WITHIN_MS,
    SUCCEEDED,
    Incident,
    IncidentChange,
    IncidentJob,
    IncidentLog,
    close,
)
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.audit import AuditEntry, was_written
from wakeful.store.changelog import TransactionEvents
from wakeful.store.columns import insert, reader, select_list
from wakeful.store.internal_jobs import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    ALERT_JOBS,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)
from wakeful.store.sql.base import Recorded, SqlBase, reads, writes
from wakeful.store.sql.conditions import Conditions
from wakeful.store.sql.driver import SqlSession
from wakeful.values.ids import is_id, new_id

#: Whether `o` (with a workspace and an agent) has alerts: agents_alerts and workspaces_alerts.
HAS_ALERTS: Final = """
    (EXISTS (SELECT 1 FROM agents a
        WHERE a.workspace = o.workspace AND a.name = o.agent AND a.alerts IS NOT NULL)
    OR EXISTS (SELECT 1 FROM workspaces w WHERE w.name = o.workspace AND w.alerts IS NOT NULL))"""

#: What `read_recipients` reads, from `recipient_joins`.
RECIPIENT_COLUMNS: Final = (
    "coalesce(a.alerts, w.alerts), s.id::text, s.agent, s.name, s.work, c.id::text, c.agent, c.name, c.work"
)


class IncidentFilter(NamedTuple):
    """Which incidents to list; None does not filter."""

    workspace: str
    agent: str | None = None
    #: the id or the name of a job
    job: str | None = None
    states: tuple[str, ...] = ()
    #: only incidents with an id lower than this one: ids are in the order of creation
    before: str | None = None
    limit: int = 50


def recipient_joins() -> str:
    """Return the joins that add to `i` (with a workspace and an agent) the recipients of its alerts.

    The primary keys of agents and workspaces, and twice jobs_name.
    """
    return f"""
    LEFT JOIN agents a ON a.workspace = i.workspace AND a.name = i.agent
    LEFT JOIN workspaces w ON w.name = i.workspace
    {_alert_job("s", AGENT_ALERTS, WORKSPACE_ALERTS)}
    {_alert_job("c", AGENT_CHANNEL, WORKSPACE_CHANNEL)}"""


def read_recipients(columns: Iterable[Any]) -> Recipients:
    """Return the recipients of alerts from `RECIPIENT_COLUMNS`."""
    alerts, *jobs = columns
    return Recipients(alerts, *(each[0] and AlertJob(*each) for each in (jobs[:4], jobs[4:])))


def _alert_job(alias: str, of_agent: str, of_workspace: str) -> str:
    return f"""
    LEFT JOIN jobs {alias} ON {alias}.workspace = i.workspace AND {alias}.deleted_at IS NULL
        AND {alias}.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND {alias}.name = CASE WHEN a.alerts IS NULL THEN '{of_workspace}' ELSE '{of_agent}' END"""


_IDS: Final = ("id", "job_id", "first_run_id", "last_run_id", "closed_by_run")
_COLUMNS: Final = select_list(Incident._fields, "i", {name: f"i.{name}::text" for name in _IDS})
_CHANGING: Final = (
    "error", "failed_at", "failed_runs", "in_a_row", "last_run_id", "reopened", "acknowledged_at",
    "acknowledged_by", "note", "alerted_at", "notified", "reminded_at", "notify_at", "closed_at",
    "closed_reason", "closed_by_run",
)  # fmt: skip

#: the primary key
WRITE: Final = f"""
    {insert("job_incidents", Incident._fields)}
    ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = EXCLUDED.{name}" for name in _CHANGING)}"""
#: the jobs' primary key, once for each; then agents_alerts and workspaces_alerts, which are mostly empty
JOBS: Final = f"""
    SELECT o.id::text, o.workspace, o.agent, o.name, {HAS_ALERTS} FROM jobs o
    WHERE o.id = ANY($1::uuid[]) AND o.deleted_at IS NULL AND o.name NOT IN {ALERT_JOBS}"""
#: job_incidents_of_job, once for each job
OF_JOBS: Final = f"""
    SELECT {_COLUMNS} FROM job_incidents i
    WHERE i.job_id = ANY($1::uuid[]) AND (i.closed_at IS NULL OR i.closed_at >= $2)
    FOR UPDATE"""
#: job_incidents_cause, once for each job
OPEN_OF_JOBS: Final = f"""
    SELECT {_COLUMNS} FROM job_incidents i
    WHERE i.job_id = ANY($1::uuid[]) AND i.closed_at IS NULL FOR UPDATE"""
#: the primary key
INCIDENT: Final = f"SELECT {_COLUMNS} FROM job_incidents i WHERE i.id = $1 AND i.workspace = $2"
#: the primary key, once for each
BY_IDS: Final = f"SELECT {_COLUMNS} FROM job_incidents i WHERE i.id = ANY($1::uuid[])"
#: the primary key
LOCK_INCIDENT: Final = f"{INCIDENT} FOR UPDATE"
#: the primary keys of runs and jobs, once for each
FAILED_RUNS: Final = """
    SELECT r.id::text, r.job_id::text, r.attempt, r.finished_at, r.error, r.reason, r.response_code
    FROM runs r JOIN jobs j ON j.id = r.job_id
    WHERE r.id = ANY($1::uuid[]) AND r.dead AND j.failures > 0 ORDER BY j.id FOR UPDATE OF j"""
#: job_incidents_notify, in its order; for each, job_incidents_of_job and the keys of the recipients
DUE: Final = f"""
    SELECT {_COLUMNS}, (
        SELECT max(p.alerted_at) FROM job_incidents p
        WHERE p.job_id = i.job_id AND p.cause = i.cause AND p.alerted_at <= $3),
        {RECIPIENT_COLUMNS}
    FROM job_incidents i {recipient_joins()}
    WHERE i.notify_at <= $1 ORDER BY i.notify_at LIMIT $2 FOR UPDATE OF i SKIP LOCKED"""
#: job_incidents_notify: its first entry
NEXT: Final = "SELECT min(notify_at) FROM job_incidents WHERE notify_at IS NOT NULL"
#: job_incidents_closed
PRUNE: Final = "DELETE FROM job_incidents WHERE closed_at < $1"

_IN_STATE: Final = {
    "open": "i.closed_at IS NULL AND i.acknowledged_at IS NULL",
    "acknowledged": "i.closed_at IS NULL AND i.acknowledged_at IS NOT NULL",
    "recovered": f"i.closed_at IS NOT NULL AND i.closed_reason = '{SUCCEEDED}'",
    "closed": f"i.closed_at IS NOT NULL AND i.closed_reason <> '{SUCCEEDED}'",
}


def list_statement(only: IncidentFilter) -> tuple[str, list[object]]:
    """Return the statement for a list: it reads one index backwards.

    That is job_incidents_of_job, job_incidents_of_agent, job_incidents_open or job_incidents_of_workspace.
    """
    found = Conditions()
    found.compare("i.workspace", "=", only.workspace)
    if only.states:
        if {"recovered", "closed"}.isdisjoint(only.states):
            found.add("i.closed_at IS NULL")
        found.add("(" + " OR ".join(f"({_IN_STATE[state]})" for state in only.states) + ")")
    where, end = found.of_jobs("i", only.agent, only.job, only.before, only.limit)
    return f"SELECT {_COLUMNS} FROM job_incidents i WHERE {where} {end}", found.args


_incident: Final = reader(Incident)


async def jobs(session: SqlSession, job_ids: Collection[str]) -> dict[str, IncidentJob]:
    """Return those of these jobs whose failures are incidents."""
    rows = await session.rows(JOBS, list(job_ids))
    return {
        job_id: IncidentJob(job_id, workspace, agent, name, bool(has_alerts))
        for job_id, workspace, agent, name, has_alerts in rows
    }


async def of_jobs(session: SqlSession, job_ids: Collection[str], now_ms: int) -> list[Incident]:
    """Lock and return the incidents of these jobs that are open or may be opened again."""
    # Twice the time: an outcome may be older than `now_ms`, and the rule decides.
    rows = await session.rows(OF_JOBS, list(job_ids), now_ms - 2 * REOPEN_WITHIN_MS)
    return list(map(_incident, rows))


async def write(session: SqlSession, events: TransactionEvents, changes: Sequence[IncidentChange]) -> None:
    """Write these changes of incidents, which are new or locked."""
    await session.execute_many(WRITE, [change.incident for change in changes])
    for incident, kinds in changes:
        events.record_incident(incident, kinds)
        if incident.notify_ms is not None:
            events.publish("incidents")


async def close_of_jobs(
    session: SqlSession, events: TransactionEvents, job_ids: Iterable[str], at_ms: int, reason: str
) -> None:
    """Close the open incidents of these jobs, which are locked."""
    ids = list(job_ids)
    rows = await session.rows(OPEN_OF_JOBS, ids) if ids else ()
    if rows:
        closed = [close(_incident(row), at_ms, reason) for row in rows]
        await write(session, events, [IncidentChange(each, ("incident.closed",)) for each in closed])


async def adopt_failures(
    session: SqlSession, events: TransactionEvents, failed: Sequence[AlertEvent]
) -> None:
    """Add failures that a replica of an earlier version has noted, unless their job succeeded since."""
    times = {each.run_id: each.times for each in failed if each.run_id is not None}
    rows = await session.rows(FAILED_RUNS, list(times))
    runs = [_failed_run(*row) for row in rows]
    if runs:
        job_ids = {run.job_id for run in runs if run.job_id is not None}
        last_ms = max(run.finished_ms for run in runs)
        log = IncidentLog(await jobs(session, job_ids), await of_jobs(session, job_ids, last_ms), new_id)
        for run in sorted(runs, key=lambda run: run.finished_ms):
            log.add_failure(run, times[run.run_id])
        await write(session, events, log.changes())


async def incident(session: SqlSession, workspace: str, incident_id: str) -> Incident | None:
    """Return the incident of that id."""
    row = await session.row(INCIDENT, incident_id, workspace) if is_id(incident_id) else None
    return None if row is None else _incident(row)


async def by_ids(session: SqlSession, ids: Sequence[str]) -> list[Incident]:
    """Return those of these incidents that exist, in any order."""
    return list(map(_incident, await session.rows(BY_IDS, list(ids)))) if ids else []


async def incidents(session: SqlSession, only: IncidentFilter) -> list[Incident]:
    """Return the incidents that match, newest first."""
    if only.before is not None and not is_id(only.before):
        return []
    statement, args = list_statement(only)
    return list(map(_incident, await session.rows(statement, *args)))


async def acknowledge(
    session: SqlSession,
    events: TransactionEvents,
    workspace: str,
    incident_id: str,
    change: Callable[[Incident], Incident | None],
) -> tuple[Incident | None, bool]:
    """Lock the incident and write what `change` returns. Returns it, and whether it was written."""
    row = await session.row(LOCK_INCIDENT, incident_id, workspace) if is_id(incident_id) else None
    if row is None:
        return None, False
    old = _incident(row)
    new = change(old)
    if new is None:
        return old, False
    await write(session, events, [IncidentChange(new, ("incident.acknowledged",))])
    return new, True


async def take_due(
    session: SqlSession,
    now_ms: int,
    limit: int,
    decide: Callable[[DueIncident], Notification],
) -> tuple[int, list[NewRun]]:
    """Write what `decide` returns for the incidents that are due. Returns how many, and the runs to add."""
    runs: list[NewRun] = []
    changed: list[Incident] = []
    for row in await session.rows(DUE, now_ms, limit, now_ms + SKEW_MS):
        values = iter(row)
        found = _incident(islice(values, len(Incident._fields)))
        incident, messages = decide(DueIncident(found, next(values), read_recipients(values)))
        changed.append(incident)
        runs += messages
    if changed:
        await session.execute_many(WRITE, changed)
    return len(changed), runs


async def next_notify_ms(session: SqlSession) -> int | None:
    """Return when the next message may be due."""
    found: int | None = await session.value(NEXT)
    return found


async def prune(session: SqlSession, before_ms: int) -> None:
    """Delete the incidents that were closed before then."""
    await session.execute(PRUNE, before_ms)


def _failed_run(
    run_id: str,
    job_id: str,
    attempt: int,
    ended_ms: int,
    error: str | None,
    reason: str | None,
    response_code: int | None,
) -> Finished:
    return Finished(
        run_id, job_id, attempt, "failed", ended_ms, ended_ms,
        error=error, reason=reason, response_code=response_code,
    )  # fmt: skip


class SqlIncidents(SqlBase):
    """Incidents of jobs."""

    incident = reads(incident)
    incidents_by_ids = reads(by_ids)
    incidents = reads(incidents)

    async def acknowledge_incident(
        self,
        workspace: str,
        incident_id: str,
        change: Callable[[Incident], Incident | None],
        entries: Sequence[AuditEntry] = (),
    ) -> Incident | None:
        """Write what `change` returns for this incident; None leaves it. Returns it afterwards.

        The change is published as `incident.acknowledged`. Returns None if there is no such incident.
        """

        recorded: Recorded[tuple[Incident | None, bool]] = Recorded(entries, was_written)
        write = self._with_events(acknowledge)
        incident, _ = await self._record(recorded, write, workspace, incident_id, change)
        return incident

    async def notify_incidents(
        self, now_ms: int, limit: int, decide: Callable[[DueIncident], Notification]
    ) -> tuple[int, int | None]:
        """Write what `decide` returns for up to `limit` incidents whose `notify_ms` has come, oldest first.

        Adds the runs of the messages in the same transaction, so each message is sent by one replica.
        Incidents that another transaction holds are skipped. Returns the number of incidents, and the next
        `notify_ms`.
        """

        async def run(db: Any, events: TransactionEvents) -> tuple[int, int | None]:
            session = self._driver.session(db)
            taken, runs = await take_due(session, now_ms, limit, decide)
            if runs:
                await self._operations.insert_runs.insert_runs(db, events, now_ms, runs)
            return taken, await next_notify_ms(session)

        return await self._driver.write(run)

    prune_incidents = writes(prune)
