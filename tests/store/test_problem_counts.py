"""What `wakeful doctor` counts: expired leases, dead letters by reason, deliveries by channel."""

from __future__ import annotations

import asyncpg

from tests.support.databases import Database, PostgresDatabase
from tests.support.factories import NOW, SECOND, alone, asked, ended, given_held, given_job, held
from wakeful.store.deliveries import DeliveryResult
from wakeful.store.port import Store
from wakeful.store.rows import RunView
from wakeful.values.process_share import current_share


async def _delivery(store: Store, name: str, channel: str) -> RunView:
    """Finish a run whose output is to be delivered to this channel."""
    _, run = await given_held(store, name=name)
    await store.finish("w1", [ended(run, output="good morning", deliver=(channel, None))], alone)
    return run


async def test_a_lease_expires_when_its_worker_sends_no_heartbeat(store: Store):
    await store.beat("w1", NOW, [])
    await given_held(store, "w1")
    assert await store.expired_leases(None, NOW) == 0
    assert await store.expired_leases(None, NOW + 1) == 1
    assert await store.expired_leases("default", NOW + 1) == 1
    assert await store.expired_leases("other", NOW + 1) == 0
    await store.beat("w1", NOW + SECOND, [])
    assert await store.expired_leases(None, NOW + 1) == 0


async def test_a_finished_run_has_no_lease(store: Store):
    _, run = await given_held(store, "w1")
    await store.finish("w1", [ended(run)], alone)
    assert await store.expired_leases(None, NOW + SECOND) == 0


async def test_dead_letters_are_counted_by_reason(store: Store):
    of = await given_job(store)
    runs = [held(asked(of, NOW + n, serial=False)) for n in range(4)]
    await store.add_runs(runs)
    reasons = ["expired", "lost", "expired", None]
    await store.finish(
        "w1", [ended(run, "failed", reason=reason) for run, reason in zip(runs, reasons, strict=True)], alone
    )
    counted = [("expired", 2), ("", 1), ("lost", 1)]
    assert await store.dead_letters_by_reason(None, 100) == counted
    assert await store.dead_letters_by_reason("default", 100) == counted
    assert await store.dead_letters_by_reason("other", 100) == []
    assert sum(number for _, number in await store.dead_letters_by_reason("default", 3)) == 3


async def test_recent_deliveries_are_counted_by_channel_and_state(store: Store):
    runs = [await _delivery(store, f"job-{n}", "ops") for n in range(3)]
    await _delivery(store, "other", "team")
    await store.take_deliveries(NOW, "w1", NOW + SECOND, 10)
    failed = [DeliveryResult(run.id, 1, "failed") for run in runs[:2]]
    results = [*failed, DeliveryResult(runs[2].id, 1, "delivered")]
    await store.finish_deliveries(NOW, "w1", results)
    counted = [("ops", "delivered", 1), ("ops", "failed", 2), ("team", "sending", 1)]
    assert await store.delivery_counts(None, NOW, 100) == counted
    assert await store.delivery_counts("default", NOW, 100) == counted
    assert await store.delivery_counts("other", NOW, 100) == []
    assert await store.delivery_counts(None, 2**47, 100) == []


async def test_the_size_of_the_database_is_known(store: Store):
    assert await store.database_size() > 10_000


async def test_the_connections_of_others_are_counted_and_our_own_are_not(store: Store, database: Database):
    use = await store.connection_use()
    if store.kind == "sqlite":
        assert use is None
        return
    assert use is not None
    assert use.per_process == 11
    assert 0 <= use.others < use.limit
    assert isinstance(database, PostgresDatabase)
    connection = await asyncpg.connect(database.url)
    try:
        ours = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = $1 AND datname = current_database()",
            current_share().connection_name,
        )
    finally:
        await connection.close()
    assert ours >= 2, "one for notifications, and those of the pool"


async def test_the_newest_schema_is_that_of_the_database(store: Store, database: Database):
    assert await store.schema() == store.newest_schema
