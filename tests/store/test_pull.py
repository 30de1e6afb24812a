"""Pull runs: an executor outside claims them, holds them as a worker does, or they expire unclaimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.store.databases import Database
from tests.store.listening import Ears
from tests.store.making import (
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    asleep,
    ended,
    fire,
    following,
    held,
    job,
    jobless,
    look,
    look_at_job,
    plan_of,
    tick,
    ticks_of,
)
from wakeful.store.port import PULL, TURN_MS, UNCLAIMED, Store, pull_lane
from wakeful.store.rows import (
    AttemptView,
    DueJob,
    Finished,
    JobChange,
    JobPlan,
    JobRow,
    LostRun,
    Move,
    RunRow,
    TakenRun,
)

HOUR = 60 * MINUTE
LANE = pull_lane("cron")
ME, YOU = PULL + "me", PULL + "you"


async def _job(store: Store, name: str = "digest", **fields: object) -> JobRow:
    row = asleep(name, **fields)
    await store.create_jobs([row])
    return row


def _pulled(of: JobRow, due: int = NOW, wait: int = HOUR, **fields: object) -> RunRow:
    """A run that waits to be claimed, for an hour, and for no other."""
    return asked(of, due, **{"serial": False, "lane": LANE, "until_ms": due + wait, **fields})


async def _claim(
    store: Store, worker: str = ME, now: int = NOW, limit: int = 10, **only: object
) -> list[TakenRun]:
    agents, lanes = only.get("agents"), only.get("lanes")
    return await store.claim(now, worker, str(only.get("workspace", "default")), agents, lanes, limit)  # type: ignore[arg-type]


def _expired(lost: LostRun) -> Finished:
    return Finished(
        lost.id, lost.job_id, lost.attempt, "failed", NOW, NOW + HOUR, error="nobody came", reason="expired"
    )


def _nobody(lost: LostRun) -> Finished:
    raise AssertionError(f"nothing has expired, but {lost} has")


def _retry(lost: LostRun) -> Finished:
    return Finished(lost.id, lost.job_id, lost.attempt, "retrying", lost.started_ms or 0, NOW, NOW + 2 * HOUR)


# --- from one lane to another ---------------------------------------------------------------------------


def _to(lane: str, claim_ms: int | None) -> Callable[[JobRow], JobChange]:
    return lambda row: JobChange(row._replace(updated_ms=NOW), move=Move(lane, claim_ms))


async def test_runs_that_wait_go_with_their_job_to_where_they_are_claimed(
    store: Store, clock: FalseClock, ears: Ears
) -> None:
    digest, other = await _job(store), await _job(store, "other")
    due, later, running = asked(digest, NOW - MINUTE), asked(digest, NOW + HOUR), held(asked(digest))
    theirs = asked(other)
    await store.add_runs([due, later, running, theirs])
    await ears.hear("runs")
    assert await store.change_job(digest.id, _to(LANE, 2 * HOUR)) is not None
    await ears.hear("runs")
    assert [run.id for run in await store.take(NOW, "w1", {"cron": 10})] == [theirs.id]
    moved = [await look(store, run) for run in (due, later)]
    assert [(run.state, run.lane, run.until_ms) for run in moved] == [
        ("pending", LANE, NOW + 2 * HOUR),
        ("pending", LANE, NOW + 3 * HOUR),
    ]
    assert (await look(store, running)).lane == "cron"
    await store.finish("w1", [ended(running, "failed")], alone)
    assert await store.next_claim_ms(NOW, "default", None, None) == NOW + HOUR
    assert [run.id for run in await _claim(store)] == [due.id]


async def test_a_run_between_two_attempts_goes_along_and_waits_anew_each_time(store: Store) -> None:
    digest = await _job(store)
    run = held(asked(digest))
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "retrying", due_ms=NOW)], alone)
    await store.change_job(digest.id, _to(LANE, HOUR))
    (claimed,) = await _claim(store, now=NOW + MINUTE)
    assert claimed.attempt == 2
    await store.finish(
        ME, [ended(claimed, "retrying", due_ms=NOW + 2 * MINUTE, started_ms=NOW + MINUTE)], alone
    )
    assert (await look(store, run)).until_ms == NOW + 2 * MINUTE + HOUR


async def test_runs_that_waited_to_be_claimed_are_a_workers_when_their_job_is(store: Store) -> None:
    digest = await _job(store)
    run = _pulled(digest)
    await store.add_runs([run])
    await store.change_job(digest.id, _to("cron", None))
    assert await _claim(store) == []
    assert await store.expire(NOW + 2 * HOUR, 10, _nobody, alone) == []
    assert [(taken.id, taken.lane) for taken in await store.take(NOW, "w1", {"cron": 1})] == [
        (run.id, "cron")
    ]
    assert (await look(store, run)).until_ms is None


# --- claiming -------------------------------------------------------------------------------------------


async def test_a_claimed_run_carries_what_it_takes_to_execute_it_and_is_its_executors(store: Store) -> None:
    digest = await _job(store, payload='{"to":"me"}')
    run = _pulled(digest, NOW - SECOND)
    await store.add_runs([run])
    assert await _claim(store) == [
        TakenRun(
            run.id, digest.id, "default", "default", "digest", NOW - SECOND, NOW - SECOND, "user", 1, LANE,
            run.idempotency_key, digest.policy, digest.work, '{"to":"me"}',
        )
    ]  # fmt: skip
    seen = await look(store, run)
    assert (seen.state, seen.worker, seen.started_ms, seen.due_ms) == ("running", ME, NOW, None)
    assert await _claim(store, YOU) == []


async def test_a_claim_begins_a_lease_that_the_heartbeat_renews(store: Store) -> None:
    run = _pulled(await _job(store))
    await store.add_runs([run])
    await _claim(store)
    late = NOW + 31 * SECOND
    assert await store.beat(ME, NOW + 20 * SECOND, [run.id]) == set()
    assert await store.rescue(late, NOW + SECOND, 10, _nobody, alone) == []
    assert await store.rescue(late, NOW + 21 * SECOND, 10, _retry, alone) == [run.id]
    assert await store.beat(ME, late, [run.id]) == {run.id}
    assert await store.attempts(run.id) == [AttemptView(1, ME, NOW, NOW, None)]


async def test_a_claim_that_gets_nothing_leaves_no_worker_behind(store: Store) -> None:
    """One that had beaten at the claim would be forgotten; one that starts a run later counts from then."""
    assert await _claim(store, now=NOW - HOUR) == []
    run = held(_pulled(await _job(store)), ME, NOW)
    await store.add_runs([run])
    assert await store.rescue(NOW + SECOND, NOW - MINUTE, 10, _nobody, alone) == []


async def test_who_holds_a_claimed_run_completes_it_and_nobody_else_does(store: Store) -> None:
    digest = await _job(store)
    await store.add_runs([_pulled(digest)])
    (run,) = await _claim(store)
    assert await store.finish(YOU, [ended(run)], alone) == set()
    assert await store.finish(ME, [ended(run, output="done", usage='{"tokens":3}')], alone) == {run.id}
    seen = await look(store, run)
    assert (seen.state, seen.worker, seen.output, seen.usage) == ("succeeded", ME, "done", '{"tokens":3}')


async def test_runs_are_claimed_longest_due_first_and_no_more_than_were_asked_for(store: Store) -> None:
    digest = await _job(store)
    runs = [_pulled(digest, NOW - n * SECOND) for n in (1, 4, 2, 3)]
    await store.add_runs([*runs, _pulled(digest, NOW + 1)])
    assert [run.id for run in await _claim(store, limit=3)] == [runs[n].id for n in (1, 3, 2)]
    assert [run.id for run in await _claim(store, limit=3, agents=["default"])] == [runs[0].id]


async def test_a_claim_is_narrowed_to_a_workspace_its_agents_and_its_lanes(store: Store) -> None:
    ours = [
        await _job(store, f"job-{agent}-{n}", agent=agent) for n, agent in enumerate(("ada", "bob", "ada"))
    ]
    theirs = await _job(store, workspace="acme", agent="ada")
    main = pull_lane("main")
    runs = [_pulled(ours[0]), _pulled(ours[1]), _pulled(ours[2], lane=main), _pulled(theirs)]
    await store.add_runs(runs)
    assert await _claim(store, agents=["eve"]) == []
    assert await _claim(store, agents=[]) == []
    assert await _claim(store, lanes=["cron"]) == [], "no run of a worker's lane is ever claimed"
    assert [run.id for run in await _claim(store, agents=["ada", "eve"], lanes=[main])] == [runs[2].id]
    assert [run.id for run in await _claim(store, agents=["bob"])] == [runs[1].id]
    assert [run.id for run in await _claim(store)] == [runs[0].id]
    assert [run.id for run in await _claim(store, workspace="acme", lanes=[LANE])] == [runs[3].id]


async def test_runs_of_workers_are_not_claimed(store: Store) -> None:
    await store.add_runs([asked(await _job(store), serial=False), jobless(lane="pull")])
    assert await _claim(store) == []


async def test_a_run_that_wakes_an_agent_without_a_job_can_be_claimed(store: Store) -> None:
    run = jobless(lane=LANE, until_ms=NOW + HOUR)
    await store.add_runs([run])
    (claimed,) = await _claim(store, agents=["default"])
    assert (claimed.id, claimed.work, claimed.payload) == (run.id, "{}", '{"message":"hello"}')


async def test_serial_runs_are_claimed_one_at_a_time_in_the_order_of_their_ticks(store: Store) -> None:
    digest = await _job(store)
    runs = [_pulled(digest, NOW - n * SECOND, serial=True) for n in (1, 3, 2)]
    await store.add_runs(runs)
    for n in (1, 2, 0):
        (claimed,) = await _claim(store)
        assert claimed.id == runs[n].id
        assert await _claim(store, YOU) == []
        await store.finish(ME, [ended(claimed)], alone)


async def test_two_executors_never_get_one_run(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]
    digest = await _job(stores[0])
    await stores[0].add_runs([_pulled(digest, serial=n % 2 == 0) for n in range(60)])
    claims = [
        _claim(store, f"{PULL}{n}", limit=7, agents=["default"] if n % 2 else None)
        for n, store in enumerate(stores * 4)
    ]
    got = [run.id for claimed in await asyncio.gather(*claims) for run in claimed]
    assert len(got) == len(set(got))
    assert len(got) > 1, "all but the serial ones may be had at once"
    assert {(await look(stores[0], run)).state for run in got} == {"running"}


async def test_who_waits_for_a_run_to_claim_hears_of_one_that_is_planned(store: Store, ears: Ears) -> None:
    def wait(due: DueJob) -> JobPlan:
        return plan_of(due, tick(due, due.next_ms, lane=LANE, until_ms=due.next_ms + HOUR))

    await store.create_jobs([job()])
    await ears.hear("jobs")
    await store.plan(NOW, 10, wait)
    await ears.hear("runs")


async def test_the_next_claim_is_the_earliest_later_one_that_would_do(store: Store) -> None:
    digest, other = await _job(store), await _job(store, "other", agent="ada")
    await store.add_runs([_pulled(digest), _pulled(digest, NOW + 5), _pulled(other, NOW + 3)])
    assert await store.next_claim_ms(NOW, "default", None, None) == NOW + 3
    assert await store.next_claim_ms(NOW, "default", ["default"], [LANE]) == NOW + 5
    assert await store.next_claim_ms(NOW, "default", None, [pull_lane("main")]) is None
    assert await store.next_claim_ms(NOW, "acme", None, None) is None


# --- expiring -------------------------------------------------------------------------------------------


async def test_a_run_that_nobody_claims_in_time_expires_and_is_a_dead_letter(store: Store) -> None:
    digest = await _job(store)
    run = _pulled(digest)
    await store.add_runs([run])
    assert await store.expire(NOW + HOUR - 1, 10, _nobody, alone) == []
    asked_of: list[LostRun] = []

    def judge(lost: LostRun) -> Finished:
        asked_of.append(lost)
        return _expired(lost)

    assert await store.expire(NOW + HOUR, 10, judge, alone) == [run.id]
    assert asked_of == [LostRun(run.id, digest.id, 1, digest.policy, None, UNCLAIMED)]
    seen = await look(store, run)
    assert (seen.state, seen.reason, seen.error, seen.dead) == ("failed", "expired", "nobody came", True)
    assert (seen.worker, seen.started_ms, seen.due_ms, seen.finished_ms) == (None, None, None, NOW + HOUR)
    assert (await look_at_job(store, digest)).failures == 1
    assert await _claim(store, now=NOW + 2 * HOUR) == []
    assert await store.expire(NOW + 2 * HOUR, 10, _nobody, alone) == []


async def test_each_run_waits_as_long_as_its_own_job_lets_it(store: Store) -> None:
    digest = await _job(store)
    runs = [_pulled(digest, wait=wait) for wait in (5 * HOUR, SECOND, MINUTE)]
    await store.add_runs(runs)
    assert await store.expire(NOW + HOUR, 10, _expired, alone) == [runs[1].id, runs[2].id]


async def test_no_more_expire_at_once_than_asked_for_the_longest_overdue_first(store: Store) -> None:
    digest = await _job(store)
    runs = [_pulled(digest, NOW - n * SECOND) for n in (1, 3, 2)]
    await store.add_runs(runs)
    assert await store.expire(NOW + HOUR, 2, _expired, alone) == [runs[1].id, runs[2].id]
    assert await store.expire(NOW + HOUR, 2, _expired, alone) == [runs[0].id]


async def test_a_claimed_run_does_not_expire(store: Store) -> None:
    await store.add_runs([_pulled(await _job(store))])
    (run,) = await _claim(store)
    assert await store.expire(NOW + 5 * HOUR, 10, _nobody, alone) == []
    assert (await look(store, run)).state == "running"


async def test_workers_runs_never_expire(store: Store) -> None:
    await store.add_runs([asked(await _job(store)), held(asked(await _job(store, "other")))])
    assert await store.expire(NOW + 1000 * HOUR, 10, _nobody, alone) == []


@pytest.mark.parametrize("how", ["failed once", "lost its executor", "was given back"])
async def test_one_that_is_to_be_tried_again_waits_as_long_as_it_could_the_first_time(
    store: Store, how: str
) -> None:
    await store.add_runs([_pulled(await _job(store))])
    (run,) = await _claim(store, now=NOW + 30 * MINUTE)
    again = NOW + 5 * HOUR
    retry = ended(run, "retrying", started_ms=NOW + 30 * MINUTE, due_ms=again)
    if how == "failed once":
        await store.finish(ME, [retry], alone)
    elif how == "lost its executor":
        await store.rescue(again, again, 10, lambda lost: retry, alone)
    else:
        await store.release(ME, again)
    assert await store.expire(again + HOUR - 1, 10, _nobody, alone) == []
    seen = await look(store, run)
    assert (seen.state, seen.due_ms, seen.until_ms) == ("retrying", again, again + HOUR)
    (second,) = await _claim(store, YOU, now=again + MINUTE)
    assert (second.id, second.attempt) == (run.id, 2)
    await store.finish(YOU, [ended(second, "retrying", started_ms=again + MINUTE, due_ms=again)], alone)
    assert await store.expire(again + HOUR, 10, _expired, alone) == [run.id]
    assert (await look(store, run)).attempt == 2
    assert [attempt.attempt for attempt in await store.attempts(run.id)] == [1, 2]


async def test_one_whose_turn_it_is_not_does_not_expire_and_has_time_when_its_turn_comes(
    store: Store,
) -> None:
    digest = await _job(store)
    first, second = (_pulled(digest, NOW + n, serial=True) for n in (0, 1))
    await store.add_runs([first, second])
    (claimed,) = await _claim(store)
    late = NOW + HOUR - TURN_MS + 1
    assert await store.expire(late, 10, _nobody, alone) == []
    assert (await look(store, second)).until_ms == late + HOUR
    assert await store.expire(late + 1, 10, _nobody, alone) == []
    assert (await look(store, second)).until_ms == late + HOUR
    await store.finish(ME, [ended(claimed)], alone)
    assert [run.id for run in await _claim(store, now=late + MINUTE)] == [second.id]


async def test_a_queue_that_nobody_works_on_expires_as_a_whole(store: Store) -> None:
    digest = await _job(store)
    queue = [_pulled(digest, NOW + n, serial=True) for n in range(3)]
    await store.add_runs(queue)
    assert await store.expire(NOW + HOUR + 1, 10, _expired, alone) == [queue[0].id, queue[1].id]
    assert await store.expire(NOW + HOUR + 2, 10, _expired, alone) == [queue[2].id]


async def test_what_follows_a_failure_follows_an_expiry(store: Store) -> None:
    digest = await _job(store)
    alarm = await _job(store, "alarm", after_job="digest", after_on="failed")
    run = _pulled(digest)
    await store.add_runs([run])

    def disabling(lost: LostRun) -> Finished:
        return _expired(lost)._replace(disable_after=1)

    await store.expire(NOW + HOUR, 10, disabling, following)
    (rung,) = await ticks_of(store, alarm)
    assert (rung.trigger, rung.state, rung.scheduled_ms) == ("chain", "pending", NOW + HOUR)
    stopped = await look_at_job(store, digest)
    assert (stopped.enabled, stopped.disabled_reason) == (False, "failed")


async def test_two_rescuers_never_judge_one_expiry(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]
    digest = await _job(stores[0])
    await stores[0].add_runs([_pulled(digest) for _ in range(50)])
    expired = await asyncio.gather(*(store.expire(NOW + HOUR, 20, _expired, alone) for store in stores * 2))
    ids = [run for batch in expired for run in batch]
    assert len(ids) == len(set(ids)) == 50
    assert (await look_at_job(stores[0], digest)).failures == 50


async def test_a_run_that_expires_is_not_claimed_at_the_same_moment(
    database: Database, clock: FalseClock
) -> None:
    clock.ms = NOW + HOUR
    stores = [await database.connect() for _ in range(2)]
    digest = await _job(stores[0])
    await stores[0].add_runs([_pulled(digest) for _ in range(40)])
    claimed, expired = await asyncio.gather(
        _claim(stores[0], now=NOW + HOUR, limit=30), stores[1].expire(NOW + HOUR, 30, _expired, alone)
    )
    assert not {run.id for run in claimed} & set(expired)
    for run in claimed:
        assert (await look(stores[0], run)).state == "running"


async def test_a_due_tick_that_workers_take_has_no_time_to_be_claimed_in(store: Store) -> None:
    await store.create_jobs([job()])
    await store.plan(NOW, 10, fire)
    assert await store.expire(NOW + 1000 * HOUR, 10, _nobody, alone) == []
