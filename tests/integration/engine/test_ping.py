"""Pings to an external watchdog: sent while the process is ready, and only then."""

from __future__ import annotations

from tests.integration.conftest import NewApp, on_one_store
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful.engine.pinger import Pinger
from wakeful.settings import Settings

pytestmark = on_one_store


def pinging(receiver: Receiver) -> Settings:
    return Settings(ping_url=receiver.url, ping_ms=100)


async def test_a_ready_process_pings_the_watchdog_periodically(new_app: NewApp, receiver: Receiver):
    app = new_app(settings=pinging(receiver))
    async with app:
        await eventually(lambda: app.services.metrics.pings["answered"] >= 3)
    assert {request.method for request in receiver.requests} == {"GET"}
    assert len(receiver.requests) >= 3


async def test_a_failed_ping_does_not_affect_readiness(new_app: NewApp, receiver: Receiver):
    receiver.answers(500)
    app = new_app(settings=pinging(receiver))
    async with app:
        await eventually(lambda: app.services.metrics.pings["failed"] >= 2)
        receiver.port = 1  # no listener
        assert await app.services.admin.status.ready() is None
    nowhere = new_app(settings=Settings(ping_url="http://127.0.0.1:1/", ping_ms=100))
    async with nowhere:
        await eventually(lambda: nowhere.services.metrics.pings["failed"] >= 2)
        assert await nowhere.services.admin.status.ready() is None


async def test_a_process_that_is_not_ready_does_not_ping(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:

        async def ready() -> str | None:
            return "the database does not answer"

        pinger = Pinger(app.store.clock, receiver.url, 60_000, ready, lambda succeeded: None)
        before_ms = app.store.clock.now_ms()
        again_ms = await pinger.step()
    assert receiver.requests == []
    assert again_ms is not None
    assert again_ms - before_ms < 60_000


async def test_a_ping_follows_redirects(new_app: NewApp, receiver: Receiver):
    receiver.answers(302, location="/moved")
    app = new_app(settings=pinging(receiver))
    async with app:
        await eventually(lambda: "/moved" in {request.path for request in receiver.requests})
        receiver.answers(200)
        await eventually(lambda: app.services.metrics.pings["answered"] >= 1)
