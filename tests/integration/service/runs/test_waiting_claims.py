"""Claims that wait for runs: one look for all of them, and one transaction for those that ask together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import PATIENCE, eventually
from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.service.runs import claim_hub
from wakeful.service.runs.pull import spread_wait_s
from wakeful.store.claim_requests import ClaimRequest

#: How many claims wait.
MANY: Final = 12


class Asked:
    """Records the transactions in which claims ask the database, by executors, and counts the looks."""

    def __init__(self, app: Wakeful, monkeypatch: pytest.MonkeyPatch) -> None:
        self.together: list[list[str]] = []
        self.looks = 0
        claim, claimable_ms = app.store.claim, app.store.claimable_ms

        async def counted(now_ms: int, workspace: str, requests: Sequence[ClaimRequest]) -> Any:
            self.together.append([request.worker for request in requests])
            return await claim(now_ms, workspace, requests)

        async def looked(*given: Any) -> Any:
            self.looks += 1
            return await claimable_ms(*given)

        monkeypatch.setattr(app.store, "claim", counted)
        monkeypatch.setattr(app.store, "claimable_ms", looked)

    @property
    def workers(self) -> list[str]:
        """The executors that asked."""
        return [worker for workers in self.together for worker in workers]


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    async with new_app() as app:
        await app.jobs.create("pulled", schedule=SELDOM, target={"kind": "pull"})
        yield app


@pytest.fixture
def asked(app: Wakeful, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(app, monkeypatch)


async def wait_for_runs(app: Wakeful, **more: Any) -> list[asyncio.Task[Any]]:
    """Start claims, one after the other, and return them when all of them wait."""
    hub, waiting = app.services.runs.pull._hub, []
    for number in range(MANY):
        given: dict[str, Any] = {"wait_ms": 60_000, "claim_id": f"c{number}", **more}
        waiting.append(
            asyncio.create_task(app.services.runs.pull.claim(LOCAL, "default", f"w{number}", **given))
        )
        await eventually(lambda expected=number + 1: sum(hub._idle.values()) == expected)  # type: ignore[misc]
    return waiting


async def end(waiting: list[asyncio.Task[Any]]) -> None:
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_claims_of_a_workspace_that_come_together_ask_together(app: Wakeful, asked: Asked):
    """Otherwise the writes of other tenants would wait for those of a thousand claims."""
    claim = app.services.runs.pull.claim
    claims = [claim(LOCAL, "default", f"w{number}", agents=[f"a{number}"]) for number in range(MANY)]
    assert await asyncio.gather(*claims) == [[]] * MANY
    assert asked.together == [[f"w{number}" for number in range(MANY)]]


async def test_many_claims_that_wait_cost_one_look_each_second(
    app: Wakeful, asked: Asked, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claim_hub, "POLL_S", 0.05)
    waiting = await wait_for_runs(app)
    asked.together.clear()
    asked.looks = 0
    assert await eventually(lambda: asked.looks >= 3)
    assert asked.together == []
    app.services.runs.pull.shut_down()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [[]] * MANY


async def test_runs_of_others_let_no_waiting_claim_ask(app: Wakeful, asked: Asked):
    await app.services.agents.put(LOCAL, "default", "other", {"target": {"kind": "echo"}})
    await app.jobs.of("other").create("echo", schedule=SELDOM)
    waiting = await wait_for_runs(app, agents=["default"])
    asked.together.clear()
    for _ in range(5):
        await app.runs.wait((await app.jobs.of("other").run("echo")).id)
    assert asked.together == []
    await end(waiting)


async def test_a_claim_of_one_run_that_is_there_asks_once(app: Wakeful, asked: Asked):
    await app.jobs.run("pulled")
    (run,) = await app.services.runs.pull.claim(LOCAL, "default", "me", wait_ms=60_000)
    assert run["attempt"] == 1
    assert (asked.together, asked.looks) == ([["me"]], 0)


async def test_each_waiting_claim_gets_a_run_in_its_turn(app: Wakeful):
    waiting = await wait_for_runs(app)
    started = [(await app.jobs.run("pulled")).id for _ in range(MANY)]
    async with asyncio.timeout(PATIENCE):
        claimed = [run["id"] for runs in await asyncio.gather(*waiting) for run in runs]
    assert sorted(claimed) == sorted(started)


@pytest.mark.parametrize("gone", ["cancelled", "released"])
async def test_a_claim_that_ends_lets_the_next_one_have_its_turn(app: Wakeful, gone: str):
    waiting = await wait_for_runs(app)
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


async def test_a_claim_whose_time_is_over_ends_before_its_turn(app: Wakeful):
    waiting = await wait_for_runs(app)
    assert await app.services.runs.pull.claim(LOCAL, "default", "impatient", wait_ms=20) == []
    app.services.runs.pull.shut_down()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [[]] * MANY


def test_long_waits_that_begin_together_do_not_end_together() -> None:
    waits = [spread_wait_s(15_000) for _ in range(200)]
    assert all(12 <= wait <= 15 for wait in waits)
    assert max(sum(at <= wait < at + 0.3 for wait in waits) for at in (12, 12.9, 13.8, 14.7)) < 60
    assert spread_wait_s(2_000) == 2  # a short one is as long as it is asked for
