"""The page of a job over HTTP: content, roles, hostile values."""

from __future__ import annotations

import html

from tests.integration.conftest import SELDOM
from tests.integration.dashboard.test_run_pages import HOSTILE, PAGES, ran
from tests.support.api_client import JOBS, ApiClient
from tests.support.suggestions import suggest

JOB = f"{PAGES}/agents/default/jobs"


async def test_the_page_of_a_job_has_its_parts(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "load", "after": {"job": "digest"}, "target": {"kind": "echo"}})
    run = await ran(
        ask,
        {
            "name": "digest",
            "schedule": "0 9 * * 1-5",
            "tz": "Europe/Berlin",
            "target": {"kind": "echo"},
            "message": "hello",
            "description": "Sends the digest.",
            "labels": {"team": "ops"},
        },
    )
    await ask("PATCH", f"{JOBS}/digest", {"message": "good morning"})
    page = html.unescape((await ask("GET", f"{JOB}/digest")).body)
    for text in (
        "At 09:00, Monday through Friday (Europe/Berlin)",
        "Sends the digest.",
        "team=ops",
        'href="/workspaces/default/agents/default/jobs/load"',
        run["id"],
        '"hello"',
        '"good morning"',
        "wakeful add digest",
        "revisions/1/restore",
        '/pause"',
        "job.update",
        "jobs/new?from=default%2Fdigest",
    ):
        assert text in page, text
    follower = html.unescape((await ask("GET", f"{JOB}/load")).body)
    assert "when digest has succeeded" in follower
    for region in ("overview", "runs"):
        part = await ask("GET", f"{JOB}/digest", headers={"x-wakeful-region": region})
        assert (part.status, "<html" in part.body) == (200, False)


async def test_the_page_says_why_a_job_does_not_run(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": {"kind": "pull"}})
    assert "No executor has asked for runs" in (await ask("GET", f"{JOB}/digest")).body
    await ask("POST", f"{JOBS}/digest/pause", {"note": "maintenance", "until": "in 2h"})
    paused = (await ask("GET", f"{JOB}/digest")).body
    assert "The job is paused: maintenance" in paused
    assert "It resumes by itself at" in paused
    assert '/resume"' in paused
    await ask("PUT", "/agents/default", {"active": False})
    await ask("POST", JOBS, {"name": "other", "schedule": SELDOM, "target": {"kind": "echo"}})
    assert "Its agent is not active" in (await ask("GET", f"{JOB}/other")).body


async def test_credentials_are_hidden_also_from_admins(ask: ApiClient) -> None:
    target = {"kind": "webhook", "url": "http://127.0.0.1:9/?key=hidden-1", "headers": {"x-key": "hidden-2"}}
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": target})
    page = (await ask("GET", f"{JOB}/digest")).body
    assert "hidden-" not in page
    assert "rotate-secret" in page


async def test_roles_see_what_they_may_do(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": {"kind": "echo"}})
    await ask("PATCH", f"{JOBS}/digest", {"payload": 1})
    member = await ask.new("member")
    page = (await member("GET", f"{JOB}/digest")).body
    assert '/run"' in page
    for action in ('/pause"', "/edit", "restore", "/hook", "rotate-secret", "job.update"):
        assert action not in page, action
    await ask("PUT", "/agents/other", {})
    assert (await (await ask.new("agent", agent="other"))("GET", f"{JOB}/digest")).status == 404


async def test_hostile_texts_are_escaped(ask: ApiClient) -> None:
    job = {
        "name": "digest",
        "schedule": SELDOM,
        "target": {"kind": "echo"},
        "payload": {"a": HOSTILE},
        "description": HOSTILE,
        "labels": {"team": HOSTILE[:60]},
    }
    await ran(ask, job)
    await ask("PATCH", f"{JOBS}/digest", {"payload": {"b": HOSTILE}, "message": HOSTILE})
    await ask("POST", f"{JOBS}/digest/pause", {"note": HOSTILE})
    page = (await ask("GET", f"{JOB}/digest")).body
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert html.escape("<script>alert(1)") in page


async def test_suggestions_and_incidents_are_on_the_page(ask: ApiClient) -> None:
    run = await ran(ask, {"name": "bad", "target": {"kind": "function", "name": "failing"}})
    assert run["state"] == "failed"
    await suggest(ask.app.store, "default", "bad")
    page = (await ask("GET", f"{JOB}/bad")).body
    assert "Open incident" in page
    assert "ended at the timeout of 30 seconds" in page
    assert "/apply" in page


async def test_an_unknown_job_and_a_wrong_state_are_pages(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": {"kind": "echo"}})
    for path, status in (("nothing", 404), ("digest?state=bad", 422), ("digest?cursor=bad", 422)):
        page = await ask("GET", f"{JOB}/{path}")
        assert (page.status, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert (await ask("GET", f"{JOB}/digest?state=failed&days=90")).status == 200
