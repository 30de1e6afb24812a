"""Claims that wait for runs: one of those that wait for the same runs asks the database, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import PATIENCE, eventually
from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL

#: How many claims wait.
MANY: Final = 12


class Asked:
    """Counts how often claims ask the database, by executor."""

    def __init__(self, app: Wakeful, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workers: list[str] = []
        claim = app.store.claim

        async def counted(now_ms: int, worker: str, *given: Any) -> Any:
            self.workers.append(worker)
            return await claim(now_ms, worker, *given)

        monkeypatch.setattr(app.store, "claim", counted)

    async def by(self, worker: str) -> None:
        """Wait until an executor has asked."""

        async def has_asked() -> bool:
            return worker in self.workers

        assert await eventually(has_asked)


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    async with new_app() as app:
        await app.jobs.create("pulled", schedule=SELDOM, target={"kind": "pull"})
        yield app


@pytest.fixture
def asked(app: Wakeful, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(app, monkeypatch)


async def wait_for_runs(app: Wakeful, asked: Asked, **more: Any) -> list[asyncio.Task[Any]]:
    """Start claims, one after the other, and return them when all of them wait."""
    waiting = []
    for number in range(MANY):
        given: dict[str, Any] = {"wait_ms": 60_000, "claim_id": f"c{number}", **more}
        waiting.append(
            asyncio.create_task(app.services.runs.pull.claim(LOCAL, "default", f"w{number}", **given))
        )
        await asked.by(f"w{number}")
    for _ in range(20):
        await asyncio.sleep(0)
    return waiting


async def end(waiting: list[asyncio.Task[Any]]) -> None:
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_claims_for_different_agents_ask_one_after_the_other(
    app: Wakeful, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise the writes of other tenants would wait for those of a thousand claims."""
    claim, asking, most, by = app.store.claim, 0, 0, set[str]()

    async def counted(now_ms: int, worker: str, *given: Any) -> Any:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        by.add(worker)
        try:
            await asyncio.sleep(0)
            return await claim(now_ms, worker, *given)
        finally:
            asking -= 1

    monkeypatch.setattr(app.store, "claim", counted)
    waiting = [
        asyncio.create_task(
            app.services.runs.pull.claim(
                LOCAL, "default", f"w{number}", agents=[f"a{number}"], wait_ms=60_000
            )
        )
        for number in range(MANY)
    ]
    await eventually(lambda: len(by) == MANY)
    assert most <= 4
    waiting.pop().cancel()
    app.services.runs.pull.shut_down()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [[]] * (MANY - 1)


async def test_runs_of_others_let_one_of_many_waiting_claims_ask(app: Wakeful, asked: Asked):
    await app.services.agents.put(LOCAL, "default", "other", {"target": {"kind": "echo"}})
    await app.jobs.of("other").create("echo", schedule=SELDOM)
    waiting = await wait_for_runs(app, asked, agents=["default"])
    asked.workers.clear()
    for _ in range(5):
        await app.runs.wait((await app.jobs.of("other").run("echo")).id)
    assert len(set(asked.workers)) <= 1
    await end(waiting)


async def test_each_waiting_claim_gets_a_run_in_its_turn(app: Wakeful, asked: Asked):
    waiting = await wait_for_runs(app, asked)
    started = [(await app.jobs.run("pulled")).id for _ in range(MANY)]
    async with asyncio.timeout(PATIENCE):
        claimed = [run["id"] for runs in await asyncio.gather(*waiting) for run in runs]
    assert sorted(claimed) == sorted(started)


@pytest.mark.parametrize("gone", ["cancelled", "released"])
async def test_a_claim_that_ends_lets_the_next_one_have_its_turn(app: Wakeful, asked: Asked, gone: str):
    waiting = await wait_for_runs(app, asked)
    for number in (0, 3, 1):  # the one whose turn it is, one of the others, and the next one
        if gone == "cancelled":
            waiting[number].cancel()
        else:
            assert await app.services.runs.pull.release(
                LOCAL, "default", f"w{number}", claim_id=f"c{number}"
            ) == (
                [],
                [],
            )
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({waiting[number]})
    run = await app.jobs.run("pulled")
    async with asyncio.timeout(PATIENCE):
        assert [each["id"] for each in await waiting[2]] == [run.id]
    assert not any(task.done() for task in waiting[4:])
    await end(waiting)


async def test_a_claim_whose_time_is_over_ends_before_its_turn(app: Wakeful, asked: Asked):
    waiting = await wait_for_runs(app, asked)
    assert await app.services.runs.pull.claim(LOCAL, "default", "impatient", wait_ms=20) == []
    app.services.runs.pull.shut_down()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [[]] * MANY
