"""The event feeder: every event becomes one run per subscription, in order, whatever replicas do."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pytest

from tests.store.test_signal_outcomes import _running as running_signal
from tests.store.test_verifications import report
from tests.support.factories import NOW, FalseClock, alone, asked, asleep, ended, given_held, held
from tests.support.instances import done
from wakeful.engine import event_facts, event_feeder
from wakeful.engine.event_facts import Fact, read_facts
from wakeful.engine.event_feeder import Batch, EventFeeder, Subscribers, deliveries
from wakeful.run.run import NewRun
from wakeful.signal.event_catalog import EVENTS, job_name, passes
from wakeful.signal.mcp_events import subscription_id
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunFilter, RunView
from wakeful.store.sql.subscriptions import EventPosition, EventsMoved, SubscriptionRow
from wakeful.values import ids
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json, compact


async def _subscribe(
    store: Store,
    event: str,
    arguments: str,
    number: int,
    position: int | None = None,
    ends_ms: int | None = None,
    timing: str | None = None,
) -> SubscriptionRow:
    url = f"https://a.example/{number}"
    identity = subscription_id("key:1", url, event, {})
    job = asleep(job_name(identity))._replace(timing=timing)
    owner = "default", "default", "key:1"
    row = SubscriptionRow(identity, *owner, event, arguments, url, job.id, position or 0, NOW, NOW, ends_ms)
    return await store.subscribe(row, job, lambda written: [], runs=None if position is None else [])


async def _delivered(store: Store, row: SubscriptionRow) -> list[dict[str, str]]:
    runs = await store.runs(RunFilter("default", None, row.job_id, limit=1_000))
    events = [
        json.loads(run.payload or "") for run in sorted(runs, key=lambda run: (run.scheduled_ms, run.id))
    ]
    assert {run.trigger for run in runs} <= {"event"}
    return events


class _Feeder:
    """A replica that stops between two statements, and goes on later. Its clock is wrong."""

    def __init__(self, store: Store, ahead_ms: int) -> None:
        self.store = store
        self.ahead_ms = ahead_ms
        self.pending: tuple[EventPosition, Batch] | None = None

    async def read(self, limit: int) -> None:
        before = await self.store.event_position()
        if before is None:
            return
        ids._last_ms = 0  # ids are in order only within a process
        clock = FalseClock(self.store.clock.now_ms() + self.ahead_ms)
        batch = await EventFeeder(self.store, clock, max_sleep_ms=100).read(before, limit)
        self.pending = None if batch is None else (before, batch)

    async def write(self) -> None:
        if self.pending is not None:
            before, batch = self.pending
            await self.store.feed(before, batch.position, batch.runs)
            self.pending = None


@pytest.mark.parametrize("seed", [0, 10, 16, 17])
async def test_events_are_fed_once_and_in_order_by_replicas_that_stop(
    store: Store, clock: FalseClock, seed: int
) -> None:
    random = Random(seed)
    feeders = [_Feeder(store, ahead_ms) for ahead_ms in (0, 20, -20)]
    jobs: list[JobRow] = [asleep(f"job-{number}") for number in range(3)]
    await store.create_jobs(jobs)
    expected: dict[str, list[str]] = defaultdict(list)
    active: list[SubscriptionRow] = []
    made: list[SubscriptionRow] = []
    for _ in range(60):
        clock.ms += random.randrange(-5, 6)  # of the replica where something happens
        match random.randrange(8):
            case 0:
                arguments = random.choice(["{}", '{"job":"job-1"}', '{"state":"failed"}'])
                active.append(await _subscribe(store, "run.finished", arguments, len(made)))
                made.append(active[-1])
            case 1 if active and random.random() < 0.4:
                gone = active.pop(random.randrange(len(active)))
                await store.end_subscription(gone.id, "unsubscribed")
            case 2 | 3 | 4:
                job = random.choice(jobs)
                run = held(asked(job, clock.ms, id=new_id(clock.ms)))
                await store.add_runs([run])
                outcome = ended(run, random.choice(["succeeded", "failed"]))
                await store.finish("w1", [outcome], alone)
                for row in active:
                    wanted = json.loads(row.arguments)
                    if wanted.get("job", job.name) == job.name and (
                        wanted.get("state", outcome.state) == outcome.state
                    ):
                        expected[row.id].append(run.id)
            case 5:
                random.choice(feeders).pending = None  # it is killed
            case _:
                feeder = random.choice(feeders)
                await (feeder.write() if feeder.pending else feeder.read(random.randrange(1, 5)))
        before = await store.event_position()
        assert (before is None) == (not made)
    loop = EventFeeder(store, store.clock, max_sleep_ms=100)
    while (await loop.step() or 0) == clock.ms:
        pass
    for row in active:
        events = await _delivered(store, row)
        assert [event["data"]["runId"] for event in events] == expected[row.id]  # type: ignore[index]
        cursors = [int(event["cursor"]) for event in events]
        assert cursors == sorted(set(cursors))
    for row in made:
        events = await _delivered(store, row)
        found = [event["data"]["runId"] for event in events]  # type: ignore[index]
        assert found == expected[row.id][: len(found)]


async def test_a_subscription_begins_at_a_position_that_no_replica_is_past(
    store: Store, clock: FalseClock
) -> None:
    job = asleep("one")
    await store.create_jobs([job])
    early = await _subscribe(store, "run.finished", "{}", 1)
    begin = await store.last_change()
    run = held(asked(job, clock.ms, id=new_id(clock.ms)))
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "succeeded")], alone)
    feeder = _Feeder(store, 0)
    await feeder.read(10)
    late = await _subscribe(store, "run.finished", "{}", 2, begin)
    await feeder.write()  # it was read without the new subscription
    assert await _delivered(store, early) == []
    await feeder.read(10)
    await feeder.write()
    for row in (early, late):
        assert [event["data"]["runId"] for event in await _delivered(store, row)] == [run.id]  # type: ignore[index]
    with pytest.raises(EventsMoved):
        await _subscribe(store, "run.finished", "{}", 3, begin)
    assert (await _subscribe(store, "run.finished", "{}", 3)).position >= begin


async def test_a_paused_subscription_is_told_that_it_lost_events(store: Store, clock: FalseClock) -> None:
    row, other = [await _subscribe(store, "job.changed", "{}", number) for number in range(2)]
    loop = EventFeeder(store, store.clock, max_sleep_ms=100)
    for number, enabled in enumerate((True, False, True)):
        await store.change_job(row.job_id, partial(_enable, enabled), [])
        await store.create_jobs([asleep(f"job-{number}")])
        while (await loop.step() or 0) == clock.ms:
            pass
        lost = await store.subscription(row.id)
        assert lost is not None
        assert (lost.reason, lost.is_active) == (None if number == 0 else "gap", True)
    clock.ms += 60_000
    for each in (loop, EventFeeder(store, store.clock, max_sleep_ms=100), loop):
        await each.step()
    position = await store.event_position()
    assert position is not None
    *events, gap = await _delivered(store, row)
    assert gap == {"type": "gap", "cursor": str(position.change)}
    found = [[event["data"]["job"] for event in each] for each in (events, await _delivered(store, other))]  # type: ignore[index]
    assert found == [["job-0", "job-2"], ["job-0", "job-1", "job-2"]]
    assert await store.subscription(row.id) == row


def _enable(enabled: bool, row: JobRow) -> JobChange:
    return JobChange(row._replace(enabled=enabled, disabled_reason=None if enabled else "paused"))


async def test_each_kind_of_fact_is_an_event_with_the_declared_fields(store: Store) -> None:
    waiting = asleep("waiting", enabled=False, disabled_reason="approval", next_ms=None, wake_ms=None)
    capped = asleep("capped")._replace(work='{"budget":{"tokensPerDay":10},"target":{"kind":"pull"}}')
    await store.create_jobs([waiting, capped])
    spent, failed = (held(asked(capped, NOW, id=new_id(NOW))) for _ in range(2))
    await store.add_runs([spent, failed])
    await store.finish("w1", [ended(spent, usage='{"tokens":10}')], alone)
    await store.finish("w1", [ended(failed, "failed", error="the disk is full", reason="failed")], alone)
    _, checked = await given_held(store)
    await store.finish("w1", [report(checked, check='{"kind":"manual"}')], alone)
    _, other = await given_held(store, name="other")
    await store.finish("w1", [report(other)], alone)
    instance = await running_signal(store)
    emitted = '[{"type":"report.ready","data":{"pages":3}},{"type":"report.sent"}]'
    await store.finish("w1", [done(instance, emitted=emitted)], alone)

    facts = await read_facts(store, await store.changes(0, 1_000, finished_only=True), 0)
    by_name: dict[str, list[dict[str, object]]] = defaultdict(list)
    for fact in facts:
        by_name[fact.name].append(dict(fact.data))
        definition = EVENTS[fact.name]
        assert set(fact.data) >= set(definition.payload), fact
        assert fact.to_event().id == fact.to_event().id
    assert by_name.keys() | {"schedule.tick", "incident.recovered"} == EVENTS.keys()
    assert [data["job"] for data in by_name["approval.requested"]] == ["waiting"]
    assert [data["runId"] for data in by_name["verification.requested"]] == [checked.id]
    assert [(data["jobId"], data["most"]) for data in by_name["budget.exhausted"]] == [(capped.id, 10)]
    assert [data["type"] for data in by_name["signal.emitted"]] == ["report.ready", "report.sent"]
    assert len({fact.to_event().id for fact in facts}) == len(facts)
    large = facts[0]._replace(data={"job": "a", "output": "x" * 300_000})
    assert large.to_event().data == {"job": "a", "truncated": True}


async def test_a_subscription_ends_when_too_many_events_wait(
    store: Store, clock: FalseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feeder, "_MOST_WAITING", 3)
    job = asleep("job-1")
    await store.create_jobs([job])
    dead = await _subscribe(store, "run.finished", "{}", 1)
    other = await _subscribe(store, "run.finished", '{"agent":"writer"}', 2)
    loop = EventFeeder(store, store.clock, max_sleep_ms=100)
    for waiting in range(1, 5):
        run = held(asked(job, clock.ms, id=new_id(clock.ms)))
        await store.add_runs([run])
        await store.finish("w1", [ended(run)], alone)
        clock.ms += 60_000
        await loop.step()
        assert len(await store.runs(RunFilter("default", None, dead.job_id, ("pending",)))) == waiting
    clock.ms += 60_000
    await loop.step()
    found, kept = await store.subscription(dead.id), await store.subscription(other.id)
    assert found is not None
    assert kept is not None
    assert (found.reason, kept.is_active) == ("queue_full", True)
    assert not await store.runs(RunFilter("default", None, dead.job_id, ("pending",)))


async def test_a_subscription_to_time_ends_too_also_if_there_are_no_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feeder, "_MOST_WAITING", 3)
    row = await _subscribe(store, "schedule.tick", "{}", 1, timing=asleep("job").timing)
    assert await store.event_position() is None
    job = await store.job_by_id(row.job_id)
    assert job is not None
    await store.add_runs([asked(job) for _ in range(4)])
    await EventFeeder(store, store.clock, max_sleep_ms=100).step()
    found = await store.subscription(row.id)
    assert found is not None
    assert found.reason == "queue_full"


async def test_a_subscription_that_cannot_be_ended_holds_up_no_events(
    store: Store, clock: FalseClock
) -> None:
    job = asleep("job-1")
    await store.create_jobs([job])
    kept = await _subscribe(store, "run.finished", "{}", 1)
    over = [
        await _subscribe(store, "run.finished", '{"agent":"a"}', each, ends_ms=NOW + 1) for each in (2, 3)
    ]
    clock.ms += 1

    async def end(identity: str, reason: str) -> SubscriptionRow | None:
        if identity == min(each.id for each in over):
            raise ValueError("it cannot be read")
        return await store.end_subscription(identity, reason)

    await store.add_runs([run := held(asked(job))])
    await store.finish("w1", [ended(run)], alone)
    await EventFeeder(store, store.clock, max_sleep_ms=100, end=end).step()
    assert len(await _delivered(store, kept)) == 1
    found = [await store.subscription(each.id) for each in over]
    assert sorted(each is not None and each.is_active for each in found) == [False, True]


async def test_a_callback_is_told_of_a_lost_tick_after_the_last_one_but_not_while_its_job_is_paused(
    store: Store, clock: FalseClock
) -> None:
    rows = [await _subscribe(store, "schedule.tick", "{}", number) for number in range(2)]

    def disable(job: JobRow, reason: str) -> JobChange:
        return JobChange(job._replace(enabled=False, disabled_reason=reason, next_ms=None, wake_ms=None))

    for row, reason in zip(rows, ["no_more_ticks", "paused"], strict=True):
        await store.change_job(row.job_id, partial(disable, reason=reason))
        await store.lose_events(row.id)
    await EventFeeder(store, store.clock, max_sleep_ms=100).step()
    told, paused = [await _delivered(store, row) for row in rows]
    assert (told, paused) == ([{"type": "gap", "cursor": None}], [])


async def test_a_fact_is_compared_only_with_subscriptions_to_its_agent_and_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[Mapping[str, Json]] = []

    def note(filters: Mapping[str, Json], data: Mapping[str, Json]) -> bool:
        compared.append(filters)
        return passes(filters, data)

    monkeypatch.setattr(event_feeder, "passes", note)
    given: list[dict[str, Json]] = [
        {},
        {"state": "failed"},
        {"agent": "a"},
        {"job": "b"},
        {"agent": "a", "job": "b"},
    ]
    given += [{"agent": f"other-{number}"} for number in range(500)]
    rows = [
        SubscriptionRow(
            str(number), "default", "default", "key:1", "run.finished", compact(each), "", "", 5, NOW, NOW
        )
        for number, each in enumerate(given)
    ]
    data: dict[str, Json] = {"agent": "a", "job": "b", "state": "succeeded"}
    fact = Fact(6, "run.finished", NOW, "default", "r", data)
    found = deliveries(fact, [*Subscribers(rows).of(fact)], NOW, NOW)
    assert sorted(identity for identity, _ in found) == ["0", "2", "3", "4"]
    assert len(compared) == 5
    for other in (fact._replace(workspace="hr"), fact._replace(seq=5), fact._replace(name="job.changed")):
        assert deliveries(other, [*Subscribers(rows).of(other)], NOW, NOW) == []


async def test_only_what_somebody_subscribes_to_is_read_and_not_much_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_facts, "_CHANGES", 3)
    read: list[int] = []
    runs_by_ids = store.runs_by_ids

    async def count(run_ids: Sequence[str]) -> list[RunView]:
        read.append(len(run_ids))
        return await runs_by_ids(run_ids)

    monkeypatch.setattr(store, "runs_by_ids", count)
    changes = await _subscribe(store, "job.changed", "{}", 1)
    labelled = asleep("labelled", labels='{"team":"ops"}')
    await store.create_jobs([labelled])

    def skipped() -> list[NewRun]:
        return [asked(labelled, due_ms=None, state="skipped", finished_ms=NOW) for _ in range(2)]

    for _ in range(4):
        await store.add_runs(skipped())
    loop = EventFeeder(store, store.clock, max_sleep_ms=100)
    await loop.step()
    assert len(await _delivered(store, changes)) == 1
    assert sum(read) == 0

    finished = await _subscribe(store, "run.finished", '{"label":"team=ops"}', 2)
    for _ in range(4):
        await store.add_runs(skipped())
    await store.delete_job(labelled.id, NOW, "deleted")  # such as a one-shot job after its run
    while (await loop.step() or 0) == NOW:
        pass
    assert len(await _delivered(store, finished)) == 8
    assert max(read) <= 3
