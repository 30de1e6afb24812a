"""Usage and budget blocks, written in the transaction of the outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    FalseClock,
    alone,
    ended,
    given_held,
    given_job,
    held,
    jobless,
    tick,
    ticks_of,
)
from tests.support.notifications import NotificationRecorder
from wakeful.document.guards import MOST_COST
from wakeful.job.start_rules import BudgetBlock, BudgetOwner
from wakeful.run.usage import MOST_TOKENS, Spent, parse_usage
from wakeful.store.accounts import AgentRow, WorkspaceRow
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunView
from wakeful.store.sql import usage

TODAY = NOW // DAY
WHOLE = BudgetOwner("default")
AGENT = BudgetOwner("default", "default")


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


# --- spending -----------------------------------------------------------------------------------------------


async def test_the_usage_of_a_run_is_added_to_its_job_agent_and_workspace(store: Store) -> None:
    one, _ = await spending(store, '{"tokens":100,"cost":0.5}')
    other, _ = await spending(store, '{"tokens":20,"model":"x"}', "other")
    assert await store.read_spent(BudgetOwner("default", "default", one.id), TODAY) == Spent(100, 0.5)
    assert await store.read_spent(BudgetOwner("default", "default", other.id), TODAY) == Spent(20, 0.0)
    assert await store.read_spent(AGENT, TODAY) == await store.read_spent(WHOLE, TODAY) == Spent(120, 0.5)
    assert await store.read_spent(WHOLE, TODAY - 1) == Spent()


async def test_the_usage_of_a_failed_attempt_counts(store: Store) -> None:
    await spending(store, '{"tokens":7}', state="failed", error="no")
    await spending(store, '{"tokens":5}', "other", state="retrying", due_ms=NOW + MINUTE)
    assert await store.read_spent(WHOLE, TODAY) == Spent(12, 0.0)


async def test_the_usage_of_a_run_without_a_job_counts_for_its_agent(store: Store) -> None:
    run = jobless()
    await store.add_runs([run])
    await store.take(NOW, "w1", {"cron": 1})
    await store.finish("w1", [ended(run, usage='{"cost":2}')], alone)
    assert await store.read_spent(AGENT, TODAY) == await store.read_spent(WHOLE, TODAY) == Spent(0, 2.0)


async def test_the_usage_of_a_fenced_outcome_does_not_count(store: Store) -> None:
    _, run = await given_held(store)
    assert await store.finish("another", [ended(run, usage='{"tokens":7}')], alone) == set()
    await store.finish("w1", [ended(run, usage='{"tokens":7}')], alone)
    assert await store.finish("w1", [ended(run, usage='{"tokens":7}')], alone) == set()
    assert await store.read_spent(WHOLE, TODAY) == Spent(7, 0.0)


async def test_sums_are_capped_at_the_maximum(store: Store) -> None:
    much = '{"tokens":1e308,"cost":1e308}'
    for name in ("a", "b"):
        await spending(store, much, name)
    held = [await given_held(store, name=f"job-{number}") for number in range(3)]
    done = [ended(run, usage=much) for _, run in held]
    assert len(await store.finish("w1", done, alone)) == 3
    assert await store.read_spent(WHOLE, TODAY) == Spent(MOST_TOKENS, MOST_COST)


async def test_concurrent_usage_is_summed_without_loss(database: Database) -> None:
    stores = [await database.connect() for _ in range(4)]
    held = [await given_held(stores[0], name=f"job-{number}") for number in range(12)]
    await asyncio.gather(
        *(
            stores[number % 4].finish("w1", [ended(run, usage='{"tokens":1}')], alone)
            for number, (_, run) in enumerate(held)
        )
    )
    assert await stores[0].read_spent(WHOLE, TODAY) == Spent(12, 0.0)


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        ('{"tokens":5}', Spent(5, 0.0)),
        ('{"total_tokens":5,"prompt_tokens":3}', Spent(5, 0.0)),
        ('{"input_tokens":3,"output_tokens":4,"cost":1}', Spent(7, 1.0)),
        ('{"tokens":-5}', None),
        ('{"tokens":"many"}', None),
        ('{"tokens":NaN,"cost":-Infinity}', None),
        ('{"tokens":{"input":5}}', None),
        ('{"total_tokens":null,"prompt_tokens":900,"completion_tokens":100}', Spent(1000, 0.0)),
        ('{"tokens":0,"input_tokens":900,"output_tokens":100}', Spent(1000, 0.0)),
        ('{"tokens":"n/a","totalTokens":false,"total_tokens":7}', Spent(7, 0.0)),
        ('{"total_tokens":-1,"inputTokens":3,"output_tokens":-2}', Spent(3, 0.0)),
        ('{"total_tokens":10,"prompt_tokens":900,"completion_tokens":100}', Spent(1000, 0.0)),
        ('{"inputTokens":5,"input_tokens":5,"prompt_tokens":5}', Spent(5, 0.0)),
        ('{"tokens":"1200","cost":"0.5"}', Spent(1200, 0.5)),
        ('{"input_tokens":3,"cache_read_input_tokens":90,"output_tokens":7}', Spent(100, 0.0)),
        ('{"prompt_tokens":93,"cache_read_input_tokens":90,"completion_tokens":7}', Spent(100, 0.0)),
        ('{"tokens":1e400,"cost":1}', Spent(MOST_TOKENS, 1.0)),
        ('{"tokens":1' + "0" * 400 + "}", Spent(MOST_TOKENS, 0.0)),
        ("[" * 100_000, None),
        ('{"cost":true}', None),
        ('{"tokens":1e308,"cost":1e308}', Spent(MOST_TOKENS, MOST_COST)),
        ('{"input_tokens":1e308,"output_tokens":1e308}', Spent(MOST_TOKENS, 0.0)),
        ("[]", None),
        ("much", None),
        (None, None),
    ],
)
def test_usage_of_reads_tokens_and_cost(usage, spent):
    assert parse_usage(usage) == spent


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
    for workspace, number in (("default", 1), ("another", 0)):
        assert len(await store.budget_blocks(TODAY, workspace)) == number
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


async def test_a_change_of_a_cap_adds_and_removes_blocks(store: Store) -> None:
    await spending(store, '{"tokens":60}')
    for agent, workspace, blocked in [(50, 100, [AGENT]), (70, 60, [WHOLE]), (70, 61, [])]:
        await given_budgets(store, agent=_cap(agent), workspace=_cap(workspace))
        assert [block.owner for block in await store.budget_blocks(TODAY)] == blocked
    await given_budgets(store, agent=_cap(1), workspace=_cap(1))
    await given_budgets(store)
    assert await store.budget_blocks(TODAY) == []
    assert await store.read_spent(AGENT, TODAY) == Spent(60, 0.0)


async def test_an_agent_that_is_added_again_is_not_blocked(store: Store) -> None:
    await store.put_agent("default", "ada", lambda old: new_agent("ada", budget=_cap(0)))
    assert [block.owner.agent for block in await store.budget_blocks(TODAY)] == ["ada"]
    assert await store.delete_agent("default", "ada")
    await store.put_agent("default", "ada", lambda old: new_agent("ada"))
    assert await store.budget_blocks(TODAY) == []


@pytest.mark.parametrize("owner", ["job", "agent", "workspace"])
async def test_a_raised_cap_unblocks_what_an_outcome_blocks_at_the_same_time(
    database: Database, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    """The outcome has read the old cap, and commits its block after the cap was raised."""
    store, other = await database.connect(), await database.connect()
    await given_budgets(store, **({} if owner == "job" else {owner: _cap(50)}))
    job, run = await given_held(store)
    await store.change_job(job.id, lambda row: _changed(row, _work(50 if owner == "job" else 900)))
    read = asyncio.Event()
    update_blocks = usage.update_blocks

    async def update_and_wait(*args: Any) -> None:
        await update_blocks(*args)
        if not read.is_set():
            read.set()
            await asyncio.wait({raising}, timeout=0.2)  # it ends if nothing keeps it from reading

    if store.kind == "postgresql":
        monkeypatch.setattr(usage, "update_blocks", update_and_wait)

    async def raise_cap() -> None:
        if store.kind == "postgresql":
            await read.wait()
        if owner == "job":
            await other.change_job(job.id, lambda row: _changed(row, _work(900)))
        else:
            await given_budgets(other, **{owner: _cap(900)})

    raising = asyncio.ensure_future(raise_cap())
    await store.finish("w1", [ended(run, usage='{"tokens":60}')], alone)
    await raising
    assert await store.budget_blocks(TODAY) == []


async def test_a_new_day_has_a_new_budget(store: Store, clock: FalseClock) -> None:
    await given_budgets(store, agent='{"tokensPerDay":50}')
    await spending(store, '{"tokens":50}')
    clock.ms = NOW + DAY
    _, run = await given_held(store, name="other")
    await store.finish("w1", [ended(run, usage='{"tokens":49}', finished_ms=NOW + DAY)], alone)
    assert await store.budget_blocks(TODAY + 1) == []
    assert await store.read_spent(AGENT, TODAY + 1) == Spent(49, 0.0)


async def test_old_usage_and_blocks_are_pruned(store: Store) -> None:
    await given_budgets(store, agent='{"tokensPerDay":50}')
    await spending(store, '{"tokens":50}')
    await store.prune_budgets(NOW)
    assert await store.read_spent(AGENT, TODAY) == Spent(50, 0.0)
    await store.prune_budgets(NOW + DAY)
    assert await store.read_spent(AGENT, TODAY) == Spent()
    assert await store.budget_blocks(TODAY) == []


def _changed(row: JobRow, work: str) -> JobChange:
    return JobChange(row._replace(work=work), budget=True)


def _cap(tokens: int) -> str:
    return f'{{"tokensPerDay":{tokens}}}'


def _work(tokens: int) -> str:
    return f'{{"budget":{_cap(tokens)},"target":{{"kind":"pull"}}}}'


def new_agent(name: str, budget: str | None = None) -> AgentRow:
    return AgentRow("default", name, None, None, True, None, None, "", 1, NOW, NOW, budget=budget)


async def _runs(store: Store, job: JobRow) -> list[RunView]:
    return await ticks_of(store, job)
