"""`wakeful.remote.Worker` against a real server: claims, leases, reports, outages and the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.integration.service.runs.test_executors import end_leases
from tests.support.api_client import JOBS, ApiClient
from tests.support.network_link import network_link
from tests.support.waiting import PATIENCE, eventually, over
from wakeful import AlreadyExists, Permanent, Run, Unauthenticated
from wakeful.client.types import HeartbeatsShape
from wakeful.errors import InvalidArgument
from wakeful.remote import Result, Worker, WorkerConfig
from wakeful.remote.reporter import ReconnectBackoff

QUICK = WorkerConfig(
    wait_ms=1_000, heartbeat_s=0.05, timeout_s=PATIENCE, drain_s=PATIENCE, backoff=ReconnectBackoff(0.01, 0.1)
)
pytestmark = on_one_store


def new_worker(
    ask: ApiClient, config: WorkerConfig = QUICK, url: str | None = None, slots: int = 10
) -> Worker:
    return Worker(url or ask.url, ask.key, name="remote-1", concurrency=slots, config=config)


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """Run a worker until the end of the block."""
    task = asyncio.create_task(worker.serve())
    try:
        yield task
        worker.stop()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def start(ask: ApiClient, name: str, **fields: object) -> str:
    """Start a run of a job that waits for an executor, and return its id."""
    body = {"schedule": SELDOM, "target": {"kind": "pull"}, **fields}
    assert (await ask("PUT", f"{JOBS}/{name}", body)).status in (200, 201)
    return str((await ask("POST", f"{JOBS}/{name}/run")).body["id"])


async def test_functions_execute_the_runs_of_their_jobs(ask: ApiClient):
    worker = new_worker(ask)

    @worker.function("awaited")
    async def awaited(run: Run) -> Result:
        return Result({"sent": run.payload}, usage={"tokens": 7}, evidence={"external_id": "inv-17"})

    @worker.function("in-a-thread")
    def in_a_thread() -> str:
        return threading.current_thread().name

    @worker.function("default/hopeless")
    async def hopeless() -> None:
        raise Permanent("the customer has left")

    @worker.function("failing")
    def failing(run: Run) -> None:
        raise ValueError(f"attempt {run.attempt}")

    @worker.handler
    async def other(run: Run) -> str:
        return f"other: {run.job}"

    with pytest.raises(AlreadyExists):
        worker.function("awaited")(failing)
    unnamed: Any = failing
    with pytest.raises(InvalidArgument, match="write the name of the job"):
        worker.function(unnamed)
    again = {"maxAttempts": 2, "backoff": {"baseMs": 1, "maxMs": 1}}
    fields: dict[str, dict[str, object]] = {
        "awaited": {"payload": "me"}, "in-a-thread": {}, "hopeless": again, "failing": again, "another": {},
    }  # fmt: skip
    ids = {name: await start(ask, name, **more) for name, more in fields.items()}
    async with serving(worker):
        runs = {name: await over(ask.app, run_id) for name, run_id in ids.items()}
    assert runs["awaited"].output == '{"sent":"me"}'
    assert (runs["awaited"].usage, runs["awaited"].evidence) == ({"tokens": 7}, {"external_id": "inv-17"})
    assert runs["awaited"].worker == "remote-1"
    assert runs["in-a-thread"].output == "wakeful-function"
    assert (runs["hopeless"].error, runs["hopeless"].attempt) == ("the customer has left", 1)
    assert (runs["failing"].error, runs["failing"].attempt) == ("ValueError: attempt 2", 2)
    assert runs["another"].output == "other: another"


async def test_a_worker_runs_in_a_thread_of_another_program(ask: ApiClient):
    worker = new_worker(ask)

    @worker.handler
    async def work() -> str:
        worker.stop()
        return "done"

    run_id = await start(ask, "report")
    await asyncio.to_thread(worker.run)
    assert (await over(ask.app, run_id)).output == "done"


async def test_a_run_without_a_function_fails(ask: ApiClient):
    worker = new_worker(ask)
    worker.function("digest")(lambda: None)
    run_id = await start(ask, "report", maxAttempts=1)
    async with serving(worker):
        run = await over(ask.app, run_id)
    assert run.error == "this worker has no function for 'report'; known: digest"


async def test_a_worker_executes_as_many_runs_as_it_has_slots_and_reports_them_together(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    worker = new_worker(ask, slots=3)
    at_once = most = 0
    full = asyncio.Event()

    @worker.handler
    async def handle(run: Run) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 3:
            full.set()
        await full.wait()
        at_once -= 1

    sizes: list[int] = []
    complete_runs = worker._rest.complete_runs

    async def counted(*, runs):
        sizes.append(len(runs))
        return await complete_runs(runs=runs)

    monkeypatch.setattr(worker._rest, "complete_runs", counted)
    ids = [await start(ask, f"job-{number}") for number in range(3)]
    async with serving(worker):
        for run_id in ids:
            await over(ask.app, run_id)
    assert (most, sizes) == (3, [3])


async def test_a_handler_is_cancelled_when_its_run_is_stopped(ask: ApiClient):
    worker = new_worker(ask)
    ended: list[str] = []
    threads_may_end = threading.Event()

    @worker.function("awaited")
    async def awaited(run: Run) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("awaited")

    @worker.function("in-a-thread")
    def in_a_thread(run: Run) -> None:
        while not worker.is_lost(run):
            threads_may_end.wait(0.01)
        ended.append("in-a-thread")

    ids = [await start(ask, name) for name in ("awaited", "in-a-thread")]
    async with serving(worker):
        await eventually(lambda: worker.running == 2)
        for run_id in ids:
            assert (await ask("POST", f"/runs/{run_id}/stop")).status == 200
        await eventually(lambda: len(ended) == 2 and worker.running == 0)
    assert sorted(ended) == ["awaited", "in-a-thread"]
    assert [(await over(ask.app, run_id)).state for run_id in ids] == ["cancelled", "cancelled"]


async def test_work_that_ends_during_an_outage_is_reported_after_it(ask: ApiClient):
    async with network_link(ask.url) as link:
        worker = new_worker(ask, url=link.url)
        may_end = asyncio.Event()

        @worker.handler
        async def handle(run: Run) -> str:
            await may_end.wait()
            return "done"

        run_id = await start(ask, "digest")
        async with serving(worker):
            await eventually(lambda: worker.running)  # the response to its claim has arrived
            await link.cut()
            await eventually(lambda: not worker.reachable)
            may_end.set()
            await eventually(lambda: worker.running == 0)
            assert (await ask.app.runs.get(run_id)).state == "running"
            await link.restore()
            run = await over(ask.app, run_id)
    assert (run.state, run.output, run.attempt) == ("succeeded", "done", 1)


async def test_an_outcome_is_refused_if_another_has_the_run(ask: ApiClient):
    async with network_link(ask.url) as link:
        worker = new_worker(ask, url=link.url, slots=1)  # so that no claim waits
        may_end = asyncio.Event()

        @worker.handler
        async def handle(run: Run) -> str:
            await may_end.wait()
            return "late"

        run_id = await start(ask, "digest")
        async with serving(worker):
            await eventually(lambda: worker.running)  # the response to its claim has arrived
            await link.cut()
            await end_leases(ask.app)
            (other,) = await ask.app.runs.claim("other")
            may_end.set()
            await eventually(lambda: worker.running == 0)
            await link.restore()
            await eventually(lambda: not worker._held)
        assert (await ask.app.runs.get(run_id)).state == "running"
        await ask.app.runs.complete(other, "succeeded", output="in time")
    assert (await over(ask.app, run_id)).output == "in time"


async def test_a_worker_finishes_its_runs_before_it_stops(ask: ApiClient):
    worker = new_worker(ask, slots=1)
    begun, may_end = asyncio.Event(), asyncio.Event()

    @worker.handler
    async def handle(run: Run) -> str:
        begun.set()
        await may_end.wait()
        return "done"

    first, second = await start(ask, "first"), await start(ask, "second")
    async with asyncio.timeout(PATIENCE), serving(worker) as task:
        await begun.wait()
        worker.stop()
        await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        await task
    states = {run_id: (await ask.app.runs.get(run_id)).state for run_id in (first, second)}
    assert states == {first: "succeeded", second: "pending"}


async def test_a_handler_that_does_not_finish_in_time_fails(ask: ApiClient):
    worker = new_worker(ask)

    @worker.handler
    async def handle(run: Run) -> None:
        await asyncio.Event().wait()

    run_id = await start(ask, "digest", maxAttempts=1)
    async with serving(worker):
        await eventually(lambda: worker.running)
        worker.stop()  # the second call, at the end of the block, cancels it
    run = await over(ask.app, run_id)
    assert (run.state, run.error) == ("failed", "its worker stopped before it had finished")


async def test_a_run_is_adopted_by_another_worker(ask: ApiClient):
    run_id = await start(ask, "digest")
    first = new_worker(ask, WorkerConfig(wait_ms=1_000, leave_running=True))
    first.handler(asyncio.Event().wait)
    async with serving(first):
        await eventually(lambda: first.running)
    claimed = await ask.app.runs.get(run_id)
    assert claimed.state == "running"

    second = new_worker(ask)
    second.handler(lambda: "adopted")
    second.adopt(claimed)
    async with serving(second):
        run = await over(ask.app, run_id)
    assert (run.output, run.attempt) == ("adopted", 1)


async def test_an_outcome_that_the_server_does_not_accept_is_a_failure(ask: ApiClient):
    worker = new_worker(ask)
    worker.function("long")(lambda: Result("done", evidence={"text": "x" * 20_000}))
    worker.function("odd")(lambda: Result("done", usage={"at": object()}))
    ids = [await start(ask, name, maxAttempts=1) for name in ("long", "odd")]
    async with serving(worker):
        errors = [(await over(ask.app, run_id)).error or "" for run_id in ids]
    assert "its outcome was refused" in errors[0]
    assert "usage is not JSON" in errors[1]


async def test_a_worker_with_a_wrong_key_stops(ask: ApiClient):
    worker = Worker(ask.url, "wk_wrong", config=QUICK)
    with pytest.raises(Unauthenticated):
        await worker.serve()


async def test_a_server_that_knows_no_waits_renews_leases_nevertheless(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    worker, done = new_worker(ask), asyncio.Event()
    renew, refused = worker.client.heartbeat_runs, 0

    async def older(*, runs: Sequence[Mapping[str, object]], waiting_for: object = None) -> HeartbeatsShape:
        nonlocal refused
        if waiting_for:
            refused += 1
            raise InvalidArgument("waitingFor: unknown field")
        return await renew(runs=runs)

    monkeypatch.setattr(worker.client, "heartbeat_runs", older)

    @worker.handler
    async def wait(run: Run) -> None:
        worker.show_waiting(run, "a node")
        await done.wait()

    run_id = await start(ask, "digest")
    async with serving(worker):
        await eventually(lambda: refused)
        assert await worker.heartbeat()
        done.set()
        assert (await over(ask.app, run_id)).state == "succeeded"
    assert refused == 1
