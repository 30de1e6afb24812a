"""What operators see of NATS: the doctor, the test of a target, credentials, and missing settings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.launch.queue.conftest import NewQueueApp, working
from tests.support.nats_server import NatsServer
from tests.support.waiting import eventually, over
from wakeful import InvalidArgument, Queue, Wakeful
from wakeful.service.auth.access import LOCAL


@on_one_store
async def test_the_doctor_and_the_test_of_a_target_say_whether_nats_is_connected(
    queue_app: NewQueueApp, broker: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.service.jobs.target_tests._CONNECT_S", 0.1)
    app = queue_app()
    async with app:
        tested = await eventually(lambda: _tested(app, True))
        assert tested["message"] == f"NATS at 127.0.0.1:{broker.port} is connected; a test publishes nothing"
        assert await _nats_check(app) == "ok"
        await broker.kill()
        await eventually(lambda: _tested(app, False))
        assert await _nats_check(app) == "error"


async def _tested(app: Wakeful, ok: bool) -> dict[str, Any]:
    tested = await app.jobs.test_target(target=Queue())
    return tested if tested["ok"] is ok else {}


async def _nats_check(app: Wakeful) -> object:
    checks: Any = (await app.services.admin.doctor.examine(LOCAL, "default"))["checks"]
    return next(check["state"] for check in checks if check["name"] == "nats")


@on_one_store
async def test_a_queue_target_without_nats_is_refused(new_app: NewApp) -> None:
    app = new_app()
    async with app:
        with pytest.raises(InvalidArgument, match="WAKEFUL_NATS_URL"):
            await app.jobs.create("work", schedule=SELDOM, target=Queue())


@on_one_store
async def test_a_subject_must_be_allowed_and_its_stream_is_created(
    queue_app: NewQueueApp, broker: NatsServer
) -> None:
    app = queue_app()
    async with app:
        with pytest.raises(InvalidArgument, match="WAKEFUL_NATS_SUBJECTS"):
            await app.jobs.create("work", schedule=SELDOM, target=Queue("orders.new"))
        await app.jobs.create("work", schedule=SELDOM, target=Queue("reports.daily", stream="REPORTS"))
        await app.jobs.run("work")
        await eventually(lambda: _stored(broker, "REPORTS"))


async def _stored(broker: NatsServer, stream: str) -> bool:
    try:
        return await broker.messages(stream) == 1
    except Exception:  # the stream does not exist yet
        return False


@on_one_store
async def test_a_message_whose_function_no_worker_has_does_not_outlive_its_run(
    queue_app: NewQueueApp, broker: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.launch.queue.worker._UNKNOWN_S", 0.1)
    app = queue_app()

    async def no_messages() -> bool:
        return await broker.messages("WAKEFUL_WORK") == 0

    async with app:
        await app.jobs.create(
            "work", schedule=SELDOM, target=Queue(function="misspelled"), timeout="1s", max_attempts=1
        )
        run = await app.jobs.run("work")
        await eventually(lambda: _stored(broker, "WAKEFUL_WORK"))
        async with working(broker, app):
            assert (await over(app, run.id)).state == "failed"
            await eventually(no_messages)


@on_one_store
async def test_a_run_fails_with_a_clear_cause_if_no_stream_has_its_subject(
    queue_app: NewQueueApp, broker: NatsServer
) -> None:
    app = queue_app(nats_create_streams=False)
    async with app:
        await app.jobs.create("work", schedule=SELDOM, target=Queue("reports.daily"), max_attempts=1)
        run = await over(app, (await app.jobs.run("work")).id)
    assert (run.state, run.reason) == ("failed", "no_stream")
    assert "reports.daily" in (run.error or "")
