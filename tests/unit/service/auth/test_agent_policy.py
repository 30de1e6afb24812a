"""What the jobs of an agent's key may reach."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import InvalidArgument, PermissionDenied
from wakeful.document import Defaults
from wakeful.job.job import Work
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.auth.agent_policy import AgentTargetPolicy
from wakeful.settings import Settings

AGENT = Principal("key:1", "agent", "default", "writer")
HOME = JobContext("default", "writer", Defaults())
PULL: dict[str, Any] = {"kind": "pull"}
HOOK: dict[str, Any] = {"kind": "webhook", "url": "https://a.example"}
COMMAND: dict[str, Any] = {"kind": "command", "argv": ["true"]}
FUNCTION: dict[str, Any] = {"kind": "function", "name": "pay"}


def workflow(to: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "workflow", "workflowId": "w", "version": 1, "to": to}


def test_by_default_agents_may_use_pull_and_webhooks_only():
    reach = AgentTargetPolicy(Settings().agent_targets)
    for target in (None, PULL, HOOK, workflow(HOOK)):
        reach.check(AGENT, Work(target), HOME)
    for target in (FUNCTION, COMMAND, workflow(FUNCTION)):
        with pytest.raises(PermissionDenied, match="WAKEFUL_AGENT_TARGETS"):
            reach.check(AGENT, Work(target), HOME)
        reach.check(LOCAL, Work(target), HOME)


def test_a_precheck_is_reached_too():
    with pytest.raises(PermissionDenied, match="function"):
        AgentTargetPolicy(("pull",)).check(AGENT, Work(PULL, precheck=FUNCTION), HOME)
    with pytest.raises(PermissionDenied, match="command"):
        AgentTargetPolicy(("pull", "function")).check(AGENT, Work(FUNCTION, precheck=COMMAND), HOME)


def test_jobs_may_use_the_agents_own_target():
    home = JobContext("default", "writer", Defaults(), target=FUNCTION)
    AgentTargetPolicy(()).check(AGENT, Work(FUNCTION), home)
    AgentTargetPolicy(()).check(AGENT, Work(FUNCTION, inherited=True), home)
    with pytest.raises(PermissionDenied):
        AgentTargetPolicy(()).check(AGENT, Work({**FUNCTION, "name": "pay-more"}), home)


def test_a_target_set_by_an_admin_stays():
    reach, theirs = AgentTargetPolicy(()), Work(FUNCTION, payload={"amount": 1})
    reach.check(AGENT, theirs, HOME, theirs)
    for changed in (Work(FUNCTION, payload={"amount": True}), Work(FUNCTION, message="all of it")):
        with pytest.raises(PermissionDenied):
            reach.check(AGENT, changed, HOME, theirs)
    reach.check(AGENT, Work(PULL, payload={"amount": 2}), HOME, theirs)
    with pytest.raises(PermissionDenied, match="leave the payload out"):
        reach.check_payload(AGENT, theirs, HOME)


def test_an_agent_cannot_remove_a_precheck_that_it_could_not_set():
    reach, guarded = AgentTargetPolicy(("pull", "webhook")), Work(HOOK, precheck=FUNCTION)
    for changed in (Work(HOOK), Work(HOOK, precheck=HOOK)):
        with pytest.raises(PermissionDenied, match="precheck: a key of the role 'agent' may not change or"):
            reach.check(AGENT, changed, HOME, guarded)
        reach.check(LOCAL, changed, HOME, guarded)
    reach.check(AGENT, Work(HOOK), HOME, Work(HOOK, precheck=HOOK))


def test_an_operator_may_allow_all_kinds_and_unknown_ones_are_refused():
    AgentTargetPolicy(("*",)).check(AGENT, Work({"kind": "command"}), HOME)
    with pytest.raises(InvalidArgument, match="WAKEFUL_AGENT_TARGETS: 'webhok' is not a kind of target"):
        AgentTargetPolicy(("webhok",))
