"""Rules that hold for every route. The routes come from the OpenAPI document, so new ones are tested too."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.integration.conftest import SELDOM
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.instances import agent_class
from tests.support.openapi import openapi_document
from tests.support.sqlite_files import fresh_file
from tests.support.suggestions import suggest
from tests.support.waiting import PATIENCE, eventually
from wakeful.api.http.schemas import SCHEMAS
from wakeful.api.http.schemas.enums import SCHEMAS as ENUMS

_KNOWN = {
    "workspace": "default",
    "agent": "default",
    "name": "digest",
    "instance": "default",
    "session": "main",
    "workflow_id": "invoices",
    "version": "1",
    "revision": "1",
    "channel": "ops",
    "source": "01890000-0000-7000-8000-000000000000",
    "item_id": "approval-01890000",
    "subscription_id": "sub_" + "0" * 32,
    "person_id": "01890000-0000-7000-8000-000000000000",
}
_IDS = {
    "getHealth", "getReadiness", "getMetrics", "listWorkspaces", "getWorkspace", "putWorkspace",
    "listAgents", "getAgent", "putAgent", "rotateAgentSecret", "deleteAgent", "sendMessage", "listSessions",
    "getSession", "deleteSession",
    "listAllJobs", "listJobs", "createJob", "getJob", "upsertJob", "updateJob", "deleteJob",
    "pauseJob", "resumeJob", "skipNextTick", "rotateSecret", "createHook", "runJob", "backfillJob",
    "claimRuns", "heartbeatRun", "heartbeatRuns", "completeRun", "completeRuns", "listAllRuns",
    "listRuns", "wakeAgent", "listJobRuns", "getRun", "cancelRun", "stopRun", "replayRun",
    "listDeadLetters", "replayDeadLetters", "discardDeadLetters",
    "listKeys", "createKey", "revokeKey", "listQuotas", "setQuota", "listAudit", "verifyAudit",
    "sendSignals", "listAllInstances", "listInstances", "getInstance", "startInstance", "stopInstance",
    "pauseInstance", "resumeInstance", "hibernateInstance",
    "getWorkflow", "putWorkflow", "getStatus", "getSlo", "streamEvents",
}  # fmt: skip


class Operation(NamedTuple):
    method: str
    path: str
    about: dict[str, Any]

    @property
    def query(self) -> list[str]:
        return [each["name"] for each in self.about.get("parameters", ()) if each["in"] == "query"]

    def body(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The schema of its body and an example."""
        if "requestBody" not in self.about:
            return None
        content = self.about["requestBody"]["content"]["application/json"]
        return SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]], content["example"]


@cache
def operations() -> list[Operation]:
    """Return the operations of the document."""
    return [
        Operation(method.upper(), path, about)
        for path, methods in openapi_document()["paths"].items()
        for method, about in methods.items()
    ]


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Use SQLite only: none of this depends on the store."""
    return f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}"


@pytest.fixture
async def known(ask: ApiClient) -> dict[str, str]:
    """Create one resource of each kind; return their ids by path parameter."""
    return await create_known(ask)


async def create_known(ask: ApiClient) -> dict[str, str]:
    """Create one resource of each kind; return their ids by path parameter."""
    webhook = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": webhook})
    pulled = {"schedule": SELDOM, "target": {"kind": "pull"}, "maxAttempts": 1}
    await ask("POST", JOBS, {"name": "by-hand", **pulled})
    await ask("POST", f"{JOBS}/by-hand/run")
    (failed,) = (await ask("POST", "/runs/claim", {"worker": "w", "waitMs": 1_000})).body["runs"]
    await ask("POST", f"/runs/{failed['id']}/complete", {"status": "failed", "attempt": failed["attempt"]})
    (incident,) = (await ask("GET", "/incidents")).body["incidents"]
    run = (await ask("POST", f"{JOBS}/by-hand/run")).body["id"]
    key = (await ask("POST", "/keys", {"name": "k", "role": "member"})).body
    await ask.app.services.auth.web_sessions.sign_in(key["key"])
    (web_session,) = (await ask("GET", f"/keys/{key['id']}/sessions")).body["sessions"]
    await ask("PUT", "/workflows/invoices/1", {"nodes": []})
    store = ask.app.store
    await store.put_class(agent_class(agent="default"), store.clock.now_ms())
    await ask("POST", "/agents/default/instances/default/start")
    token = (await ask("POST", f"{JOBS}/digest/hook")).body["token"]
    suggestion = await suggest(store, "default", "digest")
    await ask("POST", "/agents/default/messages", {"message": "/stop"})  # adds the session `main`
    return {
        **_KNOWN,
        "run_id": run,
        "key_id": key["id"],
        "session_id": web_session["id"],
        "incident_id": incident["id"],
        "suggestion_id": suggestion,
        "token": token,
    }


# --- undeclared parameters and fields ---------------------------------------------------------------


async def test_an_unknown_query_parameter_is_rejected_on_every_path(ask: ApiClient, known: dict[str, str]):
    for operation in operations():
        if not operation.path.startswith("/api"):
            continue
        body = operation.body()
        path = f"{operation.path.format(**known)}?surprise=1"
        reply = await ask(operation.method, path, body and body[1])
        assert (reply.status, reply.code) == (422, "invalid-argument"), path
        there_are = f"there are {', '.join(operation.query)}" if operation.query else ""
        choice = there_are or "this path takes no parameters"
        assert reply.body["detail"] == f"surprise: there is no such parameter; {choice}"


async def test_an_unknown_body_field_is_rejected_on_every_path(ask: ApiClient, known: dict[str, str]):
    for operation in operations():
        if (
            operation.method == "GET"
            or operation.about["operationId"] == "putWorkflow"  # a DAG is any object
            or operation.about["operationId"] == "sendSignals"  # other attributes are extensions
            or operation.about["operationId"] == "fireHook"  # a payload is any value
            or operation.about["operationId"] == "receiveEvent"  # it answers only what is signed
        ):
            continue
        body = operation.body()
        example = body[1] if body else {}
        reply = await ask(operation.method, operation.path.format(**known), {**example, "surprise": 1})
        assert (reply.status, reply.code) == (422, "invalid-argument"), (operation.path, reply)
        assert "surprise" in reply.body["detail"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{}", 200, ""),
        (b"null", 200, ""),
        (b"[1]", 422, "this path takes no body"),
        (b'{"a": 1, "b": 2}', 422, "a, b: there are no such fields; this path takes no fields"),
        (b"{", 400, "not JSON"),
    ],
)
async def test_a_path_without_a_body_accepts_an_empty_one(
    ask: ApiClient, known: dict[str, str], body: bytes, status: int, says: str
):
    reply = await ask("POST", f"{JOBS}/digest/rotate-secret", data=body)
    assert reply.status == status
    assert says in str(reply.body.get("detail", ""))


async def test_authentication_is_checked_before_parameters(ask: ApiClient):
    reply = await ask.with_key(None)("GET", f"{HOME}/jobs?surprise=1")
    assert reply.status == 401


# --- methods ----------------------------------------------------------------------------------------


async def test_head_is_get_without_the_body_on_every_path(ask: ApiClient, known: dict[str, str]):
    headers = {"Authorization": f"Bearer {ask.key}"}
    for path in (*(each.path for each in operations() if each.method == "GET"), "/docs", "/openapi.json"):
        url = ask.url + path.format(**known)
        async with asyncio.timeout(PATIENCE):
            async with ask.session.head(url, headers=headers) as head:
                assert await head.read() == b""
            async with ask.session.get(url, headers=headers) as got:
                pass
        assert head.status == got.status == 200, path
        for name in ("content-type", "content-length", "etag", "cache-control"):
            if name == "content-length" and path.endswith(("/metrics", "/doctor", "/peaks")):
                continue  # these measure anew for each request, or show an age
            assert head.headers.get(name) == got.headers.get(name), (path, name)


async def test_a_connection_is_reusable_after_a_head_request(ask: ApiClient, known: dict[str, str]):
    """A body sent after a HEAD would be read as the response to the next request."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        one = ApiClient(ask.url, session, ask.key, ask.app)
        for path in ("/jobs", "/events", f"{JOBS}/digest", "/nowhere"):
            head = await one("HEAD", path)
            assert head.status == (404 if path == "/nowhere" else 200)
            assert (await one("GET", "/jobs")).status == 200
    await eventually(lambda: not ask.app.services.events._listeners)


def _pattern(path: str) -> str:
    """Return the pattern of a path. The name of an instance may have slashes."""
    return re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path).replace(r"\{instance\}", ".+"))


async def test_an_unsupported_method_is_answered_405_with_the_allowed_methods(
    ask: ApiClient, known: dict[str, str]
):
    for path in openapi_document()["paths"]:
        whole = path.format(**known)
        takes = {
            method.upper()
            for other, methods in openapi_document()["paths"].items()
            if re.fullmatch(_pattern(other), whole)
            for method in methods
        }
        reply = await ask("TRACE", whole)
        assert (reply.status, reply.code) == (405, "invalid-argument")
        assert set(reply.headers["allow"].split(", ")) == takes | ({"HEAD"} if "GET" in takes else set())


# --- versions ---------------------------------------------------------------------------------------

_ACTIONS = {
    "pause": None,
    "resume": None,
    "rotate-secret": None,
    "hook": None,
    "run": None,
    "backfill": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
}


@pytest.mark.parametrize("action", _ACTIONS)
async def test_an_action_on_a_stale_version_is_rejected(ask: ApiClient, known: dict[str, str], action: str):
    await ask("PATCH", f"{JOBS}/digest", {"schedule": "0 7 * * *"})
    path, body = f"{JOBS}/digest/{action}", _ACTIONS[action]
    before = (await ask("GET", f"{JOBS}/digest")).body
    stale = await ask("POST", path, body, headers={"If-Match": '"1"'})
    assert (stale.status, stale.code) == (412, "failed-precondition")
    assert "at version 2" in stale.body["detail"]
    assert (await ask("GET", f"{JOBS}/digest")).body == before
    assert (await ask("GET", f"{JOBS}/digest/runs")).body["runs"] == []
    fresh = await ask("POST", path, body, headers={"If-Match": '"2"'})
    status = 201 if action in ("run", "hook") else 200
    assert fresh.status == status, fresh
    assert (await ask("POST", path, body, headers={"If-Match": "*"})).status == status
    assert (await ask("POST", path, body, headers={"If-Match": "nonsense"})).status == 400


def test_every_action_on_a_job_declares_if_match():
    actions = [each for each in operations() if "/jobs/{name}" in each.path and each.method != "GET"]
    assert len(actions) >= len(_ACTIONS)
    for operation in actions:
        headers = [each["name"] for each in operation.about["parameters"] if each["in"] == "header"]
        assert "if-match" in headers, operation.about["operationId"]
        assert "412" in operation.about["responses"], operation.about["operationId"]


@pytest.mark.parametrize("action", ["pause", "rotate-secret"])
async def test_one_of_two_concurrent_actions_on_one_version_succeeds(
    ask: ApiClient, known: dict[str, str], monkeypatch: pytest.MonkeyPatch, action: str
):
    """The version is compared in the transaction that writes, not only when the job is read."""
    get, both_have_read = ask.app.services.jobs.get, asyncio.Barrier(2)
    reads = 0

    async def read_together(*given: Any) -> Any:
        nonlocal reads
        job = await get(*given)
        reads += 1
        if reads <= 2:
            await both_have_read.wait()
        return job

    monkeypatch.setattr(ask.app.services.jobs, "get", read_together)
    replies = await asyncio.gather(
        *(ask("POST", f"{JOBS}/digest/{action}", headers={"If-Match": '"1"'}) for _ in range(2))
    )
    assert sorted(reply.status for reply in replies) == [200, 412]


async def test_a_version_that_is_deleted_meanwhile_is_stale_and_not_missing(
    ask: ApiClient, known: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    upsert = ask.app.services.jobs.upsert

    async def too_late(*given: Any, **options: Any) -> Any:
        assert (await ask("DELETE", f"{JOBS}/digest")).status == 204
        return await upsert(*given, **options)

    monkeypatch.setattr(ask.app.services.jobs, "upsert", too_late)
    reply = await ask("PUT", f"{JOBS}/digest", {"schedule": "@daily"}, headers={"If-Match": '"1"'})
    assert (reply.status, reply.code) == (412, "failed-precondition")


# --- the document -----------------------------------------------------------------------------------


def test_every_operation_has_a_short_unique_stable_id():
    """Generated clients name their methods by these ids: changing or removing one breaks them."""
    ids = [operation.about["operationId"] for operation in operations()]
    assert len(ids) == len(set(ids))
    assert set(ids) >= _IDS
    assert all(re.fullmatch("[a-z][A-Za-z]{3,24}", each) for each in ids)


def test_each_policy_and_state_is_one_named_enum():
    inline: list[list[str]] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("enum"), list):
                inline.append(value["enum"])
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(openapi_document())
    assert sorted(inline) == sorted(schema["enum"] for schema in ENUMS.values())
    assert {"OverlapPolicy", "CatchupPolicy", "OnLost", "DstGap", "DstOverlap", "RunState", "Trigger"} <= (
        ENUMS.keys()
    )
