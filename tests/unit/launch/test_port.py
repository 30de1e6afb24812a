from __future__ import annotations

import pickle
import sys
from copy import deepcopy
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.launch.launches import launch
from wakeful.launch.port import MAX_OUTPUT, Launch, truncate
from wakeful.values.instants import utc_datetime

TARGET = {"kind": "function", "name": "digest"}


def test_a_payload_is_parsed_when_it_is_asked_for_and_only_once():
    run = launch(TARGET, '{"to":["me"]}')
    assert run.payload == {"to": ["me"]}
    assert run.payload is run.payload


def test_a_run_that_goes_to_another_process_has_its_payload():
    run = launch(TARGET, '{"to":["me"]}')
    for copied in (pickle.loads(pickle.dumps(run)), deepcopy(run)):
        assert copied.payload == {"to": ["me"]}


def test_an_unused_payload_is_not_parsed():
    assert launch(TARGET, "this is not JSON").payload_text == "this is not JSON"


def test_no_payload_is_none_and_so_is_a_null():
    assert launch(TARGET).payload is None
    assert launch(TARGET, "null").payload is None


def test_the_message_is_the_payload_s_if_it_is_text():
    assert launch(TARGET, '{"message":"wake up"}').message == "wake up"
    for payload in (None, "null", "[]", '"message"', "{}", '{"message":7}'):
        assert launch(TARGET, payload).message is None


def test_the_tick_is_exact_to_the_millisecond():
    run = launch(TARGET, scheduled_ms=1_741_392_000_007)
    assert run.scheduled_at == datetime(2025, 3, 8, 0, 0, 0, 7000, UTC)


def test_a_run_passed_to_another_launcher_is_the_same_attempt():
    run = launch(TARGET, '{"a":1}', attempt=3)
    other = run.with_target({"kind": "webhook"}, '{"b":2}')
    assert (other.id, other.attempt, other.idempotency_key) == (run.id, 3, run.idempotency_key)
    assert (other.target, other.payload) == ({"kind": "webhook"}, {"b": 2})


def test_a_launch_is_small():
    assert not hasattr(launch(TARGET), "__dict__")
    assert sys.getsizeof(launch(TARGET)) < 260
    assert repr(launch(TARGET)) == "<Launch r1 of digest, attempt 1>"
    assert isinstance(launch(TARGET), Launch)


@given(st.integers(min_value=-(10**13), max_value=10**14))
def test_an_instant_survives_a_round_trip(ms: int):
    assert utc_datetime(ms) - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(milliseconds=ms)


@given(st.text(st.characters(exclude_categories=()), max_size=40), st.integers(min_value=0, max_value=50))
def test_stored_text_is_storable_and_within_the_limit(text: str, limit: int):
    found = truncate(text, limit)
    assert len(found.encode()) <= limit  # strict: half of a pair would raise
    assert "\x00" not in found


@given(st.text(max_size=100).filter(lambda text: "\x00" not in text))
def test_text_within_the_limit_is_kept_unchanged(text: str):
    assert truncate(text) == text


def test_no_character_is_cut_in_two():
    assert truncate("€" * MAX_OUTPUT) == "€" * (MAX_OUTPUT // 3)
