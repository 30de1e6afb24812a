"""What pages show of agents and conversations, for both databases. See `store/overviews.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wakeful.job.job import HEARTBEAT_JOB
from wakeful.store.accounts import AgentRow
from wakeful.store.overviews import AgentOverview
from wakeful.store.sessions import SessionKey, SessionMessage
from wakeful.store.sql.accounts import AGENT_COLUMNS, agent_row
from wakeful.store.sql.driver import Session

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
    session: Session, workspace: str, after: str | None, limit: int, search: str
) -> list[AgentRow]:
    """Return agents by name. See `OverviewStore.agents_page`."""
    pattern = "%" + search.replace("%", "").replace("_", "") + "%"
    return [agent_row(row) for row in await session.rows(AGENTS_PAGE, workspace, after or "", pattern, limit)]


async def agent_overviews(
    session: Session, workspace: str, names: Sequence[str], most: int
) -> dict[str, AgentOverview]:
    """Return what these agents have. See `OverviewStore.agent_overviews`."""
    rows = await session.rows(AGENT_OVERVIEWS, workspace, list(names), most)
    return {row[0]: AgentOverview(*row) for row in rows}


async def waiting_messages(session: Session, key: SessionKey, limit: int) -> list[SessionMessage]:
    """Return waiting messages. See `OverviewStore.waiting_messages`."""
    return [SessionMessage(*row) for row in await session.rows(WAITING_MESSAGES, *key, limit)]


async def recent_turns(session: Session, key: SessionKey, limit: int) -> list[str]:
    """Return the runs of the newest turns of a session, newest first."""
    return [row[0] for row in await session.rows(RECENT_TURNS, *key, limit)]
