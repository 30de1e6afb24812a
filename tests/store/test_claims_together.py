"""Claims of several executors in one transaction, and which scopes have runs to claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.factories import NOW, SECOND, FalseClock, look
from tests.support.pull_runs import LANE, ME, claim, new_job, pulled
from wakeful.store.accounts import AgentRow, WorkspaceRow
from wakeful.store.claim_requests import ClaimRequest, ClaimScope
from wakeful.store.port import Store
from wakeful.store.sqlite import SqliteStore

BUDGET: Final = '{"tokensPerDay":5}'


def scope(workspace: str, agents: Sequence[str] | None = None, *lanes: str) -> ClaimScope:
    return ClaimScope.of(workspace, agents, lanes or None)


async def test_scopes_have_a_run_to_claim_or_the_time_of_the_next_one(store: Store) -> None:
    digest, other = await new_job(store), await new_job(store, "other", agent="ada")
    theirs = await new_job(store, workspace="acme", agent="ada")
    await store.add_runs([pulled(digest), pulled(digest, NOW + 5), pulled(other, NOW + 3, lane="main")])
    await store.add_runs([pulled(theirs, NOW + 7)])
    asked_for = {
        scope("default"): NOW,
        scope("default", ["default"], LANE): NOW,
        scope("default", ["ada"]): NOW + 3,
        scope("default", ["ada", "eve", "default"], "main"): NOW + 3,
        scope("default", None, "main", "team"): NOW + 3,
        scope("default", ["ada"], LANE): None,
        scope("default", []): None,
        scope("acme", None, LANE): NOW + 7,
        scope("acme", ["default"]): None,
        scope("acme", [f"agent-{number}" for number in range(50)]): NOW + 7,  # of one of all agents
        scope("elsewhere"): None,
    }
    assert await store.claimable_ms(NOW, list(asked_for)) == list(asked_for.values())
    assert await store.claimable_ms(NOW, []) == []
    await claim(store)
    assert await store.claimable_ms(NOW, [scope("default", ["default"])]) == [NOW + 5]


async def test_a_serial_run_is_not_claimable_before_its_turn(store: Store) -> None:
    digest = await new_job(store)
    await store.add_runs([pulled(digest, NOW - n * SECOND, serial=True) for n in (1, 2)])
    assert await store.claimable_ms(NOW, [scope("default"), scope("default", ["default"])]) == [NOW, NOW]
    await claim(store)
    assert await store.claimable_ms(NOW, [scope("default"), scope("default", ["default"])]) == [None, None]


@given(data=st.data())
@settings(max_examples=40)
def test_claims_that_ask_together_get_what_they_would_one_after_the_other(data: st.DataObject) -> None:
    agents, lanes = ["ada", "bob", "cleo"], ["cron", "main"]
    names = st.none() | st.sets(st.sampled_from(agents))
    of_lanes = st.none() | st.sets(st.sampled_from(lanes), min_size=1)
    requests = [
        ClaimRequest(ClaimScope.of("default", *each[:2]), f"w{number}", each[2], f"c{number}")
        for number, each in enumerate(
            data.draw(st.lists(st.tuples(names, of_lanes, st.integers(1, 3)), min_size=1, max_size=6))
        )
    ]
    due = data.draw(
        st.lists(st.tuples(st.sampled_from(agents), st.sampled_from(lanes), st.integers(0, 3)), max_size=12)
    )

    async def claim_them(together: bool) -> list[list[int]]:
        store = SqliteStore(":memory:", clock=FalseClock(), inline=True)
        await store.open()
        jobs = {agent: await new_job(store, f"of-{agent}", agent=agent) for agent in agents}
        runs = [pulled(jobs[agent], NOW - ms, lane=lane) for agent, lane, ms in due]
        await store.add_runs(runs)
        numbers = {run.id: number for number, run in enumerate(runs)}
        if together:
            claimed = await store.claim(NOW, "default", requests)
        else:
            claimed = [(await store.claim(NOW, "default", [request]))[0] for request in requests]
        for request, runs_of in zip(requests, claimed, strict=True):
            for each in runs_of:
                assert each.view == await look(store, each.run)
                assert each.view.worker == request.worker
            released = await store.release_claims(NOW, "default", request.worker, (), request.claim_id)
            assert sorted(released) == sorted(each.run.id for each in runs_of)
        await store.close()
        return [[numbers[each.run.id] for each in runs_of] for runs_of in claimed]

    assert asyncio.run(claim_them(True)) == asyncio.run(claim_them(False))


async def test_claims_that_ask_together_each_hold_their_runs(store: Store) -> None:
    ada, bob = [await new_job(store, f"of-{agent}", agent=agent) for agent in ("ada", "bob")]
    runs = [pulled(bob, NOW - n) for n in (5, 4, 3)] + [pulled(ada, NOW - n, serial=True) for n in (2, 1)]
    await store.add_runs(runs)
    requests = [
        ClaimRequest(scope("default", ["ada"]), "w1", 2, "c1"),
        ClaimRequest(scope("default"), "w2", 1, "c2"),
        ClaimRequest(scope("default"), "w3", 10, "c3"),
        ClaimRequest(scope("default"), "w4", 10, "c4"),
    ]
    claimed = await store.claim(NOW, "default", requests)
    got = [[each.run.id for each in runs_of] for runs_of in claimed]
    assert got == [[runs[3].id], [runs[0].id], [runs[1].id, runs[2].id], []]
    for request, runs_of in zip(requests, claimed, strict=True):
        for each in runs_of:
            assert each.view == await look(store, each.run)
            assert (each.view.worker, each.view.attempt) == (request.worker, 1)
            assert not each.has_budget
    assert await store.release_claims(NOW, "default", "w3", (), "c2") == []
    assert sorted(await store.release_claims(NOW, "default", "w3", (), "c3")) == sorted(got[2])


@pytest.mark.parametrize("owner", ["agent", "workspace", "nobody"])
async def test_a_claimed_run_says_whether_its_agent_or_workspace_has_a_budget(
    store: Store, owner: str
) -> None:
    await store.add_runs([pulled(await new_job(store))])
    if owner == "workspace":
        await store.put_workspace(WorkspaceRow("default", None, "", NOW, NOW, budget=BUDGET))
    elif owner == "agent":
        agent = AgentRow("default", "default", None, None, True, None, None, "", 1, NOW, NOW, budget=BUDGET)
        await store.put_agent("default", "default", lambda old: agent)
    ((claimed,),) = await store.claim(NOW, "default", [ClaimRequest(scope("default"), ME, 1)])
    assert claimed.has_budget is (owner != "nobody")
