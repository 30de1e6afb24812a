"""The list of runs and the page of a run over HTTP: content, filters, roles, hostile values."""

from __future__ import annotations

import asyncio
import html
import re
import subprocess
from typing import Any

from aiohttp import web

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.receiver import Receiver
from tests.support.tools import tool
from tests.support.waiting import eventually
from wakeful import Permanent
from wakeful.values.ids import new_id

PAGES = "/workspaces/default"
HOSTILE = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


async def finished(ask: ApiClient, run_id: str) -> dict[str, Any]:
    async def over() -> dict[str, Any] | None:
        run: dict[str, Any] = (await ask("GET", f"/runs/{run_id}")).body
        return run if run["state"] in ("succeeded", "failed", "cancelled") else None

    run = await eventually(over)
    assert isinstance(run, dict)
    return run


async def ran(ask: ApiClient, job: dict[str, Any], body: Any = None) -> dict[str, Any]:
    """Create a job, run it, and return its run when it is over."""
    created = await ask("POST", JOBS, {"schedule": SELDOM, **job})
    assert created.status == 201, created
    run = await ask("POST", f"{JOBS}/{job['name']}/run", body or {})
    assert run.status == 201, run
    return await finished(ask, run.body["id"])


async def test_the_list_shows_runs_with_their_figures(ask: ApiClient, receiver: Receiver) -> None:
    run = await ran(ask, {"name": "digest", "target": {"kind": "echo"}, "message": "hello"})
    page = await ask("GET", f"{PAGES}/runs")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f'href="/workspaces/default/runs/{run["id"]}"' in page.body
    assert "Succeeded" in page.body
    assert "Run by a person" in page.body


async def test_actions_are_about_the_job_that_the_page_shows(ask: ApiClient) -> None:
    run = await ran(ask, {"name": "digest", "target": {"kind": "echo"}})
    job = (await ask("GET", f"{JOBS}/digest")).body["id"]
    before = (await ask("GET", f"{PAGES}/agents/default/jobs/digest")).body
    await ask("PATCH", f"{JOBS}/digest", {"name": "old-digest"})
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    after = (await ask("GET", f"{PAGES}/runs/{run['id']}")).body
    for page in (before, after):
        paths = re.findall(r'data-path="/api/workspaces/default(/agents/default/jobs/[^"]*/run)"', page)
        assert paths, page
        for path in paths:
            assert (await ask("POST", path)).body["jobId"] == job


FILTERS = {
    "state=succeeded": True,
    "state=failed": False,
    "state=failed,succeeded": True,
    "trigger=user": True,
    "trigger=hook": False,
    "agent=default": True,
    "job=digest": True,
    "agent=default&job=digest": True,
    "agent=default&instance=eu": False,
    "period=1": True,
    "until=2020-01-01T00:00": False,
    "since=2020-01-01T00:00&until=2100-01-01T00:00:00Z": True,
    "since=0": True,
    "since=0001-01-01T00:00%2B23:59&until=9999-12-31T23:59-23:59": True,
}
WRONG = (
    *("state=bad", "trigger=bad", "job=nothing", "period=7", "since=soon", "cursor=bad"),
    *("agent=nobody&job=a", "since=9999-99-99", "until=999999999999999", "instance=eu"),
)


async def test_filters(ask: ApiClient) -> None:
    run = await ran(ask, {"name": "digest", "target": {"kind": "echo"}})
    shown = {}
    for query in FILTERS:
        page = await ask("GET", f"{PAGES}/runs?{query}")
        assert page.status == 200, query
        shown[query] = f"runs/{run['id']}" in page.body
    assert shown == FILTERS
    between = (await ask("GET", f"{PAGES}/runs?since=0&until=86400000")).body
    assert "from 1970-01-01 00:00:00 UTC until 1970-01-02 00:00:00 UTC" in between
    for query in WRONG:
        page = await ask("GET", f"{PAGES}/runs?{query}")
        assert page.status == 200, query
        assert 'class="notice error"' in page.body, query


async def test_a_long_list_has_pages(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": {"kind": "pull"}})
    ids = [(await ask("POST", f"{JOBS}/digest/run")).body["id"] for _ in range(53)]
    first = (await ask("GET", f"{PAGES}/runs")).body
    assert sum(each in first for each in ids) == 50
    older = html.unescape(first.split('rel="next" href="')[1].split('"')[0])
    second = (await ask("GET", older)).body
    assert [each for each in ids if f"runs/{each}" in second] == ids[:3]
    assert "First page" in second


async def test_the_list_is_rendered_as_a_region(ask: ApiClient) -> None:
    run = await ran(ask, {"name": "digest", "target": {"kind": "echo"}})
    region = await ask("GET", f"{PAGES}/runs", headers={"x-wakeful-region": "list"})
    assert f'data-key="{run["id"]}"' in region.body
    assert "<html" not in region.body


async def test_hostile_texts_are_escaped(new_app: NewApp) -> None:
    app = new_app()

    @app.function()
    async def failing() -> None:
        raise Permanent(HOSTILE)

    async with app, served(app) as ask:
        failed = await ran(
            ask, {"name": "bad", "target": {"kind": "function", "name": "failing"}, "payload": {"a": HOSTILE}}
        )
        echoed = await ran(ask, {"name": "echo", "target": {"kind": "echo"}, "payload": {"a": HOSTILE}})
        ids = failed["id"], echoed["id"]
        for path in ("runs", *(f"runs/{each}" for each in ids), "runs?job=%3Cscript%3E&state=%3C"):
            page = (await ask("GET", f"{PAGES}/{path}")).body
            assert "<script>alert" not in page
            assert "<img src=x" not in page
        assert html.escape("<script>alert(1)") in (await ask("GET", f"{PAGES}/runs/{failed['id']}")).body


async def test_the_reason_of_a_failed_run_is_in_words(ask: ApiClient, receiver: Receiver) -> None:
    async def broken(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=503)

    receiver.answer = broken
    target = {"kind": "webhook", "url": receiver.url}
    run = await ran(ask, {"name": "digest", "target": target, "maxAttempts": 1})
    assert run["reason"] == "http"
    for path in ("runs", f"runs/{run['id']}", "agents/default/jobs/digest"):
        assert "the target answered with status 503" in (await ask("GET", f"{PAGES}/{path}")).body, path


async def test_an_attempt_has_its_request_response_and_advice(ask: ApiClient, receiver: Receiver) -> None:
    async def second_time(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"full": HOSTILE}, status=503 if len(receiver.requests) < 2 else 200)

    receiver.answer = second_time
    target = {"kind": "webhook", "url": f"{receiver.url}?key=hidden-1", "headers": {"x-key": "hidden-2"}}
    backoff = {"baseMs": 100, "maxMs": 100}
    run = await ran(ask, {"name": "digest", "target": target, "payload": {"to": "me"}, "backoff": backoff})
    page = html.unescape((await ask("GET", f"{PAGES}/runs/{run['id']}")).body)
    assert "Attempt 1" in page
    assert "Attempt 2" in page
    assert "HTTP 503" in page
    assert "The receiver failed. Read its logs" in page
    assert [attempt["output"] is not None for attempt in run["attempts"]] == [True, False]
    assert page.count('"full"') >= 3  # the error and the response of the first attempt, and the output
    assert "hidden-" not in page
    assert '{"job":"digest","payload":{"to":"me"}}' in page
    assert "(computed from the secret of the job)" in page
    assert "x-wakeful-attempt" in page


async def test_the_copied_curl_command_sends_the_same_request(ask: ApiClient, receiver: Receiver) -> None:
    for name in ("curl", "openssl"):
        tool(name)
    target = {"kind": "webhook", "url": receiver.url}
    payload = {"text": "it's ünïcode $HOME `id`"}
    job = {"name": "digest", "schedule": SELDOM, "target": target, "payload": payload}
    created = await ask("POST", JOBS, job)
    run = await finished(ask, (await ask("POST", f"{JOBS}/digest/run")).body["id"])
    page = (await ask("GET", f"{PAGES}/runs/{run['id']}")).body
    command = html.unescape(page.split("As curl</p>")[1].split('<pre tabindex="0">')[1].split("</pre>")[0])
    assert created.body["secret"] not in page
    command = command.replace("whsec_…", created.body["secret"])
    done = await asyncio.to_thread(subprocess.run, ["bash", "-eu", "-c", command], capture_output=True)
    assert done.returncode == 0, done.stderr
    first, again = receiver.requests
    assert receiver.bodies[0] == receiver.bodies[1]
    for name in ("x-wakeful-signature", "webhook-id", "x-wakeful-run-id", "x-wakeful-attempt", "traceparent"):
        assert again.headers[name] == first.headers[name], name


async def test_the_page_shows_what_a_run_waits_for_and_what_followed(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "next", "after": {"job": "digest"}, "target": {"kind": "pull"}})
    run = await ran(ask, {"name": "digest", "target": {"kind": "echo"}})

    async def followed() -> dict[str, Any] | None:
        runs = (await ask("GET", "/runs?trigger=chain")).body["runs"]
        return runs[0] if runs else None

    follower = await eventually(followed)
    page = (await ask("GET", f"{PAGES}/runs/{run['id']}")).body
    assert "What followed" in page
    assert follower["id"] in page
    waiting = (await ask("GET", f"{PAGES}/runs/{follower['id']}")).body
    assert "Waits for an executor" in waiting
    assert "After run of digest" in waiting
    assert run["id"] in waiting


async def test_roles_see_what_they_may_do(new_app: NewApp) -> None:
    app = new_app()

    @app.function()
    async def failing() -> None:
        raise Permanent("no")

    async with app, served(app) as ask:
        run = await ran(ask, {"name": "bad", "target": {"kind": "function", "name": "failing"}})
        member = await ask.new("member")
        await ask("PUT", "/agents/other", {})
        other = await ask.new("agent", agent="other")
        admin_page = (await ask("GET", f"{PAGES}/runs/{run['id']}")).body
        member_page = (await member("GET", f"{PAGES}/runs/{run['id']}")).body
        assert f"runs/{run['id']}/replay" in admin_page
        assert "/replay" not in member_page
        assert "Run the job now" in member_page
        assert (await other("GET", f"{PAGES}/runs/{run['id']}")).status == 404
        assert run["id"] not in (await other("GET", f"{PAGES}/runs")).body


async def test_an_unknown_run_is_a_page(ask: ApiClient) -> None:
    for run_id in (new_id(0), "nothing", "%3Cscript%3E"):
        page = await ask("GET", f"{PAGES}/runs/{run_id}")
        assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "<script>" not in page.body
