"""Subscriptions to MCP events despite all faults: each event is delivered once and in order, or it ended.

Replicas with a feeder crash and stall at every call of the database, and the clock is set. Callbacks answer
late, with 503, not at all, or with 410. Subscriptions are made, refreshed and ended, expire, and end with
their key. The changelog says which events there were.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from yarl import URL

from tests.simulation.faults import CALM, Odds
from tests.simulation.journal import Plain, Rules
from tests.simulation.virtual_loop import run_virtually
from tests.simulation.world import Replica, World
from tests.support.effort import part
from tests.support.receiver import OPEN, Secrets
from wakeful.document import Defaults
from wakeful.engine.engine import EngineConfig
from wakeful.engine.event_facts import read_facts
from wakeful.engine.event_feeder import EventFeeder
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.loop import Loop
from wakeful.launch.event_callback import EventLauncher
from wakeful.launch.http.messages import HttpError, Response
from wakeful.launch.port import Launch
from wakeful.service.agents.subscription_jobs import subscription_job
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.accounts import JobContext
from wakeful.signal.event_catalog import TICK, find_event, passes
from wakeful.signal.mcp_events import SUBSCRIPTION_HEADER, event_id, subscription_id
from wakeful.store.accounts import KeyRow
from wakeful.store.row_mapping import job_to_row
from wakeful.store.rows import RunFilter, RunView
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.values.ids import new_id

SECONDS = 240
REST_S = 1_500
FINISHED = "run.finished"
WANTED: tuple[tuple[str, dict[str, Any]], ...] = (
    (FINISHED, {}),
    (FINISHED, {"job": "job-1"}),
    (FINISHED, {"state": "failed"}),
    (TICK, {"schedule": "every 7s"}),
)


class Delivery(NamedTuple):
    """A delivery that arrived at a callback."""

    event: str
    #: of the response; None: there was none
    status: int | None


class Callbacks:
    """The callbacks of all subscriptions, in place of the HTTP client of each replica."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        #: whether they answer at once, and with 200 unless they are gone
        self.calm = False
        #: whether they are all overloaded
        self.busy = False
        self.gone: set[str] = set()
        #: by the id of the subscription
        self.arrived: dict[str, list[Delivery]] = defaultdict(list)

    async def request(self, url: URL, headers: dict[str, str], body: bytes) -> Response:
        """Answer a delivery."""
        event = json.loads(body)
        assert headers["webhook-id"] == event["eventId"]
        if self.busy:
            self.arrived[headers[SUBSCRIPTION_HEADER]].append(Delivery(event["eventId"], 503))
            return Response(503, [], b"")
        to, fate = str(url), 1.0 if self.calm else self._rng.random()
        await asyncio.sleep(self._rng.choice((0, 0, 1)))
        status = 410 if to in self.gone else 503 if fate < 0.2 else None if fate < 0.25 else 200
        self.arrived[headers[SUBSCRIPTION_HEADER]].append(Delivery(event["eventId"], status))
        await asyncio.sleep(self._rng.choice((0, 0, 0, 2)))
        if status is None:
            raise HttpError("the connection ended")
        return Response(status, [], b"")


class Launcher(EventLauncher):
    """The launcher of a replica, without connections."""

    def __init__(self, world: EventWorld, store: Any) -> None:
        anything: Any = self
        super().__init__(Secrets(b"s" * 32), OPEN, world.clock, lambda status: None, resolver=anything)
        self._world, self._store = world, store
        self.find_url = self._find
        self.end, self.lose = store.end_subscription, store.lose_events

    async def open(self) -> None:
        client: Any = self
        self._client = client

    async def close(self) -> None:
        self._client = None

    async def request(
        self, method: str, url: URL, headers: dict[str, str], body: bytes, limit: int
    ) -> Response:
        """Send a request, as an HTTP client does."""
        return await self._world.callbacks.request(url, headers, body)

    async def _find(self, identity: str) -> str | None:
        row: SubscriptionRow | None = await self._store.subscription(identity)
        return row.url if row is not None and row.is_active else None


class EventWorld(World):
    """A world whose replicas feed and deliver events to callbacks."""

    callbacks: Callbacks

    def new_loops(self, replica: Replica) -> Sequence[Loop]:
        store: Any = replica.store
        replica._inner.prune_changes = _keep_all  # type: ignore[method-assign]
        return [EventFeeder(store, store.clock, max_sleep_ms=5_000)]

    def new_targets(self, replica: Replica | None) -> LauncherRegistry:
        targets = super().new_targets(replica)
        if replica is not None:
            targets.add(Launcher(self, replica.store))
        return targets


async def _keep_all(before_ms: int, limit: int) -> int:
    """Prune nothing: the changelog is compared with what was delivered."""
    return 0


class Story:
    """What people do with subscriptions."""

    def __init__(self, world: EventWorld, rng: Random) -> None:
        self._world, self._rng = world, rng
        #: every subscription that was made, with what it subscribes to
        self.made: list[tuple[SubscriptionRow, dict[str, Any]]] = []
        self._keys = ["key:none"]

    async def do_something(self) -> None:
        """Make, refresh or end a subscription, lose a callback, or make or revoke a key."""
        rng, store = self._rng, self._world._client
        match rng.randrange(8):
            case 0 | 1 | 2:
                await self._subscribe(rng.randrange(12), *rng.choice(WANTED))
            case 3 | 4 if self.made:
                row, arguments = rng.choice(self.made)
                await self._subscribe(int(row.url.rpartition("=")[2]), row.event, arguments, row.principal)
            case 5 if self.made:
                await store.end_subscription(rng.choice(self.made)[0].id, "unsubscribed")
            case 6 if self.made and rng.random() < 0.3:
                self._world.callbacks.gone.add(rng.choice(self.made)[0].url)
            case 7 if len(self._keys) > 1:
                await store.revoke_key(self._keys.pop().removeprefix("key:"), self._world.clock.now_ms())
            case _:
                await self._add_key()

    async def _add_key(self) -> None:
        now_ms = self._world.clock.now_ms()
        key_id = new_id(now_ms)
        key = KeyRow(
            key_id, "default", "k", "admin", None, key_id.encode(), now_ms, "python", None, None, None
        )
        await self._world._client.add_key(key)
        self._keys.append(f"key:{key_id}")

    async def _subscribe(
        self, number: int, event: str, arguments: dict[str, Any], principal: str | None = None
    ) -> None:
        world, now_ms = self._world, self._world.clock.now_ms()
        principal = principal or self._rng.choice(self._keys)
        url = f"http://127.0.0.1/?to={number}"
        identity = subscription_id(principal, url, event, arguments)
        context = JobContext("default", "default", Defaults())
        job = subscription_job(context, identity, find_event(event), arguments, now_ms, LOCAL)
        ttl_ms = self._rng.choice((None, None, 20_000, 90_000))
        row = SubscriptionRow(
            identity, "default", "default", principal, event, json.dumps(arguments), url, job.id, 0, now_ms,
            now_ms, None if ttl_ms is None else now_ms + ttl_ms,
        )  # fmt: skip
        written = await world._client.subscribe(row, job_to_row(job, b""), lambda _: ())
        if written.job_id == job.id:
            self.made.append((written, arguments))


async def _tell(folder: Path, seed: int) -> None:
    rng = Random(f"subscriptions {seed}")
    odds = Odds(
        crash=rng.choice((0, 2, 6)), refused=rng.choice((0, 3)), doubt=rng.choice((0, 3)),
        stall=rng.choice((0, 2)), stall_s=40,
    )  # fmt: skip
    config = EngineConfig(tick_ms=5_000, heartbeat_ms=10_000, lease_ms=40_000, retention_days=36_500)
    async with EventWorld(folder, seed, config=config, odds=odds) as world:
        world.callbacks = Callbacks(rng)
        story = Story(world, rng)
        for number in range(3):
            rules = Rules(overlap="allow", max_attempts=1)
            await world.create(
                f"job-{number}", Plain(every_ms=rng.choice((3_000, 11_000))), rules, body=_work
            )
        set_clock = seed % 2 == 0
        ends_at = world.loop.time() + SECONDS
        while world.loop.time() < ends_at:
            if len(world.alive) < 2:
                await world.start()
            await story.do_something()
            await world.sleep(rng.uniform(1, 20))
            if set_clock and rng.random() < 0.05:
                world.jump(rng.choice((-100_000, -6_000, 6_000, 100_000)))
            if world.alive and rng.random() < 0.1:
                await rng.choice(world.alive).stop()
        await _come_to_rest(world, story)
        await _check(world, story)


async def _work(run: Launch) -> None:
    await asyncio.sleep(1)
    if int(run.id.replace("-", ""), 16) % 3 == 0:
        raise ValueError("a third of them")


async def _come_to_rest(world: EventWorld, story: Story) -> None:
    world.callbacks.calm = True
    for life in world.journal.lives.values():
        await world.pause(life)
    for row, _ in story.made:
        if row.event == TICK:
            await world._client.end_subscription(row.id, "unsubscribed")
    for survivor in world.alive:
        survivor.store.odds = CALM
    await world.start(odds=CALM)
    if world.journal.jumped:  # what is due by a clock that was ahead is due some time later
        world.jump(10_000_000)
    await world.sleep(REST_S)


async def _check(world: EventWorld, story: Story) -> None:
    store = world._client
    rows = await store.changes(0, 100_000, finished_only=True)
    assert rows[0].first == 1, "all changes are kept"
    facts = await read_facts(store, rows, 0)
    assert story.made
    for row, arguments in story.made:
        runs = await store.runs(RunFilter("default", None, row.job_id, limit=2_000))
        runs = sorted(runs, key=lambda run: (run.scheduled_ms, run.id))
        now = await store.subscription(row.id)
        ended = now is None or now.job_id != row.job_id or not now.is_active
        assert all(run.finished_ms is not None for run in runs)
        if row.event == TICK:
            ids = [event_id(TICK, row.id, run.scheduled_ms) for run in runs]
        else:
            wanted = [
                fact.to_event().id
                for fact in facts
                if fact.name == FINISHED and fact.seq > row.position and passes(arguments, fact.data)
            ]
            ids = [json.loads(run.payload or "")["eventId"] for run in runs]
            assert ids == wanted[: len(ids)], "the events are runs in the order of the changelog"
            assert ended or len(ids) == len(wanted)
        _check_runs(runs, ended)
        sent = {id_ for id_, run in zip(ids, runs, strict=True) if run.state == "succeeded"}
        own = {*ids}
        arrived = [each for each in world.callbacks.arrived[row.id] if each.event in own]
        order = [event for event, _ in groupby(each.event for each in arrived)]
        assert order == [each for each in ids if each in {*order}], "they arrived in order"
        assert sent <= {each.event for each in arrived if each.status == 200}
        if world.odds.calm:
            accepted = [each.event for each in arrived if each.status == 200]
            assert len(accepted) == len({*accepted})


def _check_runs(runs: Sequence[RunView], ended: bool) -> None:
    """All were delivered, or the rest was cancelled when the subscription ended."""
    states = [run.state for run in runs]
    if not ended:
        assert {*states} <= {"succeeded"}, states
        return
    assert {*states} <= {"succeeded", "cancelled", "failed"}, states
    assert states.count("failed") <= 1, "one at most was in flight when it ended"
    for one, other in pairwise(runs):
        assert one.state == "succeeded" or other.state != "succeeded", "nothing is sent after the end"
    for run in runs:
        if run.state == "cancelled":
            assert run.reason == "subscription_ended"


@pytest.mark.parametrize("seed", part(range(8)))
def test_each_event_is_delivered_once_and_in_order_or_its_subscription_ended(seed: int) -> None:
    with TemporaryDirectory() as folder:
        run_virtually(_tell(Path(folder), seed))


async def _overload(folder: Path) -> None:
    rng = Random("overload")
    config = EngineConfig(tick_ms=5_000, heartbeat_ms=10_000, lease_ms=40_000, retention_days=36_500)
    async with EventWorld(folder, 1, config=config, odds=CALM) as world:
        world.callbacks = Callbacks(rng)
        world.callbacks.calm = True
        story = Story(world, rng)
        await world.start()
        for number, (event, arguments) in enumerate((WANTED[0], WANTED[3])):
            await story._subscribe(number, event, arguments, "key:none")
        for number in range(3):
            await world.create(
                f"job-{number}", Plain(every_ms=3_000), Rules(overlap="allow", max_attempts=1), body=_work
            )
        for seconds, busy in ((20, False), (60, True), (20, False)):
            world.callbacks.busy = busy
            await world.sleep(seconds)
        await _come_to_rest(world, story)
        await _check(world, story)
        for row, _ in story.made:
            assert {each.status for each in world.callbacks.arrived[row.id]} == {200, 503}
            runs = await world._client.runs(RunFilter("default", None, row.job_id, limit=2_000))
            assert len(runs) > 10 or row.event == TICK
            assert {run.state for run in runs} <= {"succeeded", "cancelled"}


def test_a_callback_that_answers_503_for_a_minute_gets_all_events_once_and_in_order() -> None:
    with TemporaryDirectory() as folder:
        run_virtually(_overload(Path(folder)))
