"""Ticks recorded as running ahead of their time are still affected by changes of their job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.factories import NOW, SECOND, alone, asked, ended, given_job, held, look, tick
from tests.support.notifications import NotificationRecorder
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunView

AHEAD = NOW + 40


async def _recorded(store: Store, row: JobRow, at: int = AHEAD, **fields: Any) -> NewRun:
    """Record a tick of this job as running from that time."""
    run = held(tick(row, at, **fields), since=at)
    await store.add_runs([run])
    return run


async def _paused(store: Store, row: JobRow) -> None:
    change = JobChange(row._replace(enabled=False, updated_ms=NOW), withdraw="paused")
    assert await store.change_job(row.id, lambda _: change)


async def _deleted(store: Store, row: JobRow) -> None:
    assert await store.delete_job(row.id, NOW, "paused")


def _is_withdrawn(run: RunView) -> bool:
    return (run.state, run.reason, run.started_ms, run.worker, run.finished_ms) == (
        "cancelled", "paused", None, None, NOW,
    )  # fmt: skip


@pytest.mark.parametrize("change", [_paused, _deleted])
async def test_a_tick_ahead_of_its_time_is_withdrawn_and_its_worker_notified(
    store: Store, recorder: NotificationRecorder, change: Callable[[Store, JobRow], Any]
) -> None:
    row = await given_job(store)
    run = await _recorded(store, row)
    await change(store, row)
    assert _is_withdrawn(await look(store, run))
    await recorder.next_event(f"stop:{run.id}")
    assert await store.finish("w1", [ended(run)], alone) == set(), "what its worker says counts no more"
    assert _is_withdrawn(await look(store, run))


@pytest.mark.parametrize("change", [_paused, _deleted])
async def test_a_tick_that_an_edit_released_ahead_of_its_time_is_withdrawn_by_the_next_change(
    store: Store, change: Callable[[Store, JobRow], Any]
) -> None:
    row = await given_job(store)
    run = await _recorded(store, row)
    for _ in range(2):
        await store.change_job(row.id, lambda job: JobChange(job._replace(updated_ms=NOW)))
        released = await look(store, run)
        assert (released.state, released.due_ms, released.attempt) == ("retrying", AHEAD, 1)
    await change(store, row)
    assert _is_withdrawn(await look(store, run))
    assert await store.take(NOW + SECOND, "w1", {"cron": 1}) == []


@pytest.mark.parametrize("change", [_paused, _deleted])
async def test_started_runs_are_not_withdrawn(store: Store, change: Callable[[Store, JobRow], Any]) -> None:
    row = await given_job(store)
    begun = await _recorded(store, row, NOW)
    by_hand = held(asked(row, AHEAD), since=NOW)
    await store.add_runs([by_hand])
    other = await _recorded(store, await given_job(store, "other"))
    await change(store, row)
    for run in (begun, by_hand, other):
        assert (await look(store, run)).state == "running"


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        ({"disable_after": 1}, "job_disabled"),
        ({"disable_job": "gone"}, "job_disabled"),
        ({"delete_job": True}, "job_deleted"),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
async def test_an_outcome_that_ends_its_job_withdraws_ticks_that_have_not_started(
    store: Store, recorder: NotificationRecorder, fate: dict[str, Any], reason: str, enabled: bool
) -> None:
    row = await given_job(store)
    ahead, begun, waits = (
        await _recorded(store, row),
        await _recorded(store, row, NOW),
        tick(row, NOW + SECOND),
    )
    by_hand, other = asked(row), await _recorded(store, await given_job(store, "other"))
    await store.add_runs([waits, by_hand])
    if not enabled:  # as the planner leaves a job after its last tick
        await store.change_job(row.id, lambda old: JobChange(old._replace(enabled=False)))
    run = held(asked(row))
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "failed", **fate)], alone)
    for each in (ahead, waits):
        seen = await look(store, each)
        assert (seen.state, seen.reason, seen.started_ms, seen.worker) == ("cancelled", reason, None, None)
        assert seen.finished_ms == NOW + SECOND
    assert (await look(store, by_hand)).state == ("cancelled" if reason == "job_deleted" else "pending")
    assert [(await look(store, each)).state for each in (begun, other)] == ["running", "running"]
    if enabled:
        await recorder.next_event(f"stop:{ahead.id}")


async def test_a_change_that_withdraws_nothing_releases_the_tick_to_start_with_the_new_job(
    store: Store, recorder: NotificationRecorder
) -> None:
    row = await given_job(store)
    run = await _recorded(store, row)
    await store.change_job(row.id, lambda old: JobChange(old._replace(payload='{"new":1}', updated_ms=NOW)))
    seen = await look(store, run)
    assert (seen.state, seen.due_ms, seen.started_ms, seen.worker) == ("retrying", AHEAD, None, None)
    await recorder.next_event(f"stop:{run.id}:1")
    assert await store.take(AHEAD - 1, "w2", {"cron": 1}) == [], "no tick starts early"
    (again,) = await store.take(AHEAD, "w2", {"cron": 1})
    assert (again.payload, again.attempt, again.failed_attempts) == ('{"new":1}', 2, 0)


async def test_a_tick_that_must_not_start_twice_is_not_released(store: Store) -> None:
    """Its worker may have started it when the notification arrives: it would start a second time."""
    row = await given_job(store)
    run = await _recorded(store, row)
    new = row._replace(payload='{"new":1}', policy='{"onLost":"fail"}', updated_ms=NOW)
    await store.change_job(row.id, lambda _: JobChange(new))
    assert await store.finish("w1", [ended(run)], alone) == {run.id}
    assert await store.take(AHEAD, "w2", {"cron": 1}) == []


async def test_an_edited_schedule_keeps_the_ticks_it_still_contains(store: Store) -> None:
    row = await given_job(store)
    kept, gone = await _recorded(store, row), await _recorded(store, row, AHEAD + 1)
    change = JobChange(row._replace(updated_ms=NOW), withdraw="edited", keeps=lambda ms: ms == AHEAD)
    await store.change_job(row.id, lambda _: change)
    assert [(await look(store, run)).state for run in (kept, gone)] == ["retrying", "cancelled"]


async def test_a_worker_that_stops_releases_a_tick_until_its_time(store: Store) -> None:
    run = await _recorded(store, await given_job(store), NOW + SECOND)
    assert await store.release("w1", NOW) == 1
    seen = await look(store, run)
    assert (seen.state, seen.due_ms, seen.started_ms) == ("retrying", NOW + SECOND, None)
