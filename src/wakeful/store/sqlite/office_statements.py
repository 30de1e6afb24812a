"""What the SQLite store says of accounts, the audit, quotas, workflows and idempotency keys.

As in `statements`: by name, each with the index that serves it, nothing newer than SQLite 3.33.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.accounts import AgentRow, KeyRow, WorkspaceRow
from wakeful.store.audit import AuditRow
from wakeful.store.idempotency import StoredResponse
from wakeful.store.internal_jobs import IN_SQL
from wakeful.store.workflows import WorkflowRow


def _marks(row: type[tuple[object, ...]]) -> str:
    return ", ".join("?" * len(row._fields))  # type: ignore[attr-defined]


# --- workspaces and agents ------------------------------------------------------------------------------

_WORKSPACE_COLUMNS: Final = "name, tz, description, created_at, updated_at, budget, alerts"
_WORKSPACE: Final = f"SELECT {_WORKSPACE_COLUMNS} FROM workspaces"
#: the primary key
WORKSPACE: Final = f"{_WORKSPACE} WHERE name = ?"
#: the primary key, all of it in its order
WORKSPACES: Final = f"{_WORKSPACE} ORDER BY name"
#: the primary key
PUT_WORKSPACE: Final = f"""
    INSERT INTO workspaces ({_WORKSPACE_COLUMNS}) VALUES ({_marks(WorkspaceRow)})
    ON CONFLICT (name) DO UPDATE SET tz = excluded.tz, description = excluded.description,
        updated_at = excluded.updated_at, budget = excluded.budget, alerts = excluded.alerts"""

_AGENT_COLUMNS: Final = (
    "workspace, name, target, tz, active, channel, send_to, description, version, created_at, updated_at, "
    "budget, alerts, queue, heartbeat, secret, old_secret, old_secret_until, deliver_to"
)
#: the primary key
AGENT: Final = f"SELECT {_AGENT_COLUMNS} FROM agents WHERE workspace = ? AND name = ?"
#: the primary key: a range of it, in its order
AGENTS: Final = f"SELECT {_AGENT_COLUMNS} FROM agents WHERE workspace = ? ORDER BY name"
#: the primary key
PUT_AGENT: Final = f"INSERT OR REPLACE INTO agents ({_AGENT_COLUMNS}) VALUES ({_marks(AgentRow)})"
#: the primary key turns away those that there are
MAKE_AGENT: Final = f"""
    INSERT INTO agents ({_AGENT_COLUMNS})
    VALUES (?1, ?2, NULL, NULL, 1, NULL, NULL, '', 1, ?3, ?3, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL)
    ON CONFLICT DO NOTHING"""
#: jobs_name
COUNT_JOBS: Final = """
    SELECT count(*) FROM jobs INDEXED BY jobs_name WHERE workspace = ? AND agent = ? AND deleted_at IS NULL"""
#: the primary key
DELETE_AGENT: Final = "DELETE FROM agents WHERE workspace = ? AND name = ?"
#: the primary key, messages_of_session and turns_live: a range of each
DELETE_TALK: Final = (
    "DELETE FROM sessions WHERE workspace = ? AND agent = ?",
    "DELETE FROM messages WHERE workspace = ? AND agent = ?",
    "DELETE FROM turns WHERE live AND workspace = ? AND agent = ?",
)

# --- keys -----------------------------------------------------------------------------------------------

_KEY_COLUMNS: Final = (
    "id, workspace, name, role, agent, hash, created_at, created_by, expires_at, last_used_at, revoked_at"
)
ADD_KEY: Final = f"INSERT INTO keys ({_KEY_COLUMNS}) VALUES ({_marks(KeyRow)})"
#: keys_hash
KEY_BY_HASH: Final = f"SELECT {_KEY_COLUMNS} FROM keys INDEXED BY keys_hash WHERE hash = ?"
#: keys_of_workspace: a range of it, in its order
KEYS: Final = f"""
    SELECT {_KEY_COLUMNS} FROM keys INDEXED BY keys_of_workspace
    WHERE workspace = ? ORDER BY created_at, id"""
#: the table, all of it
ALL_KEYS: Final = f"SELECT {_KEY_COLUMNS} FROM keys ORDER BY created_at, id"
#: the primary key
REVOKE_KEY: Final = "UPDATE keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL"
#: the primary key
TOUCH_KEY: Final = "UPDATE keys SET last_used_at = ?2 WHERE id = ?1 AND coalesce(last_used_at < ?2, 1)"

# --- audit ----------------------------------------------------------------------------------------------

#: the primary key, once for each
HEADS: Final = """
    SELECT h.workspace, h.seq, h.hash FROM json_each(?) w CROSS JOIN audit_heads h ON h.workspace = w.value"""
_ENTRY_COLUMNS: Final = "workspace, seq, at, actor, action, subject, details, address, before, hash"
APPEND: Final = f"INSERT INTO audit ({_ENTRY_COLUMNS}) VALUES ({_marks(AuditRow)})"
#: the primary key
MOVE_HEAD: Final = """
    INSERT INTO audit_heads (workspace, seq, hash) VALUES (?, ?, ?)
    ON CONFLICT (workspace) DO UPDATE SET seq = excluded.seq, hash = excluded.hash"""
_ENTRIES: Final = f"SELECT {_ENTRY_COLUMNS} FROM audit WHERE workspace = ? AND seq > ?"
#: the primary key: a range of it, in its order
ENTRIES: Final = f"{_ENTRIES} ORDER BY seq LIMIT ?"
#: the primary key: a range of it, from its end
ENTRIES_BACK: Final = f"{_ENTRIES} AND seq < ? ORDER BY seq DESC LIMIT ?"

# --- quotas ---------------------------------------------------------------------------------------------

#: the primary key. The clock may go back over midnight: a day that has begun stays the day
CHARGE: Final = """
    INSERT INTO quotas (workspace, agent, bucket, used, day) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET day = max(quotas.day, excluded.day),
        used = excluded.used + CASE WHEN quotas.day >= excluded.day THEN quotas.used ELSE 0 END"""
#: the primary key, twice for each owner
CHARGED: Final = """
    SELECT c.workspace, c.agent, c.most, c.used, l.most
    FROM json_each(?1) o CROSS JOIN quotas c ON c.workspace = json_extract(o.value, '$[0]')
        AND c.agent = json_extract(o.value, '$[1]') AND c.bucket = ?2
    LEFT JOIN quotas l ON l.workspace = c.workspace AND l.agent = c.agent AND l.bucket = ?3"""
#: jobs_name: of a range of it, as many as the limit and one more. A count kept beside would make whatever
#: ends a job wait for whatever makes one
LIVE_OF_AGENT: Final = f"""
    SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_name
        WHERE workspace = ? AND agent = ? AND deleted_at IS NULL AND name NOT IN ({IN_SQL}) LIMIT ? + 1)"""
LIVE_OF_WORKSPACE: Final = f"""
    SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_name
        WHERE workspace = ? AND deleted_at IS NULL AND name NOT IN ({IN_SQL}) LIMIT ? + 1)"""
#: the primary key: a range of it; and jobs_name: a range of it, in its order
QUOTAS: Final = f"""
    SELECT agent, bucket, most, used, day FROM quotas WHERE workspace = ?1
    UNION ALL SELECT agent, ?2, NULL, count(*), 0 FROM jobs INDEXED BY jobs_name
    WHERE workspace = ?1 AND deleted_at IS NULL AND name NOT IN ({IN_SQL}) GROUP BY agent"""
#: the primary key
SET_QUOTA: Final = """
    INSERT INTO quotas (workspace, agent, bucket, most) VALUES (?, ?, ?, ?)
    ON CONFLICT (workspace, agent, bucket) DO UPDATE SET most = excluded.most"""

# --- workflows ------------------------------------------------------------------------------------------

#: the primary key turns away a version that is there
PUT_WORKFLOW: Final = f"""
    INSERT INTO workflows (workspace, id, version, dag, created_at) VALUES ({_marks(WorkflowRow)})
    ON CONFLICT DO NOTHING"""
#: the primary key
WORKFLOW: Final = """
    SELECT workspace, id, version, dag, created_at FROM workflows
    WHERE workspace = ? AND id = ? AND version = ?"""

# --- idempotency keys -----------------------------------------------------------------------------------

_RESPONSE_COLUMNS: Final = "workspace, key, fingerprint, status, body, created_at"
#: the primary key
KEY_ROW: Final = f"SELECT {_RESPONSE_COLUMNS} FROM idempotency_keys WHERE workspace = ? AND key = ?"
#: the primary key
RESPONSE: Final = f"{KEY_ROW} AND status <> 0 AND created_at >= ?"
#: idempotency_keys_created: a range of it
EXPIRE_KEYS: Final = "DELETE FROM idempotency_keys INDEXED BY idempotency_keys_created WHERE created_at < ?"
#: the primary key; an abandoned row is taken over
CLAIM_KEY: Final = f"""
    INSERT INTO idempotency_keys ({_RESPONSE_COLUMNS}) VALUES ({_marks(StoredResponse)})
    ON CONFLICT (workspace, key) DO UPDATE SET fingerprint = excluded.fingerprint,
        created_at = excluded.created_at
    WHERE idempotency_keys.status = 0 AND idempotency_keys.created_at < ?"""
#: the primary key
STORE_RESPONSE: Final = "UPDATE idempotency_keys SET status = ?3, body = ?4 WHERE workspace = ?1 AND key = ?2"
