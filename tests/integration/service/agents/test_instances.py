"""Instances of agents: start, stop, pause, resume, hibernate, read and list them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.agents import busy, counter, handled, has_schedules, schedules
from tests.support.api_client import served
from tests.support.waiting import eventually, in_state, over
from wakeful import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Wakeful,
)
from wakeful.agents.agent import Schedule
from wakeful.service.auth.access import LOCAL, Principal, Role
from wakeful.service.serializers import serialize_instance_details
from wakeful.settings import Settings

ADMIN = Principal("key:1", "admin", "default")
SIX, SEVEN = "0 6 * * *", "0 7 * * *"


def started(new_app: NewApp, cls: Any = None, **given: Any) -> Wakeful:
    app = new_app(**given)
    app.agent(cls or counter())
    return app


# --- start and stop -------------------------------------------------------------------------------------


async def test_an_instance_starts_with_its_initial_state_and_schedules(new_app: NewApp):
    async with started(new_app) as app:
        info = await app.agents.start("counter", id="eu")
        assert (info.id, info.agent, info.status, info.version, info.waiting) == (
            "eu",
            "counter",
            "active",
            0,
            0,
        )
        assert (await app.agents.state("counter", "eu"))["count"] == 0
        assert await schedules(app) == {SIX: True}
        await handled(app, "add")
        await app.agents.start("counter", id="eu")
        with pytest.raises(FailedPrecondition, match="is active and keeps its state; start it without"):
            await app.agents.start("counter", id="eu", state={"count": 100})
        assert (await app.agents.state("counter", "eu"))["count"] == 1
        assert [each.id for each in await app.agents.list("counter")] == ["eu"]
        assert "counter" in [each.name for each in await app.agents.list()]


async def test_an_instance_can_start_with_another_state(new_app: NewApp):
    async with started(new_app) as app:
        info = await app.agents.start("counter", "us", state={"count": 7})
        assert (info.version, info.revision) == (1, 0)
        assert await app.agents.state("counter", "us") == {"count": 7, "seen": [], "token": "abc"}
        await handled(app, "add", "us")
        assert (await app.agents.state("counter", "us"))["count"] == 8


@on_one_store
async def test_a_state_that_an_older_class_starts_with_is_migrated_by_the_newer_one(new_app: NewApp):
    def migrate(self: object, state: dict[str, Any], from_version: int) -> dict[str, Any]:
        return {"count": state["count"] * 100, "seen": [from_version], "token": "abc"}

    async with (
        started(new_app, counter(version=2, migrate=migrate)) as newer,
        started(new_app) as older,
    ):
        info = await older.agents.start("counter", "eu", state={"count": 7})
        assert info.version == 1
        await older.agents.pause("counter", "eu")
        await older.stop()
        await newer.agents.resume("counter", "eu")
        assert (await handled(newer, "add")).state == "succeeded"
        assert await newer.agents.state("counter", "eu") == {"count": 701, "seen": [1], "token": "abc"}


async def test_stopping_cancels_all_runs_and_a_start_begins_anew(new_app: NewApp):
    cls = counter()
    async with started(new_app, cls) as app:
        await app.agents.start("counter", "eu")
        await handled(app, "add")
        await handled(app, "cron.set")
        assert await schedules(app) == {SIX: True, SEVEN: True}
        running = await busy(app, cls)
        waiting = await app.agents.send("counter", "eu", "add")
        info = await app.agents.stop("counter", "eu")
        assert (info.status, info.waiting) == ("stopped", 0)
        for run in (running, waiting):
            ended = await over(app, run.id)
            assert (ended.state, ended.reason) == ("cancelled", "stopped")
        assert await schedules(app) == {}
        with pytest.raises(FailedPrecondition, match="instance 'eu' of agent 'counter' is stopped; start it"):
            await app.agents.send("counter", "eu", "add")
        await app.agents.stop("counter", "eu")
        await app.agents.start("counter", "eu")
        assert (await app.agents.state("counter", "eu"))["count"] == 0
        assert await schedules(app) == {SIX: True}
        await handled(app, "add")
        assert (await app.agents.state("counter", "eu"))["count"] == 1


async def test_a_start_enables_declared_schedules_that_the_agent_cancelled(new_app: NewApp):
    async with started(new_app) as app:
        await app.agents.start("counter", "eu")
        await handled(app, "cron.cancel")
        assert await schedules(app) == {SIX: False}
        await app.agents.start("counter", "eu")
        assert await schedules(app) == {SIX: True}


@pytest.mark.parametrize("active", [True, False])
async def test_a_start_sees_that_another_process_has_just_changed_the_agent(new_app: NewApp, active: bool):
    async with started(new_app) as app, started(new_app) as other:
        await app.services.agents.put(ADMIN, "default", "counter", {"active": not active})
        await app.services.accounts.context("default", "counter")  # the process keeps it for a second
        await other.services.agents.put(ADMIN, "default", "counter", {"active": active})
        await app.agents.start("counter", "eu")
        assert await schedules(app) == {SIX: active}


# --- pause, resume, hibernate ---------------------------------------------------------------------------


async def test_signals_to_a_paused_instance_wait_until_it_is_resumed(new_app: NewApp):
    async with started(new_app) as app:
        await app.agents.start("counter", "eu")
        info = await app.agents.pause("counter", "eu", note="maintenance")
        assert (info.status, info.note) == ("paused", "maintenance")
        run = await app.agents.send("counter", "eu", "add")
        other = await handled(app, "add", "us")
        assert (other.state, (await app.runs.get(run.id)).state) == ("succeeded", "pending")
        assert (await app.agents.instance("counter", "eu")).waiting == 1
        info = await app.agents.resume("counter", "eu")
        assert (info.status, info.note) == ("active", None)
        assert (await over(app, run.id)).state == "succeeded"


async def test_a_hibernated_instance_continues_with_its_state(new_app: NewApp):
    cls = counter()
    async with started(new_app, cls) as app:
        await handled(app, "add")
        info = await app.agents.hibernate("counter", "eu")
        assert info.hibernated_at is not None
        await eventually(lambda: cls.hooks == ["thaw eu", "hibernate eu"])
        await handled(app, "add")
        assert cls.hooks == ["thaw eu", "hibernate eu", "thaw eu"]
        assert (await app.agents.state("counter", "eu"))["count"] == 2


# --- reading --------------------------------------------------------------------------------------------


@on_one_store
async def test_instances_are_listed_by_agent_and_name_in_pages(new_app: NewApp):
    async with started(new_app) as app:
        for name in ("c", "a", "b"):
            await app.agents.start("counter", name)
        await app.agents.pause("counter", "b")
        first = await app.agents.instances(limit=2)
        assert ([each.id for each in first], first.cursor) == (["a", "b"], "counter/b")
        second = await app.agents.instances("counter", limit=2, cursor=first.cursor)
        assert ([each.id for each in second], second.cursor) == (["c"], None)
        assert [each.id for each in await app.agents.instances(status="paused")] == ["b"]
        with pytest.raises(InvalidArgument, match="status: 'asleep' is not one of active, paused"):
            await app.agents.instances(status="asleep")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="cursor: use the cursor"):
            await app.agents.instances(cursor="b")
        with pytest.raises(NotFound, match="no agent 'nobody'"):
            await app.agents.list("nobody")


@on_one_store
async def test_an_admin_reads_the_state_as_it_is_and_pages_show_less(new_app: NewApp):
    async with started(new_app) as app:
        await handled(app, "note")
        instances = app.services.agents.instances
        details = await instances.get(ADMIN, "default", "counter", "eu")
        rights = await app.services.rights.load(ADMIN, "default")
        read = serialize_instance_details(ADMIN, details, rights)
        assert read["state"] == await app.agents.state("counter", "eu")
        assert (read["state"]["token"], read["stateError"]) == ("abc", None)
        assert instances.for_page(details).state == {"count": 0, "seen": 1, "token": "***"}
        roles: list[tuple[Role, str | None]] = [("member", None), ("agent", "counter")]
        for role, agent in roles:
            who = Principal("key:2", role, "default", agent)
            rights = await app.services.rights.load(who, "default")
            details = await instances.get(who, "default", "counter", "eu")
            shown = serialize_instance_details(who, details, rights)
            assert "state" not in shown
            assert shown["status"] == "active"


@on_one_store
async def test_a_page_shows_no_state_if_its_redaction_fails(new_app: NewApp):
    async with started(new_app, counter(redact=classmethod(lambda cls, state: {"seen": {1}}))) as app:
        await handled(app, "add")
        instances = app.services.agents.instances
        details = instances.for_page(await instances.get(ADMIN, "default", "counter", "eu"))
        assert (details.state, details.state_error) == (None, "the method redact of the class failed")


@on_one_store
async def test_a_process_without_the_class_reads_the_stored_state(new_app: NewApp):
    async with started(new_app) as app:
        await handled(app, "add")
        await app.agents.start("counter", "new")
    async with new_app() as other:
        instances = other.services.agents.instances
        found = await instances.get(ADMIN, "default", "counter", "eu")
        assert found.state == {"count": 1, "seen": [], "token": "abc"}
        assert instances.for_page(found).state == {"count": 1, "seen": [], "token": "***"}
        unknown = await instances.get(ADMIN, "default", "counter", "new")
        assert (unknown.has_state, unknown.state) == (True, None)
        with pytest.raises(FailedPrecondition, match="is not registered in this process"):
            await other.agents.start("counter", "third", state={"count": 1})
        assert (await other.agents.start("counter", "third")).status == "active"
        assert await schedules(other, "third") == {SIX: True}


# --- errors, permissions, quotas, audit -----------------------------------------------------------------


@on_one_store
@pytest.mark.parametrize("method", ["start", "stop", "pause", "resume", "hibernate", "state", "instance"])
async def test_what_does_not_exist_is_named(new_app: NewApp, method: str):
    async with started(new_app) as app:
        await app.agents.put("plain", {})
        call = getattr(app.agents, method)
        with pytest.raises(NotFound, match="no agent 'nobody'"):
            await call("nobody", "eu")
        with pytest.raises(InvalidArgument, match=r"instance: .* character U\+000A"):
            await call("counter", "E\nU")
        if method in ("start", "stop", "pause", "resume"):
            with pytest.raises(FailedPrecondition, match=r"agent 'plain' has no class.* app\.agent\(Class\)"):
                await call("plain", "eu")
        if method != "start":
            with pytest.raises(NotFound, match="agent 'counter' has no instance 'eu'"):
                await call("counter", "eu")


@on_one_store
async def test_an_invalid_initial_state_is_refused(new_app: NewApp):
    async with started(new_app) as app:
        with pytest.raises(InvalidArgument, match=r"state: .*262144"):
            await app.agents.start("counter", state={"seen": ["x" * 300_000]})
        with pytest.raises(InvalidArgument, match="state: "):
            await app.agents.start("counter", state={"seen": [object()]})
        assert not await app.agents.list("counter")


@on_one_store
async def test_a_key_of_an_agent_manages_its_own_instances(new_app: NewApp):
    own = Principal("key:1", "agent", "default", "counter")
    other = Principal("key:2", "agent", "default", "painter")
    member = Principal("key:3", "member", "default")
    async with started(new_app) as app:
        service, at = app.services.agents.instances, ("default", "counter", "eu")
        assert (await service.start(own, *at)).row.status == "active"
        assert (await service.hibernate(own, *at)).row.hibernated_ms
        assert [view.row.name for view in await service.list(own, "default")] == ["eu"]
        for call in (
            service.start,
            service.stop,
            service.pause,
            service.resume,
            service.hibernate,
            service.get,
        ):
            with pytest.raises(NotFound, match="no agent 'counter'"):
                await call(other, *at)
        assert await service.list(other, "default", limit=5) == []
        for call in (service.start, service.stop, service.hibernate):
            with pytest.raises(PermissionDenied):
                await call(member, *at)
        # What an operator paused, an agent may not resume.
        await service.pause(LOCAL, *at)
        for call in (service.pause, service.resume):
            with pytest.raises(PermissionDenied):
                await call(own, *at)
        assert (await service.stop(own, *at)).row.status == "stopped"


async def test_instances_count_towards_a_quota_and_their_schedules_do_not(new_app: NewApp):
    settings = Settings(quota_instances_per_agent=2, quota_jobs_per_agent=1)
    cls = counter(schedules=[Schedule(SIX, "add"), Schedule(SEVEN, "fail")])
    async with started(new_app, cls, settings=settings) as app:
        await app.agents.start("counter", "one")
        await app.agents.send("counter", "two", "add")
        with pytest.raises(ResourceExhausted, match=r"agent 'counter'.* may have 2 instances \(instances\)"):
            await app.agents.start("counter", "three")
        with pytest.raises(ResourceExhausted, match="may have 2 instances"):
            await app.agents.send("counter", "three", "add")
        await app.agents.stop("counter", "one")
        await app.agents.start("counter", "three")
        await app.jobs.of("counter").create("own", schedule="@daily")
        used = {
            (row.agent, row.bucket): row.used
            for row in await app.services.admin.quotas.list(LOCAL, "default")
        }
        assert (used["counter", "instances"], used["", "instances"]) == (2, 2)
        assert used["counter", "scheduler.liveJobs"] == 1


@on_one_store
async def test_changes_are_audited(new_app: NewApp):
    async with started(new_app) as app:
        at = ("default", "counter", "eu")
        await app.services.agents.instances.start(ADMIN, *at)
        await app.services.agents.instances.start(ADMIN, *at)  # changes nothing
        await app.services.agents.instances.pause(ADMIN, *at, note="why")
        await app.services.agents.instances.resume(ADMIN, *at)
        await app.services.agents.instances.stop(ADMIN, *at)
        entries = await app.services.admin.audit.list(LOCAL, "default")
        done = [
            (each.action, each.subject, each.details) for each in reversed(entries) if each.actor == "key:1"
        ]
    assert done == [
        ("instance.start", "counter/eu", "{}"),
        ("instance.pause", "counter/eu", '{"note":"why"}'),
        ("instance.resume", "counter/eu", "{}"),
        ("instance.stop", "counter/eu", "{}"),
    ]


@on_one_store
async def test_a_blocked_instance_shows_why_and_is_resumed(new_app: NewApp):
    async with started(new_app) as app:
        await handled(app, "add")

    def migrate(self: Any, state: Any, from_version: int) -> Any:
        if fixed:
            return state
        raise ValueError("what is this?")

    fixed: list[str] = []
    async with started(new_app, counter(version=2, migrate=migrate)) as app:
        await app.agents.start("counter", "eu")  # else it is tried once more if it blocks before it has 2
        run = await app.agents.send("counter", "eu", "add")
        await in_state(app, run.id, "retrying")
        info = await app.agents.instance("counter", "eu")
        assert (info.status, info.state) == ("blocked", {"count": 1, "seen": [], "token": "abc"})
        assert "cannot be migrated from version 1 to 2: ValueError: what is this?" in str(info.note)
        with pytest.raises(FailedPrecondition, match="is blocked already"):
            await app.agents.pause("counter", "eu")
        fixed.append("now")
        await app.agents.resume("counter", "eu")
        assert (await over(app, run.id)).state == "succeeded"
        assert (await app.agents.state("counter", "eu"))["count"] == 2


async def test_a_deploy_with_other_schedules_reaches_all_instances(new_app: NewApp):
    names = [f"i{number}" for number in range(5)]
    async with started(new_app) as app:
        for name in names:
            await app.agents.start("counter", name)
    changed = counter(version=2, schedules=[Schedule(SEVEN, "add", job_id="daily")])
    async with started(new_app, changed) as newer:
        for name in names:
            await has_schedules(newer, {SEVEN: True}, name)
        async with started(new_app) as older:  # with a lower version
            await older.agents.start("counter", "i0")
            await older.agents.start("counter", "late")
            await has_schedules(older, {SEVEN: True}, "i0")
            await has_schedules(older, {SEVEN: True}, "late")


async def test_an_agent_is_deleted_when_its_instances_are_stopped(new_app: NewApp):
    async with started(new_app) as app:
        await app.agents.start("counter", "eu")
        await handled(app, "add")
        with pytest.raises(FailedPrecondition, match="has 1 instance that is not stopped: stop it first"):
            await app.agents.delete("counter")
        await app.agents.stop("counter", "eu")
        await app.agents.delete("counter")
        with pytest.raises(NotFound, match="no agent 'counter'"):
            await app.agents.list("counter")
        with pytest.raises(NotFound, match="no agent 'counter'"):
            await app.agents.send("counter", "eu", "add")
    async with started(new_app) as app:
        await app.agents.start("counter", "eu")
        assert (await app.agents.state("counter", "eu"))["count"] == 0


@on_one_store
async def test_the_job_of_a_schedule_names_its_origin_and_id(new_app: NewApp):
    async with started(new_app) as app, served(app) as ask:
        await app.agents.start("counter", "eu")
        await handled(app, "cron.set")
        expected = {("declared", "daily"), ("dynamic", "mine")}
        instance = await app.agents.instance("counter", "eu")
        assert {(job.schedule_origin, job.schedule_id) for job in instance.schedules} == expected
        jobs = app.jobs.of("counter")
        assert {(job.schedule_origin, job.schedule_id) for job in await jobs.list()} == expected
        read = (await ask("GET", "/agents/counter/jobs")).body["jobs"]
        assert {(job["scheduleOrigin"], job["scheduleId"]) for job in read} == expected
        (plain,) = [await jobs.create("plain", schedule="@daily")]
        assert (plain.schedule_origin, plain.schedule_id) == (None, None)
        assert "scheduleId" not in (await ask("GET", "/agents/counter/jobs/plain")).body
