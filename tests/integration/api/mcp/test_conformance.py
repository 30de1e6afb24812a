"""Conformance of the MCP tool to MCP and OAuth clients: actions, schemas, errors and metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import ApiClient, served
from tests.support.sqlite_files import fresh_file
from tests.support.waiting import eventually
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

pytest.importorskip("mcp")

import aiohttp
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.support.mcp_agent import Agent, over_http, over_stdio

_ISSUER = "https://login.example.com/realms/acme"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Use SQLite only: none of this depends on the store."""
    return f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}"


@pytest.fixture
async def operator(new_app: NewApp) -> AsyncIterator[ApiClient]:
    async with new_app() as app, served(app) as caller:
        await app.services.agents.put(LOCAL, "default", "writer", {})
        yield caller


async def _live(agent: Agent) -> dict[str, dict[str, Any]]:
    """Return the result of each action over the lifecycle of a job."""
    job = {"name": "digest", "schedule": "0 7 * * *", "message": "Write the digest."}
    return {
        "create": await agent("create", job=job),
        "get": await agent("get", jobId="digest"),
        "pause": await agent("pause", jobId="digest", note="away", until="in 2 hours"),
        "update": await agent("update", jobId="digest", message="Write."),
        "resume": await agent("resume", jobId="digest"),
        "run": await agent("run", jobId="digest"),
        "due": await agent("run", jobId="digest", mode="due"),
        "list": await agent("list"),
        "runs": await agent("runs", jobId="digest"),
        "status": await agent("status"),
        "again": await agent("get", jobId="digest"),
        "remove": await agent("remove", jobId="digest"),
    }


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_every_result_conforms_to_the_output_schema(
    operator: ApiClient, tmp_path: Path, transport: str
):
    key = await operator.new("agent", agent="writer")
    connection = over_http(key) if transport == "http" else over_stdio(operator.url, key.key, tmp_path)
    async with connection as agent:
        (tool,) = (await agent.client.list_tools()).tools
        assert tool.output_schema is not None
        Draft202012Validator.check_schema(tool.output_schema)
        strict = Draft202012Validator({**tool.output_schema, "additionalProperties": False})
        answers = await _live(agent)
        for action, answer in answers.items():
            content = {name: value for name, value in answer.items() if name != "text"}
            assert [error.message for error in strict.iter_errors(content)] == [], action
        refused = await agent.raw(action="get", jobId="digest")
        assert refused.is_error
        assert list(strict.iter_errors(refused.structured_content)) == []
        assert (await agent.client.list_resource_templates()).resource_templates == []
        assert len((await agent.client.list_resources()).resources) == 2
        assert len((await agent.client.list_prompts()).prompts) == 1

    assert answers["create"]["job"]["name"] == "digest"
    assert answers["get"]["job"]["message"] == "Write the digest."
    assert "Write the digest." in answers["get"]["text"]
    assert (answers["pause"]["job"]["enabled"], answers["resume"]["job"]["enabled"]) == (False, True)
    paused = answers["pause"]["job"]
    assert (paused["disabledReason"], paused["pauseNote"]) == ("paused", "away")
    assert "next: after it resumes by itself, " in answers["pause"]["text"]
    assert answers["pause"]["next"].endswith("(in 2 hours)")
    assert answers["update"]["job"]["enabled"] is False
    assert "nextAt" in answers["resume"]["job"]
    assert answers["due"]["run"] is None
    assert [run["id"] for run in answers["again"]["job"]["lastRuns"]] == [answers["run"]["run"]["id"]]


async def test_a_pause_with_an_invalid_end_is_rejected(operator: ApiClient):
    async with over_http(operator) as agent:
        await agent("add", name="a", schedule=SELDOM, message="x")
        for until in ("some day", "every morning", "2020-01-01T00:00", {"kind": "every", "everyMs": 5_000}):
            assert "until: " in await agent.refused(action="pause", jobId="a", until=until)
        assert (await agent("get", jobId="a"))["job"]["enabled"] is True


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_all_errors_of_a_new_job_are_in_one_response(
    operator: ApiClient, tmp_path: Path, transport: str
):
    wrong = {
        "name": "Daily Digest",
        "schedule": "every morning",
        "tz": "Mars/Olympus",
        "maxAttempts": 1_000,
        "overlapPolicy": "perhaps",
        "colour": "red",
        "target": {"kind": "command", "argv": ["/bin/rm"]},
        "context": {"room": 7},
        "limit": 5,
        "enabled": "perhaps",
    }
    connection = (
        over_http(operator) if transport == "http" else over_stdio(operator.url, operator.key, tmp_path)
    )
    async with connection as agent:
        sentence = await agent.refused(action="add", **wrong)
        without = await agent.refused(action="add", schedule="61 * * * *")
    code, _, message = sentence.partition(": ")
    assert code == "invalid-argument"
    told = {line.partition(": ")[0] for line in message.split("\n")}
    assert told == wrong.keys()
    assert {line.partition(": ")[0] for line in without.partition(": ")[2].split("\n")} == {
        "message",
        "schedule",
    }


async def test_all_errors_of_a_new_job_over_http_are_in_one_response(operator: ApiClient):
    wrong = {
        "name": "a",
        "schedule": "@daily",
        "lane": "nowhere",
        "enabled": 7,
        "target": {"kind": "command", "argv": ["/bin/rm"]},
    }
    reply = await operator("POST", "/agents/default/jobs", wrong)
    assert reply.code == "invalid-argument"
    assert {line.partition(": ")[0] for line in reply.body["detail"].split("\n")} == {
        "enabled",
        "target",
        "lane",
    }


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_manual_run_takes_an_overlap_policy(operator: ApiClient, tmp_path: Path, transport: str):
    connection = (
        over_http(operator) if transport == "http" else over_stdio(operator.url, operator.key, tmp_path)
    )
    async with connection as agent:
        await agent("add", name="a", schedule=SELDOM, message="x")
        await agent("run", jobId="a")
        assert (await operator("POST", "/runs/claim", {"worker": "w"})).body["runs"]
        await agent("run", jobId="a", overlap_policy="SKIP", payload='{"n": 1}')
        said = await agent.refused(action="run", jobId="a", overlapPolicy="perhaps")
        assert "overlapPolicy: " in said

        async def skipped() -> bool:
            return bool((await agent("runs", jobId="a"))["runs"][0]["state"] == "skipped")

        await eventually(skipped)


async def test_an_argument_unsupported_by_the_action_is_reported(operator: ApiClient):
    async with over_http(operator) as agent:
        await agent("add", name="a", schedule=SELDOM, message="x")
        said = await agent.refused(action="run", jobId="a", message="another")
        assert said.startswith("invalid-argument: message: the action run takes no such argument; it takes")
        assert (await agent("runs", jobId="a"))["runs"] == []


async def test_an_unknown_query_parameter_is_rejected(operator: ApiClient):
    headers = {"Authorization": f"Bearer {operator.key}", "Accept": "application/json, text/event-stream"}
    async with operator.session.post(f"{operator.url}/mcp?agnt=a", json=_CALL, headers=headers) as response:
        assert response.status == 422
        assert "agnt: there is no such parameter; there are workspace, agent" in await response.text()


# --- OAuth protected-resource metadata ---------------------------------------------------------------


async def _challenge(session: aiohttp.ClientSession, method: str, url: str) -> str:
    async with session.request(method, url, json=_CALL) as response:
        assert response.status == 401
        return response.headers["www-authenticate"]


async def test_the_metadata_names_the_token_issuer(new_app: NewApp):
    app = new_app(settings=Settings(jwt_secret="x" * 32, jwt_issuer=_ISSUER))
    async with app, served(app) as operator:
        session, url = operator.session, operator.url
        for path, resource in (("/mcp", "/mcp"), ("/api/workspaces/default/jobs", "")):
            method = "POST" if path == "/mcp" else "GET"
            said = await _challenge(session, method, url + path)
            where = f"{url}{_WELL_KNOWN}{resource}"
            assert said == f'Bearer realm="wakeful", resource_metadata="{where}"'
            async with session.get(where) as response:
                assert response.status == 200
                assert response.content_type == "application/json"
                assert await response.json() == {
                    "resource": url + resource,
                    "authorization_servers": [_ISSUER],
                    "bearer_methods_supported": ["header"],
                    "resource_name": "Wakeful",
                }


async def test_the_official_client_accepts_the_metadata(new_app: NewApp):
    import httpx2
    from mcp.client.auth.utils import (
        build_protected_resource_metadata_discovery_urls,
        extract_resource_metadata_from_www_auth,
    )
    from mcp.shared.auth import ProtectedResourceMetadata

    app = new_app(settings=Settings(jwt_secret="x" * 32, jwt_issuer=_ISSUER))
    async with app, served(app) as operator, httpx2.AsyncClient() as http:
        refused = await http.post(f"{operator.url}/mcp", json=_CALL)
        named = extract_resource_metadata_from_www_auth(refused)
        urls = build_protected_resource_metadata_discovery_urls(named, f"{operator.url}/mcp")
        assert urls[0] == f"{operator.url}{_WELL_KNOWN}/mcp"
        for url in urls:
            found = ProtectedResourceMetadata.model_validate_json((await http.get(url)).content)
            assert str(found.authorization_servers[0]) == _ISSUER


@pytest.mark.parametrize(
    "settings",
    [
        Settings(oauth=False),
        Settings(jwt_secret="x" * 32, oauth=False),
        Settings(jwt_secret="x" * 32, jwt_issuer="acme"),
        Settings(jwt_issuer=_ISSUER, oauth=False),
    ],
    ids=["keys alone", "no issuer", "no address", "no tokens"],
)
async def test_without_an_issuer_there_is_no_metadata(new_app: NewApp, settings: Settings):
    app = new_app(settings=settings)
    async with app, served(app) as operator:
        said = await _challenge(operator.session, "POST", f"{operator.url}/mcp")
        assert said == 'Bearer realm="wakeful"'
        for path in (_WELL_KNOWN, f"{_WELL_KNOWN}/mcp"):
            async with operator.session.get(operator.url + path) as response:
                assert response.status == 404
