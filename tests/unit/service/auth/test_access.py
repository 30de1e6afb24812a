"""Permissions: which role may do what, and what is hidden from whom."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from wakeful.errors import NotFound, PermissionDenied
from wakeful.service.auth.access import LOCAL, MAY, ROLES, Action, Principal, Role, permit, visible_agent
from wakeful.store.audit import AuditEntry

#: The roles of design.md: an admin does everything, a member reads and runs, an agent has its own jobs.
EXPECTED: dict[Action, str] = {
    "read": "admin agent member",
    "job.write": "admin agent",
    "run": "admin agent member",
    "work": "admin agent member",
    "verify": "admin member",
    "session.delete": "admin agent",
    "suggestion.decide": "admin",
    "wake": "admin",
    "signal": "admin agent member",
    "instance.write": "admin agent",
    "instance.pause": "admin",
    "instance.state": "admin",
    "dead-letter": "admin",
    "agent.write": "admin",
    "workflow.write": "admin",
    "key": "admin",
    "channel": "admin",
    "audit.read": "admin",
    "diagnose": "admin",
    "quota.read": "admin agent member",
    "incident.acknowledge": "admin member",
    "operate": "admin",
}
ADA = Principal("key:1", "agent", "acme", "ada")


def allowed(principal: Principal, action: Action, workspace: str = "acme", agent: str | None = None) -> bool:
    try:
        permit(principal, action, workspace, agent)
    except PermissionDenied:
        return False
    return True


def test_every_action_has_its_roles() -> None:
    assert {action: " ".join(sorted(roles)) for action, roles in MAY.items()} == EXPECTED
    assert set(EXPECTED) == set(get_args(Action))
    assert ROLES == ("admin", "member", "agent")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", EXPECTED)
def test_a_role_may_do_what_the_table_says(role: Role, action: Action) -> None:
    everywhere = Principal("key:1", role, None, "ada" if role == "agent" else None)
    assert allowed(everywhere, action) is (role in EXPECTED[action].split())


def test_a_denial_names_the_role_and_the_roles_that_may() -> None:
    with pytest.raises(PermissionDenied) as denied:
        permit(Principal("key:1", "member", "acme"), "job.write", "acme")
    assert denied.value.message == (
        "a key of the role 'member' may not do this; it takes the role admin or agent"
    )


def test_another_workspace_is_not_found_whatever_the_action() -> None:
    for action in EXPECTED:
        with pytest.raises(NotFound) as hidden:
            permit(Principal("key:1", "admin", "acme"), action, "x" * 65)
        assert hidden.value.message == f"no workspace '{'x' * 64}'"


def test_an_agent_finds_itself_and_no_other() -> None:
    permit(ADA, "job.write", "acme", "ada")
    permit(ADA, "read", "acme")
    with pytest.raises(NotFound) as hidden:
        permit(ADA, "read", "acme", "b" * 65)
    assert hidden.value.message == f"no agent '{'b' * 64}'"
    permit(Principal("key:1", "member", "acme", "ada"), "read", "acme", "ben")


def test_only_a_key_for_all_workspaces_operates() -> None:
    with pytest.raises(PermissionDenied) as denied:
        permit(Principal("key:1", "admin", "acme"), "operate", "acme")
    assert denied.value.message == (
        "only a key for all workspaces may do this, such as the first key of the installation"
    )
    permit(Principal("key:1", "admin", None), "operate", "acme")
    permit(Principal("key:1", "admin", "acme"), "key", "acme")


def test_a_list_is_limited_to_the_agent_of_the_key() -> None:
    member = Principal("key:1", "member", "acme", "ada")
    assert [visible_agent(member, agent) for agent in (None, "ben")] == [None, "ben"]
    assert [visible_agent(ADA, agent) for agent in (None, "ada")] == ["ada", "ada"]
    with pytest.raises(NotFound) as hidden:
        visible_agent(ADA, "b" * 65)
    assert hidden.value.message == f"no agent '{'b' * 64}'"


def test_a_principal_names_itself_in_what_it_creates_and_in_the_audit() -> None:
    principal = Principal("key:1", "member", "acme", address="10.0.0.1")
    assert principal.creator == "member:key:1"
    entry = principal.entry("acme", "job.run", "ada/digest")
    assert entry == AuditEntry("acme", "key:1", "job.run", "ada/digest", "{}", "10.0.0.1")
    assert principal.entry("acme", "job.run", "ada/digest", '{"a":1}').details == '{"a":1}'


def test_a_principal_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ADA.role = "admin"  # type: ignore[misc]


def test_a_program_with_its_own_scheduler_may_do_everything_everywhere() -> None:
    assert (LOCAL.actor, LOCAL.role, LOCAL.workspace, LOCAL.agent) == ("python", "admin", None, None)
    assert all(allowed(LOCAL, action, "anywhere", "anyone") for action in EXPECTED)
