"""Every page: only for signed-in callers, only what the key may see, never cached, no changes by GET."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping

import pytest
from aiohttp import web
from fastapi.routing import APIRoute

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, served
from tests.support.browser_client import BrowserClient, browsing
from tests.support.receiver import Receiver
from tests.support.waiting import eventually
from wakeful.dashboard.context import PageRoute
from wakeful.dashboard.routes import routers
from wakeful.service.auth.access import LOCAL

ROUTES = [route for router in routers() for route in router.routes if isinstance(route, APIRoute)]
PAGES = [route.path for route in ROUTES if route.path.startswith("/workspaces/{workspace}")]
#: The only routes that change something; all other changes go through the API.
CHANGES = {"/sign-in", "/sign-out"}
#: Routes without a session.
PUBLIC = {
    *("/sign-in/session", "/sign-in", "/sign-in/openid", "/sign-in/openid/callback", "/sign-out"),
    "/assets/{asked}/{name}",
}


@pytest.fixture
async def ask(new_app: NewApp) -> AsyncIterator[ApiClient]:
    app = new_app(commands=["true"])
    async with app, served(app) as client:
        await app.services.agents.workspaces.put(LOCAL, "acme", {})
        for agent in ("writer", "painter"):
            await client("PUT", f"/agents/{agent}", {"target": {"kind": "pull"}})
            await client("POST", f"/agents/{agent}/jobs", {"name": "digest", "schedule": SELDOM})
            await client("POST", f"/agents/{agent}/jobs/digest/run")
        yield client


@pytest.fixture
async def browser(ask: ApiClient) -> AsyncIterator[BrowserClient]:
    async with browsing(ask.url) as client:
        yield client


async def _address(ask: ApiClient, path: str, workspace: str = "default", agent: str = "writer") -> str:
    """Return the address of a page with parameters that exist where that is easy."""
    runs = (await ask("GET", f"/agents/{agent}/runs")).body["runs"]
    known = {"workspace": workspace, "agent": agent, "name": "digest", "run_id": runs[0]["id"]}
    return _filled(path, known, "nothing")


def _filled(path: str, known: Mapping[str, str], other: str) -> str:
    return re.sub(r"\{(\w+)(?::path)?\}", lambda found: known.get(found[1], other), path)


def test_only_signing_in_and_out_changes_something() -> None:
    unsafe = {route.path for route in ROUTES if (route.methods or set()) - {"GET", "HEAD"}}
    assert unsafe == CHANGES
    assert not any(route.include_in_schema for route in ROUTES)
    assert all(isinstance(route, PageRoute) for route in ROUTES if not route.path.startswith("/assets/"))
    assert {route.path for route in ROUTES} - set(PAGES) == PUBLIC | {"/"}


@on_one_store
async def test_a_page_without_a_session_goes_to_sign_in(ask: ApiClient, browser: BrowserClient) -> None:
    for path in PAGES:
        address = await _address(ask, path)
        reply = await browser("GET", address)
        assert (reply.status, reply.body) == (303, ""), path
        assert reply.headers["location"].startswith("/sign-in?next=%2Fworkspaces%2Fdefault"), path
        region = await browser("GET", address, headers={"x-wakeful-region": "x"})
        assert region.status == 401, path


@on_one_store
async def test_every_page_has_the_security_headers_and_is_not_cached(
    ask: ApiClient, browser: BrowserClient
) -> None:
    await browser.sign_in(ask.key)
    for path in PAGES:
        reply = await browser("GET", await _address(ask, path))
        assert reply.status in (200, 303, 404, 422), (path, reply)
        headers = reply.headers
        assert headers["cache-control"] == "no-store", path
        assert headers["x-content-type-options"] == "nosniff", path
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["x-frame-options"] == "DENY", path
        assert "set-cookie" not in headers or "wakeful_session" not in headers["set-cookie"], path


@on_one_store
async def test_a_key_of_another_workspace_sees_no_page(ask: ApiClient, browser: BrowserClient) -> None:
    await browser.sign_in((await ask.new("admin", "acme")).key)
    for path in PAGES:
        reply = await browser("GET", await _address(ask, path))
        assert reply.status == 404, (path, reply.status)
        assert "digest" not in reply.body.replace(await _address(ask, path), ""), path


@on_one_store
async def test_an_agents_key_sees_no_page_about_another_agent(ask: ApiClient, browser: BrowserClient) -> None:
    await browser.sign_in((await ask.new("agent", agent="painter")).key)
    for path in PAGES:
        reply = await browser("GET", await _address(ask, path))
        if "{agent}" in path or "{run_id}" in path:
            assert reply.status == 404, (path, reply.status)
        else:
            assert reply.status in (200, 303, 403, 404), (path, reply.status)
            assert "writer" not in reply.body, path


#: Pages for admins only: what they show needs these rights.
ADMIN_PAGES = {"audit", "keys", "channels", "settings"}


@on_one_store
async def test_pages_for_admins_are_refused_to_others(ask: ApiClient, browser: BrowserClient) -> None:
    for role, given in (("member", {}), ("agent", {"agent": "writer"})):
        await browser.sign_in((await ask.new(role, **given)).key)
        for path in PAGES:
            if path.split("/")[3:4] and path.split("/")[3] in ADMIN_PAGES:
                reply = await browser("GET", await _address(ask, path))
                if role == "member" and path.endswith("/keys"):  # the assistants that he connected
                    assert "You have connected no assistant" in reply.body
                else:
                    assert reply.status in (403, 404), (role, path, reply.status)


@on_one_store
async def test_no_page_shows_credentials_to_a_member_or_an_agent(
    ask: ApiClient, browser: BrowserClient, receiver: Receiver
) -> None:
    secrets = [f"s3cret-{name}" for name in ("header", "password", "query", "alert", "env", "token")]
    header, password, query, alert, env, token = secrets

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=500 if "x-key" in request.headers else 200)

    receiver.answer = answer
    address = receiver.url.replace("http://", f"http://me:{password}@") + f"?key={query}"
    target = {"kind": "webhook", "url": address, "headers": {"x-key": header}}
    alerts = {"url": f"{receiver.url}/{alert}", "failures": 1}
    assert (await ask("PUT", "/agents/writer", {"target": target, "alerts": alerts})).status == 200
    failing = {"name": "failing", "schedule": SELDOM, "target": target, "maxAttempts": 1}
    assert (await ask("POST", "/agents/writer/jobs", failing)).status == 201
    checked = {
        "target": {"kind": "command", "argv": ["true"], "env": {"JOB_X": env}},
        "precheck": target,
        "verify": {"kind": "http", "url": f"https://example.com/?token={token}"},
    }
    assert (await ask("PATCH", "/agents/writer/jobs/digest", checked)).status == 200
    await ask("POST", "/agents/writer/jobs/failing/run")

    async def alerted() -> bool:
        runs = (await ask("GET", "/agents/writer/runs")).body["runs"]
        return any(run["job"] == "wakeful-alerts" and run["finishedAt"] for run in runs)

    await eventually(alerted)
    runs = (await ask("GET", "/agents/writer/runs")).body["runs"]
    jobs = ("failing", "digest", "wakeful-alerts")
    incident = (await ask("GET", "/incidents")).body["incidents"][0]["id"]
    addresses = []
    for path in PAGES:
        for job in jobs if "{name}" in path else jobs[:1]:
            for run in runs if "{run_id}" in path else runs[:1]:
                known = {"workspace": "default", "agent": "writer", "name": job, "run_id": run["id"]}
                known |= {"incident_id": incident}
                addresses.append(_filled(path, known, "main"))
    for role, given in (("member", {}), ("agent", {"agent": "writer"})):
        await browser.sign_in((await ask.new(role, **given)).key)
        for address in addresses:
            reply = await browser("GET", address)
            assert reply.status in (200, 303, 403, 404), (address, reply.status)
            shown = [secret for secret in secrets if secret in reply.body]
            assert not shown, (role, address, shown)


@on_one_store
async def test_a_region_is_shared_only_by_callers_who_see_the_same(
    ask: ApiClient, browser: BrowserClient
) -> None:
    """The form of the sign-in page contains the CSRF token of the session: no region of it is kept."""
    tokens = []
    async with browsing(ask.url) as other:
        for each in (browser, other):
            await each.sign_in(ask.key)
            page = await each("GET", "/sign-in", headers={"x-wakeful-region": "x"})
            found = re.search(r'name="csrf" value="([0-9a-f]{128})"', page.body)
            assert found is not None
            tokens.append(found[1])
    assert tokens[0] != tokens[1]


@on_one_store
async def test_assets_are_public_cached_and_cannot_run_code(ask: ApiClient, browser: BrowserClient) -> None:
    page = await browser("GET", "/sign-in")
    addresses = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.body)
    assert len(addresses) >= 3
    for address in addresses:
        reply = await browser("GET", address)
        assert reply.status == 200
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["content-security-policy"] == "default-src 'none'"
        assert reply.headers["x-content-type-options"] == "nosniff"
    for name in ("../context.py", "..%2fcontext.py", "app.py", ".", "%00"):
        assert (await browser("GET", f"/assets/x/{name}")).status in (400, 404)


@on_one_store
async def test_the_start_page_goes_to_a_workspace_of_the_caller(
    ask: ApiClient, browser: BrowserClient
) -> None:
    await browser.sign_in((await ask.new("admin", "acme")).key)
    assert (await browser("GET", "/")).headers["location"] == "/workspaces/acme/"
    await browser.sign_in(ask.key)
    for chosen, expected in (("acme", "acme"), ("../../evil", "default"), ("%2F%2Fevil.example", "default")):
        cookie = f"wakeful_session={browser.token}; wakeful_workspace={chosen}"
        reply = await browser("GET", "/", headers={"cookie": cookie})
        assert reply.headers["location"] == f"/workspaces/{expected}/", chosen
    assert (await browser("GET", HOME)).status == 200
