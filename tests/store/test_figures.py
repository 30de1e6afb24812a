"""Figures of the dashboard: what needs attention, workers, start delays and upcoming runs."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    alone,
    asleep,
    ended,
    given_held,
    held,
    job,
    jobless,
    look_at_job,
    over,
)
from wakeful.job.start_rules import Requirement
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunFilter
from wakeful.store.stats import LiveWorker, Troubles, UpcomingRun
from wakeful.values.ids import first_id, new_id

LIMIT = 100


async def test_an_empty_workspace_has_no_troubles(store: Store) -> None:
    assert await store.troubles("nobody", None, 1, NOW, LIMIT) == Troubles(0, 0, 0, 0, 0, 0)
    assert await store.blocked_runs("nobody", None, NOW, [Requirement("function:x")], LIMIT) == {}
    assert await store.live_workers(0) == []
    assert await store.start_delays("nobody", None, 0, LIMIT) == []
    assert await store.upcoming_runs("nobody", None, NOW + DAY, LIMIT, LIMIT) == []


async def test_a_failed_run_is_a_dead_letter_and_its_job_fails(store: Store) -> None:
    digest, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed", error="no")], alone)
    assert (await look_at_job(store, digest)).failures == 1
    found = await store.troubles("default", None, 1, NOW, LIMIT)
    assert (found.dead_letters, found.failing_jobs) == (1, 1)
    assert found == await store.troubles("default", digest.agent, 1, NOW, LIMIT)
    assert (await store.troubles("default", "other", 1, NOW, LIMIT)) == Troubles(0, 0, 0, 0, 0, 0)
    await store.discard_runs("default", [run.id])
    await store.change_job(digest.id, lambda old: JobChange(old._replace(enabled=False)))
    assert (await store.troubles("default", None, 1, NOW, LIMIT))[:2] == (0, 0), "it is paused"


async def test_dead_letters_are_counted_up_to_the_limit(store: Store) -> None:
    runs = [held(jobless()) for _ in range(5)]
    await store.add_runs(runs)
    await store.finish("w1", [ended(run, "failed", error="no") for run in runs], alone)
    assert (await store.troubles("default", None, 1, NOW, 3)).dead_letters == 3


async def test_unclaimed_runs_are_those_that_wait_long_enough(store: Store) -> None:
    def waiting(due_ms: int, agent: str = "default") -> NewRun:
        return jobless(due_ms=due_ms, claim_timeout_ms=MINUTE, agent=agent)

    await store.add_runs([waiting(NOW), waiting(NOW - DAY), waiting(NOW - DAY, "other"), jobless()])
    assert (await store.troubles("default", None, 1, NOW - MINUTE, LIMIT)).unclaimed_runs == 2
    assert (await store.troubles("default", "other", 1, NOW - MINUTE, LIMIT)).unclaimed_runs == 1
    assert (await store.troubles("acme", None, 1, NOW - MINUTE, LIMIT)).unclaimed_runs == 0


async def test_blocked_runs_are_due_and_require_what_is_missing(store: Store) -> None:
    missing = [Requirement("function:gone"), Requirement("agent:default/x", 2)]
    await store.add_runs(
        [
            jobless(requires="function:gone"),
            jobless(requires="function:gone", agent="other"),
            jobless(requires="agent:default/x", requires_version=2),
            jobless(requires="function:gone", due_ms=NOW + DAY),
            jobless(requires="function:here"),
            jobless(requires="function:gone", workspace="acme"),
        ]
    )
    assert await store.blocked_runs("default", None, NOW, missing, LIMIT) == dict(
        zip(missing, (2, 1), strict=True)
    )
    assert await store.blocked_runs("default", "other", NOW, missing, LIMIT) == {missing[0]: 1}
    assert sum((await store.blocked_runs("default", None, NOW, missing, 2)).values()) == 2
    assert await store.blocked_runs("default", None, NOW, [Requirement("agent:default/x", 3)], LIMIT) == {}


async def test_live_workers_have_a_recent_heartbeat(store: Store) -> None:
    await store.beat("w2", NOW, [])
    await store.beat("w1", NOW, [])
    await store.beat("old", NOW - DAY, [])
    found = await store.live_workers(NOW - MINUTE)
    assert found == [LiveWorker("w1", NOW, found[0].started_ms), LiveWorker("w2", NOW, found[1].started_ms)]


async def test_start_delays_are_those_of_first_attempts(store: Store) -> None:
    def started(late_ms: int, **fields: object) -> NewRun:
        run = jobless(id=first_id(NOW + late_ms), fire_ms=NOW, **fields)
        return held(run, since=NOW + late_ms)

    await store.add_runs(
        [
            started(5),
            started(70),
            started(900, attempt=2),
            started(11, agent="other"),
            over(jobless(id=first_id(NOW + 1)), "skipped"),
            started(3, workspace="acme"),
        ]
    )
    assert sorted(await store.start_delays("default", None, NOW, LIMIT)) == [5, 11, 70]
    assert await store.start_delays("default", "other", NOW, LIMIT) == [11]
    assert await store.start_delays("default", None, NOW + 50, LIMIT) == [70]


async def test_upcoming_runs_are_the_next_ticks_soonest_first(store: Store) -> None:
    def at(name: str, ms: int, **fields: object) -> JobRow:
        return job(name, next_ms=ms, wake_ms=ms, **fields)

    jobs = [
        at("second", NOW + 2 * SECOND),
        at("first", NOW + SECOND, agent="other"),
        at("far", NOW + DAY),
        at("theirs", NOW + SECOND, workspace="acme"),
        asleep("paused", enabled=False, next_ms=None, wake_ms=NOW + SECOND, pause_until_ms=NOW + SECOND),
    ]
    await store.create_jobs(jobs)
    found = await store.upcoming_runs("default", None, NOW + MINUTE, LIMIT, LIMIT)
    assert [(run.agent, run.job, run.at_ms) for run in found] == [
        ("other", "first", NOW + SECOND),
        ("default", "second", NOW + 2 * SECOND),
    ]
    assert isinstance(found[0], UpcomingRun)
    assert len(await store.upcoming_runs("default", "other", NOW + MINUTE, LIMIT, LIMIT)) == 1
    assert len(await store.upcoming_runs("default", None, NOW + MINUTE, LIMIT, 1)) == 1


@pytest.mark.parametrize(
    "states", [("failed",), ("skipped", "missed"), ("cancelled",), ("failed", "succeeded")]
)
async def test_runs_of_rare_states_are_listed_newest_first(store: Store, states: tuple[str, ...]) -> None:
    all_states = ("succeeded", "failed", "skipped", "missed", "cancelled", "succeeded", "failed", "missed")
    runs = [
        over(jobless(id=new_id(NOW + n), reason=None if state == "succeeded" else "because"), state)
        for n, state in enumerate(all_states)
    ]
    await store.add_runs([*runs, jobless(), over(jobless(workspace="acme", reason="no"), states[0])])
    wanted = [run.id for run in reversed(runs) if run.state in states]
    found = await store.runs(RunFilter("default", states=states))
    assert [run.id for run in found] == wanted
    page = await store.runs(RunFilter("default", states=states, before=wanted[0]))
    assert [run.id for run in page] == wanted[1:]
