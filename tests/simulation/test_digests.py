"""Digests of what waits: one each day by one of the replicas, one after a downtime or a wrong clock."""

from __future__ import annotations

from tests.simulation.stories import simulated
from tests.simulation.world import MONDAY, World
from tests.support.factories import asleep
from wakeful.engine.engine import EngineConfig
from wakeful.store.accounts import WorkspaceRow
from wakeful.store.internal_jobs import WORKSPACE_ALERTS
from wakeful.store.rows import RunFilter
from wakeful.values.duration import DAY, HOUR
from wakeful.values.ids import new_id

#: Days take seconds.
LEISURELY = EngineConfig(
    tick_ms=1_800_000, heartbeat_ms=1_800_000, lease_ms=10_800_000, retention_days=36_500
)
ALERTS = '{"url":"https://a.example","digest":"09:00","digestTz":"Europe/Berlin"}'


@simulated(config=LEISURELY)
async def test_a_digest_is_sent_once_a_day_and_once_after_a_downtime_or_a_wrong_clock(world: World):
    store = world._client
    unreadable = {"id": new_id(MONDAY), "workspace": "acme", "work": "{"}
    sender = asleep(WORKSPACE_ALERTS, id=new_id(MONDAY))
    waits = {"enabled": False, "disabled_reason": "approval"}
    for name in ("acme", "default"):
        await store.put_workspace(WorkspaceRow(name, None, "", MONDAY, MONDAY, alerts=ALERTS))
        await store.create_jobs([asleep("weekly", id=new_id(MONDAY), workspace=name, **waits)])
    await store.create_jobs([asleep(WORKSPACE_ALERTS, **unreadable), sender])

    async def sent() -> list[float]:
        """Return when digests were sent, in hours since the first midnight."""
        runs = await store.runs(RunFilter("default", job_id=sender.id))
        return sorted(round((run.created_ms - MONDAY) / HOUR, 2) for run in runs)

    for _ in range(2):
        await world.start()
    await world.until(MONDAY + 2 * DAY)
    assert await sent() == [8, 32]
    for replica in world.alive:
        replica.crash()
    await world.until(MONDAY + 5 * DAY + 10 * HOUR)
    for _ in range(2):
        await world.start()
    await world.sleep(3600)
    assert await sent() == [8, 32, 130]
    await world.until(MONDAY + 7 * DAY)
    assert await sent() == [8, 32, 130, 152]
    world.jump(5 * DAY)
    await world.sleep(2 * 3600)
    world.jump(-5 * DAY)
    await world.until(MONDAY + 8 * DAY)
    assert await sent() == [8, 32, 130, 152, 170, 176, 288], "one is written at once, and then as before"
