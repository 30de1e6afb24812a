"""Serial runs of a job start one at a time, in tick order; a retrying run keeps its turn."""

from __future__ import annotations

import random

import pytest

from tests.support.factories import (
    MINUTE,
    NOW,
    SECOND,
    alone,
    asked,
    asleep,
    ended,
    given_job,
    held,
    look,
    tick,
)
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, TakenRun


async def _take(store: Store, now_ms: int = NOW + MINUTE) -> list[str]:
    return [run.id for run in await store.take(now_ms, "w1", {"cron": 100})]


async def _taken(store: Store) -> TakenRun:
    (run,) = await store.take(NOW + MINUTE, "w1", {"cron": 100})
    return run


async def _waiting(store: Store, *ticks: int) -> tuple[JobRow, list[NewRun]]:
    row = asleep()
    await store.create_jobs([row])
    runs = [asked(row, NOW + at, due_ms=NOW) for at in ticks]
    await store.add_runs(runs)
    return row, runs


async def test_serial_runs_start_one_at_a_time_in_tick_order(store: Store) -> None:
    _, runs = await _waiting(store, 30, 10, 20)
    order = []
    for _ in runs:
        run = await _taken(store)
        assert await _take(store) == []
        order.append(run.scheduled_ms)
        await store.finish("w1", [ended(run)], alone)
    assert order == [NOW + 10, NOW + 20, NOW + 30]


async def test_runs_with_the_same_tick_start_in_the_order_of_their_ids(store: Store) -> None:
    _, runs = await _waiting(store, 0, 0, 0)
    for expected in runs:
        run = await _taken(store)
        assert run.id == expected.id
        await store.finish("w1", [ended(run)], alone)


async def test_an_older_run_that_is_not_due_yet_blocks_newer_ones(store: Store) -> None:
    row = asleep()
    await store.create_jobs([row])
    await store.add_runs([asked(row, NOW, due_ms=NOW + MINUTE), asked(row, NOW + 1, due_ms=NOW)])
    assert await _take(store, NOW + 5) == []
    assert (await _taken(store)).scheduled_ms == NOW


async def test_serial_runs_do_not_wait_for_other_jobs(store: Store) -> None:
    rows = [asleep(f"job-{n}") for n in range(3)]
    await store.create_jobs(rows)
    await store.add_runs([asked(row) for row in rows for _ in range(2)])
    taken = await store.take(NOW, "w1", {"cron": 100})
    assert sorted(run.job_name or "" for run in taken) == ["job-0", "job-1", "job-2"]


async def test_a_tick_created_running_has_the_turn(store: Store) -> None:
    digest = await given_job(store, "digest", lambda due: held(tick(due), "w9"))
    await store.add_runs([asked(digest)])
    assert await _take(store) == []


async def test_a_retrying_run_keeps_its_turn(store: Store) -> None:
    _, runs = await _waiting(store, 10, 20)
    run = await _taken(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW + 10 * MINUTE)], alone)
    assert await _take(store, NOW + 5 * MINUTE) == []
    assert await _take(store, NOW + 10 * MINUTE) == [runs[0].id]
    assert await _take(store, NOW + 10 * MINUTE) == []


async def test_a_retrying_run_does_not_wait_for_older_ones_that_never_started(store: Store) -> None:
    row, (younger,) = await _waiting(store, 20)
    run = await _taken(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    await store.add_runs([asked(row, NOW + 10, due_ms=NOW)])
    assert await _take(store) == [younger.id]


async def test_two_retrying_runs_of_a_job_do_not_block_each_other(store: Store) -> None:
    row = asleep()
    await store.create_jobs([row])
    newer, older = (asked(row, NOW + at, due_ms=NOW, state="retrying") for at in (20, 10))
    await store.add_runs([newer, older])
    run = await _taken(store)
    assert run.id == older.id
    assert await _take(store) == []
    await store.finish("w1", [ended(run)], alone)
    assert await _take(store) == [newer.id]


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
async def test_the_next_run_starts_after_any_terminal_state(store: Store, outcome: str) -> None:
    _, runs = await _waiting(store, 10, 20)
    await store.finish("w1", [ended(await _taken(store), outcome)], alone)
    assert await _take(store) == [runs[1].id]


async def test_a_cancelled_run_passes_its_turn_on(store: Store) -> None:
    _, runs = await _waiting(store, 10, 20, 30)
    await store.cancel_run(runs[0].id, NOW, "not wanted", running=False)
    run = await _taken(store)
    assert run.id == runs[1].id
    await store.cancel_run(run.id, NOW, "not wanted", running=True)
    assert await _take(store) == [runs[2].id]


async def test_a_parked_run_keeps_its_turn(store: Store) -> None:
    _, runs = await _waiting(store, 10, 20)
    run = await _taken(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert await _take(store) == []
    assert await store.complete_run(ended(await look(store, runs[0])), alone)
    assert await _take(store) == [runs[1].id]


async def test_runs_that_are_not_serial_do_not_wait(store: Store) -> None:
    row = asleep()
    await store.create_jobs([row])
    await store.add_runs([held(asked(row)), *(asked(row, serial=False) for _ in range(3))])
    assert len(await _take(store)) == 3


async def test_a_serial_run_waits_for_one_that_is_not_serial(store: Store) -> None:
    row = asleep()
    await store.create_jobs([row])
    free, serial = asked(row, NOW, serial=False), asked(row, NOW + SECOND)
    await store.add_runs([free, serial])
    run = await _taken(store)
    assert run.id == free.id
    await store.finish("w1", [ended(run)], alone)
    assert await _take(store) == [serial.id]


def _may_start(run: NewRun, runs: list[NewRun]) -> bool:
    """Return whether the run may start: the rule of the SQL statements in Python."""
    others = [other for other in runs if other.job_id == run.job_id and other.id != run.id]
    older = [other for other in others if (other.scheduled_ms, other.id) < (run.scheduled_ms, run.id)]
    if not run.serial:
        return True
    if any(other.state == "running" for other in others):
        return False
    if any(other.state == run.state for other in older):
        return False
    return run.state == "retrying" or not any(other.state == "retrying" for other in others)


@pytest.mark.parametrize("seed", range(12))
async def test_exactly_the_runs_that_may_start_are_taken(store: Store, seed: int) -> None:
    dice = random.Random(seed)
    jobs = [asleep(f"job-{n}") for n in range(30)]
    await store.create_jobs(jobs)
    runs = []
    for row in jobs:
        for _ in range(dice.randrange(1, 6)):
            run = asked(
                row,
                NOW + dice.randrange(4),
                serial=dice.random() < 0.8,
                due_ms=NOW + dice.randrange(-2, 3),
                lane=dice.choice("ab"),
            )
            state = dice.choice(["pending"] * 4 + ["retrying", "running"])
            runs.append(held(run) if state == "running" else run._replace(state=state))
    await store.add_runs(runs)
    room = {"a": dice.randrange(1, 40), "b": dice.randrange(1, 40)}
    expected: list[NewRun] = []
    for lane, count in room.items():
        ready = [
            run
            for run in runs
            if run.lane == lane and run.due_ms is not None and run.due_ms <= NOW and _may_start(run, runs)
        ]
        expected += sorted(ready, key=lambda run: (run.due_ms, run.id))[:count]
    taken = await store.take(NOW, "w1", room)
    assert sorted(run.id for run in taken) == sorted(run.id for run in expected)
