"""Overlap policies of ticks and manual runs, with runs that really overlap."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient
from tests.support.rpc_client import calling
from tests.support.waiting import epoch_ms, eventually, in_state, over, runs_of, soon
from wakeful import Function, Launch, Wakeful
from wakeful.model import Run


class Slow:
    """A function whose calls block until `let_all_go` is called."""

    def __init__(self, app: Wakeful) -> None:
        self.calls: list[Launch] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self._let_go = asyncio.Event()
        app.function("work")(self)

    async def __call__(self, run: Launch) -> None:
        self.calls.append(run)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._let_go.wait()
            self.ended.append(run.scheduled_ms)
        except asyncio.CancelledError:
            self.cancelled.append(run.scheduled_ms)
            raise
        finally:
            self.at_once -= 1

    def let_all_go(self) -> None:
        self._let_go.set()


async def every_second(app: Wakeful, policy: Any, **fields: Any) -> None:
    fields = {"start_at": soon(), "overlap_policy": policy, **fields}
    await app.jobs.create("job", schedule="every 1s", target=Function("work"), **fields)


async def ticks(app: Wakeful, state: str, at_least: int = 1) -> list[Run]:
    """Wait for `at_least` runs in this state; return them, oldest first."""

    async def look() -> list[Run] | None:
        found = [run for run in await runs_of(app, "job") if run.state == state]
        return found if len(found) >= at_least else None

    found = await eventually(look)
    assert found is not None
    return found


@on_one_store
async def test_allow_starts_every_tick_while_others_run(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    async with app:
        await every_second(app, "allow")
        await eventually(lambda: work.at_once >= 2)
        work.let_all_go()
    first, second = work.calls[:2]
    assert second.scheduled_ms == first.scheduled_ms + 1000


@on_one_store
async def test_skip_does_not_skip_a_tick_if_the_run_before_has_ended(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    work.let_all_go()
    async with app:
        await every_second(app, "skip")

        async def after_a_finished_run() -> list[str]:
            return [
                after.state
                for before, after in pairwise(await runs_of(app, "job"))
                if before.state == "succeeded" and epoch_ms(before.finished_at) < epoch_ms(after.scheduled_at)
            ]

        states = await eventually(after_a_finished_run)
    assert "skipped" not in states


async def test_a_run_between_two_attempts_overlaps_the_next_tick(new_app: NewApp):
    app = new_app()

    @app.function()
    async def work() -> None:
        raise RuntimeError("no")

    async with app:
        await every_second(app, "skip", backoff={"base": "1h"})
        (retrying,) = await ticks(app, "retrying")
        skipped = (await ticks(app, "skipped"))[0]
        assert epoch_ms(skipped.scheduled_at) == epoch_ms(retrying.scheduled_at) + 1000
        await app.runs.cancel(retrying.id)
        await ticks(app, "retrying")


async def test_queue_runs_every_tick_in_order_one_at_a_time(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    async with app:
        await every_second(app, "queue")
        await ticks(app, "pending", at_least=2)
        assert len(work.calls) == 1
        work.let_all_go()
        await eventually(lambda: len(work.ended) >= 3)
    first = work.calls[0].scheduled_ms
    assert [call.scheduled_ms - first for call in work.calls[:3]] == [0, 1000, 2000]
    assert work.ended == sorted(work.ended)
    assert work.most_at_once == 1


async def test_a_tick_is_skipped_if_the_queue_is_full(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    async with app:
        await every_second(app, "queue", max_queued=1)
        skipped = (await ticks(app, "skipped"))[0]
        (waiting,) = await ticks(app, "pending")
        work.let_all_go()
        assert (await over(app, waiting.id)).state == "succeeded"
    assert skipped.reason == "queue_full"
    assert epoch_ms(skipped.scheduled_at) == epoch_ms(waiting.scheduled_at) + 1000


async def test_a_queued_run_starts_when_the_run_before_is_stopped(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    async with app:
        await every_second(app, "queue")
        waiting = (await ticks(app, "pending"))[0]
        await app.runs.stop(work.calls[0].id)
        await in_state(app, waiting.id, "running")
        work.let_all_go()


async def test_replace_stops_the_active_run_and_starts_the_new_one(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    async with app:
        await every_second(app, "replace")
        replaced = (await ticks(app, "cancelled"))[0]
        await eventually(lambda: len(work.calls) >= 2 and work.cancelled)
        work.let_all_go()
        await ticks(app, "succeeded")
    assert (replaced.reason, replaced.dead) == ("replaced", False)
    assert work.cancelled[0] == work.calls[0].scheduled_ms == epoch_ms(replaced.scheduled_at)
    assert work.calls[1].scheduled_ms > epoch_ms(replaced.scheduled_at)


async def test_a_tick_that_overlaps_a_manual_run_is_skipped(new_app: NewApp):
    app = new_app()
    work = Slow(app)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        await app.jobs.run("job")
        await eventually(lambda: work.calls)
        await app.jobs.update("job", schedule="every 1s", start_at=soon())
        assert (await ticks(app, "skipped"))[0].reason == "overlap"
        work.let_all_go()
        await eventually(lambda: len(work.calls) == 2)


# --- manual runs ------------------------------------------------------------------------------------------


async def by_hand(app: Wakeful, **given: Any) -> Run:
    run: Run | None = await app.jobs.run("job", **given)
    assert run is not None
    return run


async def busy(app: Wakeful) -> tuple[Slow, Run]:
    """Create a job and start one run of it."""
    slow = Slow(app)
    await app.jobs.create("job", schedule=SELDOM, target=Function("work"), max_queued=1)
    first = await by_hand(app)
    await in_state(app, first.id, "running")
    return slow, first


async def test_a_manual_run_starts_immediately_by_default(new_app: NewApp):
    async with new_app() as app:
        slow, _ = await busy(app)
        given: dict[str, Any]
        for given in ({}, {"overlap_policy": "allow"}):
            await in_state(app, (await by_hand(app, **given)).id, "running")
        await eventually(lambda: slow.most_at_once == 3)
        slow.let_all_go()


async def test_a_manual_run_with_skip_is_skipped_while_another_runs(new_app: NewApp):
    async with new_app() as app:
        slow, first = await busy(app)
        skipped = await by_hand(app, overlap_policy="skip")
        assert (skipped.state, skipped.reason, skipped.trigger) == ("skipped", "overlap", "user")
        assert (await app.runs.get(skipped.id)) == skipped
        slow.let_all_go()
        await over(app, first.id)
        assert (await over(app, (await by_hand(app, overlap_policy="skip")).id)).state == "succeeded"


async def test_a_manual_run_with_queue_waits_for_the_active_run(new_app: NewApp):
    async with new_app() as app:
        slow, first = await busy(app)
        waits = await by_hand(app, overlap_policy="queue")
        full = await by_hand(app, overlap_policy="queue")
        assert (waits.state, full.state, full.reason) == ("pending", "skipped", "queue_full")
        newer = await by_hand(app, overlap_policy="queue_one")
        assert newer.state == "pending"
        assert (await app.runs.get(waits.id)).reason == "superseded"
        slow.let_all_go()
        ended = [await over(app, run.id) for run in (first, newer)]
        assert [run.state for run in ended] == ["succeeded"] * 2
        assert slow.most_at_once == 1


async def test_a_manual_run_with_replace_cancels_active_and_waiting_runs(new_app: NewApp):
    async with new_app() as app:
        slow, first = await busy(app)
        waits = await by_hand(app, overlap_policy="queue")
        newest = await by_hand(app, overlap_policy="replace")
        for run in (first, waits):
            ended = await over(app, run.id)
            assert (ended.state, ended.reason) == ("cancelled", "replaced")
        await in_state(app, newest.id, "running")
        slow.let_all_go()
        assert (await over(app, newest.id)).state == "succeeded"


async def test_only_one_of_many_concurrent_manual_runs_with_skip_is_not_skipped(new_app: NewApp):
    async with new_app() as app, new_app() as other:
        slow, slow_too = Slow(app), Slow(other)
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        runs = await asyncio.gather(
            *(by_hand(each, overlap_policy="skip") for each in (app, other) for _ in range(10))
        )
        assert sorted(run.state for run in runs) == ["pending"] + ["skipped"] * 19
        slow.let_all_go()
        slow_too.let_all_go()


@on_one_store
async def test_the_overlap_policy_of_a_run_through_http_and_rpc(ask: ApiClient):
    await ask("POST", JOBS, {"name": "job", "schedule": SELDOM, "target": {"kind": "pull"}})
    path = f"{JOBS}/job/run"
    assert (await ask("POST", path)).body["state"] == "pending"
    first = await ask("POST", path, {"overlapPolicy": "queue"})
    assert (first.status, first.body["state"]) == (201, "pending")
    keyed = {"Idempotency-Key": "once"}
    skipped = await ask("POST", path, {"overlapPolicy": "skip"}, headers=keyed)
    assert (skipped.status, skipped.body["state"], skipped.body["reason"]) == (201, "skipped", "overlap")
    assert (await ask("POST", path, {"overlapPolicy": "skip"}, headers=keyed)).body == skipped.body
    refused = await ask("POST", path, {"overlapPolicy": "sometimes"})
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert "allow, skip, queue, queue_one, replace" in refused.body["detail"]
    async with calling(ask) as call:
        run = (await call("cron.run", jobId="job", overlapPolicy="replace"))["run"]
        assert run["state"] == "pending"
        assert (await ask("GET", f"/runs/{first.body['id']}")).body["reason"] == "replaced"
