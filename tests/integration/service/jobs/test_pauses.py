"""Pauses with a note and an end, and ticks that are skipped on request, through every interface."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.rpc_client import Refused, calling
from tests.support.waiting import epoch_ms, eventually
from wakeful import FailedPrecondition, InvalidArgument
from wakeful.engine.in_flight import Lease
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.planner import PlanningBatch
from wakeful.launch.budgets import BudgetCache
from wakeful.run.planning import Limits
from wakeful.store.internal_jobs import ANALYSIS_JOB

_NOTHING = {"kind": "function", "name": "nothing"}
_PAUSE = f"{JOBS}/digest/pause"


async def create(ask: ApiClient, schedule: str = SELDOM) -> None:
    made = await ask("POST", JOBS, {"name": "digest", "schedule": schedule, "target": _NOTHING})
    assert made.status == 201


async def test_a_pause_has_a_note_and_an_end(ask: ApiClient):
    await create(ask)
    paused = await ask("POST", _PAUSE, {"note": "maintenance", "until": "2099-03-01T09:00"})
    assert (paused.status, paused.body["enabled"]) == (200, False)
    assert (paused.body["pauseNote"], paused.body["pausedUntil"]) == (
        "maintenance",
        "2099-03-01T09:00:00.000Z",
    )
    assert (paused.body["nextAt"], paused.body["nextTicks"]) == (None, [])

    again = await ask("POST", _PAUSE)
    assert (again.body["pauseNote"], again.body["revision"]) == ("maintenance", paused.body["revision"])
    longer = await ask("POST", _PAUSE, {"until": "in 2h"})
    assert longer.body["pauseNote"] is None
    assert longer.body["pausedUntil"] < "2099"

    edited = await ask("PATCH", f"{JOBS}/digest", {"schedule": "0 8 * * *"})
    assert edited.body["pausedUntil"] == longer.body["pausedUntil"], "an edit keeps the pause"

    resumed = await ask("POST", f"{JOBS}/digest/resume")
    assert (resumed.body["enabled"], resumed.body["pauseNote"], resumed.body["pausedUntil"]) == (
        True,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"until": "2020-01-01T00:00"}, "in the past; it is now"),
        ({"until": 5}, "in the past; it is now"),
        ({"until": "every 5m"}, "write when the pause ends"),
        ({"until": True}, "write when the pause ends"),
        ({"until": "tomorrow-ish"}, "until: "),
        ({"note": 7}, "note: write why"),
        ({"note": "x" * 501}, "at most 500"),
        ({"when": "now"}, "when"),
    ],
)
@on_one_store
async def test_an_invalid_pause_is_refused_and_nothing_is_paused(ask: ApiClient, given, words: str):
    await create(ask)
    refused = await ask("POST", _PAUSE, given)
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert words in refused.body["detail"]
    assert (await ask("GET", f"{JOBS}/digest")).body["enabled"]


async def test_a_paused_job_resumes_when_its_pause_ends(ask: ApiClient):
    await create(ask, "every 1s")
    await ask("POST", _PAUSE, {"note": "a moment", "until": "in 1s"})

    async def resumed() -> bool:
        return bool((await ask("GET", f"{JOBS}/digest")).body["enabled"])

    await eventually(resumed)
    job = (await ask("GET", f"{JOBS}/digest")).body
    assert (job["pauseNote"], job["pausedUntil"], job["disabledReason"]) == (None, None, None)

    async def ran() -> bool:
        runs = (await ask("GET", f"{JOBS}/digest/runs")).body["runs"]
        return any(run["state"] == "succeeded" for run in runs)

    await eventually(ran)


async def test_a_job_whose_pause_ends_while_its_agent_is_inactive_resumes_with_the_agent(ask: ApiClient):
    await create(ask)
    await ask("POST", _PAUSE, {"until": "in 1s"})
    await ask("PUT", f"{HOME}/agents/default", {"active": False})

    async def ended() -> bool:
        return bool((await ask("GET", f"{JOBS}/digest")).body["disabledReason"] == "agent_inactive")

    await eventually(ended)
    await ask("PUT", f"{HOME}/agents/default", {"active": True})

    async def resumed() -> bool:
        return bool((await ask("GET", f"{JOBS}/digest")).body["enabled"])

    await eventually(resumed)


@on_one_store
async def test_a_job_disabled_for_another_reason_cannot_be_paused_until_a_time(ask: ApiClient):
    for evolution in ("suggest", "off"):
        await ask("PUT", f"{HOME}/agents/default", {"evolution": evolution})
    pause = f"{JOBS}/{ANALYSIS_JOB}/pause"
    refused = await ask("POST", pause, {"until": "in 2h"})
    assert (refused.status, refused.code) == (409, "failed-precondition")
    left = await ask("POST", pause)
    assert (left.status, left.body["disabledReason"]) == (200, "evolution_off")


async def test_the_next_tick_is_skipped_on_request(ask: ApiClient):
    await create(ask, "0 7 * * *")
    before = (await ask("GET", f"{JOBS}/digest")).body["nextTicks"]
    done = await ask("POST", f"{JOBS}/digest/skip-next")
    assert (done.status, done.headers["etag"]) == (200, '"2"')
    assert done.body["nextTicks"][:4] == before[1:]
    skipped = done.body["skipped"]
    assert (skipped["state"], skipped["reason"], skipped["scheduledAtMs"]) == (
        "skipped",
        "asked",
        before[0]["atMs"],
    )
    job = (await ask("GET", f"{JOBS}/digest")).body
    assert [run["id"] for run in job["lastRuns"]] == [skipped["id"]]
    assert job["runCount"] == 0

    (entry, *_) = (await ask("GET", f"{HOME}/audit")).body["entries"]
    assert (entry["action"], entry["subject"]) == ("job.skip-next", "default/digest")
    stale = await ask("POST", f"{JOBS}/digest/skip-next", headers={"If-Match": '"1"'})
    assert stale.status == 412


@on_one_store
async def test_skip_next_is_refused_without_a_next_tick(ask: ApiClient):
    await create(ask)
    await ask("POST", _PAUSE)
    paused = await ask("POST", f"{JOBS}/digest/skip-next")
    assert (paused.status, paused.code) == (409, "failed-precondition")
    assert "no next tick to skip: it is not enabled" in paused.body["detail"]
    await ask("POST", JOBS, {"name": "later", "schedule": "in 2h", "target": _NOTHING})
    last = await ask("POST", f"{JOBS}/later/skip-next")
    assert (last.body["enabled"], last.body["disabledReason"]) == (False, "no_more_ticks")


async def test_skip_next_cancels_a_run_that_is_recorded_ahead(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("digest", schedule="0 0 1 1 *", target={"kind": "pull"})
        job = await app.jobs.get("digest")
        assert job.next_at is not None
        # As a planner records it, ahead of its fire time.
        store, at_ms = app.services.store, epoch_ms(job.next_at)
        limits, budgets = Limits(lead_ms=50), BudgetCache(store, 1_000)
        ahead = PlanningBatch("w", Lease(1_000), LauncherRegistry([]), budgets, limits, at_ms - 20, {})
        planned = await store.plan(at_ms, 10, ahead.decide)
        assert [run.state for run in planned.runs] == ["pending"]

        done = await app.jobs.skip_next("digest")
        assert done.skipped is not None
        assert (done.skipped.id, done.skipped.state, done.skipped.reason) == (
            planned.runs[0].id,
            "cancelled",
            "asked",
        )
        assert done.next_at is not None
        assert epoch_ms(done.next_at) > at_ms


@on_one_store
async def test_skip_next_returns_the_tick_that_it_skips_if_its_transaction_is_repeated(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    async with new_app() as app:
        await app.jobs.create("digest", schedule="0 9 * * *", target=_NOTHING)
        change_job = app.store.change_job

        async def lose_a_deadlock(job_id, change, *args, **given):
            change(await app.store.job_by_id(job_id))
            monkeypatch.undo()
            other = await app.jobs.skip_next("digest")
            assert other.skipped is not None
            skipped.append(other.skipped.id)
            return await change_job(job_id, change, *args, **given)

        skipped: list[str] = []
        monkeypatch.setattr(app.store, "change_job", lose_a_deadlock)
        done = await app.jobs.skip_next("digest")
        assert done.skipped is not None
        skipped.append(done.skipped.id)
        assert [(await app.runs.get(run_id)).state for run_id in skipped] == ["skipped", "skipped"]


@on_one_store
async def test_a_pause_and_skip_next_through_rpc_and_python(new_app: NewApp, ask: ApiClient):
    await create(ask)
    async with calling(ask) as call:
        pause = {"enabled": False, "note": "later", "until": "in 2h"}
        paused = (await call("cron.toggle", jobId="digest", **pause))["job"]
        assert (paused["pauseNote"], paused["pausedUntil"] is not None) == ("later", True)
        with pytest.raises(Refused, match="only for a pause"):
            await call("cron.toggle", jobId="digest", enabled=True, note="x")
        await call("cron.toggle", jobId="digest", enabled=True)
        skipped = await call("cron.skipNext", jobId="digest")
        assert (skipped["run"]["reason"], skipped["job"]["nextRunAtMs"] is not None) == ("asked", True)

    async with new_app() as app:
        end = datetime.now(UTC) + timedelta(hours=2)
        job = await app.jobs.pause("digest", note="python", until=end)
        assert (job.pause_note, epoch_ms(job.paused_until)) == ("python", int(end.timestamp() * 1000))
        for note in ("a\x00b", "\ud83d"):
            with pytest.raises(InvalidArgument, match="note: it has a character that cannot be stored"):
                await app.jobs.pause("digest", note=note)
        with pytest.raises(FailedPrecondition):
            await app.jobs.skip_next("digest")


async def test_a_job_is_read_with_its_last_five_runs(ask: ApiClient):
    await create(ask)
    runs = [(await ask("POST", f"{JOBS}/digest/run")).body["id"] for _ in range(6)]
    job = (await ask("GET", f"{JOBS}/digest")).body
    assert [run["id"] for run in job["lastRuns"]] == runs[:0:-1]
    put = await ask("PUT", f"{JOBS}/digest", job)
    assert put.status == 200, "what was read can be sent back"
