"""Conversations within the context window, and what is said to the model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakeful.launch.chat.request import (
    MAX_EXCERPT,
    ChatDialect,
    ChatTurns,
    PreviousAnswer,
    Said,
    ToolDefinition,
    alternating,
    previous_turn,
    request_body,
    system_text,
    user_text,
)
from wakeful.launch.chat.target import read_chat_target
from wakeful.run.conversations import estimated_tokens
from wakeful.values.json_value import Json

TARGET = read_chat_target({"url": "https://a.example/v1", "model": "m", "options": {"top_p": 0.9}})
SAID = st.lists(
    st.builds(
        Said, st.sampled_from(["user", "assistant"]), st.text(max_size=40), st.sampled_from([None, "digest"])
    ),
    max_size=30,
)


@given(SAID)
def test_roles_alternate_and_nothing_is_lost(said: list[Said]):
    spoken = alternating(said)
    assert [each.role for each in spoken] == ["user", "assistant"] * (len(spoken) // 2)
    text = "\n\n".join(each.content for each in spoken)
    assert all(each.content in text for each in said)


@given(SAID, st.integers(512, 2_000))
def test_what_is_kept_is_the_newest_and_fits(said: list[Said], window: int):
    conversation = ChatTurns("system", list(said), "now")
    conversation.fit(window, TARGET, ())
    kept = conversation.earlier
    assert conversation.dropped == len(said) - len(kept)
    assert kept == said[len(said) - len(kept) :]
    assert sum(estimated_tokens(each.content) for each in kept) <= window
    assert not kept or kept[0].role == "user" or kept[0].job


@given(SAID)
def test_halving_ends(said: list[Said]):
    conversation = ChatTurns("system", list(said), "now")
    while conversation.halve():
        assert len(conversation.earlier) < len(said)
        said = conversation.earlier
    assert conversation.messages() == [
        {"role": "system", "content": "system"},
        {"role": "user", "content": "now"},
    ]


def test_the_last_request_describes_the_tools_and_forbids_them():
    tool = ToolDefinition("cron", "Schedule work.", {"type": "object"})
    body = request_body(TARGET, [], [tool], ChatDialect(), last=True)
    assert (body["top_p"], body["tool_choice"], body["stream"]) == (0.9, "none", False)
    assert "tools" not in request_body(TARGET, [], [tool], ChatDialect(tools=False))


def test_a_long_answer_is_cut_and_marked():
    said = previous_turn(PreviousAnswer("a" * 3 * MAX_EXCERPT, 0), "Europe/Berlin")
    assert said[0].content == (
        "[Your previous answer for this job, planned for Thursday, 1 January 1970, 01:00 (Europe/Berlin), "
        "follows.]"
    )
    assert said[1].content == "a" * MAX_EXCERPT + "\n[… cut]"


def test_what_a_run_says():
    assert user_text("hello", "digest", turn=False) == "hello"
    assert (
        user_text(None, None, turn=False) == user_text(None, "woken-by-hand", turn=False) == "You are woken."
    )
    payload: Json = {"session": "main", "message": "hello", "messages": ["1"]}
    assert user_text(payload, "woken-by-hand", turn=True) == "hello"
    assert user_text({"message": "hello", "context": {"new": 3}}, "digest", turn=False) == (
        'hello\n\n{"context": {"new": 3}}'
    )


def test_the_system_text_of_a_wake_has_the_time():
    text = system_text(None, job=None, turn=False, tz="UTC", scheduled_ms=0, now_ms=1_741_392_000_000)
    assert text == "It is Saturday, 8 March 2025, 00:00 (UTC)."
