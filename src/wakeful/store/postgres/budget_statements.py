"""What the PostgreSQL store says of spending, holds, incidents and alerts.

As in `statements`: by name, each with the index that serves it. Rows of spending, and of what was
told last, are locked after runs and jobs, and in the order of their keys.
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

#: the runs' primary key, once for each
WHOSE: Final = """
    SELECT id::text, workspace, agent, coalesce(job_id::text, '') FROM runs WHERE id = ANY($1::uuid[])"""
#: the primary key, once for each, in the order given
ADD_SPENDING: Final = f"""
    INSERT INTO spending AS s (workspace, agent, job, day, tokens, cost)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::float8[])
    ON CONFLICT (workspace, agent, job, day) DO UPDATE
    SET tokens = least(s.tokens + EXCLUDED.tokens, {MOST_TOKENS}),
        cost = least(s.cost + EXCLUDED.cost, {MOST_COST:.1f})"""
#: the primary key
SPENT: Final = """
    SELECT tokens, cost FROM spending WHERE workspace = $1 AND agent = $2 AND job = $3 AND day = $4"""
#: the primary key: a range of it
HOLDS: Final = "SELECT day, workspace, agent, job, cap, most FROM budget_blocks WHERE day = $1"
#: the primary keys of spending, budget_blocks, workspaces, agents and jobs, once for each
WEIGHED: Final = """
    SELECT o.workspace, o.agent, o.job, coalesce(s.tokens, 0), coalesce(s.cost, 0),
        CASE WHEN o.job <> ''
            THEN (SELECT work FROM jobs WHERE id = nullif(o.job, '')::uuid AND deleted_at IS NULL)
            WHEN o.agent <> ''
            THEN (SELECT budget FROM agents WHERE workspace = o.workspace AND name = o.agent)
            ELSE (SELECT budget FROM workspaces WHERE name = o.workspace) END,
        (SELECT string_agg(cap, ',') FROM budget_blocks h
            WHERE h.day = $4 AND h.workspace = o.workspace AND h.agent = o.agent AND h.job = o.job)
    FROM unnest($1::text[], $2::text[], $3::text[]) o (workspace, agent, job)
    LEFT JOIN spending s
        ON s.workspace = o.workspace AND s.agent = o.agent AND s.job = o.job AND s.day = $4"""
#: the primary key turns away what somebody else has found out meanwhile
HOLD: Final = """
    INSERT INTO budget_blocks (day, workspace, agent, job, cap, most) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING RETURNING true"""
#: the primary key
LET_GO: Final = """
    DELETE FROM budget_blocks WHERE day = $1 AND workspace = $2 AND agent = $3 AND job = $4 AND cap = $5"""

#: agents_alerts and workspaces_alerts, which are mostly empty
_TOLD: Final = """
    (EXISTS (SELECT FROM agents a
        WHERE a.workspace = o.workspace AND a.name = o.agent AND a.alerts IS NOT NULL)
    OR EXISTS (SELECT FROM workspaces w WHERE w.name = o.workspace AND w.alerts IS NOT NULL))"""
_OURS: Final = f"coalesce(o.job_name, '') NOT IN {ALERT_JOBS}"
_NEW: Final = "INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details)"
#: the primary key of runs, once for each, and that of jobs; then `_TOLD`
FAILED: Final = f"""
    WITH noted AS (
        {_NEW}
        SELECT $1, 'failed', o.workspace, o.agent, o.job_id, o.id,
            coalesce((SELECT failures FROM jobs WHERE id = o.job_id), 1), '{{}}'
        FROM runs o WHERE o.id = ANY($2::uuid[]) AND {_OURS} AND {_TOLD} RETURNING 1)
    SELECT EXISTS (SELECT FROM noted)"""
#: the primary key of runs, once for each; then `_TOLD`
MISSED: Final = f"""
    WITH noted AS (
        {_NEW}
        SELECT $1, 'missed', o.workspace, o.agent, o.job_id, o.id, o.covers, '{{}}'
        FROM runs o WHERE o.id = ANY($2::uuid[])
            AND o.reason IN ('downtime', 'too_old') AND {_OURS} AND {_TOLD} RETURNING 1)
    SELECT EXISTS (SELECT FROM noted)"""
#: `_TOLD`
REACHED: Final = f"""
    WITH noted AS (
        {_NEW}
        SELECT $1, 'budget', o.workspace, o.agent, nullif($4, '')::uuid, NULL, 1, $5
        FROM (SELECT $2::text AS workspace, $3::text AS agent) o WHERE {_TOLD} RETURNING 1)
    SELECT EXISTS (SELECT FROM noted)"""
#: the primary key, in its order; for each, those of runs, jobs, agents and workspaces, and twice
#: jobs_name
INCIDENTS: Final = f"""
    SELECT i.id, i.at, i.kind, i.workspace, i.agent, i.job_id::text, i.run_id::text, i.count, i.details,
        (SELECT name FROM jobs WHERE id = i.job_id), (SELECT error FROM runs WHERE id = i.run_id),
        coalesce(a.alerts, w.alerts), s.id::text, s.agent, s.name, s.work,
        c.id::text, c.agent, c.name, c.work
    FROM incidents i LEFT JOIN agents a ON a.workspace = i.workspace AND a.name = i.agent
    LEFT JOIN workspaces w ON w.name = i.workspace
    LEFT JOIN jobs s ON s.workspace = i.workspace AND s.deleted_at IS NULL
        AND s.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND s.name = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_ALERTS}' ELSE '{AGENT_ALERTS}' END
    LEFT JOIN jobs c ON c.workspace = i.workspace AND c.deleted_at IS NULL
        AND c.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND c.name = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_CHANNEL}' ELSE '{AGENT_CHANNEL}' END
    ORDER BY i.id LIMIT $1 FOR UPDATE OF i SKIP LOCKED"""
#: the primary key, once for each
DROP_INCIDENTS: Final = "DELETE FROM incidents WHERE id = ANY($1::bigint[])"
#: the primary key; nothing is written where the last time is too near, whoever wrote it
NOTE_ALERT: Final = """
    INSERT INTO alert_cooldowns AS t (workspace, subject, kind, at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, subject, kind) DO UPDATE SET at = EXCLUDED.at WHERE t.at <= $5 RETURNING true"""

#: spending_day
PRUNE_SPENDING: Final = "DELETE FROM spending WHERE day < $1"
#: the primary key: its beginning
PRUNE_HOLDS: Final = "DELETE FROM budget_blocks WHERE day < $1"
#: all of it: there is a row for a job that something went wrong with, and kind
PRUNE_ALERTED: Final = "DELETE FROM alert_cooldowns WHERE at < $1"
