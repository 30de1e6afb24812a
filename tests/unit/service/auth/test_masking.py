"""Masked documents that are sent back, and text that only looks masked."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful.errors import InvalidArgument
from wakeful.service.auth.masking import masked, unmasked

CHAT: dict[str, Any] = {"kind": "chat", "url": "https://a.example/v1", "model": "m"}


def test_asterisks_in_the_prompt_of_a_model_are_no_mask():
    document = {"target": {**CHAT, "system": "***Never*** answer in English.", "options": {"stop": ["***"]}}}
    assert unmasked(document) is document


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "webhook", "url": "https://a.example/hook?key=1"},
        {"kind": "webhook", "url": "https://a.example/hook", "headers": {"x-key": "abc"}},
        {"kind": "queue", "servers": ["nats://me:pw@a.example"]},
        {"kind": "workflow", "to": {"kind": "webhook", "url": "https://me:pw@a.example"}},
        {**CHAT, "options": {"api_key": "abc"}},
    ],
)
def test_a_mask_in_place_of_a_credential_is_refused(target: dict[str, Any]):
    hidden = masked(target)
    assert hidden != target
    with pytest.raises(InvalidArgument, match="stands for a masked value"):
        unmasked({"target": hidden})
