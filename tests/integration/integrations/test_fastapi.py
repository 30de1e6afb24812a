"""The API and the dashboard below a path of a FastAPI application, behind its middleware and its sign-in."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sqlite3
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient
from tests.support.browser_client import browsing
from tests.support.dashboard_pages import fill
from tests.support.host_app import ROOT, Host, serving_host
from tests.support.paths import ROOT as ROOT_FOLDER
from tests.support.rpc_client import connected
from tests.support.sse_client import listening
from tests.support.waiting import PATIENCE, eventually
from tests.support.web_programs import free_port, program, request, wait_until
from wakeful import AsyncClient, InvalidArgument, Permanent
from wakeful.integrations.fastapi import User, WebApp
from wakeful.service.auth.access import LOCAL
from wakeful.settings import current_settings

_ADDRESS = re.compile(r'(?:href|src|action|data-[a-z-]+)="(/[^"]*)"')
_CSRF = re.compile(r'<meta name="csrf" content="([0-9a-f]+)">')
_JOB = {"name": "nightly", "schedule": SELDOM, "target": {"kind": "pull"}}


@pytest.fixture
async def host(new_app: NewApp) -> AsyncIterator[Host]:
    """Serve a host application with a scheduler."""
    app = new_app()

    @app.function()
    async def nothing() -> str:
        return "done"

    @app.function()
    async def failing() -> None:
        raise Permanent("it never works")

    async with serving_host(Host(app)) as host:
        yield host


@pytest.fixture
async def ask(host: Host) -> AsyncIterator[ApiClient]:
    """Return a client of the API below the path, with an admin key."""
    async with aiohttp.ClientSession() as session:
        key = await host.app.services.auth.keys.first_key()
        yield ApiClient(host.url + ROOT, session, key, host.app)


# --- addresses -----------------------------------------------------------------------------------------


@on_one_store
async def test_every_address_of_every_page_is_below_the_path(host: Host, ask: ApiClient):
    world = await fill(ask)
    linked: set[str] = set()
    for page in world.pages:
        reply = await ask("GET", f"/workspaces/default/{page}")
        assert reply.status == 200, page
        found = {unescape(each) for each in _ADDRESS.findall(reply.body)}
        outside = {each for each in found if not each.startswith(f"{ROOT}/")}
        assert not outside, f"{page}: {outside}"
        linked |= {
            each.removeprefix(ROOT)
            for each in map(unescape, re.findall(r'(?:href|src)="(/[^"#]*)', reply.body))
        }
    assert any(each.startswith("/assets/") for each in linked)
    assert len(linked) > 40
    for each in linked:
        async with ask.session.get(
            host.url + ROOT + each, headers={"Authorization": f"Bearer {ask.key}"}, allow_redirects=False
        ) as response:
            assert response.status == (303 if each == "/sign-in" else 200), each


@on_one_store
async def test_redirects_and_responses_name_addresses_below_the_path(host: Host, ask: ApiClient):
    async with browsing(host.url) as browser:
        assert (await browser("GET", ROOT)).headers["location"].endswith(f"{ROOT}/")
        first = await browser("GET", f"{ROOT}/")
        assert first.headers["location"].startswith(f"{ROOT}/sign-in?next=%2Fwakeful%2F")
        on_host = await browser("GET", first.headers["location"])
        assert on_host.headers["location"] == "/login?next=%2Fwakeful%2F"  # `sign_in_url`
    async with ask.session.get(
        f"{ask.url}/", headers={"Authorization": f"Bearer {ask.key}"}, allow_redirects=False
    ) as found:
        assert found.headers["location"] == f"{ROOT}/workspaces/default/"
    created = await ask("POST", JOBS, _JOB)
    assert created.headers["location"].startswith(f"{ROOT}{JOBS}")
    assert (await ask("GET", created.headers["location"].removeprefix(ROOT))).body["name"] == "nightly"
    link = await ask("POST", "/api/sign-in-links")
    assert link.body["url"].startswith(f"{host.url}{ROOT}/sign-in#")
    hook = await ask("POST", f"{JOBS}/nightly/hook")
    assert hook.body["url"].startswith(f"{host.url}{ROOT}/hooks/"), hook
    async with ask.session.post(hook.body["url"]) as triggered:
        assert triggered.status < 300
    async with ask.session.get(hook.body["url"]) as opened:
        assert (opened.status, opened.headers["allow"]) == (405, "POST")
    document = await ask("GET", "/openapi.json")
    assert document.body["servers"] == [{"url": ROOT}]
    missing = await ask("GET", "/runs/none")
    assert missing.code == "not-found"


@on_one_store
async def test_clients_take_the_address_with_the_path(host: Host, ask: ApiClient):
    async with AsyncClient(host.url + ROOT, key=ask.key) as client:
        await client.jobs.upsert("nightly", schedule=SELDOM, target={"kind": "function", "name": "nothing"})
        run = await client.jobs.run("nightly")
        assert (await client.runs.wait(run.id)).state == "succeeded"
        async with asyncio.timeout(PATIENCE):
            async for event in client.events(after=0):
                if event.type == "run.finished":
                    break


@on_one_store
async def test_mcp_works_below_the_path(ask: ApiClient):
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {ask.key}"}
    async with ask.session.post(f"{ask.url}/mcp", json=initialize, headers=headers) as response:
        assert (await response.json())["result"]["serverInfo"]["name"] == "wakeful"
    elsewhere = {**headers, "Origin": "https://evil.example"}
    async with ask.session.post(f"{ask.url}/mcp", json=initialize, headers=elsewhere) as refused:
        assert refused.status == 403


# --- keys and sessions, as at a server ---------------------------------------------------------------------


async def test_a_sign_in_session_belongs_to_the_path(new_app: NewApp):
    app = new_app()
    plain = Host(app)
    plain.web._sign_in_url = None
    async with serving_host(plain) as host, browsing(host.url) as browser:
        key = await app.services.auth.keys.first_key()
        signed_in = await browser("POST", f"{ROOT}/sign-in", form={"key": key or "", "next": "/elsewhere"})
        assert (signed_in.status, signed_in.headers["location"]) == (303, "/elsewhere")
        assert f"Path={ROOT}" in signed_in.headers["set-cookie"]
        page = await browser("GET", f"{ROOT}/workspaces/default/jobs")
        assert page.status == 200
        assert (await browser("GET", "/")).body == "the host with []"  # it does not get the cookie
        token = _CSRF.findall(page.body)[0]
        refused = await browser("POST", f"{ROOT}{JOBS}", _JOB)
        assert (refused.status, refused.code) == (403, "permission-denied")
        headers = {"x-wakeful-csrf": token}
        assert (await browser("POST", f"{ROOT}{JOBS}", _JOB, headers=headers)).status == 201
        out = await browser("POST", f"{ROOT}/sign-out", form={"csrf": token})
        assert out.headers["location"] == f"{ROOT}/sign-in"
        assert f"Path={ROOT}" in out.headers["set-cookie"]
        assert (await browser("GET", f"{ROOT}/workspaces/default/jobs")).status == 303


# --- users of the host ---------------------------------------------------------------------------------


async def test_a_user_of_the_host_uses_the_dashboard_and_the_api(host: Host, ask: ApiClient):
    host.users["s1"] = User("ada", "admin")
    host.users["s2"] = User("bob")
    async with browsing(host.url) as ada, browsing(host.url) as bob:
        await ada("GET", "/login/s1")
        await bob("GET", "/login/s2")
        page = await ada("GET", f"{ROOT}/workspaces/default/jobs")
        assert page.status == 200
        assert "Sign out" not in page.body  # she signs out at the host
        headers = {"x-wakeful-csrf": _CSRF.findall(page.body)[0]}
        made = await ada("POST", f"{ROOT}{JOBS}", _JOB, headers=headers)
        assert made.status == 201
        # Changes need a page of this host, in both ways.
        for given in ({}, {**headers, "Origin": "https://evil.example"}, {"x-wakeful-csrf": "00"}):
            refused = await ada("DELETE", f"{ROOT}{JOBS}/nightly", headers=given)
            assert (refused.status, refused.code) == (403, "permission-denied"), given
        # A member reads and runs, and sees no other workspace.
        page = await bob("GET", f"{ROOT}/workspaces/default/jobs")
        headers = {"x-wakeful-csrf": _CSRF.findall(page.body)[0]}
        assert (await bob("DELETE", f"{ROOT}{JOBS}/nightly", headers=headers)).status == 403
        assert (await bob("POST", f"{ROOT}{JOBS}/nightly/run", headers=headers)).status == 201
        assert (await bob("GET", f"{ROOT}/api/workspaces/other/jobs")).status == 404
        # A key that is sent says who calls.
        entries = await host.app.services.admin.audit.list(LOCAL, "default")
        assert [(each.actor, each.action) for each in reversed(entries)][-2:] == [
            ("user:ada", "job.create"),
            ("user:bob", "job.run"),
        ]
        bearer = {"Authorization": f"Bearer {ask.key}"}
        assert (await bob("DELETE", f"{ROOT}{JOBS}/nightly", headers=bearer)).status == 204


async def test_a_stream_ends_when_the_user_signs_out(host: Host):
    host.users["s1"], host.users["s2"] = User("ada", "admin"), User("ada", "admin")
    async with browsing(host.url) as one, browsing(host.url) as two:
        await one("GET", "/login/s1")
        await two("GET", "/login/s2")
        events = f"{host.url}{ROOT}/api/workspaces/default/events?after=0"
        async with one.session.get(events) as first, two.session.get(events) as second:
            assert (first.status, second.status) == (200, 200)
            watched = [each.credential for each in host.app.services.auth.open_uses._open]
            assert len(watched) == len(set(watched)) == 2  # the end of one is not the end of the other
            del host.users["s1"]
            async with asyncio.timeout(PATIENCE):
                async for _ in first.content:
                    pass
            assert not second.content.at_eof()
            await host.app.jobs.upsert("nightly", schedule=SELDOM, target={"kind": "pull"})
            async with asyncio.timeout(PATIENCE):
                async for line in second.content:
                    if line.startswith(b"event: job"):
                        break


@on_one_store
@pytest.mark.parametrize("then", ["other workspace", "other role", "refused"])
async def test_a_stream_ends_when_the_user_has_other_rights(host: Host, then: str):
    host.users["s1"] = User("ada", "admin")
    async with browsing(host.url) as ada:
        await ada("GET", "/login/s1")
        async with ada.session.get(f"{host.url}{ROOT}/api/workspaces/default/events?after=0") as stream:
            assert stream.status == 200
            if then == "refused":  # as a dependency of FastAPI does it
                host.refuses = True
            else:
                host.users["s1"] = User("ada", "admin", "other") if then == "other workspace" else User("ada")
            async with asyncio.timeout(PATIENCE):
                async for _ in stream.content:
                    pass


@on_one_store
async def test_pages_of_any_site_may_not_use_the_cookie_of_the_host(new_app: NewApp):
    settings = replace(current_settings(), allowed_origins=("*",))
    host = Host(new_app(settings=settings))
    host.users["s1"] = User("ada", "admin")
    async with serving_host(host):
        evil = {"Cookie": "session=s1", "Origin": "https://evil.example"}
        key = await host.app.services.auth.keys.first_key()
        for given, protocols in ((evil, []), (evil, ["wakeful", "bearer.x"])):
            async with connect(
                f"{host.url.replace('http', 'ws')}{ROOT}/ws",
                additional_headers=given,
                subprotocols=[Subprotocol(each) for each in protocols] or None,
            ) as socket:
                await asyncio.wait_for(socket.wait_closed(), PATIENCE)
                assert socket.close_code == 4401
        async with connected(f"{host.url}{ROOT}", key, headers={"Origin": "https://evil.example"}) as call:
            assert (await call("cron.list"))["jobs"] == []  # with a key it is the page's own


@on_one_store
async def test_rpc_takes_keys_and_users_of_the_host_below_the_path(host: Host, ask: ApiClient):
    async with connected(f"{host.url}{ROOT}", ask.key) as call:
        assert (await call("cron.list"))["jobs"] == []
    host.users["s1"] = User("ada", "admin")
    cookie = {"Cookie": "session=s1"}
    async with connected(f"{host.url}{ROOT}", headers={**cookie, "Origin": host.url}) as call:
        assert (await call("cron.list"))["jobs"] == []
        del host.users["s1"]
        assert (await call.closed())[0] == 4401
    with pytest.raises(InvalidStatus):
        async with connected(f"{host.url}{ROOT}", headers={**cookie, "Origin": "https://evil.example"}):
            pass


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"role": "viewer"},
        {"role": "agent"},
        {"agent": "writer"},
        {"role": "agent", "agent": "a", "workspace": None},
    ],
)
def test_a_user_that_cannot_be_is_refused(given: dict[str, Any]):
    with pytest.raises(InvalidArgument):
        User(**{"name": "ada", **given})


# --- the host ----------------------------------------------------------------------------------------


@on_one_store
async def test_the_host_stays_as_it_was(new_app: NewApp):
    app = new_app()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    logs = [list(logging.getLogger(name).handlers) for name in (None, "uvicorn", "wakeful")]
    exceptions = asyncio.get_running_loop().get_exception_handler()
    host = Host(app)
    async with host.web.lifespan(host.fastapi):
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    async with serving_host(host), browsing(host.url) as browser:
        host.users["s1"] = User("ada", "admin")
        await browser("GET", "/login/s1")
        assert (await browser("GET", f"{ROOT}/workspaces/default/jobs")).status == 200
        assert (await browser("GET", "/")).body == "the host with ['session']"
    assert all(set(each.values()) == {"of the host"} for each in host.states)
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert [list(logging.getLogger(name).handlers) for name in (None, "uvicorn", "wakeful")] == logs
    assert asyncio.get_running_loop().get_exception_handler() is exceptions


async def test_the_host_stops_although_streams_are_open(new_app: NewApp):
    app = new_app()
    async with aiohttp.ClientSession() as session:
        async with serving_host(Host(app)) as host:
            ask = ApiClient(host.url + ROOT, session, await app.services.auth.keys.first_key(), app)
            streams = [listening(ask), listening(ask, coalesceMs=1000)]
            opened = [await each.__aenter__() for each in streams]
            claim = asyncio.create_task(ask("POST", "/runs/claim", {"worker": "w", "waitMs": 30_000}))
            await eventually(lambda: app.services.auth.connection_limits.open().total() == 2)
            began = time.monotonic()
        assert time.monotonic() - began < 10
        assert not app.alive
        assert (await claim).body["runs"] == []
        assert await opened[0].next_event() is None
        for each in streams:
            await each.__aexit__(None, None, None)


@pytest.mark.slow
def test_two_workers_of_uvicorn_are_two_replicas(tmp_path: Path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    examples = str(ROOT_FOLDER / "examples")
    options = ("--app-dir", examples, "--workers", "2", "--port", str(port))
    with program(tmp_path, "-m", "uvicorn", *options, "fastapi_app:host", port=port) as server:
        with closing(sqlite3.connect(tmp_path / "wakeful.db")) as db:
            count = "SELECT count(*) FROM workers"
            wait_until(lambda: db.execute(count).fetchone() == (2,))
            runs = [request(f"{url}/orders?email={number}@example.com", "")["run"] for number in range(20)]
            done = "SELECT count(*), count(DISTINCT id) FROM runs WHERE state = 'succeeded' AND attempt = 1"
            wait_until(lambda: db.execute(done).fetchone() == (len(runs), len(runs)))
        events = f"{url}/wakeful/api/workspaces/default/events"
        asked = urllib.request.Request(events, headers={"Cookie": "user=ada"})
        with urllib.request.urlopen(asked, timeout=60) as stream:
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 20
            assert b"retry" in stream.read()
        with closing(sqlite3.connect(tmp_path / "wakeful.db")) as db:
            assert db.execute(count).fetchone() == (0,)


@on_one_store
async def test_a_host_without_the_lifespan_gets_an_error_that_says_what_to_do(new_app: NewApp):
    host = FastAPI()
    host.mount("/wakeful", WebApp(new_app()))
    reply = TestClient(host).get("/wakeful/api/workspaces")
    assert reply.status_code == 503
    assert "lifespan=web.lifespan" in reply.json()["detail"]


@on_one_store
def test_starlette_mounts_it_at_any_depth(new_app: NewApp):
    web = WebApp(new_app(), authenticate=lambda request: User("ada", "admin"))
    below = Starlette(routes=[Mount("/deep/wakeful", web)])
    host = Starlette(routes=[Mount("/very", below)], lifespan=web.lifespan)
    with TestClient(host, root_path="/proxied") as client:
        page = client.get("/proxied/very/deep/wakeful/workspaces/default/jobs")
        assert page.status_code == 200
        assert 'href="/proxied/very/deep/wakeful/workspaces/default/runs"' in page.text
        headers = {"x-wakeful-csrf": _CSRF.findall(page.text)[0]}
        made = client.post(f"/proxied/very/deep/wakeful{JOBS}", json=_JOB, headers=headers)
        assert made.headers["location"] == f"/proxied/very/deep/wakeful{JOBS}/nightly"


@on_one_store
async def test_one_scheduler_serves_two_paths(new_app: NewApp):
    app = new_app()
    one, two = WebApp(app), WebApp(app, authenticate=lambda request: User("ada", "admin"))
    host = Host(app)
    host.fastapi.mount("/one", one)
    host.fastapi.mount("/two", two)
    async with one.lifespan(host.fastapi), two.lifespan(host.fastapi):
        async with serving_host(host), browsing(host.url) as browser:
            assert (await browser("GET", "/one/workspaces/default/")).status == 303
            page = await browser("GET", "/two/workspaces/default/")  # a function that is not async
            assert page.status == 200
            assert 'href="/two/' in page.body
        assert app.alive  # whoever started it stops it
    assert not app.alive
