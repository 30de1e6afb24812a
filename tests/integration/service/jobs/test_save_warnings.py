"""Saving a job without a target warns that its runs wait for an executor, the same in every interface."""

from __future__ import annotations

import json
import logging
import shlex

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.rpc_client import calling
from wakeful import AsyncClient, Wakeful
from wakeful.client import jobs as client_jobs
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.save_warnings import job_waits, jobs_wait, no_upstream
from wakeful.service.runs import executors
from wakeful.settings import Settings

NOTHING = {"kind": "function", "name": "nothing"}
WAITS = job_waits("hello", "default", 3_600_000)
HELLO = {"name": "hello", "schedule": SELDOM}


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_jobs, "_reported", set())


def test_the_warning_names_the_wait_and_the_remedies():
    assert job_waits("hello", "writer", 90_000) == (
        "job 'hello' has no target, nor has its agent 'writer': its runs wait for an executor, and a run "
        "that none claims within 1 minute 30 seconds fails; no executor has asked for runs of this agent in "
        "the last hour. Set a target of the job (webhookUrl or target; --url in the CLI), or of the agent "
        """(wakeful agents set writer target='{"kind": "webhook", "url": "URL"}')"""
    )
    assert jobs_wait(["c", "b", "d", "a"], "writer").startswith(
        "agent 'writer' has no target any more, nor have 4 jobs of it (a, b, c, …): their runs wait for an"
    )
    assert "nor has 1 job of it (a): its runs wait" in jobs_wait(["a"], "writer")


async def test_the_advice_keeps_the_other_fields_of_the_agent(ask: ApiClient):
    body = (await ask("POST", JOBS.replace("/default/jobs", "/writer/jobs"), HELLO)).body
    (warning,) = body["warnings"]
    command = shlex.split(warning.partition("(wakeful ")[2].removesuffix(")"))
    assert command[:3] == ["agents", "set", "writer"]
    agent = JOBS.replace("/default/jobs", "/writer")
    assert (await ask("PATCH", agent, {"tz": "Europe/Berlin"})).status == 200
    field, _, value = command[3].partition("=")
    target = json.loads(value.replace("URL", "https://a.example"))
    changed = await ask("PATCH", agent, {field: target})
    assert (changed.status, changed.body["tz"], changed.body["target"]["kind"]) == (
        200,
        "Europe/Berlin",
        "webhook",
    )
    assert "warnings" not in (await ask("PUT", f"{agent}/jobs/hello", HELLO)).body


async def test_create_upsert_and_edit_warn_over_http(ask: ApiClient):
    assert (await ask("POST", JOBS, HELLO)).body["warnings"] == [WAITS]
    assert (await ask("PUT", f"{JOBS}/hello", HELLO)).body["warnings"] == [WAITS]
    patched = await ask("PATCH", f"{JOBS}/hello", {"message": "hi", "claimTimeoutMs": 60_000})
    assert patched.body["warnings"] == [job_waits("hello", "default", 60_000)]
    assert "warnings" not in (await ask("GET", f"{JOBS}/hello")).body

    sent_back = await ask("PUT", f"{JOBS}/hello", patched.body)
    assert sent_back.status == 200, "a response may be sent back"
    fixed = await ask("PATCH", f"{JOBS}/hello", {"target": NOTHING})
    assert "warnings" not in fixed.body
    assert (await ask("PATCH", f"{JOBS}/hello", {"target": None})).body["warnings"]


async def test_a_repeated_request_gets_the_same_warning(ask: ApiClient):
    first, again = [await ask("POST", JOBS, HELLO, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert first.body["warnings"] == again.body["warnings"] == [WAITS]


@on_one_store
@pytest.mark.parametrize(
    "fields", [{"target": {"kind": "pull"}}, {"target": NOTHING}, {"webhookUrl": "https://example.com/a"}]
)
async def test_a_job_with_a_target_is_saved_without_a_warning(ask: ApiClient, fields: dict[str, object]):
    assert "warnings" not in (await ask("POST", JOBS, {**HELLO, **fields})).body


@on_one_store
async def test_a_job_that_inherits_a_target_is_saved_without_a_warning(ask: ApiClient):
    await ask("PUT", "/agents/writer", {"target": NOTHING})
    assert "warnings" not in (await ask("POST", "/agents/writer/jobs", HELLO)).body


async def test_removing_the_target_of_an_agent_warns_of_the_jobs_that_inherited_it(ask: ApiClient):
    await ask("PUT", "/agents/writer", {"target": NOTHING})
    await ask("POST", "/agents/writer/jobs", HELLO)
    await ask("POST", "/agents/writer/jobs", {**HELLO, "name": "own", "target": NOTHING})

    kept = await ask("PUT", "/agents/writer", {"target": NOTHING, "description": "writes"})
    assert "warnings" not in kept.body
    removed = await ask("PUT", "/agents/writer", {})
    assert removed.body["warnings"] == [jobs_wait(["hello"], "writer")]
    assert "warnings" not in (await ask("PUT", "/agents/writer", removed.body)).body
    assert "warnings" not in (await ask("GET", "/agents/writer")).body


@on_one_store
@pytest.mark.parametrize(
    ("claim", "known"),
    [
        ({}, True),
        ({"agents": ["default"]}, True),
        ({"agents": ["writer", "default"], "lanes": ["cron"]}, True),
        ({"lanes": ["main", "cron"]}, True),
        ({"agents": ["writer"]}, False),
        ({"lanes": ["main"]}, False),
    ],
)
async def test_an_executor_that_asks_for_runs_of_the_agent_prevents_the_warning(
    ask: ApiClient, claim: dict[str, object], known: bool
):
    assert (await ask("POST", "/runs/claim", {"worker": "laptop", **claim})).body == {"runs": []}
    assert ("warnings" not in (await ask("POST", JOBS, HELLO)).body) is known


async def test_a_claim_that_another_process_answered_prevents_the_warning(new_app: NewApp):
    async with new_app() as one, served(one) as ask:
        await ask("POST", JOBS, {**HELLO, "target": {"kind": "pull"}})
        await ask("POST", f"{JOBS}/hello/run")
        (run,) = (await ask("POST", "/runs/claim", {"worker": "laptop"})).body["runs"]
        await ask("POST", f"/runs/{run['id']}/complete", {"attempt": 1, "status": "succeeded"})
    async with new_app() as other:
        assert (await other.jobs.create("second", schedule=SELDOM)).warnings == ()
        assert (await other.jobs.create("third", schedule=SELDOM, lane="main")).warnings
        assert (await other.jobs.of("writer").create("fourth", schedule=SELDOM)).warnings


async def test_an_executor_that_stopped_long_ago_does_not_prevent_the_warning(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
):
    await ask("POST", "/runs/claim", {"worker": "laptop"})
    monkeypatch.setattr(executors, "RECENT_MS", -60_000)
    assert (await ask("POST", JOBS, HELLO)).body["warnings"] == [WAITS]


@on_one_store
async def test_many_jobs_cost_one_query_for_executors(ask: ApiClient, monkeypatch: pytest.MonkeyPatch):
    store, read = ask.app.store, 0
    of_store = store.runs

    async def counted(only: object) -> object:
        nonlocal read
        read += 1
        return await of_store(only)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "runs", counted)
    documents = [{"name": f"job-{number}", "schedule": SELDOM} for number in range(50)]
    saved = await ask.app.services.jobs.create_many(LOCAL, "default", "default", documents)
    assert [each.warnings for each in saved] == [
        (job_waits(f"job-{number}", "default", 3_600_000),) for number in range(50)
    ]
    assert read == 1


@on_one_store
async def test_the_rpc_warns(ask: ApiClient):
    async with calling(ask) as call:
        job = (await call("cron.create", **HELLO))["job"]
        assert job["warnings"] == [WAITS]
        patch = {"message": "hi"}
        assert (await call("cron.update", jobId=job["id"], patch=patch))["job"]["warnings"] == [WAITS]


@on_one_store
async def test_the_mcp_tool_warns_in_its_text(ask: ApiClient):
    pytest.importorskip("mcp")
    from tests.support.mcp_agent import over_http

    async with over_http(ask) as agent:
        added = await agent("add", job={"name": "hello", "schedule": "0 9 * * *", "message": "good morning"})
        assert f"Warning: {WAITS}" in added["text"]
        assert added["job"]["warnings"] == [WAITS]
        changed = await agent("update", jobId="hello", patch={"message": "good evening"})
        assert f"Warning: {WAITS}" in changed["text"]
        assert "Warning" not in (await agent("get", jobId="hello"))["text"]


@on_one_store
async def test_python_programs_get_the_warning_and_a_log_record(
    ask: ApiClient, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "wakeful.jobs")
    async with AsyncClient(ask.url, ask.key) as client:
        for scheduler in (ask.app, client):
            client_jobs._reported.clear()
            caplog.clear()
            await _saves_with_warnings(scheduler)
            (record,) = [each for each in caplog.records if each.name == "wakeful.jobs"]
            assert WAITS in record.getMessage().replace('\\"', '"'), "once for each agent"


async def _saves_with_warnings(scheduler: Wakeful | AsyncClient) -> None:
    assert (await scheduler.jobs.create("hello", schedule=SELDOM)).warnings == (WAITS,)
    assert (await scheduler.jobs.upsert("hello", schedule=SELDOM)).warnings == (WAITS,)
    assert (await scheduler.jobs.update("hello", message="hi")).warnings == (WAITS,)
    assert (await scheduler.jobs.get("hello")).warnings == ()
    assert (await scheduler.jobs.create("other", schedule=SELDOM)).warnings != ()
    await scheduler.jobs.delete("hello")
    await scheduler.jobs.delete("other")


async def test_a_job_after_no_job_warns_when_it_is_saved_shown_and_examined(ask: ApiClient):
    then = {"name": "then", "after": "first", "target": NOTHING}
    alone = [no_upstream("then", "first")]
    assert (await ask("POST", JOBS, then)).body["warnings"] == alone
    assert (await ask("GET", f"{JOBS}/then")).body["warnings"] == alone
    assert await _chains(ask) == ("warning", True)
    await ask("POST", JOBS, {"name": "first", "schedule": SELDOM, "target": NOTHING})
    assert "warnings" not in (await ask("PATCH", f"{JOBS}/then", {"description": "x"})).body
    assert "warnings" not in (await ask("GET", f"{JOBS}/then")).body
    assert await _chains(ask) == ("ok", False)

    assert "warnings" not in (await ask("PATCH", f"{JOBS}/first", {"name": "start"})).body
    assert (await ask("GET", f"{JOBS}/then")).body["after"]["job"] == "start", "as it was renamed"
    deleted = await ask("DELETE", f"{JOBS}/start")
    assert (deleted.status, deleted.body["warnings"]) == (200, [no_upstream("then", "start")])
    assert (await ask("DELETE", f"{JOBS}/then")).status == 204


async def test_output_that_cannot_be_delivered_warns_when_a_job_is_saved_shown_and_examined(new_app: NewApp):
    settings = Settings(channels={"team": "json://127.0.0.1:1/"})
    nowhere = "the output of job 'loud' is not delivered: neither the job nor its agent has a channel; set"
    unknown = "this server has no channel 'mail', only team; the operator sets it with WAKEFUL_CHANNEL_MAIL"
    loud = {"name": "loud", "schedule": SELDOM, "target": {"kind": "echo"}, "deliver": True}
    async with new_app(settings=settings) as app, served(app) as ask:

        async def examine() -> tuple[str, bool]:
            checks = {check["name"]: check for check in (await ask("GET", "/doctor")).body["checks"]}
            return checks["channels"]["state"], "default/loud" in checks["channels"]["message"]

        (warning,) = (await ask("POST", JOBS, loud)).body["warnings"]
        assert warning.startswith(nowhere)
        assert (await ask("GET", f"{JOBS}/loud")).body["warnings"] == [warning]
        assert await examine() == ("warning", True)
        (warning,) = (await ask("PATCH", f"{JOBS}/loud", {"channel": "mail"})).body["warnings"]
        assert warning.endswith(unknown)
        assert "warnings" not in (await ask("PATCH", f"{JOBS}/loud", {"channel": "team"})).body
        assert "warnings" not in (await ask("GET", f"{JOBS}/loud")).body
        assert await examine() == ("ok", False)

        (warning,) = (await ask("PUT", "/agents/default", {"channel": "mail"})).body["warnings"]
        assert warning == f"nothing is delivered for agent 'default': {unknown}"
        assert (await ask("PATCH", f"{JOBS}/loud", {"channel": None})).body["warnings"][0].endswith(unknown)
        assert "warnings" not in (await ask("PUT", "/agents/default", {"channel": "team"})).body
        assert "warnings" not in (await ask("GET", f"{JOBS}/loud")).body


@on_one_store
async def test_each_interface_warns_of_jobs_that_come_after_a_deleted_one(ask: ApiClient):
    pytest.importorskip("mcp")
    from tests.support.mcp_agent import over_http

    for name, after in (("then", "a"), ("last", "b"), ("other", "c"), ("c", "b")):
        await ask("POST", JOBS, {"name": name, "after": after, "target": NOTHING})
    for name in ("a", "b"):
        await ask("POST", JOBS, {"name": name, "schedule": SELDOM, "target": NOTHING})
    told = no_upstream("then", "a")
    async with calling(ask) as call:
        assert (await call("cron.delete", jobId="a"))["warnings"] == [told]
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM, "target": NOTHING})
    async with over_http(ask) as agent:
        removed = await agent("remove", jobId="a")
        assert removed["warnings"] == [told]
        assert f"Warning: {told}" in removed["text"]
    many = await ask("POST", "/api/workspaces/default/jobs/delete", {"jobs": ["b", "last", "c"]})
    assert many.body["warnings"] == [no_upstream("other", "c")], "only of jobs that are left"


async def _chains(ask: ApiClient) -> tuple[str, bool]:
    """Return what the doctor says of chains, and whether it names the job."""
    checks = (await ask("GET", "/api/workspaces/default/doctor")).body["checks"]
    (check,) = [each for each in checks if each["name"] == "chains"]
    return check["state"], "default/then" in check["message"]
