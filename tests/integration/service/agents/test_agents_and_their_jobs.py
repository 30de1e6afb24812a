"""An agent and its internal jobs change together: with errors, at the same time, and after older versions."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.agents import counter
from tests.support.movable_clock import MovableClock, store_with
from wakeful import FailedPrecondition, InvalidArgument, NotFound, Wakeful
from wakeful.document import payload_from_text
from wakeful.job.job import Definition, Work
from wakeful.schedule.schedules import Every
from wakeful.service.admin.evolution_jobs import EVOLUTION_OFF, EvolutionStarter
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.job_factory import unscheduled_job
from wakeful.store.accounts import AgentRow
from wakeful.store.internal_jobs import (
    AGENT_ALERTS,
    ANALYSIS_JOB,
    EVALUATION_JOB,
    WORKSPACE_AGENT,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)
from wakeful.store.port import Store
from wakeful.store.row_mapping import job_from_row, job_to_row
from wakeful.store.rows import JobFilter, JobRow
from wakeful.store.sessions import HEARTBEAT

WS = "default"
FULL = {"heartbeat": True, "alerts": {"url": "http://127.0.0.1:1/a"}, "evolution": "suggest"}


@pytest.fixture
async def replicas(new_app: NewApp) -> AsyncIterator[tuple[Wakeful, Wakeful]]:
    """Two processes on one database, without engines."""
    first, second = new_app(), new_app()
    await first.store.open()
    await second.store.open()
    yield first, second
    await second.store.close()
    await first.store.close()


async def jobs_of(store: Store, agent: str) -> dict[str, JobRow]:
    return {row.name: row for row in await store.jobs(JobFilter(WS, agent))}


def mismatches(agent: AgentRow | None, jobs: dict[str, JobRow]) -> list[str]:
    """Return what the internal jobs of an agent have, and its document does not say."""
    wrong = []
    if agent is None:
        return sorted(jobs)
    beat, row = payload_from_text(agent.heartbeat), jobs.get(HEARTBEAT)
    wanted = beat["everyMs"] if isinstance(beat, dict) else None
    timing = None if row is None else job_from_row(row).definition.timing
    found = timing.schedule.every_ms if timing and isinstance(timing.schedule, Every) else None
    if found != wanted:
        wrong.append(f"heartbeat every {found}, not {wanted}")
    if row is not None and row.enabled != agent.active:
        wrong.append(f"heartbeat enabled: {row.enabled}")
    alerts = payload_from_text(agent.alerts)
    url = alerts.get("url") if isinstance(alerts, dict) else None
    sender = jobs.get(AGENT_ALERTS)
    target = None if sender is None else (job_from_row(sender).definition.work.target or {}).get("url")
    if target != url:
        wrong.append(f"alerts to {target}, not {url}")
    for name in (ANALYSIS_JOB, EVALUATION_JOB):
        task = jobs.get(name)
        if agent.evolution is None and (task is None or task.disabled_reason == EVOLUTION_OFF):
            continue
        if task is None or agent.evolution is None or task.enabled != agent.active:
            wrong.append(f"{name}: {task and task.disabled_reason}, evolution {agent.evolution}")
    return wrong


async def check(store: Store, agent: str) -> None:
    assert mismatches(await store.agent(WS, agent), await jobs_of(store, agent)) == [], agent


# --- refused requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["instance", "job"])
async def test_a_refused_deletion_changes_nothing(new_app: NewApp, why: str):
    app = new_app()
    app.agent(counter())
    async with app:
        await app.agents.put("counter", {**FULL, "target": {"kind": "pull"}})
        if why == "instance":
            await app.agents.start("counter", "eu")
            for row in (await jobs_of(app.store, "counter")).values():
                if row.instance_id is not None:  # its schedules are jobs as well
                    await app.store.delete_job(row.id, app.store.clock.now_ms(), "deleted")
        else:
            await app.services.jobs.create(LOCAL, WS, "counter", {"name": "digest", "schedule": SELDOM})
        before = await app.store.agent(WS, "counter"), await jobs_of(app.store, "counter")
        assert {HEARTBEAT, AGENT_ALERTS, ANALYSIS_JOB, EVALUATION_JOB} <= {*before[1]}
        expected = "1 instance that is not stopped" if why == "instance" else "1 job: delete it first"
        with pytest.raises(FailedPrecondition, match=expected):
            await app.services.agents.delete(LOCAL, WS, "counter")
        assert (await app.store.agent(WS, "counter"), await jobs_of(app.store, "counter")) == before


@pytest.mark.parametrize("exists", [False, True])
async def test_an_agent_whose_internal_job_cannot_be_written_does_not_change(
    replicas: tuple[Wakeful, Wakeful], exists: bool
):
    app, _ = replicas
    services, store = app.services, app.store
    if exists:
        await services.agents.put(LOCAL, WS, "ada", {"description": "before"})
    await store.create_jobs([_user_job("ada", AGENT_ALERTS)])
    before = await store.agent(WS, "ada"), await jobs_of(store, "ada"), await store.audit_head(WS)
    with pytest.raises(InvalidArgument, match="has a job 'wakeful-alerts' already"):
        await services.agents.put(LOCAL, WS, "ada", {**FULL, "description": "after"})
    after = await store.agent(WS, "ada"), await jobs_of(store, "ada"), await store.audit_head(WS)
    assert after == before


@pytest.mark.parametrize("operation", ["put", "off", "delete", "workspace"])
async def test_an_error_while_internal_jobs_are_written_leaves_everything_as_it_was(
    replicas: tuple[Wakeful, Wakeful], monkeypatch: pytest.MonkeyPatch, operation: str
):
    """As if the process had died: each write of an internal job in turn is the one that fails."""
    app, _ = replicas
    services, store = app.services, app.store
    document: dict[str, object] = {"heartbeat": {"every": "1h"}, "alerts": {"url": "http://127.0.0.1:1/b"}}
    if operation == "off":
        document = {"heartbeat": None, "active": False}
    await services.agents.put(LOCAL, WS, "ada", FULL)
    await services.agents.workspaces.put(LOCAL, WS, {"alerts": {"url": "http://127.0.0.1:1/w"}})

    async def act() -> None:
        if operation == "delete":
            await services.agents.delete(LOCAL, WS, "ada")
        elif operation == "workspace":
            await services.agents.workspaces.put(LOCAL, WS, {"description": "new"})
        else:
            await services.agents.put(LOCAL, WS, "ada", document)

    async def everything() -> object:
        agents = [await store.agent(WS, "ada"), await store.workspace(WS)]
        return agents, await jobs_of(store, "ada"), await jobs_of(store, WORKSPACE_AGENT)

    before, failures = await everything(), 0
    for number in range(20):
        calls = iter(range(100))

        def fail_at(original: Any, number: int = number, calls: Any = calls) -> Any:
            async def call(*args: Any) -> Any:
                if next(calls) == number:
                    raise RuntimeError("the process dies")
                return await original(*args)

            return call

        with monkeypatch.context() as patch:
            jobs = store._operations.jobs
            for name in ("change_jobs", "delete_job", "create_jobs"):
                patch.setattr(jobs, name, fail_at(getattr(jobs, name)))
            try:
                await act()
            except RuntimeError:
                failures += 1
                assert await everything() == before
                continue
        break
    assert failures > 0, "no write failed"
    assert await everything() != before
    if operation != "delete":
        await check(store, "ada")


# --- at the same time -----------------------------------------------------------------------------------


async def test_agents_that_two_processes_change_at_the_same_time_match_their_jobs(
    replicas: tuple[Wakeful, Wakeful],
):
    chance = random.Random(7)
    names = [f"agent-{number}" for number in range(12)]

    def document() -> dict[str, Any]:
        return {
            "heartbeat": chance.choice([None, True, {"every": "1h"}, {"every": "2h"}]),
            "alerts": chance.choice([None, {"url": "http://127.0.0.1:1/a"}, {"url": "http://127.0.0.1:1/b"}]),
            "evolution": chance.choice(["off", "suggest"]),
            "active": chance.choice([True, True, False]),
        }

    async def act(app: Wakeful, name: str) -> None:
        with contextlib.suppress(NotFound):
            if chance.random() < 0.2:
                await app.services.agents.delete(LOCAL, WS, name)
            else:
                await app.services.agents.put(LOCAL, WS, name, document())

    for _ in range(3):
        await asyncio.gather(*(act(app, name) for name in names for app in (*replicas, *replicas)))
        for name in names:
            await check(replicas[0].store, name)


async def test_the_alert_jobs_of_a_workspace_match_after_changes_at_the_same_time(
    replicas: tuple[Wakeful, Wakeful],
):
    for number in range(8):
        urls = [f"http://127.0.0.1:1/{number}", "http://127.0.0.1:1/x", None]
        alerts = [None if url is None else {"url": url} for url in urls]
        await asyncio.gather(
            *(
                app.services.agents.workspaces.put(LOCAL, WS, {"alerts": each})
                for each in alerts
                for app in replicas
            )
        )
        await check_workspace(replicas[0].store)


async def check_workspace(store: Store) -> None:
    row, jobs = await store.workspace(WS), await jobs_of(store, WORKSPACE_AGENT)
    assert row is not None
    alerts, sender = payload_from_text(row.alerts), jobs.get(WORKSPACE_ALERTS)
    target = None if sender is None else (job_from_row(sender).definition.work.target or {}).get("url")
    assert target == (alerts.get("url") if isinstance(alerts, dict) else None)
    assert WORKSPACE_CHANNEL not in jobs


# --- what older versions left ---------------------------------------------------------------------------


async def test_a_start_repairs_jobs_that_do_not_match_their_agents(database: str):
    clock = MovableClock()
    app = Wakeful(store=store_with(database, clock), secret_key="k", allow_private_targets=True)
    await app.store.open()
    store, services = app.store, app.services
    for name in ("lost", "left", "other", "paused", "taken"):
        await services.agents.put(LOCAL, WS, name, FULL)
    await services.agents.workspaces.put(LOCAL, WS, {"alerts": {"url": "http://127.0.0.1:1/w"}})
    await services.jobs.pause(LOCAL, WS, "paused", HEARTBEAT)
    paused = (await jobs_of(store, "paused"))[HEARTBEAT]
    for agent in ("lost", "taken", WORKSPACE_AGENT):
        for row in (await jobs_of(store, agent)).values():
            await store.delete_job(row.id, clock.now_ms(), "deleted")
    await store.create_jobs([_user_job("taken", AGENT_ALERTS)])
    off: dict[str, Any] = {"heartbeat": None, "alerts": None, "evolution": None}
    await store.put_agent(WS, "left", lambda old: old._replace(**off) if old else None)
    hourly = '{"everyMs":3600000}'
    await store.put_agent(WS, "other", lambda old: old._replace(heartbeat=hourly) if old else None)

    starter = EvolutionStarter(store, services.agents.evolution_jobs, services.agents.repair_internal_jobs)
    await starter.step()
    clock.advance(timedelta(minutes=1))
    await starter.step()
    for name in ("lost", "left", "other"):
        await check(store, name)
    await check_workspace(store)
    assert (await jobs_of(store, "paused"))[HEARTBEAT] == paused
    assert [*await jobs_of(store, "taken")][:1] == [AGENT_ALERTS], "a job of a user stays"
    versions = {row.id: row.version for row in await store.jobs(JobFilter(WS))}
    again = EvolutionStarter(store, services.agents.evolution_jobs, services.agents.repair_internal_jobs)
    await again.step()
    clock.advance(timedelta(minutes=1))
    await again.step()
    assert {row.id: row.version for row in await store.jobs(JobFilter(WS))} == versions
    await store.close()


def _user_job(agent: str, name: str) -> JobRow:
    """Return a user's job that had the name before it was reserved."""
    definition = Definition(name, None, work=Work({"kind": "pull"}))
    return job_to_row(unscheduled_job(WS, agent, definition, 1_000))
