"""Signing in at an OpenID Connect issuer: a real one, and one that lies, is slow, or is down."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import itertools
import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from aiohttp import web
from joserfc import jwt

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, Reply, served
from tests.support.browser_client import BrowserClient, browsing
from tests.support.mcp_oauth import RawClient
from tests.support.openid_issuers import CLIENT, FakeIssuer, fake_issuer, new_key, real_issuer, unsigned
from tests.support.waiting import eventually
from wakeful import Wakeful
from wakeful.errors import Unauthenticated
from wakeful.service.auth import openid
from wakeful.settings import Settings

ROLES: dict[str, Any] = {
    "ops": {"*": "admin"},
    "sales": {"crm": "member"},
    "crm-admins": {"crm": "admin", "default": "member"},
}
DOCUMENT = {"schedule": SELDOM, "target": {"kind": "pull"}}
OPENID = "/sign-in/openid"
NOWHERE = "http://127.0.0.1:9/"


def _settings(issuer: str, **more: Any) -> Settings:
    given = {"oidc_issuer": issuer, "oidc_client_id": CLIENT, "oidc_client_secret": "s", "oidc_groups": ROLES}
    return Settings(**{**given, **more})


@pytest.fixture
async def fake() -> AsyncIterator[FakeIssuer]:
    async with fake_issuer() as issuer:
        yield issuer


@pytest.fixture
async def server(new_app: NewApp, fake: FakeIssuer) -> AsyncIterator[ApiClient]:
    async with new_app(settings=_settings(fake.url)) as app, served(app) as client:
        yield client


@pytest.fixture
async def server_without_limit(new_app: NewApp, fake: FakeIssuer) -> AsyncIterator[ApiClient]:
    app = new_app(settings=_settings(fake.url, failed_sign_ins_per_minute=0))
    async with app, served(app) as client:
        yield client


@pytest.fixture
async def browser(server: ApiClient) -> AsyncIterator[BrowserClient]:
    async with browsing(server.url) as client:
        yield client


async def _go(browser: BrowserClient, next: str = "/") -> str:
    """Press the button of the sign-in page; return the address at the issuer."""
    page = await browser("GET", f"/sign-in?{urlencode({'next': next})}")
    link = re.search(r'href="(/sign-in/openid[^"]*)"', page.body)
    assert link, page.body
    reply = await browser("GET", html.unescape(link[1]))
    assert reply.status == 303, reply.body
    return str(reply.headers["location"])


async def _back(browser: BrowserClient, address: str) -> Reply:
    """Follow the issuer's redirect, as from another site."""
    parts = urlsplit(address)
    return await browser("GET", f"{parts.path}?{parts.query}", headers={"sec-fetch-site": "cross-site"})


async def _sign_in(browser: BrowserClient, fake: FakeIssuer, next: str = "/", **claims: Any) -> Reply:
    fake.claims = claims
    return await _back(browser, fake.code(await _go(browser, next)))


def _error(reply: Reply) -> str:
    found = re.search(r'class="notice error[^>]*>(.*?)</p>', reply.body, re.S)
    return html.unescape(re.sub("<[^>]*>", "", found[1])).strip() if found else f"no error: {reply.body}"


# --- with a real issuer ---------------------------------------------------------------------------------


async def test_a_person_signs_in_at_a_real_issuer_works_by_name_and_signs_out(new_app: NewApp):
    async with real_issuer() as issuer:
        app = new_app(settings=_settings(issuer.url, oidc_name="Acme"))
        async with app, served(app) as ask, browsing(ask.url) as browser:
            await issuer.set_person("ada", name="Ada Lovelace", groups=["ops"], email="ada@example.com")
            page = await browser("GET", "/sign-in")
            assert "Sign in with <bdi>Acme</bdi>" in page.body
            assert 'name="key"' in page.body
            done = await _back(
                browser, await issuer.sign_in(await _go(browser, "/workspaces/default/keys"), "ada")
            )
            assert done.status == 200
            assert 'content="0;url=/workspaces/default/keys"' in done.body
            assert await browser.status() == 200
            made = await browser("PUT", f"{HOME}/agents/default/jobs/digest", DOCUMENT, headers=browser.csrf)
            assert made.status == 201
            assert made.body["createdByName"] == "Ada Lovelace"
            assert made.body["createdBy"].startswith("admin:person:")
            entries = (await ask("GET", "/audit")).body["entries"]
            assert [(each["action"], each["actorName"]) for each in entries[:2]] == [
                ("job.create", "Ada Lovelace"),
                ("person.sign-in", "Ada Lovelace"),
            ]
            # what the issuer says now counts for the session that exists, too
            await issuer.set_person("ada", name="Ada King", groups=["sales"])
            async with browsing(ask.url) as other:
                await _back(other, await issuer.sign_in(await _go(other), "ada"))
                assert await other.status() == 404, "the group may use the workspace crm only"
            assert await browser.status() == 404
            # a person without a group that has a role
            await issuer.set_person("eve", name="Eve", groups=["guests"])
            async with browsing(ask.url) as other:
                refused = await _back(other, await issuer.sign_in(await _go(other), "eve"))
                assert refused.status == 403
                assert "Eve: you are signed in at the issuer, but none of your groups may use this" in _error(
                    refused
                )
                assert await other.status() == 401
            reply = await browser("POST", "/sign-out", form={"csrf": browser.csrf["x-wakeful-csrf"]})
            assert reply.status == 303
            assert await browser.status() == 401


# --- a person -------------------------------------------------------------------------------------------


async def test_a_person_has_another_role_in_each_workspace(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    alerts = {"alerts": {"url": "https://a.example/1?key=2"}}
    for name in ("crm", "default"):
        assert (await server("PUT", f"/api/workspaces/{name}", alerts)).status in (200, 201)
    await server("PUT", "/api/workspaces/hr", {})
    await _sign_in(browser, fake, groups=["crm-admins"])
    jobs = {name: f"/api/workspaces/{name}/agents/default/jobs/j" for name in ("crm", "default", "hr")}
    status = {
        name: (await browser("PUT", path, DOCUMENT, headers=browser.csrf)).status
        for name, path in jobs.items()
    }
    assert status == {"crm": 201, "default": 403, "hr": 404}
    listed = (await browser("GET", "/api/workspaces")).body["workspaces"]
    assert [each["name"] for each in listed] == ["crm", "default"]
    assert [each["alerts"]["url"] for each in listed] == [
        "https://a.example/1?key=2",
        "https://a.example/***",
    ]
    home = await browser("GET", "/", headers={"cookie": ""})
    assert home.headers["location"] == "/workspaces/crm/"
    page = await browser("GET", "/workspaces/default/")
    assert 'data-module="switcher"' in page.body
    assert (await browser("GET", "/workspaces/hr/")).status == 404


@on_one_store
async def test_the_audit_of_a_workspace_names_no_role_in_another(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    await server("PUT", "/api/workspaces/crm", {})
    await _sign_in(browser, fake, groups=["crm-admins"])
    found = {}
    for name in ("crm", "default"):
        entries = (await server("GET", f"/api/workspaces/{name}/audit")).body["entries"]
        (entry,) = [each for each in entries if each["action"] == "person.sign-in"]
        found[name] = entry["details"]["grants"]
    assert found == {"crm": {"crm": "admin"}, "default": {"default": "member"}}


@on_one_store
async def test_a_person_is_removed_with_sessions_and_keys_and_keeps_the_name(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    await _sign_in(browser, fake)
    key = (
        await browser("POST", f"{HOME}/keys", {"name": "laptop", "role": "member"}, headers=browser.csrf)
    ).body
    principal = await server.app.services.auth.web_sessions.authenticate(browser.token)
    person = principal.actor.removeprefix("person:")
    root = await server.app.services.auth.keys.authenticate(server.key)
    await server.app.services.auth.people.remove(root, "default", person)
    assert await browser.status() == 401
    assert (await ApiClient(server.url, server.session, key["key"], server.app)("GET", "/jobs")).status == 401
    entries = (await server("GET", "/audit")).body["entries"]
    assert {each["actorName"] for each in entries if "person:" in each["actor"]} == {"Ada Lovelace"}
    await _sign_in(browser, fake)
    assert await browser.status() == 200


@on_one_store
async def test_a_person_who_has_lost_all_groups_has_no_session_any_more(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    await _sign_in(browser, fake)
    async with browsing(server.url) as second:
        assert (await _sign_in(second, fake, groups=["guests"], sub="eve")).status == 403
        assert await browser.status() == 200, "a stranger ends nobody's session"
        assert (await _sign_in(second, fake, groups=["guests"])).status == 403
        assert [await browser.status(), await second.status()] == [401, 401]
    assert (await server("GET", "/people")).body["people"] == []
    entries = (await server("GET", "/audit")).body["entries"]
    assert (entries[0]["action"], entries[0]["actorName"]) == ("person.lose-access", "Ada Lovelace")
    assert (await _sign_in(browser, fake)).status == 200
    assert await browser.status() == 200


@on_one_store
async def test_signing_out_everywhere_ends_all_sessions_of_the_person_and_of_nobody_else(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    await _sign_in(browser, fake)
    async with browsing(server.url) as second, browsing(server.url) as bob:
        await _sign_in(second, fake)
        await _sign_in(bob, fake, sub="bob", name="Bob")
        form = {"csrf": browser.csrf["x-wakeful-csrf"], "everywhere": "1"}
        assert (await browser("POST", "/sign-out", form=form)).status == 303
        assert [await each.status() for each in (browser, second, bob)] == [401, 401, 200]


@on_one_store
async def test_a_person_whose_workspace_does_not_exist_gets_pages_that_say_so_and_signs_out(
    new_app: NewApp, fake: FakeIssuer
):
    app = new_app(settings=_settings(fake.url, oidc_groups={"ops": {"soon": "admin"}}))
    async with app, served(app) as ask, browsing(ask.url) as browser, httpx2.AsyncClient() as http:
        await _sign_in(browser, fake, groups=["ops"])
        token, assistant = browser.token, RawClient(ask.url, http)
        await assistant.register()
        page = await browser("GET", assistant.authorization())
        assert (page.status, "no workspace that you may use" in page.body) == (404, True)
        form = {"csrf": browser.csrf["x-wakeful-csrf"], "everywhere": "1"}
        assert (await browser("POST", "/sign-out", form=form)).status == 303
        with pytest.raises(Unauthenticated):
            await app.services.auth.web_sessions.authenticate(token)


@on_one_store
async def test_a_hostile_name_changes_nothing_on_the_page(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    name = "<script>alert(1)</script>\u202eadA\x00\n" + "a" * 5_000
    await _sign_in(browser, fake, name=name)
    page = await browser("GET", "/workspaces/default/")
    assert page.status == 200
    assert "<script>alert" not in page.body
    assert "\u202e" not in page.body
    assert "<bdi>&lt;script&gt;alert(1)&lt;/script&gt; adA" in page.body


# --- two replicas ---------------------------------------------------------------------------------------


async def test_any_replica_finishes_what_another_began(new_app: NewApp, fake: FakeIssuer):
    settings = _settings(fake.url, public_url="http://wakeful.example")
    first, second = new_app(settings=settings), new_app(settings=settings)
    async with first, second, served(first) as one, served(second) as two, browsing(one.url) as browser:
        done = await _back(browser.at(two.url), fake.code(await _go(browser)))
        assert done.status == 200
        assert await browser.status() == 200
        assert await browser.at(two.url).status() == 200


# --- attacks --------------------------------------------------------------------------------------------


def _expired(fake: FakeIssuer) -> None:
    fake.claims = {"exp": 1_000_000, "iat": 999_000}


def _stranger(fake: FakeIssuer) -> None:
    key = new_key("one")
    fake.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)


def _no_algorithm(fake: FakeIssuer) -> None:
    fake.sign = lambda claims: unsigned(claims, {"alg": "none"})


def _symmetric(fake: FakeIssuer) -> None:
    """Sign with the public key as if it were a shared secret."""
    secret = fake.key.as_pem(private=False)

    def sign(claims: dict[str, Any]) -> str:
        text = unsigned(claims, {"alg": "HS256", "kid": "one"})[:-1]
        signature = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        return f"{text}.{urlsafe_b64encode(signature).decode().rstrip('=')}"

    fake.sign = sign


def _claim(name: str, value: object) -> Callable[[FakeIssuer], None]:
    def lie(fake: FakeIssuer) -> None:
        fake.claims = {name: value}

    return lie


LIES: dict[str, Callable[[FakeIssuer], None]] = {
    "nonce": _claim("nonce", "another"),
    "no nonce": _claim("nonce", None),
    "audience": _claim("aud", "another-client"),
    "audiences": _claim("aud", [CLIENT, "another-client"]),
    "party": _claim("azp", "another-client"),
    "issuer": _claim("iss", "https://evil.example"),
    "no subject": _claim("sub", None),
    "subject": _claim("sub", 7),
    "expired": _expired,
    "no end": _claim("exp", None),
    "future": _claim("iat", 9_999_999_999),
    "signature": _stranger,
    "none": _no_algorithm,
    "symmetric": _symmetric,
    "text": lambda fake: setattr(fake, "sign", lambda claims: "no token"),
}


@on_one_store
async def test_no_token_that_lies_signs_anybody_in(server_without_limit: ApiClient, fake: FakeIssuer):
    accepted = {}
    async with browsing(server_without_limit.url) as browser:
        for name, lie in LIES.items():
            fake.claims, fake.sign, fake.published = {}, None, None
            lie(fake)
            reply = await _back(browser, fake.code(await _go(browser)))
            if reply.status != 401 or await browser.status() != 401:
                accepted[name] = reply.status, _error(reply)
        assert accepted == {}
        fake.claims, fake.sign, fake.published = {}, None, None
        assert (await _sign_in(browser, fake)).status == 200


@on_one_store
async def test_a_code_is_used_once_and_only_by_the_browser_that_went(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    back = fake.code(await _go(browser))
    async with browsing(server.url) as victim:
        assert (await _back(victim, back)).status == 401, "a link from an attacker signs nobody in"
        await _go(victim)
        assert (await _back(victim, back)).status == 401
        state = dict(parse_qsl(urlsplit(await _go(victim)).query))["state"]
        mixed = urlencode({**dict(parse_qsl(urlsplit(back).query)), "state": state})
        assert (await _back(victim, f"{OPENID}/callback?{mixed}")).status == 401, (
            "the code has another verifier"
        )
    again = fake.code(await _go(browser))
    cookie = {"cookie": "; ".join(f"{each.key}={each.value}" for each in browser.session.cookie_jar)}
    assert (await _back(browser, again)).status == 200
    replayed = await browser("GET", again.removeprefix(server.url), headers=cookie)
    assert replayed.status == 401
    assert "does not accept this sign-in (invalid_grant)" in _error(replayed)


@on_one_store
async def test_a_callback_that_nobody_waits_for_is_a_page_and_no_session(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    queries = ["", "code=a", "state=", "state=é&code=a", "code=a&state=x", "error=access_denied"]
    cookies = ["", "wakeful_openid=", "wakeful_openid=.", "wakeful_openid=a.%%%", "wakeful_openid=ü"]
    for query, cookie in itertools.product(queries, cookies):
        reply = await browser("GET", f"{OPENID}/callback?{query}", headers={"cookie": cookie})
        assert reply.status == 401
        assert "this sign-in was not started in this browser" in _error(reply)
        assert 'name="key"' in reply.body
    assert "/token" not in fake.requests


@on_one_store
async def test_a_refusal_of_the_issuer_is_shown_as_text(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    state = dict(parse_qsl(urlsplit(await _go(browser)).query))["state"]
    query = urlencode({"state": state, "error": "access_denied", "error_description": "<b>no\u202e</b>"})
    reply = await browser("GET", f"{OPENID}/callback?{query}")
    assert reply.status == 401
    assert "<b>no" not in reply.body
    assert "has not signed you in: <b>no </b>" in html.unescape(reply.body)
    query = urlencode(
        {
            "state": dict(parse_qsl(urlsplit(await _go(browser)).query))["state"],
            "code": "a",
            "iss": "https://evil.example",
        }
    )
    reply = await browser("GET", f"{OPENID}/callback?{query}")
    assert "this is not a response of" in _error(reply)


@on_one_store
async def test_a_sign_in_leads_to_no_other_site(server: ApiClient, browser: BrowserClient, fake: FakeIssuer):
    for next in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:1",
        "/\t/evil.example",
    ):
        reply = await _sign_in(browser, fake, next)
        assert 'content="0;url=/"' in reply.body
        # nor does a cookie that somebody else has written
        back = fake.code(await _go(browser))
        jar = {each.key: each.value for each in browser.session.cookie_jar}
        path = urlsafe_b64encode(next.encode()).decode().rstrip("=")
        cookie = f"wakeful_openid={jar['wakeful_openid'].partition('.')[0]}.{path}"
        reply = await browser("GET", back.removeprefix(server.url), headers={"cookie": cookie})
        assert 'content="0;url=/"' in reply.body


@on_one_store
async def test_a_browser_keeps_the_cookie_of_a_sign_in_whatever_page_it_leads_to(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    for length in (2_900, 2_901, 8_000):
        back = "/oauth/authorize?state=".ljust(length, "a")
        reply = await browser("GET", f"{OPENID}?{urlencode({'next': back})}")
        cookie = reply.headers["set-cookie"]
        assert ("openid" in cookie, len(cookie) <= 4_096) == (True, True)
        done = await _back(browser, fake.code(reply.headers["location"]))
        assert (done.status, back in done.body) == (200, length == 2_900)


@on_one_store
async def test_another_site_cannot_start_a_sign_in(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    reply = await browser("GET", OPENID, headers={"sec-fetch-site": "cross-site"})
    assert reply.status == 403
    assert "set-cookie" not in reply.headers
    assert (await browser("GET", OPENID, headers={"sec-fetch-site": "same-origin"})).status == 303
    cookie = (await browser("GET", OPENID)).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie


@on_one_store
async def test_failed_sign_ins_are_limited(server: ApiClient, browser: BrowserClient, fake: FakeIssuer):
    fake.claims = {"aud": "another"}
    seen = [(await _back(browser, fake.code(await _go(browser)))).status for _ in range(12)]
    assert seen == [401] * 10 + [429] * 2


# --- an issuer that changes, is slow or is down ---------------------------------------------------------


@on_one_store
async def test_tokens_of_new_keys_are_accepted_at_once(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(openid, "_RETRY_S", 0.0)
    for kid in ("one", "two", "two", None, None):  # also: other keys with the same id, or without one
        fake.key = new_key(kid)
        assert (await _sign_in(browser, fake)).status == 200
    assert fake.requests.count("/.well-known/openid-configuration") == 1
    before = fake.requests.count("/jwks")
    assert (await _sign_in(browser, fake)).status == 200
    assert fake.requests.count("/jwks") == before


@on_one_store
async def test_groups_and_names_come_from_the_userinfo_endpoint_of_the_same_person(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    fake.user_info = {"sub": "ada", "groups": ["ops"], "name": "Ada of the endpoint", "iss": "x"}
    assert (await _sign_in(browser, fake, groups=None, name=None)).status == 200
    assert "Ada of the endpoint" in (await browser("GET", "/workspaces/default/")).body
    fake.user_info = {"sub": "eve", "groups": ["ops"]}
    assert (await _sign_in(browser, fake, groups=None)).status == 403


@on_one_store
@pytest.mark.parametrize(
    ("of_token", "of_endpoint", "status"),
    [
        ({}, {"email": "ada@example.com", "email_verified": True}, 200),
        ({"email": None}, {"email": "ada@example.com", "email_verified": True}, 200),
        ({}, {"email": "ada@other.example", "email_verified": True}, 403),
        ({"email_verified": False}, {"email": "ada@example.com", "email_verified": True}, 403),
        ({}, {}, 403),
    ],
)
async def test_an_address_is_verified_by_whoever_names_it(
    new_app: NewApp, fake: FakeIssuer, of_token: dict[str, Any], of_endpoint: dict[str, Any], status: int
):
    app = new_app(settings=_settings(fake.url, oidc_domains=("example.com",)))
    async with app, served(app) as ask, browsing(ask.url) as browser:
        fake.user_info = {"sub": "ada", **of_endpoint}
        assert (await _sign_in(browser, fake, **of_token)).status == status


FAULTS: dict[str, Callable[[], web.StreamResponse]] = {
    "error": lambda: web.Response(status=502, text="bad gateway"),
    "busy": lambda: web.json_response({"error": "slow_down"}, status=429),
    "text": lambda: web.Response(text="<html>"),
    "list": lambda: web.json_response([]),
    "huge": lambda: web.Response(body=b'{"a": "' + b"a" * 1_100_000 + b'"}'),
    "redirect": lambda: web.Response(status=302, headers={"location": "/elsewhere"}),
}


@on_one_store
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/jwks", "/userinfo"])
async def test_an_issuer_that_fails_is_named_on_the_page_and_keys_still_sign_in(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer, path: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(openid, "_RETRY_S", 0.0)
    fake.claims = {"groups": None}  # they are at /userinfo
    fault = ""

    async def fail(asked: str) -> web.StreamResponse | None:
        if asked == path and fault == "slow":
            await asyncio.Event().wait()
        return FAULTS[fault]() if asked == path and fault else None

    fake.before = fail
    for fault in (*FAULTS, "slow"):
        if fault == "slow":
            monkeypatch.setattr(openid, "LIMIT_S", 0.5)
        if path.startswith("/.well"):
            reply = await browser("GET", OPENID)
        else:
            fault, kept = "", fault
            monkeypatch.setattr(openid, "LIMIT_S", 60.0)
            back = fake.code(await _go(browser))
            fault = kept
            monkeypatch.setattr(openid, "LIMIT_S", 0.5 if fault == "slow" else 60.0)
            reply = await _back(browser, back)
        assert reply.status == 503, (fault, _error(reply))
        assert "the issuer cannot be used" in _error(reply)
        assert 'name="key"' in reply.body
    assert "it did not respond within" in _error(reply)
    assert (await browser.sign_in(server.key)).status == 303
    assert await browser.status() == 200
    fault = ""
    monkeypatch.setattr(openid, "LIMIT_S", 60.0)
    assert (await _sign_in(browser, fake)).status == 200


@on_one_store
@pytest.mark.parametrize("fault", ["error", "busy"])
async def test_an_endpoint_that_fails_takes_no_roles_from_anybody(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer, fault: str
):
    fake.user_info = {"sub": "ada", "groups": ["ops"]}
    assert (await _sign_in(browser, fake, groups=None)).status == 200

    async def fail(asked: str) -> web.StreamResponse | None:
        return FAULTS[fault]() if asked == "/userinfo" else None

    fake.before = fail
    async with browsing(server.url) as second:
        assert (await _sign_in(second, fake, groups=None)).status == 503
        assert (await _sign_in(second, fake, name=None)).status == 200, "only the name is missing"
    assert await browser.status() == 200


@on_one_store
async def test_an_issuer_of_another_name_or_without_encryption_is_refused(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(openid, "_RETRY_S", 0.0)
    fake.metadata = {"issuer": "https://evil.example"}
    reply = await browser("GET", OPENID)
    assert reply.status == 503
    assert "it calls itself https://evil.example; set that as WAKEFUL_OIDC_ISSUER" in _error(reply)
    fake.metadata = {"token_endpoint": "ftp://x"}
    assert "has no token_endpoint with https" in _error(await browser("GET", OPENID))


@on_one_store
async def test_without_an_issuer_the_page_has_only_the_form_of_the_key(ask: ApiClient):
    async with browsing(ask.url) as browser:
        page = await browser("GET", "/sign-in")
        assert "openid" not in page.body
        for path in (OPENID, f"{OPENID}/callback?code=a&state=b"):
            assert (await browser("GET", path)).status == 404


@on_one_store
async def test_people_wait_for_a_slow_issuer_side_by_side(
    new_app: NewApp, fake: FakeIssuer, monkeypatch: pytest.MonkeyPatch
):
    """One reads the metadata; the others take it, or fail with it."""
    release = asyncio.Event()

    async def wait(path: str) -> None:
        await release.wait()

    fake.before = wait
    app: Wakeful = new_app(settings=_settings(fake.url))
    async with app, served(app) as ask, browsing(ask.url) as browser:
        going = [asyncio.create_task(browser("GET", OPENID)) for _ in range(8)]
        while not fake.requests:
            await asyncio.sleep(0.01)
        assert (await ask("GET", "/jobs")).status == 200
        release.set()
        assert {(await each).status for each in going} == {303}
        assert fake.requests == ["/.well-known/openid-configuration"]


# --- names ----------------------------------------------------------------------------------------------

_ID = re.compile(r"\b(?:key|person):[0-9a-f]{8}")
PAGES = (
    "", "jobs", "agents/default/jobs/daily", "agents/default/jobs/failing", "runs", "incidents", "keys",
    "audit", "dead-letters", "agents", "agents/default", "inbox", "suggestions", "workspace", "calendar",
)  # fmt: skip
DOCUMENTS = (
    "jobs", "agents/default/jobs/daily", "agents/default/jobs/daily/revisions", "runs", "incidents", "keys",
    "audit", "dead-letters", "agents", "inbox", "suggestions", "people", "agents/default/jobs/daily/hook",
)  # fmt: skip


def _bare(value: object, path: str = "") -> list[str]:
    """Return where JSON has the id of a key or person without the name beside it."""
    if isinstance(value, list):
        return [each for index, item in enumerate(value) for each in _bare(item, f"{path}[{index}]")]
    if not isinstance(value, dict):
        return []
    found = []
    for name, each in value.items():
        if isinstance(each, str) and _ID.search(each) and not value.get(f"{name}Name"):
            found.append(f"{path}.{name} = {each}")
        found += _bare(each, f"{path}.{name}")
    return found


async def test_pages_and_json_name_whoever_did_something(
    server: ApiClient, browser: BrowserClient, fake: FakeIssuer
):
    await _sign_in(browser, fake)
    key = await server.new("admin")
    alerts = {"alerts": {"url": NOWHERE, "failures": 1}}
    assert (await server("PUT", "/agents/default", alerts)).status in (200, 201)
    targets = {"daily": {"kind": "pull"}, "failing": {"kind": "webhook", "url": NOWHERE}}
    async with browsing(server.url) as by_key:
        await by_key.sign_in(key.key)
        for attempts, who in enumerate((browser, by_key), 1):
            for name, target in targets.items():
                path = f"{HOME}/agents/default/jobs/{name}"
                document = {"schedule": SELDOM, "target": target, "maxAttempts": attempts}
                for method, where, body in (("PUT", path, document), ("POST", f"{path}/run", {})):
                    reply = await who(method, where, body, headers=who.csrf)
                    assert reply.status < 300, (where, reply.body)
        hook = await browser("POST", f"{HOME}/agents/default/jobs/daily/hook", {}, headers=browser.csrf)
        assert hook.status < 300, hook.body
        made = await browser("POST", f"{HOME}/keys", {"name": "mine", "role": "member"}, headers=browser.csrf)
        assert made.status == 201

        async def incident() -> dict[str, Any] | None:
            found = (await browser("GET", f"{HOME}/incidents")).body["incidents"]
            return found[0] if found else None

        opened = await eventually(incident)
        assert opened is not None
        path = f"{HOME}/incidents/{opened['id']}/ack"
        assert (await browser("POST", path, {"note": "mine"}, headers=browser.csrf)).status == 200

    bare: list[str] = []
    runs = [each["id"] for each in (await browser("GET", f"{HOME}/runs")).body["runs"]]
    details = [f"runs/{run}" for run in runs] + [f"incidents/{opened['id']}"]
    for where in (*DOCUMENTS, *details):
        reply = await browser("GET", f"{HOME}/{where}")
        assert reply.status == 200, (where, reply.body)
        bare += _bare(reply.body, where)
    for where in (*PAGES, *details, f"keys/{made.body['id']}"):
        reply = await browser("GET", f"/workspaces/default/{where}")
        assert reply.status == 200, where
        text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", reply.body, flags=re.S)
        bare += [f"page {where}: {each}" for each in _ID.findall(text)]
    assert bare == []
    people = (await browser("GET", f"{HOME}/people")).body["people"]
    assert [(each["name"], each["email"], each["roles"]) for each in people] == [
        ("Ada Lovelace", "ada@example.com", {"*": "admin"})
    ]
    page = (await browser("GET", "/workspaces/default/keys")).body
    assert "<bdi>Ada Lovelace</bdi>" in page
    member = await server.new("member")
    assert (await member("GET", "/people")).status == 403
    assert (await member("DELETE", f"/people/{people[0]['id']}")).status == 403
    assert (await server("DELETE", "/people/nobody")).status == 404
    assert (await server("DELETE", f"/people/{people[0]['id']}")).status == 204
    assert await browser.status() == 401
    entries = (await server("GET", "/audit")).body["entries"]
    assert (entries[0]["action"], entries[0]["subjectName"]) == ("person.remove", "Ada Lovelace")
    assert (await server("GET", "/agents/default/jobs/daily")).body["createdByName"] == "Ada Lovelace"
