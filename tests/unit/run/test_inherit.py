"""A job without a target has its agent's: what is kept says so, and what is shown does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wakeful.document import (
    Defaults,
    patch_definition,
    read_definition,
    work_from_text,
    work_to_text,
    write_definition,
)
from wakeful.job.job import Definition, Work, inherit
from wakeful.job.policy import Policy
from wakeful.run.factory import claim_timeout_ms
from wakeful.values.json_value import Json

HOOK: dict[str, Json] = {"kind": "webhook", "url": "https://a.example/hook"}
OTHER: dict[str, Json] = {"kind": "function", "name": "digest"}
PULL: dict[str, Json] = {"kind": "pull"}
FLOW: dict[str, Json] = {"kind": "workflow", "workflowId": "invoices", "version": 3}


def read(**fields: object) -> Definition:
    return read_definition({"name": "job", "schedule": "@daily", **fields}, now_ms=0, defaults=Defaults())


def heir(definition: Definition, target: dict[str, Json] | None) -> Definition:
    return replace(definition, work=inherit(definition.work, target))


def test_the_target_is_the_jobs_else_the_agents_else_pull():
    assert inherit(Work(OTHER), HOOK) == Work(OTHER)
    assert inherit(Work(), HOOK) == Work(HOOK, inherited=True)
    assert inherit(Work(), None) == Work()


def test_an_inherited_target_follows_the_agent():
    heir_of_hook = inherit(Work(message="hello"), HOOK)
    assert inherit(heir_of_hook, OTHER) == Work(OTHER, message="hello", inherited=True)
    assert inherit(heir_of_hook, None) == Work(message="hello")
    assert inherit(heir_of_hook, HOOK) == heir_of_hook


def test_the_origin_of_a_target_is_stored_and_not_shown():
    job = heir(read(message="hello"), HOOK)
    text = work_to_text(job.work)
    assert text == (
        '{"inherited":true,"message":"hello","target":{"kind":"webhook","url":"https://a.example/hook"}}'
    )
    assert work_from_text(text) == replace(job.work, payload=None)
    document = write_definition(job)
    assert document["target"] is None
    assert "inherited" not in document
    assert heir(read_definition(document, now_ms=0, defaults=Defaults()), HOOK) == job


def test_a_document_cannot_change_an_inherited_workflow():
    document = write_definition(heir(read(), FLOW))
    assert "workflowId" not in document


def test_a_document_cannot_mark_its_target_as_inherited():
    with pytest.raises(Exception, match="no such field"):
        read(inherited=True)


def test_the_same_document_again_changes_nothing():
    assert work_to_text(heir(read(), HOOK).work) == work_to_text(heir(heir(read(), HOOK), HOOK).work)


def test_a_patch_keeps_an_inherited_target_inherited():
    old = heir(read(), HOOK)
    patched = patch_definition(old, {"message": "hello"}, now_ms=0, defaults=Defaults())
    assert patched.work == Work(message="hello")
    own = patch_definition(old, {"target": OTHER}, now_ms=0, defaults=Defaults())
    assert heir(own, HOOK).work == Work(OTHER)
    flow = patch_definition(old, {"workflowId": "a", "version": 1}, now_ms=0, defaults=Defaults())
    assert flow.work.target == {"kind": "workflow", "workflowId": "a", "version": 1}


@pytest.mark.parametrize(
    ("target", "timeout_ms"),
    [
        (None, 3_600_000),
        (PULL, 3_600_000),
        (FLOW, 3_600_000),
        ({**FLOW, "to": PULL}, 3_600_000),
        ({**FLOW, "to": HOOK}, None),
        (HOOK, None),
        (OTHER, None),
    ],
)
def test_runs_without_a_target_to_launch_wait_for_an_executor(target, timeout_ms: int | None):
    assert claim_timeout_ms(Work(target), Policy()) == timeout_ms
    assert claim_timeout_ms(inherit(Work(), target), Policy()) == timeout_ms


def test_a_run_waits_to_be_claimed_as_long_as_its_target_says_else_its_job():
    policy = Policy(claim_timeout_ms=5)
    assert claim_timeout_ms(Work({"kind": "pull", "claimTimeoutMs": 7}), policy) == 7
    assert claim_timeout_ms(Work(PULL), policy) == 5
    assert claim_timeout_ms(Work(), Policy()) == 3_600_000
