"""Budgets through the engine: jobs over their daily budget do not run until the next day."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over, runs_of, soon
from wakeful import Function, ResourceExhausted, Wakeful, Webhook
from wakeful.model import Run
from wakeful.outcome import Succeeded
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
        spent = await app.services.budgets.spent("default", "default", job.id)
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
        claimed = await app.services.pull.claim(LOCAL, "default", "laptop")
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
        spent = await app.services.budgets.spent("default")
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
