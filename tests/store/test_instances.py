"""Agent classes and instances: what the database knows of them, and how operators change them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.databases import Database, SqliteDatabase
from tests.support.factories import DAY, MINUTE, NOW, alone, look
from tests.support.instances import (
    MAILBOX,
    agent_class,
    arrival,
    done,
    given_sent,
    key_of,
    new_instance,
    taken,
    view,
)
from tests.support.notifications import NotificationRecorder
from wakeful.document import Defaults, read_definition
from wakeful.errors import NotFound, ResourceExhausted
from wakeful.job.job import ScheduleKey
from wakeful.run.instances import (
    DeclaredSchedule,
    InstanceLimits,
    schedule_job_name,
)
from wakeful.run.job_transitions import schedule_job
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import AlreadyPerformed, Keyed
from wakeful.store.instances import (
    InstanceChange,
    InstanceFilter,
    InstanceRow,
)
from wakeful.store.port import Store
from wakeful.store.quotas import INSTANCES
from wakeful.store.row_mapping import job_to_row
from wakeful.store.rows import JobRow, RunFilter

pytestmark = pytest.mark.usefixtures("classes")

ENTRY = AuditEntry("default", "python", "instance.start", "report/eu", "{}", None)


async def _start(store: Store, name: str = "eu", agent: str = "report", **fields: Any) -> InstanceRow:
    """Add an instance without signals."""
    limits = fields.pop("limits", None)
    new = new_instance(name, **fields)
    row = await store.change_instance(
        "default", agent, name, NOW, lambda old, jobs: InstanceChange(new), limits=limits
    )
    assert row is not None
    return row


async def _change(
    store: Store, name: str = "eu", *, change: dict[str, Any] | None = None, **fields: Any
) -> None:
    """Change an instance that exists: fields of its row, and of the change."""

    def rule(old: InstanceRow | None, schedules: object) -> InstanceChange:
        assert old is not None
        return InstanceChange(old._replace(**fields), **(change or {}))

    await store.change_instance("default", "report", name, NOW, rule)


def _schedule(schedule_id: str, name: str = "eu", expr: str = "0 6 * * *", **fields: Any) -> JobRow:
    """Return the job of a declared schedule."""
    definition = read_definition(
        {
            "name": schedule_job_name(name, "declared", schedule_id),
            "schedule": expr,
            "target": {"kind": "agent", "instance": name, "signal": "report.generate"},
        },
        now_ms=NOW,
        defaults=Defaults(),
    )
    key = ScheduleKey(key_of(name), "declared", schedule_id)
    job = schedule_job(key, "default", "report", definition, None, NOW, "system")
    assert job is not None
    return job_to_row(job)._replace(**fields)


# --- classes --------------------------------------------------------------------------------------------


async def test_a_class_is_read_as_it_was_written_and_adds_its_agent(store: Store) -> None:
    assert await store.agent_class("default", "new") is None
    written = agent_class(
        agent="new", mailbox=7, dedupe_ms=MINUTE, lane="main", hash="abc",
        handles=("report.*", "wakeful.job"),
        schedules=(DeclaredSchedule("daily", {"schedule": "0 6 * * *", "tz": "Europe/Berlin"}),),
    )  # fmt: skip
    assert await store.put_class(written, NOW) == written
    assert await store.agent_class("default", "new") == written
    assert await store.agent("default", "new") is not None


async def test_a_lower_version_does_not_overwrite_a_higher_one(store: Store) -> None:
    newer = agent_class(version=3, mailbox=3)
    await store.put_class(agent_class(version=1), NOW)
    await store.put_class(newer, NOW)
    assert await store.put_class(agent_class(version=2), NOW) == newer
    changed = newer._replace(mailbox=5)
    assert await store.put_class(changed, NOW) == changed


# --- instances ------------------------------------------------------------------------------------------


async def test_an_instance_is_written_as_the_rule_returns_it(store: Store) -> None:
    new = new_instance(data='{"n":1}', version=2, revision=5, memory="{}", schedules_hash="abc",
                       schedules_version=2, note="x")  # fmt: skip
    assert await _start(store, **{name: getattr(new, name) for name in new._fields if name != "name"}) == new
    found = await view(store)
    assert (found.row, found.waiting, found.active_run) == (new, 0, None)


async def test_the_number_of_the_last_signal_is_not_changed_by_a_rule(store: Store) -> None:
    await given_sent(store, "eu", "eu")
    await _change(store, sequence=0, status="paused")
    assert (await view(store)).row.sequence == 2


async def test_a_rule_that_returns_nothing_changes_nothing_and_writes_no_entry(store: Store) -> None:
    row = await store.change_instance("default", "report", "eu", NOW, lambda old, jobs: None, [ENTRY])
    assert row is None
    assert await store.instance("default", "report", "eu") is None
    assert await store.audit("default") == []


async def test_a_change_writes_its_entries_and_its_response_once(store: Store) -> None:
    keyed: Keyed[InstanceRow | None] = Keyed("default", "k", "f", lambda row: (200, row.name if row else ""))

    def rule(old: InstanceRow | None, jobs: object) -> InstanceChange:
        return InstanceChange(new_instance())

    await store.change_instance("default", "report", "eu", NOW, rule, [ENTRY], keyed=keyed)
    with pytest.raises(AlreadyPerformed):
        await store.change_instance("default", "report", "eu", NOW, rule, [ENTRY], keyed=keyed)
    assert [entry.action for entry in await store.audit("default")] == ["instance.start"]


async def test_sending_writes_its_entries_and_its_response_once(store: Store) -> None:
    def keyed(key: str) -> Keyed[Any]:
        return Keyed("default", key, "f", lambda received: (202, received[0].run.id))

    (first,) = await store.send([arrival(signal_id="a")], MAILBOX, entries=[ENTRY], keyed=keyed("k"))
    with pytest.raises(AlreadyPerformed) as performed:
        await store.send([arrival(signal_id="b")], MAILBOX, entries=[ENTRY], keyed=keyed("k"))
    assert performed.value.response.body == first.run.id
    await store.send([arrival(signal_id="a")], MAILBOX, entries=[ENTRY])  # a duplicate changes nothing
    assert len(await store.audit("default")) == 1


async def test_instances_are_listed_by_agent_and_name_with_their_runs(store: Store) -> None:
    for name in ("us", "eu", "asia"):
        await _start(store, name)
    await _start(store, "eu", agent="other")
    await given_sent(store, "eu", "eu", "us")
    runs = {run.instance: run.id for run in await taken(store)}
    found = await store.instances(InstanceFilter("default", "report"))
    assert [(each.row.name, each.waiting, each.active_run) for each in found] == [
        ("asia", 0, None), ("eu", 1, runs["eu"]), ("us", 0, runs["us"]),
    ]  # fmt: skip
    every = [(each.row.agent, each.row.name) for each in await store.instances(InstanceFilter("default"))]
    assert every == [("other", "eu"), ("report", "asia"), ("report", "eu"), ("report", "us")]
    page = await store.instances(InstanceFilter("default", after=("report", "asia"), limit=1))
    assert [each.row.name for each in page] == ["eu"]
    await _change(store, "us", status="paused", note="holiday")
    paused = await store.instances(InstanceFilter("default", status="paused"))
    assert [(each.row.name, each.row.note) for each in paused] == [("us", "holiday")]


async def test_runs_of_an_instance_are_listed_newest_first(store: Store) -> None:
    first, _, third = await given_sent(store, "eu", "us", "eu")
    found = await store.runs(RunFilter("default", instance_id=key_of()))
    assert [run.id for run in found] == [third, first]
    waiting = await store.runs(RunFilter("default", instance_id=key_of(), states=("pending",), limit=1))
    assert [run.id for run in waiting] == [third]


# --- stop and schedules ---------------------------------------------------------------------------------


async def test_stopping_cancels_pending_and_retrying_runs_and_deletes_schedules(store: Store) -> None:
    first, second = await given_sent(store, "eu", "eu")
    (run,) = await taken(store)
    await store.finish("w1", [done(run, "retrying", due_ms=NOW + DAY)], alone)
    daily = _schedule("daily")
    await _change(store, change={"created": (daily,)})
    assert [row.id for row in await store.schedules(key_of())] == [daily.id]
    await _change(store, status="stopped", change={"deleted": (daily.id,), "cancel": "stopped"})
    for run_id in (first, second):
        seen = await look(store, run_id)
        assert (seen.state, seen.reason) == ("cancelled", "stopped")
    assert await store.schedules(key_of()) == []
    assert await store.job_by_id(daily.id) is None


async def test_a_stop_can_cancel_the_running_run_whose_outcome_is_dropped(
    store: Store, recorder: NotificationRecorder
) -> None:
    await given_sent(store, "eu")
    (run,) = await taken(store)
    await recorder.next_event("runs")
    await _change(store, status="stopped", change={"cancel": "stopped"})
    assert (await look(store, run)).state == "running"
    await _change(store, change={"cancel": "stopped", "cancel_running": True})
    assert f"stop:{run.id}" in await recorder.next_event(f"stop:{run.id}")
    assert (await look(store, run)).state == "cancelled"
    assert await store.finish("w1", [done(run, data='{"n":1}')], alone) == set()
    assert (await view(store)).row.data is None


async def test_a_changed_schedule_withdraws_ticks_that_it_no_longer_has(store: Store) -> None:
    daily = _schedule("daily")
    await _start(store)
    await _change(store, change={"created": (daily,)})
    tick = arrival(at=NOW + DAY).run._replace(job_id=daily.id, job_name=daily.name, trigger="schedule")
    await store.add_runs([tick])
    other = _schedule("daily", expr="30 7 * * *")
    await _change(store, change={"changed": (daily._replace(timing=other.timing, next_ms=other.next_ms),)})
    (after,) = await store.schedules(key_of())
    assert (after.id, after.timing, after.version) == (daily.id, other.timing, 2)
    assert (await look(store, tick)).state == "cancelled"


async def test_a_schedule_that_is_deleted_while_a_tick_is_due_leaves_a_record(store: Store) -> None:
    daily = _schedule("daily", next_ms=NOW - MINUTE, wake_ms=NOW - MINUTE)
    await _start(store)
    await _change(store, change={"created": (daily,)})
    await _change(store, change={"deleted": (daily.id,)})
    (missed,) = await store.runs(RunFilter("default", job_id=daily.id))
    assert (missed.state, missed.reason) == ("missed", "deleted")


async def test_the_identity_of_a_schedule_is_unique(store: Store) -> None:
    daily = _schedule("daily")
    await _start(store)
    await _change(store, change={"created": (daily,)})
    copy = _schedule("daily")._replace(name="another-name")
    with pytest.raises(Exception):  # noqa: B017, PT011 (each database has its own error)
        await _change(store, change={"created": (copy,)})
    await _change(store, change={"created": (copy,), "deleted": (daily.id,)})
    assert [row.id for row in await store.schedules(key_of())] == [copy.id]


async def test_stale_instances_have_other_schedules_of_the_same_or_a_lower_version(store: Store) -> None:
    present = agent_class(version=2, hash="m")
    for name, hash_, version, status in (
        ("same", "m", 2, "active"),
        ("new", "", 0, "active"),
        ("older", "z", 1, "paused"),
        ("newer", "a", 3, "active"),
        ("stopped", "", 0, "stopped"),
    ):
        await _start(store, name, schedules_hash=hash_, schedules_version=version, status=status)
    assert sorted(await store.stale_instances(present, 10)) == ["new", "older"]
    assert len(await store.stale_instances(present, 1)) == 1
    assert await store.stale_instances(present._replace(agent="other"), 10) == []


async def test_hibernation_is_recorded_and_published_on_request(
    store: Store, recorder: NotificationRecorder
) -> None:
    await _start(store)
    await store.record_hibernation([key_of()], NOW)
    assert (await view(store)).row.hibernated_ms == NOW
    await store.record_hibernation([key_of()], NOW + 1, publish=True)
    topic = f"hibernate:{key_of()}"
    assert [each for each in await recorder.next_event(topic) if each.startswith("hib")] == [topic]
    assert (await view(store)).row.hibernated_ms == NOW + 1


# --- limits ---------------------------------------------------------------------------------------------


async def test_the_number_of_instances_of_an_agent_is_limited(store: Store) -> None:
    limits = InstanceLimits(per_agent=2)
    await store.send([arrival("a"), arrival("b"), arrival("a")], MAILBOX, limits)
    with pytest.raises(ResourceExhausted, match=r"agent 'report' .* may have 2 instances \(instances\)"):
        await store.send([arrival("a"), arrival("c")], MAILBOX, limits)
    with pytest.raises(ResourceExhausted):
        await _start(store, "c", limits=limits)
    assert await store.instance("default", "report", "c") is None
    assert len(await store.send([arrival("a")], MAILBOX, limits)) == 1
    await _change(store, "b", status="stopped")  # a stopped one does not count
    await _start(store, "c", limits=limits)
    with pytest.raises(ResourceExhausted):
        await _restart(store, "b", limits)


async def _restart(store: Store, name: str, limits: InstanceLimits) -> None:
    def rule(old: InstanceRow | None, jobs: object) -> InstanceChange:
        assert old is not None
        return InstanceChange(old._replace(status="active"))

    await store.change_instance("default", "report", name, NOW, rule, limits=limits)


async def test_the_number_of_instances_of_a_workspace_is_limited(store: Store) -> None:
    limits = InstanceLimits(per_workspace=1, per_agent=5)
    await _start(store, "a", limits=limits)
    with pytest.raises(ResourceExhausted, match="workspace 'default' may have 1 instance "):
        await _start(store, "b", agent="other", limits=limits)


async def test_a_signal_for_existing_instances_adds_none(store: Store) -> None:
    await store.send([arrival("a")], MAILBOX)
    existing = InstanceLimits(may_add=False)
    assert len(await store.send([arrival("a")], MAILBOX, existing)) == 1
    with pytest.raises(NotFound):
        await store.send([arrival("a"), arrival("b")], MAILBOX, existing)
    assert await store.instance("default", "report", "b") is None
    view = await store.instance("default", "report", "a")
    assert view is not None
    assert view.waiting == 2


async def test_a_quota_takes_precedence_over_the_limit_and_use_is_counted(store: Store) -> None:
    await store.set_quota("default", "report", INSTANCES, 1)
    await _start(store, "a", limits=InstanceLimits(per_agent=5))
    with pytest.raises(ResourceExhausted, match="may have 1 instance "):
        await _start(store, "b", limits=InstanceLimits(per_agent=5))
    found = {
        (row.agent, row.limit, row.used)
        for row in await store.quotas("default", NOW)
        if row.bucket == INSTANCES
    }
    assert found == {("", None, 1), ("report", 1, 1)}


async def test_the_database_itself_refuses_a_second_run_that_can_be_taken(
    store: Store, database: Database
) -> None:
    first, second = await given_sent(store, "eu", "eu")
    table = "runs" if isinstance(database, SqliteDatabase) else "live_runs"
    with pytest.raises(Exception, match=r"(?i)unique"):
        await database.execute(f"UPDATE {table} SET due_at = fire_at")
    assert [run.id for run in await taken(store)] == [first]
    assert (await look(store, second)).due_ms is None
