"""The internal jobs of evolution: created, disabled and run like other jobs, once for all replicas."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.evolving_agent import evolving_agent
from tests.support.movable_clock import MovableClock, store_with
from tests.support.run_months import HOUR, failing
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.errors import Unavailable
from wakeful.service.admin.evolution_jobs import FIRST_AFTER_MS, EvolutionJobs, EvolutionStarter
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings
from wakeful.store.internal_jobs import ANALYSIS_JOB, EVALUATION_JOB
from wakeful.store.rows import JobFilter, JobRow, RunFilter

JOBS = "/agents/ada/jobs"
DAY_MS, MINUTE = 86_400_000, 60_000


async def row(app: Wakeful, name: str = ANALYSIS_JOB, agent: str = "ada") -> JobRow:
    found = await app.store.job("default", agent, name)
    assert found is not None
    return found


async def put(app: Wakeful, agent: str = "ada", **document: object) -> None:
    await app.services.agents.put(LOCAL, "default", agent, document)


# --- the document ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({"evolution": "suggest"}, "suggest"),
        ({"evolution": True}, "suggest"),
        ({"evolution_metrics": True}, "suggest"),
        ({"evolutionMetrics": True, "evolution": "suggest"}, "suggest"),
        ({"evolution": "off"}, "off"),
        ({"evolution": False}, "off"),
        ({"evolution": None}, "off"),
        ({"evolution_metrics": False}, "off"),
        ({}, "off"),
    ],
)
@on_one_store
async def test_the_field_of_an_agent(ask: ApiClient, document: dict[str, object], shown: str) -> None:
    saved = await ask("PUT", "/agents/ada", document)
    assert (saved.status, saved.body["evolution"]) == (201, shown)
    again = await ask("PUT", "/agents/ada", saved.body)
    assert (again.status, again.body["version"]) == (200, 1)
    names = {job["name"] for job in (await ask("GET", JOBS)).body["jobs"]}
    assert names == ({ANALYSIS_JOB, EVALUATION_JOB} if shown == "suggest" else set())


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"evolution": "on"}, "evolution: 'on' is not one of suggest and off"),
        ({"evolution": 1}, "evolution: 1 is not one of suggest and off"),
        ({"evolution_metrics": "yes"}, "evolution_metrics: write true or false"),
        ({"evolution": "off", "evolution_metrics": True}, "contradict each other"),
    ],
)
@on_one_store
async def test_a_wrong_field_is_refused(ask: ApiClient, document: dict[str, object], said: str) -> None:
    refused = await ask("PUT", "/agents/ada", document)
    assert refused.code == "invalid-argument"
    assert said in refused.body["detail"]


# --- the jobs -------------------------------------------------------------------------------------------


async def test_the_jobs_are_visible_disabled_when_it_is_off_and_deleted_with_the_agent(
    ask: ApiClient,
) -> None:
    await ask("PUT", "/agents/ada", {"evolution": "suggest"})
    analysis = (await ask("GET", f"{JOBS}/{ANALYSIS_JOB}")).body
    assert analysis["schedule"] == {"kind": "every", "everyMs": DAY_MS}
    assert (analysis["enabled"], analysis["timeoutMs"], analysis["maxAttempts"]) == (True, 300_000, 1)
    assert analysis["labels"] == {"system": "evolution"}
    evaluation = (await ask("GET", f"{JOBS}/{EVALUATION_JOB}")).body
    assert evaluation["schedule"] == {"kind": "every", "everyMs": 7 * DAY_MS}
    assert evaluation["catchupPolicy"] == "latest"
    # a minute and a week after it was turned on
    created = (await row(ask.app)).created_ms
    assert (await row(ask.app)).next_ms == created + MINUTE
    week = await row(ask.app, EVALUATION_JOB)
    assert week.next_ms == week.created_ms + 7 * DAY_MS

    await ask("PUT", "/agents/ada", {"evolution": "off"})
    for name in (ANALYSIS_JOB, EVALUATION_JOB):
        off = (await ask("GET", f"{JOBS}/{name}")).body
        assert (off["enabled"], off["disabledReason"], off["nextAt"]) == (False, "evolution_off", None)
    await ask("PUT", "/agents/ada", {"evolution": "suggest"})
    assert (await ask("GET", f"{JOBS}/{ANALYSIS_JOB}")).body["enabled"]
    assert (await ask("DELETE", "/agents/ada")).status == 204
    assert await ask.app.store.jobs(JobFilter("default", "ada")) == []


@on_one_store
async def test_a_pause_by_a_person_stays_and_an_inactive_agent_is_not_analyzed(ask: ApiClient) -> None:
    await ask("PUT", "/agents/ada", {"evolution": "suggest"})
    await ask("POST", f"{JOBS}/{ANALYSIS_JOB}/pause")
    for mode in ("suggest", "off", "suggest"):
        await ask("PUT", "/agents/ada", {"evolution": mode})
        assert (await row(ask.app)).disabled_reason == "paused"
    await ask("PUT", "/agents/eve", {"evolution": "suggest", "active": False})
    assert (await row(ask.app, agent="eve")).disabled_reason == "agent_inactive"
    await ask("PUT", "/agents/eve", {"evolution": "suggest"})
    assert (await row(ask.app, agent="eve")).enabled
    await ask("PUT", "/agents/eve", {"active": False})
    await ask("PUT", "/agents/eve", {})
    assert (await row(ask.app, agent="eve")).disabled_reason == "evolution_off"


@on_one_store
async def test_an_agents_key_reads_the_jobs_and_cannot_change_them(ask: ApiClient) -> None:
    await ask("PUT", "/agents/ada", {"evolution": "suggest"})
    own = await ask.new("agent", agent="ada")
    assert (await own("GET", f"{JOBS}/{ANALYSIS_JOB}")).status == 200
    assert (await own("POST", f"{JOBS}/{ANALYSIS_JOB}/pause")).code == "permission-denied"
    assert (await own("DELETE", f"{JOBS}/{ANALYSIS_JOB}")).code == "permission-denied"
    refused = await ask("POST", JOBS, {"name": "mine", "schedule": "@daily", "target": {"kind": "evolution"}})
    assert refused.code == "invalid-argument"


@on_one_store
async def test_the_jobs_count_towards_no_quota(new_app: NewApp) -> None:
    settings = Settings(quota_jobs_per_agent=1, quota_create_per_agent=1)
    async with new_app(settings=settings) as app, served(app) as ask:
        assert (await ask("PUT", "/agents/ada", {"evolution": "suggest"})).status == 201
        assert (await ask("POST", JOBS, {"name": "a", "schedule": "@daily"})).status == 201
        assert (await ask("POST", JOBS, {"name": "b", "schedule": "@daily"})).code == "resource-exhausted"


# --- runs -----------------------------------------------------------------------------------------------


async def test_an_engine_runs_analysis_and_evaluation_as_ordinary_runs(database: str) -> None:
    async with evolving_agent(database) as ada:
        await ada.add(schedule=SELDOM)  # the engine adds no run to those of the month
        await ada.spend(failing("work", HOUR, lambda _: True))
        clock = ada.clock
    async with Wakeful(store=store_with(database, clock), secret_key="a key for tests") as app:
        outputs = []
        for name in (ANALYSIS_JOB, EVALUATION_JOB):
            started = await app.services.jobs.trigger(LOCAL, "default", "ada", name)
            assert started is not None
            run = await app.runs.wait(started.id, poll=0.01)
            assert run.state == "succeeded", run.error
            outputs.append(json.loads(run.output or ""))
        assert outputs == [
            {"jobs": 1, "opened": 1, "refreshed": 0, "withdrawn": 0},
            {"evaluated": 0, "rolled_back": 0},
        ]
        assert len(await app.suggestions.list(agent="ada")) == 1
        await put(app, evolution="off")
        started = await app.services.jobs.trigger(LOCAL, "default", "ada", ANALYSIS_JOB)
        assert started is not None
        run = await app.runs.wait(started.id, poll=0.01)
        assert run.output == "evolution of agent 'ada' is off"


async def test_an_error_of_one_agent_does_not_stop_the_others(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_app() as app:
        analyze = app.services.admin.evolution.analyze

        async def broken(workspace: str, agent: str) -> object:
            if agent == "ada":
                raise Unavailable("the database is away")
            return await analyze(workspace, agent)

        monkeypatch.setattr(app.services.admin.evolution, "analyze", broken)
        states = {}
        for agent in ("ada", "bob"):
            await put(app, agent, evolution="suggest")
            started = await app.services.jobs.trigger(LOCAL, "default", agent, ANALYSIS_JOB)
            assert started is not None
            run = await app.runs.wait(started.id, poll=0.01)
            states[agent] = (run.state, run.error)
    assert states == {"ada": ("failed", "the database is away"), "bob": ("succeeded", None)}


# --- after a start --------------------------------------------------------------------------------------


async def test_replicas_that_start_together_cause_one_analysis_of_each_agent(database: str) -> None:
    clock = MovableClock()
    first = Wakeful(store=store_with(database, clock), secret_key="k")
    second = Wakeful(store=store_with(database, clock), secret_key="k")
    await first.store.open()
    await second.store.open()
    for agent in ("ada", "bob"):
        await put(first, agent, evolution="suggest")
    await put(first, "off", evolution="off")
    clock.advance(timedelta(days=3, hours=5))
    starters = [EvolutionStarter(app.store, EvolutionJobs(app.store)) for app in (first, second)]
    due = [await starter.step() for starter in starters]
    assert all(each is not None and each >= clock.now_ms() + FIRST_AFTER_MS - 1_000 for each in due)
    before = await row(first)
    clock.advance(timedelta(minutes=1))
    now_ms = clock.now_ms()
    await asyncio.gather(*(starter.step() for starter in starters))
    for agent in ("ada", "bob"):
        moved = await row(first, agent=agent)
        assert moved.version == before.version + 1, "one of the starters moved it"
        assert moved.next_ms is not None
        assert 0 <= moved.next_ms - now_ms < MINUTE
        assert moved.anchor_ms == moved.next_ms - DAY_MS, "daily from then on"
    await second.store.close()
    await first.store.close()
    async with Wakeful(store=store_with(database, clock), secret_key="k") as app:

        async def analyzed() -> list[str] | None:
            runs = await app.store.runs(RunFilter("default", trigger="schedule", states=("succeeded",)))
            return sorted(run.agent for run in runs) if len(runs) > 1 else None

        assert await eventually(analyzed) == ["ada", "bob"]
        # Another start within the hour changes nothing; a day after the first one is the next analysis.
        third = EvolutionStarter(app.store, EvolutionJobs(app.store))
        await third.step()
        clock.advance(timedelta(minutes=2))
        for _ in range(2):
            await third.step()
        after = await row(app)
        assert after.version == before.version + 1
        assert after.next_ms == after.anchor_ms + 2 * DAY_MS


@on_one_store
async def test_a_start_repairs_missing_jobs_and_leaves_paused_ones(database: str) -> None:
    clock = MovableClock()
    app = Wakeful(store=store_with(database, clock), secret_key="k")
    await app.store.open()
    for agent in ("ada", "bob"):
        await put(app, agent, evolution="suggest")
    await app.services.jobs.pause(LOCAL, "default", "ada", ANALYSIS_JOB)
    lost = await row(app, agent="bob")
    await app.store.delete_job(lost.id, clock.now_ms(), "deleted")
    starter = EvolutionStarter(app.store, EvolutionJobs(app.store))
    await starter.step()
    clock.advance(timedelta(minutes=1))
    await starter.step()
    assert (await row(app)).disabled_reason == "paused"
    assert (await row(app, agent="bob")).enabled
    await app.store.close()
