"""Messages of MCP Events: what is written is read again, and garbage is refused with a sentence."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.errors import InvalidArgument
from wakeful.signal.mcp_events import (
    MAX_MESSAGE,
    McpEvent,
    Verification,
    event_id,
    read_event,
    read_message,
    subscription_id,
    verification_json,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts, lambda inner: st.lists(inner), max_leaves=5
)
events = st.builds(
    McpEvent, texts, texts, st.just("2026-10-01T09:00:00Z"), st.dictionaries(texts, values), st.none() | texts
)
VALID: dict[str, Any] = {"eventId": "1", "name": "n", "timestamp": "2026-10-01T09:00:00+02:00", "data": {}}


@given(events)
def test_an_event_is_read_as_it_was_written(event: McpEvent):
    assert read_message(json.dumps(event.to_json()).encode()) == event


@given(texts)
def test_a_verification_is_read_as_it_was_written(challenge: str):
    assert read_message(json.dumps(verification_json(challenge)).encode()) == Verification(challenge)


@given(
    st.binary(max_size=50)
    | st.recursive(values, st.lists, max_leaves=3).map(lambda v: json.dumps(v).encode())
)
def test_garbage_is_refused(body: bytes):
    with pytest.raises(InvalidArgument):
        read_message(body)


@pytest.mark.parametrize(
    "change",
    [
        {"eventId": ""},
        {"eventId": 7},
        {"eventId": "x" * 513},
        {"name": None},
        {"timestamp": "2026-10-01T09:00:00"},
        {"timestamp": "today"},
        {"data": []},
        {"data": {"cost": math.nan}},
        {"data": {"text": "\ud800"}},
        {"data": {"text": "x" * MAX_MESSAGE}},
        {"eventId": "1\x00"},
        {"cursor": 1},
        {"cursor": "\ud800"},
    ],
)
def test_an_event_without_a_required_field_is_refused(change: dict[str, Any]):
    assert read_event(VALID).id == "1"
    with pytest.raises(InvalidArgument, match=next(iter(change))):
        read_event({**VALID, **change})


def test_a_message_of_more_than_256_kib_is_refused():
    body = json.dumps({**VALID, "data": {"a": ""}}).encode()
    full = body.replace(b'""', b'"' + b"x" * (MAX_MESSAGE - len(body)) + b'"')
    assert read_message(full)
    with pytest.raises(InvalidArgument, match="262,144"):
        read_message(full.replace(b"xx", b"xxx", 1))


@given(st.lists(texts, min_size=4, max_size=4), st.lists(texts, min_size=4, max_size=4))
def test_ids_differ_where_what_they_identify_differs(one: list[str], other: list[str]):
    def both(a: str, b: str, c: str, d: str) -> tuple[str, str]:
        return subscription_id(a, b, c, {"x": d}), event_id(a, b, c, d)

    assert (both(*one) == both(*other)) is (one == other)
