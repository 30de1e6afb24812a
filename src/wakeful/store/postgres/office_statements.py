"""What the PostgreSQL store says of accounts, the audit, quotas, workflows and idempotency keys.

As in `statements`: by name, each with the index that serves it. Locks are taken in this order:
agents, quotas, and after everything else the heads of the audit, where all who do anything in a workspace
meet; of each kind, in the order of their names.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.internal_jobs import IN_SQL

# --- workspaces and agents ------------------------------------------------------------------------------

_WORKSPACE_COLUMNS: Final = "name, tz, description, created_at, updated_at, budget, alerts"
_WORKSPACE: Final = f"SELECT {_WORKSPACE_COLUMNS} FROM workspaces"
#: the primary key
WORKSPACE: Final = f"{_WORKSPACE} WHERE name = $1"
#: the primary key, all of it in its order
WORKSPACES: Final = f"{_WORKSPACE} ORDER BY name"
#: the primary key
PUT_WORKSPACE: Final = f"""
    INSERT INTO workspaces ({_WORKSPACE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (name) DO UPDATE SET tz = EXCLUDED.tz, description = EXCLUDED.description,
        updated_at = EXCLUDED.updated_at, budget = EXCLUDED.budget, alerts = EXCLUDED.alerts"""

_AGENT_COLUMNS: Final = (
    "workspace, name, target, tz, active, channel, send_to, description, version, created_at, updated_at, "
    "budget, alerts, queue, heartbeat, secret, old_secret, old_secret_until_at, deliver_to"
)
#: the primary key
AGENT: Final = f"SELECT {_AGENT_COLUMNS} FROM agents WHERE workspace = $1 AND name = $2"
#: the primary key. Waits for transactions that make or change jobs of the agent, and they for this one
LOCK_AGENT: Final = f"{AGENT} FOR NO KEY UPDATE"
#: the primary key: a range of it, in its order
AGENTS: Final = f"SELECT {_AGENT_COLUMNS} FROM agents WHERE workspace = $1 ORDER BY name"
#: the primary key turns away one that somebody else has added meanwhile
ADD_AGENT: Final = f"""
    INSERT INTO agents ({_AGENT_COLUMNS}) VALUES
        ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
    ON CONFLICT DO NOTHING RETURNING true"""
#: the primary key
CHANGE_AGENT: Final = """
    UPDATE agents SET target = $3, tz = $4, active = $5, channel = $6, send_to = $7, description = $8,
        version = $9, updated_at = $10, budget = $11, alerts = $12, queue = $13, heartbeat = $14,
        secret = $15, old_secret = $16, old_secret_until_at = $17, deliver_to = $18
    WHERE workspace = $1 AND name = $2"""
#: what `Inherited` has
_INHERITED: Final = "target, active, secret, old_secret, old_secret_until_at"
#: the primary key, twice for each. Locks the agents against changes and returns what jobs have from them; one
#: that another transaction adds or deletes at this very moment is not among them
HOLD_AGENTS: Final = f"""
    WITH given AS (SELECT * FROM unnest($1::text[], $2::text[]) g (workspace, name)),
    held AS (
        SELECT a.* FROM given g CROSS JOIN LATERAL (
            SELECT a.workspace, a.name, {_INHERITED} FROM agents a
            WHERE a.workspace = g.workspace AND a.name = g.name FOR SHARE) a),
    made AS (
        INSERT INTO agents ({_AGENT_COLUMNS})
        SELECT workspace, name, NULL, NULL, true, NULL, NULL, '', 1, $3, $3, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL
        FROM given
        ON CONFLICT DO NOTHING RETURNING workspace, name, {_INHERITED})
    SELECT * FROM held UNION ALL SELECT * FROM made"""
#: the primary keys of jobs and agents
HOLD_AGENT_OF_JOB: Final = """
    SELECT a.target, a.active, a.secret, a.old_secret, a.old_secret_until_at
    FROM jobs j JOIN agents a ON a.workspace = j.workspace AND a.name = j.agent
    WHERE j.id = $1 FOR SHARE OF a"""
#: jobs_name
COUNT_JOBS: Final = "SELECT count(*) FROM jobs WHERE workspace = $1 AND agent = $2 AND deleted_at IS NULL"
#: the primary key
DELETE_AGENT: Final = "DELETE FROM agents WHERE workspace = $1 AND name = $2 RETURNING true"
#: the primary key, messages_of_session and turns_live: a range of each
DELETE_TALK: Final = (
    "DELETE FROM sessions WHERE workspace = $1 AND agent = $2",
    "DELETE FROM messages WHERE workspace = $1 AND agent = $2",
    "DELETE FROM turns WHERE live AND workspace = $1 AND agent = $2",
)

# --- keys -----------------------------------------------------------------------------------------------

_KEY_COLUMNS: Final = (
    "id, workspace, name, role, agent, hash, created_at, created_by, expires_at, last_used_at, revoked_at"
)
ADD_KEY: Final = f"""
    INSERT INTO keys ({_KEY_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"""
LOCK_KEYS: Final = "LOCK TABLE keys IN SHARE ROW EXCLUSIVE MODE"
#: keys_hash
KEY_BY_HASH: Final = f"SELECT {_KEY_COLUMNS} FROM keys WHERE hash = $1"
#: keys_of_workspace: a range of it, in its order
KEYS: Final = f"SELECT {_KEY_COLUMNS} FROM keys WHERE workspace = $1 ORDER BY created_at, id"
#: the table, all of it
ALL_KEYS: Final = f"SELECT {_KEY_COLUMNS} FROM keys ORDER BY created_at, id"
#: the primary key
REVOKE_KEY: Final = "UPDATE keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING true"
#: the primary key, once for each
TOUCH_KEYS: Final = """
    UPDATE keys k SET last_used_at = u.at FROM unnest($1::text[], $2::timestamptz[]) u (id, at)
    WHERE k.id = u.id AND CASE WHEN u.id IS NOT NULL THEN coalesce(k.last_used_at < u.at, true) END"""

# --- audit ----------------------------------------------------------------------------------------------

#: the primary key, once for each
LOCK_HEADS: Final = """
    SELECT workspace, seq, hash FROM audit_heads WHERE workspace = ANY($1::text[])
    ORDER BY workspace FOR UPDATE"""
#: the primary key
HEAD: Final = "SELECT seq, hash FROM audit_heads WHERE workspace = $1"
#: the primary key turns away those that there are
ADD_HEADS: Final = """
    INSERT INTO audit_heads (workspace, seq, hash) SELECT workspace, 0, '' FROM unnest($1::text[]) workspace
    ON CONFLICT DO NOTHING"""
_ENTRY_COLUMNS: Final = "workspace, seq, at, actor, action, subject, details, address, before, hash"
#: the heads' primary key, once for each
APPEND: Final = f"""
    WITH written AS (
        INSERT INTO audit ({_ENTRY_COLUMNS}) SELECT {_ENTRY_COLUMNS} FROM unnest($1::new_entry[]))
    UPDATE audit_heads h SET seq = n.seq, hash = n.hash
    FROM unnest($2::text[], $3::bigint[], $4::text[]) n (workspace, seq, hash)
    WHERE h.workspace = n.workspace"""
_ENTRIES: Final = f"SELECT {_ENTRY_COLUMNS} FROM audit WHERE workspace = $1 AND seq > $2"
#: the primary key: a range of it, in its order
ENTRIES: Final = f"{_ENTRIES} ORDER BY seq LIMIT $3"
#: the primary key: a range of it, from its end
ENTRIES_BACK: Final = f"{_ENTRIES} AND seq < $3 ORDER BY seq DESC LIMIT $4"

# --- quotas ---------------------------------------------------------------------------------------------

#: the primary key, twice for each. The clocks of two processes may differ at midnight: a day that has begun
#: stays the day. Whoever has charged holds the row, so nobody else counts jobs until these are there
CHARGE: Final = """
    INSERT INTO quotas AS q (workspace, agent, bucket, used, day)
    SELECT workspace, agent, $4, jobs, $6 FROM unnest($1::text[], $2::text[], $3::bigint[])
        c (workspace, agent, jobs)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET day = greatest(q.day, EXCLUDED.day),
        used = EXCLUDED.used + CASE WHEN q.day >= EXCLUDED.day THEN q.used ELSE 0 END
    RETURNING q.workspace, q.agent, q.most, q.used, (
        SELECT l.most FROM quotas l
        WHERE l.workspace = q.workspace AND l.agent = q.agent AND l.bucket = $5)"""


def _live(of: str) -> str:
    return f"""
    SELECT o.workspace, o.agent, c.jobs
    FROM unnest($1::text[], $2::text[], $3::bigint[]) o (workspace, agent, most) CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM jobs j WHERE j.workspace = o.workspace {of} AND j.deleted_at IS NULL
                AND j.name NOT IN ({IN_SQL})
            LIMIT o.most + 1) counted) c"""


#: jobs_name: of a range of it, for each owner, as many as the limit and one more. A count kept beside would
#: make whatever ends a job wait for whatever makes one
LIVE_OF_AGENTS: Final = _live("AND j.agent = o.agent")
LIVE_OF_WORKSPACES: Final = _live("")
#: the primary key: a range of it; and jobs_name: a range of it, in its order
QUOTAS: Final = f"""
    SELECT agent, bucket, most, used, day FROM quotas WHERE workspace = $1
    UNION ALL SELECT agent, $2, NULL, count(*), 0 FROM jobs
    WHERE workspace = $1 AND deleted_at IS NULL AND name NOT IN ({IN_SQL}) GROUP BY agent"""
#: the primary key
SET_QUOTA: Final = """
    INSERT INTO quotas (workspace, agent, bucket, most) VALUES ($1, $2, $3, $4)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET most = EXCLUDED.most"""

# --- workflows ------------------------------------------------------------------------------------------

#: the primary key turns away a version that is there
PUT_WORKFLOW: Final = """
    INSERT INTO workflows (workspace, id, version, dag, created_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING RETURNING true"""
#: the primary key
WORKFLOW: Final = """
    SELECT workspace, id, version, dag, created_at FROM workflows
    WHERE workspace = $1 AND id = $2 AND version = $3"""

# --- idempotency keys -----------------------------------------------------------------------------------

_RESPONSE_COLUMNS: Final = "workspace, key, fingerprint, status, body, created_at"
#: the primary key
KEY_ROW: Final = f"SELECT {_RESPONSE_COLUMNS} FROM idempotency_keys WHERE workspace = $1 AND key = $2"
#: the primary key
RESPONSE: Final = f"{KEY_ROW} AND status <> 0 AND created_at >= $3"
#: idempotency_keys_created: a range of it, in its order; then the primary key. Rows that another transaction
#: is deleting are skipped
EXPIRE_KEYS: Final = """
    DELETE FROM idempotency_keys a USING (
        SELECT workspace, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT 1000
        FOR UPDATE SKIP LOCKED) old
    WHERE a.workspace = old.workspace AND a.key = old.key"""
#: the primary key; an expired or abandoned row is taken over
CLAIM_KEY: Final = f"""
    INSERT INTO idempotency_keys AS a ({_RESPONSE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = EXCLUDED.fingerprint, status = EXCLUDED.status,
        body = EXCLUDED.body, created_at = EXCLUDED.created_at
    WHERE a.created_at < $7 OR a.status = 0 AND a.created_at < $8
    RETURNING true"""
#: the primary key
STORE_RESPONSE: Final = "UPDATE idempotency_keys SET status = $3, body = $4 WHERE workspace = $1 AND key = $2"
