"""Subscriptions of several workspaces: each gets its own events, once and in order. No others wake it."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import PATIENCE
from wakeful import Wakeful
from wakeful.api.http.events import _parts
from wakeful.service import event_stream
from wakeful.service.auth.access import LOCAL
from wakeful.service.event_stream import Event, Subscription
from wakeful.store.changelog import ChangeRow
from wakeful.store.rows import RunView


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    async with new_app() as app:
        for workspace in ("ours", "theirs"):
            await app.services.agents.workspaces.put(LOCAL, workspace, {})
        yield app


async def create(app: Wakeful, workspace: str, name: str) -> None:
    await app.jobs.of("default", workspace).create(name, schedule=SELDOM, target={"kind": "pull"})


async def read(subscription: Subscription, number: int, pause_s: float = 0) -> list[Event]:
    """Read so many events."""
    found: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < number:
            found += await subscription.next(PATIENCE) or []
            await asyncio.sleep(pause_s)
    return found


async def test_events_of_another_workspace_wake_no_subscription(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    stream = app.services.events
    ours, theirs = [await stream.subscribe(LOCAL, workspace) for workspace in ("ours", "theirs")]
    looked: list[Subscription] = []
    after = stream.after

    async def noted(subscription: Subscription) -> list[Event]:
        looked.append(subscription)
        return await after(subscription)

    monkeypatch.setattr(stream, "after", noted)
    waiting = asyncio.create_task(ours.next(PATIENCE))
    for number in range(5):
        await create(app, "theirs", f"job-{number}")
        await read(theirs, 1)
    assert looked.count(ours) == 1
    assert ours.seen == theirs.seen
    await create(app, "ours", "job")
    async with asyncio.timeout(PATIENCE):
        assert [event.job for event in await waiting or []] == ["job"]
    stream.shut_down()


async def test_each_subscription_gets_its_events_once_and_in_order(app: Wakeful):
    stream = app.services.events
    names = {workspace: [f"{workspace}-{number}" for number in range(12)] for workspace in ("ours", "theirs")}
    start = await app.store.last_change()
    readers: list[tuple[str, Any]] = []
    for workspace in names:
        for pause_s in (0, 0.03):
            subscription = await stream.subscribe(LOCAL, workspace, after=start)
            readers.append((workspace, asyncio.create_task(read(subscription, 12, pause_s))))
    for number in range(12):
        for workspace in names:
            await create(app, workspace, names[workspace][number])
        if number in (5, 8):  # another one begins in the middle, with all before it or without
            late = await stream.subscribe(LOCAL, "ours", after=start if number == 5 else None)
            expected = 12 if number == 5 else 3
            readers.append(("ours", asyncio.create_task(read(late, expected))))
    for workspace, task in readers:
        found = await task
        assert [event.job for event in found] == names[workspace][-len(found) :]
    stream.shut_down()


async def test_a_long_backlog_of_others_is_passed_over_and_keeps_no_client_waiting(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_stream, "_ROWS", 10)
    stream, start = app.services.events, await app.store.last_change()
    theirs = app.jobs.of("default", "theirs")
    await theirs.create("busy", schedule=SELDOM, target={"kind": "pull"})
    for _ in range(12):
        await theirs.run("busy")
        await theirs.update("busy", description=f"{_}")
    await create(app, "ours", "job")
    asked: list[Sequence[str]] = []

    async def noted(ids: Sequence[str]) -> list[RunView]:
        asked.append(ids)
        return []

    monkeypatch.setattr(app.store, "runs_by_ids", noted)
    ours = await stream.subscribe(LOCAL, "ours", after=start)
    last = await app.store.last_change()
    seen = []
    while not (found := await ours.next(0)):
        seen.append(ours.seen)
    assert [event.job for event in found] == ["job"]
    assert sorted({*seen}) == seen, "it goes on where it was"
    assert len(seen) >= 2, "a client that waits gets a sign of life in between"
    assert ours.seen == last
    assert asked == [], "runs of others are not read"
    stream.shut_down()


async def test_the_reader_pauses_only_when_it_has_read_all(app: Wakeful, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_stream, "_ROWS", 5)
    monkeypatch.setattr(event_stream, "_PAUSE_S", 0.015)
    stream, pauses, last = app.services.events, 0, 0
    go_on, changes, sleep = asyncio.Event(), app.store.changes, asyncio.sleep

    async def held(after: int, limit: int) -> list[ChangeRow]:
        await go_on.wait()
        return await changes(after, limit)

    async def counted(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds == 0.015 and stream._last < last
        await sleep(seconds)

    monkeypatch.setattr(app.store, "changes", held)
    ours = await stream.subscribe(LOCAL, "ours")
    for number in range(60):  # a transaction each
        await create(app, "ours", f"job-{number}")
    last = await app.store.last_change()
    monkeypatch.setattr(asyncio, "sleep", counted)
    go_on.set()
    await read(ours, 60)
    assert pauses == 0, "or it falls behind for ever if there are many transactions"
    stream.shut_down()


async def test_large_events_are_neither_cached_nor_read_nor_sent_all_at_once(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_stream, "_CACHED_BYTES", 200_000)
    monkeypatch.setattr(event_stream, "_BEHIND", 3)
    stream = app.services.events
    start = await app.store.last_change()
    quick = await stream.subscribe(LOCAL, "ours", types=["run.finished"])
    jobs = app.jobs.of("default", "ours")
    await jobs.create("large", schedule=SELDOM, target={"kind": "echo"})
    ids = [(await jobs.run("large", payload="x" * 60_000)).id for _ in range(8)]
    live = [event.run for event in await read(quick, 8)]
    assert sorted(run.id for run in live if run) == sorted(ids)
    assert stream._cached_bytes == sum(map(event_stream._size, stream._cache)) <= 200_000
    behind = await stream.subscribe(LOCAL, "ours", after=start)
    events: list[Event] = []
    async with asyncio.timeout(PATIENCE):
        while len(events) < 17:
            page = await behind.next(PATIENCE) or []
            assert len(page) <= 3
            events += page
    assert [event.seq for event in events] == list(range(start + 1, start + 18))
    parts = list(_parts(events))
    assert max(map(len, parts)) < 300_000, "two events at most, each with payload and output"
    assert b"".join(parts).count(b"event: run.finished") == 8
    stream.shut_down()


async def test_events_of_jobs_do_not_read_their_payloads(app: Wakeful):
    start = await app.store.last_change()
    document = {"schedule": SELDOM, "target": {"kind": "pull"}, "payload": "x" * 60_000}
    await app.jobs.of("default", "ours").create_many([{"name": f"job-{n}", **document} for n in range(40)])
    behind = await app.services.events.subscribe(LOCAL, "ours", after=start)
    tracemalloc.start()
    try:
        assert len(await read(behind, 40)) == 40
        assert tracemalloc.get_traced_memory()[1] < 1_000_000, "the payloads have 2.4 MB"
    finally:
        tracemalloc.stop()
    behind.close()
