"""Workers and executors, as observers read them."""

from __future__ import annotations

from tests.support.factories import NOW, SECOND, FalseClock, asked, given_job, held
from wakeful.store.port import Store
from wakeful.store.stats import HolderRow


async def test_workers_are_listed_with_their_heartbeat_newest_first(store: Store, clock: FalseClock) -> None:
    await store.beat("old", NOW, [])
    clock.ms = NOW + SECOND
    await store.beat("new", NOW + SECOND, [])
    await store.beat("old", NOW + 2 * SECOND, [])
    first, second = await store.worker_rows(10)
    assert (first.name, first.started_ms, first.beat_ms) == ("new", NOW + SECOND, NOW + SECOND)
    assert (second.name, second.started_ms, second.beat_ms) == ("old", NOW, NOW + 2 * SECOND)
    assert [row.name for row in await store.worker_rows(1)] == ["new"]


async def test_holders_are_counted_by_name_and_kind(store: Store) -> None:
    job = await given_job(store)
    runs = [held(asked(job), "w1") for _ in range(2)] + [held(asked(job), "w2")]
    await store.add_runs([*runs, asked(job)])
    assert await store.holders("default", 10) == [
        HolderRow("w1", False, 2, None),
        HolderRow("w2", False, 1, None),
    ]
    assert await store.holders(None, 1) == [HolderRow("w1", False, 2, None)]
    assert await store.holders("other", 10) == []
