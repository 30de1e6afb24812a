"""Signing in and out over HTTP: cookies, CSRF, expiry, limits, one-time links and replicas."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.conftest import QUICK, SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, served
from tests.support.browser_client import BrowserClient, browsing
from tests.support.certificates import Authority
from tests.support.movable_clock import MovableClock, store_with
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

JOB = f"{HOME}/agents/default/jobs/digest"
DOCUMENT = {"schedule": SELDOM, "target": {"kind": "pull"}}


@pytest.fixture
async def browser(ask: ApiClient) -> AsyncIterator[BrowserClient]:
    async with browsing(ask.url) as client:
        yield client


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def moved(database: str, clock: MovableClock) -> AsyncIterator[ApiClient]:
    """Return a client of a server whose clock the test moves."""
    app = Wakeful(store=store_with(database, clock), config=QUICK, secret_key="a key for tests")
    async with app, served(app) as client:
        yield client


async def _actions(ask: ApiClient) -> list[str]:
    entries = (await ask("GET", "/audit")).body["entries"]
    return [each["action"] for each in reversed(entries) if each["action"].startswith("key.sign")]


# --- the session ----------------------------------------------------------------------------------------


async def test_a_person_signs_in_uses_the_api_and_signs_out(ask: ApiClient, browser: BrowserClient):
    assert await browser.status() == 401
    reply = await browser.sign_in(f" {ask.key}\n", next="/workspaces/default/jobs?state=paused")
    assert (reply.status, reply.headers["location"]) == (303, "/workspaces/default/jobs?state=paused")
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("wakeful_session=")
    flags = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert flags == {"httponly", "samesite=strict", "path=/", f"max-age={7 * 86_400}"}
    assert (ask.key or "-") not in str(reply)
    reply = await browser("GET", f"{HOME}/jobs")
    assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
    assert reply.headers["x-content-type-options"] == "nosniff"
    reply = await browser("POST", "/sign-out", form={"csrf": browser.csrf["x-wakeful-csrf"]})
    assert (reply.status, reply.headers["location"]) == (303, "/sign-in")
    assert "max-age=0" in reply.headers["set-cookie"].lower()
    assert await browser.status() == 401
    assert await _actions(ask) == ["key.sign-in", "key.sign-out"]


@on_one_store
async def test_a_cookie_of_an_ended_session_is_useless(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    stolen = {"cookie": f"wakeful_session={browser.token}"}
    async with browsing(ask.url) as other:
        assert (await other("GET", f"{HOME}/jobs", headers=stolen)).status == 200
        await browser("POST", "/sign-out", headers=browser.csrf)
        assert (await other("GET", f"{HOME}/jobs", headers=stolen)).status == 401


@on_one_store
async def test_signing_in_again_ends_the_session_before(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    before = browser.token
    await browser.sign_in(ask.key)
    assert browser.token != before
    async with browsing(ask.url) as other:
        stolen = {"cookie": f"wakeful_session={before}"}
        assert (await other("GET", f"{HOME}/jobs", headers=stolen)).status == 401


@on_one_store
async def test_a_session_may_do_what_its_key_may_do(ask: ApiClient, browser: BrowserClient):
    member = await ask.new("member")
    await browser.sign_in(member.key)
    assert await browser.status() == 200
    assert (await browser("GET", f"{HOME}/keys")).status == 403
    assert (await browser("PUT", JOB, DOCUMENT, headers=browser.csrf)).status == 403
    await browser.sign_in(ask.key)
    made = await browser("POST", f"{HOME}/keys", {"role": "member"}, headers=browser.csrf)
    assert made.status == 201
    entries = (await ask("GET", "/audit")).body["entries"]
    assert entries[0]["action"] == "key.create"
    own = await ask.app.services.auth.keys.authenticate(ask.key)
    assert entries[0]["actor"] == own.actor


@on_one_store
async def test_the_key_of_the_header_comes_before_the_cookie(ask: ApiClient, browser: BrowserClient):
    member = await ask.new("member")
    await browser.sign_in(ask.key)
    headers = {"authorization": f"Bearer {member.key}"}
    assert (await browser("GET", f"{HOME}/keys", headers=headers)).status == 403
    assert (await browser("GET", f"{HOME}/keys", headers={"authorization": "Bearer wk_no"})).status == 401
    # A proxy may ask for a password of its own.
    assert (await browser("GET", f"{HOME}/keys", headers={"authorization": "Basic YTpi"})).status == 200


@on_one_store
async def test_the_token_is_not_in_the_database(ask: ApiClient, browser: BrowserClient, database: str):
    await browser.sign_in(ask.key)
    stored = b"".join(
        path.read_bytes() for path in Path(database.removeprefix("sqlite:///")).parent.iterdir()
    )
    assert browser.token.encode() not in stored
    assert (ask.key or "").encode() not in stored


@on_one_store
async def test_rpc_and_mcp_do_not_accept_the_cookie(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    reply = await browser("POST", "/mcp", call, headers=browser.csrf)
    assert (reply.status, reply.code) == (401, "unauthenticated")
    async with browser.session.ws_connect(f"{ask.url}/ws") as socket:
        await socket.send_json({"id": 1, "method": "cron.list"})
        message = await socket.receive()
        assert message.data == 4401 or "authenticate" in str(message), message


@on_one_store
async def test_the_event_stream_accepts_the_cookie(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    async with browser.session.get(f"{ask.url}{HOME}/events") as response:
        assert response.status == 200
        assert await response.content.readline() == b"retry: 1000\n"


# --- changes from other sites ---------------------------------------------------------------------------

#: method, headers besides the cookie, whether the CSRF token is sent, the status
_MATRIX = [
    ("PUT", {}, True, 201),
    ("PUT", {}, False, 403),
    ("PUT", {"x-wakeful-csrf": ""}, False, 403),
    ("PUT", {"x-wakeful-csrf": "0" * 64}, False, 403),
    ("PUT", {"sec-fetch-site": "same-origin"}, True, 201),
    ("PUT", {"sec-fetch-site": "same-origin"}, False, 403),
    ("PUT", {"sec-fetch-site": "none"}, True, 201),
    ("PUT", {"sec-fetch-site": "same-site"}, True, 403),
    ("PUT", {"sec-fetch-site": "cross-site"}, True, 403),
    ("PUT", {"origin": "OWN"}, True, 201),
    ("PUT", {"origin": "https://evil.example"}, True, 403),
    ("PUT", {"origin": "null"}, True, 403),
    ("PUT", {"origin": "OWN", "sec-fetch-site": "cross-site"}, True, 403),
    ("PUT", {"origin": "http://proxied.example", "sec-fetch-site": "same-origin"}, True, 201),
    ("DELETE", {}, False, 403),
    ("PATCH", {}, False, 403),
    ("GET", {"origin": "https://evil.example"}, False, 404),
    ("HEAD", {}, False, 404),
]


@on_one_store
async def test_a_change_needs_the_token_of_a_page_of_this_server(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    wrong = []
    for method, given, with_token, expected in _MATRIX:
        headers = {name: value.replace("OWN", ask.url) for name, value in given.items()}
        headers |= browser.csrf if with_token else {}
        body = DOCUMENT if method == "PUT" else None
        reply = await browser(method, JOB, body, headers=headers)
        if reply.status != expected:
            wrong.append((method, given, with_token, reply))
        await ask("DELETE", JOB)
    assert not wrong


@on_one_store
async def test_the_token_of_another_session_is_refused(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    before = browser.csrf
    await browser.sign_in(ask.key)
    reply = await browser("PUT", JOB, DOCUMENT, headers=before)
    assert (reply.status, reply.code) == (403, "permission-denied")
    assert "reload" in reply.body["detail"]
    reply = await browser("POST", "/sign-out", form={"csrf": before["x-wakeful-csrf"]})
    assert reply.status == 403
    assert await browser.status() == 200


@on_one_store
async def test_a_page_of_another_site_cannot_sign_in(ask: ApiClient, browser: BrowserClient):
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        reply = await browser("POST", "/sign-in", form={"key": ask.key or ""}, headers=headers)
        assert reply.status == 403
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", "/\t/e", "x", ""]
)
@on_one_store
async def test_sign_in_goes_only_to_pages_of_this_server(ask: ApiClient, browser: BrowserClient, target: str):
    assert (await browser.sign_in(ask.key, next=target)).headers["location"] == "/"


@on_one_store
async def test_an_unauthenticated_page_goes_to_sign_in_and_back(browser: BrowserClient):
    reply = await browser("GET", "/workspaces/default/?a=1&b=%22")
    assert reply.status == 303
    assert reply.headers["location"] == "/sign-in?next=%2Fworkspaces%2Fdefault%2F%3Fa%3D1%26b%3D%2522"
    assert reply.headers["cache-control"] == "no-store"
    page = await browser("GET", reply.headers["location"])
    assert 'name="next" value="/workspaces/default/?a=1&amp;b=%22"' in page.body


@on_one_store
async def test_a_link_on_another_site_loads_the_page_again_once(ask: ApiClient, browser: BrowserClient):
    cross = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    reply = await browser("GET", "/workspaces/default/?q=%22%3E", headers=cross)
    assert reply.status == 200
    assert 'content="0;url=/workspaces/default/?q=%22%3E"' in reply.body
    again = await browser("GET", "/workspaces/default/", headers={"sec-fetch-site": "same-origin"})
    assert again.status == 303
    # With a cookie, also of an ended session, there is no second attempt.
    stale = {**cross, "cookie": "wakeful_session=" + "x" * 43}
    assert (await browser("GET", "/workspaces/default/", headers=stale)).status == 303


# --- HTTPS ----------------------------------------------------------------------------------------------


@on_one_store
async def test_over_https_the_cookie_is_secure_and_bound_to_the_host(new_app: NewApp, tmp_path: Path):
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    app = new_app()
    settings = Settings(port=0, tls_cert=str(cert), tls_key=str(key))
    context = ssl.create_default_context(cafile=str(authority.file))
    async with app, served(app, settings) as ask, browsing(ask.url) as browser:
        async with browser.session.post(
            f"{ask.url}/sign-in", data={"key": ask.key}, ssl=context, allow_redirects=False
        ) as response:
            cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-wakeful_session=")
        assert "; secure" in cookie.lower()
        token = cookie.partition("=")[2].partition(";")[0]
        for name, status in (("__Host-wakeful_session", 200), ("wakeful_session", 401)):
            browser.session.cookie_jar.clear()
            async with browser.session.get(
                f"{ask.url}{HOME}/jobs", headers={"cookie": f"{name}={token}"}, ssl=context
            ) as response:
                assert response.status == status, name


@on_one_store
async def test_behind_a_proxy_the_public_address_or_a_trusted_header_means_https(new_app: NewApp):
    app = new_app(settings=Settings(public_url="https://wakeful.example"))
    settings = Settings(port=0, trusted_proxies=("127.0.0.1",))
    async with app, served(app, settings) as ask, browsing(ask.url) as browser:
        for headers, secure in (
            ({}, False),
            ({"host": "wakeful.example"}, True),
            ({"host": "wakeful.example", "origin": "https://wakeful.example"}, True),
            ({"x-forwarded-proto": "https"}, True),
        ):
            reply = await browser("POST", "/sign-in", form={"key": ask.key or ""}, headers=headers)
            assert reply.status == 303, headers
            cookie = reply.headers["set-cookie"]
            assert ("; secure" in cookie.lower(), cookie.startswith("__Host-")) == (secure, secure), headers


# --- the end of a session -------------------------------------------------------------------------------


async def test_a_session_ends_without_requests_and_after_its_whole_time(
    moved: ApiClient, clock: MovableClock
):
    async with browsing(moved.url) as browser:
        await browser.sign_in(moved.key)
        clock.advance(timedelta(hours=12, minutes=1))
        assert await browser.status() == 401
        await browser.sign_in(moved.key)
        services = moved.app.services
        key_id = (await services.auth.keys.authenticate(moved.key)).actor.removeprefix("key:")
        for hours in range(11, 7 * 24, 11):
            clock.advance(timedelta(hours=11))
            assert await browser.status() == 200, hours
            now_ms = clock.now_ms()

            async def seen(now_ms: int = now_ms) -> bool:
                rows = await services.auth.web_sessions.list(LOCAL, "default", key_id)
                return rows[0].seen_ms > now_ms - 60_000

            await eventually(seen)
        clock.advance(timedelta(hours=11))
        assert await browser.status() == 401


async def test_a_session_ends_with_its_key(moved: ApiClient, clock: MovableClock):
    async with browsing(moved.url) as browser:
        admin = await moved.new("admin")
        await browser.sign_in(admin.key)
        assert await browser.status() == 200
        key_id = (await moved.app.services.auth.keys.authenticate(admin.key)).actor.removeprefix("key:")
        await moved.app.services.auth.keys.revoke(LOCAL, "default", key_id)
        assert await browser.status() == 401
        assert "was revoked" in (await browser.sign_in(admin.key)).body
        expiring = await moved.new("admin", expiresAt=clock.now_ms() + 3_600_000)
        await browser.sign_in(expiring.key)
        assert await browser.status() == 200
        clock.advance(timedelta(hours=1))
        assert await browser.status() == 401


# --- replicas -------------------------------------------------------------------------------------------


async def test_any_replica_serves_any_request(new_app: NewApp):
    one, two = new_app(), new_app()
    async with one, two, served(one) as first, served(two) as second, browsing(first.url) as browser:
        key = first.key or second.key
        first, second = first.with_key(key), second.with_key(key)
        other = browser.at(second.url)
        await browser.sign_in(key)
        assert (await browser.status(), await other.status()) == (200, 200)
        assert (await other("PUT", JOB, DOCUMENT, headers=browser.csrf)).status == 201
        # Signing out on one ends it on the other within a second.
        token = {"cookie": f"wakeful_session={browser.token}"}
        await other("POST", "/sign-out", headers=browser.csrf)

        async def ended() -> bool:
            return (await browser("GET", f"{HOME}/jobs", headers=token)).status == 401

        await eventually(ended)
        # A revoked key ends its sessions on the other replica, too.
        admin = await first.new("admin")
        await browser.sign_in(admin.key)
        assert await other.status() == 200
        key_id = (await one.services.auth.keys.authenticate(admin.key)).actor.removeprefix("key:")
        await one.services.auth.keys.revoke(LOCAL, "default", key_id)
        assert await browser.status() == 401

        async def revoked() -> bool:
            return await other.status() == 401

        await eventually(revoked)


async def test_replicas_count_failed_sign_ins_together(new_app: NewApp):
    one, two = new_app(), new_app()
    async with one, two, served(one) as first, served(two) as second, browsing(first.url) as browser:
        browsers = itertools.cycle([browser, browser.at(second.url)])
        replies = [await next(browsers).sign_in("wk_wrong") for _ in range(10)]
        assert [reply.status for reply in replies] == [401] * 10
        limited = replies[-1]
        while limited.status == 401:  # on a slow machine the allowance recovers meanwhile
            limited = await next(browsers).sign_in("wk_wrong")
        assert limited.status == 429
        assert 1 <= int(limited.headers["retry-after"]) <= 6
        assert "too many failed sign-ins from this address" in limited.body


# --- one-time links -------------------------------------------------------------------------------------


async def test_a_link_signs_in_once(ask: ApiClient, browser: BrowserClient):
    reply = await ask("POST", "/api/sign-in-links")
    assert reply.status == 201
    assert reply.headers["cache-control"] == "no-store"
    address, token = reply.body["url"].split("#")
    assert address == f"{ask.url}/sign-in"
    assert token.startswith("wl_")
    assert (await browser.sign_in(token)).status == 303
    assert await browser.status() == 200
    async with browsing(ask.url) as other:
        reply = await other.sign_in(token)
        assert reply.status == 401
        assert "this link was used already or has expired" in reply.body
    assert await _actions(ask) == ["key.sign-in-link", "key.sign-in"]


async def test_a_link_used_at_once_on_two_replicas_works_once(new_app: NewApp):
    one, two = new_app(), new_app()
    async with one, two, served(one) as first, served(two) as second:
        principal = await one.services.auth.keys.authenticate(first.key or second.key)
        token = (await one.services.auth.web_sessions.create_link(principal)).token
        async with browsing(first.url) as a, browsing(second.url) as b:
            replies = await asyncio.gather(*(browser.sign_in(token) for browser in (a, b, a, b)))
        assert sorted(reply.status for reply in replies) == [303, 401, 401, 401]


async def test_a_link_expires_and_ends_with_its_key(moved: ApiClient, clock: MovableClock):
    async with browsing(moved.url) as browser:
        token = (await moved("POST", "/api/sign-in-links")).body["url"].partition("#")[2]
        clock.advance(timedelta(minutes=5))
        assert (await browser.sign_in(token)).status == 401
        admin = await moved.new("admin")
        token = (await admin("POST", "/api/sign-in-links")).body["url"].partition("#")[2]
        key_id = (await moved.app.services.auth.keys.authenticate(admin.key)).actor.removeprefix("key:")
        await moved.app.services.auth.keys.revoke(LOCAL, "default", key_id)
        reply = await browser.sign_in(token)
        assert reply.status == 401
        assert "was revoked" in reply.body


@on_one_store
async def test_a_session_cannot_create_a_link(ask: ApiClient, browser: BrowserClient):
    await browser.sign_in(ask.key)
    reply = await browser("POST", "/api/sign-in-links", headers=browser.csrf)
    assert (reply.status, reply.code) == (401, "unauthenticated")
    assert "a sign-in session is not enough" in reply.body["detail"]


# --- sessions of a key ----------------------------------------------------------------------------------


@on_one_store
async def test_the_sessions_of_a_key_are_listed_and_ended(ask: ApiClient, browser: BrowserClient):
    member = await ask.new("member")
    key_id = (await ask.app.services.auth.keys.authenticate(member.key)).actor.removeprefix("key:")
    path = f"{HOME}/keys/{key_id}/sessions"
    await browser.sign_in(member.key)
    async with browsing(ask.url) as second, browsing(ask.url) as third:
        await second.sign_in(member.key)
        await third.sign_in(member.key)
        shown = (await member("GET", path)).body["sessions"]
        assert len(shown) == 3
        assert {each["keyId"] for each in shown} == {key_id}
        assert {each["address"] for each in shown} == {"127.0.0.1"}
        assert browser.token not in str(shown)
        (newest, *_) = (await ask("GET", path)).body["sessions"]
        assert (await ask("DELETE", f"{path}/{newest['id']}")).status == 204
        assert (await ask("DELETE", f"{path}/{newest['id']}")).status == 404
        statuses = [await each.status() for each in (browser, second, third)]
        assert sorted(statuses) == [200, 200, 401]
        assert (await member("DELETE", path)).status == 204
        assert [await each.status() for each in (browser, second, third)] == [401] * 3
    assert (await member("GET", path)).body["sessions"] == []


@on_one_store
async def test_signing_out_everywhere_ends_all_sessions_of_the_key(ask: ApiClient, browser: BrowserClient):
    async with browsing(ask.url) as second:
        await browser.sign_in(ask.key)
        await second.sign_in(ask.key)
        form = {"csrf": browser.csrf["x-wakeful-csrf"], "everywhere": "1"}
        assert (await browser("POST", "/sign-out", form=form)).status == 303
        assert [await each.status() for each in (browser, second)] == [401, 401]
    assert (await _actions(ask))[-1] == "key.sign-out-everywhere"


# --- headers --------------------------------------------------------------------------------------------


@on_one_store
async def test_every_response_of_the_dashboard_has_the_security_headers(
    ask: ApiClient, browser: BrowserClient
):
    paths = ["/", "/sign-in", "/workspaces/default/", "/workspaces/default/nothing", "/workspaces/other/"]
    signed_out = [await browser("GET", path) for path in paths]
    await browser.sign_in(ask.key)
    signed_in = [await browser("GET", path) for path in paths]
    failed = await browser.sign_in("wk_wrong")
    for reply in (*signed_out, *signed_in, failed):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "same-origin"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["permissions-policy"]


@on_one_store
async def test_a_body_that_is_no_form_is_refused(browser: BrowserClient):
    reply = await browser("POST", "/sign-in", form=None, body={"key": "wk_x"})
    assert reply.status == 422
    assert "enter an API key" in reply.body
