"""Alert events, and the alerts that they cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SAYS,
    alone,
    asked,
    ended,
    given_alerts,
    given_held,
    given_job,
    look,
    tick,
    ticks_of,
)
from tests.support.notifications import NotificationRecorder
from wakeful.run.alerts import Alert, AlertEvent
from wakeful.store.accounts import WorkspaceRow
from wakeful.store.internal_jobs import (
    AGENT_ALERTS,
    AGENT_CHANNEL,
    ALERT_JOBS,
    WORKSPACE_ALERTS,
    WORKSPACE_CHANNEL,
)
from wakeful.store.port import Store
from wakeful.store.rows import JobRow

MISSED: dict[str, Any] = {"state": "missed", "due_ms": None, "finished_ms": NOW, "attempt": 0}


async def taken_events(store: Store, limit: int = 100) -> list[AlertEvent]:
    """Consume the events without raising alerts."""
    seen: list[AlertEvent] = []

    def judge(event: AlertEvent) -> list[Alert]:
        seen.append(event)
        return []

    assert await store.raise_alerts(NOW, limit, judge) == len(seen)
    return seen


async def misses(store: Store, name: str = "digest") -> JobRow:
    """Create a job that missed a tick."""
    return await given_job(store, name, lambda due: tick(due, reason="downtime", **MISSED))


async def test_without_alert_settings_a_missed_tick_is_no_event(store: Store) -> None:
    await misses(store)
    assert await taken_events(store) == []


async def test_a_missed_tick_is_an_event(store: Store, recorder: NotificationRecorder) -> None:
    await given_alerts(store, agent=SAYS)
    recorder.topics.clear()
    await given_job(store, "a", lambda due: tick(due, reason="downtime", covers=59, until_ms=NOW, **MISSED))
    await recorder.next_event("incidents")
    await given_job(store, "b", lambda due: tick(due, reason="paused", **MISSED))
    (event,) = await taken_events(store)
    assert (event.kind, event.job_name, event.times) == ("missed", "a", 59)
    assert (event.workspace, event.agent, event.recipients.webhook) == ("default", "default", None)
    assert event.recipients.alerts == SAYS
    assert await taken_events(store) == []


async def test_an_outcome_is_no_event(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    for state in ("succeeded", "retrying", "skipped", "cancelled", "failed"):
        _, run = await given_held(store, name=state)
        await store.finish(
            "w1", [ended(run, state, due_ms=NOW + DAY if state == "retrying" else None)], alone
        )
    assert await taken_events(store) == []


async def test_a_reached_cap_is_one_event(store: Store) -> None:
    await store.put_workspace(
        WorkspaceRow("default", None, "", NOW, NOW, budget='{"tokensPerDay":5}', alerts=SAYS)
    )
    for name in ("one", "other"):
        _, run = await given_held(store, name=name)
        await store.finish("w1", [ended(run, usage='{"tokens":5}')], alone)
    (event,) = await taken_events(store)
    assert (event.kind, event.agent, event.job_id, event.run_id) == ("budget", "", None, None)
    assert event.details == '{"cap":"tokensPerDay","most":5.0,"used":5.0}'


async def test_the_alerts_of_an_agent_override_those_of_its_workspace(store: Store) -> None:
    own = '{"url":"https://own.example"}'
    await given_alerts(store, agent=own, workspace=SAYS)
    sender, _ = await given_job(store, AGENT_ALERTS), await given_job(store, WORKSPACE_ALERTS)
    await misses(store)
    (event,) = await taken_events(store)
    recipients = event.recipients
    assert recipients.webhook is not None
    assert (recipients.alerts, recipients.webhook.id, recipients.webhook.name) == (
        own, sender.id, AGENT_ALERTS,
    )  # fmt: skip


@pytest.mark.parametrize("own", [None, SAYS])
async def test_an_event_names_one_alert_job_for_the_webhook_and_one_for_the_channel(
    store: Store, own: str | None
) -> None:
    await given_alerts(store, agent=own, workspace=SAYS)
    jobs = {name: await given_job(store, name) for name in ALERT_JOBS}
    await misses(store)
    (event,) = await taken_events(store)
    names = (WORKSPACE_ALERTS, WORKSPACE_CHANNEL) if own is None else (AGENT_ALERTS, AGENT_CHANNEL)
    for sender, name in zip((event.recipients.webhook, event.recipients.channel), names, strict=True):
        assert sender == (jobs[name].id, "default", name, jobs[name].work)


def telling(*senders: JobRow, cooldown_ms: int = 0) -> Callable[[AlertEvent], list[Alert]]:
    """Return a rule that sends an alert about each event; all have one cool-down."""

    def judge(event: AlertEvent) -> list[Alert]:
        runs = tuple(asked(sender, trigger="alert", triggered_by=event.run_id) for sender in senders)
        return [Alert(event.workspace, "subject", "missed", cooldown_ms, runs)]

    return judge


async def test_an_alert_is_a_run_and_is_not_repeated_during_its_cooldown(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    senders = [await given_job(store, name) for name in (WORKSPACE_ALERTS, WORKSPACE_CHANNEL)]
    judge = telling(*senders, cooldown_ms=MINUTE)
    for at, sent in ((NOW, 1), (NOW + MINUTE - 1, 1), (NOW + MINUTE, 2)):
        await misses(store, f"job-{at}")
        assert await store.raise_alerts(at, 100, judge) == 1
        for sender in senders:
            runs = await ticks_of(store, sender)
            assert len(runs) == sent
            assert {(run.state, run.trigger) for run in runs} == {("pending", "alert")}


async def test_an_alert_of_the_future_suppresses_none_after_the_clock_is_set_back(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    sender = await given_job(store, WORKSPACE_ALERTS)
    for at, sent in (NOW + DAY, 1), (NOW, 2), (NOW + 1, 2):
        await misses(store, f"job-{at}")
        await store.raise_alerts(at, 100, telling(sender, cooldown_ms=MINUTE))
        assert len(await ticks_of(store, sender)) == sent


async def test_two_events_in_one_batch_raise_one_alert(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    sender = await given_job(store, WORKSPACE_ALERTS)
    await misses(store, "one")
    await misses(store, "other")
    assert await store.raise_alerts(NOW, 100, telling(sender, cooldown_ms=MINUTE)) == 2
    assert len(await ticks_of(store, sender)) == 1


async def test_concurrent_raise_alerts_calls_take_each_event_once(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    await given_alerts(stores[0], workspace=SAYS)
    sender = await given_job(stores[0], WORKSPACE_ALERTS)
    jobs = [await misses(stores[0], f"job-{number}") for number in range(20)]

    def judge(event: AlertEvent) -> list[Alert]:
        run = asked(sender, trigger="alert", triggered_by=event.run_id)
        return [Alert(event.workspace, event.job_id or "", "missed", MINUTE, (run,))]

    counts = await asyncio.gather(*(store.raise_alerts(NOW, 3, judge) for store in stores * 8))
    assert sum(counts) == 20
    told = [await look(stores[0], run.triggered_by or "") for run in await ticks_of(stores[0], sender)]
    assert sorted(str(run.job_id) for run in told) == sorted(job.id for job in jobs)


async def test_an_exception_in_judge_keeps_the_events(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    await misses(store)

    def judge(event: AlertEvent) -> list[Alert]:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        await store.raise_alerts(NOW, 100, judge)
    assert len(await taken_events(store)) == 1
