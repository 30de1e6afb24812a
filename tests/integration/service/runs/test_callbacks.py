"""A run with `completion: callback` can be completed once, as soon as its attempt is running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, Reply, served
from tests.support.receiver import Receiver, serving
from tests.support.waiting import eventually, in_state, over
from wakeful import Attempt, FailedPrecondition, Function, Wakeful, Webhook
from wakeful.service.auth.access import LOCAL

#: One run at a time: the next one starts when the slot of the one before is free.
NARROW = replace(QUICK, lanes={"cron": 1})


@pytest.fixture
async def ask(new_app: NewApp) -> AsyncIterator[ApiClient]:
    app = new_app(config=NARROW)
    async with app, served(app) as caller:
        yield caller


class CallingBack(Receiver):
    """Completes each run before it responds to its request."""

    def __init__(self, ask: ApiClient, outcome: dict[str, Any]) -> None:
        super().__init__()
        self._ask = ask
        self._outcome = outcome
        self.replies: list[Reply] = []
        #: set when the response may be sent
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        attempt = int(request.headers["x-wakeful-attempt"])
        path = f"{HOME}/runs/{request.headers['x-wakeful-run-id']}/complete"
        self.replies.append(await self._ask("POST", path, {"attempt": attempt, **self._outcome}))
        await self.go_on.wait()
        return await super().__call__(request)


async def launched(app: Wakeful, url: str, name: str = "research", **fields: Any) -> str:
    """Create a job with a callback target, start a run and return its id."""
    await app.jobs.create(name, schedule=SELDOM, target=Webhook(url, completion="callback"), **fields)
    return (await app.jobs.run(name)).id


async def test_a_callback_before_the_response_completes_the_run_without_a_retry(
    ask: ApiClient, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    async with serving(CallingBack(ask, {"status": "succeeded", "output": "three papers"})) as receiver:
        assert isinstance(receiver, CallingBack)
        for n in range(5):
            run_id = await launched(ask.app, receiver.url, f"research-{n}")
            run = await over(ask.app, run_id)
            assert (run.state, run.output, run.attempt) == ("succeeded", "three papers", 1)
        await eventually(lambda: len(receiver.replies) >= 5)
        assert [reply.status for reply in receiver.replies] == [200] * 5
        assert len(receiver.bodies) <= 5
    await ask.app.stop()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("wakeful")] == []


async def test_a_completed_run_frees_its_slot_before_its_receiver_responds(ask: ApiClient):
    async with serving(CallingBack(ask, {"status": "succeeded"})) as receiver:
        assert isinstance(receiver, CallingBack)
        receiver.go_on.clear()  # no request gets a response yet
        first = await launched(ask.app, receiver.url, "first")
        second = await launched(ask.app, receiver.url, "second")
        for run_id in (first, second):
            assert (await over(ask.app, run_id)).state == "succeeded"
        receiver.go_on.set()


async def test_a_connection_error_after_the_callback_changes_nothing(ask: ApiClient):
    async with serving(CallingBack(ask, {"status": "succeeded", "output": "done"})) as receiver:

        async def cut(request: web.BaseRequest) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        receiver.answer = cut
        run_id = await launched(ask.app, receiver.url, max_attempts=3)
        await over(ask.app, run_id)
        after = await launched(ask.app, receiver.url, "after")  # starts when the slot of the first is free
        assert (await over(ask.app, after)).state == "succeeded"
        run = await ask.app.runs.get(run_id)
        assert (run.state, run.output, run.attempt, run.error) == ("succeeded", "done", 1, None)
        assert list(await ask.app.runs.attempts(run_id)) == [
            Attempt(1, run.worker, run.started_at, run.finished_at, None, None)
        ]


async def test_a_failure_callback_before_the_response_starts_the_next_attempt(ask: ApiClient):
    outcome = {"status": "failed", "error": "out of paper"}
    async with serving(CallingBack(ask, outcome)) as receiver:
        assert isinstance(receiver, CallingBack)
        run_id = await launched(ask.app, receiver.url, max_attempts=3, backoff={"baseMs": 1, "maxMs": 1})
        run = await over(ask.app, run_id)
        assert (run.state, run.attempt, run.error) == ("failed", 3, "out of paper")
        await eventually(lambda: len(receiver.replies) >= 3)
        assert [reply.status for reply in receiver.replies] == [200] * 3
        earlier = await ask.app.runs.attempts(run_id)
        assert [(each.attempt, each.error) for each in earlier] == [(n, "out of paper") for n in (1, 2, 3)]


async def test_a_callback_is_accepted_by_another_replica(new_app: NewApp, receiver: Receiver):
    posted, answer = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        posted.set()
        await answer.wait()
        return web.Response(status=202)

    receiver.answer = slow
    async with new_app(config=NARROW) as launching:
        run_id = await launched(launching, receiver.url)
        await posted.wait()
        async with new_app() as other:
            done = await other.runs.complete(run_id, "succeeded", output="elsewhere")
            assert (done.state, done.output) == ("succeeded", "elsewhere")
            with pytest.raises(FailedPrecondition, match="succeeded"):
                await launching.runs.complete(run_id, "failed")
        second = launching.jobs.run("research")
        await second
        await eventually(lambda: len(receiver.bodies) == 2)  # the slot of the first is free
        answer.set()
        assert (await launching.runs.get(run_id)).output == "elsewhere"


async def test_a_workflow_with_a_callback_is_completed_before_the_response(ask: ApiClient):
    async with serving(CallingBack(ask, {"status": "succeeded", "output": "built"})) as receiver:
        await ask.app.services.admin.workflows.put(LOCAL, "default", "build", 1, {"nodes": []})
        hook = {"kind": "webhook", "url": receiver.url, "completion": "callback"}
        target = {"kind": "workflow", "workflowId": "build", "version": 1, "to": hook}
        await ask.app.jobs.create("build", schedule=SELDOM, target=target)
        run = await over(ask.app, (await ask.app.jobs.run("build")).id)
        assert (run.state, run.output) == ("succeeded", "built")


async def test_only_runs_with_a_callback_target_can_be_completed_while_a_worker_runs_them(
    new_app: NewApp, receiver: Receiver
):
    app, go_on = new_app(), asyncio.Event()

    @app.function("think")
    async def think() -> str:
        await go_on.wait()
        return "thought"

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await go_on.wait()
        return web.Response(text="answered")

    receiver.answer = slow
    async with app:
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        await app.jobs.create("post", schedule=SELDOM, target=Webhook(receiver.url))
        runs = [(await app.jobs.run(name)).id for name in ("think", "post")]
        for run_id in runs:
            await in_state(app, run_id, "running")
            with pytest.raises(FailedPrecondition, match="callback"):
                await app.runs.complete(run_id, "succeeded", attempt=1, output="not so")
        go_on.set()
        assert [(await over(app, run_id)).output for run_id in runs] == ["thought", "answered"]


@on_one_store
@pytest.mark.parametrize("attempt", [0, 2, 7])
async def test_a_callback_for_another_attempt_is_refused(new_app: NewApp, receiver: Receiver, attempt: int):
    async with new_app() as app:
        run_id = await launched(app, receiver.url)
        await in_state(app, run_id, "running")
        with pytest.raises(FailedPrecondition, match="at attempt 1"):
            await app.runs.complete(run_id, "succeeded", attempt=attempt)
        assert (await app.runs.get(run_id)).state == "running"
        assert (await app.runs.complete(run_id, "succeeded", attempt=1)).state == "succeeded"
