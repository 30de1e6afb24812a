"""Planning: due jobs are claimed oldest first, and the plans of `decide` are written atomically."""

from __future__ import annotations

from time import process_time

import pytest

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    FalseClock,
    asked,
    asleep,
    fire,
    given_job,
    held,
    job,
    look,
    look_at_job,
    over,
    plan_of,
    start,
    tick,
    ticks_of,
)
from wakeful.run.run import NewRun
from wakeful.store.plans import CatchupState, DueJob, JobPlan
from wakeful.store.port import Store


async def test_a_due_job_gets_its_run_and_its_next_tick(store: Store, clock: FalseClock) -> None:
    digest = job(payload='{"to":"me"}', run_count=7)
    await store.create_jobs([digest])
    clock.ms = NOW + 25

    planned = await store.plan(NOW, 10, fire)

    assert planned.claimed == 1
    (created,) = planned.runs
    run = await look(store, created)
    assert run == run._replace(
        job_id=digest.id,
        workspace="default",
        agent="default",
        job_name="digest",
        scheduled_ms=NOW,
        fire_ms=NOW,
        trigger="schedule",
        state="pending",
        attempt=1,
        worker=None,
        lane="cron",
        due_ms=NOW,
        started_ms=None,
        finished_ms=None,
        idempotency_key=created.idempotency_key,
        dead=False,
        created_ms=NOW + 25,
    )
    assert await look_at_job(store, digest) == digest._replace(
        next_ms=NOW + DAY, wake_ms=NOW + DAY, run_count=8
    )


async def test_decide_gets_every_field_that_planning_needs(store: Store) -> None:
    digest = job(payload='{"to":"me"}', run_count=7, anchor_ms=NOW - 5, next_ms=NOW - 3, wake_ms=NOW - 2)
    await store.create_jobs([digest])
    seen: list[DueJob] = []
    await store.plan(NOW, 10, lambda due: seen.append(due))
    assert seen == [
        DueJob(
            digest.id, "default", "default", "digest", digest.timing or "", digest.policy, digest.work,
            '{"to":"me"}', NOW - 5, NOW - 3, 7,
        )
    ]  # fmt: skip


async def test_decide_gets_the_running_runs_and_waiting_ticks_of_the_job(store: Store) -> None:
    digest, other = job(), job("other")
    await store.create_jobs([digest, other])
    running, retrying = (asked(digest, NOW - n * MINUTE) for n in (9, 8))
    waiting, waiting_too = (tick(digest, NOW - n * MINUTE) for n in (7, 6))
    await store.add_runs(
        [
            over(asked(digest)),
            over(asked(digest), "failed"),
            held(running),
            retrying._replace(state="retrying"),
            waiting,
            waiting_too,
            asked(digest, NOW - 5 * MINUTE),
            asked(digest, NOW - 4 * MINUTE, trigger="backfill", serial=True),
        ]
    )
    facts: dict[str, tuple[set[str], set[str]]] = {}

    def note(due: DueJob) -> None:
        facts[due.name] = set(due.running), set(due.waiting)

    await store.plan(NOW, 10, note)
    assert facts == {
        "digest": ({running.id, retrying.id}, {waiting.id, waiting_too.id}),
        "other": (set(), set()),
    }


async def test_the_catchup_state_is_passed_to_the_next_pass(store: Store) -> None:
    digest = job()
    await store.create_jobs([digest])
    states = [CatchupState(3, NOW + 5, NOW + 60_000), CatchupState(4), CatchupState()]
    seen: list[tuple[int, int | None, int | None]] = []

    def leave(due: DueJob) -> JobPlan:
        seen.append((due.missed, due.spread_from_ms, due.spread_until_ms))
        stays = JobPlan(due.id, NOW, NOW, due.run_count, True, None, ())
        return stays._replace(catchup=states[len(seen) - 1]) if len(seen) < 4 else stays

    for _ in range(5):
        await store.plan(NOW, 10, leave)
    assert seen == [CatchupState(), *states, CatchupState()]
    assert await look_at_job(store, digest) == digest


async def test_a_run_keeps_how_many_ticks_were_missed_before_it(store: Store) -> None:
    digest, other = job(), job("other")
    await store.create_jobs([digest, other])

    def count(due: DueJob) -> JobPlan:
        planned = fire(due)
        if due.id == other.id:
            return planned
        return planned._replace(catchup=CatchupState(), missed=((planned.runs[0].id, 59),))

    planned = await store.plan(NOW, 10, count)
    missed = {run.job_id: (await look(store, run)).missed for run in planned.runs}
    assert missed == {digest.id: 59, other.id: 0}


async def test_a_plan_ends_an_expired_pause(store: Store, clock: FalseClock) -> None:
    digest = job(
        enabled=False, disabled_reason="paused", next_ms=None, wake_ms=NOW, pause_note="why",
        pause_until_ms=NOW, failures=2,
    )  # fmt: skip
    await store.create_jobs([digest])
    assert await look_at_job(store, digest) == digest
    assert await store.next_wake_ms() == NOW
    clock.ms = NOW + 5
    seen: list[DueJob] = []

    def resume(due: DueJob) -> JobPlan:
        seen.append(due)
        return JobPlan(due.id, NOW + DAY, NOW + DAY, due.run_count, True, None, (), resumed=True)

    await store.plan(NOW, 10, resume)
    (due,) = seen
    assert (due.next_ms, due.pause_until_ms, bool(due.agent_active)) == (NOW, NOW, True)
    assert await look_at_job(store, digest) == digest._replace(
        enabled=True, disabled_reason=None, next_ms=NOW + DAY, wake_ms=NOW + DAY, pause_note=None,
        pause_until_ms=None, failures=0, version=digest.version + 1, updated_ms=NOW + 5,
    )  # fmt: skip
    assert (await store.plan(NOW, 10, resume)).claimed == 0


async def test_a_job_can_stay_disabled_after_its_pause_ends(store: Store) -> None:
    digest = job(enabled=False, disabled_reason="paused", next_ms=None, wake_ms=NOW, pause_until_ms=NOW)
    await store.create_jobs([digest])

    def end(due: DueJob) -> JobPlan:
        return JobPlan(due.id, None, None, due.run_count, False, "agent_inactive", (), resumed=True)

    await store.plan(NOW, 10, end)
    after = await look_at_job(store, digest)
    assert (after.enabled, after.disabled_reason, after.wake_ms) == (False, "agent_inactive", None)
    assert after.pause_until_ms is None


async def test_jobs_are_claimed_oldest_first_and_no_more_than_the_limit(store: Store) -> None:
    jobs = [job(f"job-{n}", wake_ms=NOW - n * MINUTE) for n in (2, 5, 1, 4, 3)]
    await store.create_jobs(jobs)
    seen: list[str] = []

    def note(due: DueJob) -> JobPlan:
        seen.append(due.name)
        return fire(due)

    assert (await store.plan(NOW, 3, note)).claimed == 3
    assert seen == ["job-5", "job-4", "job-3"]
    assert (await store.plan(NOW, 3, note)).claimed == 2
    assert (await store.plan(NOW, 3, note)).claimed == 0
    assert seen == ["job-5", "job-4", "job-3", "job-2", "job-1"]


async def test_a_job_is_due_at_its_wake_time_and_not_before(store: Store) -> None:
    await store.create_jobs([job()])
    assert (await store.plan(NOW - 1, 10, fire)).claimed == 0
    assert (await store.plan(NOW, 10, fire)).claimed == 1


async def test_a_job_without_a_wake_time_is_never_claimed(store: Store) -> None:
    await store.create_jobs(
        [
            job("paused", enabled=False, next_ms=None, wake_ms=None),
            job("chained", timing=None, after_job="paused", after_on="succeeded", next_ms=None, wake_ms=None),
        ]
    )
    assert (await store.plan(NOW + 100 * DAY, 10, fire)).claimed == 0


async def test_a_job_without_a_plan_is_unchanged(store: Store) -> None:
    digest = job()
    await store.create_jobs([digest])
    planned = await store.plan(NOW, 10, lambda due: None)
    assert (planned.claimed, planned.runs) == (1, [])
    assert await look_at_job(store, digest) == digest


async def test_an_exception_in_decide_leaves_everything_unchanged(store: Store) -> None:
    jobs = [job("one", wake_ms=NOW - 1), job("two")]
    await store.create_jobs(jobs)

    def decide(due: DueJob) -> JobPlan:
        if due.name == "two":
            raise ValueError("broken")
        return fire(due)

    with pytest.raises(ValueError, match="broken"):
        await store.plan(NOW, 10, decide)
    assert await look_at_job(store, jobs[0]) == jobs[0]
    assert await ticks_of(store, jobs[0]) == []
    assert (await store.plan(NOW, 10, fire)).claimed == 2


async def test_several_ticks_of_a_job_are_created_in_one_pass_and_in_order(store: Store) -> None:
    digest = job(next_ms=NOW - 2 * MINUTE, wake_ms=NOW - 2 * MINUTE)
    await store.create_jobs([digest])

    def decide(due: DueJob) -> JobPlan:
        return plan_of(due, *[tick(due, due.next_ms + n * MINUTE) for n in range(3)])

    created = (await store.plan(NOW, 10, decide)).runs
    assert [run.scheduled_ms for run in created] == [NOW - 2 * MINUTE, NOW - MINUTE, NOW]
    assert [run.id for run in await ticks_of(store, digest)] == [run.id for run in created]


@pytest.mark.parametrize("state", ["running", "pending", "skipped", "missed"])
async def test_a_planned_run_keeps_every_column(store: Store, state: str) -> None:
    digest = job()
    await store.create_jobs([digest])
    whole = tick(digest)._replace(
        state=state,
        fire_ms=NOW + 5,
        triggered_by="key-1",
        reason="downtime",
        covers=59,
        until_ms=NOW + 7,
        attempt=3,
        worker="w1",
        lane="main",
        due_ms=NOW + 11,
        started_ms=NOW + 13,
        finished_ms=NOW + 17,
        replay_of=digest.id,
        payload='{"n":1}',
        claim_timeout_ms=19,
    )
    await store.plan(NOW, 10, lambda due: plan_of(due, whole))
    view = await look(store, whole)
    assert (view.is_pull, view.claim_deadline_ms) == (True, NOW + 30)
    for field in NewRun._fields:
        if field not in ("serial", "claim_timeout_ms", "instance_id", "details"):
            assert getattr(view, field) == getattr(whole, field), field


async def test_a_run_that_can_start_immediately_is_created_running(store: Store) -> None:
    await store.create_jobs([job()])
    (created,) = (await store.plan(NOW, 10, start("w1"))).runs
    run = await look(store, created)
    assert (run.state, run.worker, run.started_ms, run.due_ms) == ("running", "w1", NOW, None)
    assert await store.take(NOW + DAY, "w2", {"cron": 10}) == []


async def test_a_skipped_or_missed_tick_is_created_finished(store: Store) -> None:
    digest = job()
    await store.create_jobs([digest])
    skipped = over(tick(digest), "skipped")._replace(reason="overlap", attempt=0)
    missed = over(tick(digest, NOW - DAY), "missed")._replace(
        reason="downtime", covers=59, until_ms=NOW - MINUTE, attempt=0
    )
    await store.plan(NOW, 10, lambda due: plan_of(due, missed, skipped))
    seen = await look(store, skipped)
    assert (seen.state, seen.reason, seen.finished_ms, seen.dead) == ("skipped", "overlap", NOW, False)
    seen = await look(store, missed)
    assert (seen.state, seen.covers, seen.until_ms) == ("missed", 59, NOW - MINUTE)


async def test_a_plan_can_disable_its_job(store: Store) -> None:
    digest = job()
    await store.create_jobs([digest])
    await store.plan(
        NOW,
        10,
        lambda due: plan_of(
            due, tick(due), next_ms=None, wake_ms=None, enabled=False, disabled_reason="max_runs"
        ),
    )
    seen = await look_at_job(store, digest)
    assert (seen.enabled, seen.disabled_reason, seen.next_ms, seen.wake_ms) == (False, "max_runs", None, None)
    assert seen.run_count == 1


async def test_a_plan_cancels_the_live_runs_it_replaces(store: Store, clock: FalseClock) -> None:
    digest = await given_job(store)
    running, waiting, finished = held(asked(digest)), asked(digest), over(asked(digest))
    await store.add_runs([running, waiting, finished])
    clock.ms = NOW + DAY + 5
    reasons = ((running.id, "replaced"), (waiting.id, "superseded"), (finished.id, "replaced"))
    await store.plan(NOW + DAY, 10, lambda due: plan_of(due, tick(due, due.next_ms), cancelled=reasons))
    for run, reason in ((running, "replaced"), (waiting, "superseded")):
        seen = await look(store, run)
        assert (seen.state, seen.reason, seen.finished_ms, seen.due_ms) == (
            "cancelled", reason, NOW + DAY + 5, None,
        )  # fmt: skip
        assert not seen.dead
    assert (await look(store, finished)).state == "succeeded"


async def test_next_wake_is_the_earliest_of_all_jobs(store: Store) -> None:
    assert await store.next_wake_ms() is None
    await store.create_jobs(
        [asleep(), job("soon", wake_ms=NOW + 5), job("paused", next_ms=None, wake_ms=None)]
    )
    assert await store.next_wake_ms() == NOW + 5
    await store.plan(NOW + 5, 10, fire)
    assert await store.next_wake_ms() == NOW + DAY


async def test_many_due_jobs_are_planned_in_batches_and_none_is_left(store: Store) -> None:
    jobs = [job(f"job-{n}") for n in range(2_500)]
    await store.create_jobs(jobs)
    created: list[NewRun] = []
    while (planned := await store.plan(NOW, 1_000, start("w1"))).claimed:
        created += planned.runs
    assert sorted(run.job_id or "" for run in created) == sorted(row.id for row in jobs)
    assert await store.next_wake_ms() == NOW + DAY


async def test_thousands_of_runs_that_wait_for_one_job_do_not_hold_up_a_pass(store: Store) -> None:
    digest = job(payload=f'"{"x" * 60_000}"')
    await store.create_jobs([digest])
    count = 15_000
    waiting = [tick(digest, NOW - number) for number in range(count)]
    await store.plan(NOW, 10, lambda due: plan_of(due, *waiting, next_ms=NOW, wake_ms=NOW))
    seen: list[DueJob] = []
    began = process_time()
    await store.plan(NOW, 10, seen.append)
    assert process_time() - began < 1  # each run read with the payload, or each list copied: 3 to 10 s
    assert [len(due.waiting) for due in seen] == [count]
