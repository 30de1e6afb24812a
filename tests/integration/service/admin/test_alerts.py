"""Alerts through the engine: each is sent once and signed."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over, runs_of
from wakeful import FailedPrecondition, Function, InvalidArgument, NotFound, Permanent, Wakeful
from wakeful.launch.secrets import format_secret
from wakeful.run.outcome import Succeeded
from wakeful.service.auth.access import LOCAL
from wakeful.store.sql.incidents import IncidentFilter

SECRET = b"s" * 32


def failing(*apps: Wakeful) -> None:
    """Register a function on each app that always fails."""
    for app in apps:

        @app.function("fail")
        async def fail() -> None:
            raise Permanent("it never works")


async def put_agent(app: Wakeful, alerts: object, **more: object) -> dict[str, Any]:
    row = (await app.services.agents.put(LOCAL, "default", "default", {"alerts": alerts, **more})).row
    return json.loads(row.alerts) if row.alerts else {}


async def put_workspace(app: Wakeful, **document: object) -> None:
    await app.services.agents.workspaces.put(LOCAL, "default", document)


def told(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the payloads of the received alerts."""
    return [json.loads(body)["payload"] for body in receiver.bodies]


async def fails(app: Wakeful, name: str = "digest") -> None:
    """Run the job, which fails."""
    run = await over(app, (await app.jobs.run(name)).id)
    assert run.state == "failed"


async def settled(app: Wakeful, name: str = "wakeful-alerts") -> None:
    """Wait until all runs of the alert job are finished."""

    async def look() -> bool:
        return all(run.finished_at is not None for run in await runs_of(app, name))

    await eventually(look)


async def test_an_alert_is_sent_after_consecutive_failures(new_app: NewApp, receiver: Receiver):
    app = new_app()
    failing(app)
    async with app:
        await put_agent(
            app, {"url": receiver.url, "failures": 2, "deadLetter": False, "secret": format_secret(SECRET)}
        )
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
        await fails(app)
        await fails(app)
        await eventually(lambda: told(receiver))
        (sender,) = [job for job in await app.jobs.list() if job.name == "wakeful-alerts"]
    (alert,) = told(receiver)
    assert (alert["kind"], alert["workspace"], alert["agent"], alert["job"], alert["count"]) == (
        "failures", "default", "default", "digest", 2,
    )  # fmt: skip
    assert alert["message"] == ("job 'digest' of agent 'default' has failed 2 times in a row: it never works")
    assert alert["run"]
    assert json.loads(receiver.bodies[0])["job"] == "wakeful-alerts"
    signature = hmac.new(SECRET, receiver.bodies[0], hashlib.sha256).hexdigest()
    assert receiver.headers["x-wakeful-signature"] == signature
    assert sender.labels == {"system": "alert"}


async def test_an_open_incident_sends_one_alert_whatever_the_cooldown(new_app: NewApp, receiver: Receiver):
    app = new_app()
    failing(app)
    async with app:
        await put_workspace(app, alerts={"url": receiver.url, "cooldownMs": 0})
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
        await app.jobs.create("report", schedule=SELDOM, target=Function("fail"))
        for name in ("digest", "digest", "digest", "report"):
            await fails(app, name)
        await eventually(lambda: len(told(receiver)) >= 2)
        await settled(app, "wakeful-workspace-alerts")
    alerts = [(alert["kind"], alert["job"]) for alert in told(receiver)]
    assert sorted(alerts) == [("dead_letter", "digest"), ("dead_letter", "report")]


async def test_two_replicas_send_each_alert_once(new_app: NewApp, receiver: Receiver):
    one, other = new_app(), new_app()
    failing(one, other)
    async with one, other:
        await put_workspace(one, alerts={"url": receiver.url})
        for number in range(4):
            await one.jobs.create(f"job-{number}", schedule=SELDOM, target=Function("fail"))
        runs = [await app.jobs.run(f"job-{number}") for number in range(4) for app in (one, other, one)]
        for run in runs:
            await over(one, run.id)
        await eventually(lambda: len(told(receiver)) >= 4)
        await settled(one, "wakeful-workspace-alerts")
    assert sorted(alert["job"] for alert in told(receiver)) == [f"job-{number}" for number in range(4)]
    # The kind depends on how many runs had failed when a replica looked.
    assert {alert["kind"] for alert in told(receiver)} <= {"dead_letter", "failures"}


async def test_a_failed_alert_can_be_replayed_and_raises_no_alert_itself(new_app: NewApp, receiver: Receiver):
    app = new_app()
    failing(app)
    async with app:
        await put_agent(app, {"url": receiver.url, "failures": 1, "deadLetter": False})
        receiver.answers(410)  # permanent: the alert itself becomes a dead letter
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
        await fails(app)
        await eventually(lambda: len(told(receiver)))
        dead = await eventually(lambda: _dead(app, "wakeful-alerts"))
        assert [each.job_name for each in await app.store.incidents(IncidentFilter("default"))] == ["digest"]
        receiver.answers(500)
        await app.jobs.resume("wakeful-alerts")
        again = await app.runs.replay(dead[0].id)
        await eventually(lambda: len(told(receiver)) == 2)
        receiver.answers(200)
        assert (await over(app, again.id)).state == "succeeded"
    assert [alert["job"] for alert in told(receiver)] == ["digest"] * 3


async def test_a_used_up_budget_sends_one_alert(new_app: NewApp, receiver: Receiver):
    app = new_app()

    @app.function("think")
    async def think() -> Succeeded:
        return Succeeded("done", '{"tokens":60}')

    async with app:
        await put_agent(app, {"url": receiver.url}, budget={"tokensPerDay": 50})
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        await over(app, (await app.jobs.run("think")).id)
        await eventually(lambda: told(receiver))
    (alert,) = told(receiver)
    assert (alert["kind"], alert["agent"], alert["job"], alert["run"]) == ("budget", "default", None, None)
    assert alert["message"] == (
        "agent 'default' has used 60 tokens today; its budget is 50 (tokensPerDay); "
        "its ticks are skipped until midnight UTC"
    )


@on_one_store
async def test_alert_settings_are_validated_and_their_secret_is_not_shown(
    new_app: NewApp, receiver: Receiver
):
    async with new_app() as app:
        kept = await put_agent(app, {"url": receiver.url, "secret": format_secret(SECRET)})
        assert kept == {
            "url": receiver.url, "failures": 3, "deadLetter": True, "missed": True,
            "budget": True, "waiting": False, "cooldownMs": 3_600_000,
        }  # fmt: skip
        for alerts, said in [
            ({"failures": 1}, "alerts: it has neither a url nor a channel"),
            ({"url": 5}, "alerts: url: 5 is not text"),
            ({"url": receiver.url, "to": "@ada"}, "alerts: to: it has no effect without a channel"),
            ({"url": "ftp://a"}, "alerts: 'ftp://a' is not an http or https URL"),
            ({"url": receiver.url, "secret": "short"}, "alerts: a webhook secret is 'whsec_'"),
            ({"url": receiver.url, "failures": 0}, "alerts: failures: 0 is out of range"),
            ({"url": receiver.url, "digest": "25:00"}, "alerts: digest: '25:00' is not a time of day"),
            ({"url": receiver.url, "digestTz": "UTC"}, "alerts: digestTz: it has no effect without a digest"),
            ({"url": receiver.url, "often": True}, "alerts: alerts has no field 'often'"),
        ]:
            with pytest.raises(InvalidArgument, match=said):
                await put_agent(app, alerts)
        await put_agent(app, None)
        with pytest.raises(NotFound):
            await app.jobs.get("wakeful-alerts")


@on_one_store
async def test_an_agent_with_alerts_can_be_deleted(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        await app.services.agents.put(LOCAL, "default", "writer", {"alerts": {"url": receiver.url}})
        await app.services.jobs.create(LOCAL, "default", "writer", {"name": "digest", "schedule": SELDOM})
        with pytest.raises(FailedPrecondition, match="has 1 job: delete it first"):
            await app.services.agents.delete(LOCAL, "default", "writer")
        await app.services.jobs.get(LOCAL, "default", "writer", "wakeful-alerts")  # its alert job is kept
        await app.services.jobs.delete(LOCAL, "default", "writer", "digest")
        await app.services.agents.delete(LOCAL, "default", "writer")
        with pytest.raises(NotFound):
            await app.services.agents.get(LOCAL, "default", "writer")


async def _dead(app: Wakeful, name: str):
    return [run for run in await app.runs.dead_letters() if run.job == name]


async def test_an_agent_key_can_read_the_alert_jobs_of_its_agent_but_not_change_them(
    ask: ApiClient, receiver: Receiver
):
    await ask("PUT", "/agents/ada", {"alerts": {"url": receiver.url}, "queue": {"debounceMs": 0}})
    ada = await ask.new("agent", agent="ada")
    job = "/agents/ada/jobs/wakeful-alerts"
    assert (await ada("GET", job)).status == 200
    tried = [
        await ada("DELETE", job),
        await ada("PATCH", job, {"maxAttempts": 1}),
        await ada("PUT", job, {"schedule": SELDOM}),
        *[await ada("POST", f"{job}/{verb}") for verb in ("pause", "resume", "run", "rotate-secret")],
        await ada("POST", "/agents/ada/jobs", {"name": "woken-by-hand", "schedule": SELDOM}),
        await ada("PUT", "/agents/ada/jobs/wakeful-channel-alerts", {"schedule": SELDOM}),
    ]
    await ada("POST", "/agents/ada/jobs", {"name": "mine", "schedule": SELDOM})
    tried.append(await ada("PATCH", "/agents/ada/jobs/mine", {"name": "wakeful-channel-alerts"}))
    run = (await ask("POST", f"{job}/run")).body["id"]
    tried += [await ada("POST", f"/runs/{run}/{verb}") for verb in ("cancel", "stop")]
    assert [(reply.status, reply.code) for reply in tried] == [(403, "permission-denied")] * len(tried)
    assert "is an internal job of Wakeful" in tried[0].body["detail"]
