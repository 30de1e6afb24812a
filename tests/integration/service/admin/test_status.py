"""Status, service level objectives and readiness."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import served
from tests.support.factories import jobless, over
from tests.support.waiting import epoch_ms, eventually
from wakeful import Function, InvalidArgument
from wakeful.engine import loop as engine_loop
from wakeful.errors import NotFound, Unavailable
from wakeful.run.run import NewRun
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.values.ids import first_id, new_id


async def test_the_status_counts_jobs_runs_and_replicas(new_app: NewApp, database: str) -> None:
    app = new_app()
    app.function("nothing")(lambda: None)
    async with app, served(app) as operator:
        await app.jobs.create("on", schedule=SELDOM, target=Function("nothing"))
        paused = await app.jobs.create("off", schedule=SELDOM, target=Function("nothing"))
        await app.jobs.pause("off")
        status = (await operator("GET", "/status")).body
        assert status["jobs"] == {"active": 1, "paused": 1}
        assert status["runs"] == {"running": 0, "pending": 0, "retrying": 0}
        assert status["nextAtMs"] == epoch_ms(paused.next_at)
        assert (status["engine"], status["replicas"], status["executors"]) == (True, 1, 0)
        assert status["database"] == database.partition(":")[0]
        assert abs(status["nowMs"] - app.store.clock.now_ms()) < 60_000
        async with new_app():
            assert (await operator("GET", "/status")).body["replicas"] == 2


async def test_objectives_are_computed_from_recorded_runs(new_app: NewApp) -> None:
    app = new_app()
    async with app:
        now_ms = app.store.clock.now_ms()
        nothing = await app.services.admin.status.slo(LOCAL, "default")
        assert nothing["deadLetterRatio"] == {"target": 0.01, "value": None, "ok": True}
        assert nothing["dispatchLatencyMs"]["ok"] is True  # type: ignore[index, call-overload]

        def run(late_ms: int, state: str = "succeeded", at_ms: int = now_ms) -> NewRun:
            begun = jobless(
                id=new_id(at_ms), fire_ms=at_ms, started_ms=at_ms + late_ms, attempt=1, lane="nobody"
            )
            return over(begun, state, at_ms + late_ms)

        a_day_ago_ms = now_ms - 25 * 3_600_000
        old = run(50_000, "failed", a_day_ago_ms)._replace(id=first_id(a_day_ago_ms))
        skipped = over(jobless(id=new_id(now_ms), lane="nobody"), "skipped", now_ms)
        await app.store.add_runs(
            [old, skipped, *[run(10) for _ in range(98)], run(9_000), run(9_000, "failed")]
        )
        slo = await app.services.admin.status.slo(LOCAL, "default")
        assert slo["runs"] == 101
        assert slo["deadLetterRatio"] == {"target": 0.01, "value": 0.01, "ok": False}
        assert slo["dispatchLatencyMs"] == {"target": 1000, "value": 10, "ok": True}
        assert slo["dispatchLatencyP95Ms"] == {"target": 5000, "value": 10, "ok": True}
        await app.store.add_runs([run(9_000) for _ in range(200)])
        slo = await app.services.admin.status.slo(LOCAL, "default")
        assert slo["deadLetterRatio"]["ok"] is True  # type: ignore[index, call-overload]
        assert slo["dispatchLatencyMs"] == {"target": 1000, "value": 9000, "ok": False}
        longer = await app.services.admin.status.slo(LOCAL, "default", hours=48)
        assert longer["runs"] == 302


@on_one_store
async def test_the_status_of_another_workspace_is_not_found(new_app: NewApp) -> None:
    app = new_app()
    async with app:
        stranger = Principal("key:1", "admin", "acme")
        for ask in (app.services.admin.status.status, app.services.admin.status.slo):
            with pytest.raises(NotFound, match="no workspace 'default'"):
                await ask(stranger, "default")
        with pytest.raises(InvalidArgument, match="hours"):
            await app.services.admin.status.slo(LOCAL, "default", hours=0)


async def test_the_app_is_ready_while_its_engine_loops_run(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    status = app.services.admin.status
    assert await status.ready() == "the engine is not running"
    async with app:
        assert await status.ready() is None

        async def broken() -> None:
            raise Unavailable("it is gone")

        assert app._engine is not None
        planner = app._engine._planner
        monkeypatch.setattr(engine_loop, "_STALLED_S", 0.2)
        monkeypatch.setattr(planner, "step", broken)

        async def stuck() -> bool:  # on a busy machine another loop may be late briefly
            return await status.ready() == "the engine's planner loop is stalled"

        assert await eventually(stuck)
        monkeypatch.undo()
        planner.wake()

        async def healed() -> bool:
            return await status.ready() is None

        assert await eventually(healed)
    assert await status.ready() == "the engine is not running"
