"""Unusual text in every text field is stored or rejected, and never causes a server error."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.integration.conftest import SELDOM
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.effort import part

_ODD = {
    "a zero": "a\x00b",
    "a control": "a\x1b[31mb",
    "a line end": "a\u2028b\r\n",
    "right to left": "a\u202eb",
    "not a character": "a\uffffb",
    "an emoji": "👩‍👩‍👧",
    "a long one": "x" * 100_000,
    "nothing": "",
    "a quote": "'; DROP TABLE jobs; --",
    "a percent": "%s %(a)s {0} $1",
}


@pytest.mark.parametrize("text", part(_ODD.values()), ids=part(_ODD))
async def test_no_text_causes_a_server_error(ask: ApiClient, text: str):
    job = {"name": "a", "schedule": SELDOM, "target": {"kind": "pull"}}
    await ask("POST", JOBS, job)
    run_id = (await ask("POST", f"{JOBS}/a/run")).body["id"]
    claimed = await ask("POST", "/runs/claim", {"worker": "w"})
    assert [run["id"] for run in claimed.body["runs"]] == [run_id]
    job_fields = [
        "name", "tz", "cron", "message", "channel", "to", "description", "lane", "after", "exclude",
        "startAt", "webhookUrl", "userId", "workflowId", "agentId", "overlapPolicy", "timeout",
    ]  # fmt: skip
    requests: list[tuple[str, str, object]] = [
        *(("PATCH", f"{JOBS}/a", {field: text}) for field in job_fields),
        ("PATCH", f"{JOBS}/a", {text: 1}),
        ("PATCH", f"{JOBS}/a", {"labels": {text: text}}),
        ("PATCH", f"{JOBS}/a", {"precheck": {text: text}}),
        ("PATCH", f"{JOBS}/a", {"target": {"kind": "pull", text: text}}),
        ("PATCH", f"{JOBS}/a", {"payload": {text: [text]}}),
        ("POST", f"{JOBS}/a/run", {"payload": text}),
        ("POST", f"{JOBS}/a/backfill", {"start": text, "end": text}),
        ("PUT", f"{HOME}/agents/writer", {"description": text}),
        ("PUT", f"{HOME}/agents/writer", {"channel": text, "to": text}),
        ("PUT", f"{HOME}/agents/writer", {"target": {"kind": "pull", text: text}}),
        ("PUT", f"{HOME}/agents/writer", {text: 1}),
        ("POST", f"{HOME}/agents/default/runs", {"payload": {text: text}}),
        ("PUT", HOME, {"description": text}),
        ("PUT", HOME, {"tz": text}),
        ("POST", "/keys", {"name": text, "role": "member"}),
        ("POST", "/keys", {"name": "k", "role": text}),
        ("POST", "/keys", {"name": "k", "role": "agent", "agent": text}),
        ("POST", "/keys", {"name": "k", "role": "member", "expiresAt": text}),
        ("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": 9, "agent": text}),
        ("PUT", "/quotas", {"bucket": text, "limit": 9}),
        ("PUT", f"{HOME}/workflows/a/1", {text: text}),
        ("POST", "/runs/claim", {"worker": text}),
        ("POST", "/runs/claim", {"worker": "w", "agents": [text], "lanes": [text]}),
        ("POST", "/dead-letters/discard", {"ids": [text]}),
        ("POST", "/dead-letters/replay", {"ids": [text]}),
        ("POST", f"/runs/{run_id}/complete", {"status": text}),
        (
            "POST",
            f"/runs/{run_id}/complete",
            {"status": "succeeded", "output": text, "error": text, "usage": {"said": text}},
        ),
    ]
    for method, path, body in requests:
        reply = await ask(method, path, body)
        assert reply.status < 500, (method, path, body, reply.body)
        if reply.status >= 400:
            assert reply.code in ("invalid-argument", "already-exists", "not-found"), (method, path, body)
    for path in ("/jobs", "/runs", "/keys", "/quotas", "/audit", "/status", f"{HOME}/agents", HOME):
        assert (await ask("GET", path)).status == 200
    assert (await ask("GET", "/audit/verify")).body["ok"]


@pytest.mark.parametrize("text", part([_ODD["a quote"], "a/b", "..", "ü", "x" * 5_000, "%", "a b"]))
async def test_no_path_causes_a_server_error(ask: ApiClient, text: str):
    odd = quote(text, safe="")
    for path in (
        f"/api/workspaces/{odd}/jobs",
        f"{HOME}/agents/{odd}",
        f"{HOME}/agents/{odd}/jobs",
        f"{HOME}/agents/{odd}/runs",
        f"{JOBS}/{odd}",
        f"{HOME}/runs/{odd}",
        f"{HOME}/workflows/{odd}/1",
        f"{HOME}/runs?agent={odd}&job={odd}",
        f"{HOME}/runs?job_id={odd}",
        f"{HOME}/runs?before={odd}",
        f"{HOME}/jobs?agent={odd}",
    ):
        for method in ("GET", "DELETE", "PUT", "POST", "PATCH"):
            reply = await ask(method, path, {})
            assert reply.status < 500, (method, path, reply.body)


#: The error for text that cannot be stored, the same on every store.
_REFUSED = "it has a character that cannot be stored (U+0000, or a lone surrogate); remove it"


async def test_unstorable_text_is_rejected_with_the_same_error_on_every_store(ask: ApiClient):
    text = "a\x00b"
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM, "target": {"kind": "pull"}})
    for method, path, body, said in (
        ("PUT", HOME, {"description": text}, f"description: {_REFUSED}"),
        ("PUT", f"{HOME}/agents/writer", {"description": text}, f"description: {_REFUSED}"),
        ("POST", "/keys", {"name": text, "role": "member"}, f"name: {_REFUSED}"),
        ("PATCH", f"{JOBS}/a", {"message": text}, f"message: {_REFUSED}"),
        ("PATCH", f"{JOBS}/a", {"description": text}, f"description: {_REFUSED}"),
        ("PATCH", f"{JOBS}/a", {"after": text}, "after: job: "),
        ("POST", JOBS, {"name": "b", "after": text}, "after: job: "),
    ):
        reply = await ask(method, path, body)
        assert (reply.status, reply.code) == (422, "invalid-argument"), (method, path)
        assert reply.body["detail"].startswith(said), (method, path, reply.body)


async def test_a_lone_surrogate_in_the_body_is_rejected(ask: ApiClient):
    for method, path, body in (
        ("PUT", HOME, {"description": "a\ud800b"}),
        ("POST", "/keys", {"name": "a\ud800b", "role": "member"}),
        ("POST", JOBS, {"name": "b", "after": "a\ud800b"}),
    ):
        reply = await ask(method, path, body)
        assert (reply.status, reply.code) == (400, "invalid-argument"), (method, path)
        assert reply.body["detail"] == "the body is not UTF-8; JSON is sent as UTF-8"


async def test_run_output_and_errors_are_sanitized_the_same_on_every_store(ask: ApiClient):
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM, "target": {"kind": "pull"}, "maxAttempts": 1})
    runs = [(await ask("POST", f"{JOBS}/a/run")).body["id"] for _ in range(2)]
    claimed = (await ask("POST", "/runs/claim", {"worker": "w", "limit": 2})).body["runs"]
    attempts = {run["id"]: run["attempt"] for run in claimed}
    for run, said in zip(
        runs,
        ({"status": "succeeded", "output": "a\x00b"}, {"status": "failed", "error": "\x00"}),
        strict=False,
    ):
        reply = await ask("POST", f"/runs/{run}/complete", {"attempt": attempts[run], **said})
        assert reply.status == 200, reply.body
    seen = [(await ask("GET", f"/runs/{run}")).body for run in runs]
    assert [(run["state"], run["output"], run["error"]) for run in seen] == [
        ("succeeded", "a\ufffdb", None),
        ("failed", None, "\ufffd"),
    ]
