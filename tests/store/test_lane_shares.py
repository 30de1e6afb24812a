"""Lanes whose slots several workspaces and agents want: whose runs are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tests.support.databases import Database, PostgresDatabase
from tests.support.effort import cases
from tests.support.factories import MINUTE, NOW, SECOND, FalseClock, alone, asked, asleep, ended, job
from wakeful.job.start_rules import NO_CAPABILITIES
from wakeful.run.run import NewRun
from wakeful.store.accounts import WorkspaceRow
from wakeful.store.lane_shares import NOT_SHARED, REMEMBERED_MS, LaneOccupancy, Owner, OwnerMemory
from wakeful.store.plans import TakeNext
from wakeful.store.port import Store
from wakeful.store.rows import TakenRun
from wakeful.store.sqlite import SqliteStore

KNOWN = {"cron": LaneOccupancy({}, {}, saturated=True)}
UNKNOWN = {"cron": LaneOccupancy({}, {}, saturated=False)}


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
async def test_workspaces_share_the_slots_of_a_full_lane(
    store: Store, usage: dict[str, LaneOccupancy]
) -> None:
    flood = await _due(store, "flood", 30)
    small = await _due(store, "small", 8, since=NOW - SECOND)
    taken = await store.take(NOW, "w1", {"cron": 6}, usage=usage)
    assert _ids(taken) == _ids([*flood[:3], *small[:3]]), "of each workspace those that are due longest"


async def test_a_workspace_that_uses_fewer_slots_comes_first(store: Store) -> None:
    await _due(store, "flood", 30)
    await _due(store, "small", 8, since=NOW - SECOND)
    usage = {"cron": LaneOccupancy({}, {"flood": 5, "small": 1}, saturated=True)}
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


def _remembering() -> dict[str, LaneOccupancy]:
    """Return the use of a full lane by a process that remembers who wants it."""
    return {"cron": LaneOccupancy({}, {}, saturated=True, memory=OwnerMemory())}


async def test_a_new_workspace_is_seen_after_a_moment(store: Store) -> None:
    usage = _remembering()
    await _due(store, "flood", 40)
    assert _counts(await store.take(NOW, "w1", {"cron": 4}, usage=usage)) == {"flood": 4}
    await _due(store, "small", 8, since=NOW - SECOND)
    assert len(await store.take(NOW + 1, "w1", {"cron": 4}, usage=usage)) == 4
    taken = await store.take(NOW + REMEMBERED_MS, "w1", {"cron": 4}, usage=usage)
    assert _counts(taken) == {"flood": 2, "small": 2}


async def test_a_clock_that_goes_back_does_not_prolong_the_memory(store: Store) -> None:
    usage = _remembering()
    await _due(store, "flood", 40, since=NOW - MINUTE)
    assert _counts(await store.take(NOW, "w1", {"cron": 4}, usage=usage)) == {"flood": 4}
    await _due(store, "small", 8, since=NOW - MINUTE)
    assert _counts(await store.take(NOW - SECOND, "w1", {"cron": 4}, usage=usage)) == {"flood": 2, "small": 2}


@pytest.mark.parametrize("seed", range(cases(3, 30)))
async def test_claims_that_remember_owners_leave_out_no_run_and_no_slot(store: Store, seed: int) -> None:
    """Random work of workspaces with several requirements, some of which the process can meet for a time."""
    random, usage, now_ms = Random(seed), _remembering(), NOW
    can = [{"": 0, "function:a": 0}, {"": 0}]
    rows = {name: asleep(f"{name}-job", workspace=name) for name in "abcd"}
    await store.create_jobs(list(rows.values()))
    waiting: dict[str, list[NewRun]] = {name: [] for name in rows}
    for _ in range(60):
        now_ms += random.choice([0, 1, 5, 20, REMEMBERED_MS])
        if random.random() < 0.5:
            name, requires = random.choice("aabcd"), random.choice(["", "", "function:a"])
            new = [
                asked(rows[name], now_ms - random.randrange(3), serial=False, requires=requires)
                for _ in range(random.choice([1, 1, 2, 12]))
            ]
            await store.add_runs(new)
            waiting[name] += new
        slots, capabilities = random.randint(1, 6), can[random.random() < 0.1]
        due = {name: [run for run in runs if run.requires in capabilities] for name, runs in waiting.items()}
        taken = _ids(await store.take(now_ms, "w1", {"cron": slots}, capabilities, usage=usage))
        assert len(set(taken)) == len(taken) == min(slots, sum(map(len, due.values())))
        counts: dict[str, int] = {}
        for name, runs in due.items():
            mine = [run for run in runs if run.id in taken]
            assert len(mine) == len(set(taken) & {run.id for run in waiting[name]}), "what it can launch"
            for requires in capabilities:
                oldest = sorted(run.scheduled_ms for run in runs if run.requires == requires)
                chosen = sorted(run.scheduled_ms for run in mine if run.requires == requires)
                assert chosen == oldest[: len(chosen)], "those that are due longest"
            known = [run for run in runs if run.scheduled_ms <= now_ms - REMEMBERED_MS - 2]
            if len(known) >= slots:
                counts[name] = len(mine)
            waiting[name] = [run for run in waiting[name] if run.id not in taken]
        assert max(counts.values(), default=0) - min(counts.values(), default=0) <= 1, "equal parts"


@pytest.mark.parametrize("workspaces", [1, 3])
async def test_a_full_lane_does_not_read_the_owners_for_each_claim(tmp_path: Path, workspaces: int) -> None:
    store = SqliteStore(tmp_path / "wakeful.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._db
    assert db is not None
    for number in range(workspaces):
        await _due(store, f"workspace-{number}", 30)
    counts, remembering = [], _remembering()
    for usage in (NOT_SHARED, remembering, remembering):
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        assert len(await store.take(NOW, "w1", {"cron": workspaces}, usage=usage)) == workspaces
        db.set_trace_callback(None)
        counts.append(len(statements))
    assert counts[1] > counts[0] >= counts[2]
    await store.close()


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
