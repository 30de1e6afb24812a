"""Erase the history of an instance that is deleted: its runs, in batches, with all that belongs to them.

No text of a signal, a state, an output or an error stays. What has no text stays: counts, costs, and the
audit log with the names of instances.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from wakeful.store.instances import InstanceRow
from wakeful.store.sql.driver import SqlSession
from wakeful.values.json_value import Json, compact

#: the primary key. Waits for another process that erases the same instance
LOCK: Final = "SELECT status FROM instances WHERE id = $1 FOR UPDATE"
#: jobs_deleted_schedules
JOBS: Final = """
    SELECT id::text FROM jobs /*+ INDEXED BY jobs_deleted_schedules */
    WHERE instance_id = $1 AND deleted_at IS NOT NULL"""
#: runs_of_instance: the beginning of a range of it
RUNS: Final = """
    SELECT id::text, job_id::text, agent, session, workspace FROM runs /*+ INDEXED BY runs_of_instance */
    WHERE instance_id = $1 ORDER BY runs.id LIMIT $2"""
#: runs_of_job: the beginning of ranges of it. Ticks that were missed have no instance
RUNS_OF_JOBS: Final = """
    SELECT id::text, job_id::text, agent, session, workspace FROM runs /*+ INDEXED BY runs_of_job */
    WHERE job_id = ANY($1::uuid[]) AND finished_at IS NOT NULL LIMIT $2"""
#: runs_follow_up, once for each: messages about failures
ALERTS: Final = """
    SELECT id::text, finished_at IS NULL FROM runs /*+ INDEXED BY runs_follow_up */
    WHERE trigger IN ('chain', 'heartbeat', 'alert') AND trigger = 'alert'
        AND triggered_by = ANY($1::text[])"""
#: the primary keys, once for each
OF_RUNS: Final = tuple(
    f"DELETE FROM {table} WHERE run_id = ANY($1::uuid[])"
    for table in ("attempts", "deliveries", "turns", "verifications")
)
DELETE_RUNS: Final = "DELETE FROM runs WHERE id = ANY($1::uuid[])"
#: the primary key: a range of it
DELETE_ENTRIES: Final = """
    DELETE FROM session_history
    WHERE workspace = $1 AND agent = $2 AND session = $3 AND run_id = ANY($4::uuid[])"""
#: job_incidents_of_job, once for each
DELETE_INCIDENTS: Final = """
    DELETE FROM job_incidents WHERE job_id = ANY($1::uuid[])
        AND (job_id = ANY($2::uuid[]) OR first_run_id = ANY($3::uuid[]) OR last_run_id = ANY($3::uuid[]))"""
#: suggestions_of_job, once for each
DELETE_SUGGESTIONS: Final = "DELETE FROM suggestions WHERE job_id = ANY($1::uuid[])"
#: the primary key: the range of the workspace. It is read outside of a transaction that writes
RESPONSES: Final = "SELECT key, body FROM idempotency_keys WHERE workspace = $1 AND strpos(body, $2) > 0"
#: the primary key
SET_BODY: Final = "UPDATE idempotency_keys SET body = $3 WHERE workspace = $1 AND key = $2"
#: the primary key
DELETE_INSTANCE: Final = "DELETE FROM instances WHERE id = $1 AND status = 'deleting'"
#: The fields of a run that have text of users.
_CONTENT: Final = ("payload", "output", "error", "context", "evidence", "emitted", "deliveryError")


class History(NamedTuple):
    """A part of the history of an instance."""

    runs: Sequence[str]
    #: messages about these runs that are not sent yet
    live_alerts: Sequence[str]
    #: the deleted jobs of the schedules of the instance
    jobs: Sequence[str]
    #: the jobs of these runs, also others that sent something to the instance
    jobs_of_runs: Sequence[str]
    #: the sessions of these runs: workspace, agent, name
    sessions: Sequence[tuple[str, str, str]]
    is_more: bool


async def find_history(session: SqlSession, instance: str, limit: int) -> History | None:
    """Lock an instance, and return the next part of its history; None: it is not being deleted."""
    if await session.value(LOCK, instance) != "deleting":
        return None
    jobs = await session.column(JOBS, instance)
    rows = list(await session.rows(RUNS, instance, limit))
    if jobs and len(rows) < limit:
        rows += await session.rows(RUNS_OF_JOBS, jobs, limit)
    runs = list(dict.fromkeys(run_id for run_id, *_ in rows))
    alerts = [tuple(row) for row in await session.rows(ALERTS, runs)] if runs else []
    return History(
        [*runs, *(run_id for run_id, _ in alerts)],
        [run_id for run_id, is_live in alerts if is_live],
        jobs,
        sorted({job_id for _, job_id, *_ in rows if job_id is not None} | set(jobs)),
        sorted({(workspace, agent, name) for *_, agent, name, workspace in rows if name is not None}),
        len(rows) >= limit,
    )


async def delete_history(session: SqlSession, found: History) -> None:
    """Delete a part of the history. None of its runs is live."""
    runs = list(found.runs)
    if runs:
        for statement in (*OF_RUNS, DELETE_RUNS):
            await session.execute(statement, runs)
        for key in found.sessions:
            await session.execute(DELETE_ENTRIES, *key, runs)
    if found.jobs_of_runs:
        await session.execute(DELETE_INCIDENTS, list(found.jobs_of_runs), list(found.jobs), runs)
    if found.jobs:
        await session.execute(DELETE_SUGGESTIONS, list(found.jobs))


async def find_responses(session: SqlSession, row: InstanceRow) -> list[tuple[str, str]]:
    """Return the kept responses about runs of an instance without their content, by their key."""
    named = json.dumps(f'"instance":{json.dumps(row.name, ensure_ascii=False)}', ensure_ascii=False)[1:-1]
    found = []
    for key, body in await session.rows(RESPONSES, row.workspace, named):
        found.append((key, erase_content(body, row.agent, row.name)))
    return found


async def finish(session: SqlSession, row: InstanceRow, responses: Sequence[tuple[str, str]]) -> bool:
    """Write the responses, and delete an instance without runs. Returns whether there are more runs."""
    await session.value(LOCK, row.id)
    if await session.rows(RUNS, row.id, 1):
        return True
    await session.execute_many(SET_BODY, [(row.workspace, key, body) for key, body in responses])
    await session.execute(DELETE_INSTANCE, row.id)
    return False


def erase_content(body: str, agent: str, name: str) -> str:
    """Return a kept response without the content of the runs of an instance.

    >>> run = '{"agentId":"mail","instance":"eu","payload":7}'
    >>> json.loads(erase_content(json.dumps({"body": run}), "mail", "eu"))["body"]
    '{"agentId":"mail","instance":"eu","payload":null}'
    """

    def erase(value: object) -> object:
        if isinstance(value, list):
            return [erase(each) for each in value]
        if not isinstance(value, dict):
            return value
        own = (value.get("agentId"), value.get("instance")) == (agent, name)
        return {key: None if own and key in _CONTENT else erase(each) for key, each in value.items()}

    kept = json.loads(body)
    return compact({**kept, "body": compact(cast(Json, erase(json.loads(kept["body"]))))})
