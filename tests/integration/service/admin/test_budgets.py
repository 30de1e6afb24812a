"""Budgets through the engine: jobs over their daily budget do not run until the next day."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient
from tests.support.factories import asked
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over, runs_of, soon
from wakeful import Function, ResourceExhausted, Wakeful, Webhook
from wakeful.job.start_rules import BudgetBlock
from wakeful.model import Run
from wakeful.run.outcome import Failed, Succeeded
from wakeful.run.run import TriggerName
from wakeful.run.usage import Reserved
from wakeful.service.auth.access import LOCAL


def thinking(app: Wakeful, usage: str = '{"tokens":60,"cost":0.25}') -> list[int]:
    """Register a function that reports usage; return a list that grows with each call."""
    calls: list[int] = []

    @app.function("think")
    async def think() -> Succeeded:
        calls.append(1)
        return Succeeded("done", usage)

    return calls


async def put_agent(app: Wakeful, **document: object) -> None:
    await app.services.agents.put(LOCAL, "default", "default", document)


async def skipped(app: Wakeful, name: str) -> Sequence[Run]:
    """Return the runs of a job that its budget prevents; on a busy machine, others overlap."""
    return [run for run in await runs_of(app, name) if (run.state, run.reason) == ("skipped", "budget")]


async def test_a_job_over_its_budget_is_skipped_and_cannot_be_run_manually(new_app: NewApp):
    app = new_app()
    calls = thinking(app)
    async with app:
        await app.jobs.create(
            "think",
            schedule="every 1s",
            start_at=soon(),
            target=Function("think"),
            budget={"tokens_per_day": 100},
        )
        held = await eventually(lambda: skipped(app, "think"))
        job = await app.jobs.get("think")
        spent = await app.services.admin.budgets.spent("default", "default", job.id)
        with pytest.raises(ResourceExhausted) as refused:
            await app.jobs.run("think")
        with pytest.raises(ResourceExhausted):
            await app.jobs.run("think", mode="force")
    assert held[0].reason == "budget"
    assert len(calls) == 2
    assert spent == {"tokens": 120, "cost": 0.5}
    assert refused.value.message == (
        "job 'think' has used its budget of 100 tokens a day (tokensPerDay); "
        "wait until midnight UTC, or raise the budget"
    )
    assert (job.enabled, job.failures) == (True, 0)


async def test_an_agent_budget_blocks_all_jobs_of_the_agent_and_no_others(new_app: NewApp):
    app = new_app()
    thinking(app)
    async with app:
        await put_agent(app, budget={"costPerDay": 0.25})
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        run = await app.jobs.run("think")
        await over(app, run.id)
        await app.jobs.create("other", schedule="every 1s", start_at=soon(), target=Function("think"))
        await eventually(lambda: skipped(app, "other"))
        with pytest.raises(ResourceExhausted, match=r"agent 'default' has used its budget of 0\.25 a day"):
            await app.jobs.run("other")
        elsewhere = app.jobs.of("somebody")
        await elsewhere.create("free", schedule=SELDOM, target=Function("think"))
        assert await elsewhere.run("free") is not None


async def test_a_request_reads_no_budgets_of_other_workspaces(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    app = new_app()
    thinking(app)
    async with app:
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"), budget={"tokensPerDay": 10})
        await over(app, (await app.jobs.run("think")).id)
        read, read_job = app.store.budget_blocks, app.store.job_and_blocks
        found: list[object] = []

        async def noted(day: int, workspace: str | None = None) -> list[BudgetBlock]:
            blocks = await read(day, workspace)
            if workspace is not None:  # else for the engine
                found.extend([workspace, *blocks])
            return blocks

        async def noted_with_job(workspace: str, *args: Any) -> Any:
            job, blocks = await read_job(workspace, *args) or (None, ())
            found.extend([workspace, *blocks])
            return job, blocks

        monkeypatch.setattr(app.store, "budget_blocks", noted)
        monkeypatch.setattr(app.store, "job_and_blocks", noted_with_job)
        await app.services.agents.workspaces.put(LOCAL, "calm", {})
        calm = app.jobs.of("default", "calm")
        await calm.create("think", schedule=SELDOM, target=Function("think"))
        job = await calm.get("think")
        assert await calm.run("think") is not None
        assert await calm.run(job.id) is not None
        assert found == ["calm", "calm"]


async def test_raising_a_budget_unblocks_ticks_immediately(new_app: NewApp):
    app = new_app()
    calls = thinking(app)
    async with app:
        await put_agent(app, budget={"tokensPerDay": 60})
        await app.jobs.create("think", schedule="every 1s", start_at=soon(), target=Function("think"))
        await eventually(lambda: skipped(app, "think"))
        assert len(calls) == 1
        await put_agent(app, budget={"tokensPerDay": 1000})
        await eventually(lambda: len(calls) > 1)


async def test_a_follow_up_run_over_budget_is_skipped(new_app: NewApp):
    app = new_app()
    thinking(app)

    async def held() -> Sequence[Run]:
        # A follow-up run that starts before this replica knows of the used-up budget is not skipped.
        await over(app, (await app.jobs.run("think")).id)
        return await skipped(app, "next")

    async with app:
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        await app.jobs.create("next", after="think", target=Function("think"), budget={"tokens_per_day": 60})
        (first, *_) = await eventually(held)
        done = [run for run in await runs_of(app, "next") if run.state == "succeeded"]
    assert first.trigger == "chain"
    assert done


async def test_a_claim_does_not_start_a_run_whose_budget_is_used_up(new_app: NewApp):
    app = new_app()
    thinking(app)
    async with app:
        await put_agent(app, budget={"tokensPerDay": 60})
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        await app.jobs.create("outside", after="think", target={"kind": "pull"})
        run = await app.jobs.run("think")
        await over(app, run.id)
        (waiting,) = await eventually(lambda: runs_of(app, "outside"))
        assert waiting.state == "pending"
        claimed = await app.services.runs.pull.claim(LOCAL, "default", "laptop")
        (run_after,) = await skipped(app, "outside")
    assert claimed == []
    assert (run_after.id, run_after.reason) == (waiting.id, "budget")


async def test_a_budget_block_applies_on_every_replica(new_app: NewApp):
    one, other = new_app(), new_app(config=QUICK)
    thinking(one)
    async with one:
        await put_agent(one, budget={"tokensPerDay": 60})
        await one.jobs.create("think", schedule=SELDOM, target=Function("think"))
        run = await one.jobs.run("think")
        await over(one, run.id)
        async with other:
            with pytest.raises(ResourceExhausted):
                await other.jobs.run("think")
            await one.stop()
            await other.jobs.create("tick", schedule="every 1s", start_at=soon(), target=Function("think"))
            (held,) = (await eventually(lambda: skipped(other, "tick")))[:1]
            assert held.reason == "budget"


async def test_a_one_time_job_over_budget_is_skipped_and_disabled(new_app: NewApp):
    app = new_app()
    thinking(app)
    async with app:
        await put_agent(app, budget={"tokensPerDay": 60})
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        run = await app.jobs.run("think")
        await over(app, run.id)
        await app.jobs.create("once", schedule="in 1s", target=Function("think"))
        await eventually(lambda: skipped(app, "once"))
        job = await app.jobs.get("once")
    assert (job.enabled, job.disabled_reason) == (False, "no_more_ticks")


async def test_a_run_that_reaches_a_cap_while_it_retries_fails_and_is_not_tried_again(new_app: NewApp):
    app = new_app()
    calls: list[int] = []

    @app.function("think")
    async def think() -> Failed:
        calls.append(1)
        return Failed("no", usage='{"tokens":1000}')

    async with app:
        await app.jobs.create(
            "think", schedule=SELDOM, target=Function("think"), max_attempts=6,
            backoff={"baseMs": 1, "maxMs": 1}, budget={"tokensPerDay": 1_500},
        )  # fmt: skip
        run = await over(app, (await app.jobs.run("think")).id)
        spent = await app.services.admin.budgets.spent("default")
        with pytest.raises(ResourceExhausted):
            await app.runs.replay(run.id)
    assert (run.state, run.reason, len(calls)) == ("failed", "budget", 2)
    assert "job 'think' has used its budget of 1500 tokens a day" in (run.error or "")
    assert spent["tokens"] == 2_000


async def test_the_budget_of_a_run_ends_its_retries(new_app: NewApp):
    app = new_app()
    calls: list[int] = []

    @app.function("think")
    async def think() -> Failed:
        calls.append(1)
        return Failed("no", usage='{"tokens":1000}')

    async with app:
        await app.jobs.create(
            "think", schedule=SELDOM, target=Function("think"), max_attempts=6,
            backoff={"baseMs": 1, "maxMs": 1}, budget={"tokensPerRun": 2_500},
        )  # fmt: skip
        for number in (1, 2):  # each run has its own
            run = await over(app, (await app.jobs.run("think")).id)
            assert (run.state, run.reason, len(calls)) == ("failed", "budget", 3 * number)
    assert "the run has used its budget of 2500 tokens (tokensPerRun)" in (run.error or "")


async def test_a_waiting_run_of_any_trigger_does_not_start_when_a_cap_is_reached(new_app: NewApp):
    app = new_app()
    calls = thinking(app)
    async with app:
        await put_agent(app, budget={"tokensPerDay": 60})
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        await over(app, (await app.jobs.run("think")).id)
        row = await app.store.job_by_id((await app.jobs.get("think")).id)
        assert row is not None
        now_ms = app.store.clock.now_ms()
        waiting = {
            trigger: asked(row, now_ms, trigger=trigger, serial=False) for trigger in get_args(TriggerName)
        }
        await app.store.add_runs(list(waiting.values()))
        ends = {}
        for trigger, made in waiting.items():
            run = await over(app, made.id)
            ends[trigger] = run.state, run.reason
    skipped = dict.fromkeys(("schedule", "chain", "heartbeat", "backfill"), ("skipped", "budget"))
    failed = dict.fromkeys(("user", "agent", "signal", "replay", "hook", "event"), ("failed", "budget"))
    assert ends == {**skipped, **failed, "alert": ("succeeded", None)}
    assert len(calls) == 2


async def test_an_executor_gets_no_retry_over_the_budget(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create(
            "outside", schedule=SELDOM, target={"kind": "pull"}, max_attempts=6,
            backoff={"baseMs": 1, "maxMs": 1}, budget={"tokensPerDay": 1_500},
        )  # fmt: skip
        started = await app.jobs.run("outside")

        async def claim() -> list[Any]:
            return await app.services.runs.pull.claim(LOCAL, "default", "laptop")

        for _ in range(2):
            (claimed,) = await eventually(claim)
            await app.services.runs.complete(
                LOCAL, "default", claimed["id"], "failed", attempt=claimed["attempt"], error="no",
                usage='{"tokens":1000}',
            )  # fmt: skip

        async def ended() -> Run | None:
            assert await claim() == []
            run = await app.runs.get(started.id)
            return run if run.state == "failed" else None

        run = await eventually(ended)
    assert run is not None
    assert (run.reason, run.attempt) == ("budget", 3)


async def test_parallel_runs_reserve_what_each_may_use(new_app: NewApp):
    app = new_app()
    running: list[int] = []
    peak: list[int] = []
    go_on = asyncio.Event()

    @app.function("think")
    async def think() -> Succeeded:
        running.append(1)
        peak.append(len(running))
        await go_on.wait()
        running.pop()
        return Succeeded("done", '{"tokens":50}')

    async with app:
        await app.jobs.create(
            "think", schedule=SELDOM, target=Function("think"), overlap_policy="allow",
            budget={"tokensPerDay": 300, "tokensPerRun": 100},
        )  # fmt: skip
        started = [await app.jobs.run("think") for _ in range(8)]
        await eventually(lambda: len(running) == 3)
        await eventually(
            lambda: _count(app, "retrying", 5)
        )  # the rest is reserved, not used: they are tried again
        go_on.set()
        runs = [await over(app, each.id) for each in started]
    ends = Counter((run.state, run.reason) for run in runs)
    assert max(peak) == 3
    assert ends == {("succeeded", None): 6, ("failed", "budget"): 2}


async def _count(app: Wakeful, state: str, number: int) -> bool:
    return len([run for run in await runs_of(app, "think") if run.state == state]) == number


async def test_a_run_that_used_up_its_budget_is_not_verified(new_app: NewApp):
    app = new_app()
    thinking(app)
    checks: list[int] = []

    @app.function("check")
    async def check() -> bool:
        checks.append(1)
        return True

    async with app:
        await app.jobs.create(
            "think", schedule=SELDOM, target=Function("think"), budget={"tokensPerDay": 60},
            verify={"kind": "function", "name": "check"},
        )  # fmt: skip
        run = await over(app, (await app.jobs.run("think")).id)
    assert (run.state, run.reason, checks) == ("failed", "budget", [])


@on_one_store
async def test_a_run_without_a_budget_reserves_nothing(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    app = new_app()
    thinking(app)
    async with app:
        await app.services.agents.put(LOCAL, "default", "other", {"budget": {"tokensPerDay": 60}})

        async def reserve(*_: object) -> Reserved:
            raise AssertionError("no budget applies to this run")

        monkeypatch.setattr(app.store, "reserve", reserve)
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        run = await over(app, (await app.jobs.run("think")).id)
    assert run.state == "succeeded"


async def test_a_webhook_reports_usage_in_a_header_or_in_its_response_body(
    new_app: NewApp, receiver: Receiver
):
    async with new_app() as app:
        await app.jobs.create("hook", schedule=SELDOM, target=Webhook(receiver.url), max_attempts=1)
        receiver.answers(200, '{"ok": true, "usage": {"tokens": 5}}')
        first = await over(app, (await app.jobs.run("hook")).id)
        receiver.answers(200, "done", x_wakeful_usage='{"tokens": 7, "cost": 0.5}')
        second = await over(app, (await app.jobs.run("hook")).id)
        receiver.answers(500, "", x_wakeful_usage='{"tokens": 1}')
        third = await over(app, (await app.jobs.run("hook")).id)
        spent = await app.services.admin.budgets.spent("default")
    assert (first.usage, second.usage, third.usage) == (
        {"tokens": 5}, {"tokens": 7, "cost": 0.5}, {"tokens": 1},
    )  # fmt: skip
    assert (third.state, spent) == ("failed", {"tokens": 13, "cost": 0.5})


@on_one_store
async def test_budgets_and_usage_are_shown(ask: ApiClient):
    put = await ask("PUT", "/agents/writer", {"budget": {"tokensPerDay": 100}})
    assert put.body["budget"] == {"tokensPerDay": 100}
    document = {"name": "a", "schedule": "@daily", "budget": {"costPerDay": 5}}
    await ask("POST", "/agents/writer/jobs", document)
    (claimed,) = (await _claim(ask)).body["runs"]
    done = {"status": "succeeded", "attempt": 1, "usage": {"tokens": 40, "cost": 0.5}}
    assert (await ask("POST", f"/runs/{claimed['id']}/complete", done)).status == 200
    for path in ("", "/agents/writer", "/agents/writer/jobs/a"):
        assert (await ask("GET", path)).body["spent"] == {"tokens": 40, "cost": 0.5}
    agent = (await ask("GET", "/agents/writer")).body
    assert (await ask("PUT", "/agents/writer", agent)).status == 200
    refused = await ask("PUT", "/agents/writer", {"budget": {"perHour": 5}})
    assert refused.code == "invalid-argument"
    assert "budget: a budget has no field 'perHour'" in refused.body["detail"]


async def test_a_cost_above_the_maximum_is_counted_as_the_maximum(ask: ApiClient):
    for name in ("a", "b"):
        document = {"name": name, "schedule": "@daily", "budget": {"costPerDay": 5}}
        await ask("POST", "/agents/writer/jobs", document)
        (claimed,) = (await _claim(ask, name)).body["runs"]
        done = {"status": "succeeded", "attempt": claimed["attempt"], "usage": {"cost": 1e308}}
        assert (await ask("POST", f"/runs/{claimed['id']}/complete", done)).status == 200
    for path in ("", "/agents/writer", "/agents/writer/jobs/a"):
        shown = await ask("GET", path)
        assert (shown.status, shown.body["spent"]) == (200, {"tokens": 0, "cost": 1e12})


@on_one_store
async def test_an_agent_key_can_lower_the_budget_of_its_job_but_not_raise_it(ask: ApiClient):
    writer = await ask.new("agent", agent="writer")
    document = {"schedule": SELDOM, "budget": {"tokensPerDay": 100}}
    job = "/agents/writer/jobs/a"
    assert (await writer("PUT", job, document)).status == 201
    looser: list[object] = [None, {"tokensPerDay": 101}, {"costPerDay": 1}]
    for budget in looser:
        refused = await writer("PATCH", job, {"budget": budget})
        assert (refused.status, refused.code) == (403, "permission-denied")
        assert 'leave it at {"tokensPerDay":100} or below' in refused.body["detail"]
    assert (await writer("PUT", job, {"schedule": SELDOM})).code == "permission-denied"
    assert (await writer("PUT", job, document)).status == 200
    tighter = {"tokensPerDay": 50, "costPerDay": 0.5}
    assert (await writer("PATCH", job, {"budget": tighter})).body["budget"] == tighter
    assert (await writer("PATCH", job, {"schedule": "@daily"})).body["budget"] == tighter
    assert (await ask("PATCH", job, {"budget": None})).body["budget"] is None
    assert (await writer("PATCH", job, {"budget": tighter})).status == 200


async def _claim(ask: ApiClient, job: str = "a"):
    await ask("POST", f"/agents/writer/jobs/{job}/run", {})
    return await ask("POST", "/runs/claim", {"worker": "w", "waitMs": 5000})
