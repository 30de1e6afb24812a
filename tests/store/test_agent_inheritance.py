"""Fields that jobs inherit change with their agent: in one transaction, all jobs or none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, MINUTE, NOW, FalseClock, alone, ended, fire, look_at_job, ticks_of
from tests.support.notifications import NotificationRecorder
from tests.support.pull_runs import claim_pairs
from wakeful import Wakeful
from wakeful.errors import FailedPrecondition
from wakeful.launch.secrets import ROTATION_MS, Keyring, read_secret
from wakeful.service.agents.inheritance import INACTIVE
from wakeful.service.auth.access import LOCAL
from wakeful.store.accounts import AgentChanged, AgentRow, Inherited
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobFilter, JobRow

HOOK = {"kind": "webhook", "url": "https://a.example/hook"}
OTHER = {"kind": "webhook", "url": "https://b.example/hook"}
KEY = "a key for tests"
WHERE = ("default", "ada")


@pytest.fixture
def app(store: Store) -> Wakeful:
    """Return the services on the store, without an engine: the clock stands still."""
    return Wakeful(store=store, secret_key=KEY, allow_private_targets=True)


def other_app(store: Store) -> Wakeful:
    return Wakeful(store=store, secret_key=KEY, allow_private_targets=True)


async def put(app: Wakeful, **document: Any) -> str | None:
    return (await app.services.agents.put(LOCAL, *WHERE, document)).secret


async def add(app: Wakeful, name: str, **fields: Any) -> JobRow:
    document = {"name": name, "schedule": "every 1m", **fields}
    saved = await app.services.jobs.create(LOCAL, *WHERE, document)
    return saved.row


async def jobs(store: Store) -> dict[str, JobRow]:
    return {row.name: row for row in await store.jobs(JobFilter(*WHERE, limit=10_000))}


def opened(sealed: bytes | None) -> bytes | None:
    return None if sealed is None else Keyring([KEY]).open(sealed)


# --- active ----------------------------------------------------------------------------------------------


async def test_the_jobs_of_an_agent_that_becomes_inactive_are_paused(
    app: Wakeful, store: Store, clock: FalseClock, recorder: NotificationRecorder
):
    for number in range(5):
        await add(app, f"job-{number}")
    await add(app, "paused", enabled=False)
    clock.ms = NOW + 3 * MINUTE + 1  # three ticks of each are due, and nothing has planned them
    await recorder.next_event("jobs")
    await put(app, active=False)
    found = await jobs(store)
    paused = found.pop("paused")
    assert (paused.enabled, paused.disabled_reason, paused.version) == (False, "paused", 1)
    for row in found.values():
        assert (row.enabled, row.disabled_reason, row.next_ms, row.wake_ms) == (False, INACTIVE, None, None)
        (missed,) = await ticks_of(store, row)
        assert (missed.state, missed.reason, missed.covers) == ("missed", "paused", 3)
        assert row.version == 2
    await recorder.next_event("jobs")
    assert await store.next_wake_ms() is None


async def test_pending_ticks_of_an_inactive_agent_are_withdrawn(
    app: Wakeful, store: Store, clock: FalseClock
):
    rows = [await add(app, f"job-{number}") for number in range(3)]
    clock.ms = NOW + MINUTE
    await store.plan(clock.ms, 100, fire)
    await put(app, active=False)
    for row in rows:
        (tick,) = await ticks_of(store, row)
        assert (tick.state, tick.reason, tick.finished_ms) == ("cancelled", INACTIVE, clock.ms)


async def test_jobs_of_a_reactivated_agent_resume_from_that_time(
    app: Wakeful, store: Store, clock: FalseClock
):
    row = await add(app, "job")
    over = await add(app, "over", schedule={"kind": "at", "atMs": NOW + MINUTE})
    spent = await add(app, "spent", maxRuns=1)
    await put(app, active=False)
    clock.ms = NOW + DAY + 1
    await store.change_job(spent.id, lambda old: JobChange(old._replace(run_count=1)))
    await put(app, active=True)
    again = await look_at_job(store, row)
    assert (again.enabled, again.next_ms, again.wake_ms) == (True, NOW + DAY + MINUTE, NOW + DAY + MINUTE)
    assert await ticks_of(store, row) == [], "time while it was inactive is not missed"
    ended_jobs = [await look_at_job(store, each) for each in (over, spent)]
    assert [(each.enabled, each.disabled_reason) for each in ended_jobs] == [
        (False, "no_more_ticks"),
        (False, "max_runs"),
    ]


async def test_a_job_with_an_invalid_schedule_is_paused_too(app: Wakeful, store: Store):
    row = await add(app, "broken")
    await add(app, "job")
    await store.change_job(row.id, lambda old: JobChange(old._replace(timing="{]")))
    await put(app, active=False)
    assert {name: each.next_ms for name, each in (await jobs(store)).items()} == {"broken": None, "job": None}
    await put(app, active=True)
    assert {name: each.enabled for name, each in (await jobs(store)).items()} == {
        "broken": False,
        "job": True,
    }


async def test_jobs_out_of_step_are_updated_when_the_agent_is_put_again(app: Wakeful, store: Store):
    row = await add(app, "job")
    await put(app, active=False)
    # As an earlier version left it when it crashed half-way.
    await store.change_job(
        row.id, lambda old: JobChange(old._replace(enabled=True, disabled_reason=None, wake_ms=NOW))
    )
    await put(app, active=False)
    assert (await look_at_job(store, row)).disabled_reason == INACTIVE


# --- all or none -----------------------------------------------------------------------------------------


async def test_an_exception_for_one_job_rolls_back_the_agent_and_all_jobs(app: Wakeful, store: Store):
    for number in range(4):
        await add(app, f"job-{number}")
    before, agent = await jobs(store), await store.agent(*WHERE)
    seen = 0

    def follow(agent: AgentRow, row: JobRow) -> JobChange | None:
        nonlocal seen
        seen += 1
        if seen == 3:
            raise RuntimeError("in the middle")
        return JobChange(row._replace(enabled=False))

    with pytest.raises(RuntimeError, match="middle"):
        await store.put_agent(*WHERE, lambda old: old and old._replace(active=False), [], follow)
    assert await jobs(store) == before
    assert await store.agent(*WHERE) == agent


async def test_a_job_is_not_created_or_changed_with_stale_inherited_fields(app: Wakeful, store: Store):
    row = await add(app, "job")
    await put(app, target=OTHER)
    old = Inherited()
    with pytest.raises(AgentChanged):
        await store.create_jobs([row._replace(id=row.id[:-1] + "0", name="new")], agents={WHERE: old})
    with pytest.raises(AgentChanged):
        await store.change_job(row.id, JobChange, (), old)
    assert list(await jobs(store)) == ["job"]


async def test_a_process_with_a_stale_agent_creates_no_job_with_the_old_target(
    app: Wakeful, store: Store, database: Database
):
    other = other_app(await database.connect())
    await put(app, target=HOOK)
    await add(other, "before")  # from now on it has the agent cached
    await put(app, target=OTHER, active=False)
    await add(other, "late")
    (many,) = await other.services.jobs.create_many(LOCAL, *WHERE, [{"name": "many", "schedule": "@daily"}])
    with pytest.raises(FailedPrecondition, match="not active"):
        await other.services.jobs.resume(LOCAL, *WHERE, "late")
    found = await jobs(store)
    assert {name for name, row in found.items() if "b.example" in row.work} == {"before", "late", "many"}
    assert not any(row.enabled for row in found.values())
    agent = await store.agent(*WHERE)
    assert agent is not None
    assert many.row.secret == agent.secret


async def test_concurrent_agent_changes_job_changes_and_planning_do_not_deadlock(
    database: Database, store: Store, clock: FalseClock
):
    apps = [other_app(await database.connect()) for _ in range(3)]
    for number in range(60):
        await add(apps[0], f"job-{number}", overlapPolicy="allow")

    async def toggle(app: Wakeful) -> None:
        for number in range(6):
            await put(app, active=number % 2 == 1, target=[HOOK, OTHER, None][number % 3])

    async def edit(app: Wakeful) -> None:
        for number in range(0, 60, 3):
            patch = {"description": str(number), "timeoutMs": 1_000 + number}
            await app.services.jobs.update(LOCAL, *WHERE, f"job-{number}", patch)
            await add(app, f"more-{number}")

    async def plan(store: Store) -> None:
        for _ in range(20):
            clock.ms += MINUTE
            await store.plan(clock.ms, 100, fire)
            taken = await store.take(clock.ms, "w", {"cron": 50, "main": 50})
            await store.finish("w", [ended(run, "failed", disable_after=1000) for run in taken], alone)

    await asyncio.gather(toggle(apps[0]), edit(apps[1]), plan(apps[2].store))
    agent = await store.agent(*WHERE)
    assert agent is not None
    found = await jobs(store)
    assert len(found) == 80
    assert {row.enabled for row in found.values()} == {agent.active}
    assert {"target" in row.work for row in found.values()} == {agent.target is not None}


# --- targets and lanes -----------------------------------------------------------------------------------


async def test_waiting_runs_move_with_their_jobs_to_the_new_target(
    app: Wakeful, store: Store, clock: FalseClock
):
    for number in range(3):
        await add(app, f"job-{number}")
    await add(app, "own", target=HOOK)
    clock.ms = NOW + MINUTE
    for name in ("job-0", "job-1", "job-2", "own"):
        await app.services.jobs.trigger(LOCAL, *WHERE, name)
    assert len(await claim_pairs(store, clock.ms, "w", "default", None, None, 1)) == 1
    await put(app, target=HOOK)
    assert await claim_pairs(store, clock.ms, "w", "default", None, None, 10) == []
    taken = await store.take(clock.ms, "w", {"cron": 10})
    assert len(taken) == 3, "the two that waited, and that of the job with a target of its own"
    assert all("a.example" in run.work for run in taken)


# --- secrets ---------------------------------------------------------------------------------------------


async def test_inherited_webhooks_are_signed_with_the_secret_of_the_agent(app: Wakeful, store: Store):
    await add(app, "before")
    shown = await put(app, target=HOOK)
    assert shown is not None
    saved = await app.services.jobs.create(LOCAL, *WHERE, {"name": "after", "schedule": "@daily"})
    assert saved.secret is None, "it has no secret of its own to be shown"
    found = await jobs(store)
    assert {opened(row.secret) for row in found.values()} == {read_secret(shown)}
    assert await put(app, target=HOOK, description="x") is None, "it is returned once"
    assert await put(app, target=OTHER) is None, "another url keeps the secret"
    assert {opened(row.secret) for row in (await jobs(store)).values()} == {read_secret(shown)}


async def test_rotating_the_agent_secret_rotates_it_in_all_jobs_that_inherit_it(
    app: Wakeful, store: Store, clock: FalseClock
):
    first = await put(app, target=HOOK)
    await add(app, "heir")
    own = await app.services.jobs.create(
        LOCAL, *WHERE, {"name": "own", "schedule": "@daily", "target": OTHER}
    )
    with pytest.raises(FailedPrecondition, match="/agents/ada/rotate-secret"):
        await app.services.jobs.rotate_secret(LOCAL, *WHERE, "heir")
    second = (await app.services.agents.rotate_secret(LOCAL, *WHERE)).secret
    assert first is not None
    assert second is not None
    found = await jobs(store)
    heir = found["heir"]
    assert (opened(heir.secret), opened(heir.old_secret)) == (read_secret(second), read_secret(first))
    assert heir.old_secret_until_ms == clock.ms + ROTATION_MS
    assert own.secret is not None
    assert opened(found["own"].secret) == read_secret(own.secret)
    late = await add(app, "late")
    assert (late.secret, late.old_secret) == (heir.secret, heir.old_secret)
    actions = [row.action for row in await app.services.admin.audit.list(LOCAL, "default")]
    assert "agent.rotate-secret" in actions


async def test_a_job_that_overrides_the_agent_target_gets_its_own_secret(app: Wakeful, store: Store):
    shown = await put(app, target=HOOK)
    heir = await add(app, "job")
    update = app.services.jobs.update
    own = await update(LOCAL, *WHERE, "job", {"target": OTHER})
    assert own.secret is not None
    assert opened(own.row.secret) == read_secret(own.secret)
    assert own.row.old_secret is None, "the secret of the agent does not sign what goes elsewhere"
    again = await update(LOCAL, *WHERE, "job", {"target": None})
    assert again.secret is None
    assert shown is not None
    assert (again.row.secret, opened(heir.secret)) == (heir.secret, read_secret(shown))


async def test_an_agent_without_a_webhook_has_no_secret_to_rotate(app: Wakeful):
    await put(app, target=None)
    with pytest.raises(FailedPrecondition, match="no webhook"):
        await app.services.agents.rotate_secret(LOCAL, *WHERE)


async def test_an_agent_of_an_older_database_gets_its_secret_when_it_is_rotated(
    app: Wakeful, store: Store, clock: FalseClock
):
    await put(app, target=HOOK)
    await store.put_agent(*WHERE, lambda old: old and old._replace(secret=None))
    app = other_app(store)
    saved = await app.services.jobs.create(LOCAL, *WHERE, {"name": "job", "schedule": "@daily"})
    assert saved.secret is not None, "until then each job has its own"
    assert await put(app, target=HOOK, description="new") is None, "nothing about the target was changed"
    assert (await look_at_job(store, saved.row)).secret == saved.row.secret
    shown = (await app.services.agents.rotate_secret(LOCAL, *WHERE)).secret
    row = await look_at_job(store, saved.row)
    assert shown is not None
    assert (opened(row.secret), row.old_secret) == (read_secret(shown), saved.row.secret)
    assert row.old_secret_until_ms == clock.ms + ROTATION_MS


async def test_a_wake_is_signed_with_the_secret_of_the_agent(app: Wakeful, store: Store):
    shown = await put(app, target=HOOK)
    run = await app.services.agents.wakes.wake(LOCAL, *WHERE)
    assert run.job_id is not None
    assert shown is not None
    row = await store.job_by_id(run.job_id)
    assert row is not None
    assert opened(row.secret) == read_secret(shown)
