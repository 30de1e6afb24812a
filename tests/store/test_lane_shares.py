"""Lanes whose slots several workspaces and agents want: whose runs are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.databases import Database, PostgresDatabase
from tests.support.factories import MINUTE, NOW, SECOND, FalseClock, alone, asked, asleep, ended, job
from wakeful.job.capabilities import NO_CAPABILITIES
from wakeful.run.run import NewRun
from wakeful.store.accounts import WorkspaceRow
from wakeful.store.lane_shares import NOT_SHARED, LaneUse, Owner
from wakeful.store.port import Store, TakeNext
from wakeful.store.rows import TakenRun
from wakeful.store.sqlite import SqliteStore

KNOWN = {"cron": LaneUse({}, {}, saturated=True)}
UNKNOWN = {"cron": LaneUse({}, {}, saturated=False)}


async def _due(
    store: Store, workspace: str, count: int, agent: str = "default", since: int = NOW - MINUTE
) -> list[NewRun]:
    """Add due runs of one job, the first longest due."""
    row = asleep(f"{workspace}-{since}", workspace=workspace, agent=agent)
    await store.create_jobs([row])
    runs = [asked(row, since + number, serial=False) for number in range(count)]
    await store.add_runs(runs)
    return runs


async def _weight(store: Store, workspace: str, weight: float) -> None:
    await store.put_workspace(WorkspaceRow(workspace, None, "", NOW, NOW, lane_weight=weight))


def _counts(taken: Iterable[TakenRun | NewRun]) -> dict[str, int]:
    return dict(Counter(run.workspace for run in taken))


def _ids(runs: Iterable[TakenRun | NewRun]) -> list[str]:
    return [run.id for run in runs]


@pytest.mark.parametrize("usage", [KNOWN, UNKNOWN], ids=["known", "unknown"])
async def test_workspaces_share_the_slots_of_a_full_lane(store: Store, usage: dict[str, LaneUse]) -> None:
    flood = await _due(store, "flood", 30)
    small = await _due(store, "small", 8, since=NOW - SECOND)
    taken = await store.take(NOW, "w1", {"cron": 6}, usage=usage)
    assert _ids(taken) == _ids([*flood[:3], *small[:3]]), "of each workspace those that are due longest"


async def test_a_workspace_that_uses_fewer_slots_comes_first(store: Store) -> None:
    await _due(store, "flood", 30)
    await _due(store, "small", 8, since=NOW - SECOND)
    usage = {"cron": LaneUse({}, {"flood": 5, "small": 1}, saturated=True)}
    assert _counts(await store.take(NOW, "w1", {"cron": 4}, usage=usage)) == {"small": 4}


async def test_weights_divide_the_slots(store: Store) -> None:
    await _weight(store, "large", 3)
    await _due(store, "large", 30)
    await _due(store, "small", 30)
    taken = await store.take(NOW, "w1", {"cron": 8}, usage=KNOWN)
    assert _counts(taken) == {"large": 6, "small": 2}
    assert {run.workspace: run.weight for run in taken} == {"large": 3, "small": 1}


async def test_agents_share_the_slots_of_their_workspace(store: Store) -> None:
    await _due(store, "acme", 30, agent="busy")
    await _due(store, "acme", 30, agent="quiet", since=NOW - SECOND)
    await _due(store, "other", 30, since=NOW - SECOND)
    taken = await store.take(NOW, "w1", {"cron": 8}, usage=KNOWN)
    owners = Counter((run.workspace, run.agent) for run in taken)
    assert owners == {("acme", "busy"): 2, ("acme", "quiet"): 2, ("other", "default"): 4}


async def test_slots_that_others_do_not_want_are_used(store: Store) -> None:
    await _due(store, "flood", 30)
    await _due(store, "small", 1)
    await _due(store, "later", 5, since=NOW + MINUTE)
    assert _counts(await store.take(NOW, "w1", {"cron": 10}, usage=KNOWN)) == {"flood": 9, "small": 1}
    assert _counts(await store.take(NOW, "w1", {"cron": 10}, usage=KNOWN)) == {"flood": 10}


async def test_serial_runs_that_wait_for_their_turn_hold_up_nobody(store: Store) -> None:
    queued = job("queued", workspace="waiting")
    await store.create_jobs([queued])
    await store.add_runs([asked(queued, NOW - MINUTE + number) for number in range(20)])
    await _due(store, "flood", 30)
    taken = await store.take(NOW, "w1", {"cron": 10}, usage=KNOWN)
    assert _counts(taken) == {"flood": 9, "waiting": 1}
    assert _counts(await store.take(NOW, "w1", {"cron": 10}, usage=KNOWN)) == {"flood": 10}


async def test_prefetched_runs_are_shared_as_well(store: Store) -> None:
    await _due(store, "flood", 30)
    await _due(store, "small", 30, since=NOW - SECOND)
    taken = await store.take(NOW, "w1", {"cron": 2}, prefetch={"cron": 4}, usage=KNOWN)
    assert _counts(run for run in taken if run.slot == "free") == {"flood": 1, "small": 1}
    assert _counts(run for run in taken if run.slot == "later") == {"flood": 2, "small": 2}


async def test_a_claim_with_outcomes_shares_the_slots(store: Store) -> None:
    await _due(store, "flood", 30)
    (first,) = await store.take(NOW, "w1", {"cron": 1})
    await _due(store, "small", 8, since=NOW - SECOND)
    wanted = TakeNext({}, NO_CAPABILITIES, {"cron": 2}, {}, KNOWN)
    _, taken = await store.finish_and_take("w1", [ended(first)], alone, wanted)
    assert _counts(taken) == {"flood": 1, "small": 1}


async def test_more_owners_than_a_claim_looks_at_all_have_their_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.store.sqlite.leases.MOST_OWNERS", 3)
    monkeypatch.setattr("wakeful.store.postgres.leases.MOST_OWNERS", 3)
    monkeypatch.setattr("wakeful.store.sqlite.leases.MOST_AGENTS", 2)
    monkeypatch.setattr("wakeful.store.postgres.leases.MOST_AGENTS", 2)
    waiting: set[Owner] = set()
    for workspace in "bdac":
        for agent in "zyx":
            await _due(store, workspace, 2, agent=agent, since=NOW - MINUTE + len(waiting))
            waiting.add((workspace, agent))
    served: Counter[Owner] = Counter()
    for _ in range(24):
        (run,) = await store.take(NOW, "w1", {"cron": 1}, usage=KNOWN)
        served[run.workspace, run.agent] += 1
    assert served == dict.fromkeys(waiting, 2)
    assert await store.take(NOW, "w1", {"cron": 1}, usage=KNOWN) == []


async def test_a_lane_with_slots_for_all_due_runs_needs_no_further_statement(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "wakeful.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._db
    assert db is not None
    seen: list[list[str]] = []
    for usage in (NOT_SHARED, UNKNOWN):
        await _due(store, "flood", 3, since=NOW - MINUTE + len(seen) * 10)
        await _due(store, "small", 3, since=NOW - SECOND + len(seen) * 10)
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        assert len(await store.take(NOW, "w1", {"cron": 10}, usage=usage)) == 6
        db.set_trace_callback(None)
        seen.append(statements)
    assert len(seen[0]) > 3
    assert len(seen[0]) == len(seen[1])
    await store.close()


async def test_runs_that_an_earlier_release_added_are_taken(database: Database) -> None:
    if not isinstance(database, PostgresDatabase):
        pytest.skip("the owner is in the same table")
    store = await database.connect()
    earlier = await _due(store, "acme", 3)
    await _due(store, "flood", 30)
    await database.execute("UPDATE live_runs SET workspace = NULL, agent = NULL WHERE workspace = 'acme'")
    taken = await store.take(NOW, "w1", {"cron": 6}, usage=KNOWN)
    assert _counts(taken) == {"acme": 3, "flood": 3}
    assert {run.id for run in taken if run.workspace == "acme"} == set(_ids(earlier))
