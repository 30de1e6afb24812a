"""Events over a WebSocket: filters, exactly-once delivery and slow clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import served
from tests.support.rpc_client import Caller, calling
from tests.support.waiting import PATIENCE, eventually, over
from wakeful import Wakeful
from wakeful.api.rpc.connection import Protocol
from wakeful.engine.exposition import new_registry

ReceivedEvent = dict[str, Any]


def new(new_app: NewApp) -> Wakeful:
    app = new_app()
    app.function("nothing")(lambda: None)
    return app


async def create(call: Caller, name: str = "digest", **fields: object) -> None:
    target = {"kind": "function", "name": "nothing"}
    await call("cron.create", name=name, schedule=SELDOM, target=target, **fields)


async def run(call: Caller, name: str = "digest", **params: object) -> str:
    return str((await call("cron.run", jobId=name, **params))["run"]["id"])


def finished(run_id: str) -> Callable[[ReceivedEvent], bool]:
    return lambda received: received["event"] == "run.finished" and received["data"]["run"]["id"] == run_id


async def test_events_are_pushed_after_a_subscription(new_app: NewApp):
    app = new(new_app)
    async with app, served(app) as operator, calling(operator) as call:
        await create(call, "before")
        subscribed = await call("events.subscribe")
        await create(call)
        run_id = await run(call)
        made, started, ended = await call.until(finished(run_id))
        assert [each["event"] for each in (made, started, ended)] == [
            "job.changed", "run.started", "run.finished"
        ]  # fmt: skip
        assert [each["seq"] for each in (made, started, ended)] == [
            subscribed["after"] + n for n in (1, 2, 3)
        ]
        assert (made["data"]["job"], made["data"]["deleted"]) == ("digest", False)
        assert ended["data"]["run"]["state"] == "succeeded"

        assert await call("events.unsubscribe") == {"unsubscribed": True}
        assert await call("events.unsubscribe") == {"unsubscribed": False}
        await call("cron.delete", jobId="digest")
        await call("events.subscribe", after=ended["seq"])
        gone = await call.next_event()
        assert (gone["event"], gone["data"]["deleted"]) == ("job.changed", True)


async def test_a_reconnecting_client_receives_each_missed_event_once(new_app: NewApp):
    app = new(new_app)
    async with app, served(app) as operator, calling(operator) as doing:
        await create(doing)
        async with calling(operator) as call:
            await call("events.subscribe")
            first = await run(doing)
            received = await call.until(finished(first))
        meanwhile = [await run(doing) for _ in range(3)]
        for run_id in meanwhile:
            await over(app, run_id)
        async with calling(operator) as call:
            await call("events.subscribe", after=received[-1]["seq"])
            last = await run(doing)
            received += await call.until(finished(last))
    seqs = [each["seq"] for each in received]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    for run_id in (first, *meanwhile, last):
        told = [each["event"] for each in received if each["data"]["run"]["id"] == run_id]
        assert told == ["run.started", "run.finished"]


async def test_no_event_is_missed_during_a_server_restart(new_app: NewApp):
    app = new(new_app)
    async with app:
        async with served(app) as operator:
            member = await operator.new("member")
            async with calling(operator) as call:
                after = (await call("events.subscribe"))["after"]
        await app.jobs.create("digest", schedule=SELDOM)
    again = new(new_app)
    async with again:
        await again.jobs.create("other", schedule=SELDOM)
        async with served(again) as operator, calling(operator.with_key(member.key)) as call:
            await call("events.subscribe", after=after)
            received = [await call.next_event(), await call.next_event()]
    assert [(each["seq"], each["data"]["job"]) for each in received] == [
        (after + 1, "digest"), (after + 2, "other")
    ]  # fmt: skip


@on_one_store
async def test_an_unknown_sequence_number_causes_a_reset_event(new_app: NewApp):
    app = new(new_app)
    async with app, served(app) as operator, calling(operator) as call:
        subscribed = await call("events.subscribe", after=10**9)  # a sequence number of another database
        assert subscribed["after"] == 10**9
        assert (await call.next_event())["event"] == "reset"


@on_one_store
async def test_events_are_filtered_by_type_job_and_agent(new_app: NewApp):
    app = new(new_app)
    async with (
        app,
        served(app) as operator,
        calling(operator) as doing,
        calling(operator) as ends,
        calling(operator) as others,
        calling(await operator.new("agent", agent="ada")) as adas,
    ):
        await ends("events.subscribe", types=["run.finished"])
        await others("events.subscribe", jobId="nobody")
        await others("events.subscribe", jobId="other")  # replaces the first subscription
        await adas("events.subscribe")
        await create(doing)
        await create(doing, "other")
        await create(doing, "hers", agentId="ada")
        await over(app, await run(doing))
        run_id = await run(doing, "other")
        await over(app, run_id)
        hers = await run(doing, "hers", agentId="ada")
        assert {each["event"] for each in await ends.until(finished(hers))} == {"run.finished"}
        assert {each["data"]["job"] for each in await others.until(finished(run_id))} == {"other"}
        assert {each["data"]["agentId"] for each in await adas.until(finished(hers))} == {"ada"}


@on_one_store
async def test_authenticating_with_another_key_ends_the_subscription(new_app: NewApp):
    app = new(new_app)
    async with app, served(app) as operator, calling(operator) as call:
        await call("events.subscribe")
        ada = await operator.new("agent", agent="ada")
        await call("auth", token=ada.key)
        assert await call("events.unsubscribe") == {"unsubscribed": False}


@pytest.mark.slow
async def test_a_slow_client_is_dropped_and_delays_no_other(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.api.rpc.connection.SEND_TIMEOUT_S", 1.0)
    # The client reads its close frame only after the other client has read everything.
    monkeypatch.setattr("wakeful.api.rpc.connection.CLOSE_TIMEOUT_S", 600.0)
    app = new(new_app)
    async with (
        app,
        served(app) as operator,
        calling(operator) as doing,
        calling(operator, max_queue=1) as slow,
        calling(operator, max_queue=None) as quick,
    ):
        await create(doing)
        after = (await slow("events.subscribe"))["after"]
        await quick("events.subscribe")
        payload = "x" * 60_000  # 300 of them exceed the network buffers
        runs = [await app.jobs.run("digest", payload=payload) for _ in range(150)]
        received = [await quick.next_event() for _ in range(2 * len(runs))]
        wanted = list(range(after + 1, after + 1 + len(received)))
        assert [each["seq"] for each in received] == wanted
        await eventually(lambda: len(app.services.events._listeners) == 1)
        assert (await doing("cron.status"))["running"] is True
        metrics = new_registry(app.services.metrics)
        assert metrics.get_sample_value("wakeful_rpc_dropped_total", {"reason": "slow"}) == 1

        taken: list[int] = []
        with contextlib.suppress(ConnectionClosed):
            while True:  # events sent before the drop
                taken.append((await slow.next_event())["seq"])
        code, reason = await slow.closed()
        assert (code, "reconnect" in str(reason)) == (1013, True)
        assert 0 < len(taken) < len(wanted)

        async with calling(operator) as again:
            await again("events.subscribe", after=taken[-1])
            taken += [(await again.next_event())["seq"] for _ in range(len(wanted) - len(taken))]
        assert taken == wanted


@pytest.mark.slow
@on_one_store
async def test_a_client_that_reads_nothing_is_disconnected(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.api.rpc.connection.SEND_TIMEOUT_S", 0.1)
    monkeypatch.setattr("wakeful.api.rpc.connection.CLOSE_TIMEOUT_S", 0.1)
    lost = asyncio.Event()
    really = Protocol.connection_lost

    def connection_lost(self: Protocol, error: Exception | None) -> None:
        really(self, error)
        lost.set()

    monkeypatch.setattr(Protocol, "connection_lost", connection_lost)
    app = new(new_app)
    async with app, served(app) as operator, calling(operator, max_queue=1) as slow:
        await create(slow)
        await slow("events.subscribe")
        for _ in range(150):
            await app.jobs.run("digest", payload="x" * 60_000)
        async with asyncio.timeout(PATIENCE):
            await lost.wait()  # though the client reads nothing
        assert not app.services.events._listeners


@on_one_store
async def test_pings_of_a_client_that_reads_nothing_do_not_fill_the_memory(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    protocols: list[Protocol] = []
    really = Protocol.connection_made

    def connection_made(self: Protocol, transport: asyncio.Transport) -> None:
        protocols.append(self)
        really(self, transport)

    monkeypatch.setattr(Protocol, "connection_made", connection_made)
    ping = b"\x89\xfd\0\0\0\0" + bytes(125)
    app = new(new_app)
    async with app, served(app) as operator:
        address = urlsplit(operator.url)
        reading, writing = await asyncio.open_connection(address.hostname, address.port, limit=1024)
        writing.write(
            f"GET /ws HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {operator.key}\r\n"
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        await reading.readuntil(b"\r\n\r\n")
        transport = protocols[0].transport
        for _ in range(100):  # 13 MB, more than the network holds
            writing.write(ping * 1_000)
            await writing.drain()
            assert transport.get_write_buffer_size() < 1_000_000
        writing.transport.abort()
