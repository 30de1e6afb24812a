"""Queue targets with a real NATS server: from the tick to the stored result."""

from __future__ import annotations

import json

from tests.integration.conftest import SELDOM
from tests.integration.launch.queue.conftest import NewQueueApp, working
from tests.support.nats_server import NatsServer
from tests.support.waiting import over
from wakeful import Launch, Queue, Wakeful


async def test_a_worker_executes_a_run_and_its_result_is_stored(queue_app: NewQueueApp, broker: NatsServer):
    app, functions = queue_app(), Wakeful("sqlite:///:memory:")
    seen: list[Launch] = []

    @functions.function()
    async def digest(run: Launch) -> object:
        seen.append(run)
        return {"hello": run.payload}

    async with app, working(broker, functions):
        await app.jobs.create("digest", schedule=SELDOM, target=Queue(), payload={"name": "ada"})
        run = await over(app, (await app.jobs.run("digest")).id)
    assert (run.state, json.loads(run.output or ""), run.attempt) == (
        "succeeded",
        {"hello": {"name": "ada"}},
        1,
    )
    (launch,) = seen
    assert (launch.id, launch.job, launch.attempt) == (run.id, "digest", 1)
    assert launch.idempotency_key == run.idempotency_key
    assert await broker.messages("WAKEFUL_WORK") == 0
    assert await broker.messages("WAKEFUL_RESULTS") == 0
    metrics = app.services.metrics
    assert metrics.messages == {("queue", "sent"): 1}
    assert metrics.reports == {("queue", "applied"): 2}, "the start and the outcome"
