"""The MCP tool, called with the official client over HTTP and stdio."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import aiohttp
import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.agent_classes import with_classes
from tests.support.api_client import ApiClient, served
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import over
from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

pytest.importorskip("mcp")

from mcp.shared.exceptions import MCPError
from mcp_types import TextContent, TextResourceContents

from tests.support.mcp_agent import Agent, over_http, over_stdio, text_of

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Use SQLite only: the tool does not depend on the store."""
    return f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}"


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    app = new_app()

    @app.function()
    async def note() -> str:
        return "noted"

    async with app, served(app) as caller:
        await app.services.agents.put(LOCAL, "default", "writer", {"tz": "Europe/Berlin"})
        await app.services.agents.put(LOCAL, "default", "painter", {})
        yield caller


@pytest.fixture
async def writer(operator: ApiClient) -> AsyncIterator[Agent]:
    """Connect an agent with its own key; its client must start and stop in one task."""
    begun: asyncio.Future[Agent] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with over_http(await operator.new("agent", agent="writer")) as agent:
            begun.set_result(agent)
            await over.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold())
        yield await begun
        over.set()


# --- the tool ----------------------------------------------------------------------------------------


async def test_an_agent_adds_lists_updates_runs_and_removes_a_job(operator: ApiClient, writer: Agent):
    tomorrow = (datetime.now(BERLIN) + timedelta(days=1)).date()
    added = await writer(
        "add", job={"name": "digest", "schedule": "tomorrow at 9", "message": "Write the digest for Ada."}
    )
    job = added["job"]
    assert job["schedule"]["kind"] == "at"
    assert (job["agentId"], job["tz"]) == ("writer", "Europe/Berlin")
    at = datetime.fromisoformat(job["nextAt"]).astimezone(BERLIN)
    assert (at.date(), at.hour, at.minute) == (tomorrow, 9, 0)
    assert f"next: tomorrow, {at:%A} {at.day} {at:%B %Y} at 09:00 Europe/Berlin (in " in added["text"]
    assert "It is now 20" in added["text"]
    assert abs(datetime.fromisoformat(added["now"]) - datetime.now(BERLIN)) < timedelta(minutes=1)

    changed = await writer("update", jobId=job["id"], patch={"schedule": "every weekday at 7:30am"})
    assert changed["job"]["schedule"] == {"kind": "cron", "expr": "30 7 * * 1-5", "tz": "Europe/Berlin"}
    assert changed["job"]["message"] == "Write the digest for Ada."
    assert ", then " in changed["text"]

    ran = await writer("run", jobId="digest")
    assert ran["run"]["state"] == "pending"
    assert ran["run"]["trigger"] == "agent"
    runs = await writer("runs", jobId="digest")
    assert [run["id"] for run in runs["runs"]] == [ran["run"]["id"]]

    listed = await writer("list")
    assert [(each["name"], each["enabled"]) for each in listed["jobs"]] == [("digest", True)]
    assert "digest: At 07:30, Monday through Friday (Europe/Berlin); next: " in listed["text"]

    status = await writer("status")
    assert status["status"]["jobs"]["active"] == 1
    assert "agent 'writer'" in status["text"]

    removed = await writer("remove", jobId="digest")
    assert removed["removed"]["name"] == "digest"
    assert (await writer("list"))["jobs"] == []


async def test_a_budget_can_be_lowered_but_not_raised_or_removed(writer: Agent):
    await writer("add", name="think", message="Think.", schedule="@daily", budget={"tokensPerDay": 100})
    lower = await writer("update", name="think", patch={"budget": '{"tokensPerDay": 50}'})
    assert lower["job"]["budget"] == {"tokensPerDay": 50}
    for budget in ({"tokensPerDay": 100}, {"costPerDay": 1}):
        sentence = await writer.refused(action="update", name="think", patch={"budget": budget})
        assert sentence.startswith("permission-denied: budget: a key of the role 'agent' may lower")


async def test_flat_arguments_in_snake_case_are_accepted(writer: Agent):
    added = await writer("add", message="\tLook again.\n\t\tTwice.", every_minutes="15", max_attempts="2")
    assert added["job"]["name"] == "look-again-twice"
    assert added["job"]["message"] == "Look again.\n\tTwice."
    assert added["job"]["schedule"]["everyMs"] == 900_000
    assert added["job"]["maxAttempts"] == 2
    again = await writer("add", message="Look again. Twice.", when="in an hour")
    assert again["job"]["name"] == "look-again-twice-2"
    assert (await writer("pause", name="look-again-twice"))["job"]["enabled"] is False
    listed = await writer("list")
    assert [job["enabled"] for job in listed["jobs"]] == [False, True]
    assert "next: never, the job is not enabled (paused)" in listed["text"]
    assert len((await writer("list", includeDisabled=False))["jobs"]) == 1
    first = await writer("list", limit=1)
    assert first["cursor"] == "look-again-twice"
    rest = await writer("list", cursor=first["cursor"])
    assert [job["name"] for job in rest["jobs"]] == ["look-again-twice-2"]


async def test_a_client_that_sends_every_argument_changes_what_the_model_gave(writer: Agent):
    (tool,) = (await writer.client.list_tools()).tools
    nothing = dict.fromkeys(tool.input_schema["properties"])
    del nothing["action"]
    unset = dict.fromkeys(tool.input_schema["properties"]["job"]["properties"])
    given = {"name": "a", "schedule": SELDOM, "message": "look", "maxRuns": 5, "description": "why"}
    await writer("add", **{**nothing, "job": {**unset, **given}})
    patch = {**unset, "message": "look again"}
    changed = (await writer("update", **{**nothing, "jobId": "a", "job": patch}))["job"]
    assert {name: changed[name] for name in ("message", "maxRuns", "description")} == {
        "message": "look again",
        "maxRuns": 5,
        "description": "why",
    }
    # A single null resets its field.
    assert "maxRuns" not in (await writer("update", jobId="a", job={"maxRuns": None}))["job"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"action": "explode"},
            'invalid-argument: action: there is no action "explode"; there are add, get',
        ),
        ({}, "invalid-argument: action: it is missing; there are add, get, list"),
        ({"action": "add", "schedule": "every 5m"}, "invalid-argument: message: it is missing"),
        (
            {"action": "add", "schedule": "every 5m", "message": " \t"},
            "invalid-argument: message: it is empty; give it some text",
        ),
        (
            {"action": "add", "schedule": "2020-01-01T09:00", "message": "x"},
            "invalid-argument: schedule: '2020-01-01T09:00' is in the past; it is now 20",
        ),
        (
            {"action": "add", "schedule": "every morning", "message": "x"},
            "invalid-argument: schedule: 'every morning' has no time of day; write one, such as",
        ),
        (
            {"action": "add", "schedule": "@daily", "tz": "Mars/Olympus", "message": "x"},
            "invalid-argument: tz: unknown time zone 'Mars/Olympus'",
        ),
        (
            {"action": "add", "name": "Daily Digest", "schedule": "@daily", "message": "x"},
            "invalid-argument: name: 'Daily Digest' is not a slug",
        ),
        ({"action": "remove", "jobId": "nothing"}, "not-found: no job 'nothing'; list the jobs"),
        ({"action": "remove"}, "invalid-argument: jobId: it is missing"),
        ({"action": "update", "jobId": "nothing", "enabled": False}, "not-found: no job 'nothing'"),
        ({"action": "list", "agentId": "painter"}, "not-found: no agent 'painter'"),
        (
            {"action": "add", "agentId": "painter", "schedule": "@daily", "message": "x"},
            "not-found: no agent 'painter'",
        ),
    ],
)
async def test_errors_are_those_of_the_service(writer: Agent, arguments: dict[str, object], sentence: str):
    said = await writer.refused(**arguments)
    assert said.startswith(sentence)
    assert "It is now 20" in text_of(await writer.raw(**arguments))


async def test_a_wrong_zone_is_the_only_error_and_suggests_another(writer: Agent):
    for fields in ({"schedule": "every weekday at 9am"}, {"schedule": {"when": "tomorrow at 9"}}):
        said = await writer.refused(action="add", tz="PST", message="x", **fields)
        assert "unknown time zone 'PST'; give an IANA name such as 'America/Los_Angeles'" in said
        assert "is not a" not in said


async def test_the_error_for_a_past_time_suggests_an_alternative(writer: Agent):
    said = await writer.refused(action="add", at=1_600_000_000, message="x")
    assert "is in the past; it is now" in said
    assert "write a later time, or 'in 20m'" in said


async def test_a_duplicate_name_is_rejected(writer: Agent):
    await writer("add", name="a", schedule=SELDOM, message="x")
    said = await writer.refused(action="add", name="a", schedule=SELDOM, message="x")
    assert said.startswith("already-exists: ")


async def test_an_agent_sees_and_changes_only_its_own_jobs(operator: ApiClient, writer: Agent):
    mine = await writer("add", name="mine", schedule=SELDOM, message="x")
    async with over_http(await operator.new("agent", agent="painter")) as painter:
        assert (await painter("list"))["jobs"] == []
        for job in ("mine", mine["job"]["id"]):
            assert (await painter.refused(action="remove", jobId=job)).startswith("not-found: no job '")
            assert (await painter.refused(action="runs", jobId=job)).startswith("not-found: no job '")
    assert len((await writer("list"))["jobs"]) == 1


async def test_an_agent_can_remove_the_job_it_is_running_in(operator: ApiClient, writer: Agent):
    await writer("add", name="poll", schedule="every 1h", message="look, and stop when it is there")
    run = (await writer("run", jobId="poll"))["run"]["id"]
    claimed = await operator("POST", "/runs/claim", {"worker": "w", "agents": ["writer"]})
    assert [each["id"] for each in claimed.body["runs"]] == [run]
    await writer("remove", jobId="poll")
    assert (await operator("GET", f"/runs/{run}")).body["state"] == "running"
    outcome = {
        "status": "succeeded", "attempt": 1, "output": "it is there", "evidence": {"external_id": 17},
    }  # fmt: skip
    done = await operator("POST", f"/runs/{run}/complete", outcome)
    assert done.body["state"] == "succeeded"
    (shown,) = (await writer("runs"))["runs"]
    assert (shown["output"], shown["evidence"]) == ("it is there", {"external_id": 17})


@pytest.mark.parametrize("action", ["list", "runs", "status"])
async def test_an_agent_with_only_a_key_can_call_the_tool(operator: ApiClient, action: str):
    async with over_http(await operator.new("agent", agent="newcomer")) as newcomer:
        assert "It is now" in (await newcomer(action))["text"]


async def test_an_operator_selects_the_agent_and_workspace(operator: ApiClient):
    async with over_http(operator) as agent:
        assert (await agent("add", schedule=SELDOM, message="hello"))["job"]["agentId"] == "default"
        added = await agent("add", schedule=SELDOM, message="hello", agentId="writer")
        assert (added["job"]["agentId"], added["job"]["tz"]) == ("writer", "Europe/Berlin")
        run = (await agent("run", jobId=added["job"]["id"]))["run"]
        assert [each["id"] for each in (await agent("runs", jobId=added["job"]["id"]))["runs"]] == [run["id"]]
        assert (await agent("remove", jobId=added["job"]["id"]))["removed"]["name"] == "hello"
    async with over_http(operator, "?agent=painter") as agent:
        assert (await agent("add", schedule=SELDOM, message="hello"))["job"]["agentId"] == "painter"
    await operator.app.services.agents.workspaces.put(LOCAL, "acme", {"tz": "Asia/Tokyo"})
    async with over_http(operator, "?workspace=acme") as agent:
        job = (await agent("add", schedule=SELDOM, message="hello"))["job"]
        assert (job["workspace"], job["tz"]) == ("acme", "Asia/Tokyo")
    async with over_http(await operator.new("admin"), "?workspace=acme") as agent:
        assert (await agent.refused(action="list")).startswith("not-found: no workspace 'acme'")


async def test_a_time_without_a_zone_is_in_the_zone_of_the_job(writer: Agent):
    await writer("add", name="a", schedule="0 9 * * *", tz="Asia/Tokyo", message="x")
    changed = await writer("update", jobId="a", schedule="every friday at 18:00", name="b")
    assert changed["job"]["schedule"] == {"kind": "cron", "expr": "0 18 * * 5", "tz": "Asia/Tokyo"}
    assert "Changed 'b'" in changed["text"]


async def test_a_member_can_list_jobs_but_not_add_them(operator: ApiClient):
    async with over_http(await operator.new("member")) as member:
        assert (await member("list"))["jobs"] == []
        said = await member.refused(action="add", schedule=SELDOM, message="hello")
        assert said.startswith("permission-denied: a key of the role 'member' may not do this")


async def test_the_context_sets_the_delivery_unless_the_job_does(operator: ApiClient, writer: Agent):
    allowed = {"tz": "Europe/Berlin", "deliverTo": [{"channel": "telegram"}]}
    assert (await operator("PUT", "/agents/writer", allowed)).status == 200
    context = {"deliver": True, "channel": "telegram", "to": "@ada"}
    added = await writer("add", schedule=SELDOM, message="one", to="@bob", context=context)
    assert [added["job"][field] for field in ("deliver", "channel", "to")] == [True, "telegram", "@bob"]
    arguments = {"action": "add", "schedule": SELDOM, "message": "two"}
    result = await writer.client.call_tool("cron", arguments, meta=cast(Any, {"wakeful/context": context}))
    assert result.structured_content["job"]["to"] == "@ada"


# --- allowed targets ---------------------------------------------------------------------------------


async def test_an_agent_cannot_set_a_target_that_is_not_allowed(operator: ApiClient, writer: Agent):
    function = {"kind": "function", "name": "note"}
    said = await writer.refused(action="add", schedule=SELDOM, message="x", target=function)
    assert said.startswith(
        "permission-denied: target: a key of the role 'agent' may not set what is sent to a"
    )
    workflow = {"kind": "workflow", "workflowId": "w", "version": 1, "to": function}
    assert "function" in await writer.refused(action="add", schedule=SELDOM, message="x", target=workflow)
    await writer("add", name="hook", schedule=SELDOM, message="x", target={"kind": "pull"})

    path = "/agents/writer/jobs"
    theirs = {"name": "theirs", "schedule": SELDOM, "target": function, "payload": {"n": 1}}
    assert (await operator("POST", path, theirs)).status == 201
    await writer("run", jobId="theirs")
    for arguments in ({"action": "update", "schedule": "@daily"}, {"action": "remove"}):
        said = await writer.refused(jobId="theirs", **arguments)
        assert said.startswith("permission-denied: job 'theirs' was created by an admin")
    assert "payload" in await writer.refused(action="run", jobId="theirs", payload={"n": 2})
    assert "function" in await writer.refused(action="update", jobId="hook", target=function)

    await operator("PUT", "/agents/writer", {"target": function})
    await writer("add", name="own", schedule=SELDOM, message="x", target=function)


async def test_the_targets_of_agents_are_configurable(database: str):
    settings = Settings(db=database, agent_targets=("*",))
    app = Wakeful(database, settings=settings, secret_key="a key for tests")

    @app.function()
    async def note() -> None: ...

    async with (
        app,
        served(app) as operator,
        over_http(await operator.new("agent", agent="writer")) as writer,
    ):
        await writer("add", schedule=SELDOM, message="x", target={"kind": "function", "name": "note"})


# --- resources, the prompt and authentication --------------------------------------------------------


async def test_jobs_and_runs_are_resources_and_there_is_a_prompt(writer: Agent):
    await writer("add", name="mine", schedule=SELDOM, message="x")
    await writer("run", jobId="mine")
    client = writer.client
    assert [tool.name for tool in (await client.list_tools()).tools] == ["cron"]
    assert {str(each.uri) for each in (await client.list_resources()).resources} == {
        "wakeful://jobs",
        "wakeful://runs",
    }
    for uri, field in (("wakeful://jobs", "jobs"), ("wakeful://runs", "runs")):
        (content,) = (await client.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents)
        assert len(json.loads(content.text)[field]) == 1
    with pytest.raises(MCPError, match="there is no resource wakeful://keys"):
        await client.read_resource("wakeful://keys")
    assert [each.name for each in (await client.list_prompts()).prompts] == ["schedule-well"]
    (message,) = (await client.get_prompt("schedule-well")).messages
    assert isinstance(message.content, TextContent)
    assert "deleteAfterRun" in message.content.text
    with pytest.raises(MCPError, match="there is no tool 'crons'"):
        await client.call_tool("crons", {})


async def test_clients_of_the_legacy_protocol_are_supported(operator: ApiClient):
    async with over_http(await operator.new("agent", agent="writer"), mode="legacy") as writer:
        assert (await writer("add", schedule=SELDOM, message="hello"))["job"]["agentId"] == "writer"
        assert (await writer.refused(action="explode")).startswith("invalid-argument: ")


@pytest.mark.parametrize("key", [None, "wk_nobody", "wk_" + "x" * 43])
async def test_a_request_without_a_valid_key_is_unauthenticated(operator: ApiClient, key: str | None):
    headers = {"Accept": "application/json, text/event-stream"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{operator.url}/mcp", json=body, headers=headers) as response:
            assert response.status == 401
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert (await response.json(content_type=None))["code"] == "unauthenticated"
        async with session.get(f"{operator.url}/mcp", headers=headers) as response:
            assert response.status == 405


# --- stdio -------------------------------------------------------------------------------------------


async def test_the_tool_over_stdio(operator: ApiClient, tmp_path: Path):
    key = (await operator.new("agent", agent="writer")).key
    async with over_stdio(operator.url, key, tmp_path) as writer:
        added = await writer("add", name="digest", schedule="tomorrow at 9", message="Write the digest.")
        assert (added["job"]["agentId"], added["job"]["tz"]) == ("writer", "Europe/Berlin")
        assert "next: tomorrow, " in added["text"]
        changed = await writer("update", jobId=added["job"]["id"], schedule="every 2 hours")
        assert changed["job"]["explain"] == "Every 2 hours"
        run = (await writer("run", jobId="digest"))["run"]
        assert [each["id"] for each in (await writer("runs"))["runs"]] == [run["id"]]
        assert [each["name"] for each in (await writer("list"))["jobs"]] == ["digest"]
        assert (await writer("status"))["status"]["role"] == "agent"
        said = await writer.refused(action="add", schedule="2020-01-01T09:00", message="x")
        assert said.startswith("invalid-argument: schedule: '2020-01-01T09:00' is in the past; it is now 20")
        assert (await writer.refused(action="list", agentId="painter")).startswith("not-found: no agent")
        (content,) = (await writer.client.read_resource("wakeful://jobs")).contents
        assert isinstance(content, TextResourceContents)
        assert "digest" in content.text
        await writer("remove", name="digest")
        assert (await writer.refused(action="remove", name="digest")).startswith("not-found: no job 'digest'")


async def test_an_unreachable_server_is_reported(tmp_path: Path):
    async with over_stdio("http://127.0.0.1:9", "wk_x", tmp_path, "--agent", "writer") as agent:
        assert [tool.name for tool in (await agent.client.list_tools()).tools] == ["cron"]
        said = await agent.refused(action="list")
        assert said.startswith("unavailable: no response from http://127.0.0.1:9")


# --- instances of the agent --------------------------------------------------------------------------


async def test_an_agent_sees_its_own_instances_and_sends_signals_to_them(new_app: NewApp, tmp_path: Path):
    app = with_classes(new_app())
    async with app, served(app) as operator:
        await app.agents.start("painter", "other")
        key = await operator.new("agent", agent="report")
        async with over_http(key) as agent, over_stdio(operator.url, key.key, tmp_path) as stdio:
            assert (await agent("instances"))["instances"] == []
            sent = await agent("signal", signal="report.generate", instance="eu", id="1", data={"month": 3})
            assert sent["run"]["signal"] == "report.generate"
            assert "Sent the signal report.generate to the instance 'eu'" in sent["text"]
            await over(app, sent["run"]["id"])
            again = await stdio("signal", type="report.generate", instance="eu", id="2")
            assert again["run"]["duplicate"] is False
            await over(app, again["run"]["id"])
            repeated = await stdio("signal", type="report.generate", instance="eu", id="2")
            assert (repeated["run"]["id"], repeated["run"]["duplicate"]) == (again["run"]["id"], True)
            assert await app.agents.state("report", "eu") == {"count": 2}
            await app.agents.start("report", "eu")
            for caller in (agent, stdio):
                (listed,) = (await caller("instances"))["instances"]
                assert (listed["id"], listed["status"], listed["waiting"]) == ("eu", "active", 0)
                shown = await caller("instance", instance="eu")
                assert "At 06:00" in shown["text"]
                assert "state" not in shown["instance"]  # only an admin sees it
                assert (await caller("runs"))["runs"][0]["instance"] == "eu"
                assert "not-found" in await caller.refused(action="instance", instance="nobody")
                assert "not-found" in await caller.refused(action="instances", agentId="painter")
                assert "signal: it is missing" in await caller.refused(action="signal", instance="eu")
                assert "type: " in await caller.refused(action="signal", signal="report.*")
        async with over_http(operator, "?agent=report") as admin:
            shown = await admin("instance", instance="eu", agentId="report")
            assert shown["instance"]["state"] == {"count": 2}


async def test_a_server_without_the_library_says_what_its_operator_installs(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    async with new_app() as app, served(app) as operator:
        for method in ("GET", "POST"):
            async with operator.session.request(method, f"{operator.url}/mcp") as response:
                problem = await response.json(content_type=None)
            assert (response.status, problem["code"]) == (404, "not-found")
            assert "the extra 'mcp'" in problem["detail"]
