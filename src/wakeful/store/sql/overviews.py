"""What pages show of agents, conversations and jobs. The rows are in `store/stats.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from wakeful.job.job import HEARTBEAT_JOB
from wakeful.store.accounts import AgentRow
from wakeful.store.rows import RunView
from wakeful.store.sessions import SessionKey, SessionMessage
from wakeful.store.sql import runs as run_reads
from wakeful.store.sql.accounts import AGENT_COLUMNS, agent_row
from wakeful.store.sql.base import SqlBase, reads
from wakeful.store.sql.driver import SqlSession, Texts
from wakeful.store.sql.instances import pending_runs
from wakeful.store.stats import (
    AgentOverview,
    DayCost,
    JobOverview,
    RunOutcome,
)

_KEY: Final = "workspace = $1 AND agent = $2 AND session = $3"
#: the primary key: a range of it, in its order
AGENTS_PAGE: Final = f"""
    SELECT {AGENT_COLUMNS} FROM agents
    WHERE workspace = $1 AND name > $2 AND name LIKE $3 ORDER BY name LIMIT $4"""
#: the primary keys of agents and agent_classes, and jobs_name, once for each name; then the beginning of a
#: range of jobs_name, of the primary key of sessions and of instances_name, and the end of one of runs_of_job
AGENT_OVERVIEWS: Final = f"""
    SELECT a.name,
        (SELECT count(*) FROM (SELECT 1 FROM jobs j WHERE j.workspace = a.workspace AND j.agent = a.name
            AND j.deleted_at IS NULL LIMIT $3) few),
        (SELECT count(*) FROM (SELECT 1 FROM sessions s WHERE s.workspace = a.workspace
            AND s.agent = a.name LIMIT $3) few),
        (SELECT count(*) FROM (SELECT 1 FROM instances i WHERE i.workspace = a.workspace
            AND i.agent = a.name LIMIT $3) few),
        c.version, h.id::text,
        (SELECT r.id::text FROM runs r WHERE r.job_id = h.id ORDER BY r.id DESC LIMIT 1)
    FROM agents a
    LEFT JOIN agent_classes c ON c.workspace = a.workspace AND c.agent = a.name
    LEFT JOIN jobs h ON h.workspace = a.workspace AND h.agent = a.name AND h.name = '{HEARTBEAT_JOB}'
        AND h.deleted_at IS NULL
    WHERE a.workspace = $1 AND a.name = ANY($2::text[])"""
#: messages_of_session: a range of it, in its order
WAITING_MESSAGES: Final = f"""
    SELECT id::text, body, sent_by, trigger, at, depth FROM messages
    WHERE {_KEY} ORDER BY at, messages.id LIMIT $4"""
#: turns_of_session: a range of it, backwards
RECENT_TURNS: Final = f"SELECT run_id::text FROM turns WHERE {_KEY} ORDER BY turns.run_id DESC LIMIT $4"


async def agents_page(
    session: SqlSession, workspace: str, after: str | None, limit: int, search: str = ""
) -> list[AgentRow]:
    """Return agents by name, after that name; with `search`, only those whose name contains it."""
    pattern = "%" + search.replace("%", "").replace("_", "") + "%"
    return [agent_row(row) for row in await session.rows(AGENTS_PAGE, workspace, after or "", pattern, limit)]


async def agent_overviews(
    session: SqlSession, workspace: str, names: Sequence[str], most: int
) -> dict[str, AgentOverview]:
    """Return what these agents have, by name; counts end at `most`."""
    rows = await session.rows(AGENT_OVERVIEWS, workspace, list(names), most)
    return {each.name: each for each in (AgentOverview(*row) for row in rows)}


async def waiting_messages(session: SqlSession, key: SessionKey, limit: int) -> list[SessionMessage]:
    """Return the messages that wait in a session, oldest first."""
    return [SessionMessage(*row) for row in await session.rows(WAITING_MESSAGES, *key, limit)]


async def recent_turns(session: SqlSession, key: SessionKey, limit: int) -> list[str]:
    """Return the runs of the newest turns of a session, newest first."""
    return await session.column(RECENT_TURNS, *key, limit)


_COLUMNS: Final = "r.state, r.trigger, r.fire_at, r.started_at, r.finished_at"
#: runs_of_job: the end of a range for each job; SQLite reads the rows by the primary key
RUNS: Final = Texts(
    postgresql=f"""
        SELECT o.id::text, r.id::text, {_COLUMNS} FROM unnest($1::uuid[]) o (id)
        CROSS JOIN LATERAL (
            SELECT r.id, {_COLUMNS} FROM runs r WHERE r.job_id = o.id ORDER BY r.id DESC LIMIT $2) r
        ORDER BY r.id""",
    sqlite=f"""
        SELECT o.value, r.id, {_COLUMNS} FROM json_each($1) o CROSS JOIN runs r ON r.id IN (
            SELECT e.id FROM runs e INDEXED BY runs_of_job WHERE e.job_id = o.value
            ORDER BY e.id DESC LIMIT $2)
        ORDER BY r.id""",
)
#: the primary key of jobs, and a range of that of spending for each
COSTS: Final = """
    SELECT j.id::text, s.day, s.tokens, s.cost FROM jobs j
    JOIN spending s ON s.workspace = j.workspace AND s.agent = j.agent AND s.job = j.id::text AND s.day >= $2
    WHERE j.id = ANY($1::uuid[]) ORDER BY s.day"""
#: job_incidents_cause, once for each job
INCIDENTS: Final = """
    SELECT i.job_id::text, i.id::text FROM job_incidents i
    WHERE i.job_id = ANY($1::uuid[]) AND i.closed_at IS NULL ORDER BY i.id"""


async def job_overviews(
    session: SqlSession, job_ids: Sequence[str], runs: int, since_day: int
) -> dict[str, JobOverview]:
    """Return what a list shows of these jobs, by id: so many last runs, and the costs since that day."""
    ids = list(job_ids)
    outcomes: dict[str, list[RunOutcome]] = defaultdict(list)
    for job_id, *columns in await session.rows(RUNS, ids, runs):
        outcomes[job_id].append(RunOutcome(*columns))
    costs: dict[str, list[DayCost]] = defaultdict(list)
    for job_id, *columns in await session.rows(COSTS, ids, since_day):
        costs[job_id].append(DayCost(*columns))
    incidents: dict[str, list[str]] = defaultdict(list)
    for job_id, incident_id in await session.rows(INCIDENTS, ids):
        incidents[job_id].append(incident_id)
    return {
        job_id: JobOverview(tuple(outcomes[job_id]), tuple(costs[job_id]), tuple(incidents[job_id]))
        for job_id in ids
    }


class SqlOverviews(SqlBase):
    """What pages show."""

    agents_page = reads(agents_page)
    agent_overviews = reads(agent_overviews)
    job_overviews = reads(job_overviews)
    waiting_messages = reads(waiting_messages)

    async def recent_turns(self, key: SessionKey, limit: int) -> list[RunView]:
        """Return the newest turns of a session whose run exists, newest first."""
        return await self._in_order(await self._read(recent_turns, key, limit))

    existing_runs = reads(run_reads.runs_by_ids)

    async def mailbox(self, instance_id: str, limit: int) -> list[RunView]:
        """Return the pending runs of an instance, in the order in which it handles them."""
        waiting = await self._read(pending_runs, instance_id, limit)
        return [run for run in await self._in_order(waiting) if run.state == "pending"]

    dead_letters = reads(run_reads.dead_letters)

    async def _in_order(self, ids: Sequence[str]) -> list[RunView]:
        if not ids:
            return []
        found = {run.id: run for run in await self._read(run_reads.runs_by_ids, ids)}
        return [found[run_id] for run_id in ids if run_id in found]
