"""Statistics: workspace counts, recent runs, backlog and live workers."""

from __future__ import annotations

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    alone,
    asked,
    asleep,
    ended,
    given_held,
    given_job,
    held,
    job,
    jobless,
    over,
    tick,
)
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.stats import Backlog, DueRuns, RecentRun, WorkspaceStats
from wakeful.values.ids import first_id


async def test_an_empty_workspace_has_empty_statistics(store: Store) -> None:
    assert await store.workspace_stats("nobody") == WorkspaceStats(0, 0, {}, None)
    assert await store.recent_runs("nobody", 0, 10) == []
    assert await store.backlog(NOW, 0, 10) == Backlog({}, DueRuns(0, None), [], 0, None, 0, 0, 0)
    assert await store.workers(0) == []


async def test_jobs_and_live_runs_are_counted_by_workspace(store: Store) -> None:
    digest = await given_job(store, "digest", lambda due: held(tick(due)))
    paused = asleep("paused", enabled=False, next_ms=None, wake_ms=None)
    gone = asleep("gone")
    await store.create_jobs([paused, gone, job("theirs", workspace="acme", next_ms=NOW + 5, wake_ms=NOW + 5)])
    await store.delete_job(gone.id, NOW, "gone")
    await store.add_runs([asked(digest), asked(digest), asked(digest, state="retrying"), over(asked(digest))])
    await store.add_runs([jobless(workspace="acme")])
    assert await store.workspace_stats("default") == WorkspaceStats(
        1, 1, {"running": 1, "pending": 2, "retrying": 1}, NOW + DAY
    )
    assert await store.workspace_stats("acme") == WorkspaceStats(1, 0, {"pending": 1}, NOW + 5)
    await store.create_jobs([job("ben", agent="ben", next_ms=NOW + 7, wake_ms=NOW + 7)])
    await store.add_runs([jobless(agent="ben"), jobless(agent="carl")])
    assert await store.workspace_stats("default", "ben") == WorkspaceStats(1, 0, {"pending": 1}, NOW + 7)
    assert await store.workspace_stats("default", "nobody") == WorkspaceStats(0, 0, {}, None)


async def test_recent_runs_are_listed_newest_first(store: Store) -> None:
    old = over(jobless(id=first_id(NOW - DAY)))
    runs = [
        held(jobless(id=first_id(NOW + n), fire_ms=NOW + n), since=NOW + 10 * n) for n in (1000, 2000, 3000)
    ]
    theirs = jobless(workspace="acme")
    await store.add_runs([old, *runs, theirs])
    newest = [RecentRun("running", "user", 1, NOW + n, NOW + 10 * n) for n in (3000, 2000, 1000)]
    assert await store.recent_runs("default", NOW, 10) == newest
    assert await store.recent_runs("default", NOW, 2) == newest[:2]
    assert len(await store.recent_runs("default", NOW - 2 * DAY, 10)) == 4
    ben = jobless(agent="ben", id=first_id(NOW + 500), fire_ms=NOW)
    await store.add_runs([ben])
    assert [run.state for run in await store.recent_runs("default", NOW, 1, "ben")] == ["pending"]


async def test_the_backlog_is_counted_by_lane(store: Store) -> None:
    digest, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed")], alone)
    await store.add_runs(
        [
            asked(digest, due_ms=NOW - SECOND, serial=False),
            asked(digest, serial=False),
            asked(digest, lane="main", workspace="acme", serial=False),
            asked(digest, NOW + MINUTE, due_ms=NOW + MINUTE, serial=False),
        ]
    )
    backlog = await store.backlog(NOW, NOW, 10)
    assert backlog.lanes == {"cron": DueRuns(2, NOW - SECOND), "main": DueRuns(1, NOW)}
    assert (backlog.pull, backlog.pull_by_agent) == (DueRuns(0, None), [])
    assert backlog.dead_letters == 1
    await store.discard_runs("default", [run.id])
    assert (await store.backlog(NOW, NOW, 10)).dead_letters == 0


async def test_the_backlog_counts_the_runs_of_executors_by_agent(store: Store) -> None:
    def waiting(agent: str, due_ms: int, workspace: str = "default") -> NewRun:
        return jobless(agent=agent, workspace=workspace, due_ms=due_ms, claim_timeout_ms=MINUTE)

    await store.add_runs(
        [
            waiting("busy", NOW),
            waiting("busy", NOW - SECOND),
            waiting("busy", NOW, "acme"),
            waiting("idle", NOW + MINUTE),
            jobless(agent="busy", due_ms=NOW),
        ]
    )
    backlog = await store.backlog(NOW, NOW, 10)
    assert backlog.pull == DueRuns(3, NOW - SECOND)
    assert backlog.pull_by_agent == [("default", "busy", 2), ("acme", "busy", 1)]
    assert (await store.backlog(NOW, NOW, 1)).pull_by_agent == [("default", "busy", 2)]


async def test_a_run_that_waits_for_its_turn_is_counted_but_is_not_the_oldest(store: Store) -> None:
    digest, running = await given_held(store)
    queued = asked(digest, due_ms=NOW - MINUTE, serial=True)
    await store.add_runs([queued, asked(digest, due_ms=NOW - SECOND, serial=False)])
    assert (await store.backlog(NOW, NOW, 10)).lanes == {"cron": DueRuns(2, NOW - SECOND)}
    await store.finish("w1", [ended(running)], alone)
    assert (await store.backlog(NOW, NOW, 10)).lanes == {"cron": DueRuns(2, NOW - MINUTE)}


async def test_the_backlog_has_the_next_wake_and_the_number_of_workers(store: Store) -> None:
    await store.create_jobs([asleep("later"), job("due", next_ms=NOW - 5, wake_ms=NOW - 5)])
    await store.beat("w1", NOW - MINUTE, [])
    await store.beat("w2", NOW, [])
    backlog = await store.backlog(NOW, NOW - SECOND, 10)
    assert (backlog.next_wake_ms, backlog.workers) == (NOW - 5, 1)


async def test_workers_lists_those_with_a_recent_heartbeat(store: Store) -> None:
    await store.beat("w1", NOW - MINUTE, [])
    await store.beat("w2", NOW, [])
    assert await store.workers(NOW - SECOND) == ["w2"]
    assert await store.workers(NOW - MINUTE) == ["w1", "w2"]
