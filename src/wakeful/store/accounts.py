"""Workspaces, agents and API keys: their rows, and what a store does with them.

- `workspaces`, `agents`: the workspace `default` and its agent `default` always exist. The first job, key
  or class of an agent creates the agent.
- `keys`: API keys, by the SHA-256 of the key. The key itself is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from wakeful.errors import NotFound, Unavailable
from wakeful.store.audit import AuditEntry
from wakeful.store.rows import JobChange, JobRow

#: The topic that any keys may be revoked, or sign-in sessions ended; `key_topic` names the key.
KEYS_TOPIC: Final = "keys"


def key_topic(key_id: str) -> str:
    """Return the topic that is published when a key is revoked, or sign-in sessions of it end.

    >>> key_topic("7")
    'keys:7'
    """
    return f"{KEYS_TOPIC}:{key_id}"


class WorkspaceRow(NamedTuple):
    """A tenant."""

    name: str
    #: the time zone of jobs that name none
    tz: str | None
    description: str
    created_ms: int
    updated_ms: int
    #: compact JSON: the daily budget of its runs, and its alert settings
    budget: str | None = None
    alerts: str | None = None
    #: its weight in lanes whose slots several workspaces want (`lane_shares`)
    lane_weight: float = 1


class Inherited(NamedTuple):
    """What jobs inherit from their agent. The defaults are those of an agent that does not exist yet."""

    #: compact JSON of the target of jobs without one
    target: str | None = None
    active: bool = True
    #: encrypted secret that signs inherited webhooks, and the previous one while it is still valid
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None


def no_agent(name: str) -> NotFound:
    """Return the error for an agent that does not exist."""
    return NotFound(f"no agent '{name[:64]}'; list the agents to see their names")


class AgentChanged(Unavailable):
    """A job was prepared for an agent that has changed since; nothing was written.

    The caller reads the agent again and repeats the operation.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(f"agent '{agent}' is being changed at this moment; try again")


class AgentRow(NamedTuple):
    """An agent, which owns jobs and sessions."""

    workspace: str
    name: str
    #: compact JSON of the target of jobs without one
    target: str | None
    tz: str | None
    active: bool
    #: where output is delivered, unless a job names another channel
    channel: str | None
    to: str | None
    description: str
    version: int
    created_ms: int
    updated_ms: int
    #: compact JSON: the daily budget of its runs, and its alert settings
    budget: str | None = None
    alerts: str | None = None
    #: compact JSON of how messages queue in its sessions
    queue: str | None = None
    #: compact JSON of its heartbeat settings
    heartbeat: str | None = None
    #: encrypted secret that signs inherited webhooks, and the previous one while it is still valid
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None
    #: compact JSON of the destinations its keys may deliver to, besides its own channel and recipient
    deliver_to: str | None = None
    #: `suggest`; None: off
    evolution: str | None = None
    #: `required`: the jobs that it makes wait for a person
    approval: str | None = None
    #: compact JSON of the bounds of the jobs that it makes (`wakeful.job.self_scheduling`)
    self_scheduling: str | None = None

    @property
    def inherited(self) -> Inherited:
        """What its jobs inherit."""
        return Inherited(self.target, self.active, self.secret, self.old_secret, self.old_secret_until_ms)


#: Returns the change of a job that follows from a change of its agent; None: no change.
InheritingChange = Callable[[AgentRow, JobRow], JobChange | None]


class KeyRow(NamedTuple):
    """An API key, without the key."""

    id: str
    #: None: every workspace, as the first key of an installation
    workspace: str | None
    name: str
    role: str
    #: the agent that a key of the role `agent` is bound to
    agent: str | None
    #: SHA-256 of the whole key
    hash: bytes
    created_ms: int
    created_by: str
    expires_ms: int | None
    last_used_ms: int | None
    revoked_ms: int | None
    #: the host of the assistant that its creator connected with OAuth; None: the key itself is used
    client: str | None = None


class KeyChange(NamedTuple):
    """Keys to add and to revoke."""

    add: KeyRow | None = None
    #: ids
    revoke: Sequence[str] = ()
    entries: Sequence[AuditEntry] = ()
