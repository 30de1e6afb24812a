"""Effects of an outcome on its job: the failure count, disabling and deletion."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    given_held,
    given_job,
    held,
    job,
    look,
    look_at_job,
    start,
    tick,
    ticks_of,
)
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunFilter


async def _finish(store: Store, row: JobRow, *states: str, **fields: object) -> None:
    """Finish one run of the job per state, in one batch and in this order."""
    runs = [held(asked(row)) for _ in states]
    await store.add_runs(runs)
    outcomes = [ended(run, state, due_ms=NOW, **fields) for run, state in zip(runs, states, strict=True)]
    assert len(await store.finish("w1", outcomes, alone)) == len(states)


async def _failures(store: Store, row: JobRow) -> int:
    return (await look_at_job(store, row)).failures


async def test_a_failed_run_is_a_dead_letter(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed", error="refused")], alone)
    seen = await look(store, run)
    assert (seen.state, seen.dead, seen.error) == ("failed", True, "refused")
    assert [found.id for found in await store.runs(RunFilter("default", dead=True))] == [run.id]


async def test_consecutive_failures_are_counted_and_a_success_resets_them(store: Store) -> None:
    row = await given_job(store)
    await _finish(store, row, "failed")
    await _finish(store, row, "failed")
    assert await _failures(store, row) == 2
    await _finish(store, row, "succeeded")
    assert await _failures(store, row) == 0


async def test_outcomes_of_one_batch_count_in_their_order(store: Store) -> None:
    row, other = await given_job(store), await given_job(store, "other")
    await _finish(store, other, "failed")
    await _finish(store, row, "failed", "failed", "succeeded", "failed")
    assert await _failures(store, row) == 1
    await _finish(store, row, "failed", "succeeded")
    assert await _failures(store, row) == 0
    assert await _failures(store, other) == 1


async def test_a_retried_or_cancelled_attempt_does_not_change_the_failure_count(store: Store) -> None:
    row = await given_job(store)
    await _finish(store, row, "failed")
    await _finish(store, row, "retrying", "cancelled")
    assert await _failures(store, row) == 1


async def test_a_success_keeps_the_failure_counts_of_other_jobs(store: Store) -> None:
    await store.create_jobs([job(f"job-{n}", failures=n) for n in range(4)])
    created = (await store.plan(NOW, 10, start("w1"))).runs
    await store.finish("w1", [ended(run) for run in created if run.job_name != "job-3"], alone)
    assert [await _name(store, n) for n in range(4)] == [0, 0, 0, 3]


async def _name(store: Store, n: int) -> int:
    found = await store.job("default", "default", f"job-{n}")
    assert found is not None
    return found.failures


async def test_consecutive_failures_up_to_the_limit_disable_the_job(store: Store) -> None:
    row = await given_job(store, "digest", tick)
    by_hand = asked(row)
    await store.add_runs([by_hand])
    await _finish(store, row, "failed", "failed", disable_after=3)
    assert (await look_at_job(store, row)).enabled
    await _finish(store, row, "failed", disable_after=3)
    seen = await look_at_job(store, row)
    assert (seen.enabled, seen.disabled_reason, seen.next_ms, seen.wake_ms) == (False, "failed", None, None)
    assert (seen.failures, seen.version, seen.updated_ms) == (3, row.version + 1, NOW + SECOND)
    planned = (await ticks_of(store, row))[0]
    assert (planned.state, planned.reason, planned.finished_ms) == ("cancelled", "job_disabled", NOW + SECOND)
    assert (await look(store, by_hand)).state == "pending"
    assert await store.next_wake_ms() is None


async def test_an_outcome_can_disable_its_job(store: Store) -> None:
    row, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed", disable_job="gone")], alone)
    seen = await look_at_job(store, row)
    assert (seen.enabled, seen.disabled_reason, seen.next_ms) == (False, "gone", None)
    assert (await store.plan(NOW + 2 * DAY, 10, start("w1"))).claimed == 0


@pytest.mark.parametrize(
    "waits",
    [
        {
            "disabled_reason": "paused",
            "pause_note": "later",
            "pause_until_ms": NOW + DAY,
            "wake_ms": NOW + DAY,
        },
        {"disabled_reason": "agent_inactive", "wake_ms": None},
    ],
    ids=["until a time", "for its agent"],
)
async def test_an_outcome_ends_a_job_that_would_resume_by_itself(store: Store, waits: dict[str, Any]) -> None:
    row, run = await given_held(store)
    await store.change_job(row.id, lambda old: JobChange(old._replace(enabled=False, next_ms=None, **waits)))
    await store.finish("w1", [ended(run, "failed", disable_job="gone")], alone)
    seen = await look_at_job(store, row)
    assert (seen.enabled, seen.disabled_reason, seen.wake_ms) == (False, "gone", None)
    assert (seen.pause_note, seen.pause_until_ms) == (None, None)
    assert await store.next_wake_ms() is None


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ({"disable_after": 1}, "job_disabled"),
        ({"disable_job": "gone"}, "job_disabled"),
        ({"delete_job": True}, "deleted"),
    ],
)
async def test_ticks_that_are_due_when_an_outcome_ends_their_job_are_missed(
    store: Store, ends: dict[str, Any], reason: str
) -> None:
    """Those that are due later have no record: the job has ended before."""
    row, run = await given_held(store)
    minutely = '{"schedule":{"everyMs":60000,"kind":"every"}}'
    await store.change_job(
        row.id,
        lambda old: JobChange(
            old._replace(timing=minutely, policy="{}", work="{}", next_ms=NOW + MINUTE, wake_ms=NOW + MINUTE)
        ),
    )
    at_ms = NOW + 3 * MINUTE
    await store.finish("w1", [ended(run, "failed", **ends)._replace(finished_ms=at_ms)], alone)
    failed, missed = await ticks_of(store, row)
    assert (failed.state, missed.state, missed.reason) == ("failed", "missed", reason)
    assert (missed.scheduled_ms, missed.covers, missed.until_ms) == (NOW + MINUTE, 3, at_ms)


async def test_a_disabled_job_keeps_its_reason(store: Store) -> None:
    row = await given_job(store)
    await _finish(store, row, "failed", "failed", disable_job="gone")
    assert (await look_at_job(store, row)).disabled_reason == "gone"
    await _finish(store, row, "failed", disable_after=1)
    assert (await look_at_job(store, row)).disabled_reason == "gone"


@pytest.mark.parametrize("state", ["succeeded", "failed"])
async def test_an_outcome_can_delete_its_job(store: Store, state: str) -> None:
    row, run = await given_held(store)
    waiting = asked(row)
    await store.add_runs([waiting])
    await store.finish("w1", [ended(run, state, delete_job=True)], alone)
    assert await store.job_by_id(row.id) is None
    assert await store.job("default", "default", "digest") is None
    seen = await look(store, waiting)
    assert (seen.state, seen.reason, seen.finished_ms) == ("cancelled", "job_deleted", NOW + SECOND)
    assert (await look(store, run)).state == state
    assert await store.next_wake_ms() is None


@pytest.mark.parametrize("fate", [{"delete_job": True}, {"disable_job": "gone"}])
async def test_a_job_edited_during_its_run_is_neither_deleted_nor_disabled(
    store: Store, clock: FalseClock, fate: dict[str, Any]
) -> None:
    row, run = await given_held(store)
    await store.change_job(row.id, lambda old: JobChange(old._replace(updated_ms=clock.now_ms() + 1)))
    before = await look_at_job(store, row)
    assert before.next_ms is not None
    state = "succeeded" if "delete_job" in fate else "failed"
    await store.finish("w1", [ended(run, state, **fate)], alone)
    assert (await look(store, run)).state == state
    after = await look_at_job(store, row)
    assert after._replace(failures=0) == before


@pytest.mark.parametrize("fate", [{"delete_job": True}, {"disable_job": "gone"}])
async def test_an_edit_while_the_clock_was_ahead_came_before_the_runs_of_today(
    store: Store, fate: dict[str, Any]
) -> None:
    row, run = await given_held(store)
    await store.change_job(row.id, lambda old: JobChange(old._replace(updated_ms=NOW + DAY)))
    assert (await look_at_job(store, row)).next_ms is not None
    await store.finish("w1", [ended(run, "succeeded" if "delete_job" in fate else "failed", **fate)], alone)
    seen = await store.job("default", "default", row.name)
    assert seen is None if "delete_job" in fate else seen is not None and seen.disabled_reason == "gone"


@pytest.mark.parametrize("fate", [{"delete_job": True}, {"disable_job": "gone"}])
async def test_a_job_edited_to_have_no_next_tick_ends_with_its_run(
    store: Store, clock: FalseClock, fate: dict[str, Any]
) -> None:
    row, run = await given_held(store)
    later = clock.now_ms() + 1
    await store.change_job(
        row.id, lambda old: JobChange(old._replace(updated_ms=later, next_ms=None, wake_ms=None))
    )
    await store.finish("w1", [ended(run, "failed", **fate)], alone)
    seen = await store.job_by_id(row.id)
    assert (seen and seen.disabled_reason) == fate.get("disable_job")


async def test_a_fenced_outcome_does_not_change_its_job(store: Store) -> None:
    row, run = await given_held(store, "w1")
    before = await look_at_job(store, row)
    for outcome in (
        ended(run, "failed", disable_after=1),
        ended(run, "failed", disable_job="gone"),
        ended(run, "succeeded", delete_job=True),
    ):
        assert await store.finish("w2", [outcome], alone) == set()
    assert await look_at_job(store, row) == before


async def test_the_last_run_of_a_deleted_job_can_still_fail(store: Store) -> None:
    row, run = await given_held(store)
    await store.delete_job(row.id, NOW, "no longer wanted")
    await store.finish("w1", [ended(run, "failed", disable_after=1)], alone)
    assert (await look(store, run)).dead
    assert await store.job_by_id(row.id) is None


async def test_a_failed_parked_run_counts_as_a_failure(store: Store) -> None:
    row, run = await given_held(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + DAY)], alone)
    assert await _failures(store, row) == 0
    await store.complete_run(ended(run, "failed", disable_after=1), alone)
    seen = await look_at_job(store, row)
    assert (seen.failures, seen.enabled) == (1, False)


async def test_disabling_a_job_does_not_affect_others(store: Store) -> None:
    rows = [await given_job(store, name, tick) for name in ("one", "two")]
    before = [await look_at_job(store, rows[1]), *(await ticks_of(store, rows[1]))]
    await _finish(store, rows[0], "failed", disable_after=1)
    assert [await look_at_job(store, rows[1]), *(await ticks_of(store, rows[1]))] == before


@pytest.mark.parametrize("success_first", [True, False])
@pytest.mark.parametrize("edited_before", [True, False])
async def test_a_failure_that_disables_and_a_success_that_deletes_in_one_batch_delete_the_job(
    store: Store, success_first: bool, edited_before: bool
) -> None:
    row = asleep(updated_ms=NOW - DAY if edited_before else NOW - SECOND)
    await store.create_jobs([row])
    runs = [held(asked(row)) for _ in range(2)]
    await store.add_runs([*runs, waits := asked(row)])
    batch = [
        ended(runs[0], "failed", disable_after=1),
        ended(runs[1], "succeeded", delete_job=True, finished_ms=NOW + 2 * SECOND),
    ]
    assert len(await store.finish("w1", batch[::-1] if success_first else batch, alone)) == 2
    assert await store.job_by_id(row.id) is None, "a job that is to go after a success goes"
    gone = await store.job_by_id(row.id, deleted=True)
    assert gone is not None
    assert (gone.version, gone.next_ms, gone.failures) == (row.version + 1, None, int(success_first))
    seen = await look(store, waits)
    assert (seen.state, seen.reason) == ("cancelled", "job_deleted")
