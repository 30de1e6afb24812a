"""Masked documents that are sent back, and text that only looks masked."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal
from wakeful.service.auth.masking import mask_value, unmask
from wakeful.service.serializers import serialize_agent, serialize_workspace
from wakeful.store.accounts import AgentRow, WorkspaceRow

CELERY: dict[str, Any] = {"kind": "celery", "task": "app.report"}
CHAT: dict[str, Any] = {"kind": "chat", "url": "https://a.example/v1", "model": "m"}


def test_asterisks_in_the_prompt_of_a_model_are_no_mask():
    document = {"target": {**CHAT, "system": "***Never*** answer in English.", "options": {"stop": ["***"]}}}
    assert unmask(document) is document


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "webhook", "url": "https://a.example/hook?key=1"},
        {"kind": "webhook", "url": "https://a.example/hook", "headers": {"x-key": "abc"}},
        {"kind": "queue", "servers": ["nats://me:pw@a.example"]},
        {"kind": "workflow", "to": {"kind": "webhook", "url": "https://me:pw@a.example"}},
        {**CHAT, "options": {"api_key": "abc"}},
        {**CELERY, "kwargs": {"api_keys": ["abc", "pw"]}},
        {**CELERY, "kwargs": {"credentials": {"user": "pw", "pins": [["abc"]]}}},
        {**CELERY, "kwargs": {"headers": [["authorization", "abc"]], "env": ["KEY=abc"]}},
        {**CELERY, "kwargs": {"url": {"password": "abc"}, "servers": [{"token": "pw"}]}},
        {**CELERY, "args": [{"headers": {"cookie": {"session": "abc"}}}]},
    ],
)
def test_a_mask_in_place_of_a_credential_is_refused(target: dict[str, Any]):
    hidden = mask_value(target)
    assert not re.search("abc|pw|key=1", json.dumps(hidden))
    with pytest.raises(InvalidArgument, match="stands for a masked value"):
        unmask({"target": hidden})


def test_numbers_beside_credentials_are_shown():
    target = {**CHAT, "options": {"max_tokens": 5, "stop_token_ids": [1, 2]}}
    assert mask_value(target) == target
    assert unmask({"target": target})["target"] is target


def test_stored_text_that_cannot_be_read_is_shown_to_admins_only():
    text = '{"url":"https://me:pw@a.example/abc","headers":{"x-key":"abc"'
    agent = AgentRow("default", "news", text, None, True, None, None, "", 1, 0, 0, alerts=text)
    workspace = WorkspaceRow("default", None, "", 0, 0, alerts=text)
    for role, seen in (("admin", True), ("member", False), ("viewer", False)):
        principal = Principal("key:1", role, None)  # type: ignore[arg-type]
        shown = [serialize_agent(principal, agent), serialize_workspace(principal, workspace)]
        assert bool(re.search("abc|pw", json.dumps(shown))) is seen
