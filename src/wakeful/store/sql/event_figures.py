"""Figures of MCP events, for metrics and `wakeful doctor`: what is served, and what jobs subscribe to."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.signal.event_catalog import JOB_PREFIX
from wakeful.store.sql.driver import SqlSession

#: subscriptions_of_event, all of it
ACTIVE: Final = """
    SELECT count(*) FROM subscriptions WHERE ended_at IS NULL AND ($1::text IS NULL OR workspace = $1)"""
#: job_incidents_open, all of it: it holds open incidents and nothing else; the primary key of jobs for each
FAILING: Final = f"""
    SELECT count(DISTINCT i.job_id) FROM job_incidents i /*+ INDEXED BY job_incidents_open */
    JOIN jobs j ON j.id = i.job_id
    WHERE i.closed_at IS NULL AND ($1::text IS NULL OR i.workspace = $1) AND j.name LIKE '{JOB_PREFIX}%'"""
#: changes_seq (PostgreSQL) or the primary key (SQLite): its first entry after the position
OLDEST_UNFED: Final = """
    SELECT at FROM changes WHERE seq IS NOT NULL AND seq > (SELECT position FROM event_position WHERE id = 1)
    ORDER BY seq LIMIT 1"""
#: the table, all of it
SOURCES: Final = """
    SELECT state, count(*), min(due_at) FROM event_sources
    WHERE $1::text IS NULL OR workspace = $1 GROUP BY state ORDER BY state"""


class EventFigures(NamedTuple):
    """What is subscribed to, and how it goes."""

    #: active subscriptions, and those of them whose deliveries fail
    subscriptions: int
    failing: int
    #: the time of the oldest change whose events are no deliveries yet
    oldest_ms: int | None
    #: the number of subscriptions of jobs by state
    sources: dict[str, int]
    #: when the first of them had to be renewed or polled
    due_ms: int | None


async def event_figures(session: SqlSession, workspace: str | None) -> EventFigures:
    """Return the figures of a workspace; None: of all. What waits for the feeder is always that of all."""
    rows = await session.rows(SOURCES, workspace)
    return EventFigures(
        int(await session.value(ACTIVE, workspace)),
        int(await session.value(FAILING, workspace)),
        await session.value(OLDEST_UNFED),
        {state: number for state, number, _ in rows},
        min((due_ms for _, _, due_ms in rows), default=None),
    )
