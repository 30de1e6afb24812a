"""Agents: settings inherited by jobs, executors, manual wakes and the audit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied
from wakeful.service.agents.agents import FIELDS, StaleAgent, write_agent
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.values.json_value import Json

ADMIN = Principal("key:admin", "admin", "default")
MEMBER = Principal("key:member", "member", "default")
ADA = Principal("key:ada", "agent", "default", "ada")
BOB = Principal("key:bob", "agent", "default", "bob")


@pytest.fixture
async def app(new_app: NewApp) -> AsyncIterator[Wakeful]:
    async with new_app() as app:
        yield app


async def over(app: Wakeful, run_id: str, state: str) -> None:
    async def so() -> bool:
        return (await app.services.runs.get(LOCAL, "default", run_id)).state == state

    await eventually(so)


# --- inheritance ---------------------------------------------------------------------------------------


async def test_a_job_without_a_target_uses_that_of_its_agent(app: Wakeful, receiver: Receiver):
    agents, jobs = app.services.agents, app.services.jobs
    hook = {"kind": "webhook", "url": f"{receiver.url}/wake"}
    await agents.put(ADMIN, "default", "ada", {"target": hook})
    saved = await jobs.create(ADMIN, "default", "ada", {"name": "job", "schedule": SELDOM})
    assert saved.secret is None, "it is signed with the secret of its agent"
    run = await jobs.trigger(ADMIN, "default", "ada", "job")
    assert run is not None
    await over(app, run.id, "succeeded")
    again = await jobs.upsert(ADMIN, "default", "ada", {"name": "job", "schedule": SELDOM})
    assert not again.changed


async def test_a_changed_agent_target_applies_to_jobs_without_their_own(app: Wakeful, receiver: Receiver):
    agents, jobs = app.services.agents, app.services.jobs
    await jobs.create(ADMIN, "default", "ada", {"name": "job", "schedule": SELDOM})
    own = {"name": "own", "schedule": SELDOM, "target": {"kind": "webhook", "url": f"{receiver.url}/own"}}
    await jobs.create(ADMIN, "default", "ada", own)
    saved = await agents.put(
        ADMIN, "default", "ada", {"target": {"kind": "webhook", "url": f"{receiver.url}/new"}}
    )
    assert not saved.created, "an agent is there with its first job"
    for name in ("job", "own"):
        run = await jobs.trigger(ADMIN, "default", "ada", name)
        assert run is not None
        await over(app, run.id, "succeeded")
    assert sorted(request.path for request in receiver.requests) == ["/hook/new", "/hook/own"]


async def test_jobs_of_an_inactive_agent_are_disabled(app: Wakeful):
    agents, jobs = app.services.agents, app.services.jobs
    await jobs.create(ADMIN, "default", "ada", {"name": "job", "schedule": "every 1h"})
    await jobs.create(ADMIN, "default", "ada", {"name": "paused", "schedule": "every 1h", "enabled": False})
    await agents.put(ADMIN, "default", "ada", {"active": False})
    job = await jobs.get(ADMIN, "default", "ada", "job")
    assert (job.enabled, job.next_ms, job.disabled_reason) == (False, None, "agent_inactive")
    late = await jobs.create(ADMIN, "default", "ada", {"name": "late", "schedule": "every 1h"})
    assert not late.job.enabled
    with pytest.raises(FailedPrecondition, match="not active"):
        await jobs.resume(ADMIN, "default", "ada", "job")
    await agents.put(ADMIN, "default", "ada", {"active": True})
    states = {
        each: (await jobs.get(ADMIN, "default", "ada", each)).enabled for each in ("job", "late", "paused")
    }
    assert states == {"job": True, "late": True, "paused": False}


async def test_a_job_that_is_paused_while_its_agent_is_inactive_stays_paused(app: Wakeful):
    agents, jobs = app.services.agents, app.services.jobs
    for name in ("paused", "noted", "other"):
        await jobs.create(ADMIN, "default", "ada", {"name": name, "schedule": SELDOM})
    await agents.put(ADMIN, "default", "ada", {"active": False})
    await jobs.pause(ADMIN, "default", "ada", "paused")
    noted = await jobs.pause(ADMIN, "default", "ada", "noted", note="it is wrong", until="in 2h")
    assert (noted.disabled_reason, noted.pause_note) == ("paused", "it is wrong")
    await agents.put(ADMIN, "default", "ada", {"active": True})
    found = {each.name: each.disabled_reason for each in await jobs.list(ADMIN, "default", "ada")}
    assert found == {"paused": "paused", "noted": "paused", "other": None}


async def test_an_edit_lets_no_job_of_an_inactive_agent_fire(app: Wakeful):
    agents, jobs = app.services.agents, app.services.jobs
    await jobs.create(ADMIN, "default", "ada", {"name": "once", "schedule": "in 1h"})
    over = (await jobs.skip_next(ADMIN, "default", "ada", "once")).job
    assert over.disabled_reason == "no_more_ticks"
    await agents.put(ADMIN, "default", "ada", {"active": False})
    saved = await jobs.update(ADMIN, "default", "ada", "once", {"schedule": "in 2h"})
    assert (saved.job.enabled, saved.job.wake_ms) == (False, None)
    assert saved.job.disabled_reason == "agent_inactive"
    await agents.put(ADMIN, "default", "ada", {"active": True})
    job = await jobs.get(ADMIN, "default", "ada", "once")
    assert (job.enabled, job.next_ms is None) == (True, False)


async def test_a_job_without_a_time_zone_uses_that_of_its_agent_or_workspace(app: Wakeful):
    services = app.services
    operator = Principal("key:first", "admin", None)
    await services.agents.workspaces.put(operator, "acme", {"tz": "Asia/Tokyo"})
    await services.agents.put(operator, "acme", "ada", {"tz": "Europe/Berlin"})
    nine = {"name": "nine", "schedule": "0 9 * * *"}
    by_agent = (await services.jobs.create(operator, "acme", "ada", nine)).job
    by_workspace = (await services.jobs.create(operator, "acme", "bob", nine)).job
    own = (await services.jobs.create(operator, "acme", "ada", {**nine, "name": "own", "tz": "UTC"})).job
    zones = [
        job.definition.timing.schedule.tz for job in (by_agent, by_workspace, own) if job.definition.timing
    ]
    assert zones == ["Europe/Berlin", "Asia/Tokyo", "UTC"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"target": {"kind": "carrier pigeon"}}, "target"),
        ({"target": "somewhere"}, "target"),
        ({"tz": "Mars/Base"}, "tz"),
        ({"active": "yes"}, "active"),
        ({"colour": "red"}, "colour"),
        ({"description": 5}, "description"),
    ],
)
async def test_an_invalid_agent_document_is_refused_and_changes_nothing(app: Wakeful, document, says: str):
    await app.services.agents.put(ADMIN, "default", "ada", {"description": "as she was"})
    with pytest.raises(InvalidArgument, match=says):
        await app.services.agents.put(ADMIN, "default", "ada", document)
    assert (await app.services.agents.get(ADMIN, "default", "ada")).description == "as she was"


FULL: dict[str, object] = {
    "target": {"kind": "webhook", "url": "https://a.example/wake"},
    "tz": "Asia/Tokyo",
    "active": True,
    "channel": "telegram",
    "to": "7",
    "description": "writes",
    "budget": {"tokensPerDay": 9},
    "alerts": {"url": "https://a.example/alerts"},
    "queue": {"cap": 3},
    "heartbeat": {"every": "30m"},
    "deliverTo": [{"channel": "ops"}],
    "approval": "required",
    "selfScheduling": {"perRun": 2},
    "evolution": "suggest",
}


async def test_a_patch_changes_the_given_fields_of_an_agent_and_no_others(app: Wakeful):
    agents = app.services.agents
    assert {*FULL} == {*FIELDS}
    first = (await agents.put(ADMIN, "default", "ada", FULL)).row
    assert (await agents.update(ADMIN, "default", "ada", {})).row == first, "nothing changes"
    assert (await app.services.jobs.get(ADMIN, "default", "ada", "heartbeat")).enabled
    blank = write_agent((await agents.put(ADMIN, "default", "blank", {})).row)
    expected = write_agent(first)
    changes: list[dict[str, Json]] = [{"description": "reads"}, {"active": False}, {"evolution": "off"}]
    for patch in [*changes, *({name: blank[name]} for name in FIELDS)]:
        reset = patch not in changes
        saved = await agents.update(ADMIN, "default", "ada", dict.fromkeys(patch) if reset else patch)
        expected |= patch
        assert write_agent(saved.row) == expected, patch
        assert saved.secret is None
    assert expected == blank
    metrics = {"evolution_metrics": True}
    assert (await agents.update(ADMIN, "default", "ada", metrics)).row.evolution == "suggest"
    with pytest.raises(NotFound):
        await app.services.jobs.get(ADMIN, "default", "ada", "heartbeat")


async def test_a_refused_patch_of_an_agent_changes_nothing(app: Wakeful):
    agents = app.services.agents
    first = (await agents.put(ADMIN, "default", "ada", FULL)).row
    for patch in ({"active": "no"}, {"tz": "Mars/Base"}, {"colour": "red"}, {"heartbeat": 7, "to": "8"}):
        with pytest.raises(InvalidArgument):
            await agents.update(ADMIN, "default", "ada", patch)
    with pytest.raises(StaleAgent):
        await agents.update(ADMIN, "default", "ada", {"to": "8"}, version=first.version + 1)
    with pytest.raises(NotFound):
        await agents.update(ADMIN, "default", "nobody", {"to": "8"})
    for principal in (MEMBER, ADA):
        with pytest.raises(PermissionDenied):
            await agents.update(principal, "default", "ada", {"to": "8"})
    assert await agents.get(ADMIN, "default", "ada") == first


async def test_patches_of_one_agent_at_once_are_all_kept(app: Wakeful):
    agents = app.services.agents
    first = (await agents.put(ADMIN, "default", "ada", {})).row
    patches: list[dict[str, object]] = [
        {"to": "8", "channel": "ops"},
        {"tz": "Asia/Tokyo"},
        {"description": "x"},
    ]
    await asyncio.gather(*(agents.update(ADMIN, "default", "ada", patch) for patch in patches))
    row = await agents.get(ADMIN, "default", "ada")
    assert (row.to, row.tz, row.description) == ("8", "Asia/Tokyo", "x")
    assert row.version == first.version + 3


async def test_an_agent_with_jobs_cannot_be_deleted(app: Wakeful):
    agents, jobs = app.services.agents, app.services.jobs
    await jobs.create(ADMIN, "default", "ada", {"name": "job", "schedule": SELDOM})
    with pytest.raises(FailedPrecondition, match="1"):
        await agents.delete(ADMIN, "default", "ada")
    await jobs.delete(ADMIN, "default", "ada", "job")
    await agents.delete(ADMIN, "default", "ada")
    with pytest.raises(NotFound):
        await agents.get(ADMIN, "default", "ada")


async def test_internal_jobs_are_deleted_with_their_agent_only(app: Wakeful):
    agents, jobs = app.services.agents, app.services.jobs
    document = {"heartbeat": True, "evolution": "suggest", "alerts": {"url": "http://127.0.0.1:1/"}}
    await agents.put(ADMIN, "default", "ada", document)
    await app.runs.of("ada").wake("look")
    internal = [job.name for job in await jobs.list(ADMIN, "default", "ada")]
    assert {"heartbeat", "wakeful-analysis", "woken-by-hand"} <= set(internal)
    for name in internal:
        with pytest.raises(FailedPrecondition, match=f"'{name}' is an internal job of Wakeful and cannot"):
            await jobs.delete(ADMIN, "default", "ada", name)
    await agents.delete(ADMIN, "default", "ada")
    assert await jobs.list(ADMIN, "default") == []
    (run,) = await app.runs.of("ada").list()
    assert (run.state, run.reason) == ("cancelled", "deleted")


# --- executors -----------------------------------------------------------------------------------------


async def test_an_executor_claims_renews_and_completes_a_run(app: Wakeful):
    services = app.services
    job = {"name": "job", "schedule": SELDOM, "message": "wake up", "lane": "main"}
    await services.jobs.create(ADA, "default", "ada", job)
    run = await services.jobs.trigger(ADA, "default", "ada", "job")
    assert run is not None
    assert await services.runs.pull.claim(ADMIN, "default", "w", lanes=["cron"]) == []
    assert await services.runs.pull.claim(ADMIN, "default", "w", agents=["bob"]) == []
    assert await services.runs.pull.claim(BOB, "default", "w") == []
    (claimed,) = await services.runs.pull.claim(ADA, "default", "w", agents=["ada"], lanes=["main"], limit=5)
    assert (claimed["id"], claimed["state"], claimed["attempt"]) == (run.id, "running", 1)
    assert claimed["payload"] == {"message": "wake up"}
    assert await services.runs.pull.claim(ADMIN, "default", "w") == []
    assert (await services.runs.pull.heartbeat(ADA, "default", run.id, 1)).state == "running"
    with pytest.raises(NotFound):
        await services.runs.complete(BOB, "default", run.id, "succeeded", attempt=1)
    done = await services.runs.complete(
        ADA, "default", run.id, "succeeded", attempt=1, output="good morning", usage='{"tokens":7}'
    )
    assert (done.state, done.output, done.usage) == ("succeeded", "good morning", '{"tokens":7}')
    with pytest.raises(FailedPrecondition, match="succeeded"):
        await services.runs.complete(ADA, "default", run.id, "failed")
    with pytest.raises(FailedPrecondition, match="stop working"):
        await services.runs.pull.heartbeat(ADA, "default", run.id, 1)


async def test_a_claim_waits_for_a_run_until_its_timeout(app: Wakeful):
    services = app.services
    await services.jobs.create(ADMIN, "default", "ada", {"name": "job", "schedule": SELDOM})
    assert await services.runs.pull.claim(ADMIN, "default", "w", wait_ms=50) == []
    waiting = asyncio.create_task(services.runs.pull.claim(ADMIN, "default", "w", wait_ms=60_000))
    await asyncio.sleep(0)
    run = await services.jobs.trigger(ADMIN, "default", "ada", "job")
    assert run is not None
    assert [each["id"] for each in await waiting] == [run.id]


async def test_a_failed_claimed_run_is_retried(app: Wakeful):
    services = app.services
    job = {"name": "job", "schedule": SELDOM, "maxAttempts": 2, "backoff": {"baseMs": 1, "maxMs": 1}}
    await services.jobs.create(ADMIN, "default", "ada", job)
    run = await services.jobs.trigger(ADMIN, "default", "ada", "job")
    assert run is not None
    for attempt in (1, 2):
        (claimed,) = await services.runs.pull.claim(ADMIN, "default", "w", wait_ms=60_000)
        assert (claimed["attempt"], claimed["idempotencyKey"]) == (attempt, run.idempotency_key)
        if attempt == 2:
            with pytest.raises(FailedPrecondition, match="attempt 2"):
                await services.runs.complete(ADMIN, "default", run.id, "succeeded", attempt=1)
        await services.runs.complete(ADMIN, "default", run.id, "failed", error="not today", attempt=attempt)
    dead = await services.runs.get(ADMIN, "default", run.id)
    assert (dead.state, dead.dead, dead.error) == ("failed", True, "not today")


async def test_a_claimed_run_times_out(app: Wakeful):
    services = app.services
    job = {"name": "job", "schedule": SELDOM, "timeoutMs": 1_000, "maxAttempts": 1}
    await services.jobs.create(ADMIN, "default", "ada", job)
    await services.jobs.trigger(ADMIN, "default", "ada", "job")
    (claimed,) = await services.runs.pull.claim(ADMIN, "default", "w", wait_ms=60_000)
    run_id = str(claimed["id"])

    async def too_late() -> bool:
        try:
            await services.runs.pull.heartbeat(ADMIN, "default", run_id, 1)
        except FailedPrecondition as error:
            return "timed out" in error.message
        return False

    await eventually(too_late)
    run = await services.runs.get(ADMIN, "default", run_id)
    assert (run.state, run.reason) == ("failed", "timeout")


async def test_a_claimed_workflow_run_contains_its_dag(app: Wakeful):
    services = app.services
    job = {"name": "job", "schedule": SELDOM, "workflowId": "invoices", "version": 3, "userId": "ada"}
    await services.jobs.create(ADMIN, "default", "ada", job)
    dag = {"nodes": [{"id": "a"}], "edges": []}
    assert await services.admin.workflows.put(ADMIN, "default", "invoices", 3, dag)
    assert not await services.admin.workflows.put(ADMIN, "default", "invoices", 3, dag)
    await services.jobs.trigger(ADMIN, "default", "ada", "job")
    (claimed,) = await services.runs.pull.claim(ADMIN, "default", "w", wait_ms=60_000)
    payload = claimed["payload"]
    assert isinstance(payload, dict)
    assert payload["dag"] == dag
    meta = payload["meta"]
    assert isinstance(meta, dict)
    assert (meta["user_id"], meta["version"], meta["idempotency_key"]) == (
        "ada",
        3,
        claimed["idempotencyKey"],
    )


# --- manual wakes --------------------------------------------------------------------------------------


async def test_an_admin_can_wake_an_agent_and_an_executor_claims_the_run(app: Wakeful):
    services = app.services
    await services.agents.put(ADMIN, "default", "ada", {})
    with pytest.raises(PermissionDenied, match="admin"):
        await services.agents.wakes.wake(MEMBER, "default", "ada")
    with pytest.raises(NotFound):
        await services.agents.wakes.wake(ADMIN, "default", "nobody")
    run = await services.agents.wakes.wake(ADMIN, "default", "ada", {"why": "now"})
    assert (run.state, run.trigger, run.triggered_by, run.is_pull) == ("pending", "user", "key:admin", True)
    (claimed,) = await services.runs.pull.claim(ADA, "default", "w")
    assert (claimed["id"], claimed["payload"]) == (run.id, {"why": "now"})
    await services.runs.complete(ADA, "default", run.id, "succeeded", attempt=1)


async def test_a_wake_of_an_agent_with_a_target_is_launched(app: Wakeful, receiver: Receiver):
    services = app.services
    hook = {"kind": "webhook", "url": f"{receiver.url}/wake"}
    await services.agents.put(ADMIN, "default", "ada", {"target": hook})
    runs = [await services.agents.wakes.wake(ADMIN, "default", "ada", {"n": n}) for n in range(2)]
    for run in runs:
        assert run.state == "pending"
        await over(app, run.id, "succeeded")
    assert len(receiver.requests) == 2


# --- audit ---------------------------------------------------------------------------------------------


async def test_changes_are_audited_and_refused_requests_are_not(app: Wakeful):
    services = app.services
    before = (await services.admin.audit.list(ADMIN, "default"))[:1]
    document = {"name": "job", "schedule": "0 9 * * *"}
    who = Principal("key:admin", "admin", "default", address="192.0.2.7")
    await services.jobs.create(who, "default", "ada", document)
    with pytest.raises(PermissionDenied):
        await services.jobs.pause(MEMBER, "default", "ada", "job")
    await services.jobs.pause(who, "default", "ada", "job")
    await services.jobs.pause(who, "default", "ada", "job")  # no effect: it is paused already
    await services.jobs.delete(who, "default", "ada", "job")
    entries = await services.admin.audit.list(ADMIN, "default")
    new = [row for row in entries if not before or row.seq > before[0].seq]
    assert [row.action for row in reversed(new)] == ["job.create", "job.pause", "job.delete"]
    assert {(row.actor, row.subject, row.address) for row in new} == {("key:admin", "ada/job", "192.0.2.7")}
    assert '"schedule":"0 9 * * *"' in new[-1].details
    verified = await services.admin.audit.verify(ADMIN, "default")
    assert (verified.entries, verified.flaw) == (len(entries), None)


FORGERIES = {
    "changed": ("UPDATE audit SET actor = 'nobody' WHERE seq = 2", "2"),
    "removed": ("DELETE FROM audit WHERE seq = 2", "2"),
    "removed at the end": ("DELETE FROM audit WHERE seq = 4", "4"),
    "removed at the beginning": ("DELETE FROM audit WHERE seq = 1", "1"),
    "put in another place": (
        "UPDATE audit SET seq = CASE seq WHEN 2 THEN 30 ELSE 2 END WHERE seq IN (2, 3); "
        "UPDATE audit SET seq = 3 WHERE seq = 30",
        "2",
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_tampering_with_the_audit_is_detected(database: str, new_app: NewApp, forgery: str):
    statements, where = FORGERIES[forgery]
    async with new_app() as app:
        for number in range(4):
            document = {"name": f"job-{number}", "schedule": SELDOM}
            await app.services.jobs.create(ADMIN, "default", "ada", document)
        assert (await app.services.admin.audit.verify(ADMIN, "default")).flaw is None
        for statement in statements.split("; "):
            await lay_hands_on(database, statement)
        flaw = (await app.services.admin.audit.verify(ADMIN, "default")).flaw
    assert flaw is not None
    assert where in flaw


async def lay_hands_on(database: str, statement: str) -> None:
    """Execute a statement on the database directly."""
    if database.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as file, file:
            file.execute(statement)
    else:
        import asyncpg

        connection = await asyncpg.connect(database)
        try:
            await connection.execute("SET search_path TO wakeful")
            await connection.execute(statement)
        finally:
            await connection.close()
