"""The event stream of the client: no event is lost or repeated, over any number of connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import served
from tests.support.waiting import PATIENCE, eventually
from wakeful import AsyncClient, InvalidArgument, NotFound, Unauthenticated, Unavailable, Wakeful
from wakeful.client.events import read_events
from wakeful.model import Event
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings


async def received(events: AsyncIterator[Event], count: int) -> list[Event]:
    async with asyncio.timeout(PATIENCE):
        return [await anext(events) for _ in range(count)]


async def listening(app: Wakeful) -> None:
    """Wait until the app has a listener."""
    await eventually(lambda: bool(app.services.events._listeners))


async def test_events_are_received_as_they_happen(new_app: NewApp):
    app = new_app()
    async with app, served(app) as operator, AsyncClient(operator.url, operator.key) as client:
        events = client.events()
        first = asyncio.create_task(received(events, 1))
        await listening(app)
        await client.jobs.create("digest", schedule=SELDOM)
        (made,) = await first
        assert (made.type, made.job, made.deleted) == ("job.changed", "digest", False)
        await client.jobs.delete("digest")
        (gone,) = await received(events, 1)
        assert (gone.seq, gone.deleted) == (made.seq + 1, True)
        await events.aclose()
        await eventually(lambda: not app.services.events._listeners)


async def test_a_stream_survives_restarts_before_its_first_event(new_app: NewApp):
    app = new_app()
    settings = Settings(port=0)
    async with app:
        async with served(app, settings) as operator:
            key = operator.key
            client = AsyncClient(operator.url, key)
            events = client.events()
            all_of_it = asyncio.create_task(received(events, 3))
            await listening(app)
        await app.jobs.create("while-away", schedule=SELDOM)
        settings = replace(settings, port=urlsplit(client.url).port or 0)
        async with served(app, settings):
            await listening(app)
            await app.jobs.create("back", schedule=SELDOM)
        await app.jobs.create("away-again", schedule=SELDOM)
        async with served(app, settings):
            told = await all_of_it
            await events.aclose()
            await client.close()
    assert [event.job for event in told] == ["while-away", "back", "away-again"]
    assert [event.seq for event in told] == [told[0].seq + n for n in range(3)]


@on_one_store
async def test_a_server_that_stays_down_is_unavailable_after_the_timeout(new_app: NewApp):
    app = new_app()
    async with app:
        async with served(app) as operator:
            client = AsyncClient(operator.url, operator.key)
            waiting = asyncio.create_task(received(client.events(patience=0.2), 1))
            await listening(app)
        with pytest.raises(Unavailable):
            await waiting
        await client.close()


@on_one_store
async def test_errors_of_the_server_are_raised(new_app: NewApp):
    app = new_app()
    async with app, served(app) as operator, AsyncClient(operator.url, operator.key) as client:
        with pytest.raises(InvalidArgument, match=r"run\.finished"):
            await received(client.events(types=["run.lost"]), 1)  # type: ignore[list-item]
        async with AsyncClient(operator.url, operator.key, workspace="acme") as other:
            with pytest.raises(NotFound):
                await received(other.events(), 1)
        member = await operator.new("member")
        async with AsyncClient(operator.url, member.key) as other:
            waiting = asyncio.create_task(received(other.events(), 1))
            await listening(app)
            (key,) = [
                key for key in await app.services.auth.keys.list(LOCAL, "default") if key.name == "member"
            ]
            await app.services.auth.keys.revoke(LOCAL, "default", key.id)
            app.services.events.shut_down()
            with pytest.raises(Unauthenticated):
                await waiting


async def test_a_server_that_was_never_reached_is_not_retried():
    async with AsyncClient("http://127.0.0.1:1", "wk_x") as client:
        with pytest.raises(Unavailable, match="wakeful serve"):
            await received(client.events(), 1)


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_a_stream_is_parsed_in_chunks_of_any_size(size: int):
    text = 'id: 4\nretry: 1\n\n: here\n\nid: 5\nevent: x\ndata: {"job": "Zoë: a"}\n\n: alive\n\n'.encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(text), size):
            yield text[start : start + size]

    assert [each async for each in read_events(chunks())] == [(4, None), (5, {"job": "Zoë: a"})]
