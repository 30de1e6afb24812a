"""Notifications: sent after the commit, when there is something to do."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    alone,
    asked,
    asleep,
    ended,
    fire,
    given_held,
    given_job,
    held,
    job,
    jobless,
    look,
    plan_of,
    start,
    tick,
)
from tests.support.notifications import NotificationRecorder
from wakeful.run.consequences import consequences
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, RunFilter


async def _quiet(store: Store, recorder: NotificationRecorder) -> None:
    """Wait until all earlier notifications have arrived."""
    await store.create_jobs([asleep(jobless().id)])
    await recorder.next_event("jobs")


async def _heard(store: Store, recorder: NotificationRecorder) -> set[str]:
    """Return the topics announced since `_quiet`."""
    await store.create_jobs([asleep(jobless().id)])
    return await recorder.next_event("jobs") - {"jobs"}


async def test_a_new_job_and_a_changed_one_are_announced(
    store: Store, recorder: NotificationRecorder
) -> None:
    digest = job()
    await store.create_jobs([digest])
    await recorder.next_event("jobs")
    await store.change_job(digest.id, lambda row: JobChange(row._replace(wake_ms=NOW - 5)))
    await recorder.next_event("jobs")


async def test_planned_pending_runs_are_announced(store: Store, recorder: NotificationRecorder) -> None:
    await store.create_jobs([job()])
    await store.plan(NOW, 10, fire)
    await recorder.next_event("runs")


async def test_a_run_that_a_plan_replaces_gets_a_stop_notification(
    store: Store, recorder: NotificationRecorder
) -> None:
    digest, running = await given_held(store)
    waiting = asked(digest)
    await store.add_runs([waiting])

    def replace(due: DueJob) -> JobPlan:
        gone = ((running.id, "replaced"), (waiting.id, "superseded"))
        return plan_of(due, held(tick(due, due.next_ms)), cancelled=gone)

    await recorder.next_event("jobs", "runs")
    await store.plan(NOW + DAY, 10, replace)
    await recorder.next_event(f"stop:{running.id}", "runs")


async def test_an_added_run_is_announced(store: Store, recorder: NotificationRecorder) -> None:
    await store.add_runs([jobless()])
    await recorder.next_event("runs")


async def test_a_run_to_be_retried_is_announced(store: Store, recorder: NotificationRecorder) -> None:
    _, run = await given_held(store)
    await _quiet(store, recorder)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW + SECOND)], alone)
    await recorder.next_event("runs")


async def test_a_follow_up_run_is_announced(store: Store, recorder: NotificationRecorder) -> None:
    _, run = await given_held(store)
    await store.create_jobs([asleep("then", after_job="digest", after_on="succeeded")])
    await _quiet(store, recorder)
    await store.finish("w1", [ended(run)], consequences)
    await recorder.next_event("runs")


@pytest.mark.parametrize("how", ["finish", "complete", "cancel", "delete", "withdraw"])
async def test_a_run_that_gets_its_turn_is_announced(
    store: Store, recorder: NotificationRecorder, how: str
) -> None:
    row = await given_job(store, "digest", tick)
    (run,) = await store.take(NOW, "w1", {"cron": 1})
    waiting = asked(row, NOW + 1)
    await store.add_runs([waiting])
    if how == "complete":
        await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    if how in ("delete", "withdraw"):
        await store.release("w1", NOW)
    await _quiet(store, recorder)
    if how == "finish":
        await store.finish("w1", [ended(run)], alone)
    elif how == "complete":
        await store.complete_run(ended(run), alone)
    elif how == "cancel":
        await store.cancel_run(run.id, NOW, "stop", running=True)
    elif how == "delete":
        await store.delete_job(row.id, NOW, "gone")
    else:
        await store.cancel_run(waiting.id, NOW, "not wanted", running=False)
    await recorder.next_event("runs")


async def test_a_stopped_run_is_announced(store: Store, recorder: NotificationRecorder) -> None:
    _, run = await given_held(store)
    await store.cancel_run(run.id, NOW, "stop", running=True)
    await recorder.next_event(f"stop:{run.id}")


async def test_completing_a_held_run_announces_a_stop_of_its_attempt(
    store: Store, recorder: NotificationRecorder
) -> None:
    _, run = await given_held(store)
    await store.complete_run(ended(run, "retrying", due_ms=NOW + MINUTE), alone)
    await recorder.next_event(f"stop:{run.id}:1")


async def test_cancelling_a_pending_run_announces_no_stop(
    store: Store, recorder: NotificationRecorder
) -> None:
    run = jobless()
    await store.add_runs([run])
    await _quiet(store, recorder)
    await store.cancel_run(run.id, NOW, "not wanted", running=False)
    assert f"stop:{run.id}" not in await _heard(store, recorder)


async def test_released_and_rescued_runs_are_announced(store: Store, recorder: NotificationRecorder) -> None:
    _, run = await given_held(store)
    await _quiet(store, recorder)
    await store.release("w1", NOW)
    await recorder.next_event("runs")
    lost = held(jobless(), "dead")
    await store.add_runs([lost])
    await _quiet(store, recorder)
    await store.rescue(NOW + MINUTE, NOW + 1, 5, lambda _: ended(lost, "retrying", due_ms=NOW), alone)
    await recorder.next_event("runs")
    assert (await look(store, run)).state == "retrying"


async def test_operations_without_new_work_are_not_announced(
    store: Store, recorder: NotificationRecorder
) -> None:
    row, run = await given_held(store)
    await store.create_jobs([job("other")])
    await _quiet(store, recorder)
    (created,) = (await store.plan(NOW, 10, start("w1"))).runs
    await store.take(NOW, "w1", {"cron": 5})
    await store.finish("w1", [ended(run), ended(created)], alone)
    await store.beat("w1", NOW, [])
    await store.rescue(NOW, NOW - MINUTE, 5, lambda lost: ended(run), alone)
    await store.prune(NOW, 5)
    await store.discard_runs("default", [run.id])
    await store.job_by_id(row.id)
    await store.runs(RunFilter("default"))
    assert await _heard(store, recorder) == set()


async def test_a_rolled_back_transaction_is_not_announced(
    store: Store, recorder: NotificationRecorder
) -> None:
    await store.create_jobs([job("one"), job("two")])
    await _quiet(store, recorder)

    def decide(due: DueJob) -> JobPlan:
        if due.name == "two":
            raise ValueError("broken")
        return fire(due)

    with pytest.raises(ValueError, match="broken"):
        await store.plan(NOW, 10, decide)
    assert await _heard(store, recorder) == set()


async def test_every_listener_is_notified(store: Store) -> None:
    several = [NotificationRecorder(), NotificationRecorder()]
    for one in several:
        store.listen(one)
    await store.add_runs([jobless()])
    for one in several:
        await one.next_event("runs")


async def test_a_listener_that_fails_affects_neither_the_change_nor_other_listeners(store: Store) -> None:
    def fail(topic: str) -> None:
        raise RuntimeError("a bug")

    store.listen(fail)
    recorder = NotificationRecorder()
    store.listen(recorder)
    await store.create_jobs([asleep()])
    await recorder.next_event("jobs")
