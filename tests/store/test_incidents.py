"""Incidents, written in the transaction of the outcome."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SAYS,
    SECOND,
    alone,
    asked,
    ended,
    given_alerts,
    given_job,
    held,
    ticks_of,
)
from tests.support.notifications import NotificationRecorder
from wakeful.run.alerts import DueIncident, Notification, decide
from wakeful.run.consequences import Effects, Facts
from wakeful.run.incidents import Incident, acknowledge
from wakeful.run.outcome import Finished
from wakeful.store.audit import AuditEntry
from wakeful.store.internal_jobs import ALERT_JOBS, WORKSPACE_ALERTS
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql.incidents import IncidentFilter
from wakeful.values.ids import new_id

AT = NOW + SECOND


async def ends(store: Store, job: JobRow, state: str = "failed", **fields: Any) -> Finished:
    """End a run of the job."""
    run = held(asked(job))
    await store.add_runs([run])
    outcome = ended(run, state, **{"reason": "timeout" if state == "failed" else None, **fields})
    assert await store.finish("w1", [outcome], alone) == {run.id}
    return outcome


async def listed(store: Store, **only: Any) -> list[Incident]:
    return await store.incidents(IncidentFilter("default", **only))


async def notify(store: Store, at: int = AT) -> tuple[int, int | None]:
    return await store.notify_incidents(at, 100, lambda due: decide(due, at))


async def test_failures_of_one_job_with_one_cause_are_one_incident(store: Store) -> None:
    job = await given_job(store)
    first = await ends(store, job, error="no")
    last = await ends(store, job, error="again\x00no", finished_ms=AT + 5)
    (incident,) = await listed(store)
    assert incident == Incident(
        incident.id, "default", "default", job.id, "digest", "timeout", "again\ufffdno", AT, AT + 5, 2, 2,
        first.run_id, last.run_id,
    )  # fmt: skip
    assert await store.incident("default", incident.id) == incident
    assert await store.incident("other", incident.id) is None


async def test_another_cause_and_another_job_are_other_incidents(store: Store) -> None:
    job, other = await given_job(store), await given_job(store, "other")
    await ends(store, job)
    await ends(store, job, reason="http", response_code=503)
    await ends(store, other)
    found = [(each.job_name, each.cause, each.in_a_row) for each in await listed(store)]
    assert found == [("other", "timeout", 1), ("digest", "http 503", 2), ("digest", "timeout", 1)]


async def test_a_success_recovers_all_incidents_of_its_job(store: Store) -> None:
    job, other = await given_job(store), await given_job(store, "other")
    for each, reason in ((job, "timeout"), (job, "lost"), (other, "lost")):
        await ends(store, each, reason=reason)
    done = await ends(store, job, "succeeded", finished_ms=AT + 9)
    found = {(each.job_name, each.cause): each for each in await listed(store)}
    assert {key: each.state for key, each in found.items()} == {
        ("digest", "timeout"): "recovered", ("digest", "lost"): "recovered", ("other", "lost"): "open",
    }  # fmt: skip
    recovered = found["digest", "lost"]
    assert (recovered.closed_ms, recovered.closed_by_run) == (AT + 9, done.run_id)


async def test_a_success_recovers_an_incident_whose_job_has_no_failures_any_more(store: Store) -> None:
    job = await given_job(store)
    await ends(store, job)
    await store.change_job(job.id, lambda row: JobChange(row._replace(failures=0)))
    await ends(store, job, "succeeded")
    assert [each.state for each in await listed(store)] == ["recovered"]


async def test_a_plain_success_reads_no_incidents(store: Store) -> None:
    seen: list[Facts] = []

    def watch(outcomes: Any, facts: Facts) -> Effects:
        seen.append(facts)
        return alone(outcomes, facts)

    run = held(asked(await given_job(store)))
    await store.add_runs([run])
    await store.finish("w1", [ended(run)], watch)
    assert [(facts.failures, facts.incident_jobs, facts.incidents) for facts in seen] == [({}, {}, ())]


async def test_only_a_failed_run_is_an_incident(store: Store) -> None:
    job = await given_job(store)
    for state in ("succeeded", "retrying", "skipped", "cancelled"):
        await ends(store, job, state, due_ms=NOW + DAY if state == "retrying" else None)
    assert await listed(store) == []


async def test_a_failed_alert_is_no_incident(store: Store) -> None:
    for name in ALERT_JOBS:
        await ends(store, await given_job(store, name))
    assert await listed(store) == []


async def test_a_failure_soon_after_the_recovery_opens_the_same_incident(store: Store) -> None:
    job = await given_job(store)
    await ends(store, job)
    await ends(store, job, "succeeded")
    await ends(store, job, finished_ms=AT + MINUTE)
    (incident,) = await listed(store)
    assert (incident.state, incident.reopened, incident.failed_runs) == ("open", 1, 2)
    await ends(store, job, "succeeded", finished_ms=AT + MINUTE)
    await ends(store, job, finished_ms=AT + DAY)
    assert [each.state for each in await listed(store)] == ["open", "recovered"]


@pytest.mark.parametrize("reason", ["job_deleted", "job_disabled"])
async def test_the_end_of_a_job_closes_its_incidents(store: Store, reason: str) -> None:
    job, other = await given_job(store), await given_job(store, "other")
    await ends(store, job)
    await ends(store, other)
    seen = await store.last_change()
    if reason == "job_deleted":
        await store.delete_job(job.id, NOW, "deleted")
    else:
        await store.change_job(job.id, lambda row: JobChange(row._replace(enabled=False)))
    found = {each.job_name: each for each in await listed(store)}
    assert (found["digest"].state, found["digest"].closed_reason) == ("closed", reason)
    assert found["other"].state == "open"
    kinds = [row.kind for row in await store.changes(seen)]
    assert "incident.closed" in kinds


async def test_a_job_that_is_disabled_because_it_failed_keeps_its_incident(store: Store) -> None:
    job = await given_job(store)
    await ends(store, job, disable_job="gone")
    assert [each.state for each in await listed(store)] == ["open"]


async def test_a_failure_of_a_deleted_job_is_no_incident(store: Store) -> None:
    job = await given_job(store)
    run = held(asked(job))
    await store.add_runs([run])
    await store.delete_job(job.id, NOW, "deleted")
    await store.finish("w1", [ended(run, "failed")], alone)
    assert await listed(store) == []


async def test_a_fenced_outcome_changes_no_incident(store: Store) -> None:
    job = await given_job(store)
    run = held(asked(job))
    await store.add_runs([run])
    assert await store.finish("another", [ended(run, "failed")], alone) == set()
    assert await listed(store) == []


async def test_incidents_are_listed_by_state_agent_and_job(store: Store) -> None:
    jobs = [await given_job(store, f"job-{number}") for number in range(3)]
    for job in jobs:
        await ends(store, job)
    await ends(store, jobs[0], "succeeded")
    newest, middle, oldest = await listed(store)
    await store.acknowledge_incident("default", middle.id, lambda row: acknowledge(row, AT, "ada", None))

    async def names(**only: Any) -> list[str]:
        return [each.job_name for each in await listed(store, **only)]

    assert await names() == ["job-2", "job-1", "job-0"]
    assert await names(limit=1) == ["job-2"]
    assert await names(before=middle.id) == ["job-0"]
    assert await names(before="no id") == []
    assert await names(states=("open",)) == ["job-2"]
    assert await names(states=("acknowledged",)) == ["job-1"]
    assert await names(states=("open", "acknowledged")) == ["job-2", "job-1"]
    assert await names(states=("recovered", "closed")) == ["job-0"]
    assert await names(agent="default", states=("recovered",)) == ["job-0"]
    assert await names(agent="other") == []
    assert await names(job="job-1") == await names(job=jobs[1].id) == ["job-1"]
    assert await names(job=new_id(NOW)) == []
    assert (newest.state, oldest.state) == ("open", "recovered")


async def test_an_acknowledgement_is_written_once_with_its_audit_entry(store: Store) -> None:
    await ends(store, await given_job(store))
    (incident,) = await listed(store)
    entry = AuditEntry("default", "key:1", "incident.acknowledge", incident.id, "{}", None)
    seen = await store.last_change()

    def change(row: Incident) -> Incident | None:
        return acknowledge(row, AT, "ada", "known") if row.acknowledged_ms is None else None

    for _ in range(2):
        found = await store.acknowledge_incident("default", incident.id, change, [entry])
        assert found is not None
        assert (found.state, found.acknowledged_by, found.note) == ("acknowledged", "ada", "known")
    assert len(await store.audit("default")) == 1
    assert [(row.kind, row.items) for row in await store.changes(seen)] == [
        ("incident.acknowledged", (incident.id,))
    ]
    for missing in (("other", incident.id), ("default", new_id(NOW)), ("default", "no id")):
        assert await store.acknowledge_incident(*missing, change, [entry]) is None


async def test_closed_incidents_are_pruned(store: Store) -> None:
    job, other = await given_job(store), await given_job(store, "other")
    await ends(store, job)
    await ends(store, job, "succeeded")
    await ends(store, other)
    await store.prune_incidents(AT)
    assert len(await listed(store)) == 2
    await store.prune_incidents(AT + 1)
    assert [each.job_name for each in await listed(store)] == ["other"]


# --- messages ----------------------------------------------------------------------------------------------


async def given_alerted(store: Store) -> tuple[JobRow, JobRow]:
    """Return a job, and the job that sends its alerts."""
    await given_alerts(store, workspace=SAYS)
    return await given_job(store), await given_job(store, WORKSPACE_ALERTS)


async def test_an_incident_is_announced_to_the_alerter(store: Store, recorder: NotificationRecorder) -> None:
    job, _ = await given_alerted(store)
    recorder.topics.clear()
    await ends(store, job)
    await recorder.next_event("incidents")


async def test_the_day_of_an_incident(store: Store) -> None:
    job, sender = await given_alerted(store)
    for _ in range(3):
        await ends(store, job)
    assert await notify(store) == (1, AT + DAY)
    assert len(await ticks_of(store, sender)) == 1
    assert await notify(store, AT + DAY - 1) == (0, AT + DAY)
    assert await notify(store, AT + DAY) == (1, None)
    assert len(await ticks_of(store, sender)) == 2
    await ends(store, job, "succeeded", finished_ms=AT + DAY + 1)
    assert await notify(store, AT + DAY + 1) == (1, None)
    assert await notify(store, AT + 9 * DAY) == (0, None)
    runs = await ticks_of(store, sender)
    assert {(run.state, run.trigger) for run in runs} == {("pending", "alert")}
    assert ["dead_letter" in (run.payload or "") for run in runs] == [False] * 3  # in a row: 3
    assert [kind in (run.payload or "") for run, kind in zip(runs, KINDS, strict=True)] == [True] * 3


KINDS = ('"failures"', '"reminder"', '"recovered"')


async def test_an_acknowledged_incident_is_not_reminded_of(store: Store) -> None:
    job, sender = await given_alerted(store)
    await ends(store, job)
    await notify(store)
    (incident,) = await listed(store)
    await store.acknowledge_incident("default", incident.id, lambda row: acknowledge(row, AT, "ada", None))
    assert await notify(store, AT + 2 * DAY) == (0, None)
    assert len(await ticks_of(store, sender)) == 1


async def test_the_cooldown_counts_from_the_last_alert_about_the_same_job_and_cause(store: Store) -> None:
    job, _ = await given_alerted(store)
    await ends(store, job)
    await notify(store)
    await ends(store, job, "succeeded")
    await notify(store)
    await ends(store, job, finished_ms=AT + DAY)
    seen: list[DueIncident] = []

    def look(due: DueIncident) -> Notification:
        seen.append(due)
        return Notification(due.incident._replace(notify_ms=AT - DAY))

    await store.notify_incidents(AT + DAY, 10, look)
    await store.notify_incidents(AT - DAY, 10, look)  # the clock was wrong when the alert was sent
    (new, alerted_ms, recipients), (_, of_the_future_ms, _) = seen
    assert (new.alerted_ms, alerted_ms, recipients.alerts) == (None, AT, SAYS)
    assert of_the_future_ms is None


async def test_an_exception_in_decide_keeps_the_incident_due(store: Store) -> None:
    job, sender = await given_alerted(store)
    await ends(store, job)

    def broken(due: DueIncident) -> Notification:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        await store.notify_incidents(AT, 10, broken)
    assert await notify(store) == (1, AT + DAY)
    assert len(await ticks_of(store, sender)) == 1


async def test_replicas_send_each_message_once(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    _, sender = await given_alerted(stores[0])
    jobs = [await given_job(stores[0], f"job-{number}") for number in range(6)]
    for job in jobs:
        await ends(stores[0], job)
    for at, sent in ((AT, 6), (AT + DAY, 12), (AT + 2 * DAY, 12)):
        taken = [
            store.notify_incidents(at, 2, lambda due, at=at: decide(due, at))  # type: ignore[misc]
            for store in stores * 4
        ]
        await asyncio.gather(*taken)
        assert len(await ticks_of(stores[0], sender)) == sent


async def test_concurrent_outcomes_of_one_job_open_one_incident(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    job, _ = await given_alerted(stores[0])
    runs = [held(asked(job), f"w{number % 4}") for number in range(24)]
    await stores[0].add_runs(runs)
    await asyncio.gather(
        *(
            stores[number % 4].finish(f"w{number % 4}", [ended(run, "failed", reason="lost")], alone)
            for number, run in enumerate(runs)
        )
    )
    (incident,) = await listed(stores[0])
    assert (incident.failed_runs, incident.in_a_row) == (24, 24)
    # Failures and successes at once: whatever their order, each cause is open at most once.
    runs = [held(asked(job), f"w{number % 4}") for number in range(24)]
    await stores[0].add_runs(runs)
    await asyncio.gather(
        *(
            stores[number % 4].finish(
                f"w{number % 4}",
                [ended(run, "succeeded" if number % 3 else "failed", reason=None if number % 3 else "lost")],
                alone,
            )
            for number, run in enumerate(runs)
        )
    )
    found = await listed(stores[0])
    assert sum(each.failed_runs for each in found) == 32
    assert len([each for each in found if each.is_open]) <= 1


async def test_a_failure_that_an_earlier_version_queued_becomes_an_incident(store: Store) -> None:
    job, sender = await given_alerted(store)
    outcome = await ends(store, job)
    (incident,) = await listed(store)
    await store.prune_incidents(0)
    statement = (
        "INSERT INTO incidents (at, kind, workspace, agent, job_id, run_id, count, details) "
        "SELECT opened_at, 'failed', workspace, agent, job_id, last_run_id, 1, '{}' FROM job_incidents"
    )
    forget = "DELETE FROM job_incidents"

    async def queue(db: Any, events: Any) -> None:
        session = store._driver.session(db)
        await session.execute(statement)
        await session.execute(forget)

    await store._driver.write(queue)
    assert await listed(store) == []
    assert await store.raise_alerts(AT, 10, lambda event: ()) == 1
    (adopted,) = await listed(store)
    assert (adopted.cause, adopted.last_run_id) == (incident.cause, outcome.run_id)
    assert await notify(store) == (1, AT + DAY)
    assert len(await ticks_of(store, sender)) == 1


async def test_an_aborted_transaction_leaves_neither_outcome_nor_incident(store: Store) -> None:
    job, _ = await given_alerted(store)
    run = held(asked(job))
    await store.add_runs([run])

    def crash(outcomes: Any, facts: Facts) -> Effects:
        raise OSError(os.EX_IOERR, "the process ends here")

    with pytest.raises(Exception, match="the process ends here"):
        await store.finish("w1", [ended(run, "failed")], crash)
    assert await listed(store) == []
    assert await store.finish("w1", [ended(run, "failed", reason="lost")], alone) == {run.id}
    assert [each.cause for each in await listed(store)] == ["lost"]
