"""Subscriptions to MCP events: written and ended together with their jobs and waiting runs."""

from __future__ import annotations

import pytest

from tests.support.factories import DAY, NOW, FalseClock, asleep
from wakeful.errors import ResourceExhausted
from wakeful.run.factory import manual_run
from wakeful.store.accounts import KeyRow
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.rows import JobRow, RunFilter
from wakeful.store.sql.people import SIGN_IN_LASTS_MS, PersonRow
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.store.sql.web_sessions import WebSessionRow
from wakeful.values.ids import new_id


def _subscription(job: JobRow, identity: str = "sub_1", **given: object) -> SubscriptionRow:
    row = SubscriptionRow(
        identity,
        "default",
        "default",
        "key:1",
        "schedule.tick",
        "{}",
        "https://a.example/",
        job.id,
        0,
        NOW,
        NOW,
    )
    return row._replace(**given)  # type: ignore[arg-type]


async def _subscribe(store: Store, row: SubscriptionRow, job: JobRow, **given: object) -> SubscriptionRow:
    return await store.subscribe(row, job, lambda written: [], **given)  # type: ignore[arg-type]


async def test_the_same_subscription_again_keeps_its_job_and_takes_the_new_secret(store: Store) -> None:
    job = asleep("one")._replace(secret=b"old")
    first = await _subscribe(store, _subscription(job), job)
    again = asleep("one")._replace(secret=b"new", updated_ms=NOW + 5)
    later = _subscription(again, created_ms=NOW + 5, refreshed_ms=NOW + 5, expires_ms=NOW + DAY)
    second = await _subscribe(store, later, again)
    assert second == first._replace(refreshed_ms=NOW + 5, expires_ms=NOW + DAY)
    assert await store.subscription("sub_1") == second
    found = await store.job_by_id(job.id)
    assert found is not None
    assert found.secret == b"new"


async def test_the_end_deletes_the_job_and_cancels_what_waits(store: Store, clock: FalseClock) -> None:
    job = asleep("one")
    await _subscribe(store, _subscription(job), job)
    run = manual_run(
        job_id=job.id, workspace="default", agent="default", job_name=job.name, lane="cron", trigger="event",
        now_ms=NOW, serial=True, payload="{}",
    )  # fmt: skip
    await store.add_runs([run])
    before = await store.end_subscription("sub_1", "unsubscribed")
    assert before is not None
    assert before.is_active
    assert await store.end_subscription("sub_1", "gone") is None
    assert await store.job_by_id(job.id) is None
    (view,) = await store.runs(RunFilter("default", None, job.id, limit=5))
    assert (view.state, view.reason) == ("cancelled", "subscription_ended")
    ended = before._replace(ended_ms=clock.now_ms(), reason="unsubscribed")
    shown = ended._replace(last_state="cancelled", last_ms=clock.now_ms())
    assert await store.subscriptions("default", None, "key:1") == [shown]
    assert await store.subscriptions("default", None, "key:2") == []
    # After its end, the same subscription is a new one.
    other = asleep("one")
    assert (await _subscribe(store, _subscription(other), other)).job_id == other.id
    assert await store.prune_subscriptions(NOW + DAY) == 0


async def test_subscriptions_expire_and_none_outlives_its_key(store: Store) -> None:
    key = KeyRow(
        id=new_id(NOW), workspace="default", name="k", role="admin", agent=None, hash=b"h", created_ms=NOW,
        created_by="key:1", expires_ms=NOW + 100, last_used_ms=None, revoked_ms=None,
    )  # fmt: skip
    await store.add_key(key)
    for number, (principal, expires_ms) in enumerate(
        [(f"key:{key.id}", None), (f"key:{key.id}", NOW + 50), ("key:2", NOW + 200), ("key:2", None)]
    ):
        job = asleep(f"job-{number}")
        row = _subscription(job, f"sub_{number}", principal=principal, expires_ms=expires_ms)
        await _subscribe(store, row, job)
    assert await store.expired_subscriptions(NOW + 100, 10) == ["sub_1", "sub_0"]
    assert await store.expired_subscriptions(NOW + 1_000, 10) == ["sub_1", "sub_0", "sub_2"]
    await store.revoke_key(key.id, NOW + 10)
    assert sorted(await store.expired_subscriptions(NOW + 10, 10)) == ["sub_0", "sub_1"]


async def test_no_subscription_of_an_assistant_outlives_the_access_of_its_person(store: Store) -> None:
    ada = PersonRow("ada", "i", "s", "Ada", None, {"default": "admin"}, NOW, NOW)
    session = WebSessionRow(b"1", ada.actor, NOW, NOW, NOW + DAY, None)
    await store.sign_in_person(ada, session)
    owner = KeyRow("owner", "default", "k", "admin", None, b"o", NOW, "python", NOW + DAY, None, None)
    assistant = owner._replace(expires_ms=NOW + 60 * DAY, client="claude.ai")
    keys = [
        owner,
        assistant._replace(id="of-key", hash=b"1", created_by="key:owner"),
        assistant._replace(id="admin", hash=b"2", created_by=ada.actor),
        assistant._replace(id="member", hash=b"3", created_by=ada.actor, role="member"),
        assistant._replace(id="key", hash=b"4", created_by=ada.actor, client=None),
    ]
    for key in keys:
        await store.add_key(key)
        job = asleep(f"job-{key.id}")
        await _subscribe(store, _subscription(job, key.id, principal=f"key:{key.id}"), job)

    async def ends() -> list[int | None]:
        found = [await store.subscription(key.id) for key in keys]
        return [row and row.expires_ms for row in found]

    end, bound = NOW + 60 * DAY, NOW + SIGN_IN_LASTS_MS
    assert await ends() == [NOW + DAY, NOW + DAY, bound, bound, end]
    less = ada._replace(grants={"default": "member"}, signed_in_ms=NOW + 5)
    await store.sign_in_person(less, session._replace(hash=b"2"))
    assert await ends() == [NOW + DAY, NOW + DAY, NOW + 5, bound, end]
    # Also one that is written now, after its callback was verified for long.
    again = asleep("again")
    late = await _subscribe(store, _subscription(again, "again", principal="key:admin"), again)
    assert late.expires_ms == NOW
    await store.end_access_of_person(ada._replace(grants={}, signed_in_ms=NOW + 9))
    assert await ends() == [NOW + DAY, NOW + DAY, NOW + 9, NOW + 9, end]


async def test_quotas_count_subscriptions_as_jobs(store: Store) -> None:
    allowance = Allowance(live_per_workspace=1)
    job, other = asleep("one"), asleep("two")
    await _subscribe(store, _subscription(job), job, allowance=allowance)
    await _subscribe(store, _subscription(job), asleep("one"), allowance=allowance)
    with pytest.raises(ResourceExhausted):
        await _subscribe(store, _subscription(other, "sub_2"), other, allowance=allowance)
    assert await store.subscription("sub_2") is None
