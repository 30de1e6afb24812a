"""Text that no database likes, wherever text may stand: it is kept or refused, and never our mistake."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.integration.asking import HOME, JOBS, Somebody
from tests.integration.conftest import SELDOM

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


@pytest.mark.parametrize("text", _ODD.values(), ids=_ODD.keys())
async def test_no_text_is_our_mistake(ask: Somebody, text: str):
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


@pytest.mark.parametrize("text", [_ODD["a quote"], "a/b", "..", "ü", "x" * 5_000, "%", "a b"])
async def test_no_path_is_our_mistake(ask: Somebody, text: str):
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
