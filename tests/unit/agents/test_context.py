"""What an instance remembers: bounded, and only for a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.agents.context import MAX_KEYS, MAX_TYPES, Memory


def written(memory: Memory, type: str = "t", now_ms: int = 1_000, keep_ms: int = 10_000) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(memory.to_text(type, now_ms, keep_ms))
    return value


def test_a_key_is_seen_once_it_was_written():
    memory = Memory(None)
    assert not memory.see("a", 1, 10)
    assert memory.see("a", 2, 10)

    again = Memory(memory.to_text("t", 2, 10))

    assert again.see("a", 3, 10)
    assert not again.see("b", 3, 10)


def test_a_key_is_forgotten_after_its_time():
    memory = Memory('{"seen":{"a":1,"b":5}}')

    assert memory.see("a", 10, 10)
    assert not memory.see("a", 11, 10)
    assert written(Memory('{"seen":{"a":1,"b":5}}'), now_ms=11, keep_ms=10)["seen"] == {"b": 5}


def test_the_oldest_keys_and_types_are_forgotten_first():
    memory = Memory(None)
    for number in range(MAX_KEYS + 5):
        memory.see(str(number), 1, 10_000)
    seen = written(memory)["seen"]
    assert (len(seen), "4" in seen, "5" in seen) == (MAX_KEYS, False, True)

    text: str | None = None
    for number in range(MAX_TYPES + 5):
        text = Memory(text).to_text(f"t{number}", number, 10)
    runs = json.loads(text or "")["runs"]
    assert (len(runs), "t4" in runs, "t5" in runs) == (MAX_TYPES, False, True)


def test_the_last_run_is_that_of_the_type():
    memory = Memory(Memory(None).to_text("a", 7, 10))

    assert (memory.last_run_ms("a"), memory.last_run_ms("b")) == (7, None)


@given(st.text(max_size=200))
def test_any_text_is_a_key_and_long_ones_take_little_space(key: str):
    memory = Memory(None)

    assert not memory.see(key, 1, 10)
    assert memory.see(key, 1, 10)
    assert all(len(each) <= 64 for each in written(memory)["seen"])


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"runs":5,"seen":{"a":"b"}}'])
def test_a_memory_that_cannot_be_read_is_empty(text: str):
    memory = Memory(text)

    assert memory.last_run_ms("t") is None
    assert not memory.see("a", 1, 10)
