"""Upserts, edits, pauses and deletions of jobs, and their effect on ticks and pending runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.services import job_service
from tests.support.waiting import epoch_ms, eventually, in_state, over, runs_of, soon, starting_soon, stored
from wakeful import (
    AlreadyExists,
    EngineConfig,
    FailedPrecondition,
    Function,
    InvalidArgument,
    Launch,
    NotFound,
    Wakeful,
    Webhook,
)
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.launch.function import FunctionLauncher
from wakeful.model import Run
from wakeful.schedule.schedules import Every
from wakeful.service.auth.access import LOCAL
from wakeful.store.connect import store_at
from wakeful.store.rows import JobRow, RunFilter

#: A replica that plans but claims no runs: planned runs stay pending.
IDLE = EngineConfig(tick_ms=100, heartbeat_ms=200, lanes={})
DIGEST: Any = {
    "schedule": "every 1h",
    "target": Webhook("https://example.com/hook"),
    "payload": {"to": "me", "n": 1},
    "timeout": "30s",
    "labels": {"team": "billing"},
}


async def row_of(app: Wakeful, name: str = "digest") -> JobRow:
    row = await app.store.job("default", "default", name)
    assert row is not None
    return row


# --- the same definition -----------------------------------------------------------------------------


async def test_the_same_definition_again_changes_nothing(new_app: NewApp):
    async with new_app() as app:
        first = await app.jobs.upsert("digest", **DIGEST)
        before = await row_of(app)
        again = await app.jobs.upsert("digest", **DIGEST)
        assert await row_of(app) == before
    assert (first.created, again.created, again.secret) == (True, False, None)
    assert again == first


async def test_an_equivalent_definition_changes_nothing(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        before = await row_of(app)
        words: Any = {
            "schedule": {"kind": "every", "everyMs": 3_600_000},
            "webhook_url": "https://example.com/hook",
            "payload": {"to": "me", "n": 1},
            "timeoutMs": 30_000,
            "labels": {"team": "billing"},
            "description": None,
        }
        assert (await app.jobs.upsert("digest", **words)).revision == before.version
        assert await row_of(app) == before


async def test_the_same_definition_does_not_end_a_pause(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        await app.jobs.pause("digest")
        before = await row_of(app)
        assert (await app.jobs.upsert("digest", **DIGEST)).revision == before.version
        assert await row_of(app) == before
    assert (before.enabled, before.next_ms) == (False, None)


async def test_a_restarted_program_does_not_change_its_jobs(new_app: NewApp):
    def program() -> Wakeful:
        app = new_app()

        @app.every("1h")
        async def hourly() -> None: ...

        @app.cron("0 9 * * *", tz="Europe/Berlin")
        async def daily() -> None: ...

        return app

    async with program() as app:
        await app.jobs.pause("daily")
        before = [await row_of(app, name) for name in ("hourly", "daily")]
    async with program() as app:
        assert [await row_of(app, name) for name in ("hourly", "daily")] == before


async def test_concurrent_upserts_of_the_same_definition_create_one_job(new_app: NewApp):
    async with new_app() as one, new_app() as other:
        saved = await asyncio.gather(*(app.jobs.upsert("digest", **DIGEST) for app in (one, other) * 3))
        assert len(await one.jobs.list()) == 1
    assert sorted(each.created for each in saved) == [False] * 5 + [True]
    assert len({each.id for each in saved}) == 1


# --- a changed definition ----------------------------------------------------------------------------


async def test_a_changed_payload_keeps_the_anchor_the_next_tick_and_the_secret(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        before = await row_of(app)
        saved = await app.jobs.upsert("digest", **{**DIGEST, "payload": {"to": "me", "n": True}})
        after = await row_of(app)
    assert saved.revision == before.version + 1
    assert after.payload == '{"to":"me","n":true}'
    kept = ("id", "anchor_ms", "next_ms", "wake_ms", "secret", "timing", "policy", "created_ms", "run_count")
    assert [getattr(after, field) for field in kept] == [getattr(before, field) for field in kept]
    assert after.version == before.version + 1


async def test_a_changed_interval_is_anchored_at_the_time_of_the_change(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        old = await stored(app, "digest")
        await app.jobs.upsert("digest", **{**DIGEST, "schedule": "every 2h"})
        new = await stored(app, "digest")
    assert new.anchor_ms >= old.anchor_ms
    assert new.next_ms == new.anchor_ms + 7_200_000


async def test_a_changed_schedule_does_not_end_a_pause_and_applies_on_resume(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        await app.jobs.pause("digest")
        job = await app.jobs.upsert("digest", **{**DIGEST, "schedule": SELDOM})
        assert (job.enabled, job.next_at, job.disabled_reason) == (False, None, "paused")
        resumed = await app.jobs.resume("digest")
    assert resumed.next_at is not None
    assert epoch_ms(resumed.next_at) % 86_400_000 == 0


async def test_editing_a_job_does_not_change_another(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        await app.jobs.upsert("other", **DIGEST)
        before = await row_of(app, "other")
        await app.jobs.update("digest", schedule=SELDOM, target=Function("local"))
        await app.jobs.pause("digest")
        await app.jobs.delete("digest")
        assert await row_of(app, "other") == before


async def test_a_renamed_job_keeps_its_id_secret_and_next_tick(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        before = await row_of(app)
        await app.jobs.update("digest", name="weekly-digest")
        after = await row_of(app, "weekly-digest")
        with pytest.raises(NotFound):
            await app.jobs.get("digest")
    assert (after.id, after.secret, after.next_ms) == (before.id, before.secret, before.next_ms)


async def test_a_new_schedule_enables_a_one_time_job_that_is_over(new_app: NewApp):
    app = new_app()
    calls: list[Launch] = []

    @app.function()
    async def work(run: Launch) -> None:
        calls.append(run)
        if len(calls) == 1:
            raise RuntimeError("no")

    async def is_over() -> bool:
        return not (await app.jobs.get("failed")).enabled and not (await app.jobs.get("kept")).enabled

    async with app:
        once: Any = {"target": Function("work"), "max_attempts": 1}
        await app.jobs.create("failed", schedule="in 50ms", **once)
        await eventually(lambda: calls)
        await app.jobs.create("kept", schedule="in 50ms", delete_after_run=False, **once)
        await eventually(lambda: len(calls) == 2)  # it is disabled earlier: when its tick is recorded
        await eventually(is_over)
        for name in ("failed", "kept"):
            saved = await app.jobs.update(name, schedule="in 2s")
            assert saved.enabled
        await eventually(lambda: sorted(str(call.job) for call in calls) == ["failed"] * 2 + ["kept"] * 2)


async def test_a_higher_max_runs_enables_a_job_that_reached_it(new_app: NewApp):
    app = new_app()

    @app.function()
    async def work() -> None: ...

    async def worn_out() -> bool:
        return (await app.jobs.get("job")).disabled_reason == "max_runs"

    async with app:
        await app.jobs.create(
            "job", schedule="every 1s", start_at=soon(), target=Function("work"), max_runs=1
        )
        await eventually(worn_out)
        with pytest.raises(FailedPrecondition, match="maxRuns of 1 run;"):
            await app.jobs.resume("job")
        assert not (await app.jobs.update("job", description="still over")).enabled
        job = await app.jobs.update("job", max_runs=2)
        assert (job.enabled, job.disabled_reason) == (True, None)
        await eventually(worn_out)
    assert job.next_at is not None


async def test_a_due_tick_is_kept_when_the_jitter_is_edited(database: str):
    store = store_at(database)
    await store.open()
    try:
        jobs = job_service(store, LauncherRegistry([FunctionLauncher()]))
        where = (LOCAL, "default", "default")
        target = {"kind": "function", "name": "work"}
        job = (await jobs.create(*where, {"name": "job", "schedule": "every 1s", "target": target})).job
        assert job.next_ms is not None
        next_ms = job.next_ms
        await eventually(lambda: store.clock.now_ms() > next_ms)
        after = (await jobs.update(*where, "job", {"jitter": "200ms"})).job
    finally:
        await store.close()
    assert after.next_ms == next_ms
    assert after.wake_ms is not None
    assert abs(after.wake_ms - next_ms) <= 200


# --- refused edits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ({"description": "new", "schedule": "0 0 31 2 *"}, InvalidArgument),
        ({"description": "new", "tz": "Mars/Olympus"}, InvalidArgument),
        ({"description": "new", "target": Webhook("ftp://example.com")}, InvalidArgument),
        ({"description": "new", "target": {"kind": "command", "argv": ["true"]}}, InvalidArgument),
        ({"description": "new", "name": "taken"}, AlreadyExists),
        ({"description": "new", "if_version": 7}, FailedPrecondition),
        ({"description": "new", "enabled": "yes"}, InvalidArgument),
    ],
    ids=lambda value: next(reversed(value)) if isinstance(value, dict) else "",
)
async def test_a_refused_edit_does_not_change_the_job(new_app: NewApp, patch: Any, error: type[Exception]):
    app = new_app()
    calls: list[Launch] = []

    @app.function()
    async def work(run: Launch) -> None:
        calls.append(run)

    async with app:
        await app.jobs.create("taken", schedule=SELDOM, target=Function("work"))
        await app.jobs.create("digest", schedule=SELDOM, target=Function("work"))
        before = await row_of(app)
        with pytest.raises(error):
            await app.jobs.update("digest", **patch)
        assert await row_of(app) == before
        assert (await over(app, (await app.jobs.run("digest")).id)).state == "succeeded"


async def test_a_refused_upsert_does_not_change_the_job(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", **DIGEST)
        before = await row_of(app)
        with pytest.raises(InvalidArgument):
            await app.jobs.upsert("digest", **{**DIGEST, "description": "new", "max_attempts": 0})
        assert await row_of(app) == before


async def test_an_edit_that_cannot_enable_the_job_changes_nothing(new_app: NewApp):
    app = new_app()

    @app.function()
    async def fail() -> None:
        raise RuntimeError("no")

    async with app:
        await app.jobs.create("digest", schedule="in 50ms", target=Function("fail"), max_attempts=1)

        async def is_over() -> bool:
            return not (await app.jobs.get("digest")).enabled

        await eventually(is_over)
        before = await row_of(app)
        with pytest.raises(FailedPrecondition, match="no tick left"):
            await app.jobs.update("digest", enabled=True, description="new")
        assert await row_of(app) == before


# --- cancelled runs ----------------------------------------------------------------------------------


@pytest.fixture
async def planned(new_app: NewApp) -> AsyncIterator[tuple[Wakeful, Run, Run]]:
    """Yield an app, a pending tick and a pending manual run."""
    async with new_app(config=IDLE) as app:
        # The second tick is far off, so that only one is planned.
        await starting_soon(
            lambda start: app.jobs.upsert("job", schedule="every 1h", start_at=start, target=Function("work"))
        )
        (tick,) = await eventually(lambda: runs_of(app, "job"))
        assert tick.state == "pending"
        yield app, tick, await app.jobs.run("job")


async def states(app: Wakeful, *runs: Run) -> list[tuple[str, str | None]]:
    return [(run.state, run.reason) for run in [await app.runs.get(run.id) for run in runs]]


async def test_an_edit_of_the_schedule_cancels_pending_ticks(planned: tuple[Wakeful, Run, Run]):
    app, tick, by_hand = planned
    await app.jobs.update("job", schedule="every 2h")
    assert await states(app, tick, by_hand) == [("cancelled", "edited"), ("pending", None)]


async def test_an_edit_of_other_fields_cancels_no_run(planned: tuple[Wakeful, Run, Run]):
    app, tick, by_hand = planned
    await app.jobs.update("job", description="new", payload={"n": 2})
    assert await states(app, tick, by_hand) == [("pending", None)] * 2


@pytest.mark.parametrize("by_patch", [False, True], ids=["pause", "enabled false"])
async def test_a_pause_cancels_pending_ticks(planned: tuple[Wakeful, Run, Run], by_patch: bool):
    app, tick, by_hand = planned
    await (app.jobs.update("job", enabled=False) if by_patch else app.jobs.pause("job"))
    assert await states(app, tick, by_hand) == [("cancelled", "paused"), ("pending", None)]
    assert not (await app.jobs.get("job")).enabled


async def test_a_deletion_cancels_all_pending_runs(planned: tuple[Wakeful, Run, Run]):
    app, tick, by_hand = planned
    await app.jobs.delete("job")
    assert await states(app, tick, by_hand) == [("cancelled", "deleted")] * 2


async def test_a_deletion_does_not_stop_active_runs(new_app: NewApp):
    app = new_app()
    let_go = asyncio.Event()

    @app.function()
    async def work() -> str:
        await let_go.wait()
        return "done"

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        run = await in_state(app, (await app.jobs.run("job")).id, "running")
        await app.jobs.delete("job")
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        let_go.set()
        done = await over(app, run.id)
    assert (done.state, done.output, done.job) == ("succeeded", "done", "job")


async def test_ticks_during_a_pause_are_neither_missed_nor_caught_up(new_app: NewApp):
    app = new_app()
    calls: list[Launch] = []

    @app.function()
    async def work(run: Launch) -> None:
        calls.append(run)

    async with app:
        await app.jobs.create(
            "job",
            schedule="every 1s",
            start_at=soon(),
            target=Function("work"),
            catchup_policy="fire_immediately",
            misfire_grace="1s",
        )
        await eventually(lambda: calls)
        paused, anchor_ms = await app.jobs.pause("job"), (await stored(app, "job")).anchor_ms
        await eventually(lambda: app.store.clock.now_ms() > epoch_ms(paused.updated_at) + 2_200)
        resumed = await app.jobs.resume("job")
        assert (await stored(app, "job")).anchor_ms == anchor_ms
        received = len(calls)
        await eventually(lambda: len(calls) > received)
        runs = await runs_of(app, "job")
    assert resumed.schedule == Every(1000)
    # A tick is recorded shortly before it is due: one recorded before the pause still runs.
    between = range(epoch_ms(paused.updated_at) + 100, epoch_ms(resumed.updated_at))
    assert [run for run in runs if epoch_ms(run.scheduled_at) in between] == []
    assert "missed" not in {run.state for run in runs}


async def test_a_cycle_of_followers_is_refused(new_app: NewApp):
    app = new_app()
    app.function("work")(lambda: None)
    async with app:
        target = Function("work")
        await app.jobs.create("first", schedule=SELDOM, target=target)
        await app.jobs.create("second", after="first", target=target)
        await app.jobs.create("third", after={"job": "second", "on": "failed"}, target=target)
        for change in (
            app.jobs.update("first", after="third"),
            app.jobs.upsert("first", after="third", target=target),
            app.jobs.update("first", after={"job": "second"}),
        ):
            with pytest.raises(InvalidArgument, match=r"'first', which comes after '(third|second)'"):
                await change
        assert (await app.jobs.get("first")).after is None
        await app.jobs.update("third", after="first")


async def test_a_tick_due_when_its_job_is_deleted_is_recorded_as_missed(database: str):
    store = store_at(database)
    await store.open()
    try:
        jobs = job_service(store, LauncherRegistry([FunctionLauncher()]))
        where = (LOCAL, "default", "default")
        target = {"kind": "function", "name": "work"}
        job = (await jobs.create(*where, {"name": "job", "schedule": "every 1s", "target": target})).job
        await eventually(lambda: store.clock.now_ms() > (job.next_ms or 0))
        await jobs.delete(*where, "job")
        (record,) = await store.runs(RunFilter("default"))
    finally:
        await store.close()
    assert (record.state, record.reason, record.scheduled_ms) == ("missed", "deleted", job.next_ms)


async def test_an_unknown_lane_is_refused_except_for_pull_targets(new_app: NewApp):
    app = new_app(config=EngineConfig(lanes={"cron": 1, "night-shift": 2}))
    app.function("work")(lambda: None)
    async with app:
        work = Function("work")
        await app.jobs.create("night", schedule=SELDOM, target=work, lane="night-shift")
        with pytest.raises(InvalidArgument, match="only cron, night-shift"):
            await app.jobs.create("day", schedule=SELDOM, target=work, lane="day-shift")
        with pytest.raises(InvalidArgument, match="WAKEFUL_LANE_DAY_SHIFT"):
            await app.jobs.update("night", lane="day-shift")
        await app.jobs.create("outside", schedule=SELDOM, target={"kind": "pull"}, lane="day-shift")


async def test_an_edit_whose_transaction_is_repeated_returns_no_secret_that_is_not_stored(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    async with new_app(config=IDLE) as app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("nothing"))
        change_job = app.store.change_job

        async def lose_a_deadlock(job_id: str, change: Any, *args: Any, **given: Any) -> Any:
            row = await app.store.job_by_id(job_id)
            assert row is not None
            change(row)
            monkeypatch.undo()
            saved.append(await app.jobs.update("digest", target=Webhook("https://example.com/hook")))
            return await change_job(job_id, change, *args, **given)

        saved: list[Any] = []
        monkeypatch.setattr(app.store, "change_job", lose_a_deadlock)
        again = await app.jobs.update("digest", target=Webhook("https://example.com/hook"))
        assert saved[0].secret is not None
        assert again.secret is None


@on_one_store
async def test_a_document_that_names_another_agent_is_refused(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.upsert("digest", schedule=SELDOM)
        before = await row_of(app)
        other: Any = {"schedule": SELDOM, "message": "x", "agent_id": "ada"}
        for change in (app.jobs.create("new", **other), app.jobs.upsert("digest", **other)):
            with pytest.raises(InvalidArgument, match="a job stays with its agent"):
                await change
        with pytest.raises(InvalidArgument, match="a job stays with its agent"):
            await app.jobs.update("digest", **other)
        assert await row_of(app) == before
        assert [job.name for job in await app.jobs.list(all_agents=True)] == ["digest"]
