"""Usage, budget blocks, incidents and alerts, written in the transaction of the outcome."""

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
    FalseClock,
    alone,
    asked,
    ended,
    given_held,
    given_job,
    held,
    jobless,
    look,
    tick,
    ticks_of,
)
from tests.support.notifications import NotificationRecorder
from wakeful.alert_rules import Alert, Incident
from wakeful.document.guards import MOST_COST
from wakeful.start_rules import BudgetBlock, BudgetOwner
from wakeful.store.accounts import AgentRow, WorkspaceRow
from wakeful.store.alerts import AGENT_ALERTS, AGENT_CHANNEL, ALERT_JOBS, WORKSPACE_ALERTS, WORKSPACE_CHANNEL
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunView
from wakeful.usage import MOST_TOKENS, Spent, usage_of

TODAY = NOW // DAY
WHOLE = BudgetOwner("default")
AGENT = BudgetOwner("default", "default")
SAYS = '{"url":"https://a.example"}'


async def spending(store: Store, usage: str, name: str = "digest", **fields: Any) -> tuple[JobRow, RunView]:
    """Create a job and finish a run of it with this usage."""
    job, run = await given_held(store, name=name)
    assert await store.finish("w1", [ended(run, usage=usage, **fields)], alone) == {run.id}
    return job, run


async def given_budgets(store: Store, *, agent: str | None = None, workspace: str | None = None) -> None:
    await store.put_workspace(WorkspaceRow("default", None, "", NOW, NOW, budget=workspace))

    def put(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(budget=agent)

    await store.put_agent("default", "default", put)


async def given_alerts(store: Store, *, agent: str | None = None, workspace: str | None = None) -> None:
    await store.put_workspace(WorkspaceRow("default", None, "", NOW, NOW, alerts=workspace))

    def put(old: AgentRow | None) -> AgentRow:
        assert old is not None
        return old._replace(alerts=agent)

    await store.put_agent("default", "default", put)


# --- spending -----------------------------------------------------------------------------------------------


async def test_the_usage_of_a_run_is_added_to_its_job_agent_and_workspace(store: Store) -> None:
    one, _ = await spending(store, '{"tokens":100,"cost":0.5}')
    other, _ = await spending(store, '{"tokens":20,"model":"x"}', "other")
    assert await store.spent(BudgetOwner("default", "default", one.id), TODAY) == Spent(100, 0.5)
    assert await store.spent(BudgetOwner("default", "default", other.id), TODAY) == Spent(20, 0.0)
    assert await store.spent(AGENT, TODAY) == await store.spent(WHOLE, TODAY) == Spent(120, 0.5)
    assert await store.spent(WHOLE, TODAY - 1) == Spent()


async def test_the_usage_of_a_failed_attempt_counts(store: Store) -> None:
    await spending(store, '{"tokens":7}', state="failed", error="no")
    await spending(store, '{"tokens":5}', "other", state="retrying", due_ms=NOW + MINUTE)
    assert await store.spent(WHOLE, TODAY) == Spent(12, 0.0)


async def test_the_usage_of_a_run_without_a_job_counts_for_its_agent(store: Store) -> None:
    run = jobless()
    await store.add_runs([run])
    await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(run, usage='{"cost":2}')], alone)
    assert await store.spent(AGENT, TODAY) == await store.spent(WHOLE, TODAY) == Spent(0, 2.0)


async def test_the_usage_of_a_fenced_outcome_does_not_count(store: Store) -> None:
    _, run = await given_held(store)
    assert await store.finish("another", [ended(run, usage='{"tokens":7}')], alone) == set()
    await store.finish("w1", [ended(run, usage='{"tokens":7}')], alone)
    assert await store.finish("w1", [ended(run, usage='{"tokens":7}')], alone) == set()
    assert await store.spent(WHOLE, TODAY) == Spent(7, 0.0)


async def test_sums_are_capped_at_the_maximum(store: Store) -> None:
    much = '{"tokens":1e308,"cost":1e308}'
    for name in ("a", "b"):
        await spending(store, much, name)
    held = [await given_held(store, name=f"job-{number}") for number in range(3)]
    done = [ended(run, usage=much) for _, run in held]
    assert len(await store.finish("w1", done, alone)) == 3
    assert await store.spent(WHOLE, TODAY) == Spent(MOST_TOKENS, MOST_COST)


async def test_concurrent_usage_is_summed_without_loss(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    held = [await given_held(stores[0], name=f"job-{number}") for number in range(12)]
    await asyncio.gather(
        *(
            stores[number % 4].finish("w1", [ended(run, usage='{"tokens":1}')], alone)
            for number, (_, run) in enumerate(held)
        )
    )
    assert await stores[0].spent(WHOLE, TODAY) == Spent(12, 0.0)


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        ('{"tokens":5}', Spent(5, 0.0)),
        ('{"total_tokens":5,"prompt_tokens":3}', Spent(5, 0.0)),
        ('{"input_tokens":3,"output_tokens":4,"cost":1}', Spent(7, 1.0)),
        ('{"tokens":-5}', None),
        ('{"tokens":"many"}', None),
        ('{"tokens":1e400}', None),
        ('{"cost":true}', None),
        ('{"tokens":1e308,"cost":1e308}', Spent(MOST_TOKENS, MOST_COST)),
        ('{"input_tokens":1e308,"output_tokens":1e308}', Spent(MOST_TOKENS, 0.0)),
        ("[]", None),
        ("much", None),
        (None, None),
    ],
)
def test_usage_of_reads_tokens_and_cost(usage, spent):
    assert usage_of(usage) == spent


# --- budget blocks ------------------------------------------------------------------------------------------


async def test_a_reached_cap_is_blocked_once_and_announced(
    store: Store, recorder: NotificationRecorder
) -> None:
    await spending(store, '{"tokens":60}')
    await given_budgets(store, agent='{"tokensPerDay":100}', workspace='{"costPerDay":1}')
    assert await store.budget_blocks(TODAY) == []
    recorder.topics.clear()
    await spending(store, '{"tokens":40}', "other")
    assert await store.budget_blocks(TODAY) == [
        BudgetBlock(TODAY, "default", "default", "", "tokensPerDay", 100.0)
    ]
    assert await store.budget_blocks(TODAY + 1) == []
    await recorder.next_event("budget_blocks")
    await spending(store, '{"tokens":40,"cost":5}', "third")
    caps = {(hold.owner, hold.cap) for hold in await store.budget_blocks(TODAY)}
    assert caps == {(AGENT, "tokensPerDay"), (WHOLE, "costPerDay")}


async def test_a_job_has_a_budget_of_its_own(store: Store) -> None:
    job = await given_job(store, "digest", lambda due: held(tick(due)))
    work = '{"budget":{"tokensPerDay":10},"target":{"kind":"pull"}}'
    await store.change_job(job.id, lambda row: _changed(row, work))
    (run,) = await store.runs_by_ids([run.id for run in await _runs(store, job)])
    await store.finish("w1", [ended(run, usage='{"tokens":10}')], alone)
    (hold,) = await store.budget_blocks(TODAY)
    assert hold.owner == BudgetOwner("default", "default", job.id)


async def test_check_budgets_adds_and_removes_blocks_when_a_cap_changes(store: Store) -> None:
    await spending(store, '{"tokens":60}')
    await given_budgets(store, agent='{"tokensPerDay":50}')
    await store.check_budgets(NOW, [AGENT])
    assert [hold.owner for hold in await store.budget_blocks(TODAY)] == [AGENT]
    await given_budgets(store, agent='{"tokensPerDay":70}')
    await store.check_budgets(NOW, [AGENT])
    assert await store.budget_blocks(TODAY) == []
    await given_budgets(store)
    await store.check_budgets(NOW, [AGENT, WHOLE])
    assert await store.budget_blocks(TODAY) == []


async def test_a_new_day_has_a_new_budget(store: Store, clock: FalseClock) -> None:
    await given_budgets(store, agent='{"tokensPerDay":50}')
    await spending(store, '{"tokens":50}')
    clock.ms = NOW + DAY
    _, run = await given_held(store, name="other")
    await store.finish("w1", [ended(run, usage='{"tokens":49}', finished_ms=NOW + DAY)], alone)
    assert await store.budget_blocks(TODAY + 1) == []
    assert await store.spent(AGENT, TODAY + 1) == Spent(49, 0.0)


async def test_old_usage_and_blocks_are_pruned(store: Store) -> None:
    await given_budgets(store, agent='{"tokensPerDay":50}')
    await spending(store, '{"tokens":50}')
    await store.prune_budgets(NOW)
    assert await store.spent(AGENT, TODAY) == Spent(50, 0.0)
    await store.prune_budgets(NOW + DAY)
    assert await store.spent(AGENT, TODAY) == Spent()
    assert await store.budget_blocks(TODAY) == []


# --- incidents ----------------------------------------------------------------------------------------------


async def incidents(store: Store, limit: int = 100) -> list[Incident]:
    """Consume the incidents without raising alerts."""
    seen: list[Incident] = []

    def judge(incident: Incident) -> list[Alert]:
        seen.append(incident)
        return []

    assert await store.raise_alerts(NOW, limit, judge) == len(seen)
    return seen


async def test_without_alert_settings_a_failure_is_not_an_incident(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed", error="no")], alone)
    assert await incidents(store) == []


async def test_a_failure_is_an_incident_with_the_number_of_consecutive_failures(
    store: Store, recorder: NotificationRecorder
) -> None:
    await given_alerts(store, workspace=SAYS)
    job, run = await given_held(store)
    recorder.topics.clear()
    await store.finish("w1", [ended(run, "failed", error="no")], alone)
    await recorder.next_event("incidents")
    (incident,) = await incidents(store)
    assert (incident.kind, incident.job_id, incident.job_name) == ("failed", job.id, "digest")
    assert (incident.run_id, incident.times, incident.error, incident.alerts) == (run.id, 1, "no", SAYS)
    assert (incident.workspace, incident.agent, incident.webhook_id) == ("default", "default", None)
    assert await incidents(store) == []


async def test_neither_a_success_nor_a_retry_nor_a_skip_is_an_incident(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    for state in ("succeeded", "retrying", "skipped", "cancelled"):
        _, run = await given_held(store, name=state)
        await store.finish(
            "w1", [ended(run, state, due_ms=NOW + DAY if state == "retrying" else None)], alone
        )
    assert await incidents(store) == []


async def test_ticks_missed_during_downtime_are_an_incident(store: Store) -> None:
    await given_alerts(store, agent=SAYS)
    missed: dict[str, Any] = {"state": "missed", "due_ms": None, "finished_ms": NOW, "attempt": 0}
    await given_job(store, "a", lambda due: tick(due, reason="downtime", covers=59, until_ms=NOW, **missed))
    await given_job(store, "b", lambda due: tick(due, reason="paused", **missed))
    (incident,) = await incidents(store)
    assert (incident.kind, incident.job_name, incident.times) == ("missed", "a", 59)


async def test_a_reached_cap_is_one_incident(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    await store.put_workspace(
        WorkspaceRow("default", None, "", NOW, NOW, budget='{"tokensPerDay":5}', alerts=SAYS)
    )
    await spending(store, '{"tokens":5}')
    await spending(store, '{"tokens":5}', "other")
    (incident,) = await incidents(store)
    assert (incident.kind, incident.agent, incident.job_id, incident.run_id) == ("budget", "", None, None)
    assert incident.details == '{"cap":"tokensPerDay","most":5.0,"used":5.0}'


async def test_the_alerts_of_an_agent_override_those_of_its_workspace(store: Store) -> None:
    own = '{"url":"https://own.example"}'
    await given_alerts(store, agent=own, workspace=SAYS)
    sender, _ = await given_job(store, AGENT_ALERTS), await given_job(store, WORKSPACE_ALERTS)
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed")], alone)
    (incident,) = await incidents(store)
    assert (incident.alerts, incident.webhook_id, incident.webhook_name) == (own, sender.id, AGENT_ALERTS)


@pytest.mark.parametrize("own", [None, SAYS])
async def test_an_incident_names_one_alert_job_for_the_webhook_and_one_for_the_channel(
    store: Store, own: str | None
) -> None:
    await given_alerts(store, agent=own, workspace=SAYS)
    jobs = {name: await given_job(store, name) for name in ALERT_JOBS}
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed")], alone)
    (incident,) = await incidents(store)
    names = (WORKSPACE_ALERTS, WORKSPACE_CHANNEL) if own is None else (AGENT_ALERTS, AGENT_CHANNEL)
    for sender, name in zip((incident.webhook, incident.channel), names, strict=True):
        assert sender == (jobs[name].id, "default", name, jobs[name].work)


async def test_a_failure_of_an_alert_job_is_not_an_incident(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    for name in ALERT_JOBS:
        _, run = await given_held(store, name=name)
        await store.finish("w1", [ended(run, "failed")], alone)
    assert await incidents(store) == []


# --- alerts -------------------------------------------------------------------------------------------------


def telling(sender: JobRow, cooldown_ms: int = 0) -> Callable[[Incident], list[Alert]]:
    def judge(incident: Incident) -> list[Alert]:
        run = asked(sender, trigger="alert", triggered_by=incident.run_id)
        return [Alert(incident.workspace, incident.job_id or "", "failures", cooldown_ms, (run,))]

    return judge


async def failing(store: Store, job: JobRow) -> None:
    run = held(asked(job))
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "failed")], alone)


async def test_an_alert_is_a_run_and_is_not_repeated_during_its_cooldown(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    sender, job = await given_job(store, WORKSPACE_ALERTS), await given_job(store, "digest")
    judge = telling(sender, MINUTE)
    for at, sent in ((NOW, 1), (NOW + MINUTE - 1, 1), (NOW + MINUTE, 2)):
        await failing(store, job)
        assert await store.raise_alerts(at, 100, judge) == 1
        runs = await _runs(store, sender)
        assert len(runs) == sent
        assert {(run.state, run.trigger) for run in runs} == {("pending", "alert")}


async def test_an_alert_with_two_runs_has_one_cooldown(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    senders = [await given_job(store, name) for name in (WORKSPACE_ALERTS, WORKSPACE_CHANNEL)]

    def judge(incident: Incident) -> list[Alert]:
        runs = tuple(asked(sender, trigger="alert") for sender in senders)
        return [Alert(incident.workspace, incident.job_id or "", "failures", MINUTE, runs)]

    job = await given_job(store, "digest")
    for at, sent in ((NOW, 1), (NOW + MINUTE - 1, 1), (NOW + MINUTE, 2)):
        await failing(store, job)
        await store.raise_alerts(at, 100, judge)
        assert [len(await _runs(store, sender)) for sender in senders] == [sent, sent]


async def test_two_failures_in_one_batch_raise_one_alert(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    sender, job = await given_job(store, WORKSPACE_ALERTS), await given_job(store, "digest")
    await failing(store, job)
    await failing(store, job)
    assert await store.raise_alerts(NOW, 100, telling(sender, MINUTE)) == 2
    assert len(await _runs(store, sender)) == 1


async def test_concurrent_raise_alerts_calls_alert_once_per_job(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    await given_alerts(stores[0], workspace=SAYS)
    sender = await given_job(stores[0], WORKSPACE_ALERTS)
    jobs = [await given_job(stores[0], f"job-{number}") for number in range(5)]
    for job in jobs * 4:
        await failing(stores[0], job)
    judge = telling(sender, MINUTE)
    counts = await asyncio.gather(*(store.raise_alerts(NOW, 3, judge) for store in stores * 8))
    assert sum(counts) == 20
    runs = await _runs(stores[0], sender)
    assert len(runs) == 5
    told = [await look(stores[0], run.triggered_by or "") for run in runs]
    assert {run.job_id for run in told} == {job.id for job in jobs}


async def test_an_exception_in_judge_keeps_the_incidents(store: Store) -> None:
    await given_alerts(store, workspace=SAYS)
    await failing(store, await given_job(store, "digest"))

    def judge(incident: Incident) -> list[Alert]:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        await store.raise_alerts(NOW, 100, judge)
    assert len(await incidents(store)) == 1


def _changed(row: JobRow, work: str) -> JobChange:
    return JobChange(row._replace(work=work))


async def _runs(store: Store, job: JobRow) -> list[RunView]:
    return await ticks_of(store, job)
