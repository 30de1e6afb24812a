"""A server of MCP events is killed: no event is lost, and only what was in flight is sent again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from tests.integration.api.mcp.test_events import SECRET, Subscriber
from tests.support import prefork
from tests.support.api_client import JOBS, ApiClient
from tests.support.postgres_server import fresh_database
from tests.support.receiver import Receiver, serving
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import eventually
from wakeful.launch.secrets import format_secret, is_signed
from wakeful.signal.mcp_events import event_id
from wakeful.store.connect import store_at
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter, RunView
from wakeful.values.clock import SystemClock

pytest.importorskip("mcp")

PROGRAM = Path(__file__).parent / "event_server.py"
#: The jobs, and the payloads of their runs.
WORK = {"one": {}, "two": {"fails": True}, "three": {}}
#: The subscriptions by what the address of their callback ends with: the event and its arguments.
WANTED: dict[str, tuple[str, dict[str, object]]] = {
    "time": ("schedule.tick", {"schedule": "every 1s", "message": "Look around."}),
    "other-time": ("schedule.tick", {"schedule": "every 1s", "tz": "Europe/Berlin"}),
    "all": ("run.finished", {}),
    "failed": ("run.finished", {"job": "two", "state": "failed"}),
    "busy": ("run.finished", {"agent": "default"}),
}
#: The callback that answers 503 for some time.
BUSY = "busy"
#: When the server is killed: while the callback is asked, just after it answered, some time after that.
Moment = Literal["asked", "answered", "later"]
KILLS: tuple[Moment, ...] = ("asked", "answered", "later", "answered", "asked")


class Delivery(NamedTuple):
    """A delivery that arrived."""

    event: dict[str, Any]
    #: whether it was answered with 200; else it was refused, or the server was killed before
    accepted: bool
    #: how often the server had been killed
    life: int

    @property
    def id(self) -> str:
        """The id of the event."""
        return str(self.event["eventId"])


class Callback(Subscriber):
    """The callback of all subscriptions. It kills the server."""

    def __init__(self, client: ApiClient, receiver: Receiver) -> None:
        super().__init__(client, receiver)
        self.arrived: dict[str, list[Delivery]] = defaultdict(list)
        self.life = 0
        self.kill_when: Moment | None = None
        self.server = 0
        self.killed = asyncio.Event()
        self.busy = False
        self._random = Random(1)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body, to = self.receiver.bodies[-1], request.rel_url.query["to"]
        headers = {name.lower(): value for name, value in request.headers.items()}
        assert is_signed([SECRET], headers, body, SystemClock().now_ms())
        message = json.loads(body)
        if message.get("type") == "verification":
            return web.json_response({"challenge": message["challenge"]})
        assert headers["webhook-id"] == message["eventId"]
        accepted = not (self.busy and to == BUSY) and self.kill_when != "asked"
        self.arrived[to].append(Delivery(message, accepted, self.life))
        await asyncio.sleep(self._random.choice((0, 0, 0.02)))
        if self.kill_when is None:
            return web.Response(status=200 if accepted else 503)
        if self.kill_when == "asked":
            self.kill()
        response = web.Response()
        await response.prepare(request)
        await response.write_eof()
        if self.kill_when == "later":
            await asyncio.sleep(self._random.uniform(0, 0.1))
        self.kill()
        return response

    async def wait_for(self, number: int) -> None:
        """Wait for so many events about all runs."""
        enough = len(self.arrived["all"]) + number
        await eventually(lambda: len(self.arrived["all"]) >= enough)

    def kill(self) -> None:
        """Kill the server, once."""
        if self.kill_when is not None:
            os.kill(self.server, signal.SIGKILL)
            self.kill_when = None
            self.killed.set()


class World:
    """A database, a server and a callback."""

    def __init__(self, url: str, folder: Path, callback: Callback, store: Store) -> None:
        self._url, self._folder = url, folder
        self.callback = callback
        self.store = store
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start the server."""
        ready = self._folder / f"{self.callback.life}.ready"
        process = self._process = self._begin(ready)
        await eventually(lambda: ready.exists() or process.poll() is not None)
        assert process.poll() is None, (self._folder / "log").read_text()
        said, client = json.loads(ready.read_text()), self.callback.client
        self.callback.server = said["pid"]
        client.url, client.key = said["url"], client.key or said["key"]

    def _begin(self, ready: Path) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("a") as log:
            command = prefork.command(str(PROGRAM), self._url, str(ready))
            return subprocess.Popen(command, stdout=log, stderr=log)

    async def kill(self, when: Moment) -> None:
        """Kill the server at that moment, and start it again."""
        assert self._process is not None
        self.callback.killed.clear()
        self.callback.kill_when = when
        await self.callback.killed.wait()
        await asyncio.to_thread(self._process.wait)
        await asyncio.sleep(0.2)  # what it sent arrives
        self.callback.life += 1
        await self.start()

    def close(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def runs(self, job_id: str) -> list[RunView]:
        """Return the runs of a job, the oldest first."""
        found = await self.store.runs(RunFilter("default", None, job_id, limit=1_000))
        return found[::-1]


@asynccontextmanager
async def _world(url: str, folder: Path) -> AsyncIterator[World]:
    store, receiver = store_at(url), Receiver()
    await store.open()
    async with serving(receiver), aiohttp.ClientSession() as session:
        world = World(url, folder, Callback(ApiClient("", session), receiver), store)
        try:
            yield world
        finally:
            world.close()
            await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Yield a world whose server runs."""
    is_file = request.param == "sqlite"
    url = f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}" if is_file else fresh_database()
    async with _world(url, tmp_path) as world:
        await world.start()
        yield world


async def test_no_event_is_lost_and_only_what_was_in_flight_repeats(world: World) -> None:
    callback, client, store = world.callback, world.callback.client, world.store
    subscribed: dict[str, str] = {}
    for to, (event, arguments) in WANTED.items():
        delivery = {
            "mode": "webhook",
            "url": f"{callback.receiver.url}?to={to}",
            "secret": format_secret(SECRET),
        }
        made = await callback.result("events/subscribe", name=event, arguments=arguments, delivery=delivery)
        row = await store.subscription(made["id"])
        assert row is not None
        subscribed[to] = row.job_id
    jobs = []
    for name, payload in WORK.items():
        target = {"kind": "function", "name": "work", "arguments": True}
        document = {"name": name, "schedule": "every 1s", "target": target, "payload": payload}
        reply = await client("POST", JOBS, {**document, "maxAttempts": 2, "backoff": {"base": "100ms"}})
        assert reply.status == 201, reply
        jobs.append(reply.body["id"])

    for number, when in enumerate(KILLS):
        callback.busy = number >= len(KILLS) - 2
        await callback.wait_for(3)
        await world.kill(when)
    await eventually(lambda: len([each for each in callback.arrived[BUSY] if not each.accepted]) > 2)
    callback.busy = False
    for job_id in jobs:
        assert (await client("POST", f"{JOBS}/{job_id}/pause")).status == 200

    about_runs = [job_id for to, job_id in subscribed.items() if WANTED[to][0] == "run.finished"]

    async def all_sent() -> bool:
        runs = [run for job_id in (*jobs, *about_runs) for run in await world.runs(job_id)]
        if any(run.finished_ms is None for run in runs):
            return False
        position = await store.event_position()
        return position is not None and position.change == await store.last_change()

    await eventually(all_sent)
    world.close()
    finished = {name: await world.runs(job_id) for name, job_id in zip(WORK, jobs, strict=True)}
    every = {run.id: run.state for runs in finished.values() for run in runs}
    failed = {run.id: run.state for run in finished["two"] if run.state == "failed"}
    assert {"succeeded", "failed"} <= {*every.values()}
    for to, (event, _) in WANTED.items():
        runs = await world.runs(subscribed[to])
        events = _check_repeats(callback.arrived[to])
        sent = [run for run in runs if run.state == "succeeded"]
        assert sent == runs[: len(sent)], "a later one was sent first"
        if event == "schedule.tick":  # it goes on until the server ends
            assert len(sent) <= len(events) <= len(sent) + 1
            assert [each["data"]["number"] for each in events] == list(range(1, len(events) + 1))
            identity = f"sub_{(runs[0].job_name or '').rpartition('-')[2]}"
            keys = [event_id(event, identity, run.scheduled_ms) for run in runs]
            assert [each["eventId"] for each in events] == keys[: len(events)]
            continue
        assert len(events) == len(sent) == len(runs)
        expected = failed if to == "failed" else every
        assert {each["data"]["runId"]: each["data"]["state"] for each in events} == expected
        cursors = [int(each["cursor"]) for each in events]
        assert cursors == sorted(set(cursors))


def _check_repeats(arrived: list[Delivery]) -> list[dict[str, Any]]:
    """Return the events of a subscription in the order in which they arrived, each once.

    An event that was accepted came again only if the server was killed meanwhile.
    """
    events = []
    for _, group in groupby(arrived, lambda each: each.id):
        same = list(group)
        events.append(same[0].event)
        assert all(each.event == same[0].event for each in same)
        for one, other in pairwise(same):
            assert not one.accepted or one.life < other.life, "it was sent again without need"
        assert same[-1].accepted
    assert len({each["eventId"] for each in events}) == len(events), "they arrived out of order"
    return events
