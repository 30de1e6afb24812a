"""Sessions: waiting messages, turns and notifications."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, NOW, FalseClock, alone, asleep, ended, jobless, look
from tests.support.notifications import NotificationRecorder
from tests.support.pull_runs import claim_pairs
from wakeful.agents.sessions import receive, start_turns
from wakeful.errors import NotFound
from wakeful.store.accounts import AgentRow
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter, RunView
from wakeful.store.sessions import WAKE_JOB, SessionKey, SessionMessage, SessionState, SessionUpdate
from wakeful.values.ids import new_id

KEY = SessionKey("default", "default", "main")
HOOK = '{"target":{"kind":"webhook","url":"https://a.example"},"lane":"main","inherited":true}'


def message(body: str = "hello", at_ms: int = NOW) -> SessionMessage:
    return SessionMessage(new_id(at_ms), body, "key:1", "user", at_ms)


async def say(store: Store, body: str = "hello", key: SessionKey = KEY, at_ms: int = NOW) -> SessionUpdate:
    said = message(body, at_ms)
    return await store.update_session(key, at_ms, lambda talk: receive(talk, said, at_ms))


async def begin_due(store: Store, now_ms: int, limit: int = 100) -> int:
    return await store.take_turns(now_ms, limit, lambda talk: start_turns(talk, now_ms))


async def turns(store: Store, agent: str = "default") -> list[RunView]:
    """Return the runs of the agent, oldest first."""
    return list(reversed(await store.runs(RunFilter("default", agent))))


def told(run: RunView) -> str:
    return str(json.loads(run.payload or "")["message"])


async def seen(store: Store, key: SessionKey = KEY) -> SessionState:
    """Return the state of a session without changing it."""
    found: list[SessionState] = []

    def judge(talk: SessionState) -> SessionUpdate:
        found.append(talk)
        due = min((each.at_ms for each in talk.messages), default=None)
        return SessionUpdate(due_ms=due, context=talk.context)

    await store.update_session(key, NOW, judge)
    return found[0]


async def test_messages_wait_until_they_are_due_and_are_the_payload_of_their_turn(store: Store):
    await say(store, "one")
    await say(store, "two", at_ms=NOW + 500)
    assert await store.next_turn(NOW + 500) == (False, NOW + 1_300)
    assert await begin_due(store, NOW + 1_299) == 0
    assert await begin_due(store, NOW + 1_300) == 1
    assert await store.next_turn(NOW + 1_300) == (False, None)
    (run,) = await turns(store)
    assert (told(run), run.state, run.lane, run.is_pull) == ("one\ntwo", "pending", "main", True)
    assert (await seen(store)).messages == []


async def test_judge_gets_the_full_state_of_a_session(store: Store):
    await store.create_jobs([asleep(WAKE_JOB, work=HOOK, policy="{}")])

    def queued(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(queue='{"debounceMs":0}')

    await store.put_agent("default", "default", queued)
    await say(store, "at work")
    await say(store, "grüße, \U0001f98a")
    talk = await seen(store)
    job = await store.job("default", "default", WAKE_JOB)
    assert job is not None
    assert (talk.key, talk.context, talk.queue) == (KEY, None, '{"debounceMs":0}')
    assert (talk.job_id, talk.work, talk.policy) == (job.id, HOOK, job.policy)
    (waiting,) = talk.messages
    assert (waiting.body, waiting.sent_by, waiting.trigger, waiting.at_ms) == (
        "grüße, \U0001f98a", "key:1", "user", NOW
    )  # fmt: skip
    (run,) = await turns(store)
    assert [(turn.run_id, turn.state, turn.usage) for turn in talk.turns] == [(run.id, "pending", None)]
    assert run.lane == "main"


async def test_a_turn_ends_with_its_run_and_has_its_usage(store: Store):
    await say(store)
    await begin_due(store, NOW + DAY)
    ((run, _),) = await claim_pairs(store, NOW + DAY, "w", "default", None, None, 10)
    usage = '{"contextTokens":70,"contextWindow":100}'
    assert await store.finish("w", [ended(await look(store, run.id), usage=usage)], alone) == {run.id}
    (turn,) = (await seen(store)).turns
    assert (turn.state, turn.usage) == ("succeeded", usage)
    await say(store, "again", at_ms=NOW + DAY)
    talk = await seen(store)
    assert (list(talk.turns), talk.context) == ([], 0.7)


async def test_a_session_with_a_live_turn_is_skipped_until_the_turn_ends(
    store: Store, recorder: NotificationRecorder
):
    await say(store, "one")
    await begin_due(store, NOW + 1_000)
    await say(store, "two", at_ms=NOW + 1_000)
    await say(store, "elsewhere", KEY._replace(name="other"), at_ms=NOW + 1_000)
    later = NOW + 5_000
    assert await store.next_turn(later) == (True, None)
    assert await begin_due(store, later) == 1, "the other one: they do not wait for each other"
    assert [told(run) for run in await turns(store)] == ["one", "elsewhere"]
    ((first, _), _) = await claim_pairs(store, later, "w", "default", None, None, 10)
    recorder.topics.clear()
    await store.finish("w", [ended(await look(store, first.id))], alone)
    await recorder.next_event("sessions")
    assert await begin_due(store, later) == 1
    assert [told(run) for run in await turns(store)] == ["one", "elsewhere", "two"]


async def test_the_end_of_a_run_outside_sessions_is_not_announced_to_sessions(
    store: Store, recorder: NotificationRecorder
):
    await store.add_runs([jobless()])
    (run,) = await store.take(NOW, "w1", {"cron": 5, "main": 5})
    recorder.topics.clear()
    await store.finish("w1", [ended(await look(store, run.id))], alone)
    await store.add_runs([jobless()])
    assert "sessions" not in await recorder.next_event("runs")


async def test_sessions_are_taken_longest_due_first_up_to_the_limit(store: Store):
    for n in range(5):
        await say(store, f"{n}", KEY._replace(name=f"s{4 - n}"), at_ms=NOW + n)
    assert await begin_due(store, NOW + DAY, limit=2) == 2
    assert [told(run) for run in await turns(store)] == ["0", "1"]
    assert await begin_due(store, NOW + DAY, limit=100) == 3


async def test_a_stopped_turn_is_cancelled_and_its_worker_notified(
    store: Store, recorder: NotificationRecorder
):
    await store.create_jobs([asleep(WAKE_JOB, work=HOOK, policy="{}")])
    await say(store, "one")
    await begin_due(store, NOW + 1_000)
    (taken,) = await store.take(NOW + 1_000, "w1", {"main": 5})
    await say(store, "two", at_ms=NOW + 1_000)
    settled = await say(store, "/stopall", at_ms=NOW + 1_100)
    assert (list(settled.stopped), len(settled.dropped)) == ([(taken.id, "stopped")], 1)
    await recorder.next_event(f"stop:{taken.id}")
    run = await look(store, taken.id)
    assert (run.state, run.reason) == ("cancelled", "stopped")
    talk = await seen(store)
    assert (list(talk.messages), list(talk.turns)) == ([], [])
    assert await store.next_turn(NOW + DAY) == (False, None)


async def test_concurrent_take_turns_calls_start_each_turn_once(database: Database):
    stores = [await database.connect() for _ in range(4)]
    for n in range(20):
        await say(stores[0], f"{n}", KEY._replace(name=f"s{n:02}"))
    while any(await asyncio.gather(*(begin_due(store, NOW + 1_000, 7) for store in stores))):
        pass
    assert sorted(told(run) for run in await turns(stores[0])) == sorted(f"{n}" for n in range(20))


async def test_concurrent_messages_are_all_in_one_turn(database: Database):
    stores = [await database.connect() for _ in range(3)]
    await asyncio.gather(*(say(stores[n % 3], f"{n}") for n in range(30)))
    await asyncio.gather(*(begin_due(store, NOW + 1_000) for store in stores))
    (run,) = await turns(stores[0])
    assert sorted(told(run).split("\n"), key=int) == [f"{n}" for n in range(30)]


async def test_an_exception_in_judge_leaves_everything_unchanged(store: Store):
    await say(store, "one")

    def fail(talk: SessionState) -> SessionUpdate:
        raise ValueError(talk.key)

    with pytest.raises(ValueError, match="main"):
        await store.take_turns(NOW + DAY, 10, fail)
    with pytest.raises(ValueError, match="new"):
        await store.update_session(KEY._replace(name="new"), NOW, fail)
    assert [view.name for view in await store.sessions("default", "default", None, 10)] == ["main"]
    assert len((await seen(store)).messages) == 1


@pytest.mark.usefixtures("classes")
async def test_sessions_are_listed_by_name_with_waiting_messages_and_live_turns(store: Store):
    await say(store, "one", KEY._replace(name="b"))
    await begin_due(store, NOW + 1_000)
    await say(store, "two", KEY._replace(name="b"), at_ms=NOW + 1_000)
    await say(store, "three", KEY._replace(name="a"), at_ms=NOW + 2_000)
    await say(store, "four", SessionKey("default", "other", "c"))
    first, second = await store.sessions("default", "default", None, 10)
    (run,) = await turns(store)
    assert (first.name, first.messages, first.turns, first.due_ms) == ("a", 1, (), NOW + 2_800)
    assert (second.name, second.messages, second.turns) == ("b", 1, (run.id,))
    assert (second.created_ms, second.updated_ms, second.context) == (NOW, NOW + 1_000, None)
    assert await store.sessions("default", "default", "a", 10) == [second]
    assert await store.sessions("default", "default", None, 1) == [first]


async def test_a_message_appends_its_audit_entry(store: Store):
    entry = AuditEntry("default", "key:1", "agent.message", "default", "{}", None)
    await store.update_session(KEY, NOW, lambda talk: receive(talk, message(), NOW), [entry])
    assert [row.action for row in await store.audit("default")] == ["agent.message"]


async def test_old_turns_and_sessions_are_pruned(store: Store, clock: FalseClock):
    await say(store, "old", KEY._replace(name="old"))
    await begin_due(store, NOW + 1_000)
    ((run, _),) = await claim_pairs(store, NOW + 1_000, "w", "default", None, None, 10)
    await say(store, "waits", KEY._replace(name="waits"))
    await say(store, "busy", KEY._replace(name="busy"))
    await begin_due(store, NOW + 1_000)
    await say(store, "waits", KEY._replace(name="waits"), at_ms=NOW + 1_000)
    await store.prune_sessions(NOW + 30 * DAY, 1_000)
    assert len(await store.sessions("default", "default", None, 10)) == 3, "all of them have something to do"
    await store.finish("w", [ended(await look(store, run.id))], alone)
    await store.prune_sessions(NOW - DAY, 1_000)
    assert len(await store.sessions("default", "default", None, 10)) == 3, "not as old as that"
    await store.prune_sessions(NOW + 30 * DAY, 1_000)
    names = [view.name for view in await store.sessions("default", "default", None, 10)]
    assert names == ["busy", "waits"]


async def test_deleting_an_agent_deletes_its_sessions(store: Store):
    await store.put_agent("default", "ops", lambda _: AgentRow(
        "default", "ops", None, None, True, None, None, "", 1, NOW, NOW
    ))  # fmt: skip
    key = SessionKey("default", "ops", "main")
    await say(store, "one", key)
    await say(store, "two")
    assert await store.delete_agent("default", "ops")
    assert await store.sessions("default", "ops", None, 10) == []
    assert len(await store.sessions("default", "default", None, 10)) == 1
    assert await store.waiting_messages(key, 10) == []
    with pytest.raises(NotFound, match="no agent 'ops'"):
        await say(store, "three", key)
