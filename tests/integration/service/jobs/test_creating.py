"""Jobs created concurrently share a commit, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import PATIENCE, epoch_ms
from wakeful import AlreadyExists, InvalidArgument
from wakeful.errors import WakefulError
from wakeful.model import Job
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.accounts import JobContext
from wakeful.store.accounts import AgentChanged, Inherited
from wakeful.store.rows import JobRow

_NOTHING = {"kind": "function", "name": "nothing"}


async def nothing() -> None: ...


async def test_a_refused_create_does_not_fail_concurrent_ones(new_app: NewApp):
    app = new_app()
    app.function("nothing")(nothing)
    async with app:
        await app.jobs.create("taken", schedule=SELDOM, target=_NOTHING)
        names = [*(f"job-{number}" for number in range(50)), "taken", "twice", "twice", "No Slug"]
        answers = await asyncio.gather(
            *[app.jobs.create(name, schedule=SELDOM, target=_NOTHING) for name in names],
            return_exceptions=True,
        )
        refused = [
            (name, type(answer))
            for name, answer in zip(names, answers, strict=True)
            if isinstance(answer, BaseException)
        ]
        assert refused == [("taken", AlreadyExists), ("twice", AlreadyExists), ("No Slug", InvalidArgument)]
        assert len(await app.jobs.list()) == 52


async def test_a_cancelled_create_does_not_cancel_concurrent_ones(new_app: NewApp):
    app = new_app()
    app.function("nothing")(nothing)
    async with app:
        tasks = [
            asyncio.create_task(app.jobs.create(f"job-{number}", schedule=SELDOM, target=_NOTHING))
            for number in range(10)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()
        assert [task.exception() for task in tasks[1:]] == [None] * 9
        assert {job.name for job in await app.jobs.list()} >= {f"job-{number}" for number in range(1, 10)}


async def test_equal_relative_schedules_are_each_resolved_at_creation(new_app: NewApp):
    app = new_app()
    app.function("nothing")(nothing)
    async with app:
        saved = []
        for number in range(3):
            saved.append(await app.jobs.create(f"soon-{number}", schedule="in 20m", target=_NOTHING))
            await asyncio.sleep(0.01)
        assert len({epoch_ms(each.next_at) for each in saved}) == 3
        every = []
        for number in range(3):
            every.append(await app.jobs.create(f"every-{number}", schedule="every 20m", target=_NOTHING))
            await asyncio.sleep(0.01)
        assert all(epoch_ms(each.next_at) == epoch_ms(each.created_at) + 20 * 60_000 for each in every)
        assert len({epoch_ms(each.next_at) for each in every}) == 3


async def test_the_name_is_validated_even_if_the_document_is_cached(new_app: NewApp):
    app = new_app()
    app.function("nothing")(nothing)
    async with app:
        await app.jobs.create("first", schedule=SELDOM, target=_NOTHING)
        with pytest.raises(WakefulError, match="Second One"):
            await app.jobs.create("Second One", schedule=SELDOM, target=_NOTHING)
        with pytest.raises(InvalidArgument, match="name: 123 is not text"):
            await app.jobs.create(123, schedule=SELDOM, target=_NOTHING)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="after"):
                await app.jobs.create("third", after="third", target=_NOTHING)


async def test_a_job_that_the_store_cannot_write_does_not_fail_concurrent_ones(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    app.function("nothing")(nothing)
    async with app:
        create_jobs = app.store.create_jobs

        async def refuse_odd(jobs: Sequence[JobRow], *given: Any, **named: Any) -> None:
            if any(row.name == "odd" for row in jobs):
                raise ValueError("a value that the database does not accept")
            await create_jobs(jobs, *given, **named)

        monkeypatch.setattr(app.store, "create_jobs", refuse_odd)
        names = ["first", "odd", "second", "third"]
        answers = await asyncio.gather(
            *[app.jobs.create(name, schedule=SELDOM, target=_NOTHING) for name in names],
            return_exceptions=True,
        )
        assert [isinstance(answer, ValueError) for answer in answers] == [False, True, False, False]


async def test_a_create_for_an_agent_that_changes_all_the_time_does_not_fail_those_of_others(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    async with app:
        accounts = app.services.accounts
        read = accounts.context

        async def outdated(workspace: str, agent: str) -> JobContext:
            found = await read(workspace, agent)
            return replace(found, inherited=Inherited(active=False)) if agent == "restless" else found

        for agent in ("restless", "calm"):
            await app.agents.put(agent, {"target": {"kind": "echo"}})
        monkeypatch.setattr(accounts, "context", outdated)
        answers = await asyncio.gather(
            *(
                app.jobs.of(agent).create(f"job-{number}", schedule=SELDOM)
                for number in range(3)
                for agent in ("restless", "calm")
            ),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [AgentChanged, Job] * 3


async def test_a_create_that_waits_holds_up_no_other_workspace(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    async with new_app() as app:
        await app.services.agents.workspaces.put(LOCAL, "calm", {})
        create_jobs, continued, waits = app.store.create_jobs, asyncio.Event(), asyncio.Event()

        async def create_slowly(jobs: Sequence[JobRow], *given: Any, **named: Any) -> None:
            if jobs[0].workspace == "default":  # such as one whose agent is locked
                waits.set()
                await continued.wait()
            await create_jobs(jobs, *given, **named)

        monkeypatch.setattr(app.store, "create_jobs", create_slowly)
        waiting = asyncio.create_task(app.jobs.create("first", schedule=SELDOM))
        await waits.wait()
        async with asyncio.timeout(PATIENCE):
            assert (await app.jobs.of("default", "calm").create("first", schedule=SELDOM)).name == "first"
        continued.set()
        assert (await waiting).workspace == "default"
