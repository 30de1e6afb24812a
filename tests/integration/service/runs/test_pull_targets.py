"""Pull targets in a real engine: claims, claim timeouts and lost executors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.leases import age_leases
from tests.support.receiver import Receiver
from tests.support.waiting import epoch_ms, eventually, in_state, over, stored, the_run_of
from wakeful import Function, InvalidArgument, Launch, Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.store.sql import chains


async def claim(app: Wakeful, **given: Any) -> list[str]:
    runs = await app.services.runs.pull.claim(LOCAL, "default", "executor", wait_ms=60_000, **given)
    return [str(run["id"]) for run in runs]


async def test_a_tick_waits_in_the_lane_of_its_job_until_its_claim_timeout(new_app: NewApp):
    target = {"kind": "pull", "claimTimeoutMs": 7_200_000}
    async with new_app() as app:
        await app.jobs.create("digest", schedule="in 100ms", target=target, lane="team")
        run = await the_run_of(app, "digest")
        assert (run.state, run.lane, run.worker) == ("pending", "team", None)
        assert epoch_ms(run.until_at) == epoch_ms(run.fire_at) + 7_200_000
        assert await claim(app, lanes=["team"]) == [run.id]
        await app.services.runs.complete(LOCAL, "default", run.id, "succeeded", attempt=1, output="read")
        assert (await over(app, run.id)).output == "read"


async def test_an_unclaimed_run_expires_and_starts_failure_followers(new_app: NewApp):
    app = new_app()
    rung: list[Launch] = []

    @app.function("ring")
    async def ring(run: Launch) -> None:
        rung.append(run)

    async with app:
        await app.jobs.create(
            "alarm", after={"job": "digest", "on": "failed"}, target={"kind": "function", "name": "ring"}
        )
        document = {"name": "digest", "schedule": SELDOM, "claimTimeout": "100ms", "maxAttempts": 5}
        await app.services.jobs.create(LOCAL, "default", "default", document)
        run = await over(app, (await app.jobs.run("digest")).id)
        assert (run.state, run.reason, run.error) == ("failed", "expired", "not claimed in time")
        assert (run.dead, run.attempt, run.started_at, run.worker) == (True, 1, None, None)
        assert (await app.jobs.get("digest")).failures == 1
        await eventually(lambda: rung)


async def test_runs_that_expire_together_all_start_their_followers(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    """They are ended in smaller batches if too many runs follow from them."""
    monkeypatch.setattr(chains, "MOST_FOLLOW_UPS", 3)
    async with new_app() as app:
        for name in ("alarm", "report"):
            await app.jobs.create(name, after={"job": "digest", "on": "failed"}, target={"kind": "pull"})
        document = {"name": "digest", "schedule": SELDOM, "claimTimeout": "100ms", "target": {"kind": "pull"}}
        await app.services.jobs.create(LOCAL, "default", "default", document)
        runs = [await app.jobs.run("digest") for _ in range(5)]
        ended = [await over(app, run.id) for run in runs]
        assert {(run.state, run.reason) for run in ended} == {("failed", "expired")}
        followed = await app.services.runs.list(LOCAL, "default", trigger="chain")
        assert sorted(run.job_name or "" for run in followed) == ["alarm"] * 5 + ["report"] * 5


@pytest.mark.parametrize("on_lost", ["retry", "fail"])
async def test_a_run_whose_executor_sends_no_heartbeat_is_retried_or_failed(
    new_app: NewApp, database: str, on_lost: Any
):
    async with new_app() as app:
        await app.jobs.create("digest", schedule=SELDOM, on_lost=on_lost)
        run = await app.jobs.run("digest")
        assert await claim(app) == [run.id]
        await age_leases(database)
        if on_lost == "fail":
            lost = await over(app, run.id)
            assert (lost.state, lost.reason, lost.worker) == ("failed", "lost", "executor")
        else:
            await in_state(app, run.id, "retrying")
            assert await claim(app) == [run.id]
            assert (await app.runs.get(run.id)).attempt == 2


async def test_a_run_whose_claim_response_was_lost_is_retried_while_another_is_renewed(
    new_app: NewApp, database: str
):
    async with new_app() as app:
        pull = app.services.runs.pull
        await app.jobs.create("digest", schedule=SELDOM)
        await app.jobs.create("other", schedule=SELDOM)
        kept, lost = (await app.jobs.run("digest")).id, (await app.jobs.run("other")).id
        await pull.claim(LOCAL, "default", "executor", limit=1)
        await pull.claim(LOCAL, "default", "executor", limit=1)  # the response is lost
        for _ in range(3):  # most of a lease, and then a heartbeat
            await age_leases(database, 20_000, kept)
            await pull.heartbeat(LOCAL, "default", kept, 1)
        await age_leases(database, run_id=lost)

        async def claimed_again() -> list[str]:
            return [str(run["id"]) for run in await pull.claim(LOCAL, "default", "executor")]

        assert await eventually(claimed_again) == [lost]
        runs = [await app.runs.get(run_id) for run_id in (kept, lost)]
        assert [(run.state, run.attempt) for run in runs] == [("running", 1), ("running", 2)]
        (first, _) = await app.runs.attempts(lost)
        assert first.error == "its executor 'executor' sent no heartbeat in time"


async def test_a_job_without_a_target_uses_that_of_its_agent_and_does_not_show_it(
    new_app: NewApp, receiver: Receiver
):
    async with new_app() as app:
        hook = {"kind": "webhook", "url": receiver.url}
        await app.services.agents.put(LOCAL, "default", "default", {"target": hook})
        saved = await app.jobs.upsert("digest", schedule="in 100ms", message="hello", delete_after_run=False)
        assert saved.target is None
        work = (await stored(app, "digest")).definition.work
        assert (work.target, work.own_target, work.pulled) == (hook, None, False)
        run = await over(app, (await the_run_of(app, "digest")).id)
        assert (run.state, run.lane) == ("succeeded", "cron")
        assert receiver.bodies == [b'{"job":"digest","payload":{"message":"hello"}}']


async def test_a_waiting_run_is_launched_when_its_agent_gets_a_target(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        await app.jobs.create("digest", schedule=SELDOM)
        waits = await app.jobs.run("digest")
        assert (waits.state, waits.until_at is None) == ("pending", False)
        hook = {"kind": "webhook", "url": receiver.url}
        await app.services.agents.put(LOCAL, "default", "default", {"target": hook})
        for run in (waits, await app.jobs.run("digest")):
            launched = await over(app, run.id)
            assert (launched.state, launched.lane) == ("succeeded", "cron")
        await app.services.agents.put(LOCAL, "default", "default", {"target": None})
        assert (await app.jobs.run("digest")).until_at is not None


async def test_a_run_waiting_for_a_slot_can_be_claimed_when_its_target_becomes_pull(new_app: NewApp):
    app, go_on = new_app(config=replace(QUICK, lanes={"cron": 1})), asyncio.Event()

    @app.function("think")
    async def think() -> None:
        await go_on.wait()

    async with app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("think"))
        first = await app.jobs.run("digest")
        await in_state(app, first.id, "running")
        second = await app.jobs.run("digest")
        await app.jobs.update("digest", target={"kind": "pull", "claimTimeoutMs": 7_200_000})
        go_on.set()
        assert (await over(app, first.id)).state == "succeeded"
        assert await claim(app) == [second.id]
        await app.services.runs.complete(LOCAL, "default", second.id, "succeeded", attempt=1)
        assert (await over(app, second.id)).attempt == 1


@on_one_store
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "pull", "url": "https://example.com"}, "no field 'url'"),
        ({"kind": "pull", "claimTimeoutMs": "5m"}, "whole number of milliseconds"),
    ],
)
async def test_an_invalid_pull_target_is_refused(new_app: NewApp, target: Any, says: str):
    async with new_app() as app:
        with pytest.raises(InvalidArgument, match=says):
            await app.jobs.create("digest", schedule=SELDOM, target=target)
