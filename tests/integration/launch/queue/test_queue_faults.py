"""Faults at every port of queue targets: NATS, a replica or a function answers late, not at all, or garbage.

Each fault happens once while runs are sent and executed. Afterwards every run has succeeded and was executed
once, unless a message was lost, and all that runs in the background still does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.integration.launch.queue.conftest import NewQueueApp
from tests.support.effort import FULL, cases, part
from tests.support.nats_server import NatsServer
from tests.support.network_link import NetworkLink, network_link
from tests.support.waiting import eventually, over
from wakeful import Launch, Queue, Wakeful
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.queue.connection import NatsConnection, NatsOptions
from wakeful.launch.queue.worker import QueueWorker, WorkerOptions
from wakeful.run.outcome import Failed, Succeeded

RUNS = cases(8, 40)
#: a confirmation of JetStream, and the answer of a replica to a report
CONFIRMATION = re.compile(rb'\{"stream":"WAKEFUL_[A-Z]+",[^{}]*\}')
ANSWER = re.compile(rb'\{"applied": true\}')


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "launcher._CONFIRM_S": 0.5,
        "launcher._CONNECT_S": 0.2,
        "worker._ANSWER_S": 0.5,
        "worker._CONFIRM_S": 0.5,
        "worker.FETCH_S": 0.5,
        "worker._PAUSE_S": 0.1,
        "worker._UNKNOWN_S": 0.3,
        "messages.FETCH_S": 0.5,
        "messages._PAUSE_S": 0.1,
        "messages._RETRY_S": 0.1,
        "connection.FETCH_S": 0.5,
        "connection._PING_S": 0.3,
        "connection._CHECK_S": 0.1,
    }.items():
        monkeypatch.setattr(f"wakeful.launch.queue.{name}", seconds)


class _World:
    """An app and a worker, each with its own link to NATS."""

    def __init__(self, broker: NatsServer, app: Wakeful, links: dict[str, NetworkLink]) -> None:
        self.broker, self.app, self.links = broker, app, links
        self.calls: Counter[tuple[str, int]] = Counter()
        functions = FunctionLauncher()
        functions.register("work", self._work)
        #: released when the fault has happened
        self.hold = asyncio.Event()
        connection = NatsConnection(NatsOptions((_nats(links["worker"]),)), "worker")
        self.worker = QueueWorker(connection, functions, WorkerOptions(concurrency=4, ack_wait_s=3))

    async def _work(self, run: Launch) -> str:
        self.calls[run.id, run.attempt] += 1
        await self.hold.wait()
        return "done"


def _nats(link: NetworkLink) -> str:
    return link.url.replace("http", "nats")


@contextlib.asynccontextmanager
async def _running(broker: NatsServer, queue_app: NewQueueApp) -> AsyncIterator[_World]:
    async with network_link(broker.url) as one, network_link(broker.url) as two:
        app = queue_app(nats_url=(_nats(one),))
        world = _World(broker, app, {"replica": one, "worker": two})
        async with app:
            task = asyncio.create_task(world.worker.run())
            try:
                await eventually(lambda: world.worker.ready)
                yield world
            finally:
                world.worker.stop()
                await task


def _garbled(pattern: re.Pattern[bytes], garbage: bytes, times: int = 1) -> Callable[[bytes], bytes]:
    """Return a function that replaces the first matches by garbage of the same length."""
    left = times

    def change(data: bytes) -> bytes:
        nonlocal left

        def replace(found: re.Match[bytes]) -> bytes:
            nonlocal left
            left -= 1
            return garbage.ljust(len(found[0]))[: len(found[0])] if left >= 0 else found[0]

        return pattern.sub(replace, data)

    return change


Fault = Callable[[_World, str], Awaitable[None]]


async def _cut(world: _World, side: str) -> None:
    await world.links[side].cut()
    await asyncio.sleep(0.3)
    await world.links[side].restore()


def _hang(seconds: float) -> Fault:
    async def hang(world: _World, side: str) -> None:
        world.links[side].hang()
        await asyncio.sleep(seconds)
        world.links[side].resume()

    return hang


async def _restart(world: _World, side: str) -> None:
    await world.broker.kill()
    await asyncio.sleep(0.5)  # longer than a launch waits for a connection
    await world.broker.start()


async def _bad_messages(world: _World, side: str) -> None:
    """Publish messages that no run has, and reports that no worker writes."""
    client = await world.broker.connect()
    js = client.jetstream()
    headers = {"x-wakeful-run-id": "0199c1de-7a4f-7000-8000-000000000001", "x-wakeful-missed": "x"}
    for body in (b"", b"[]", b'{"job":1,"payload":NaN}', b"\xff"):
        await js.publish("wakeful.work.default", body, headers=headers)
        await js.publish("wakeful.results.default", body)
    await client.close()


FAULTS: dict[str, Fault] = {"cut": _cut, "restart": _restart, "bad messages": _bad_messages}
FAULTS |= {f"hang {seconds} s": _hang(seconds) for seconds in ((0.3, 1, 3, 5) if FULL else (0.3, 2))}


async def _check(world: _World, count: int) -> None:
    """Execute runs, and check that each one is executed once."""
    runs = [await world.app.jobs.run("work") for _ in range(count)]
    for run in runs:
        ended = await over(world.app, run.id)
        assert (ended.state, ended.output) == ("succeeded", "done"), ended.error
        assert world.calls[run.id, ended.attempt] == 1
        assert sum(calls for (run_id, _), calls in world.calls.items() if run_id == run.id) == 1


@pytest.mark.parametrize(
    ("fault", "side"),
    [
        (fault, side)
        for fault in FAULTS
        for side in ("replica", "worker")
        if side == "worker" or fault not in ("restart", "bad messages")  # they affect both
    ],
)
@on_one_store
async def test_each_run_is_executed_once_whatever_happens_to_a_connection(
    queue_app: NewQueueApp, broker: NatsServer, fault: str, side: str
):
    async with _running(broker, queue_app) as world:
        await world.app.jobs.create(
            "work", schedule=SELDOM, target=Queue(), overlap_policy="allow", max_attempts=1
        )
        checking = asyncio.create_task(_check(world, RUNS))
        await eventually(lambda: world.calls or checking.done())
        await FAULTS[fault](world, side)
        world.hold.set()
        await checking
        await _check(world, 1)


@pytest.mark.parametrize("garbage", part([b"", b"[]", b"{}", b"nonsense", b'{"error":1}', b'"text"']))
@pytest.mark.parametrize("side", ["replica", "worker"])
@on_one_store
async def test_a_confirmation_or_an_answer_that_is_garbage_harms_no_run(
    queue_app: NewQueueApp, broker: NatsServer, side: str, garbage: bytes
):
    async with _running(broker, queue_app) as world:
        world.hold.set()
        await world.app.jobs.create(
            "work", schedule=SELDOM, target=Queue(), overlap_policy="allow", max_attempts=1
        )
        for pattern in (CONFIRMATION, ANSWER):
            world.links[side].change = _garbled(pattern, garbage)
            await _check(world, 3)


@on_one_store
async def test_a_broker_that_has_lost_its_messages_is_used_again(queue_app: NewQueueApp, broker: NatsServer):
    async with _running(broker, queue_app) as world:
        again: dict[str, Any] = {"max_attempts": 100, "backoff": {"base": "50ms", "max": "50ms"}}
        await world.app.jobs.create("work", schedule=SELDOM, target=Queue(), timeout="2s", **again)
        run = await world.app.jobs.run("work")
        await eventually(lambda: world.calls)
        await broker.kill()
        shutil.rmtree(broker.directory)
        await broker.start()
        world.hold.set()
        ended = await over(world.app, run.id)
        assert (ended.state, ended.output) == ("succeeded", "done")
        await _check(world, 1)


@pytest.mark.slow
@on_one_store
async def test_each_run_is_executed_once_while_nats_and_the_workers_are_restarted(
    queue_app: NewQueueApp, broker: NatsServer
):
    """Runs start all the time, with one attempt each. Workers finish what they have before they stop."""
    executed: Counter[str] = Counter()
    functions = FunctionLauncher()

    async def work(run: Launch) -> str:
        executed[run.id] += 1
        await asyncio.sleep(0.05)
        return "done"

    functions.register("work", work)
    app = queue_app()
    workers: list[tuple[QueueWorker, asyncio.Task[None]]] = []

    def start_worker() -> None:
        connection = NatsConnection(NatsOptions((broker.url,)), "worker")
        worker = QueueWorker(connection, functions, WorkerOptions(ack_wait_s=20, grace_s=60))
        workers.append((worker, asyncio.create_task(worker.run())))

    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue(), overlap_policy="allow", max_attempts=1)
        runs: list[str] = []

        async def start_runs(count: int) -> None:
            for _ in range(count):
                runs.append((await app.jobs.run("work")).id)
                await asyncio.sleep(0.01)

        start_worker()
        start_worker()
        for _ in range(cases(2, 10)):
            load = asyncio.create_task(start_runs(25))
            await broker.kill()
            await asyncio.sleep(0.3)
            await broker.start()
            worker, task = workers.pop(0)
            worker.stop()
            start_worker()
            await task
            await load
        ended = [await over(app, run_id) for run_id in runs]
        for worker, task in workers:
            worker.stop()
            await task
    assert Counter(run.state for run in ended) == {"succeeded": len(runs)}
    assert executed == Counter(runs)


HOSTILE = [
    Failed("no", reason="Not a word!"),
    Failed("no", retry_after_ms=-1),
    Succeeded("x", usage="{garbage"),
    Succeeded("\ud800 \x00 half a character"),
    Succeeded(1),  # type: ignore[arg-type]
    Succeeded("y" * 5_000_000),
]


@pytest.mark.parametrize("outcome", HOSTILE, ids=lambda outcome: repr(outcome)[:40])
@on_one_store
async def test_an_outcome_that_cannot_be_reported_ends_its_run(
    queue_app: NewQueueApp, broker: NatsServer, outcome: Any
):
    """The function is not called for ever, and the slot of the worker is free afterwards."""
    async with _running(broker, queue_app) as world:
        calls: list[Launch] = []

        async def hostile(run: Launch) -> Any:
            calls.append(run)
            return outcome

        world.worker._functions.register("hostile", hostile)
        await world.app.jobs.create("hostile", schedule=SELDOM, target=Queue(), max_attempts=1)
        ended = await over(world.app, (await world.app.jobs.run("hostile")).id)
        assert ended.state in ("failed", "succeeded")
        assert len(calls) == 1
        await eventually(lambda: world.worker.running == 0)


@on_one_store
async def test_a_report_that_nats_refuses_as_too_large_is_shortened(
    queue_app: NewQueueApp, broker: NatsServer
):
    async with _running(broker, queue_app) as world:
        world.hold.set()
        client = await world.broker.connect()
        config = (await client.jetstream().stream_info("WAKEFUL_RESULTS")).config
        await client.jetstream().update_stream(config, max_msg_size=1_000)
        await client.close()

        async def long(run: Launch) -> str:
            return "x" * 10_000

        world.worker._functions.register("long", long)
        await world.app.jobs.create("long", schedule=SELDOM, target=Queue(), max_attempts=1)
        ended = await over(world.app, (await world.app.jobs.run("long")).id)
        assert (ended.state, ended.attempt) == ("succeeded", 1)
        assert (ended.output or "").startswith("(no output: ")


def test_the_patterns_match_what_nats_and_wakeful_write():
    assert CONFIRMATION.search(b'MSG x 1 37\r\n{"stream":"WAKEFUL_WORK", "seq":1}\r\n')
    assert ANSWER.search(json.dumps({"applied": True}).encode())
