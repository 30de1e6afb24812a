"""Who may do what. One table; every use case asks it first, whatever face it was called through.

Somebody else's workspace, agent, job or run is not found: whether it exists is not told. What is one's own
and still not allowed is denied, with the role that could do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from wakeful.errors import NotFound, PermissionDenied
from wakeful.store.audit import AuditEntry

Role = Literal["admin", "member", "agent"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

Action = Literal[
    "read",  # jobs, runs, agents, workflows, status
    "job.write",  # create, change, pause, delete jobs; rotate their secrets
    "run",  # run a job now, fill in its past; cancel and stop runs
    "work",  # claim, heartbeat and complete runs
    "wake",  # wake an agent without a job
    "dead-letter",  # replay and discard dead letters
    "agent.write",
    "workflow.write",
    "key",  # see, make and revoke keys
    "audit.read",
    "quota.read",
    "operate",  # workspaces and limits: only those who may in every workspace
]

#: Which roles may; `agent` always means: for its own agent alone.
MAY: Final[dict[Action, frozenset[Role]]] = {
    "read": frozenset({"admin", "member", "agent"}),
    "job.write": frozenset({"admin", "agent"}),
    "run": frozenset({"admin", "member", "agent"}),
    "work": frozenset({"admin", "member", "agent"}),
    "wake": frozenset({"admin"}),
    "dead-letter": frozenset({"admin"}),
    "agent.write": frozenset({"admin"}),
    "workflow.write": frozenset({"admin"}),
    "key": frozenset({"admin"}),
    "audit.read": frozenset({"admin"}),
    "quota.read": frozenset({"admin", "member", "agent"}),
    "operate": frozenset({"admin"}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever asks."""

    #: as the audit names them: `key:<id>`, `jwt:<subject>`, `python`
    actor: str
    role: Role
    #: the one workspace they belong to; None: all of them
    workspace: str | None = None
    #: the one agent that the role `agent` is bound to
    agent: str | None = None
    #: where they ask from
    address: str | None = None

    @property
    def creator(self) -> str:
        """How what they create is marked: their role, and who they are."""
        return f"{self.role}:{self.actor}"

    def entry(self, workspace: str, action: str, subject: str, details: str = "{}") -> AuditEntry:
        """What they do, for the audit."""
        return AuditEntry(workspace, self.actor, action, subject, details, self.address)


#: A Python program that has the scheduler in its own process, and so the database too.
LOCAL: Final = Principal("python", "admin")


def permit(principal: Principal, action: Action, workspace: str, agent: str | None = None) -> None:
    """Let them, or say why not: NotFound for what is somebody else's, PermissionDenied for what is theirs.

    `agent` is the agent that it is about; None for what concerns the workspace as a whole.

    >>> permit(Principal("key:1", "member", "acme"), "read", "acme")
    >>> permit(Principal("key:1", "member", "acme"), "wake", "acme")
    Traceback (most recent call last):
    wakeful.errors.PermissionDenied: a key of the role 'member' may not do this; it takes the role admin
    >>> permit(Principal("key:1", "admin", "acme"), "read", "other")
    Traceback (most recent call last):
    wakeful.errors.NotFound: no workspace 'other'
    """
    if principal.workspace not in (None, workspace):
        raise NotFound(f"no workspace '{workspace[:64]}'")
    if principal.role == "agent" and agent is not None and agent != principal.agent:
        raise NotFound(f"no agent '{agent[:64]}'")
    if principal.role not in MAY[action]:
        roles = " or ".join(sorted(MAY[action]))
        raise PermissionDenied(
            f"a key of the role '{principal.role}' may not do this; it takes the role {roles}"
        )
    if action == "operate" and principal.workspace is not None:
        raise PermissionDenied(
            "only a key for all workspaces may do this, such as the one of the first start"
        )


def visible_agent(principal: Principal, agent: str | None) -> str | None:
    """The agent that a list is limited to: an agent sees its own things wherever it looks."""
    if principal.role != "agent":
        return agent
    if agent is not None and agent != principal.agent:
        raise NotFound(f"no agent '{agent[:64]}'")
    return principal.agent
