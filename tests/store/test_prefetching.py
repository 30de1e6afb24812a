"""Prefetching: runs that a worker claims before a slot is free, and claims with outcomes."""

from __future__ import annotations

from tests.support.factories import MINUTE, NOW, SECOND, alone, asked, asleep, ended, look
from wakeful.document import policy_to_text
from wakeful.job.policy import Policy
from wakeful.job.start_rules import NO_CAPABILITIES
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.plans import TakeNext
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, TakenRun, UnfinishedRun

FAIL = policy_to_text(Policy(on_lost="fail"))


async def _job(store: Store, name: str, **fields: object) -> JobRow:
    row = asleep(name, **fields)
    await store.create_jobs([row])
    return row


async def _due(store: Store, count: int, **fields: object) -> list[NewRun]:
    """Add runs of different jobs, the first longest due."""
    runs = [
        asked(await _job(store, f"job-{number}", **fields), NOW - MINUTE + number) for number in range(count)
    ]
    await store.add_runs(runs)
    return runs


def _ids(runs: list[NewRun] | list[TakenRun]) -> list[str]:
    return [run.id for run in runs]


async def test_prefetched_runs_are_running_without_a_start(store: Store) -> None:
    runs = await _due(store, 4)
    taken = await store.take(NOW, "w1", {"cron": 1}, prefetch={"cron": 2})
    assert [(run.id, run.slot) for run in taken] == [
        (runs[0].id, "free"), (runs[1].id, "later"), (runs[2].id, "later"),
    ]  # fmt: skip
    seen = [await look(store, run) for run in runs]
    assert [run.state for run in seen] == ["running", "running", "running", "pending"]
    assert [run.started_ms for run in seen] == [NOW, None, None, None]
    assert [run.worker for run in seen] == ["w1", "w1", "w1", None]


async def test_a_prefetched_run_is_rescued_if_its_claim_commits_after_its_worker_has_left(
    store: Store,
) -> None:
    (run,) = await _due(store, 1)
    await store.beat("w1", NOW, ())
    await store.release("w1", NOW)
    await store.take(NOW, "w1", {}, prefetch={"cron": 1})
    judged: list[str] = []

    def judge(lost: UnfinishedRun) -> Finished:
        judged.append(lost.id)
        return ended(run, "retrying", due_ms=NOW + MINUTE)

    await store.rescue(NOW + MINUTE, NOW, 10, judge, alone)
    assert judged == [run.id]
    assert (await look(store, run)).state == "retrying"


async def test_runs_are_prefetched_without_any_free_slot(store: Store) -> None:
    runs = await _due(store, 3)
    taken = await store.take(NOW, "w1", {}, prefetch={"cron": 2})
    assert [(run.id, run.slot) for run in taken] == [(runs[0].id, "later"), (runs[1].id, "later")]


async def test_work_that_must_not_start_twice_is_not_prefetched_and_not_overtaken(store: Store) -> None:
    before, after = await _due(store, 2)
    once = asked(await _job(store, "once", policy=FAIL), NOW - MINUTE)
    await store.add_runs([once])
    taken = await store.take(NOW, "w1", {}, prefetch={"cron": 5})
    assert _ids(taken) == [before.id], "those that are due after it wait too"
    taken = await store.take(NOW, "w1", {"cron": 1}, prefetch={"cron": 5})
    assert [(run.id, run.slot) for run in taken] == [(once.id, "free"), (after.id, "later")]


async def test_a_later_attempt_is_not_prefetched(store: Store) -> None:
    (run,) = await _due(store, 1)
    (taken,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(taken, "retrying", due_ms=NOW)], alone)
    assert await store.take(NOW, "w1", {}, prefetch={"cron": 5}) == []
    (again,) = await store.take(NOW, "w1", {"cron": 1}, prefetch={"cron": 5})
    assert (again.id, again.attempt, again.slot) == (run.id, 2, "free")


async def test_the_outcome_of_a_prefetched_run_writes_its_start(store: Store) -> None:
    await _due(store, 1)
    (taken,) = await store.take(NOW, "w1", {}, prefetch={"cron": 1})
    outcome = ended(taken, started_ms=NOW + SECOND, finished_ms=NOW + 2 * SECOND)
    assert await store.finish("w1", [outcome], alone) == {taken.id}
    seen = await look(store, taken)
    assert (seen.state, seen.started_ms) == ("succeeded", NOW + SECOND)


async def test_a_start_is_recorded_once_and_only_by_the_holder(store: Store) -> None:
    await _due(store, 1)
    (taken,) = await store.take(NOW, "w1", {}, prefetch={"cron": 1})
    for worker, attempt in (("w2", 1), ("w1", 2)):
        await store.record_starts(worker, [(taken.id, attempt, NOW + 1)])
        assert (await look(store, taken)).started_ms is None
    await store.record_starts("w1", [(taken.id, 1, NOW + 5)])
    await store.record_starts("w1", [(taken.id, 1, NOW + 9)])
    assert (await look(store, taken)).started_ms == NOW + 5


async def test_a_run_that_is_given_back_keeps_its_place_and_does_not_count(store: Store) -> None:
    runs = await _due(store, 3)
    first, second = await store.take(NOW, "w1", {}, prefetch={"cron": 2})
    assert await store.give_back("w1", NOW + SECOND, [(first.id, 1), (second.id, 1)]) == 2
    seen = await look(store, first)
    assert (seen.state, seen.worker, seen.started_ms) == ("retrying", None, None)
    assert seen.failed_attempts == 0
    (attempt,) = await store.attempts(first.id)
    assert (attempt.attempt, attempt.worker, attempt.started_ms, attempt.error) == (1, "w1", None, "released")
    taken = await store.take(NOW + SECOND, "w2", {"cron": 3})
    assert _ids(taken) == _ids(runs), "longest due first"
    assert [(run.attempt, run.failed_attempts) for run in taken] == [(2, 0), (2, 0), (1, 0)]


async def test_only_prefetched_runs_of_the_worker_are_given_back(store: Store) -> None:
    await _due(store, 4)
    (begun,) = await store.take(NOW, "w1", {"cron": 1})
    recorded, cancelled, other = await store.take(NOW, "w1", {}, prefetch={"cron": 3})
    await store.record_starts("w1", [(recorded.id, 1, NOW)])
    await store.cancel_run(cancelled.id, NOW, "asked", running=True)
    given = [(run.id, 1) for run in (begun, recorded, cancelled, other)]
    assert await store.give_back("w2", NOW, given) == 0
    assert await store.give_back("w1", NOW, [(other.id, 2)]) == 0
    assert await store.give_back("w1", NOW, given) == 1
    states = [(await look(store, run)).state for run in (begun, recorded, cancelled, other)]
    assert states == ["running", "running", "cancelled", "retrying"]
    assert await store.give_back("w1", NOW, []) == 0


async def test_a_stopping_worker_releases_prefetched_runs_without_a_start(store: Store) -> None:
    await _due(store, 1)
    (taken,) = await store.take(NOW, "w1", {}, prefetch={"cron": 1})
    assert await store.release("w1", NOW) == 1
    (attempt,) = await store.attempts(taken.id)
    assert (attempt.started_ms, attempt.error) == (None, "released")


async def test_a_rescuer_sees_that_a_prefetched_run_has_no_start(store: Store) -> None:
    await _due(store, 2)
    await store.beat("w1", NOW, [])
    await store.take(NOW, "w1", {"cron": 1}, prefetch={"cron": 1})
    starts: list[int | None] = []

    def judge(run: UnfinishedRun) -> Finished:
        starts.append(run.started_ms)
        return Finished(run.id, run.job_id, run.attempt, "failed", NOW, NOW, error="lost")

    await store.rescue(NOW + MINUTE, NOW + SECOND, 10, judge, alone)
    assert sorted(starts, key=str) == [NOW, None]


async def test_outcomes_and_the_next_claim_are_one_transaction(store: Store) -> None:
    runs = await _due(store, 4)
    (first,) = await store.take(NOW, "w1", {"cron": 1})
    wanted = TakeNext({}, NO_CAPABILITIES, {"cron": 1}, {"cron": 1})
    written, taken = await store.finish_and_take("w1", [ended(first)], consequences, wanted)
    assert written == {first.id}
    assert [(run.id, run.slot) for run in taken] == [(runs[1].id, "free"), (runs[2].id, "later")]
    started = (await look(store, runs[1])).started_ms
    assert started is not None
    assert (await look(store, runs[2])).started_ms is None


async def test_a_fenced_outcome_claims_runs_nevertheless(store: Store) -> None:
    runs = await _due(store, 2)
    (first,) = await store.take(NOW, "w1", {"cron": 1})
    wanted = TakeNext({}, NO_CAPABILITIES, {"cron": 1})
    written, taken = await store.finish_and_take("w2", [ended(first)], alone, wanted)
    assert (written, _ids(taken)) == (set(), [runs[1].id])


async def test_a_serial_run_starts_with_the_outcome_of_the_one_before_it(store: Store) -> None:
    digest = await _job(store, "digest")
    runs = [asked(digest, NOW - MINUTE + number, serial=True) for number in range(3)]
    await store.add_runs(runs)
    (first,) = await store.take(NOW, "w1", {"cron": 5}, prefetch={"cron": 5})
    wanted = TakeNext({}, NO_CAPABILITIES, {"cron": 1}, {"cron": 5})
    _, taken = await store.finish_and_take("w1", [ended(first)], consequences, wanted)
    assert [(run.id, run.slot) for run in taken] == [(runs[1].id, "free")]
