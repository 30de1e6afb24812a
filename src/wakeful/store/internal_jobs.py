"""The jobs that Wakeful creates for itself: their names are reserved, and they count towards no quota.

Those that belong to an agent or a workspace are written in the transaction of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from wakeful.store.audit import AuditEntry
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sessions import HEARTBEAT, WAKE_JOB

#: The jobs that send alerts: of an agent, and of a workspace (owned by its agent `default`). Webhook and
#: channel have a job each, so that each is retried on its own. Their own runs cause no alerts.
AGENT_ALERTS: Final = "wakeful-alerts"
WORKSPACE_ALERTS: Final = "wakeful-workspace-alerts"
AGENT_CHANNEL: Final = "wakeful-channel-alerts"
WORKSPACE_CHANNEL: Final = "wakeful-workspace-channel-alerts"
ALERT_JOBS: Final = (AGENT_ALERTS, WORKSPACE_ALERTS, AGENT_CHANNEL, WORKSPACE_CHANNEL)
#: The agent that owns the alert jobs of a workspace.
WORKSPACE_AGENT: Final = "default"
#: The jobs that analyze an agent and evaluate its suggestions, and the labels that mark them as internal.
ANALYSIS_JOB: Final = "wakeful-analysis"
EVALUATION_JOB: Final = "wakeful-evaluation"
EVOLUTION_LABELS: Final = '{"system":"evolution"}'
INTERNAL_JOBS: Final = frozenset({*ALERT_JOBS, WAKE_JOB, HEARTBEAT, ANALYSIS_JOB, EVALUATION_JOB})
#: Names with this prefix are reserved for future internal jobs.
RESERVED_PREFIX: Final = "wakeful-"
#: The names as a list in SQL.
IN_SQL: Final = ", ".join(f"'{name}'" for name in sorted(INTERNAL_JOBS))


class InternalChange(NamedTuple):
    """What happens to an internal job with its agent or workspace: it is added, changed or deleted."""

    add: JobRow | None = None
    change: JobChange | None = None
    delete: bool = False
    entry: AuditEntry | None = None


#: Decides about internal jobs by name; they get the job, or None if there is none. None: no change. An
#: exception rolls back the whole transaction, in which a rule may be called twice.
InternalRules = Mapping[str, Callable[[JobRow | None], InternalChange | None]]
NO_RULES: Final[InternalRules] = {}


def is_reserved(name: str) -> bool:
    """Return whether users cannot give a job this name.

    >>> is_reserved("heartbeat"), is_reserved("wakeful-alerts"), is_reserved("daily-report")
    (True, True, False)
    """
    return name in INTERNAL_JOBS or name.startswith(RESERVED_PREFIX)
