"""Permissions of agent keys: jobs of admins, delivery targets and masked credentials."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.browser_client import browsing
from tests.support.rpc_client import Refused, calling
from tests.support.waiting import PATIENCE, eventually
from wakeful import Skip
from wakeful.service.auth.access import LOCAL
from wakeful.service.auth.masking import MASK

JOBS = "/agents/ada/jobs"
ADMINS = f"{JOBS}/report"
PULL = {"kind": "pull"}


@pytest.fixture
async def ada(ask: ApiClient) -> ApiClient:
    """Return a client with the key of an agent that has a job created by an admin."""
    await ask("PUT", "/agents/ada", {"channel": "telegram", "to": "1"})
    made = await ask("POST", JOBS, {"name": "report", "schedule": SELDOM, "target": PULL})
    assert (made.status, made.body["createdBy"].partition(":")[0]) == (201, "admin")
    return await ask.new("agent", agent="ada")


# --- jobs of admins --------------------------------------------------------------------------------------


@on_one_store
async def test_an_agent_key_cannot_change_a_job_created_by_an_admin(ask: ApiClient, ada: ApiClient):
    before = (await ask("GET", ADMINS)).body
    tried = [
        await ada("PATCH", ADMINS, {"schedule": "every 1s"}),
        await ada("PATCH", ADMINS, {"overlapPolicy": "replace"}),
        await ada("PATCH", ADMINS, {"description": "mine"}),
        await ada("PUT", ADMINS, {"schedule": "every 1s"}),
        await ada("DELETE", ADMINS),
        await ada("POST", f"{ADMINS}/backfill", {"start": 0, "end": 1}),
        await ada("POST", f"{ADMINS}/run", {"payload": {"n": 1}}),
        await ada("POST", f"{ADMINS}/run", {"overlapPolicy": "replace"}),
        await ada("POST", f"{ADMINS}/run", {"overlapPolicy": "queue_one"}),
        *[await ada("POST", f"{ADMINS}/{verb}") for verb in ("pause", "resume", "skip-next")],
        await ada("POST", f"{ADMINS}/rotate-secret"),
    ]
    assert [(reply.status, reply.code) for reply in tried] == [(403, "permission-denied")] * len(tried)
    assert "was created by an admin" in tried[0].body["detail"]
    assert (await ask("GET", ADMINS)).body == before
    async with calling(ada) as call:
        for method, params in (
            ("cron.update", {"patch": {"schedule": "every 1s"}}),
            ("cron.delete", {}),
            ("cron.toggle", {"enabled": False}),
        ):
            with pytest.raises(Refused) as refused:
                await call(method, jobId="report", **params)
            assert refused.value.code == "permission-denied"


@on_one_store
async def test_an_agent_key_can_change_run_and_delete_its_own_jobs(ada: ApiClient):
    made = await ada("POST", JOBS, {"name": "own", "schedule": SELDOM})
    assert made.body["createdBy"].startswith("agent:key:")
    own = f"{JOBS}/own"
    assert (await ada("PATCH", own, {"schedule": "every 1h"})).status == 200
    for verb in ("pause", "resume", "run"):
        assert (await ada("POST", f"{own}/{verb}")).status < 300
    assert (await ada("POST", f"{own}/run")).status == 201, "as often as it likes"
    assert (await ada("DELETE", own)).status == 204


@on_one_store
async def test_a_job_without_a_creator_counts_as_created_by_the_agent(ask: ApiClient, ada: ApiClient):
    row = await ask.app.store.job("default", "ada", "report")
    assert row is not None
    await ask.app.store.delete_job(row.id, row.created_ms, "deleted")
    await ask.app.store.create_jobs([row._replace(id=row.id[:-4] + "0000", created_by="")])
    assert (await ada("GET", ADMINS)).body["createdBy"] is None
    assert (await ada("PATCH", ADMINS, {"description": "mine"})).status == 200


async def test_an_agent_key_can_run_a_job_of_an_admin_once_a_minute(ask: ApiClient, ada: ApiClient):
    replies = await asyncio.gather(*[ada("POST", f"{ADMINS}/run") for _ in range(20)])
    assert sorted(reply.status for reply in replies) == [201] + [429] * 19
    refused = next(reply for reply in replies if reply.status == 429)
    assert (refused.code, "once a minute" in refused.body["detail"]) == ("resource-exhausted", True)
    assert (await ask("POST", f"{ADMINS}/run")).status == 201, "an admin may"


@on_one_store
async def test_a_run_by_an_agent_key_that_takes_long_holds_up_no_other_job(
    ask: ApiClient, ada: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    await ask("POST", JOBS, {"name": "slow", "schedule": SELDOM, "target": PULL})
    continued, held, store = asyncio.Event(), asyncio.Event(), ask.app.store
    add_runs = store.add_runs

    async def slowly(runs: Any, *given: Any, **named: Any) -> Any:
        if runs and runs[0].job_name == "slow":  # such as one whose job is locked
            held.set()
            await continued.wait()
        return await add_runs(runs, *given, **named)

    monkeypatch.setattr(store, "add_runs", slowly)
    both = [asyncio.create_task(ada("POST", f"{JOBS}/slow/run")) for _ in range(2)]
    await held.wait()
    async with asyncio.timeout(PATIENCE):
        assert (await ada("POST", f"{ADMINS}/run")).status == 201
    continued.set()
    assert sorted([(await each).status for each in both]) == [201, 429], "those of one job are counted"


@on_one_store
async def test_an_agent_key_can_end_only_its_own_runs_of_a_job_of_an_admin(ask: ApiClient, ada: ApiClient):
    theirs = (await ask("POST", f"{ADMINS}/run")).body["id"]
    refused = await ada("POST", f"/runs/{theirs}/cancel")
    assert (refused.status, refused.code) == (403, "permission-denied")
    (claimed,) = (await ada("POST", "/runs/claim", {"worker": "w", "waitMs": 5_000})).body["runs"]
    assert claimed["id"] == theirs
    assert (await ada("POST", f"/runs/{theirs}/stop")).status == 403
    own = (await ada("POST", f"{ADMINS}/run")).body["id"]
    assert (await ada("POST", f"/runs/{own}/cancel")).body["state"] == "cancelled"


@on_one_store
async def test_an_agent_key_can_delete_a_job_of_an_admin_while_executing_its_run(
    ask: ApiClient, ada: ApiClient
):
    assert (await ada("POST", f"{ADMINS}/run")).status == 201
    assert (await ada("POST", "/runs/claim", {"worker": "w", "waitMs": 5_000})).body["runs"]
    assert (await ada("DELETE", ADMINS)).status == 403, "it has started that run itself"
    await ask("POST", f"{ADMINS}/run")
    (claimed,) = (await ada("POST", "/runs/claim", {"worker": "w", "waitMs": 5_000})).body["runs"]
    assert claimed["trigger"] == "user"
    other = {"x-wakeful-run-id": "0190a0b0-0000-7000-8000-000000000000"}
    assert (await ada("DELETE", ADMINS, headers=other)).status == 403, "the call is made in another run"
    assert (await ada("DELETE", ADMINS, headers={"x-wakeful-run-id": claimed["id"]})).status == 204


@on_one_store
async def test_a_run_forced_by_an_agent_key_is_prechecked(new_app: NewApp):
    app = new_app()
    launched: list[str] = []

    @app.function("anything-new")
    async def anything_new() -> object:
        return Skip("nothing")

    @app.function("work")
    async def work() -> None:
        launched.append("work")

    async with app, served(app) as ask:
        job = {
            "name": "guarded",
            "schedule": SELDOM,
            "target": {"kind": "function", "name": "work"},
            "precheck": {"kind": "function", "name": "anything-new"},
        }
        await ask("POST", JOBS, job)
        ada = await ask.new("agent", agent="ada")
        forced = (await ada("POST", f"{JOBS}/guarded/run", {"mode": "force"})).body["id"]

        async def over() -> Any:
            run = await app.services.runs.get(LOCAL, "default", forced)
            return run if run.finished_ms is not None else None

        run = await eventually(over)
        assert (run.state, run.reason, launched) == ("skipped", "precheck", [])
        await ask("POST", f"{JOBS}/guarded/run", {"mode": "force"})
        await eventually(lambda: launched)


# --- delivery targets ------------------------------------------------------------------------------------


@on_one_store
async def test_an_agent_key_can_deliver_only_to_the_channel_of_its_agent_and_deliver_to(
    ask: ApiClient, ada: ApiClient
):
    def document(**fields: object) -> dict[str, object]:
        return {"schedule": SELDOM, "deliver": True, **fields}

    fine: list[dict[str, object]] = [{}, {"channel": "telegram"}, {"channel": "telegram", "to": "1"}]
    beyond: list[dict[str, object]] = [
        {"channel": "slack"},
        {"channel": "telegram", "to": "2"},
        {"to": "2"},
        {"channel": "slack", "to": "1"},
    ]
    for number, fields in enumerate(fine):
        assert (await ada("PUT", f"{JOBS}/fine-{number}", document(**fields))).status == 201
    for fields in beyond:
        refused = await ada("PUT", f"{JOBS}/beyond", document(**fields))
        assert (refused.status, refused.code) == (403, "permission-denied"), fields
        patched = await ada("PATCH", f"{JOBS}/fine-0", fields)
        assert "deliverTo" in patched.body["detail"]
        silent = await ada("PUT", f"{JOBS}/beyond", {**document(**fields), "deliver": False})
        assert silent.status == 403, "or it could be switched on later"
    places = [{"channel": "slack"}, {"channel": "telegram", "to": "2"}]
    put = {"channel": "telegram", "to": "1", "deliverTo": places}
    assert (await ask("PUT", "/agents/ada", put)).body["deliverTo"] == places
    for number, fields in enumerate(beyond):
        assert (await ada("PUT", f"{JOBS}/beyond-{number}", document(**fields))).status == 201
    assert (await ada("PUT", f"{JOBS}/third", document(channel="telegram", to="3"))).status == 403
    assert (await ask("PUT", f"{JOBS}/third", document(channel="mail", to="3"))).status == 201, "an admin may"


@on_one_store
@pytest.mark.parametrize("value", ["slack", [1], [{"to": "1"}], [{"channel": "a", "x": 1}]])
async def test_an_invalid_deliver_to_is_refused(ask: ApiClient, value: object):
    refused = await ask("PUT", "/agents/ada", {"deliverTo": value})
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert "deliverTo: " in refused.body["detail"]


# --- masked credentials ----------------------------------------------------------------------------------

HOOK = {
    "kind": "webhook",
    "url": "https://user:password@hooks.example.com/in?token=query-secret#fragment-secret",
    "headers": {"x-api-key": "header-secret"},
}
SECRETS = ("password", "query-secret", "fragment-secret", "header-secret", "alert-secret")


@on_one_store
async def test_credentials_are_shown_only_to_admins(ask: ApiClient):
    alerts = {"url": "https://hooks.example.com/services/alert-secret"}
    await ask("PUT", "", {"alerts": alerts})
    await ask("PUT", "/agents/ada", {"target": HOOK, "alerts": alerts})
    precheck = {**HOOK, "timeoutMs": 5_000}
    job = {"name": "job", "schedule": SELDOM, "target": HOOK, "precheck": precheck}
    await ask("POST", JOBS, job)
    flow = {"kind": "workflow", "workflowId": "w", "version": 1, "to": HOOK}
    await ask("POST", JOBS, {"name": "flow", "schedule": SELDOM, "target": flow})
    paths = ("", "/agents", "/agents/ada", JOBS, "/jobs", f"{JOBS}/job", f"{JOBS}/flow")
    member, ada = await ask.new("member"), await ask.new("agent", agent="ada")
    for caller in (member, ada):
        for path in (*paths, f"{JOBS}/wakeful-alerts", "/api/workspaces"):
            reply = await caller("GET", path)
            assert reply.status == 200
            found = [secret for secret in SECRETS if secret in str(reply.body)]
            assert not found, (path, found)
        async with calling(caller) as call:
            for method in ("cron.list", "cron.status"):
                told = str(await call(method, **({"agentId": "ada"} if method == "cron.list" else {})))
                assert not [secret for secret in SECRETS if secret in told], method
    shown = (await ada("GET", f"{JOBS}/job")).body["target"]
    assert shown == {
        "kind": "webhook",
        "url": f"https://{MASK}@hooks.example.com/in?{MASK}#{MASK}",
        "headers": {"x-api-key": MASK},
    }
    assert (await ask("GET", f"{JOBS}/job")).body["target"] == HOOK
    assert (await ask("GET", "/agents/ada")).body["alerts"]["url"] == alerts["url"]
    audit = str((await ask("GET", "/audit")).body)
    assert not [secret for secret in SECRETS if secret in audit]


@on_one_store
async def test_masked_values_are_restored_on_update_and_refused_for_another_url(ask: ApiClient):
    ada = await ask.new("agent", agent="ada")
    made = await ada("POST", JOBS, {"name": "own", "schedule": SELDOM, "target": HOOK})
    assert made.status == 201
    assert "header-secret" not in str(made.body)
    own = f"{JOBS}/own"
    document = (await ada("GET", own)).body
    again = await ada("PUT", own, document)
    assert (again.status, again.body["revision"]) == (200, document["revision"])
    changed = await ada("PUT", own, {**document, "description": "new"})
    assert (changed.status, changed.body["description"]) == (200, "new")
    assert (await ask("GET", own)).body["target"] == HOOK
    stolen = {**document["target"], "url": "https://elsewhere.example.com/"}
    for reply in (
        await ada("PUT", own, {**document, "target": stolen}),
        await ada("PATCH", own, {"target": stolen}),
        await ada("POST", JOBS, {"name": "other", "schedule": SELDOM, "target": stolen}),
    ):
        assert (reply.status, reply.code) == (422, "invalid-argument")
        assert f"target: '{MASK}' stands for a masked value" in reply.body["detail"]
    assert (await ask("GET", own)).body["target"] == HOOK


# --- figures of the workspace ----------------------------------------------------------------------------


async def test_an_agent_key_gets_the_figures_of_its_own_agent_only(ask: ApiClient, ada: ApiClient):
    for agent, tokens in (("ada", 7), ("ben", 40)):
        await ask("PUT", f"/agents/{agent}/jobs/report", {"schedule": SELDOM, "target": PULL})
        await ask("PUT", f"/agents/{agent}/jobs/more", {"schedule": SELDOM, "target": PULL})
        for _ in range(1 if agent == "ada" else 3):
            await ask("POST", f"/agents/{agent}/jobs/report/run", {"overlapPolicy": "allow"})
        claimed = (await ask("POST", "/runs/claim", {"worker": agent, "agents": [agent]})).body["runs"]
        done = {"status": "succeeded", "attempt": 1, "usage": {"tokens": tokens, "cost": tokens / 10}}
        assert (await ask("POST", f"/runs/{claimed[0]['id']}/complete", done)).status == 200
        await ask("POST", f"/agents/{agent}/jobs/more/run")
    await ask("POST", "/agents/ben/jobs/more/pause")

    async def figures(client: ApiClient) -> tuple[object, ...]:
        status, slo = (await client("GET", "/status")).body, (await client("GET", "/slo")).body
        return (await client("GET", "")).body["spent"], status["jobs"], status["runs"], slo["runs"]

    waits = {"running": 0, "retrying": 0}
    jobs, runs = {"active": 2, "paused": 0}, {**waits, "pending": 1}
    assert await figures(ada) == ({"tokens": 7, "cost": 0.7}, jobs, runs, 2)
    whole = await figures(ask)
    assert whole[:2] == ({"tokens": 47, "cost": 4.7}, {"active": 3, "paused": 1})
    assert whole[3] == 6
    async with browsing(ask.url) as browser:
        await browser.sign_in(ada.key)
        page = (await browser("GET", "/workspaces/default/workspace")).body
    assert "$0.70, 7 tokens" in page
    assert "47 tokens" not in page
