"""Parts of statements about alerts: whether anyone receives them, and who."""

from __future__ import annotations

from typing import Final

from wakeful.store.alerts import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)

#: Whether `o` (with a workspace and an agent) has alerts: agents_alerts and workspaces_alerts.
HAS_ALERTS: Final = """
    (EXISTS (SELECT 1 FROM agents a
        WHERE a.workspace = o.workspace AND a.name = o.agent AND a.alerts IS NOT NULL)
    OR EXISTS (SELECT 1 FROM workspaces w WHERE w.name = o.workspace AND w.alerts IS NOT NULL))"""

#: The fields of `alert_rules.Recipients`, from `recipient_joins`.
RECIPIENT_COLUMNS: Final = (
    "coalesce(a.alerts, w.alerts), s.id::text, s.agent, s.name, s.work, c.id::text, c.agent, c.name, c.work"
)


def recipient_joins() -> str:
    """Return the joins that add to `i` (with a workspace and an agent) the recipients of its alerts.

    The primary keys of agents and workspaces, and twice jobs_name.
    """
    return f"""
    LEFT JOIN agents a ON a.workspace = i.workspace AND a.name = i.agent
    LEFT JOIN workspaces w ON w.name = i.workspace
    {_alert_job("s", AGENT_ALERTS, WORKSPACE_ALERTS)}
    {_alert_job("c", AGENT_CHANNEL, WORKSPACE_CHANNEL)}"""


def _alert_job(alias: str, of_agent: str, of_workspace: str) -> str:
    return f"""
    LEFT JOIN jobs {alias} ON {alias}.workspace = i.workspace AND {alias}.deleted_at IS NULL
        AND {alias}.agent = CASE WHEN a.alerts IS NULL THEN '{WORKSPACE_AGENT}' ELSE i.agent END
        AND {alias}.name = CASE WHEN a.alerts IS NULL THEN '{of_workspace}' ELSE '{of_agent}' END"""
