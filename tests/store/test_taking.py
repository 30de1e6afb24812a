"""Taking: due runs go to a worker, longest due first, up to the free slots of each lane."""

from __future__ import annotations

from tests.support.factories import (
    MINUTE,
    NOW,
    SECOND,
    alone,
    asked,
    asleep,
    ended,
    held,
    job,
    jobless,
    look,
    over,
)
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobRow, TakenRun


async def _job(store: Store, name: str = "digest", **fields: object) -> JobRow:
    row = asleep(name, **fields)
    await store.create_jobs([row])
    return row


def _free(of: JobRow, due: int = NOW, **fields: object) -> NewRun:
    """Return a run that is not serial."""
    return asked(of, due, serial=False, **fields)


async def test_a_taken_run_has_every_field_its_launch_needs(store: Store) -> None:
    digest = await _job(store, payload='{"to":"me"}')
    run = _free(digest, NOW - SECOND, lane="main", attempt=4)
    await store.add_runs([run])
    assert await store.take(NOW, "w1", {"main": 1}) == [
        TakenRun(
            id=run.id,
            job_id=digest.id,
            workspace="default",
            agent="default",
            job_name="digest",
            scheduled_ms=NOW - SECOND,
            fire_ms=NOW - SECOND,
            trigger="user",
            attempt=4,
            lane="main",
            idempotency_key=run.idempotency_key,
            policy=digest.policy,
            work=digest.work,
            payload='{"to":"me"}',
            timing=digest.timing,
            anchor_ms=digest.anchor_ms,
        )
    ]
    seen = await look(store, run)
    assert (seen.state, seen.worker, seen.started_ms, seen.due_ms) == ("running", "w1", NOW, None)


async def test_the_payload_of_a_run_overrides_that_of_its_job(store: Store) -> None:
    digest = await _job(store, payload='{"to":"me"}')
    await store.add_runs([_free(digest, payload='{"to":"you"}')])
    (taken,) = await store.take(NOW, "w1", {"cron": 1})
    assert taken.payload == '{"to":"you"}'


async def test_a_run_without_a_job_has_an_empty_policy_and_work(store: Store) -> None:
    run = jobless()
    await store.add_runs([run])
    (taken,) = await store.take(NOW, "w1", {"cron": 1})
    assert (taken.id, taken.job_id, taken.job_name) == (run.id, None, None)
    assert (taken.policy, taken.work, taken.payload) == ("{}", "{}", '{"message":"hello"}')


async def test_runs_without_a_job_do_not_wait_for_each_other(store: Store) -> None:
    await store.add_runs([held(jobless(), "w0"), jobless(), jobless()])
    assert len(await store.take(NOW, "w1", {"cron": 5})) == 2


async def test_a_run_of_a_deleted_job_can_still_be_taken(store: Store) -> None:
    digest = await _job(store)
    run = _free(digest)._replace(state="retrying")
    await store.add_runs([run])
    assert await store.delete_job(digest.id, NOW, "no longer wanted")
    (taken,) = await store.take(NOW, "w1", {"cron": 1})
    assert (taken.id, taken.work) == (run.id, digest.work)


async def test_the_longest_due_are_taken_first_across_lanes(store: Store) -> None:
    digest = await _job(store)
    runs = [
        _free(digest, NOW - n * SECOND, lane=lane) for n, lane in ((1, "a"), (3, "b"), (2, "a"), (4, "b"))
    ]
    await store.add_runs(runs)
    taken = await store.take(NOW, "w1", {"a": 9, "b": 9})
    assert [run.id for run in taken] == [runs[n].id for n in (3, 1, 2, 0)]


async def test_with_too_few_slots_the_longest_due_are_taken_first(store: Store) -> None:
    digest = await _job(store)
    runs = [_free(digest, NOW - n * SECOND) for n in (1, 4, 2, 3)]
    await store.add_runs(runs)
    assert [run.id for run in await store.take(NOW, "w1", {"cron": 2})] == [runs[1].id, runs[3].id]
    assert [run.id for run in await store.take(NOW, "w1", {"cron": 2})] == [runs[2].id, runs[0].id]


async def test_equally_due_runs_are_taken_in_creation_order(store: Store) -> None:
    digest = await _job(store)
    runs = [_free(digest) for _ in range(20)]
    await store.add_runs(runs)
    taken = [run.id for _ in range(4) for run in await store.take(NOW, "w1", {"cron": 5})]
    assert taken == [run.id for run in runs]


async def test_a_run_is_due_at_its_due_time_and_not_before(store: Store) -> None:
    await store.add_runs([_free(await _job(store), NOW)])
    assert await store.take(NOW - 1, "w1", {"cron": 1}) == []
    assert len(await store.take(NOW, "w1", {"cron": 1})) == 1


async def test_no_more_runs_are_taken_than_a_lane_has_free_slots(store: Store) -> None:
    digest = await _job(store)
    await store.add_runs([_free(digest, lane=lane) for lane in ("a", "a", "a", "b", "b", "c")])
    taken = await store.take(NOW, "w1", {"a": 2, "b": 0, "d": 5})
    assert [run.lane for run in taken] == ["a", "a"]
    assert await store.take(NOW, "w1", {}) == []


async def test_pull_runs_are_never_taken_by_a_worker(store: Store) -> None:
    await store.add_runs([_free(await _job(store), claim_timeout_ms=MINUTE)])
    assert await store.take(NOW, "w1", {"cron": 5, "main": 5}) == []
    assert await store.next_due_ms(NOW - 1, ["cron", "main"]) is None


async def test_only_waiting_runs_are_taken(store: Store) -> None:
    digest = await _job(store)
    states = ("succeeded", "failed", "cancelled", "skipped", "missed")
    await store.add_runs([*(over(_free(digest), state) for state in states), held(_free(digest), "w0")])
    assert await store.take(NOW + MINUTE, "w1", {"cron": 9}) == []


async def test_taking_a_retrying_run_increments_its_attempt(store: Store) -> None:
    run = _free(await _job(store))
    await store.add_runs([run])
    (first,) = await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(first, "retrying", due_ms=NOW + 2 * SECOND)], alone)
    assert await store.take(NOW + SECOND, "w1", {"cron": 1}) == []
    (second,) = await store.take(NOW + 2 * SECOND, "w2", {"cron": 1})
    assert (first.attempt, second.attempt, second.id) == (1, 2, run.id)
    assert (await look(store, run)).started_ms == NOW + 2 * SECOND


async def test_next_due_is_the_earliest_later_run_of_the_lanes(store: Store) -> None:
    digest = await _job(store)
    assert await store.next_due_ms(NOW, ["a", "b"]) is None
    await store.add_runs(
        [
            _free(digest, NOW, lane="a"),
            _free(digest, NOW + 5, lane="a")._replace(state="retrying"),
            _free(digest, NOW + 3, lane="b"),
            _free(digest, NOW + 1, lane="c"),
        ]
    )
    assert await store.next_due_ms(NOW, ["a", "b"]) == NOW + 3
    assert await store.next_due_ms(NOW, ["a"]) == NOW + 5
    assert await store.next_due_ms(NOW - 1, ["a"]) == NOW
    assert await store.next_due_ms(NOW + 5, ["a", "b", "c"]) is None
    assert await store.next_due_ms(NOW, []) is None


async def test_a_due_job_that_is_not_planned_has_no_run_to_take(store: Store) -> None:
    await store.create_jobs([job()])
    assert await store.take(NOW, "w1", {"cron": 1}) == []
