"""Digests in every store: who has one, and that one of several replicas writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tests.support.databases import Database
from tests.support.factories import MINUTE, NOW, asked, asleep, given_alerts, given_job, ticks_of
from wakeful.run.digests import DigestOwner
from wakeful.run.inbox import InboxRow
from wakeful.run.run import NewRun
from wakeful.store.accounts import WorkspaceRow
from wakeful.store.internal_jobs import AGENT_ALERTS, WORKSPACE_ALERTS
from wakeful.store.port import Store
from wakeful.values.ids import new_id

DIGEST = '{"url":"https://a.example","digest":"09:00"}'


def _webhook(owner: DigestOwner) -> str | None:
    return owner.recipients.webhook and owner.recipients.webhook.id


async def test_owners_are_workspaces_and_agents_with_the_setting(store: Store) -> None:
    await given_alerts(store, workspace=DIGEST)
    sender = await given_job(store, WORKSPACE_ALERTS)
    (owner,) = await store.digest_owners()
    assert (owner.workspace, owner.agent, owner.tz, owner.since_ms) == ("default", "", None, NOW)
    assert (_webhook(owner), owner.recipients.channel) == (sender.id, None)
    own = await given_job(store, AGENT_ALERTS)
    await given_alerts(store, agent=DIGEST)
    await store.put_workspace(WorkspaceRow("default", "Asia/Tokyo", "", NOW, NOW, alerts='{"url":"digest"}'))
    (owner,) = await store.digest_owners()
    assert (owner.agent, owner.tz, _webhook(owner)) == ("default", "Asia/Tokyo", own.id)


async def test_one_replica_writes_each_digest(database: Database) -> None:
    stores = [await database.connect() for _ in range(2)]
    store = stores[0]
    await given_alerts(store, workspace=DIGEST)
    sender = await given_job(store, WORKSPACE_ALERTS)
    for name in ("a", "b"):
        waits = {"enabled": False, "disabled_reason": "approval", "updated_ms": NOW}
        await store.create_jobs([asleep(name, id=new_id(NOW), **waits)])
    seen: list[tuple[int, list[str]]] = []

    def write(counts: Mapping[str, int], items: Sequence[InboxRow]) -> Sequence[NewRun]:
        seen.append((counts["approval"], sorted(str(item.job_name) for item in items)))
        return [asked(sender, trigger="alert")]

    (owner,) = await store.digest_owners()
    for day in range(2):
        due_ms = NOW + day * MINUTE
        sent = await asyncio.gather(
            *(each.send_digest(due_ms + 5, owner, due_ms, write) for each in stores * 4)
        )
        assert sum(sent) == 1
        assert len(await ticks_of(store, sender)) == day + 1
    (owner,) = await store.digest_owners()
    assert owner.since_ms == NOW + MINUTE + 5
    assert set(map(str, seen)) == {"(2, ['a', 'b'])"}
