"""Finishing: an outcome is written only for the worker and attempt that hold the run."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    MINUTE,
    NOW,
    SECOND,
    alone,
    asked,
    ended,
    given_held,
    given_job,
    held,
    job,
    jobless,
    look,
    over,
    start,
    ticks_of,
)
from wakeful.run.outcome import Finished
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, RunView, UnfinishedRun


async def test_every_field_of_an_outcome_is_written(store: Store) -> None:
    _, run = await given_held(store)
    outcome = ended(
        run,
        started_ms=NOW + 3,
        finished_ms=NOW + 7,
        output="42",
        error="a warning",
        reason="so it was",
        usage='{"tokens":7}',
    )
    assert await store.finish("w1", [outcome], alone) == {run.id}
    assert await look(store, run) == run._replace(
        state="succeeded",
        started_ms=NOW + 3,
        finished_ms=NOW + 7,
        output="42",
        error="a warning",
        reason="so it was",
        usage='{"tokens":7}',
    )


@pytest.mark.parametrize("text", ["NUL \x00 within", "half \ud83d of a pair", "\x00"])
async def test_text_of_an_outcome_that_cannot_be_stored_is_cleaned(store: Store, text: str) -> None:
    loud, quiet, plain = held(jobless()), held(jobless()), held(jobless())
    await store.add_runs([loud, quiet, plain])
    outcomes = [
        ended(loud, "failed", output=text, error=text),
        ended(quiet, output="fine"),
        ended(plain, output=text),
    ]
    assert await store.finish("w1", outcomes, alone) == {loud.id, quiet.id, plain.id}
    cleaned = text.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd")
    seen = [await look(store, run) for run in (loud, quiet, plain)]
    assert [(run.output, run.error) for run in seen] == [(cleaned, cleaned), ("fine", None), (cleaned, None)]


@pytest.mark.parametrize("output", [None, "", "42"])
async def test_a_success_clears_the_error_of_the_attempt_before(store: Store, output: str | None) -> None:
    _, run = await given_held(store)
    trouble = ended(run, "retrying", due_ms=NOW, error="refused", reason="busy", output="?", usage="{}")
    await store.finish("w1", [trouble], alone)
    (again,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(again, output=output)], alone)
    seen = await look(store, run)
    assert (seen.state, seen.attempt, seen.worker) == ("succeeded", 2, "w1")
    assert (seen.output, seen.error, seen.reason, seen.usage) == (output, None, None, None)


async def test_a_cancelled_attempt_is_neither_a_failure_nor_a_dead_letter(store: Store) -> None:
    row, run = await given_held(store)
    await store.finish("w1", [ended(run, "cancelled", reason="stopped")], alone)
    seen = await look(store, run)
    assert (seen.state, seen.reason, seen.dead) == ("cancelled", "stopped", False)
    found = await store.job_by_id(row.id)
    assert found is not None
    assert found.failures == 0


async def test_retried_attempts_are_stored(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish(
        "w1", [ended(run, "retrying", due_ms=NOW + 2 * SECOND, error="refused", reason="503")], alone
    )
    seen = await look(store, run)
    assert (seen.state, seen.worker, seen.due_ms, seen.finished_ms) == (
        "retrying", None, NOW + 2 * SECOND, None,
    )  # fmt: skip
    assert (seen.error, seen.reason, seen.dead) == ("refused", "503", False)
    (again,) = await store.take(NOW + 2 * SECOND, "w2", {"cron": 1})
    full = ended(again, "retrying", due_ms=NOW + MINUTE, error="hung up", output="disk\0 is full")
    await store.finish("w2", [full], alone)
    (again,) = await store.take(NOW + MINUTE, "w3", {"cron": 1})
    await store.finish("w3", [ended(again)], alone)
    first, second = await store.attempts(run.id)
    assert first == AttemptView(1, "w1", NOW, NOW + SECOND, "refused")
    assert second._replace(output=None) == AttemptView(2, "w2", NOW, NOW + SECOND, "hung up")
    assert (second.output or "").endswith(" is full")
    seen = await look(store, run)
    assert (seen.attempt, seen.output) == (3, None)


async def test_the_wrong_worker_writes_nothing(store: Store) -> None:
    _, run = await given_held(store, "w1")
    assert await store.finish("w2", [ended(run)], alone) == set()
    assert await look(store, run) == run


async def test_the_wrong_attempt_writes_nothing(store: Store) -> None:
    _, run = await given_held(store)
    assert await store.finish("w1", [ended(run, attempt=2)], alone) == set()
    assert await look(store, run) == run


async def test_a_stalled_worker_writes_nothing_after_its_run_was_rescued(store: Store) -> None:
    _, run = await given_held(store, "stalled")
    await store.rescue(
        NOW + MINUTE, NOW + 1, 10, lambda lost: ended(run, "retrying", due_ms=NOW + MINUTE), alone
    )
    (again,) = await store.take(NOW + MINUTE, "w2", {"cron": 1})
    before = await look(store, run)
    for state in ("succeeded", "failed", "retrying"):
        assert await store.finish("stalled", [ended(run, state, due_ms=NOW)], alone) == set()
    assert await look(store, run) == before
    assert await store.finish("w2", [ended(again)], alone) == {run.id}


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "skipped", "missed"])
async def test_a_terminal_run_is_never_changed_again(store: Store, state: str) -> None:
    digest = await given_job(store)
    run = over(asked(digest), state)._replace(worker="w1")
    await store.add_runs([run])
    before = await look(store, run)
    for outcome in ("succeeded", "failed", "cancelled", "retrying", "running"):
        assert await store.finish("w1", [ended(run, outcome, due_ms=NOW)], alone) == set()
    assert await look(store, run) == before
    assert await store.attempts(run.id) == []


@pytest.mark.parametrize("state", ["pending", "retrying"])
async def test_a_run_without_a_holder_cannot_be_finished(store: Store, state: str) -> None:
    digest = await given_job(store)
    run = asked(digest, state=state)
    await store.add_runs([run])
    before = await look(store, run)
    assert await store.finish("w1", [ended(run)], alone) == set()
    assert await look(store, run) == before


async def test_each_outcome_of_a_batch_is_fenced_separately(store: Store) -> None:
    jobs = [job(f"job-{n}") for n in range(50)]
    await store.create_jobs(jobs)
    created = (await store.plan(NOW, 100, start("w1"))).runs
    for run in created[:10]:
        await store.cancel_run(run.id, NOW, "stopped", running=True)
    states = ("succeeded", "failed", "retrying", "cancelled")
    outcomes = [ended(run, states[n % 4], due_ms=NOW) for n, run in enumerate(created)]
    outcomes += [ended(created[20], attempt=2), ended(jobless())]
    assert await store.finish("w1", outcomes, alone) == {run.id for run in created[10:]}
    for n, run in enumerate(created):
        seen = await look(store, run)
        assert seen.state == ("cancelled" if n < 10 else states[n % 4])
        assert len(await store.attempts(run.id)) == (n >= 10 and states[n % 4] == "retrying")


async def test_of_two_outcomes_for_one_run_the_first_counts(store: Store) -> None:
    row, run = await given_held(store)
    both = [ended(run, "succeeded", output="first"), ended(run, "failed", error="second")]
    assert await store.finish("w1", both, alone) == {run.id}
    seen = await look(store, run)
    assert (seen.state, seen.output, seen.dead) == ("succeeded", "first", False)
    found = await store.job_by_id(row.id)
    assert found is not None
    assert found.failures == 0


async def test_a_run_without_a_job_is_finished_like_any_other(store: Store) -> None:
    runs = [held(jobless()) for _ in range(3)]
    await store.add_runs(runs)
    states = ("succeeded", "failed", "retrying")
    outcomes = [ended(run, state, due_ms=NOW) for run, state in zip(runs, states, strict=True)]
    assert await store.finish("w1", outcomes, alone) == {run.id for run in runs}
    seen = [await look(store, run) for run in runs]
    assert tuple(run.state for run in seen) == states
    assert [run.dead for run in seen] == [False, True, False]


async def test_finishing_no_outcomes_is_a_no_op(store: Store) -> None:
    assert await store.finish("w1", [], alone) == set()


async def test_an_exception_in_follow_leaves_everything_unchanged(store: Store) -> None:
    row, run = await given_held(store)
    await store.create_jobs([job("then", after_job=row.name, after_on="succeeded")])
    with pytest.raises(AssertionError):
        await store.finish("w1", [ended(run)], alone)
    assert await look(store, run) == run


async def test_many_outcomes_are_written_in_one_call(store: Store) -> None:
    await store.create_jobs([job(f"job-{n}") for n in range(1_500)])
    created = (await store.plan(NOW, 2_000, start("w1"))).runs
    written = await store.finish("w1", [ended(run, output=f"{n}") for n, run in enumerate(created)], alone)
    assert written == {run.id for run in created}
    assert (await look(store, created[777])).output == "777"


async def _parked(store: Store) -> RunView:
    _, run = await given_held(store)
    assert await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone) == {run.id}
    return await look(store, run)


async def test_a_parked_run_awaits_its_callback_and_is_not_taken(store: Store) -> None:
    run = await _parked(store)
    assert (run.state, run.worker, run.awaiting_callback) == ("running", None, True)
    assert (run.due_ms, run.finished_ms) == (NOW + MINUTE, None)
    assert await store.take(NOW + 2 * MINUTE, "w2", {"cron": 5}) == []
    assert await store.next_due_ms(NOW, ["cron"]) is None


async def test_the_worker_that_parked_a_run_no_longer_holds_it(store: Store) -> None:
    run = await _parked(store)
    assert await store.finish("w1", [ended(run)], alone) == set()
    assert (await store.beat("w1", NOW, [run.id])).lost == {run.id}
    assert await store.release("w1", NOW) == 0
    assert await look(store, run) == run


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
async def test_a_parked_run_is_completed_once(store: Store, state: str) -> None:
    run = await _parked(store)
    assert await store.complete_run(ended(run, state, output="done"), alone)
    seen = await look(store, run)
    assert (seen.state, seen.output, seen.due_ms, seen.finished_ms) == (state, "done", None, NOW + SECOND)
    assert (seen.dead, seen.awaiting_callback) == (state == "failed", False)
    assert not await store.complete_run(ended(run, "failed"), alone)
    assert await look(store, run) == seen


async def test_a_parked_run_completed_as_retrying_is_retried(store: Store) -> None:
    run = await _parked(store)
    assert await store.complete_run(ended(run, "retrying", due_ms=NOW + MINUTE, error="no answer"), alone)
    (attempt,) = await store.attempts(run.id)
    assert (attempt.attempt, attempt.error) == (1, "no answer")
    (again,) = await store.take(NOW + MINUTE, "w2", {"cron": 1})
    assert again.attempt == 2


async def test_only_a_running_run_can_be_completed_and_only_in_its_attempt(store: Store) -> None:
    row, run = await given_held(store)
    waits = asked(row)
    await store.add_runs([waits])
    assert not await store.complete_run(ended(waits), alone)
    assert not await store.complete_run(ended(jobless()), alone)
    assert not await store.complete_run(ended(run, attempt=2), alone)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert not await store.complete_run(ended(run, attempt=2), alone)
    assert await store.complete_run(ended(run), alone)


@pytest.mark.parametrize("later", ["running", "succeeded", "failed", "retrying"])
@pytest.mark.parametrize("first", ["succeeded", "failed"])
async def test_a_completed_run_is_not_changed_by_a_later_outcome_of_its_worker(
    store: Store, first: str, later: str
) -> None:
    _, run = await given_held(store)
    assert await store.complete_run(ended(run, first, output="done"), alone)
    seen = await look(store, run)
    assert (seen.state, seen.output, seen.worker) == (first, "done", "w1")
    assert await store.finish("w1", [ended(run, later, due_ms=NOW + MINUTE)], alone) == set()
    assert await look(store, run) == seen
    assert (await store.beat("w1", NOW, [run.id])).lost == {run.id}


async def test_a_run_whose_worker_reported_first_cannot_be_completed(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW + MINUTE)], alone)
    assert not await store.complete_run(ended(run), alone)


async def test_a_run_completed_and_parked_concurrently_ends_completed(database: Database) -> None:
    completing, parking = await database.connect(), await database.connect()
    row = await given_job(completing)
    runs = [held(asked(row, serial=False)) for _ in range(20)]
    await completing.add_runs(runs)
    parked = [parking.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone) for run in runs]
    completed = [completing.complete_run(ended(run, output="done"), alone) for run in runs]
    results = await asyncio.gather(*[each for pair in zip(parked, completed, strict=True) for each in pair])
    assert list(results[1::2]) == [True] * len(runs)
    for run in runs:
        seen = await look(completing, run)
        assert (seen.state, seen.output, seen.due_ms) == ("succeeded", "done", None)


async def test_a_finished_run_is_listed_for_its_job(store: Store) -> None:
    row, run = await given_held(store)
    await store.finish("w1", [ended(run)], alone)
    assert [seen.state for seen in await ticks_of(store, row)] == ["succeeded"]


async def test_failed_attempts_are_carried_over_and_a_release_does_not_count(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW, failed_attempts=1)], alone)
    assert await store.release("w1", NOW) == 0
    (again,) = await store.take(NOW, "w2", {"cron": 1})
    assert (again.attempt, again.failed_attempts) == (2, 1)
    assert await store.release("w2", NOW) == 1, "which does not count"
    (again,) = await store.take(NOW, "w3", {"cron": 1})
    assert (again.attempt, again.failed_attempts) == (3, 1)
    await store.finish("w3", [ended(again)], alone)
    assert (await look(store, run)).failed_attempts == 1


@pytest.mark.parametrize("output", [None, "42"])
async def test_the_response_code_is_stored_with_each_attempt_and_with_a_success(
    store: Store, output: str | None
) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW, error="no", response_code=503)], alone)
    assert (await look(store, run)).response_code == 503
    (again,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(again, output=output, response_code=201)], alone)
    assert (await look(store, run)).response_code == 201
    assert [attempt.response_code for attempt in await store.attempts(run.id)] == [503]


@pytest.mark.parametrize("output", [None, "42"])
async def test_a_success_without_a_response_code_clears_the_one_before(
    store: Store, output: str | None
) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW, response_code=503)], alone)
    (again,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(again, output=output)], alone)
    assert (await look(store, run)).response_code is None


async def test_a_parked_run_keeps_its_response_code_until_it_is_lost(store: Store) -> None:
    _, run = await given_held(store)
    parked = ended(run, "running", due_ms=NOW, response_code=202, failed_attempts=1)
    await store.finish("w1", [parked], alone)
    assert (await look(store, run)).response_code == 202
    judged: list[UnfinishedRun] = []

    def judge(lost: UnfinishedRun) -> Finished:
        judged.append(lost)
        return ended(run, "failed")

    assert await store.rescue(NOW, 0, 10, judge, alone) == [run.id]
    assert [(lost.failed_attempts, lost.response_code) for lost in judged] == [(1, 202)]
