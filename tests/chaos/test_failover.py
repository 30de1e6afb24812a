"""A primary with a synchronous standby is killed, the standby is promoted, and the replicas continue."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

from tests.support.postgres_cluster import Cluster, cluster, wait_for
from tests.support.receiver import Receiver, serving
from tests.support.served_replica import ServedReplica
from tests.support.traffic import Traffic, uncovered
from tests.support.waiting import eventually

EVERY_MS = 1_000
_TICKS = """
    SELECT json_build_array(job_name, floor(extract(epoch FROM scheduled_at) * 1000)::bigint,
        floor(extract(epoch FROM coalesce(until_at, scheduled_at)) * 1000)::bigint, covers)::text
    FROM wakeful.runs WHERE trigger = 'schedule'"""


async def test_nothing_acknowledged_is_lost_when_a_synchronous_standby_is_promoted(tmp_path: Path) -> None:
    with cluster() as primary:
        standby = await asyncio.to_thread(primary.standby)
        try:
            await wait_for(primary, "SELECT state = 'streaming' FROM pg_stat_replication")
            await primary.execute(
                "ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()"
            )
            await wait_for(primary, "SELECT sync_state = 'sync' FROM pg_stat_replication")
            await _fail_over(primary, standby, tmp_path)
        finally:
            standby.remove()


async def _fail_over(primary: Cluster, standby: Cluster, folder: Path) -> None:
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    replicas = [ServedReplica(folder / "one", url)]
    receiver = Receiver()
    try:
        await replicas[0].started()
        replicas.append(await ServedReplica(folder / "two", url).started())
        replicas[1].key = replicas[0].key
        async with serving(receiver):
            traffic = Traffic(replicas)
            for name in ("a", "b"):
                await _tick(replicas[0], f"hook-{name}", {"kind": "webhook", "url": receiver.url})
                await _tick(replicas[0], f"pull-{name}", {"kind": "pull"})
            async with traffic.running():
                await eventually(lambda: len(traffic.created) > 20 and len(traffic.completed) > 3)
                await eventually(lambda: len(receiver.requests) > 3)
                await asyncio.to_thread(primary.kill)
                before = len(traffic.created), len(traffic.completed), len(receiver.requests)
                await standby.query("SELECT pg_promote()")
                for replica in replicas:
                    await eventually(replica.ready)
                await eventually(lambda: len(traffic.created) > before[0] + 20)
                await eventually(lambda: len(traffic.completed) > before[1] + 3)
                await eventually(lambda: len(receiver.requests) > before[2] + 3)
            codes = await asyncio.gather(*(replica.stop() for replica in replicas))
            assert codes == [0, 0], [replica.log for replica in replicas]
    finally:
        for replica in replicas:
            replica.kill()
    await _check(standby, traffic, receiver)


async def _tick(replica: ServedReplica, name: str, target: object) -> None:
    schedule = {"kind": "every", "everyMs": EVERY_MS}
    document = {"name": name, "schedule": schedule, "target": target, "overlapPolicy": "allow"}
    status, said = await replica.request("POST", "/agents/default/jobs", document)
    assert status == 201, said


async def _check(server: Cluster, traffic: Traffic, receiver: Receiver) -> None:
    """Compare the database of the new primary with what was acknowledged, and with what was launched."""
    jobs = set(await server.query("SELECT name FROM wakeful.jobs"))
    assert set(traffic.created) - jobs == set(), "created jobs that are lost"
    done = await server.query("SELECT id::text FROM wakeful.runs WHERE state = 'succeeded' AND output <> ''")
    assert set(traffic.completed) - set(done) == set(), "completions that are lost"
    keys = set(await server.query("SELECT idempotency_key FROM wakeful.runs"))
    launched = Counter(str(request.headers["webhook-id"]) for request in receiver.requests)
    assert set(launched) - keys == set(), "launches without a run"
    ticks = [json.loads(row) for row in await server.query(_TICKS)]
    for name in {row[0] for row in ticks}:
        assert uncovered([tuple(row[1:]) for row in ticks if row[0] == name], EVERY_MS) == [], name
    assert {row[0] for row in ticks} == {"hook-a", "hook-b", "pull-a", "pull-b"}
