"""What the SQLite store says of spending, holds, incidents and alerts.

As in `statements`: by name, each with the index that serves it, nothing newer than SQLite 3.33.
"""

from __future__ import annotations

from typing import Final

from wakeful.document.guards import MOST_COST
from wakeful.store.alerts import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    ALERT_JOBS,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)
from wakeful.store.usage import MOST_TOKENS

#: the primary key, once for each
WHOSE: Final = """
    SELECT id, workspace, agent, coalesce(job_id, '') FROM runs
    WHERE id IN (SELECT value FROM json_each(?))"""
#: the primary key
ADD_SPENDING: Final = f"""
    INSERT INTO spending (workspace, agent, job, day, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (workspace, agent, job, day) DO UPDATE
    SET tokens = min(tokens + excluded.tokens, {MOST_TOKENS}),
        cost = min(cost + excluded.cost, {MOST_COST:.1f})"""
#: the primary key
SPENT: Final = "SELECT tokens, cost FROM spending WHERE workspace = ? AND agent = ? AND job = ? AND day = ?"
#: the primary key: a range of it
HOLDS: Final = "SELECT day, workspace, agent, job, cap, most FROM budget_blocks WHERE day = ?"
#: the primary keys of spending, budget_blocks, workspaces, agents and jobs, once for each
WEIGHED: Final = """
    SELECT o.workspace, o.agent, o.job, coalesce(s.tokens, 0), coalesce(s.cost, 0.0),
        CASE WHEN o.job <> '' THEN (SELECT work FROM jobs WHERE id = o.job AND deleted_at IS NULL)
            WHEN o.agent <> ''
            THEN (SELECT budget FROM agents WHERE workspace = o.workspace AND name = o.agent)
            ELSE (SELECT budget FROM workspaces WHERE name = o.workspace) END,
        (SELECT group_concat(cap) FROM budget_blocks h
            WHERE h.day = ?2 AND h.workspace = o.workspace AND h.agent = o.agent AND h.job = o.job)
    FROM (SELECT json_extract(value, '$[0]') AS workspace, json_extract(value, '$[1]') AS agent,
            json_extract(value, '$[2]') AS job FROM json_each(?1)) o
    LEFT JOIN spending s
        ON s.workspace = o.workspace AND s.agent = o.agent AND s.job = o.job AND s.day = ?2"""
#: the primary key
HOLD: Final = "INSERT INTO budget_blocks (day, workspace, agent, job, cap, most) VALUES (?, ?, ?, ?, ?, ?)"
#: the primary key
LET_GO: Final = (
    "DELETE FROM budget_blocks WHERE day = ? AND workspace = ? AND agent = ? AND job = ? AND cap = ?"
)

#: agents_alerts and workspaces_alerts, which are mostly empty
_TOLD: Final = """
    (EXISTS (SELECT 1 FROM agents a
        WHERE a.workspace = o.workspace AND a.name = o.agent AND a.alerts IS NOT NULL)
    OR EXISTS (SELECT 1 FROM workspaces w WHERE w.name = o.workspace AND w.alerts IS NOT NULL))"""
_OURS: Final = f"coalesce(o.job_name, '') NOT IN {ALERT_JOBS}"
#: the primary key of runs, once for each, and that of jobs; then `_TOLD`
FAILED: Final = f"""
    INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)
    SELECT ?1, 'failed', o.workspace, o.agent, o.job_id, o.id,
        coalesce((SELECT failures FROM jobs WHERE id = o.job_id), 1), '{{}}'
    FROM runs o WHERE o.id IN (SELECT value FROM json_each(?2)) AND {_OURS} AND {_TOLD}"""
#: the primary key of runs, once for each; then `_TOLD`
MISSED: Final = f"""
    INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)
    SELECT ?1, 'missed', o.workspace, o.agent, o.job_id, o.id, o.covers, '{{}}'
    FROM runs o WHERE o.id IN (SELECT value FROM json_each(?2))
        AND o.reason IN ('downtime', 'too_old') AND {_OURS} AND {_TOLD}"""
#: `_TOLD`
REACHED: Final = f"""
    INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)
    SELECT ?1, 'budget', o.workspace, o.agent, nullif(?4, ''), NULL, 1, ?5
    FROM (SELECT ?2 AS workspace, ?3 AS agent) o WHERE {_TOLD}"""
#: the primary key, in its order; for each, those of runs, jobs, agents and workspaces, and twice
#: jobs_name
INCIDENTS: Final = f"""
    SELECT i.id, i.at, i.kind, i.workspace, i.agent, i.job_id, i.run_id, i.count, i.details,
        (SELECT name FROM jobs WHERE id = i.job_id), (SELECT error FROM runs WHERE id = i.run_id),
        coalesce(a.alerts, w.alerts), s.id, s.agent, s.name, s.work,
        c.id, c.agent, c.name, c.work
    FROM incidents i LEFT JOIN agents a ON a.workspace = i.workspace AND a.name = i.agent
    LEFT JOIN workspaces w ON w.name = i.workspace
    LEFT JOIN jobs s INDEXED BY jobs_name ON s.workspace = i.workspace AND s.deleted_at IS NULL
        AND s.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND s.name = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_ALERTS}' ELSE '{AGENT_ALERTS}' END
    LEFT JOIN jobs c INDEXED BY jobs_name ON c.workspace = i.workspace AND c.deleted_at IS NULL
        AND c.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND c.name = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_CHANNEL}' ELSE '{AGENT_CHANNEL}' END
    ORDER BY i.id LIMIT ?"""
#: the primary key, once for each
DROP_INCIDENTS: Final = "DELETE FROM incidents WHERE id IN (SELECT value FROM json_each(?))"
#: the primary key; nothing is written where the last time is too near
NOTE_ALERT: Final = """
    INSERT INTO alert_cooldowns (workspace, subject, kind, at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (workspace, subject, kind) DO UPDATE SET at = excluded.at WHERE at <= ?5"""

#: spending_day
PRUNE_SPENDING: Final = "DELETE FROM spending WHERE day < ?"
#: the primary key: its beginning
PRUNE_HOLDS: Final = "DELETE FROM budget_blocks WHERE day < ?"
#: all of it: there is a row for a job that something went wrong with, and kind
PRUNE_ALERTED: Final = "DELETE FROM alert_cooldowns WHERE at < ?"
