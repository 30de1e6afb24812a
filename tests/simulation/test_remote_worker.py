"""`remote.Worker` on virtual time, against a server whose responses are lost, wrong or late.

Every run may be attempted once. So each lost claim, heartbeat or report that the worker does not repair shows
as a run that failed, was executed twice, or is never over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.simulation.virtual_loop import run_virtually
from tests.support.effort import part
from tests.support.interruptions import cancel_at_each_await
from wakeful.client.rest import RestClient
from wakeful.errors import Unavailable
from wakeful.remote import Result, Worker, WorkerConfig
from wakeful.remote.handlers import run_report
from wakeful.remote.reporter import ReconnectBackoff, Reporter

LEASE_S = 30.0
WAY_S = 0.05
CONFIG = WorkerConfig()


@dataclass
class HeldRun:
    """A run of the model."""

    id: str
    state: str = "pending"
    attempt: int = 0
    claim_id: str | None = None
    worker: str | None = None
    lease_until: float = 0.0
    output: str | None = None


@dataclass
class Fault:
    """What happens to one request of a kind."""

    kind: str
    #: its number among the requests of the kind
    number: int
    #: changes the response; it may raise
    answer: Callable[[Any], Any]
    #: whether the server executes the request
    executed: bool = True
    pause_s: float = 0.0


@dataclass
class ModelServer:
    """A server without disconnect detection, as behind a proxy: only releases and leases return runs."""

    runs: dict[str, HeldRun]
    faults: list[Fault] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def client(self) -> RestClient:
        client = RestClient("http://model", "wk_model", run_id="")
        client._connection.request = self.request  # type: ignore[method-assign, assignment]
        return client

    async def request(
        self, method: str, path: str, *, body: Any, extra_timeout: float, **others: object
    ) -> Any:
        kind = path.rpartition("/")[2]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        fault = next((f for f in self.faults if (f.kind, f.number) == (kind, self.counts[kind])), None)
        # The server goes on if the client is gone.
        task = asyncio.create_task(self._serve(kind, body, fault))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            async with asyncio.timeout(10 + extra_timeout):
                return 200, await asyncio.shield(task)
        except TimeoutError:
            raise Unavailable("no response in time") from None

    async def _serve(self, kind: str, body: Any, fault: Fault | None) -> Any:
        await asyncio.sleep(WAY_S)
        reply = None
        if fault is None or fault.executed:
            reply = await getattr(self, kind)(body)
        await asyncio.sleep(WAY_S + (fault.pause_s if fault else 0.0))
        return reply if fault is None else fault.answer(reply)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for run in self.runs.values():
            if run.state == "running" and run.lease_until <= now:
                run.state = "expired"

    async def claim(self, body: Any) -> Any:
        loop = asyncio.get_running_loop()
        until = loop.time() + body["waitMs"] / 1000
        while body["claimId"] not in self.over:
            due = [run for run in self.runs.values() if run.state == "pending"][: body["limit"]]
            if due:
                for run in due:
                    run.state, run.worker, run.claim_id = "running", body["worker"], body["claimId"]
                    run.attempt, run.lease_until = run.attempt + 1, loop.time() + LEASE_S
                return {"runs": [self._shape(run) for run in due]}
            if loop.time() >= until:
                break
            await asyncio.sleep(0.1)
        return {"runs": []}

    def _shape(self, run: HeldRun) -> dict[str, Any]:
        at = "2027-01-15T08:00:00Z"
        absent = (
            "jobId", "triggeredBy", "reason", "untilAt", "dueAt", "startedAt", "finishedAt", "replayOf",
            "payload", "responseCode", "output", "error", "usage", "deliveryError",
        )  # fmt: skip
        return {
            **dict.fromkeys(absent), "id": run.id, "attempt": run.attempt, "job": "digest",
            "agentId": "default", "workspace": "default", "state": "running", "trigger": "schedule",
            "lane": "cron", "scheduledAt": at, "fireAt": at, "createdAt": at, "covers": 1, "missed": 0,
            "failedAttempts": 0, "worker": run.worker, "idempotencyKey": run.id, "dead": False,
            "delivery": "not_requested", "target": {"kind": "pull"},
        }  # fmt: skip

    def _held(self, each: Any) -> HeldRun | None:
        self._expire()
        run = self.runs.get(each["id"])
        held = run is not None and run.state == "running" and run.attempt == each["attempt"]
        return run if held else None

    async def heartbeat(self, body: Any) -> Any:
        renewed = [run for each in body["runs"] if (run := self._held(each)) is not None]
        for run in renewed:
            run.lease_until = asyncio.get_running_loop().time() + LEASE_S
        ids = [run.id for run in renewed]
        return {"renewed": ids, "lost": [each["id"] for each in body["runs"] if each["id"] not in ids]}

    async def complete(self, body: Any) -> Any:
        results: list[Any] = []
        for each in body["runs"]:
            run = self._held(each)
            if run is None:
                results.append(
                    {"id": each["id"], "state": None, "code": "failed-precondition", "message": ""}
                )
                continue
            run.state, run.output = each["status"], each.get("output")
            results.append({"id": run.id, "state": run.state, "code": None, "message": None})
        return {"runs": results}

    async def release(self, body: Any) -> Any:
        self._expire()
        released = []
        for run in self.runs.values():
            if run.state == "running" and (run.worker, run.claim_id) == (body["worker"], body["claimId"]):
                run.state = "pending"
                released.append(run.id)
        self.over.add(body["claimId"])
        return {"released": released, "lost": []}


def _raise(error: Exception) -> Callable[[Any], Any]:
    def answer(reply: Any) -> Any:
        raise error

    return answer


def _with_bad_item(reply: Any) -> Any:
    """Replace the first item of each list by something else."""
    return {name: [None, *items[1:]] if items else items for name, items in reply.items()}


FAULTS: dict[str, Callable[[str, int], Fault]] = {
    "an empty body": lambda kind, n: Fault(kind, n, lambda reply: None),
    "an empty body, not executed": lambda kind, n: Fault(kind, n, lambda reply: None, executed=False),
    "another object": lambda kind, n: Fault(kind, n, lambda reply: {"ok": True}),
    "a list": lambda kind, n: Fault(kind, n, lambda reply: [1]),
    "text": lambda kind, n: Fault(kind, n, lambda reply: "ok"),
    "lists that are null": lambda kind, n: Fault(kind, n, lambda reply: dict.fromkeys(reply)),
    "one bad item": lambda kind, n: Fault(kind, n, _with_bad_item),
    "no response": lambda kind, n: Fault(kind, n, _raise(Unavailable("cut"))),
    "no connection": lambda kind, n: Fault(kind, n, _raise(Unavailable("cut")), executed=False),
    "an unexpected error": lambda kind, n: Fault(kind, n, _raise(RuntimeError("a bug"))),
    "a pause of 1 s": lambda kind, n: Fault(kind, n, lambda reply: reply, pause_s=1),
    "a pause of 3 s": lambda kind, n: Fault(kind, n, lambda reply: reply, pause_s=3),
    "a pause of 30 s": lambda kind, n: Fault(kind, n, lambda reply: reply, pause_s=30),
}


async def _execute(
    server: ModelServer, stops: list[float], until_s: float = 200.0, slow_s: float = 5.3
) -> dict[str, int]:
    """Run workers, each until it is stopped, the last to the end. Returns how often each run was executed."""
    executed: dict[str, int] = {}
    loop = asyncio.get_running_loop()

    async def serve(number: int, stop_at: float) -> None:
        worker = Worker(client=server.client(), name="model", concurrency=4, config=CONFIG)

        @worker.handler
        async def handle(run: Any) -> Result:
            executed[run.id] = executed.get(run.id, 0) + 1
            await asyncio.sleep(int(run.id) % 5 * slow_s)
            return Result(f"by {number}")

        loop.call_at(stop_at, worker.stop)
        await worker.serve()

    async with asyncio.TaskGroup() as group:
        for number, (start, stop) in enumerate(zip([0.0, *stops], [*stops, until_s], strict=True)):
            await asyncio.sleep(start - loop.time())
            group.create_task(serve(number, stop))
    left = [task.get_name() for task in asyncio.all_tasks() if "wakeful-remote" in task.get_name()]
    assert not left, left
    return executed


def _check(server: ModelServer, executed: dict[str, int]) -> None:
    states = {run.id: run.state for run in server.runs.values() if run.state != "succeeded"}
    assert states == {}
    assert executed == dict.fromkeys(server.runs, 1)


def _new_server(count: int, *faults: Fault) -> ModelServer:
    return ModelServer({str(number): HeldRun(str(number)) for number in range(count)}, [*faults])


@pytest.mark.parametrize("kind", ["claim", "heartbeat", "complete", "release"])
@pytest.mark.parametrize("fault", FAULTS)
def test_one_wrong_or_late_response_costs_no_run(kind: str, fault: str):
    for number in (1, 2, 3):
        faults = [FAULTS[fault](kind, number)]
        if kind == "release":  # which follows a lost response
            faults.append(FAULTS["no response"]("claim", 2))
        server = _new_server(20, *faults)
        executed = run_virtually(_execute(server, []))
        _check(server, executed)


@pytest.mark.parametrize("way", part([0.0, 0.03, 0.07, 0.1, 0.12, 0.2]))
def test_workers_that_are_restarted_under_load_execute_every_run_once(way: float):
    server = _new_server(0)

    async def story() -> dict[str, int]:
        async def add_runs() -> None:
            for number in range(200):
                server.runs[str(number)] = HeldRun(str(number))
                await asyncio.sleep(0.3)

        adding = asyncio.create_task(add_runs())
        executed = await _execute(server, [1.0 + 3.1 * number + way for number in range(18)], slow_s=0.3)
        await adding
        return executed

    _check(server, run_virtually(story()))


def test_a_worker_that_is_cancelled_at_any_await_keeps_no_run_and_leaves_no_task():
    worlds: list[tuple[ModelServer, dict[str, int]]] = []

    async def serve(stop_after: float) -> None:
        server, executed = worlds[-1]
        worker = Worker(client=server.client(), name="model", concurrency=2, config=CONFIG)

        @worker.handler
        async def handle(run: Any) -> str:
            executed[run.id] = executed.get(run.id, 0) + 1
            await asyncio.sleep(int(run.id) % 3 * 4.0)
            return "done"

        asyncio.get_running_loop().call_later(stop_after, worker.stop)
        await worker.serve()

    began = 0.0

    async def prepare() -> None:
        nonlocal began
        began = asyncio.get_running_loop().time()
        worlds.append((_new_server(6), {}))

    async def check() -> None:
        left = [task.get_name() for task in asyncio.all_tasks() if "wakeful-remote" in task.get_name()]
        assert not left, left
        over = {"succeeded", "failed"}
        if asyncio.get_running_loop().time() >= began + 30:  # cancelled while it stops: leases end
            over.add("expired")
        await serve(60.0)
        server, executed = worlds[-1]
        server._expire()
        assert {run.state for run in server.runs.values()} <= over
        assert set(executed.values()) == {1}

    async def story() -> None:
        assert await cancel_at_each_await(lambda: serve(30.0), check, prepare=prepare) > 20

    run_virtually(story())


class Unprintable:
    """A value that cannot be written in any way."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "result",
    [Unprintable(), {"a": Unprintable()}, Result(error=7), Result("x", usage=[1]), 10**5000],  # type: ignore[arg-type]
    ids=["value", "in a dict", "error", "usage", "number"],
)
def test_a_result_that_cannot_be_encoded_fails_its_run(result: object):
    async def story() -> ModelServer:
        server = _new_server(1)
        worker = Worker(client=server.client(), name="model", config=CONFIG)
        worker.handler(lambda: result)
        worker._handlers._in_thread = _call_here  # type: ignore[method-assign]
        asyncio.get_running_loop().call_at(60.0, worker.stop)
        await worker.serve()
        return server

    assert [run.state for run in run_virtually(story()).runs.values()] == ["failed"]


async def _call_here(function: Callable[[], Any], args: Any, abandoned: Any) -> Any:
    return function()


def test_a_handler_that_ignores_its_cancellation_frees_its_slot_and_does_not_hold_up_the_end():
    server = _new_server(3)

    async def story() -> tuple[dict[str, str], float]:
        worker = Worker(client=server.client(), name="model", concurrency=1, config=CONFIG)
        released = asyncio.Event()

        @worker.handler
        async def handle(run: Any) -> str:
            while run.id != "1" and not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()
            return "done"

        async def lose_the_first() -> None:
            await asyncio.sleep(5)
            server.runs["0"].state = "cancelled"

        losing = asyncio.create_task(lose_the_first())
        asyncio.get_running_loop().call_at(60.0, worker.stop)
        await worker.serve()
        await losing
        ended_at = asyncio.get_running_loop().time()
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        released.set()
        await asyncio.sleep(1)
        return {run.id: run.state for run in server.runs.values()}, ended_at

    states, ended_at = run_virtually(story())
    assert states == {"0": "cancelled", "1": "succeeded", "2": "failed"}
    assert ended_at < 60 + CONFIG.drain_s + 5


def test_a_handler_may_return_its_result_after_its_cancellation():
    server = _new_server(1)

    async def story() -> None:
        worker = Worker(client=server.client(), name="model", config=CONFIG)

        @worker.handler
        async def handle() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "a part of it"
            return "all"

        asyncio.get_running_loop().call_at(5.0, worker.stop)
        await worker.serve()

    run_virtually(story())
    assert [(run.state, run.output) for run in server.runs.values()] == [("succeeded", "a part of it")]


def test_a_run_that_cannot_be_read_fails_and_the_others_of_its_claim_succeed():
    def without_trigger(reply: Any) -> Any:
        return {"runs": [{**reply["runs"][0], "trigger": "unheard of"}, *reply["runs"][1:]]}

    server = _new_server(3, Fault("claim", 1, without_trigger))
    executed = run_virtually(_execute(server, []))
    assert [run.state for run in server.runs.values()] == ["failed", "succeeded", "succeeded"]
    assert executed == {"1": 1, "2": 1}


def test_a_late_refusal_of_one_attempt_does_not_drop_the_outcome_of_the_next():
    sent: list[list[tuple[str, int]]] = []

    class Runs:
        async def complete_runs(self, *, runs: Any) -> Any:
            sent.append([(each["id"], each["attempt"]) for each in runs])
            await asyncio.sleep(1)
            refused = {"state": None, "code": "failed-precondition", "message": "at attempt 2"}
            return [{"id": "7", **(refused if each["attempt"] == 1 else {"code": None})} for each in runs]

    async def story() -> list[tuple[str, int]]:
        done: list[tuple[str, int]] = []
        reporter = Reporter(Runs(), ReconnectBackoff(), lambda error: None, lambda *key: done.append(key))  # type: ignore[arg-type]
        sending = asyncio.create_task(reporter.run())
        reporter.submit(run_report("7", 1, Result("first")))
        await asyncio.sleep(0.5)
        reporter.submit(run_report("7", 2, Result("second")))
        async with asyncio.timeout(60):
            await reporter.flush()
        sending.cancel()
        return done

    assert run_virtually(story()) == [("7", 1), ("7", 2)]
    assert sent == [[("7", 1)], [("7", 2)]]
