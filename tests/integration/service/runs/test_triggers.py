"""Manual runs, backfills and follow-up runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.services import job_service
from tests.support.waiting import epoch_ms, eventually, in_state, over, runs_of, soon, the_run_of
from wakeful import FailedPrecondition, Function, InvalidArgument, Launch, Permanent, Wakeful
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.launch.function import FunctionLauncher
from wakeful.run.run import tick_key
from wakeful.service.auth.access import LOCAL
from wakeful.store.connect import store_at

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


def noting(app: Wakeful) -> list[Launch]:
    """Register `note`, which records its calls; return them."""
    calls: list[Launch] = []

    @app.function()
    async def note(run: Launch) -> None:
        calls.append(run)

    return calls


# --- manual runs -------------------------------------------------------------------------------------


async def test_a_manual_run_is_not_a_tick_and_has_its_own_key(new_app: NewApp):
    app = new_app()
    calls = noting(app)
    async with app:
        saved = await app.jobs.create("job", schedule=SELDOM, target=Function("note"))
        runs = [await over(app, (await app.jobs.run("job")).id) for _ in range(2)]
        job = await app.jobs.get("job")
    assert [(run.trigger, run.state, run.attempt) for run in runs] == [("user", "succeeded", 1)] * 2
    assert len({run.idempotency_key for run in runs}) == 2
    assert tick_key(job.id, epoch_ms(runs[0].scheduled_at)) != runs[0].idempotency_key
    assert [call.trigger for call in calls] == ["user", "user"]
    assert (epoch_ms(job.next_at), job.run_count) == (epoch_ms(saved.next_at), 0)


async def test_a_paused_job_can_be_run_manually_and_stays_paused(new_app: NewApp):
    app = new_app()
    noting(app)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("note"), enabled=False)
        assert (await over(app, (await app.jobs.run("job")).id)).state == "succeeded"
        assert not (await app.jobs.get("job")).enabled


@on_one_store
async def test_a_manual_run_does_not_wait_for_the_one_before(new_app: NewApp):
    app = new_app()
    both = asyncio.Barrier(2)

    @app.function()
    async def meet() -> None:
        await both.wait()

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("meet"))
        runs = [await app.jobs.run("job") for _ in range(2)]
        assert [(await over(app, run.id)).state for run in runs] == ["succeeded", "succeeded"]


@on_one_store
@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({"when": NOON}, "payload: when: datetime is not JSON"),
        (float("nan"), "payload: nan is not a number in JSON"),
        ("x" * 70_000, "payload: it has 70002 bytes"),
    ],
)
async def test_the_payload_of_a_manual_run_is_validated(new_app: NewApp, payload: Any, sentence: str):
    async with new_app() as app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("note"))
        with pytest.raises(InvalidArgument, match=sentence):
            await app.jobs.run("job", payload=payload)
        assert await app.runs.list() == []


async def test_mode_due_starts_no_run_before_the_tick(new_app: NewApp):
    app = new_app()
    noting(app)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("note"))
        await app.jobs.create("paused", schedule=SELDOM, target=Function("note"), enabled=False)
        for name in ("job", "paused"):
            assert await app.jobs.run(name, mode="due") is None
        assert await app.runs.list() == []


async def test_mode_due_starts_a_run_for_a_due_tick(database: str):
    store = store_at(database)
    await store.open()
    try:
        jobs = job_service(store, LauncherRegistry([FunctionLauncher()]))
        where = (LOCAL, "default", "default")
        target = {"kind": "function", "name": "note"}
        await jobs.create(*where, {"name": "job", "schedule": "in 50ms", "target": target})
        run = await eventually(lambda: jobs.trigger(*where, "job", mode="due"))
        assert run is not None
        assert (run.state, run.trigger) == ("pending", "user")
    finally:
        await store.close()


# --- backfills ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["skip", "allow"])
async def test_a_backfill_runs_each_tick_of_a_past_range_both_ends_included(new_app: NewApp, policy: Any):
    app = new_app()
    calls = noting(app)
    async with app:
        saved = await app.jobs.create(
            "job", schedule="0 * * * *", target=Function("note"), overlap_policy=policy, enabled=False
        )
        assert await app.jobs.backfill("job", NOON, NOON + timedelta(hours=3)) == 4
        await eventually(lambda: len(calls) == 4)
        runs = [await over(app, run.id) for run in await runs_of(app, "job")]
        job = await app.jobs.get("job")
    ticks = [NOON + timedelta(hours=hours) for hours in range(4)]
    assert sorted(call.scheduled_at for call in calls) == ticks
    if policy == "skip":
        assert [call.scheduled_at for call in calls] == ticks
    assert {(run.trigger, run.state) for run in runs} == {("backfill", "succeeded")}
    assert {tick_key(job.id, epoch_ms(run.scheduled_at)) for run in runs}.isdisjoint(
        run.idempotency_key for run in runs
    )
    assert job == saved


async def test_backfilled_ticks_run_one_at_a_time_where_the_job_does_not_allow_overlap(new_app: NewApp):
    app = new_app()
    under_way, most = 0, 0

    @app.function()
    async def work() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1

    async with app:
        await app.jobs.create("job", schedule="0 * * * *", target=Function("work"), enabled=False)
        await app.jobs.backfill("job", NOON, NOON + timedelta(hours=5))
        for run in await runs_of(app, "job"):
            assert (await over(app, run.id)).state == "succeeded"
    assert most == 1


@on_one_store
async def test_the_overlap_policy_of_a_backfill_replaces_that_of_the_job(new_app: NewApp):
    app, started, go = new_app(), 0, asyncio.Event()

    @app.function()
    async def work() -> None:
        nonlocal started
        started += 1
        await go.wait()

    async with app:
        await app.jobs.create("job", schedule="0 * * * *", target=Function("work"), enabled=False)
        await app.jobs.create(
            "other", schedule="0 * * * *", target=Function("work"), overlap_policy="allow", enabled=False
        )
        await app.jobs.backfill("job", NOON, NOON + timedelta(hours=2), overlap_policy="allow")
        await eventually(lambda: started == 3)
        await app.jobs.backfill("other", NOON, NOON + timedelta(hours=2), overlap_policy="queue")
        await eventually(lambda: started == 4)
        assert [run.state for run in await runs_of(app, "other")] == [
            "running",
            "pending",
            "pending",
        ]
        with pytest.raises(InvalidArgument, match="overlapPolicy: a backfill takes 'queue'"):
            await app.jobs.backfill("job", NOON, NOON, overlap_policy=cast(Any, "skip"))
        go.set()


async def test_the_same_range_can_be_backfilled_twice(new_app: NewApp):
    app = new_app()
    calls = noting(app)
    async with app:
        await app.jobs.create("job", schedule="0 * * * *", target=Function("note"), enabled=False)
        for _ in range(2):
            assert await app.jobs.backfill("job", NOON, NOON) == 1
        await eventually(lambda: len(calls) == 2)
    assert len({call.idempotency_key for call in calls}) == 2


async def test_a_backfill_of_a_range_without_a_tick_creates_no_run(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("job", schedule="0 * * * *", target=Function("note"), enabled=False)
        minute = timedelta(minutes=1)
        assert await app.jobs.backfill("job", NOON + minute, NOON + 2 * minute) == 0
        assert await app.runs.list() == []


@on_one_store
async def test_a_backfill_of_the_future_or_of_too_many_ticks_is_refused(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("job", schedule="* * * * *", target=Function("note"), enabled=False)
        await app.jobs.create("follower", after="job", target=Function("note"))
        now = datetime.now(UTC)
        with pytest.raises(InvalidArgument, match="past range"):
            await app.jobs.backfill("job", NOON, now + timedelta(hours=1))
        with pytest.raises(InvalidArgument, match="past range"):
            await app.jobs.backfill("job", NOON, NOON - timedelta(hours=1))
        with pytest.raises(InvalidArgument, match="at most 10000"):
            await app.jobs.backfill("job", NOON, NOON + timedelta(days=30))
        with pytest.raises(FailedPrecondition, match="no schedule to backfill"):
            await app.jobs.backfill("follower", NOON, NOON)
        assert await app.runs.list() == []


# --- follow-up runs ----------------------------------------------------------------------------------


async def chained(app: Wakeful, **fields: Any) -> None:
    """Create a job `first` and a follower for each of its outcomes."""
    await app.jobs.create("first", schedule=SELDOM, target=Function("first"), max_attempts=1, **fields)
    for on in ("succeeded", "failed", "finished"):
        await app.jobs.create(f"if-{on}", after={"job": "first", "on": on}, target=Function("note"))


@pytest.mark.parametrize(
    ("error", "followers"),
    [(None, {"if-succeeded", "if-finished"}), (Permanent("no"), {"if-failed", "if-finished"})],
    ids=["success", "failure"],
)
async def test_followers_run_for_the_outcome_they_wait_for(
    new_app: NewApp, error: Exception | None, followers: set[str]
):
    app = new_app()
    calls = noting(app)

    @app.function()
    async def first() -> None:
        if error:
            raise error

    async with app:
        await chained(app)
        leader = await over(app, (await app.jobs.run("first")).id)
        await eventually(lambda: len(calls) == len(followers))
        runs = [run for name in followers for run in await runs_of(app, name)]
        for run in runs:
            assert (await over(app, run.id)).state == "succeeded"
        assert len(await app.runs.list()) == 1 + len(followers)
    assert {call.job for call in calls} == followers
    assert {(run.trigger, run.triggered_by) for run in runs} == {("chain", leader.id)}


async def test_a_cancelled_run_starts_no_followers(new_app: NewApp):
    app = new_app()
    calls = noting(app)

    @app.function()
    async def first() -> None:
        await asyncio.Event().wait()

    async with app:
        await chained(app)
        run = await in_state(app, (await app.jobs.run("first")).id, "running")
        assert (await app.runs.stop(run.id)).state == "cancelled"
        # Follow-up runs would have been written with the end of the run.
        assert len(await app.runs.list()) == 1
    assert calls == []


async def test_followers_run_once_after_the_last_attempt(new_app: NewApp):
    app = new_app()
    calls = noting(app)

    @app.function()
    async def first(run: Launch) -> None:
        if run.attempt < 3:
            raise RuntimeError("not yet")

    async with app:
        await app.jobs.create(
            "first", schedule=SELDOM, target=Function("first"), backoff={"base": "10ms", "max": "10ms"}
        )
        await app.jobs.create("then", after={"job": "first", "on": "finished"}, target=Function("note"))
        await over(app, (await app.jobs.run("first")).id)
        await over(app, (await the_run_of(app, "then")).id)
        assert len(await runs_of(app, "then")) == 1
    assert len(calls) == 1


async def test_a_follower_can_have_followers(new_app: NewApp):
    app = new_app()
    calls = noting(app)
    async with app:
        await app.jobs.create("extract", schedule=SELDOM, target=Function("note"))
        await app.jobs.create("transform", after="extract", target=Function("note"), payload={"step": 2})
        await app.jobs.create("load", after="transform", target=Function("note"), payload={"step": 3})
        await app.jobs.run("extract")
        await over(app, (await the_run_of(app, "load")).id)
    assert [(call.job, call.payload) for call in calls] == [
        ("extract", None), ("transform", {"step": 2}), ("load", {"step": 3}),
    ]  # fmt: skip


async def test_a_follower_with_a_schedule_also_has_its_own_ticks(new_app: NewApp):
    app = new_app()
    calls = noting(app)
    async with app:
        await app.jobs.create("first", schedule=SELDOM, target=Function("note"))
        await app.jobs.create(
            "then", schedule="every 1s", start_at=soon(), after="first", target=Function("note")
        )
        await over(app, (await app.jobs.run("first")).id)
        await eventually(lambda: {"schedule", "chain"} <= {call.trigger for call in calls})


async def test_paused_followers_and_followers_of_other_agents_do_not_run(
    new_app: NewApp,
):
    app = new_app()
    calls = noting(app)
    async with app:
        await app.jobs.create("first", schedule=SELDOM, target=Function("note"))
        await app.jobs.create("paused", after="first", target=Function("note"), enabled=False)
        await app.jobs.of("other").create("then", after="first", target=Function("note"))
        await over(app, (await app.jobs.run("first")).id)
        assert len(await app.runs.list()) == 1
        assert await app.runs.of("other").list() == []
    assert len(calls) == 1
