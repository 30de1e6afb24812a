"""The worker and the replica of queue targets on virtual time, with a NATS that is late, fails or forgets.

One call of one side fails, is lost, is cancelled or pauses. Afterwards each run has been executed once and
has its outcome, no message is left, and both sides still work.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import nats.errors
import pytest

from tests.simulation.virtual_loop import run_virtually
from tests.support.effort import cases
from tests.support.interruptions import cancel_at_each_await
from tests.unit.launch.launches import launch
from wakeful.errors import Unavailable
from wakeful.launch.broker import Report, ReportResult
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import Launch
from wakeful.launch.queue.connection import NatsConnection
from wakeful.launch.queue.messages import ResultConsumer, write_message
from wakeful.launch.queue.target import QueueTarget
from wakeful.launch.queue.worker import QueueWorker, WorkerOptions
from wakeful.run.outcome import Failed

T = TypeVar("T")

WAY_S = 0.01
ACK_WAIT_S = 30.0
#: Seconds for which functions work; the longest is longer than a message stays with a silent worker.
WORK_S = (0.0, 3.0, 45.0)
RUNS = 8
ID = "0199c1de-7a4f-7000-8000-000000000"
END_S = 200.0


@dataclass
class Entry:
    """A message in a stream."""

    stream: Stream
    data: bytes
    headers: dict[str, str]
    ready_at: float = 0.0
    deliveries: int = 0
    done: bool = False

    def settle(self, content: bytes) -> None:
        """Handle what the receiver replies."""
        now = asyncio.get_running_loop().time()
        if content in (b"+ACK", b"+TERM"):
            self.done = True
        elif content == b"+WPI":
            self.ready_at = now + ACK_WAIT_S
        else:
            delay = json.loads(content[5:])["delay"] if len(content) > 4 else 0
            self.ready_at = now + delay / 1e9


@dataclass
class Stream:
    """A stream of work with one consumer."""

    subject: str
    entries: list[Entry] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def add(self, data: bytes, headers: dict[str, str]) -> None:
        identity = headers.get("Nats-Msg-Id")
        if identity is None or identity not in self.ids:
            self.entries.append(Entry(self, data, headers))
            self.ids.add(identity or "")

    async def next(self, count: int) -> list[Entry]:
        while True:
            now = asyncio.get_running_loop().time()
            found = [each for each in self.entries if not each.done and each.ready_at <= now][:count]
            for each in found:
                each.ready_at, each.deliveries = now + ACK_WAIT_S, each.deliveries + 1
            if found:
                return found
            await asyncio.sleep(0.5)


@dataclass
class Fault:
    """What happens to one call."""

    side: str
    call: str
    #: its number among these calls of that side
    number: int
    error: Callable[[], BaseException] | None = None
    #: whether NATS executes it nevertheless
    executed: bool = False
    pause_s: float = 0.0


class Broker:
    """NATS: the streams, the inboxes, and the fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.counts: dict[tuple[str, str], int] = {}
        self.work, self.results = Stream("wakeful.work.default"), Stream("wakeful.results.default")
        self.numbers = itertools.count(1)
        self.inboxes: dict[str, Callable[[str, bytes], Coroutine[Any, Any, None]]] = {}
        self.deliveries: set[asyncio.Task[None]] = set()

    async def call(
        self, side: str, name: str, do: Callable[[], Coroutine[Any, Any, T]], within: float | None
    ) -> T:
        """Do something for a client, or what the fault does."""
        number = self.counts[side, name] = self.counts.get((side, name), 0) + 1
        fault = self._fault
        hit = (fault.side, fault.call, fault.number) == (side, name, number)
        try:
            async with asyncio.timeout(within):
                await asyncio.sleep(WAY_S)
                if hit and fault.error is not None and not fault.executed:
                    raise fault.error()
                result = await do()
                await asyncio.sleep(WAY_S + (fault.pause_s if hit else 0.0))
                if hit and fault.error is not None:
                    raise fault.error()
                return result
        except TimeoutError as error:
            raise nats.errors.TimeoutError from error


class Client:
    """A connection of one side, with what Wakeful calls of the client, JetStream and subscriptions."""

    connected = configured = True

    def __init__(self, broker: Broker, side: str) -> None:
        self._broker, self._side = broker, side

    async def _call(
        self, name: str, do: Callable[[], Coroutine[Any, Any, T]], within: float | None = None
    ) -> T:
        return await self._broker.call(self._side, name, do, within)

    async def open(self) -> None:
        """Be open."""

    async def close(self) -> None:
        """Be closed."""

    async def client(self, wait_s: float = 0) -> Client:
        return self

    def new_inbox(self) -> str:
        return f"_INBOX.{next(self._broker.numbers)}"

    async def flush(self, within: int) -> None:
        """Do nothing."""

    async def subscribe(self, subject: str, cb: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async def deliver(name: str, content: bytes) -> None:
            with contextlib.suppress(Exception, asyncio.CancelledError):  # the answer is lost
                await self._call("answer", _nothing)
                await cb(SimpleNamespace(subject=name, data=content))

        await self._call("subscribe", _nothing)
        self._broker.inboxes[subject.removesuffix(".*")] = deliver

    async def publish(self, subject: Any, content: bytes) -> None:
        """Settle a message, or answer a report."""

        async def send() -> None:
            if isinstance(subject, Entry):
                subject.settle(content)
            elif (deliver := self._broker.inboxes.get(subject.rpartition(".")[0])) is not None:
                delivery = asyncio.create_task(deliver(subject, content))
                self._broker.deliveries.add(delivery)
                delivery.add_done_callback(self._broker.deliveries.discard)

        await self._call("settle", send)

    def jetstream(self) -> Any:
        return SimpleNamespace(
            publish=self._publish,
            add_stream=_nothing,
            find_stream_name_by_subject=_nothing,
            pull_subscribe=self._pull,
        )

    async def _publish(self, subject: str, body: bytes, **options: Any) -> None:
        async def add() -> None:
            self._broker.results.add(body, dict(options["headers"]))

        await self._call("report", add, options["timeout"])

    async def _pull(self, subject: str, **options: Any) -> Any:
        stream = self._broker.results if "results" in subject else self._broker.work

        async def fetch(count: int, **options: Any) -> list[Any]:
            found = await self._call("fetch", lambda: stream.next(count), options["timeout"])
            return [self._message(each) for each in found]

        return SimpleNamespace(fetch=fetch, unsubscribe=_nothing)

    def _message(self, entry: Entry) -> Any:
        def nak(delay: float) -> Coroutine[Any, Any, None]:
            return self.publish(entry, b'-NAK {"delay": %d}' % round(delay * 1e9))

        return SimpleNamespace(
            data=entry.data,
            headers=entry.headers,
            subject=entry.stream.subject,
            reply=entry,
            metadata=SimpleNamespace(num_delivered=entry.deliveries),
            ack=lambda: self.publish(entry, b"+ACK"),
            term=lambda: self.publish(entry, b"+TERM"),
            nak=nak,
        )


async def _nothing(*args: object, **options: object) -> str:
    return "WAKEFUL_WORK"


class _Connection(Client):
    """In place of `NatsConnection`, whose `jetstream` waits for a connection."""

    async def jetstream(self, wait_s: float = 0) -> Any:
        client = Client(self._broker, self._side)
        return Client.jetstream(client)

    async def client(self, wait_s: float = 0) -> Client:
        return Client(self._broker, self._side)


def _message_of(run_id: str) -> tuple[bytes, dict[str, str]]:
    return write_message(launch({"kind": "queue"}, run_id=run_id, key=run_id, job="work"), QueueTarget())


async def _execute(fault: Fault) -> None:
    """Execute runs with one fault, and check what became of them."""
    broker = Broker(fault)
    executed: dict[str, int] = {}
    outcomes: dict[str, str | None] = {}

    async def work(run: Launch) -> str:
        executed[run.id] = executed.get(run.id, 0) + 1
        await asyncio.sleep(WORK_S[int(run.id[-1]) % 3])
        return run.id

    async def apply(report: Report) -> ReportResult:
        async def write() -> ReportResult:
            if report.run_id in outcomes:
                return ReportResult(False, "the run is over")
            if report.status != "running":
                assert report.status == "succeeded", report
                outcomes[report.run_id] = report.output
            return ReportResult(True)

        return await broker.call("replica", "apply", write, None)

    functions = FunctionLauncher()
    functions.register("work", work)
    worker = QueueWorker(
        cast(NatsConnection, _Connection(broker, "worker")), functions, WorkerOptions(concurrency=4)
    )
    consumer = ResultConsumer(cast(NatsConnection, _Connection(broker, "replica")), apply, True, 1)
    ids = [f"{ID}{number:03}" for number in range(RUNS)]
    for run_id in ids:
        broker.work.add(*_message_of(run_id))
    consumer.start()
    asyncio.get_running_loop().call_at(END_S, worker.stop)
    await worker.run()
    await consumer.stop()
    assert outcomes == {run_id: run_id for run_id in ids}
    assert executed == dict.fromkeys(ids, 1)
    assert all(each.done for each in broker.work.entries + broker.results.entries)
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, left


FAULTS: dict[str, dict[str, Any]] = {
    "an error": {"error": lambda: OSError("reset")},
    "an error, executed": {"error": lambda: OSError("reset"), "executed": True},
    "a program error, executed": {"error": lambda: AttributeError("a bug"), "executed": True},
    "no response": {"error": nats.errors.TimeoutError, "executed": True},
    "the end of the client": {"error": asyncio.CancelledError},
    "the end of the client, executed": {"error": asyncio.CancelledError, "executed": True},
    "a pause of 1 s": {"pause_s": 1.0},
    "a pause of 7 s": {"pause_s": 7.0},
    "a pause of 40 s": {"pause_s": 40.0},
}
_PORTS = [
    ("worker", "fetch"), ("worker", "subscribe"), ("worker", "report"), ("worker", "answer"),
    ("worker", "settle"),
    ("replica", "fetch"), ("replica", "settle"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "call"), _PORTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_call_that_fails_or_is_late_costs_no_run(side: str, call: str, fault: str):
    for number in range(1, cases(9, 40), 3):
        run_virtually(_execute(Fault(side, call, number, **FAULTS[fault])))


@pytest.mark.parametrize("error", [Unavailable("the database is down"), RuntimeError("a bug"), None])
@pytest.mark.parametrize("executed", [False, True])
def test_a_report_that_cannot_be_applied_now_is_applied_later(error: Exception | None, executed: bool):
    for number in range(1, cases(9, 40), 3):
        raised = None if error is None else lambda: error
        run_virtually(_execute(Fault("replica", "apply", number, raised, executed, 40.0)))


def test_a_message_whose_worker_stops_at_any_await_is_reported_or_put_back():
    async def story() -> None:
        broker = Broker(Fault("", "", 0))
        connection = _Connection(broker, "worker")
        functions = FunctionLauncher()
        functions.register("work", lambda: "done")
        functions._in_thread = _call_here  # type: ignore[method-assign]
        worker = QueueWorker(cast(NatsConnection, connection), functions, WorkerOptions())

        async def prepare() -> None:
            broker.work.add(*_message_of(f"{ID}{len(broker.work.entries):03}"))

        async def handle() -> None:
            (entry,) = await broker.work.next(1)
            await worker._handle(connection._message(entry))

        async def check() -> None:
            entry = broker.work.entries[-1]
            run_id = entry.headers["x-wakeful-run-id"]
            reported = any(f"{run_id}-1-outcome" == each for each in broker.results.ids)
            assert reported or (not entry.done and entry.ready_at <= asyncio.get_running_loop().time())
            assert not worker._executing
            assert asyncio.all_tasks() == {asyncio.current_task()}
            entry.done = True

        assert await cancel_at_each_await(handle, check, prepare=prepare) > 10

    run_virtually(story())


def test_a_function_that_was_not_started_has_not_failed_and_its_message_is_put_back():
    async def story() -> None:
        broker = Broker(Fault("", "", 0))
        connection = _Connection(broker, "worker")
        answers = [Failed("no thread is free", reason="not_started", counted=False), "done"]
        functions = FunctionLauncher()
        functions.register("work", lambda: answers.pop(0))
        functions._in_thread = _call_here  # type: ignore[method-assign]
        worker = QueueWorker(cast(NatsConnection, connection), functions, WorkerOptions())
        broker.work.add(*_message_of(f"{ID}000"))
        for done in (False, True):
            (entry,) = await broker.work.next(1)
            await worker._handle(connection._message(entry))
            assert entry.done == done
        reports = [json.loads(each.data)["status"] for each in broker.results.entries]
        assert reports == ["running", "running", "succeeded"]

    run_virtually(story())


async def _call_here(function: Callable[[], Any], takes_run: bool, run: Launch) -> Any:
    return function()
