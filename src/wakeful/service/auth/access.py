"""Permissions: one table of roles and actions, checked first by every service method.

A workspace, agent, job or run of another owner is reported as not found, so that its existence stays hidden.
An action that the role does not allow is denied, with the roles that do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from wakeful.errors import NotFound, PermissionDenied
from wakeful.store.audit import AuditEntry
from wakeful.values.json_value import compact

Role = Literal["admin", "member", "agent"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

Action = Literal[
    "read",  # jobs, runs, incidents, suggestions, agents, workflows, status
    "job.write",  # create, change, pause, delete jobs; rotate their secrets
    "run",  # run or backfill a job; cancel and stop runs
    "work",  # claim, heartbeat and complete runs
    "verify",  # confirm or reject the work of runs: for people
    "wake",  # wake an agent without a job
    "signal",  # send signals to instances
    "instance.write",  # start, stop and hibernate instances
    "instance.pause",  # pause and resume instances: an agent may not undo it
    "instance.state",  # read the state of instances
    "session.delete",
    "dead-letter",  # replay and discard dead letters
    "incident.acknowledge",
    "suggestion.decide",  # apply, dismiss and roll back suggestions
    "agent.write",
    "workflow.write",
    "key",  # list, create and revoke keys
    "audit.read",
    "channel",  # list channels with their deliveries; send a test message
    "diagnose",  # the checks of `wakeful doctor`
    "quota.read",
    "operate",  # workspaces and limits: only principals of all workspaces
]

#: The roles that may perform each action; `agent` only for its own agent.
MAY: Final[dict[Action, frozenset[Role]]] = {
    "read": frozenset({"admin", "member", "agent"}),
    "job.write": frozenset({"admin", "agent"}),
    "run": frozenset({"admin", "member", "agent"}),
    "work": frozenset({"admin", "member", "agent"}),
    "verify": frozenset({"admin", "member"}),
    "wake": frozenset({"admin"}),
    "signal": frozenset({"admin", "member", "agent"}),
    "instance.write": frozenset({"admin", "agent"}),
    "instance.pause": frozenset({"admin"}),
    "instance.state": frozenset({"admin"}),
    "session.delete": frozenset({"admin", "agent"}),
    "dead-letter": frozenset({"admin"}),
    "incident.acknowledge": frozenset({"admin", "member"}),
    "suggestion.decide": frozenset({"admin"}),
    "agent.write": frozenset({"admin"}),
    "workflow.write": frozenset({"admin"}),
    "key": frozenset({"admin"}),
    "audit.read": frozenset({"admin"}),
    "channel": frozenset({"admin"}),
    "diagnose": frozenset({"admin"}),
    "quota.read": frozenset({"admin", "member", "agent"}),
    "operate": frozenset({"admin"}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller."""

    #: the name in the audit log: `key:<id>`, `person:<id>`, `jwt:<subject>`, `python`
    actor: str
    role: Role
    #: the workspace that the caller belongs to; None: all workspaces
    workspace: str | None
    #: the agent that a caller of the role `agent` is bound to
    agent: str | None = None
    #: the address of the client
    address: str | None = None
    #: the run that makes the call (`x-wakeful-run-id`); `service.jobs.run_origin` checks it
    run_id: str | None = None
    #: whether the model of a chat makes the call, by the tool `cron`
    by_model: bool = False
    #: of a person: the roles by workspace, `*` for all
    grants: tuple[tuple[str, Role], ...] = ()
    #: the host of the assistant that calls with OAuth, and the person who connected it
    client: str | None = None
    person: str | None = None

    @property
    def is_person(self) -> bool:
        """Whether the call is neither an agent's nor made in a run."""
        return self.role != "agent" and self.run_id is None

    @property
    def workspaces(self) -> tuple[str, ...]:
        """The workspaces that a person can choose from; `*`: all."""
        return tuple(workspace for workspace, _ in self.grants)

    def at(self, workspace: str) -> Principal:
        """Return a person with the role in this workspace; itself: no role there, or no person.

        >>> ada = Principal("person:1", "admin", "crm", grants=(("*", "member"), ("crm", "admin")))
        >>> [(found.role, found.workspace) for found in (ada.at("crm"), ada.at("hr"), LOCAL.at("hr"))]
        [('admin', 'crm'), ('member', None), ('admin', None)]
        """
        here, everywhere = dict(self.grants).get(workspace), dict(self.grants).get("*")
        if everywhere is not None and (everywhere == "admin" or here != "admin"):
            return replace(self, role=everywhere, workspace=None)
        return self if here is None else replace(self, role=here, workspace=workspace)

    @property
    def creator(self) -> str:
        """Return the mark on what the principal creates: role and actor."""
        return f"{self.role}:{self.actor}"

    def entry(self, workspace: str, action: str, subject: str, details: str = "{}") -> AuditEntry:
        """Return the audit entry of an action by the principal, with its run, assistant and person."""
        more = {"inRun": self.run_id and self.run_id[:64], "client": self.client, "person": self.person}
        given = {name: value for name, value in more.items() if value is not None}
        if given:
            details = compact({**json.loads(details), **given})
        return AuditEntry(workspace, self.actor, action, subject, details, self.address)


#: A Python program with the scheduler in its own process.
LOCAL: Final = Principal("python", "admin", None)


def permit(principal: Principal, action: Action, workspace: str, agent: str | None = None) -> None:
    """Raise NotFound for a workspace or agent of another owner, PermissionDenied for a missing role.

    `agent` is the agent that the action is about; None for the whole workspace.

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
            "only a key for all workspaces may do this, such as the first key of the installation"
        )


def grantable_roles(principal: Principal) -> tuple[Role, ...]:
    """Return the roles that a person may give to an assistant: those that allow nothing that theirs does not.

    >>> grantable_roles(Principal("key:1", "member", "acme"))
    ('member',)
    """
    allowed = {action for action, roles in MAY.items() if principal.role in roles}
    return tuple(
        role for role in ROLES if {action for action, roles in MAY.items() if role in roles} <= allowed
    )


def check_person(principal: Principal, what: str) -> None:
    """Raise PermissionDenied if a call in a run does what only a person may do."""
    if principal.run_id is not None:
        raise PermissionDenied(
            f"{what}: a call in a run (x-wakeful-run-id) may not do this, whatever its key; ask a person"
        )


def may_operate(principal: Principal) -> bool:
    """Return whether the principal may do what only a key for all workspaces may."""
    return principal.role in MAY["operate"] and principal.workspace is None


def visible_agent(principal: Principal, agent: str | None) -> str | None:
    """Return the agent that a list is limited to: a key of the role `agent` sees only its own agent."""
    if principal.role != "agent":
        return agent
    if agent is not None and agent != principal.agent:
        raise NotFound(f"no agent '{agent[:64]}'")
    return principal.agent
