"""The history of sessions: written with the outcome of a run, capped, read, deleted and pruned."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.store.test_sessions import KEY, begin_due, say
from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asleep,
    ended,
    given_held,
    job,
    jobless,
    look,
)
from tests.support.pull_runs import claim_pairs
from wakeful.agents.sessions import delete
from wakeful.run.conversations import MAX_ENTRIES, MAX_TOKENS, HistoryAppend, HistoryRole
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.accounts import AgentRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, TakenRun
from wakeful.store.sessions import SessionKey
from wakeful.store.sql import history
from wakeful.values.ids import new_id


def entry(
    content: str,
    role: HistoryRole = "user",
    key: SessionKey = KEY,
    at_ms: int = NOW,
    run_id: str | None = None,
) -> HistoryAppend:
    return HistoryAppend(*key, role, content, run_id or new_id(NOW), at_ms)


async def started(store: Store, count: int = 1, worker: str = "w1") -> list[TakenRun]:
    """Return new runs that the worker holds."""
    await store.add_runs([jobless(lane="main") for _ in range(count)])
    return await store.take(NOW, worker, {"main": count})


async def succeed(store: Store, *entries: HistoryAppend) -> None:
    (run,) = await started(store)
    assert await store.finish("w1", [answered(run, *entries)], alone) == {run.id}


def answered(run: TakenRun | NewRun, *entries: HistoryAppend) -> Finished:
    return ended(run, output="fine", history=entries)


async def contents(store: Store, key: SessionKey = KEY) -> list[str]:
    """Return the history, oldest first."""
    return [each.content for each in reversed(await store.history(key, limit=1_000))]


async def test_entries_are_numbered_and_returned_newest_first(store: Store):
    (run,) = await started(store)
    history = (
        entry("how are you?", run_id=run.id),
        entry("grüße, \U0001f98a", "assistant", at_ms=NOW + SECOND, run_id=run.id),
    )
    await store.finish("w1", [answered(run, *history)], alone)
    await succeed(store, entry("and now?"))
    newest, answer, question = await store.history(KEY)
    assert (newest.sequence, newest.content) == (3, "and now?")
    assert (question.sequence, question.role, question.at_ms) == (1, "user", NOW)
    assert answer._replace(tokens=0) == (2, "assistant", "grüße, \U0001f98a", 0, run.id, None, NOW + SECOND)
    assert answer.tokens > 0
    assert await store.history(KEY, before=3, limit=1) == [answer]
    assert await store.history(KEY, before=1) == []


async def test_an_answer_of_a_job_has_its_name(store: Store):
    await succeed(store, entry("3 new issues", "assistant")._replace(job_name="triage"))
    assert [each.job_name for each in await store.history(KEY)] == ["triage"]


async def test_one_run_appends_to_several_sessions(store: Store):
    other = KEY._replace(name="job:digest")
    await succeed(store, entry("prompt", key=other), entry("answer", "assistant", other), entry("answer"))
    assert (await contents(store), await contents(store, other)) == (["answer"], ["prompt", "answer"])


async def test_an_outcome_that_lost_its_fence_appends_nothing_and_adds_no_session(store: Store):
    first, second = await started(store, 2)
    assert await store.finish("w2", [answered(first, entry("late"))], alone) == set()
    late = answered(first, entry("late"))._replace(attempt=7)
    kept = answered(second, entry("on time", key=KEY._replace(name="other")))
    assert await store.finish("w1", [late, kept], alone) == {second.id}
    assert [view.name for view in await store.sessions("default", "default", None, 10)] == ["other"]
    assert await contents(store) == []


async def test_a_run_that_is_reported_twice_appends_once(store: Store):
    (run,) = await started(store)
    outcome = answered(run, entry("once"))
    assert await store.finish("w1", [outcome, outcome], alone) == {run.id}
    assert await store.finish("w1", [outcome], alone) == set()
    assert await contents(store) == ["once"]


async def test_a_completed_run_appends(store: Store):
    await say(store, "hello")
    await begin_due(store, NOW + SECOND)
    ((run, _),) = await claim_pairs(store, NOW + SECOND, "executor", "default", None, None, 1)
    history = entry("hello", run_id=run.id), entry("hi", "assistant", run_id=run.id)
    assert await store.complete_run(answered(run, *history), alone)
    assert not await store.complete_run(answered(run, *history), alone)
    assert await contents(store) == ["hello", "hi"]


async def test_turns_that_end_at_once_append_both_with_other_numbers(database: Database):
    stores = [await database.connect() for _ in range(4)]
    runs = await started(stores[0], 20)
    await asyncio.gather(
        *(
            stores[n % 4].finish(
                "w1", [answered(run, entry(f"{n}?"), entry(f"{n}!", "assistant"))], alone
            )
            for n, run in enumerate(runs)
        )
    )  # fmt: skip
    entries = (await stores[0].history(KEY, limit=100))[::-1]
    assert [each.sequence for each in entries] == list(range(1, 41))
    said = [each.content for each in entries]
    assert all(said[n][:-1] == said[n + 1][:-1] for n in range(0, 40, 2)), "an answer follows its question"


async def test_a_turn_that_is_stopped_while_it_ends_appends_only_if_it_succeeds(database: Database):
    """Both lock the session and the run, in the same order."""
    stores = [await database.connect() for _ in range(4)]
    for n in range(10):
        keys = [KEY._replace(name=f"s{n}-{number}") for number in range(2)]
        for key in keys:
            await say(stores[0], "hello", key)
        await begin_due(stores[0], NOW + DAY)
        runs = [run for run, _ in await claim_pairs(stores[0], NOW + DAY, "w", "default", None, None, 2)]
        sessions = {str(json.loads(run.payload or "")["session"]): run for run in runs}
        turns = [sessions[key.name] for key in keys]
        ends = [answered(run, *(entry("hi", key=key) for key in keys)) for run in turns]
        await asyncio.gather(
            *(stores[number].finish("w", [ends[number]], alone) for number in range(2)),
            *(say(stores[number + 2], "/stopall", keys[number], NOW + DAY) for number in range(2)),
        )
        states = [(await look(stores[0], run.id)).state for run in turns]
        assert set(states) <= {"succeeded", "cancelled"}
        for key in keys:
            assert len(await contents(stores[0], key)) == states.count("succeeded")


async def test_the_oldest_entries_beyond_the_longest_history_are_dropped(store: Store):
    await succeed(store, *(entry(f"{n}") for n in range(MAX_ENTRIES)))
    assert len(await contents(store)) == MAX_ENTRIES
    await succeed(store, entry("question"), entry("answer", "assistant"))
    said = await contents(store)
    assert (said[0], said[-1], len(said)) == ("2", "answer", MAX_ENTRIES)
    assert (await store.history(KEY))[0].sequence == MAX_ENTRIES + 2


async def test_the_oldest_entries_beyond_the_most_tokens_are_dropped(store: Store):
    half = "ü" * (MAX_TOKENS // 2)
    await succeed(store, entry("first"), entry(half))
    assert len(await contents(store)) == 2
    await succeed(store, entry(half))
    assert await contents(store) == [half, half]
    await succeed(store, entry("ü" * (MAX_TOKENS + 1)))
    assert len(await contents(store)) == 1, "the newest entry stays, however long it is"


async def test_the_histories_of_other_sessions_are_not_dropped(store: Store):
    other = KEY._replace(name="other")
    await succeed(store, entry("kept", key=other))
    await succeed(store, *(entry(f"{n}") for n in range(MAX_ENTRIES + 5)))
    assert await contents(store, other) == ["kept"]


async def test_text_that_a_database_cannot_store_is_replaced(store: Store):
    await succeed(store, entry("a\x00b"), entry("\ud800", "assistant"))
    assert await contents(store) == ["a�b", "�"]


async def test_a_deleted_session_loses_its_messages_turns_and_history(store: Store):
    await succeed(store, entry("old"))
    await say(store, "runs")
    await begin_due(store, NOW + SECOND)
    ((run, _),) = await claim_pairs(store, NOW + SECOND, "executor", "default", None, None, 1)
    await say(store, "waits", at_ms=NOW + SECOND)
    audit = AuditEntry("default", "key:1", "session.delete", "default", "{}", None)
    deleted = await store.delete_session(KEY, NOW + SECOND, delete, [audit])
    assert deleted is not None
    assert (list(deleted.stopped), len(deleted.dropped)) == ([(run.id, "session_deleted")], 1)
    assert (await store.session(KEY), await contents(store)) == (None, [])
    assert (await look(store, run.id)).state == "cancelled"
    assert [row.action for row in await store.audit("default")] == ["session.delete"]

    assert not await store.complete_run(answered(run, entry("too late")), alone)
    assert (await store.session(KEY), await contents(store)) == (None, [])
    assert await store.delete_session(KEY, NOW, delete, [audit]) is None
    assert len(await store.audit("default")) == 1, "nothing was deleted"


async def test_a_session_that_is_used_again_after_its_deletion_starts_anew(store: Store):
    await succeed(store, entry("old"))
    await store.delete_session(KEY, NOW, delete)
    await say(store, "hello again")
    await succeed(store, entry("new"))
    (only,) = await store.history(KEY)
    assert (only.content, only.sequence) == ("new", 1)


async def test_a_session_has_its_channel_and_recipient(store: Store):
    await say(store, "one")
    view = await store.session(KEY)
    assert view is not None
    assert (view.channel, view.to, view.messages) == (None, None, 1)
    await store.update_session(KEY, NOW, lambda state: delete(state)._replace(address=("telegram", "123")))
    await say(store, "two")
    view = await store.session(KEY)
    assert view is not None
    assert (view.name, view.channel, view.to) == ("main", "telegram", "123"), "a message without one keeps it"
    assert await store.sessions("default", "default", None, 10) == [view]
    assert await store.session(KEY._replace(name="other")) is None


async def test_entries_and_sessions_are_pruned_with_age(store: Store, clock: FalseClock):
    await succeed(store, entry("old", at_ms=NOW - DAY), entry("new"))
    await store.prune_sessions(NOW, 1_000)
    assert await contents(store) == ["new"]
    clock.ms = NOW + 5 * DAY
    await succeed(store, entry("newer", at_ms=NOW + 5 * DAY))
    await store.prune_sessions(NOW + 2 * DAY, 1_000)
    assert await contents(store) == ["newer"]
    assert await store.session(KEY) is not None, "an answer keeps it, as a message does"
    await store.prune_sessions(NOW + 6 * DAY, 1_000)
    assert (await store.session(KEY), await contents(store)) == (None, [])


async def test_a_session_is_pruned_with_its_history_or_not_at_all(
    store: Store, clock: FalseClock, monkeypatch: pytest.MonkeyPatch
):
    await succeed(store, entry("old"))
    clock.ms = NOW + 2 * DAY
    with monkeypatch.context() as patched:
        patched.setattr(history, "PRUNE_HISTORY", "DELETE FROM no_such_table WHERE at < $1 AND 1 < $2")
        with pytest.raises(Exception, match="no_such_table"):
            await store.prune_sessions(NOW + DAY, 1_000)
    await succeed(store, entry("new", at_ms=NOW + 2 * DAY))
    assert await contents(store) == ["old", "new"]


async def test_a_session_with_an_entry_of_the_future_is_not_pruned(store: Store, clock: FalseClock):
    """Its next entry would have the number of one that is there, and no outcome of it could be written."""
    await succeed(store, entry("ahead", at_ms=NOW + 9 * DAY))
    await succeed(store, entry("after the clock was set back"))
    await store.prune_sessions(NOW + DAY, 1_000)
    clock.ms = NOW + 2 * DAY
    await succeed(store, entry("again", at_ms=NOW + 2 * DAY))
    assert await contents(store) == ["ahead", "again"]


async def test_the_history_of_a_deleted_agent_is_deleted_and_stays_so(store: Store):
    await store.put_agent("default", "ops", lambda _: AgentRow(
        "default", "ops", None, None, True, None, None, "", 1, NOW, NOW
    ))  # fmt: skip
    key = SessionKey("default", "ops", "main")
    await succeed(store, entry("hello", key=key), entry("elsewhere"))
    (late,) = await started(store)
    assert await store.delete_agent("default", "ops")
    assert await store.finish("w1", [answered(late, entry("late", key=key))], alone) == {late.id}
    assert (await contents(store, key), await contents(store)) == ([], ["elsewhere"])
    assert await store.sessions("default", "ops", None, 10) == []


async def test_a_plain_success_of_a_batch_with_history_is_written_too(store: Store):
    _, run = await given_held(store)
    (turn,) = await started(store)
    assert await store.finish("w1", [ended(run), answered(turn, entry("hi"))], alone) == {run.id, turn.id}
    assert (await look(store, run.id)).state == "succeeded"
    assert await contents(store) == ["hi"]


@pytest.mark.parametrize("how", ["create", "rename"])
async def test_a_job_does_not_continue_the_conversation_of_a_deleted_job(store: Store, how: str):
    key, other = KEY._replace(name="job:digest"), KEY._replace(name="job:other")
    digest, kept = job("digest"), asleep("kept")
    await store.create_jobs([digest, kept])
    await succeed(store, entry("hello", key=key), entry("hello", key=other))
    await store.delete_job(digest.id, NOW, "deleted")
    assert await contents(store, key) == ["hello"], "it can be read"
    if how == "create":
        await store.create_jobs([job("digest")])
    else:
        await store.change_job(kept.id, lambda row: JobChange(row._replace(name="digest")))
    assert (await store.session(key), await contents(store, key)) == (None, [])
    assert await contents(store, other) == ["hello"]


async def test_a_long_history_is_pruned_in_batches_before_its_session(store: Store, clock: FalseClock):
    """In one transaction, a million entries would hold up the heartbeats of a process with SQLite."""
    await succeed(store, *(entry(str(number), at_ms=NOW - DAY) for number in range(5)))
    clock.ms = NOW + 2 * DAY
    left = [5]
    while await store.prune_sessions(NOW + DAY, 2) == 2:
        assert await store.session(KEY) is not None
        left.append(len(await contents(store)))
    assert left == [5, 3, 1]
    assert (await store.session(KEY), await contents(store)) == (None, [])
