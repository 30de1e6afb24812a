"""What the end of a run adds to the history of sessions: the rules alone."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.job.job import HEARTBEAT_JOB, WAKE_JOB, Origin, Work
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.run.conversations import HistoryAppend, estimated_tokens, payload_text
from wakeful.run.outcome import Failed, Outcome, Skipped, Succeeded, conclude, with_history
from wakeful.values.json_value import Json

NOW = 1_800_000_000_000
CHAT = Work({"kind": "chat", "url": "https://a.example/v1", "model": "m"}, message="What is new?")
HOOK = Work({"kind": "webhook", "url": "https://a.example"})


@dataclass(frozen=True)
class Run:
    id: str = "r1"
    workspace: str = "acme"
    agent: str = "ops"
    session: str | None = None
    scheduled_ms: int = NOW


def appended(
    outcome: Outcome,
    *,
    session: str | None = None,
    job: str | None = "digest",
    work: Work = HOOK,
    payload: Json = None,
) -> tuple[HistoryAppend, ...]:
    finished = conclude("r1", "j1", 1, DEFAULT_POLICY, outcome, NOW, NOW + 5, work)
    text = None if payload is None else json.dumps(payload)
    return with_history(finished, Run(session=session), job, work, text).history


def said(entries: tuple[HistoryAppend, ...]) -> list[tuple[str, str, str]]:
    return [(each.session, each.role, each.content) for each in entries]


def test_a_turn_adds_what_was_said_and_what_was_answered():
    payload: Json = {"session": "main", "message": "hello\nare you there?", "messages": ["m1", "m2"]}
    question, answer = appended(Succeeded("yes"), session="main", job=None, payload=payload)
    assert question == HistoryAppend("acme", "ops", "main", "user", "hello\nare you there?", "r1", NOW)
    assert answer == HistoryAppend("acme", "ops", "main", "assistant", "yes", "r1", NOW + 5)


@pytest.mark.parametrize("job", [None, WAKE_JOB])
@pytest.mark.parametrize("work", [HOOK, CHAT, Work(), Work({"kind": "agent"})])
def test_turns_of_every_target_are_kept_alike(job: str | None, work: Work):
    found = appended(Succeeded("yes"), session="main", job=job, work=work, payload={"message": "hello"})
    assert said(found) == [("main", "user", "hello"), ("main", "assistant", "yes")]


@pytest.mark.parametrize("output", [None, "", " \n"])
def test_a_turn_without_an_answer_adds_only_what_was_said(output: str | None):
    found = appended(Succeeded(output), session="main", payload={"message": "hello"})
    assert said(found) == [("main", "user", "hello")]


def test_a_turn_that_answers_no_reply_has_said_so():
    found = appended(Succeeded("NO_REPLY"), session="main", payload={"message": "hello"})
    assert [each.content for each in found] == ["hello", "NO_REPLY"]


@pytest.mark.parametrize(
    "outcome", [Failed("no"), Failed("no", permanent=True), Skipped("nothing to do", "precheck")]
)
@pytest.mark.parametrize("work", [HOOK, CHAT, Work(origin=Origin("main"))])
def test_what_does_not_succeed_adds_nothing(outcome: Outcome, work: Work):
    assert appended(outcome, session="main", work=work, payload={"message": "hello"}) == ()


def test_a_chat_job_adds_to_its_own_session():
    found = appended(Succeeded("nothing"), work=CHAT, payload={"message": "What is new?"})
    assert said(found) == [("job:digest", "user", "What is new?"), ("job:digest", "assistant", "nothing")]
    assert [each.job_name for each in found] == [None, None]


def test_a_chat_job_without_continuity_adds_nothing():
    from dataclasses import replace

    stateless = replace(CHAT, stateless=True)
    forgetful = replace(CHAT, target={**(CHAT.target or {}), "continuity": "none"})
    for work in (stateless, forgetful):
        assert appended(Succeeded("nothing"), work=work, payload={"message": "?"}) == ()


def test_a_wake_of_a_chat_agent_is_no_conversation():
    assert appended(Succeeded("hi"), job=WAKE_JOB, work=CHAT, payload={"message": "?"}) == ()


def test_jobs_of_other_targets_add_nothing():
    assert appended(Succeeded("done"), payload={"message": "hello"}) == ()


def test_a_job_adds_its_answer_to_the_conversation_that_it_comes_from():
    work = Work(HOOK.target, origin=Origin("telegram:123", "telegram", "123"))
    (answer,) = appended(Succeeded("3 new issues"), work=work, payload={"message": "look"})
    assert answer == HistoryAppend(
        "acme", "ops", "telegram:123", "assistant", "3 new issues", "r1", NOW + 5, "digest"
    )


def test_a_chat_job_that_comes_from_a_conversation_adds_to_both():
    work = Work(CHAT.target, origin=Origin("main"))
    found = appended(Succeeded("done"), work=work, payload={"message": "look"})
    assert said(found) == [
        ("job:digest", "user", "look"), ("job:digest", "assistant", "done"), ("main", "assistant", "done")
    ]  # fmt: skip


def test_a_job_that_its_own_turn_changed_adds_its_answer_once():
    work = Work(CHAT.target, origin=Origin("job:digest"))
    assert [each.role for each in appended(Succeeded("done"), work=work, payload={"message": "look"})] == [
        "user", "assistant"
    ]  # fmt: skip


def test_a_job_that_was_made_outside_of_a_conversation_adds_nothing():
    assert appended(Succeeded("done"), work=Work(origin=Origin(None, "telegram"))) == ()


@pytest.mark.parametrize("output", [None, "", "NO_REPLY", "[SILENT]", "`NO_REPLY`."])
@pytest.mark.parametrize("work", [CHAT, Work(origin=Origin("main"))])
def test_a_job_that_has_nothing_to_report_adds_nothing(output: str | None, work: Work):
    assert appended(Succeeded(output), work=work, payload={"message": "look"}) == ()


def test_a_heartbeat_that_is_all_right_adds_nothing():
    assert appended(Succeeded("HEARTBEAT_OK"), job=HEARTBEAT_JOB, work=CHAT, payload={"message": "?"}) == ()
    found = appended(Succeeded("the disk is full"), job=HEARTBEAT_JOB, work=CHAT, payload={"message": "?"})
    assert [each.session for each in found] == ["job:heartbeat", "job:heartbeat"]


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists) | st.dictionaries(st.text(), st.text()))
def test_every_payload_says_something_or_nothing(payload: Json):
    text = payload_text(payload)
    assert isinstance(text, str)
    assert text or not payload or (isinstance(payload, dict) and payload.get("message") == "")


@given(st.text(), st.text())
def test_longer_texts_have_more_tokens(first: str, second: str):
    both = estimated_tokens(first + second)
    assert both >= 1
    assert max(estimated_tokens(first), estimated_tokens(second)) <= both + 1
    assert both <= len(first + second) + 1
