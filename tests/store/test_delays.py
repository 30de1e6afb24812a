"""Delays of an instance: they have ids, and a limit of their own until they are due."""

from __future__ import annotations

import random

import pytest

from tests.support.factories import MINUTE, NOW, SECOND, FalseClock, alone, look
from tests.support.instances import HAS_REPORT, agent_class, arrival, done, given_sent, key_of, taken, view
from wakeful.errors import ResourceExhausted
from wakeful.run import signal_rules
from wakeful.run.instances import Send
from wakeful.store.plans import TakeNext
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter, TakenRun


def _delay(name: str, delay_ms: int = MINUTE, delay_id: str | None = None) -> Send:
    return Send("report", "eu", name, "{}", "/tests", None, delay_ms, delay_id)


async def _running(store: Store, clock: FalseClock, mailbox: int = 1_000) -> TakenRun:
    await store.put_class(agent_class(mailbox=mailbox), NOW)
    await given_sent(store, "eu", at=clock.ms)
    (run,) = await taken(store, now_ms=clock.ms)
    return run


async def _pending(store: Store) -> list[str | None]:
    found = await store.runs(RunFilter("default", states=("pending",), limit=1_000))
    return sorted((each.signal or "" for each in found), key=str)


async def test_a_delay_is_in_the_mailbox_when_it_is_due(store: Store, clock: FalseClock) -> None:
    run = await _running(store, clock, mailbox=2)
    await store.finish("w1", [done(run, sends=tuple(_delay(f"later.{n}") for n in range(5)))], alone)
    await store.send([arrival(at=clock.ms), arrival(at=clock.ms)], 2)
    with pytest.raises(ResourceExhausted, match="2 signals may wait"):
        await store.send([arrival(at=clock.ms)], 2)
    found = await view(store)
    assert (found.waiting, found.delays) == (7, 5)
    for _ in range(2):
        (run,) = await taken(store, now_ms=clock.ms)
        assert run.signal == "report.generate"
        await store.finish("w1", [done(run)], alone)
    clock.ms += MINUTE
    assert ((await view(store)).waiting, (await view(store)).delays) == (5, 0)
    with pytest.raises(ResourceExhausted, match="2 signals may wait"):
        await store.send([arrival(at=clock.ms)], 2)
    handled = []
    while runs := await taken(store, now_ms=clock.ms):
        handled += [each.signal for each in runs]
        await store.finish("w1", [done(each) for each in runs], alone)
    assert handled == [f"later.{n}" for n in range(5)]


async def test_delays_have_a_limit_of_their_own(
    store: Store, clock: FalseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal_rules, "MAX_DELAYS", 3)
    run = await _running(store, clock, mailbox=1)
    first = (_delay("a", delay_id="a"), _delay("b"), _delay("c"))
    await store.finish("w1", [done(run, sends=first, delay_ids=("a",))], alone)
    run = await _running(store, clock, mailbox=1)
    await store.finish("w1", [done(run, data="{}", sends=(_delay("d"),))], alone)
    refused = await look(store, run)
    assert (refused.state, refused.reason) == ("retrying", "directive_refused")
    assert "Delay: instance 'eu' of agent 'report' has 3 delays" in str(refused.error)
    assert (await _pending(store), (await view(store)).row.data) == (["a", "b", "c"], None)
    clock.ms += 2 * SECOND
    (run,) = await taken(store, now_ms=clock.ms)
    again = (_delay("a2", delay_id="a"),)
    await store.finish("w1", [done(run, sends=again, delay_ids=("a",))], alone)
    assert await _pending(store) == ["a2", "b", "c"]
    shown = await store.delays(key_of(), 2)
    due_ms = NOW + MINUTE
    assert [(each.signal, each.fire_ms, each.id) for each in shown] == [
        ("b", due_ms, None),
        ("c", due_ms, None),
    ]
    (last,) = (await store.delays(key_of(), 10))[2:]
    assert (last.signal, last.fire_ms, last.id) == ("a2", clock.ms + MINUTE, "a")


async def test_a_delay_that_its_own_handler_sets_again_is_another_one(
    store: Store, clock: FalseClock
) -> None:
    run = await _running(store, clock)
    for _ in range(3):
        sends = (_delay("poll", SECOND, "poll"),)
        await store.finish("w1", [done(run, sends=sends, delay_ids=("poll",))], alone)
        assert (await look(store, run)).state == "succeeded"
        clock.ms += SECOND
        (run,) = await taken(store, now_ms=clock.ms)
        assert run.signal == "poll"


async def test_an_outcome_that_is_fenced_changes_no_delay(store: Store, clock: FalseClock) -> None:
    run = await _running(store, clock)
    sends = (_delay("first", delay_id="a"),)
    await store.finish("w1", [done(run, sends=sends, delay_ids=("a",))], alone)
    run = await _running(store, clock)
    lost = done(run, sends=(_delay("second", delay_id="a"),), delay_ids=("a",))
    assert await store.finish("w2", [lost], alone) == set()
    assert await _pending(store) == ["first"]


@pytest.mark.parametrize("seed", range(3))
async def test_the_last_delay_of_each_id_is_the_one_that_is_pending(
    store: Store, clock: FalseClock, seed: int
) -> None:
    """Random handlers, some of which come in a batch with those of another instance, or are retried."""
    chance = random.Random(seed)
    run = await _running(store, clock)
    expected: dict[str, tuple[int, str]] = {}  # by id, or by name without one: when it fires, and its name
    ended: dict[str, str] = {}
    for step in range(40):
        sends: list[Send] = []
        ids: list[str] = []
        for number in range(chance.randrange(3)):
            name, delay_ms = f"s{step}.{number}", chance.randrange(1, 20) * SECOND
            delay_id = chance.choice(["a", "b", None])
            if delay_id in ids:
                continue
            cancels = delay_id is not None and chance.random() < 0.3
            if delay_id is not None:
                ids.append(delay_id)
            if not cancels:
                sends.append(_delay(name, delay_ms, delay_id))
        fails = chance.random() < 0.2
        if fails:
            outcome = done(run, "retrying", due_ms=clock.ms, error="no", reason="failed")
        else:
            outcome = done(run, sends=tuple(sends), delay_ids=tuple(ids))
            for delay_id in ids:
                if delay_id in expected:
                    replaced = any(send.delay_id == delay_id for send in sends)
                    ended[expected.pop(delay_id)[1]] = "delay_replaced" if replaced else "delay_cancelled"
            for send in sends:
                expected[send.delay_id or send.type] = clock.ms + send.delay_ms, send.type
        take_next = TakeNext({run.id: "team"}, HAS_REPORT)
        written, following = await store.finish_and_take("w1", [outcome], alone, take_next)
        assert written == {run.id}
        started = [each.signal for each in following]
        assert await _pending(store) == sorted(name for _, name in expected.values() if name not in started)
        if not fails and chance.random() < 0.5:
            clock.ms += chance.randrange(10) * SECOND
        if not following:
            following = await taken(store, now_ms=clock.ms)
        if not following:
            await given_sent(store, "eu", at=clock.ms)
            following = await taken(store, now_ms=clock.ms)
        (run,) = following
        if run.signal != "report.generate" and run.attempt == 1:
            due = min(expected.values())
            assert due[0] <= clock.ms
            key = next(key for key, (_, name) in expected.items() if name == run.signal)
            assert expected.pop(key)[0] == due[0], "the one that is due longest comes first"
    found = await store.runs(RunFilter("default", states=("cancelled",), limit=1_000))
    assert {each.signal: each.reason for each in found} == ended
    assert ended


async def test_the_next_signal_starts_with_the_outcome_of_one_that_sets_a_delay(
    store: Store, clock: FalseClock
) -> None:
    run = await _running(store, clock)
    (waiting,) = await given_sent(store, "eu", at=clock.ms)
    outcome = done(run, sends=(_delay("later"), _delay("at.once", 0)))
    take_next = TakeNext({run.id: "team"}, HAS_REPORT)
    _, following = await store.finish_and_take("w1", [outcome], alone, take_next)
    assert [each.id for each in following] == [waiting]
    _, following = await store.finish_and_take(
        "w1", [done(following[0])], alone, TakeNext({waiting: "team"}, HAS_REPORT)
    )
    assert [each.signal for each in following] == ["at.once"]
