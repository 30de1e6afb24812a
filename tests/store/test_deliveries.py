"""Deliveries: written with their outcome, taken by one worker, and separate from the run state."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, MINUTE, NOW, SECOND, FalseClock, alone, ended, given_held, look
from tests.support.interruptions import cancel_at_each_await, fail_at_each_call
from tests.support.waiting import PATIENCE
from wakeful.deliver.channels import ACCEPTED, ChannelMessage, ChannelSender, SendResult
from wakeful.deliver.deliverer import Deliverer
from wakeful.store.accounts import AgentRow
from wakeful.store.deliveries import DeliveryResult, TakenDelivery
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter, RunView

UNTIL = NOW + 5 * MINUTE
NOWHERE = (None, None)


async def _said(store: Store, name: str = "digest", **fields: Any) -> RunView:
    """Finish a run whose output is to be delivered."""
    _, run = await given_held(store, name=name)
    done = ended(run, **{"output": "good morning", "deliver": ("telegram", "42"), **fields})
    assert await store.finish("w1", [done], alone) == {run.id}
    return run


async def _take(store: Store, worker: str = "w1", at: int = NOW, limit: int = 10) -> list[TakenDelivery]:
    return (await store.take_deliveries(at, worker, at + 5 * MINUTE, limit))[0]


async def _stands(store: Store, run: RunView) -> tuple[str, str, str | None]:
    found = await look(store, run)
    return found.state, found.delivery, found.delivery_error


async def test_a_delivery_is_written_with_the_outcome_and_announced(store: Store, clock: FalseClock) -> None:
    received: list[str] = []
    store.listen(received.append)
    run = await _said(store)
    assert await _stands(store, run) == ("succeeded", "pending", None)
    assert await store.next_delivery_ms(0) == NOW
    assert await _take(store) == [
        TakenDelivery(
            run.id,
            "default",
            "default",
            "digest",
            "telegram",
            "42",
            "good morning",
            1,
            run.job_id,
            run.idempotency_key,
            run.attempt,
        )
    ]
    assert await _stands(store, run) == ("succeeded", "pending", None)
    await asyncio.sleep(0)
    assert "deliveries" in received


async def test_a_run_without_a_delivery_request_has_no_delivery(store: Store) -> None:
    run = await _said(store, deliver=None)
    assert await _stands(store, run) == ("succeeded", "not_requested", None)
    assert await _take(store) == []
    assert await store.next_delivery_ms(0) is None


async def test_a_fenced_outcome_creates_no_delivery(store: Store) -> None:
    _, run = await given_held(store)
    assert await store.finish("w2", [ended(run, deliver=NOWHERE)], alone) == set()
    assert await _take(store) == []


async def test_the_channel_and_recipient_default_to_those_of_the_agent(store: Store) -> None:
    def told(old: AgentRow | None) -> AgentRow:
        return AgentRow("default", "default", None, None, True, "slack", "#ops", "", 1, NOW, NOW)

    await store.put_agent("default", "default", told, [])
    for name, deliver in {
        "a": NOWHERE, "b": (None, "#dev"), "c": ("slack", None), "d": ("mail", None), "e": ("mail", "ada"),
    }.items():  # fmt: skip
        await _said(store, name, deliver=deliver)
    assert {each.job_name: (each.channel, each.to) for each in await _take(store)} == {
        "a": ("slack", "#ops"), "b": ("slack", "#dev"), "c": ("slack", "#ops"), "d": ("mail", None),
        "e": ("mail", "ada"),
    }  # fmt: skip


async def test_without_any_channel_the_delivery_has_none(store: Store) -> None:
    await _said(store, deliver=NOWHERE)
    (taken,) = await _take(store)
    assert (taken.channel, taken.to) == (None, None)


async def test_each_delivery_is_taken_by_one_worker(store: Store) -> None:
    for number in range(20):
        await _said(store, f"job-{number}")
    taken = await asyncio.gather(*(_take(store, f"w{number}", limit=7) for number in range(4)))
    runs = [each.run_id for some in taken for each in some]
    assert (len(runs), len(set(runs))) == (20, 20)


async def test_the_result_is_stored_and_the_run_state_does_not_change(store: Store) -> None:
    runs = [await _said(store, name) for name in ("a", "b", "c")]
    await _take(store)
    written = await store.finish_deliveries(
        NOW + SECOND,
        "w1",
        [
            DeliveryResult(runs[0].id, 1, "delivered"),
            DeliveryResult(runs[1].id, 1, "failed", error="no such chat"),
            DeliveryResult(runs[2].id, 1, "suppressed", error="NO_REPLY"),
        ],
    )
    assert written == {run.id for run in runs}
    assert [await _stands(store, run) for run in runs] == [
        ("succeeded", "delivered", None),
        ("succeeded", "failed", "no such chat"),
        ("succeeded", "suppressed", "NO_REPLY"),
    ]
    assert await store.next_delivery_ms(0) is None


async def test_a_delivery_with_an_unknown_result_is_not_taken_again(store: Store) -> None:
    run = await _said(store)
    await _take(store)
    assert await store.finish_deliveries(
        NOW, "w1", [DeliveryResult(run.id, 1, "unknown", error="no answer")]
    ) == {run.id}
    assert await _stands(store, run) == ("succeeded", "unknown", "no answer")
    assert await store.next_delivery_ms(0) is None
    assert await _take(store, at=NOW + DAY) == []


async def test_a_retried_delivery_waits_until_its_due_time(store: Store) -> None:
    run = await _said(store)
    await _take(store)
    again = DeliveryResult(run.id, 1, "pending", NOW + MINUTE, "the service answered HTTP 503")
    assert await store.finish_deliveries(NOW, "w1", [again]) == {run.id}
    assert await store.next_delivery_ms(0) == NOW + MINUTE
    assert await _take(store, at=NOW + MINUTE - 1) == []
    (taken,) = await _take(store, "w2", at=NOW + MINUTE)
    assert taken.attempt == 2
    assert await _stands(store, run) == ("succeeded", "pending", "the service answered HTTP 503")


async def test_a_delivery_without_a_result_in_time_is_unknown_and_not_resent(store: Store) -> None:
    run = await _said(store)
    await _take(store)
    assert await store.next_delivery_ms(0) == UNTIL
    assert await store.take_deliveries(UNTIL - 1, "w2", UNTIL + MINUTE, 10) == ([], 0)
    assert await store.take_deliveries(UNTIL, "w2", UNTIL + MINUTE, 10) == ([], 1)
    state, delivery, error = await _stands(store, run)
    assert (state, delivery) == ("succeeded", "unknown")
    assert "may have arrived" in str(error)
    assert await store.finish_deliveries(UNTIL, "w1", [DeliveryResult(run.id, 1, "delivered")]) == set()
    assert (await _stands(store, run))[1] == "unknown"


async def test_a_result_of_an_earlier_attempt_is_ignored(store: Store) -> None:
    run = await _said(store)
    await _take(store)
    await store.finish_deliveries(NOW, "w1", [DeliveryResult(run.id, 1, "pending", NOW)])
    await _take(store, "w2")
    assert await store.finish_deliveries(NOW, "w1", [DeliveryResult(run.id, 1, "failed")]) == set()
    assert await store.finish_deliveries(NOW, "w2", [DeliveryResult(run.id, 2, "delivered")]) == {run.id}


async def test_a_delivery_is_pruned_with_its_run(store: Store) -> None:
    run = await _said(store)
    await _take(store)
    await store.finish_deliveries(NOW, "w1", [DeliveryResult(run.id, 1, "delivered")])
    assert await store.prune(NOW + DAY, 100) == 1
    assert await store.run(run.id) is None
    assert await store.take_deliveries(NOW + DAY, "w1", NOW + 2 * DAY, 10) == ([], 0)


async def test_a_delivery_whose_run_was_deleted_by_hand_holds_up_no_other(database: Database) -> None:
    store = await database.connect()
    gone, run = await _said(store, "gone"), await _said(store)
    await database.execute(f"DELETE FROM runs WHERE id = '{gone.id}'")
    assert [each.run_id for each in await _take(store)] == [run.id]
    assert await _take(store) == []


async def test_finishing_no_deliveries_is_a_no_op(store: Store) -> None:
    assert await store.finish_deliveries(NOW, "w1", []) == set()


class _Accepting(ChannelSender):
    """Channels that accept every message."""

    def __init__(self) -> None:
        super().__init__({})
        self.sent: list[str] = []

    def check(self, name: str, to: str | None) -> None:
        pass

    def send(self, name: str, to: str | None, message: ChannelMessage) -> SendResult:
        self.sent.append(message.body)
        return ACCEPTED


async def test_a_process_that_stops_while_it_takes_a_delivery_sends_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, take = await _said(store), store.take_deliveries
    taken, answered = asyncio.Event(), asyncio.Event()

    async def take_slowly(*args: Any) -> Any:
        found = await take(*args)
        taken.set()  # the database has written it, and its answer is on the way
        await answered.wait()
        return found

    monkeypatch.setattr(store, "take_deliveries", take_slowly)
    channels = _Accepting()
    deliverer = asyncio.create_task(Deliverer(store, store.clock, channels, lambda became: None).run())
    await taken.wait()
    deliverer.cancel()
    await asyncio.sleep(0)
    answered.set()
    await asyncio.gather(deliverer, return_exceptions=True)
    assert (channels.sent, (await look(store, run)).delivery) == (["good morning"], "delivered")


async def test_a_service_that_does_not_respond_holds_up_no_other(store: Store) -> None:
    stuck = [await _said(store, f"stuck-{number}", deliver=("hangs", None)) for number in range(12)]
    others = [await _said(store, f"other-{number}") for number in range(12)]
    release = threading.Event()

    class Hanging(_Accepting):
        def send(self, name: str, to: str | None, message: ChannelMessage) -> SendResult:
            if name == "hangs":
                release.wait()
            return super().send(name, to, message)

    channels = Hanging()
    deliverer = asyncio.create_task(Deliverer(store, store.clock, channels, lambda became: None).run())

    async def states(runs: list[RunView]) -> set[str]:
        return {(await look(store, run)).delivery for run in runs}

    try:
        async with asyncio.timeout(PATIENCE):
            while await states(others) != {"delivered"}:
                await asyncio.sleep(0.01)
            assert await states(stuck) == {"pending"}
            release.set()
            while await states(stuck) != {"delivered"}:
                await asyncio.sleep(0.01)
    finally:
        release.set()
        deliverer.cancel()
        await asyncio.gather(deliverer, return_exceptions=True)
    assert len(channels.sent) == len(stuck) + len(others)


class _Faulty(_Accepting):
    """Channels that do something else with the first message than they should."""

    def __init__(self, fault: Callable[[], Any]) -> None:
        super().__init__()
        self._fault: Callable[[], Any] | None = fault

    def send(self, name: str, to: str | None, message: ChannelMessage) -> SendResult:
        fault, self._fault = self._fault, None
        accepted = super().send(name, to, message)
        return accepted if fault is None else fault()


def _raise(error: BaseException) -> Callable[[], Any]:
    def fault() -> Any:
        raise error

    return fault


def _accept_late() -> SendResult:
    time.sleep(5)
    return ACCEPTED


@pytest.mark.parametrize(
    ("fault", "becomes"),
    [
        (lambda: None, "unknown"),
        (lambda: "ok", "unknown"),
        (_raise(RuntimeError("a bug")), "unknown"),
        (_raise(SystemExit(1)), "unknown"),
        (_accept_late, "unknown"),
        (lambda: SendResult("not_sent", "refused"), "pending"),
    ],
    ids=["nothing", "text", "error", "exit", "late", "refused"],
)
async def test_a_fault_of_a_channel_costs_one_delivery_and_sends_none_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], Any], becomes: str
) -> None:
    if fault is _accept_late:
        monkeypatch.setattr("wakeful.deliver.deliverer._LEASE_MS", 2_000)
    channels = _Faulty(fault)
    deliverer = Deliverer(store, store.clock, channels, lambda became: None)
    running = asyncio.create_task(deliverer.run())
    first = await _said(store, "first", output="first")
    async with asyncio.timeout(PATIENCE):
        while not deliverer._by_channel and not channels.sent:
            await asyncio.sleep(0.01)
        second = await _said(store, "second", output="second")
        while (await look(store, second)).delivery == "pending" or deliverer._by_channel:
            await asyncio.sleep(0.01)
        while (await look(store, first)).delivery != becomes:  # results are written by a later step
            await asyncio.sleep(0.01)
    assert not running.done()
    assert (await look(store, second)).delivery == "delivered"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(channels.sent) == ["first", "second"]


@pytest.mark.parametrize("fault", ["cancelled", "failed"])
async def test_a_step_that_is_interrupted_sends_each_message_once(
    store: Store, clock: FalseClock, fault: str
) -> None:
    channels = _Accepting()
    deliverer = Deliverer(store, store.clock, channels, lambda became: None)
    texts: list[str] = []
    ends: set[tuple[str, int]] = set()

    async def settled() -> None:
        tasks = {*deliverer._sending, *([deliverer._taking] if deliverer._taking else [])}
        while tasks := {task for task in tasks | deliverer._sending if not task.done()}:
            await asyncio.wait(tasks)

    async def prepare() -> None:
        texts.append(f"text {len(texts)}")
        await _said(store, f"job-{len(texts)}", output=texts[-1])
        await deliverer.step()
        await settled()  # so that the step that is interrupted writes a result, and takes the next
        texts.append(f"text {len(texts)}")
        await _said(store, f"job-{len(texts)}", output=texts[-1])

    async def check() -> None:
        await settled()
        await deliverer.step()
        await settled()
        await deliverer.step()
        clock.ms += 5 * MINUTE  # what was taken and is not known here is not sent
        await deliverer.step()
        assert await store.next_delivery_ms(0) is None
        assert not deliverer._by_channel
        for text in texts[-2:]:
            (run,) = await store.runs(RunFilter("default", job_id=await _job_of(store, text, texts)))
            ends.add((run.delivery, channels.sent.count(text)))

    if fault == "cancelled":
        assert await cancel_at_each_await(deliverer.step, check, prepare=prepare) >= 2
        assert ends == {("delivered", 1)}
    else:
        assert await fail_at_each_call(store, deliverer.step, check, prepare=prepare) >= 4
        assert ends == {("delivered", 1), ("unknown", 0)}


async def _job_of(store: Store, text: str, texts: list[str]) -> str:
    row = await store.job("default", "default", f"job-{texts.index(text) + 1}")
    assert row is not None
    return row.id
