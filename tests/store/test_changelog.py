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
from wakeful.ids import first_id
from wakeful.store.port import Store
from wakeful.store.stats import Backlog, RecentRun, WorkspaceStats


async def test_an_empty_workspace_has_empty_statistics(store: Store) -> None:
    assert await store.workspace_stats("nobody") == WorkspaceStats(0, 0, {}, None)
    assert await store.recent_runs("nobody", 0, 10) == []
    assert await store.backlog(NOW) == Backlog(0, {})
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


async def test_the_backlog_is_counted_by_lane(store: Store) -> None:
    digest, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed")], alone)
    await store.add_runs(
        [
            asked(digest),
            asked(digest, lane="main", workspace="acme"),
            asked(digest, lane="main", claim_timeout_ms=MINUTE),
            asked(digest, NOW + MINUTE, due_ms=NOW + MINUTE),
        ]
    )
    assert await store.backlog(NOW) == Backlog(1, {("cron", False): 1, ("main", False): 1, ("main", True): 1})
    await store.discard_runs("default", [run.id])
    assert (await store.backlog(NOW)).dead_letters == 0


async def test_workers_lists_those_with_a_recent_heartbeat(store: Store) -> None:
    await store.beat("w1", NOW - MINUTE, [])
    await store.beat("w2", NOW, [])
    assert await store.workers(NOW - SECOND) == ["w2"]
    assert await store.workers(NOW - MINUTE) == ["w1", "w2"]
