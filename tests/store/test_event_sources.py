"""Subscriptions to events: they follow their jobs, one worker acts at a time, and an event is one run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import NOW, SECOND, FalseClock, alone, asked, asleep, ended, held
from wakeful.errors import NotFound
from wakeful.run.incidents import IncidentState
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.signal.event_catalog import job_name
from wakeful.store.idempotency import AlreadyPerformed, Keyed
from wakeful.store.plans import LiveRuns, ManualRunPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunFilter
from wakeful.store.sql import event_sources
from wakeful.store.sql.event_figures import EventFigures
from wakeful.store.sql.event_sources import EventJob, EventSource
from wakeful.store.sql.incidents import IncidentFilter
from wakeful.store.sql.subscriptions import SubscriptionRow
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate
from wakeful.values.json_value import compact

_OPEN: tuple[IncidentState, ...] = ("open",)
_LEASE = 60 * SECOND


def _job(name: str = "triage", event: str = "e", **fields: object) -> JobRow:
    work = compact({"on": {"event": event, "server": "crm"}, "target": {"kind": "pull"}})
    return asleep(name, work=work, timing=None, next_ms=None, wake_ms=None, **fields)


def _read(job: EventJob) -> tuple[str, bytes | None] | None:
    return (job.work, b"secret") if '"server":"crm"' in job.work else None


async def _sync(store: Store) -> bool:
    return await store.sync_event_sources(NOW, "webhook", _read)


async def _given(store: Store) -> tuple[JobRow, EventSource]:
    job = _job()
    await store.create_jobs([job])
    assert await _sync(store)
    source = await store.event_source_of_job(job.id)
    assert source is not None
    return job, source


def _start(run: NewRun, live: LiveRuns) -> ManualRunPlan:
    return ManualRunPlan(run)


def _key(event: str) -> Keyed[object]:
    return Keyed("default", f"key of {event}", "e", lambda _: (204, ""))


async def test_subscriptions_follow_their_jobs(store: Store) -> None:
    other = asleep("other", work='{"target":{"kind":"webhook","headers":{"on":{"a":"b"}}}}')
    await store.create_jobs([other])
    assert not await _sync(store)
    job, first = await _given(store)
    assert (first.state, first.mode, first.secret, first.due_ms) == ("pending", "webhook", b"secret", NOW)
    assert not await _sync(store)

    changed = _job(event="f")

    async def change(**fields: Any) -> None:
        def apply(row: JobRow) -> JobChange:
            return JobChange(row._replace(version=row.version + 1, **fields))

        row = await store.change_job(job.id, apply)
        assert row is not None

    await change(description="the same event")
    assert await _sync(store)
    kept = await store.event_source_of_job(job.id)
    assert kept is not None
    assert (kept.id, kept.version) == (first.id, 2)

    await change(work=changed.work)
    assert await _sync(store)
    second = await store.event_source_of_job(job.id)
    old = await store.event_source(first.id)
    assert second is not None
    assert old is not None
    assert (old.state, second.state, second.source) == ("ending", "pending", changed.work)

    await change(enabled=False)
    assert await _sync(store)
    assert await store.event_source_of_job(job.id) is None
    assert not await _sync(store)


async def test_two_replicas_add_one_subscription_and_one_acts_at_a_time(
    database: Database, clock: FalseClock
) -> None:
    one, two = await database.connect(), await database.connect()
    job = _job()
    await one.create_jobs([job])
    await asyncio.gather(*(_sync(each) for each in (one, two, one, two)))
    taken = await asyncio.gather(
        *(each.take_event_sources(NOW, name, NOW + _LEASE, 8) for each, name in ((one, "w1"), (two, "w2")))
    )
    (source,) = [each for sources in taken for each in sources]
    first, other = ("w1", "w2") if taken[0] else ("w2", "w1")
    assert await one.next_event_source_ms(0) == NOW + _LEASE
    assert await one.take_event_sources(NOW, other, NOW + _LEASE, 8) == []

    # The first one dies: after its lease another acts, and what the first one writes is fenced.
    (again,) = await two.take_event_sources(NOW + _LEASE, other, NOW + 2 * _LEASE, 8)
    active = again._replace(state="active", remote_id="sub_1", due_ms=NOW + 9 * _LEASE)
    assert not await one.save_event_source(first, active)
    assert await two.save_event_source(other, active)
    found = await one.event_source(source.id)
    assert found == active._replace(worker=None)


async def test_an_event_is_one_run_and_moves_the_position_with_it(store: Store) -> None:
    job, source = await _given(store)
    add = store.add_event_run
    run = asked(job, trigger="event")
    await add(source.id, "7", run, _start, _key("1"), job.version)
    with pytest.raises(AlreadyPerformed):
        await add(source.id, "8", asked(job, trigger="event"), _start, _key("1"), job.version)
    found = await store.event_source(source.id)
    assert found is not None
    assert (found.position, found.received_ms) == ("7", NOW), "a repetition changes nothing"
    assert [each.id for each in await store.runs(RunFilter("default"))] == [run.id]

    await store.repeat_event(source.id, "8")
    assert (await store.event_source(source.id) or source).position == "8"

    await store.delete_job(job.id, NOW, "deleted")
    assert await _sync(store)
    with pytest.raises(NotFound):
        await store.repeat_event(source.id, "9")
    with pytest.raises(NotFound):
        await add(source.id, "9", asked(job, trigger="event"), _start, _key("2"), job.version)
    assert len(await store.runs(RunFilter("default"))) == 1


async def test_a_problem_is_a_skipped_run_and_an_incident_once(store: Store) -> None:
    job, source = await _given(store)
    for number in range(2):
        run = asked(job, trigger="event", state="skipped", reason="event_gap", due_ms=None, finished_ms=NOW)
        lost = Finished(run.id, job.id, 0, "failed", NOW, NOW, error="lost", reason="event_gap")
        try:
            await store.record_event_problem(source.id, "9", run, lost, _key("gap"), NOW + SECOND)
        except AlreadyPerformed:
            assert number == 1
    (incident,) = await store.incidents(IncidentFilter("default", states=_OPEN))
    assert (incident.cause, incident.failed_runs) == ("event_gap", 1)
    found = await store.event_source(source.id)
    assert found is not None
    assert (found.state, found.error, found.due_ms, found.position) == ("failed", "lost", NOW + SECOND, "9")


async def test_no_statement_reads_jobs_without_events(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    db = store._connection._write_connection()
    id_ = "01900000-0000-7000-8000-000000000000"
    cases = (
        (event_sources.CHANGED, ()), (event_sources.DUE, (NOW, 9)), (event_sources.NEXT, (NOW,)),
        (event_sources.SOURCE, (id_,)), (event_sources.OF_JOB, (id_,)), (event_sources.ORPHANS, ()),
    )  # fmt: skip
    steps = {
        step[3]
        for statement, given in cases
        for step in db.execute(f"EXPLAIN QUERY PLAN {translate(statement)}", given)
        if step[3].startswith("SCAN")
    }
    await store.close()
    assert steps == {"SCAN j USING INDEX jobs_on_event", "SCAN s USING INDEX event_sources_job"}


async def test_subscriptions_that_no_process_keeps_any_more_are_deleted(store: Store) -> None:
    job, source = await _given(store)
    assert await store.prune_event_sources(source.due_ms) == 0
    assert await store.prune_event_sources(source.due_ms + 1) == 1
    assert await store.event_source_of_job(job.id) is None
    assert await _sync(store), "it begins anew when its server is back"


async def test_figures_of_events_are_of_a_workspace_or_of_all(store: Store) -> None:
    assert await store.event_figures(None) == EventFigures(0, 0, None, {}, None)
    job, source = await _given(store)
    skipped = asked(job, trigger="event", state="skipped", reason="event_ended", due_ms=None, finished_ms=NOW)
    end = Finished(skipped.id, job.id, 0, "failed", NOW, NOW, error="no such event", reason="event_ended")
    await store.record_event_problem(source.id, None, skipped, end, None, NOW + _LEASE)
    delivery = asleep(job_name("sub_" + "0" * 32), timing=None)
    made = "key:1", "job.changed", "{}", "https://a.example/", delivery.id, 0, NOW, NOW
    row = SubscriptionRow("sub_" + "0" * 32, "default", "default", *made)
    await store.subscribe(row, delivery, lambda _: [])
    figures = await store.event_figures(None)
    assert figures[:2] == (1, 0)
    assert figures[3:] == ({"failed": 1}, NOW + _LEASE)
    assert figures.oldest_ms is not None, "the feeder has not seen that its job was added"
    other = await store.event_figures("other")
    assert other == EventFigures(0, 0, figures.oldest_ms, {}, None)
    run = held(asked(delivery, NOW))
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "failed", reason="http", error="503")], alone)
    assert (await store.event_figures("default")).failing == 1
