"""Pull runs: claimed by an executor, or expired when unclaimed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    ended,
    fire,
    held,
    job,
    jobless,
    look,
    look_at_job,
    plan_of,
    tick,
    ticks_of,
)
from tests.support.notifications import NotificationRecorder
from tests.support.pull_runs import HOUR, LANE, ME, YOU, claim, new_job, pulled, refuse
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished
from wakeful.store.claim_requests import ClaimScope
from wakeful.store.plans import TURN_MS, DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, Move, Renewal, TakenRun, UnfinishedRun


def _expired(lost: UnfinishedRun) -> Finished:
    return Finished(
        lost.id, lost.job_id, lost.attempt, "failed", NOW, NOW + HOUR, error="nobody came", reason="expired"
    )


# --- moving between lanes -------------------------------------------------------------------------------


def _to(lane: str, claim_timeout_ms: int | None) -> Callable[[JobRow], JobChange]:
    return lambda row: JobChange(row._replace(updated_ms=NOW), move=Move(lane, claim_timeout_ms))


async def test_waiting_runs_move_with_their_job_to_a_pull_lane(
    store: Store, clock: FalseClock, recorder: NotificationRecorder
) -> None:
    digest, other = await new_job(store), await new_job(store, "other")
    due, later, running = asked(digest, NOW - MINUTE), asked(digest, NOW + HOUR), held(asked(digest))
    theirs = asked(other)
    await store.add_runs([due, later, running, theirs])
    await recorder.next_event("runs")
    assert await store.change_job(digest.id, _to(LANE, 2 * HOUR)) is not None
    await recorder.next_event("runs")
    assert [run.id for run in await store.take(NOW, "w1", {"cron": 10})] == [theirs.id]
    moved = [await look(store, run) for run in (due, later)]
    assert [(run.state, run.lane, run.is_pull, run.claim_deadline_ms) for run in moved] == [
        ("pending", LANE, True, NOW + 2 * HOUR),
        ("pending", LANE, True, NOW + 3 * HOUR),
    ]
    assert not (await look(store, running)).is_pull
    await store.finish("w1", [ended(running, "failed")], alone)
    assert await store.claimable_ms(NOW, [ClaimScope("default")]) == [NOW]
    assert [run.id for run in await claim(store)] == [due.id]


async def test_a_retrying_run_moves_too_and_each_retry_restarts_its_claim_deadline(store: Store) -> None:
    digest = await new_job(store)
    run = held(asked(digest))
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    await store.change_job(digest.id, _to(LANE, HOUR))
    (claimed,) = await claim(store, now=NOW + MINUTE)
    assert claimed.attempt == 2
    await store.finish(
        ME, [ended(claimed, "retrying", due_ms=NOW + 2 * MINUTE, started_ms=NOW + MINUTE)], alone
    )
    assert (await look(store, run)).claim_deadline_ms == NOW + 2 * MINUTE + HOUR


async def test_pull_runs_move_with_their_job_to_a_worker_lane(store: Store) -> None:
    digest = await new_job(store)
    run = pulled(digest)
    await store.add_runs([run])
    await store.change_job(digest.id, _to("cron", None))
    assert await claim(store) == []
    assert await store.expire(NOW + 2 * HOUR, 10, refuse, alone) == []
    assert [(taken.id, taken.lane) for taken in await store.take(NOW, "w1", {"cron": 1})] == [
        (run.id, "cron")
    ]
    seen = await look(store, run)
    assert (seen.is_pull, seen.claim_deadline_ms) == (False, None)


async def _fail(store: Store, worker: str, run: TakenRun) -> None:
    await store.finish(worker, [ended(run, "retrying", due_ms=NOW + MINUTE)], alone)


async def _lose(store: Store, worker: str, run: TakenRun) -> None:
    def judge(lost: UnfinishedRun) -> Finished:
        return ended(run, "retrying", due_ms=NOW + MINUTE)

    assert await store.rescue(NOW + HOUR, NOW + MINUTE, 10, judge, alone) == [run.id]


async def _release(store: Store, worker: str, run: TakenRun) -> None:
    if not await store.release_claims(NOW + MINUTE, "default", worker, [(run.id, run.attempt)]):
        assert await store.release(worker, NOW + MINUTE) == 1


@pytest.mark.parametrize("end", [_fail, _lose, _release])
@pytest.mark.parametrize("edits", [1, 2, 3])
@pytest.mark.parametrize("pull", [False, True])
async def test_the_next_attempt_of_a_running_run_moves_with_its_job(
    store: Store, pull: bool, edits: int, end: Callable[[Store, str, TakenRun], Awaitable[None]]
) -> None:
    digest = await new_job(store)
    run = pulled(digest, lane="gpu") if pull else asked(digest)
    await store.add_runs([run])
    (taken,) = await (claim(store) if pull else store.take(NOW, "w1", {"cron": 1}))
    moves = _to("gpu", HOUR), _to("cron", None)
    for edit in range(edits):
        await store.change_job(digest.id, moves[(edit + pull) % 2])
        assert (await look(store, run)).is_pull is pull
    await end(store, ME if pull else "w1", taken)
    becomes_pull = pull is (edits % 2 == 0)
    later = NOW + 2 * MINUTE
    seen = await look(store, run)
    assert (seen.state, seen.is_pull) == ("retrying", becomes_pull)
    assert seen.claim_deadline_ms == (NOW + MINUTE + HOUR if becomes_pull else None)
    if not becomes_pull:
        assert await store.expire(NOW + 2 * HOUR, 10, refuse, alone) == []
    found = [await claim(store, now=later), await store.take(later, "w2", {"cron": 1, "gpu": 1})]
    assert [[(each.id, each.attempt) for each in runs] for runs in found] == (
        [[(run.id, 2)], []] if becomes_pull else [[], [(run.id, 2)]]
    )


async def test_a_prefetched_run_that_is_given_back_moves_with_its_job(store: Store) -> None:
    digest = await new_job(store)
    run = asked(digest, NOW - 2 * HOUR, serial=False)
    await store.add_runs([run])
    (taken,) = await store.take(NOW, "w1", {}, prefetch={"cron": 1})
    await store.change_job(digest.id, _to(LANE, HOUR))
    assert await store.give_back("w1", NOW, [(taken.id, taken.attempt)]) == 1
    assert await store.expire(NOW + MINUTE, 10, refuse, alone) == []
    assert [each.id for each in await claim(store)] == [run.id]


# --- claiming -------------------------------------------------------------------------------------------


async def test_a_claimed_run_has_every_field_needed_to_execute_it(store: Store) -> None:
    digest = await new_job(store, payload='{"to":"me"}')
    run = pulled(digest, NOW - SECOND)
    await store.add_runs([run])
    assert await claim(store) == [
        TakenRun(
            run.id, digest.id, "default", "default", "digest", NOW - SECOND, NOW - SECOND, "user", 1, LANE,
            run.idempotency_key, digest.policy, digest.work, '{"to":"me"}', timing=digest.timing,
            anchor_ms=digest.anchor_ms,
        )
    ]  # fmt: skip
    seen = await look(store, run)
    assert (seen.state, seen.worker, seen.started_ms, seen.due_ms) == ("running", ME, NOW, None)
    assert await claim(store, YOU) == []


async def test_runs_are_claimed_longest_due_first_up_to_the_limit(store: Store) -> None:
    digest = await new_job(store)
    runs = [pulled(digest, NOW - n * SECOND) for n in (1, 4, 2, 3)]
    await store.add_runs([*runs, pulled(digest, NOW + 1)])
    assert [run.id for run in await claim(store, limit=3)] == [runs[n].id for n in (1, 3, 2)]
    assert [run.id for run in await claim(store, limit=3, agents=["default"])] == [runs[0].id]


async def test_a_claim_filters_by_workspace_agents_and_lanes(store: Store) -> None:
    ours = [
        await new_job(store, f"job-{agent}-{n}", agent=agent) for n, agent in enumerate(("ada", "bob", "ada"))
    ]
    theirs = await new_job(store, workspace="acme", agent="ada")
    runs = [pulled(ours[0]), pulled(ours[1]), pulled(ours[2], lane="main"), pulled(theirs)]
    await store.add_runs(runs)
    assert await claim(store, agents=["eve"]) == []
    assert await claim(store, agents=[]) == []
    assert await claim(store, lanes=["team"]) == []
    assert [run.id for run in await claim(store, agents=["ada", "eve"], lanes=["main"])] == [runs[2].id]
    assert [run.id for run in await claim(store, agents=["bob"])] == [runs[1].id]
    assert [run.id for run in await claim(store)] == [runs[0].id]
    assert [run.id for run in await claim(store, workspace="acme", lanes=[LANE])] == [runs[3].id]


async def test_runs_of_workers_are_not_claimed(store: Store) -> None:
    await store.add_runs([asked(await new_job(store), serial=False), jobless(lane="main")])
    assert await claim(store) == []


async def test_a_run_without_a_job_can_be_claimed(store: Store) -> None:
    run = jobless(lane=LANE, claim_timeout_ms=HOUR)
    await store.add_runs([run])
    (claimed,) = await claim(store, agents=["default"])
    assert (claimed.id, claimed.work, claimed.payload) == (run.id, "{}", '{"message":"hello"}')


async def test_serial_runs_are_claimed_one_at_a_time_in_the_order_of_their_ticks(store: Store) -> None:
    digest = await new_job(store)
    runs = [pulled(digest, NOW - n * SECOND, serial=True) for n in (1, 3, 2)]
    await store.add_runs(runs)
    for n in (1, 2, 0):
        (claimed,) = await claim(store)
        assert claimed.id == runs[n].id
        assert await claim(store, YOU) == []
        await store.finish(ME, [ended(claimed)], alone)


async def test_two_executors_never_claim_the_same_run(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]
    digest = await new_job(stores[0])
    await stores[0].add_runs([pulled(digest, serial=n % 2 == 0) for n in range(60)])
    claims = [
        claim(store, f"executor-{n}", limit=7, agents=["default"] if n % 2 else None)
        for n, store in enumerate(stores * 4)
    ]
    got = [run.id for claimed in await asyncio.gather(*claims) for run in claimed]
    assert len(got) == len(set(got))
    assert len(got) > 1, "all but the serial ones may be had at once"
    assert {(await look(stores[0], run)).state for run in got} == {"running"}


async def test_a_planned_pull_run_is_announced(store: Store, recorder: NotificationRecorder) -> None:
    def wait(due: DueJob) -> JobPlan:
        return plan_of(due, tick(due, due.next_ms, lane=LANE, claim_timeout_ms=HOUR))

    await store.create_jobs([job()])
    await recorder.next_event("jobs")
    await store.plan(NOW, 10, wait)
    await recorder.next_event("pull_runs")


# --- expiring -------------------------------------------------------------------------------------------


async def test_a_run_that_is_not_claimed_in_time_expires_and_is_a_dead_letter(store: Store) -> None:
    digest = await new_job(store)
    run = pulled(digest)
    await store.add_runs([run])
    assert await store.expire(NOW + HOUR - 1, 10, refuse, alone) == []
    asked_of: list[UnfinishedRun] = []

    def judge(lost: UnfinishedRun) -> Finished:
        asked_of.append(lost)
        return _expired(lost)

    assert await store.expire(NOW + HOUR, 10, judge, alone) == [run.id]
    assert asked_of == [UnfinishedRun(run.id, digest.id, 1, digest.policy, None, None, is_pull=True)]
    seen = await look(store, run)
    assert (seen.state, seen.reason, seen.error, seen.dead) == ("failed", "expired", "nobody came", True)
    assert (seen.worker, seen.started_ms, seen.due_ms, seen.finished_ms) == (None, None, None, NOW + HOUR)
    assert (await look_at_job(store, digest)).failures == 1
    assert await claim(store, now=NOW + 2 * HOUR) == []
    assert await store.expire(NOW + 2 * HOUR, 10, refuse, alone) == []


async def test_each_run_has_its_own_claim_timeout(store: Store) -> None:
    digest = await new_job(store)
    runs = [pulled(digest, wait=wait) for wait in (5 * HOUR, SECOND, MINUTE)]
    await store.add_runs(runs)
    assert await store.expire(NOW + HOUR, 10, _expired, alone) == [runs[1].id, runs[2].id]


async def test_runs_expire_longest_overdue_first_up_to_the_limit(store: Store) -> None:
    digest = await new_job(store)
    runs = [pulled(digest, NOW - n * SECOND) for n in (1, 3, 2)]
    await store.add_runs(runs)
    assert await store.expire(NOW + HOUR, 2, _expired, alone) == [runs[1].id, runs[2].id]
    assert await store.expire(NOW + HOUR, 2, _expired, alone) == [runs[0].id]


async def test_a_claimed_run_does_not_expire(store: Store) -> None:
    await store.add_runs([pulled(await new_job(store))])
    (run,) = await claim(store)
    assert await store.expire(NOW + 5 * HOUR, 10, refuse, alone) == []
    assert (await look(store, run)).state == "running"


async def test_runs_for_workers_never_expire(store: Store) -> None:
    await store.add_runs([asked(await new_job(store)), held(asked(await new_job(store, "other")))])
    assert await store.expire(NOW + 1000 * HOUR, 10, refuse, alone) == []


async def test_a_worker_with_the_name_of_an_executor_does_not_hold_its_runs(store: Store) -> None:
    await store.add_runs([pulled(await new_job(store))])
    (run,) = await claim(store)
    assert (await store.beat(ME, NOW, [run.id])).lost == await store.find_lost(ME, [run.id]) == {run.id}
    assert await store.release(ME, NOW, keep=[]) == await store.release(ME, NOW) == 0
    assert (await look(store, run)).state == "running"
    await store.beat(ME, NOW, [])
    await store.renew(NOW + 5 * HOUR, "default", [Renewal(run.id, 1)])
    assert await store.rescue(NOW + HOUR, NOW + 1, 10, refuse, alone) == []
    assert await store.workers(0) == [], "what the executor holds does not keep the dead worker"


@pytest.mark.parametrize("how", ["failed once", "lost its executor"])
async def test_a_retry_has_the_full_claim_timeout_again(store: Store, how: str) -> None:
    await store.add_runs([pulled(await new_job(store))])
    (run,) = await claim(store, now=NOW + 30 * MINUTE)
    again = NOW + 5 * HOUR
    retry = ended(run, "retrying", started_ms=NOW + 30 * MINUTE, due_ms=again)
    if how == "failed once":
        await store.finish(ME, [retry], alone)
    else:
        await store.rescue(again, again, 10, lambda lost: retry, alone)
    assert await store.expire(again + HOUR - 1, 10, refuse, alone) == []
    seen = await look(store, run)
    assert (seen.state, seen.due_ms, seen.claim_deadline_ms) == ("retrying", again, again + HOUR)
    (second,) = await claim(store, YOU, now=again + MINUTE)
    assert (second.id, second.attempt) == (run.id, 2)
    await store.finish(YOU, [ended(second, "retrying", started_ms=again + MINUTE, due_ms=again)], alone)
    assert await store.expire(again + HOUR, 10, _expired, alone) == [run.id]
    assert (await look(store, run)).attempt == 2
    assert [attempt.attempt for attempt in await store.attempts(run.id)] == [1, 2]


async def test_a_serial_run_does_not_expire_before_its_turn(
    store: Store,
) -> None:
    digest = await new_job(store)
    first, second = (pulled(digest, NOW + n, serial=True) for n in (0, 1))
    await store.add_runs([first, second])
    (claimed,) = await claim(store)
    late = NOW + HOUR - TURN_MS + 1
    assert await store.expire(late, 10, refuse, alone) == []
    assert (await look(store, second)).claim_deadline_ms == late + HOUR
    assert await store.expire(late + 1, 10, refuse, alone) == []
    assert (await look(store, second)).claim_deadline_ms == late + HOUR
    await store.finish(ME, [ended(claimed)], alone)
    assert [run.id for run in await claim(store, now=late + MINUTE)] == [second.id]


@pytest.mark.parametrize("how", ["its last attempt succeeds", "it is cancelled"])
async def test_a_serial_run_behind_a_retry_has_time_when_its_turn_comes(store: Store, how: str) -> None:
    digest = await new_job(store)
    first, second = (pulled(digest, NOW + n, serial=True) for n in (0, 1))
    await store.add_runs([first, second])
    (failed,) = await claim(store)
    again = NOW + 5 * HOUR
    await store.finish(ME, [ended(failed, "retrying", started_ms=NOW, due_ms=again)], alone)
    for late in (NOW + HOUR, again - 1):
        assert await store.expire(late, 10, refuse, alone) == []
    if how == "it is cancelled":
        await store.cancel_run(first.id, again, "cancelled", running=False)
    else:  # between two passes of the rescuer
        (last,) = await claim(store, now=again)
        await store.finish(ME, [ended(last, started_ms=again)], alone)
    assert await store.expire(again + 1, 10, refuse, alone) == [], "nobody could claim it before"
    assert [run.id for run in await claim(store, now=again + MINUTE)] == [second.id]


async def test_an_unclaimed_queue_of_serial_runs_expires_completely(store: Store) -> None:
    digest = await new_job(store)
    queue = [pulled(digest, NOW + n, serial=True) for n in range(3)]
    await store.add_runs(queue)
    assert await store.expire(NOW + HOUR + 1, 10, _expired, alone) == [queue[0].id, queue[1].id]
    assert await store.expire(NOW + HOUR + 2, 10, _expired, alone) == [queue[2].id]


async def test_an_expiry_has_the_consequences_of_a_failure(store: Store) -> None:
    digest = await new_job(store)
    alarm = await new_job(store, "alarm", after_job="digest", after_on="failed")
    run = pulled(digest)
    await store.add_runs([run])

    def disabling(lost: UnfinishedRun) -> Finished:
        return _expired(lost)._replace(disable_after=1)

    await store.expire(NOW + HOUR, 10, disabling, consequences)
    (rung,) = await ticks_of(store, alarm)
    assert (rung.trigger, rung.state, rung.scheduled_ms) == ("chain", "pending", NOW + HOUR)
    stopped = await look_at_job(store, digest)
    assert (stopped.enabled, stopped.disabled_reason) == (False, "failed")


async def test_two_rescuers_never_expire_the_same_run(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]
    digest = await new_job(stores[0])
    await stores[0].add_runs([pulled(digest) for _ in range(50)])
    expired = await asyncio.gather(*(store.expire(NOW + HOUR, 20, _expired, alone) for store in stores * 2))
    ids = [run for batch in expired for run in batch]
    assert len(ids) == len(set(ids)) == 50
    assert (await look_at_job(stores[0], digest)).failures == 50


async def test_a_run_is_never_both_claimed_and_expired(database: Database, clock: FalseClock) -> None:
    clock.ms = NOW + HOUR
    stores = [await database.connect() for _ in range(2)]
    digest = await new_job(stores[0])
    await stores[0].add_runs([pulled(digest) for _ in range(40)])
    claimed, expired = await asyncio.gather(
        claim(stores[0], now=NOW + HOUR, limit=30), stores[1].expire(NOW + HOUR, 30, _expired, alone)
    )
    assert not {run.id for run in claimed} & set(expired)
    assert min(len(claimed), len(expired)) >= 10, "each has a limit of 30"
    for run in claimed:
        assert (await look(stores[0], run)).state == "running"


async def test_a_planned_tick_for_workers_never_expires(store: Store) -> None:
    await store.create_jobs([job()])
    await store.plan(NOW, 10, fire)
    assert await store.expire(NOW + 1000 * HOUR, 10, refuse, alone) == []
