"""A conversation as bubbles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import NOW, jobless
from wakeful.dashboard.pages.agents import bubbles, message_text
from wakeful.store.row_mapping import view_of_new_run
from wakeful.store.rows import RunView
from wakeful.store.sessions import HistoryRow


def _entry(sequence: int, role: str = "user", **fields: Any) -> HistoryRow:
    made = HistoryRow(sequence, role, f"text {sequence}", 2, "run-1", None, NOW + sequence)
    return made._replace(**fields)


def _turn(state: str, **fields: Any) -> RunView:
    run = view_of_new_run(jobless(), NOW)
    return run._replace(
        state=state, payload='{"message":"hi"}', created_ms=NOW + 10, finished_ms=None, **fields
    )


def test_entries_are_shown_oldest_first_with_the_job_of_an_answer() -> None:
    shown = bubbles([_entry(2, "assistant", job_name="digest"), _entry(1)], [], {}, first_page=True)
    assert [(bubble.role, bubble.text, bubble.job) for bubble in shown] == [
        ("user", "text 1", None), ("assistant", "text 2", "digest"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("turn", "note"),
    [
        (_turn("running"), "Answering…"),
        (_turn("pending"), "Waits to be started…"),
        (_turn("retrying", error="HTTP 503"), "Tried without success, and is tried again: HTTP 503"),
        (_turn("failed", error="refused"), "refused"),
        (_turn("failed"), "The turn failed."),
        (_turn("cancelled", reason="stopped"), "Stopped."),
        (_turn("cancelled", reason="interrupted"), "Stopped (interrupted)."),
    ],
)
def test_a_turn_without_an_answer_has_a_note(turn: RunView, note: str) -> None:
    shown = bubbles([_entry(1), _entry(30)], [turn], {}, first_page=True)
    assert [bubble.role for bubble in shown] == ["user", "user", "note", "user"], "by time"
    assert (shown[1].text, shown[2].text, shown[2].state) == ("hi", note, turn.state)


def test_each_message_of_a_turn_is_a_bubble() -> None:
    entry = _entry(1, content="a\nb\nc")
    turn = _turn("failed")._replace(payload='{"message":"d\\ne"}')
    said = {"run-1": ["a", "b\nc"], turn.id: ["d", "e"]}
    shown = bubbles([_entry(2, "assistant"), entry], [turn], said, first_page=True)
    assert [bubble.text for bubble in shown[:-1]] == ["a", "b\nc", "text 2", "d", "e"]
    assert len({bubble.key for bubble in shown}) == len(shown)
    shortened = bubbles([entry._replace(content="a\nb")], [], said, first_page=True)
    assert [bubble.text for bubble in shortened] == ["a\nb"], "it is not what was said"


def test_older_pages_have_no_open_turns() -> None:
    assert len(bubbles([_entry(1)], [_turn("running")], {}, first_page=False)) == 1


def test_keys_are_different() -> None:
    entries = [_entry(3, "assistant"), _entry(2, "assistant"), _entry(1)]
    keys = [bubble.key for bubble in bubbles(entries, [_turn("failed")], {}, first_page=True)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("payload", ["{", "5", "null", '"text"', '{"message":5}', '{"data":{"message":"x"}}'])
def test_what_was_said_is_always_a_text(payload: str) -> None:
    assert isinstance(message_text(payload), str)
