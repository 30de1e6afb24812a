"""A request that is cancelled or fails at any await is done or not, and ends its subscription."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.interruptions import cancel_at_each_await, fail_at_each_call
from tests.support.waiting import eventually
from wakeful import Agent, Wakeful, on
from wakeful.api.http.dependencies import WorkspaceRequest
from wakeful.api.http.events import stream_events
from wakeful.api.rpc.connection import RpcConnection
from wakeful.errors import Unavailable
from wakeful.service.auth.access import LOCAL
from wakeful.service.idempotency import Reply
from wakeful.signal.signals import Signal
from wakeful.store.idempotency import InProgress
from wakeful.store.rows import RunFilter

pytestmark = on_one_store
each_fault = pytest.mark.parametrize("fault", ["cancelled", "failed"])


class Counter(Agent):
    name = "counter"

    @on("count")
    async def count(self) -> None: ...


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    app = new_app()
    app.agent(Counter)
    async with app:
        yield app


async def _interrupt(
    app: Wakeful,
    fault: str,
    operation: Callable[[], Coroutine[Any, Any, object]],
    check: Callable[[], Awaitable[object]],
) -> None:
    if fault == "cancelled":
        assert await cancel_at_each_await(operation, check) >= 2
    else:
        assert await fail_at_each_call(app.store, operation, check) >= 2


@each_fault
@pytest.mark.parametrize("kind", ["keyed", "claimed"])
async def test_an_interrupted_keyed_request_is_performed_once(app: Wakeful, fault: str, kind: str):
    service, jobs, number = app.services.idempotency, app.services.jobs, 0

    async def create() -> Reply:
        name = f"job-{number}"
        document = {"name": name, "schedule": SELDOM}

        async def operation(keyed: Any = None) -> Any:
            return await jobs.create(LOCAL, "default", "default", document, keyed=keyed)

        perform: Any = service.perform if kind == "keyed" else service.perform_claimed
        reply: Reply = await perform(
            LOCAL, "default", name, [name], operation, lambda _: Reply(201, {}, "{}")
        )
        return reply

    async def check() -> None:
        nonlocal number
        assert service._in_progress == {}
        # Its response may be lost, but not what it has done.
        with contextlib.suppress(*((InProgress,) if kind == "claimed" else ())):
            assert (await create()).status == 201
        assert await app.store.job("default", "default", f"job-{number}") is not None
        number += 1

    await _interrupt(app, fault, create, check)


async def test_each_of_the_claimed_requests_that_come_together_is_performed_once(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    service, jobs = app.services.idempotency, app.services.jobs

    async def lose_response(*args: object) -> None:
        raise Unavailable("the database is being restarted")

    async def create(name: str) -> Reply:
        return await service.perform_claimed(
            LOCAL, "default", name, [name],
            lambda: jobs.create(LOCAL, "default", "default", {"name": name, "schedule": SELDOM}),
            lambda _: Reply(201, {}, "{}"),
        )  # fmt: skip

    monkeypatch.setattr(app.store, "keep_response", lose_response)
    names = [f"job-{number}" for number in range(5)]
    first = await asyncio.gather(*map(create, names), return_exceptions=True)
    again = await asyncio.gather(*map(create, names), return_exceptions=True)
    assert [type(each) for each in first] == [Unavailable] * len(names)
    assert [type(each) for each in again] == [InProgress] * len(names)


async def test_a_change_that_is_written_is_no_error_if_its_warnings_cannot_be_read(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*args: object) -> None:
        raise Unavailable("the database is being restarted")

    jobs, job = app.services.jobs, (LOCAL, "default", "default", "a")
    await jobs.create(*job[:3], {"name": "a", "schedule": SELDOM})
    for read in ("jobs_before", "followers", "runs"):
        monkeypatch.setattr(app.store, read, fail)
    hook = {"kind": "webhook", "url": "http://127.0.0.1:1/"}
    assert (await jobs.update(*job, {"target": hook, "after": {"job": "b"}})).secret is not None
    assert await jobs.delete(*job) == ()


@each_fault
async def test_an_interrupted_signal_is_received_once(app: Wakeful, fault: str):
    number = 0

    async def send() -> None:
        signal = Signal("count", id=f"signal-{number}")
        await app.services.agents.signals.send(LOCAL, "default", "counter", "default", [signal])

    async def check() -> None:
        nonlocal number
        await send()
        number += 1
        await eventually(lambda: _is_handled(app, number))

    await _interrupt(app, fault, send, check)


async def _is_handled(app: Wakeful, count: int) -> bool:
    runs = await app.store.runs(RunFilter("default", agent="counter", limit=1_000))
    assert len(runs) <= count
    return [run.state for run in runs] == ["succeeded"] * count


class _Socket:
    """A WebSocket whose client subscribes twice, and disconnects after the second response."""

    client = None
    scope: dict[str, Any] = {}

    def __init__(self, key: str) -> None:
        self.headers = {"authorization": f"Bearer {key}"}
        subscribe = json.dumps({"id": 1, "method": "events.subscribe", "params": {}})
        self._messages = [{"type": "websocket.receive", "text": subscribe}] * 2
        self.application_state = None

    async def accept(self, subprotocol: str | None) -> None:
        await asyncio.sleep(0)

    async def receive(self) -> dict[str, str]:
        await asyncio.sleep(0)
        return self._messages.pop() if self._messages else {"type": "websocket.disconnect"}

    async def send_text(self, text: str) -> None:
        await asyncio.sleep(0)


@each_fault
@pytest.mark.parametrize("kind", ["rpc", "events", "summaries"])
async def test_an_interrupted_stream_ends_its_subscription(app: Wakeful, fault: str, kind: str):
    services = app.services
    _, key = await services.auth.keys.create(LOCAL, None, {"name": "test", "role": "admin"})
    principal = await services.auth.keys.authenticate(key, None, None)

    async def stream() -> None:
        if kind == "rpc":
            await RpcConnection(_Socket(key), services).serve()  # type: ignore[arg-type]
            return
        disconnected = asyncio.Event()

        async def receive() -> Any:
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await asyncio.sleep(0)
            if b"id:" in message.get("body", b""):
                disconnected.set()

        scope = {
            "type": "http",
            "headers": [(b"authorization", f"Bearer {key}".encode())],
            "asgi": {"spec_version": "2.3"},
            "app": SimpleNamespace(state=SimpleNamespace(services=services)),
        }
        request = Request(scope)
        response = await stream_events(
            WorkspaceRequest(request, services, principal, "default"), None, None, None, None,
            250 if kind == "summaries" else None, None,
        )  # fmt: skip
        with contextlib.suppress(ExceptionGroup):
            await response(scope, receive, send)

    async def check() -> None:
        assert not services.auth.connection_limits.open()
        assert len(services.auth.open_uses) == 0
        assert len(services.events._listeners) == 0
        assert services.live._channels == {}
        assert (services.events._reader, services.live._reader) == (None, None)
        await eventually(
            lambda: "wakeful-rpc-events" not in {task.get_name() for task in asyncio.all_tasks()}
        )

    await _interrupt(app, fault, stream, check)
