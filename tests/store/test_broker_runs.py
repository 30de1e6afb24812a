"""Runs for brokers: progress extends their deadline, and a dead worker's attempt is launched again."""

from __future__ import annotations

import pytest

from tests.support.factories import MINUTE, NOW, SECOND, alone, ended, given_held, held, look, tick
from wakeful.run.consequences import consequences
from wakeful.run.outcome import TAKEN_OVER, take_over
from wakeful.store.port import Store
from wakeful.store.rows import AwaitingRun, Extension, JobChange, RunView


async def _taken_over(store: Store) -> RunView:
    """Return a run that was running under w1, which died, and that waits to be launched again."""
    _, run = await given_held(store)
    rescued = await store.rescue(
        NOW + MINUTE,
        NOW + MINUTE,
        10,
        lambda lost: take_over(
            lost.id, lost.job_id, lost.attempt, "w1 died", NOW, NOW + MINUTE, lost.failed_attempts
        ),
        consequences,
    )
    assert rescued == [run.id]
    return await look(store, run)


async def _extend(store: Store, run_id: str, attempt: int, due_ms: int) -> bool:
    return await store.extend_callbacks([Extension(run_id, attempt, due_ms)]) == {run_id}


async def test_progress_extends_the_deadline_of_a_run_that_awaits_its_report(store: Store) -> None:
    _, run = await given_held(store)
    assert not await _extend(store, run.id, 1, NOW + 2 * MINUTE), "its worker still holds it"
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert await _extend(store, run.id, 1, NOW + 2 * MINUTE)
    assert (await look(store, run)).due_ms == NOW + 2 * MINUTE
    assert await _extend(store, run.id, 1, NOW + SECOND)
    assert (await look(store, run)).due_ms == NOW + 2 * MINUTE, "a later deadline stays"


async def test_progress_of_another_attempt_or_of_an_ended_run_changes_nothing(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert not await _extend(store, run.id, 2, NOW + 2 * MINUTE)
    assert not await _extend(store, "not-an-id", 1, NOW + 2 * MINUTE)
    assert (await look(store, run)).due_ms == NOW + MINUTE
    await store.complete_run(ended(run), alone)
    assert not await _extend(store, run.id, 1, NOW + 2 * MINUTE)


async def test_a_run_that_awaits_its_report_shows_why_it_waits(store: Store) -> None:
    _, run = await given_held(store)
    await store.note_callback(run.id, 1, "early")
    assert (await look(store, run)).error is None, "its launch is not recorded"
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    await store.note_callback(run.id, 2, "another attempt")
    assert (await look(store, run)).error is None
    await store.note_callback(run.id, 1, "no worker has it")
    seen = await look(store, run)
    assert (seen.error, seen.state, seen.due_ms) == ("no worker has it", "running", NOW + MINUTE)
    await store.note_callback(run.id, 1, None)
    assert (await look(store, run)).error is None
    await store.note_callback(run.id, 1, "no worker has it")
    await store.complete_run(ended(run), alone)
    await store.note_callback(run.id, 1, "late")
    assert (await look(store, run)).error is None


async def test_a_run_that_is_taken_over_is_launched_again_in_the_same_attempt(store: Store) -> None:
    run = await _taken_over(store)
    assert (run.state, run.reason, run.attempt, run.worker) == ("retrying", TAKEN_OVER, 1, None)
    assert await store.attempts(run.id) == [], "the attempt has not ended"
    (again,) = await store.take(NOW + MINUTE, "w2", {"cron": 1})
    assert (again.id, again.attempt, again.failed_attempts) == (run.id, 1, 0)
    retry = ended(run, "retrying", due_ms=NOW + 2 * MINUTE, error="no answer", reason="network")
    assert await store.finish("w1", [retry], consequences) == set(), "its first worker is fenced off"
    assert await store.finish("w2", [retry], consequences) == {run.id}
    assert [each.attempt for each in await store.attempts(run.id)] == [1]
    (next_one,) = await store.take(NOW + 2 * MINUTE, "w2", {"cron": 1})
    assert next_one.attempt == 2


async def test_a_run_that_is_taken_over_and_then_released_gets_its_next_attempt(store: Store) -> None:
    run = await _taken_over(store)
    await store.take(NOW + MINUTE, "w2", {"cron": 1})
    assert await store.release("w2", NOW + MINUTE) == 1
    (again,) = await store.take(NOW + MINUTE, "w3", {"cron": 1})
    assert (again.attempt, [each.attempt for each in await store.attempts(run.id)]) == (2, [1])


@pytest.mark.parametrize(("code", "edited"), [(None, True), (202, False)])
async def test_a_job_that_is_edited_may_have_sent_its_run_to_another_target(
    store: Store, code: int | None, edited: bool
) -> None:
    job, run = await given_held(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE, response_code=code)], alone)
    await store.change_job(job.id, lambda old: JobChange(old._replace(work="{}", updated_ms=NOW + 1)))
    assert await store.awaiting_runs("", 10) == [
        AwaitingRun(run.id, 1, run.idempotency_key, "{}", edited=edited)
    ]


async def test_runs_that_await_a_report_are_listed_in_pages(store: Store) -> None:
    job, first = await given_held(store)
    second, third = await store.add_runs([held(tick(job, NOW + number, serial=False)) for number in (1, 2)])
    assert await store.awaiting_runs("", 10) == [], "their worker still holds them"
    await store.finish("w1", [ended(each, "running", due_ms=NOW + MINUTE) for each in (first, second)], alone)
    expected = [
        AwaitingRun(each.id, 1, each.idempotency_key, job.work)
        for each in sorted((first, second), key=lambda each: each.id)
    ]
    assert await store.awaiting_runs("", 10) == expected
    assert await store.awaiting_runs("", 1) == expected[:1]
    assert await store.awaiting_runs(expected[0].run_id, 10) == expected[1:]
    await store.complete_run(ended(first), alone)
    await store.cancel_run(second.id, NOW, "stopped", running=True)
    assert await store.awaiting_runs("", 10) == []
    assert third.state == "running"
