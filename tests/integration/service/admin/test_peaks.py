"""Load peaks: what the interfaces show, that it is kept for a minute, and that saving only reads it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient
from wakeful.forecast.peaks import MANY
from wakeful.service.admin.peaks import WeekCache
from wakeful.store.port import Store
from wakeful.values.duration import MINUTE

_PULL = {"kind": "pull"}


async def _create(ask: ApiClient, number: int, schedule: str = "0 9 * * *", agent: str = "default") -> None:
    jobs = ask.app.jobs.of(agent)
    await jobs.create_many(
        {"name": f"{agent}-{schedule[0]}-{each}", "schedule": schedule, "target": _PULL}
        for each in range(number)
    )


async def test_the_busiest_minutes_of_the_coming_week(ask: ApiClient):
    await _create(ask, 40)
    await _create(ask, 5, "5 9 * * *", "ops")
    found = await ask("GET", "/peaks")
    assert found.status == 200
    body = found.body
    assert (body["jobs"], body["timings"], body["starts"]) == (45, 2, 7 * 45)
    assert (body["workspace"], body["agentId"], len(body["hours"])) == ("default", None, 168)
    assert sum(hour["starts"] for hour in body["hours"]) == 7 * 45
    assert len(body["peaks"]) == 10
    peak = body["peaks"][0]
    assert datetime.fromtimestamp(peak["atMs"] / 1000, UTC).strftime("%H:%M") == "09:00"
    assert peak["starts"] == 40
    assert peak["schedules"] == [{"explain": "At 09:00, every day (UTC)", "jobs": 40}]
    assert (peak["quietAt"][11:16], peak["quietStarts"]) == ("09:01", 0)
    of_agent = (await ask("GET", "/peaks", agent="ops")).body
    assert (of_agent["agentId"], of_agent["jobs"]) == ("ops", 5)
    agent = await ask.new("agent", agent="ops")
    own = (await agent("GET", "/peaks")).body
    assert (own["agentId"], own["jobs"]) == ("ops", 5)
    assert (await agent("GET", "/peaks", agent="default")).code == "not-found"
    assert (await ask("GET", "/peaks", agent="unknown")).code == "not-found"


async def test_another_workspace_is_not_counted(ask: ApiClient):
    await _create(ask, 3)
    await ask("PUT", "/api/workspaces/acme", {})
    await ask("PUT", "/api/workspaces/acme/agents/default", {})
    job = {"schedule": "0 9 * * *", "target": _PULL}
    await ask("PUT", "/api/workspaces/acme/agents/default/jobs/one", job)
    assert (await ask("GET", "/api/workspaces/acme/peaks")).body["jobs"] == 1
    assert (await ask("GET", "/peaks")).body["jobs"] == 3


async def test_a_week_is_kept_for_a_minute_and_shows_its_age(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    await _create(ask, 2)
    first = (await ask("GET", "/peaks")).body
    await _create(ask, 3, "5 9 * * *")
    clock = ask.app.services.store.clock
    now_ms, moved = clock.now_ms, 30_000
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + moved)
    kept = (await ask("GET", "/peaks")).body
    assert (kept["jobs"], kept["computedAt"]) == (2, first["computedAt"])
    assert 30_000 <= kept["ageMs"] < 60_000
    moved = 61_000
    fresh = (await ask("GET", "/peaks")).body
    assert fresh["jobs"] == 5
    assert fresh["ageMs"] < 30_000


async def test_concurrent_requests_compute_once(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    await _create(ask, 2)
    store, calls = ask.app.services.store, 0
    timings = store.timings

    async def counted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        return await timings(*given)

    monkeypatch.setattr(store, "timings", counted)
    replies = await asyncio.gather(*(ask("GET", "/peaks") for _ in range(8)))
    assert {reply.body["jobs"] for reply in replies} == {2}
    assert calls == 1


async def test_a_job_at_a_busy_minute_is_saved_with_a_warning(ask: ApiClient):
    await _create(ask, MANY)
    job = {"schedule": "0 9 * * *", "target": _PULL}
    # Nothing is known yet, and saving does not compute it.
    assert "warnings" not in (await ask("PUT", f"{JOBS}/early", job)).body
    await ask("GET", "/peaks")
    created = await ask("POST", JOBS, {**job, "name": "late"})
    assert created.status == 201
    (warning,) = created.body["warnings"]
    assert f"about {MANY + 1} jobs of this workspace start at 09:00 (UTC)" in warning
    assert "set a jitter (5m), or choose 09:01 (UTC), when no other starts" in warning
    # The same document again changes nothing, and says nothing; a new schedule does.
    assert "warnings" not in (await ask("PUT", f"{JOBS}/late", job)).body
    assert "warnings" not in (await ask("PATCH", f"{JOBS}/late", {"description": "x"})).body
    quiet = await ask("PATCH", f"{JOBS}/late", {"schedule": "7 9 * * *"})
    assert "warnings" not in quiet.body
    assert (await ask("PATCH", f"{JOBS}/late", {"schedule": "0 9 * * *"})).body["warnings"] == [warning]
    # With jitter it is spread already.
    jittered = await ask("PUT", f"{JOBS}/spread", {**job, "jitter": "5m"})
    assert "warnings" not in jittered.body
    made = await ask.app.jobs.create("python", schedule="0 9 * * *", target=_PULL)
    assert made.warnings == (warning,)


@on_one_store
async def test_saving_starts_a_computation_and_does_not_wait(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.service.admin.peaks._FIRST_S", 0)
    app = new_app()
    read, go_on = asyncio.Event(), asyncio.Event()
    async with app:
        store: Store = app.services.store
        timings = store.timings

        async def slow(*given: Any) -> Any:
            read.set()
            await go_on.wait()
            return await timings(*given)

        monkeypatch.setattr(store, "timings", slow)
        await app.jobs.create("one", schedule="0 9 * * *", target=_PULL)
        await read.wait()
        await app.jobs.create("two", schedule="0 9 * * *", target=_PULL)  # while the first one is computed
        weeks = app.services.weeks
        assert weeks.known("default") is None
        go_on.set()
        assert (await weeks.get("default", None)).week.jobs == 2
        known = weeks.known("default")
        assert known is not None
        assert known.jobs == 2


@on_one_store
async def test_an_old_week_warns_for_an_hour_and_is_renewed_in_the_background(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    async with app:
        weeks, clock = app.services.weeks, app.services.store.clock
        await weeks.get("default", None)
        now_ms, moved = clock.now_ms, 10 * MINUTE
        monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + moved)
        old = weeks.known("default")
        assert old is not None
        while weeks.known("default") is old:
            await asyncio.sleep(0.001)
        moved += 61 * MINUTE
        assert weeks.known("default") is None


@on_one_store
async def test_stopping_ends_a_computation(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wakeful.service.admin.peaks._FIRST_S", 0)
    app = new_app()
    started = asyncio.Event()

    async def hang(*given: Any) -> Any:
        started.set()
        await asyncio.Event().wait()

    async with app:
        monkeypatch.setattr(app.services.store, "timings", hang)
        await app.jobs.create("one", schedule="0 9 * * *", target=_PULL)
        await started.wait()
    weeks: WeekCache = app.services.weeks
    assert weeks._computing == {}
    assert weeks.known("default") is None


async def test_the_python_api_returns_the_week(new_app: NewApp):
    app = new_app()
    async with app:
        await app.jobs.create("one", schedule="0 9 * * *", target=_PULL)
        await app.jobs.of("ops").create("two", schedule="0 9 * * *", target=_PULL)
        assert (await app.jobs.peaks())["jobs"] == 2
        assert (await app.jobs.of("ops").peaks(all_agents=False))["jobs"] == 1
