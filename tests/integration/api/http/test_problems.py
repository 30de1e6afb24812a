"""Every error response is a problem document with a code and a detail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import LOCAL

pytestmark = on_one_store


async def test_a_request_without_a_valid_key_is_unauthenticated(ask: ApiClient):
    for header in (None, "", "Bearer", "Bearer ", "Basic wk_x", "Bearer wk_x", "Bearer a.b.c", "wk_x"):
        headers = {} if header is None else {"Authorization": header}
        reply = await ask.with_key(None)("GET", "/jobs", headers=headers)
        assert (reply.status, reply.code) == (401, "unauthenticated"), header
        assert reply.headers["www-authenticate"].startswith("Bearer")


async def test_a_revoked_key_is_unauthenticated(ask: ApiClient):
    member = await ask.new("member")
    assert (await member("GET", "/jobs")).status == 200
    (key,) = [key for key in (await ask("GET", "/keys")).body["keys"] if key["name"] == "member"]
    assert (await ask("DELETE", f"/keys/{key['id']}")).status == 204
    assert (await member("GET", "/jobs")).code == "unauthenticated"
    assert (await ask("DELETE", f"/keys/{key['id']}")).code == "not-found"


async def test_the_client_address_is_in_the_audit_log(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    (entry,) = (await ask("GET", "/audit", limit=1)).body["entries"]
    assert (entry["action"], entry["address"]) == ("job.create", "127.0.0.1")
    assert entry["actor"].startswith("key:")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/nowhere", 404, "not-found"),
        ("GET", "/api/workspaces/default/jobs/", 404, "not-found"),
        ("DELETE", "/api/workspaces/default/jobs", 405, "invalid-argument"),
        ("GET", "/api/workspaces/elsewhere/jobs", 404, "not-found"),
        ("GET", "/api/workspaces/default/agents/nobody", 404, "not-found"),
        ("GET", "/api/workspaces/default/agents/nobody/jobs", 404, "not-found"),
        ("GET", "/api/workspaces/default/agents/nobody/runs", 404, "not-found"),
        ("GET", "/api/workspaces/default/agents/default/jobs/none", 404, "not-found"),
        ("GET", "/api/workspaces/default/runs/none", 404, "not-found"),
        ("GET", "/api/workspaces/default/runs/a%00b", 400, "invalid-argument"),
        ("GET", "/api/workspaces/default/runs?agent=%00", 400, "invalid-argument"),
        ("GET", "/api/workspaces/default/runs/%FF%FE", 404, "not-found"),
        ("GET", "/api/workspaces/default/runs?state=asleep", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/runs?trigger=magic", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/runs?job=digest", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/runs?limit=0", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/jobs?limit=501", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/jobs?limit=many", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/jobs?include_disabled=perhaps", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/jobs?cursor=", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/jobs?cursor=!", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/workflows/a/b", 422, "invalid-argument"),
        ("GET", "/api/workspaces/default/workflows/a/1", 404, "not-found"),
    ],
)
async def test_unknown_resources_and_invalid_parameters(
    ask: ApiClient, method: str, path: str, status: int, code: str
):
    reply = await ask(method, path)
    assert (reply.status, reply.code) == (status, code)
    assert len(reply.body["detail"]) > 10


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/runs?limit=0", "limit: '0' is too small; the minimum is 1"),
        ("/jobs?limit=501", "limit: '501' is too large; the maximum is 500"),
        ("/jobs?limit=many", "limit: 'many' is not a whole number"),
        ("/jobs?limit=1.5", "limit: '1.5' is not a whole number"),
        (f"/jobs?limit={'9' * 5000}", f"limit: '{'9' * 64}' is not a whole number"),
        ("/runs?dead=perhaps", "dead: 'perhaps' is neither true nor false"),
        ("/instances?status=asleep", "status: 'asleep' is not known; write 'active', 'paused'"),
        ("/runs?trigger=magic", "trigger: 'magic' is not known; write 'schedule', 'user'"),
        (f"/audit?action={'x' * 65}", "action: it has 65 characters; at most 64"),
    ],
)
async def test_an_invalid_parameter_is_told_in_a_sentence(ask: ApiClient, path: str, detail: str):
    reply = await ask("GET", path)
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert reply.body["detail"].startswith(detail)


async def test_an_unsupported_method_is_answered_with_an_allow_header(ask: ApiClient):
    reply = await ask("DELETE", "/jobs")
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "there is no body"),
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "UTF-8"),
        (b'{"name": NaN}', 400, "NaN"),
        (b'{"name": "\\ud800"}', 400, "UTF-8"),
        (b"[" * 100_000, 400, "nested"),
        (b"9" * 10_000, 400, "not JSON"),
        (b"[]", 422, "object"),
        (b"null", 422, "object"),
        (b"{}", 422, "name: it is missing"),
        (b'{"name": "A"}', 422, "slug"),
        (b'{"name": "a", "schedule": "@daily", "colour": "red"}', 422, "colour: a job has no such field"),
        (b'{"name": "a", "schedule": "61 * * * *"}', 422, "schedule"),
        (b'{"name": "a", "schedule": "0 9 * * *", "tz": "Mars/Base"}', 422, "tz"),
        (b'{"name": "a", "schedule": "@daily", "agentId": "other"}', 422, "agentId"),
    ],
)
async def test_malformed_and_invalid_bodies(ask: ApiClient, body: bytes, status: int, says: str):
    reply = await ask("POST", JOBS, data=body)
    assert (reply.status, reply.code) == (status, "invalid-argument")
    assert says in reply.body["detail"]


async def test_a_value_that_is_nested_too_deeply_is_invalid_wherever_it_is_stored(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    member = await ask.new("member")
    names = ("target", "precheck", "verify", "payload", "name", "labels", "schedule", "colour")
    for pairs in (45, 51, 60, 150, 450):
        deep = '[{"headers":' * pairs + '"x"' + "}]" * pairs
        celery = f'{{"kind": "celery", "task": "a.b", "broker": "redis://h", "kwargs": {{"a": {deep}}}}}'
        fields = [
            f'"{name}": {value}' for name in names for value in (deep, f'{{"kind": "echo", "x": {deep}}}')
        ]
        calls = [
            *(("POST", JOBS, f'"name": "b", "schedule": "@daily", {field}') for field in fields),
            ("PATCH", f"{JOBS}/a", f'"target": {celery}'),
            ("POST", f"{JOBS}/a/run", f'"payload": {deep}'),
            ("PUT", "/agents/ada", f'"target": {celery}'),
            ("PUT", "/agents/ada", f'"alerts": {{"url": {deep}}}'),
        ]
        for method, path, content in calls:
            reply = await ask(method, path, data=f"{{{content}}}".encode())
            assert reply.status < 500, (pairs, path, content[:60])
            assert pairs < 50 or (reply.status, reply.code) == (422, "invalid-argument"), (
                pairs,
                content[:60],
            )
        assert (await member("GET", "/jobs")).status == 200
        value: object = "x"
        for _ in range(pairs):
            value = [{"headers": value}]
        with pytest.raises(InvalidArgument):  # without JSON
            await ask.app.services.jobs.create(
                LOCAL, "default", "ada", {"name": "c", "schedule": SELDOM, "target": value}
            )


async def test_a_body_is_read_regardless_of_its_content_type(ask: ApiClient):
    body = b'{"name": "a", "schedule": "@daily"}'
    headers = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl sends it
    assert (await ask("POST", JOBS, data=body, headers=headers)).status == 201


async def test_an_oversized_body_is_rejected_before_it_is_read(ask: ApiClient):
    reply = await ask("POST", JOBS, data=b" " * (256 * 1024 + 1))
    assert (reply.status, reply.code) == (413, "invalid-argument")
    assert "262144 bytes" in reply.body["detail"]


async def test_an_oversized_chunked_body_is_rejected(ask: ApiClient):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(300):
            yield b" " * 1024
            await asyncio.sleep(0)

    reply = await ask("POST", JOBS, data=chunks())
    assert (reply.status, reply.code) == (413, "invalid-argument")


async def test_a_payload_is_limited_to_64_kb(ask: ApiClient):
    job = {"name": "a", "schedule": SELDOM, "payload": "x" * 65_534}
    assert (await ask("POST", JOBS, job)).status == 201
    reply = await ask("POST", JOBS, {**job, "name": "b", "payload": "x" * 65_535})
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert "payload: it has 65537 bytes" in reply.body["detail"]


async def test_a_valid_request_id_is_kept_and_an_invalid_one_replaced(ask: ApiClient):
    given = await ask("GET", "/healthz", headers={"x-request-id": "from-outside.7"})
    assert given.headers["x-request-id"] == "from-outside.7"
    made = await ask("GET", "/api/nowhere", headers={"x-request-id": "two words"})
    assert len(made.headers["x-request-id"]) == 32


async def test_a_request_logs_one_line_without_its_key(ask: ApiClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "wakeful.http")
    await ask("GET", f"{JOBS}/none")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "wakeful.http"]
    assert "method=GET path=/api/workspaces/{workspace}/agents/{agent}/jobs/{name} status=404" in line
    assert "actor=key:" in line
    assert ask.key is not None
    assert ask.key not in caplog.text


async def test_an_internal_error_reveals_no_details(
    ask: ApiClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret is a word")

    monkeypatch.setattr(ask.app.services.jobs, "list", broken)
    reply = await ask("GET", "/jobs")
    assert (reply.status, reply.code) == (500, "internal")
    assert "secret" not in str(reply.body)
    assert "the secret is a word" in caplog.text
    assert reply.headers["x-request-id"] in caplog.text


async def test_health_and_readiness_need_no_key(ask: ApiClient):
    anonymous = ask.with_key(None)
    assert (await anonymous("GET", "/healthz")).body == {"status": "ok"}
    assert (await anonymous("GET", "/readyz")).body == {"status": "ready"}
    await ask.app.stop()
    assert (await anonymous("GET", "/healthz")).status == 200
    reply = await anonymous("GET", "/readyz")
    assert (reply.status, reply.code) == (503, "unavailable")
    assert reply.headers["retry-after"] == "1"


async def test_an_exhausted_quota_is_answered_429(ask: ApiClient):
    await ask("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": 1})
    assert (await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})).status == 201
    reply = await ask("POST", JOBS, {"name": "b", "schedule": SELDOM})
    assert (reply.status, reply.code) == (429, "resource-exhausted")
    assert "retry-after" not in reply.headers


async def test_an_exhausted_daily_quota_sets_retry_after(ask: ApiClient):
    await ask("PUT", "/quotas", {"bucket": "scheduler.createJob", "limit": 0})
    reply = await ask("POST", JOBS, {"name": "a", "schedule": SELDOM})
    assert (reply.status, reply.code) == (429, "resource-exhausted")
    assert 0 < int(reply.headers["retry-after"]) <= 24 * 3600


async def test_another_workspace_is_not_found_whether_or_not_it_exists(ask: ApiClient):
    await ask.app.services.agents.workspaces.put(LOCAL, "acme", {})
    stranger = await ask.new("admin", "acme")
    there = await stranger("GET", f"{HOME}/jobs")
    nowhere = await stranger("GET", "/api/workspaces/nowhere/jobs")
    assert (there.status, nowhere.status) == (404, 404)
    assert there.body["detail"].replace("default", "nowhere") == nowhere.body["detail"]
