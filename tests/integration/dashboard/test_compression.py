"""Compressed responses: pages, regions, assets and lists; never streams or what other sites ask for."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator, Mapping

import aiohttp
import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import HOME, ApiClient, served
from tests.support.browser_client import BrowserClient, browsing
from wakeful.api.http.compression import SMALLEST

PAGE = "/workspaces/default/jobs"
GZIP = {"accept-encoding": "gzip, deflate, br"}
PLAIN = {"accept-encoding": "identity"}


@pytest.fixture
async def ask(new_app: NewApp) -> AsyncIterator[ApiClient]:
    app = new_app()
    async with app, served(app) as client:
        for number in range(8):
            await client("POST", "/agents/default/jobs", {"name": f"job-{number}", "schedule": SELDOM})
        yield client


@pytest.fixture
async def browser(ask: ApiClient) -> AsyncIterator[BrowserClient]:
    async with browsing(ask.url) as client:
        await client.sign_in(ask.key)
        yield client


async def raw(
    browser: BrowserClient, path: str, headers: Mapping[str, str], method: str = "GET"
) -> tuple[Mapping[str, str], bytes]:
    """Return the headers and the body as they were sent."""
    cookie = {"cookie": f"wakeful_session={browser.token}"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(method, browser.url + path, headers={**cookie, **headers}) as response,
    ):
        assert response.status == 200, await response.read()
        return response.headers, await response.read()


def vary(headers: Mapping[str, str]) -> set[str]:
    return {name.strip().lower() for name in headers["vary"].split(",")}


@on_one_store
async def test_pages_regions_and_lists_are_compressed_if_the_client_accepts_it(
    browser: BrowserClient,
) -> None:
    region = {"x-wakeful-region": "list"}
    for path, given in ((PAGE, {}), (PAGE, region), (f"{HOME}/jobs", {})):
        plain_headers, plain = await raw(browser, path, {**given, **PLAIN})
        headers, body = await raw(browser, path, {**given, **GZIP})
        assert "content-encoding" not in plain_headers, path
        assert headers["content-encoding"] == "gzip", path
        assert int(headers["content-length"]) == len(body) < len(plain) // 2, path
        assert int(plain_headers["content-length"]) == len(plain), path
        assert len(gzip.decompress(body)) == len(plain), path
        assert "accept-encoding" in vary(headers) & vary(plain_headers), path
        if path == PAGE:
            assert "x-wakeful-region" in vary(headers), path


@on_one_store
async def test_a_head_request_has_the_headers_of_the_compressed_response(browser: BrowserClient) -> None:
    got, _ = await raw(browser, f"{HOME}/jobs", GZIP)
    headers, body = await raw(browser, f"{HOME}/jobs", GZIP, "HEAD")
    assert body == b""
    for name in ("content-encoding", "content-length", "vary", "content-type"):
        assert headers[name] == got[name], name


@on_one_store
async def test_small_responses_and_those_with_an_etag_are_not_compressed(
    ask: ApiClient, browser: BrowserClient
) -> None:
    headers, body = await raw(browser, f"{HOME}/status", GZIP)
    assert len(body) < SMALLEST
    assert "content-encoding" not in headers
    assert "accept-encoding" in vary(headers)
    long = {"name": "long", "schedule": SELDOM, "message": "x" * SMALLEST}
    await ask("POST", "/agents/default/jobs", long)
    headers, body = await raw(browser, f"{HOME}/agents/default/jobs/long", GZIP)
    assert len(body) > SMALLEST
    assert "etag" in headers
    assert "content-encoding" not in headers


@on_one_store
async def test_what_a_page_of_another_origin_asks_for_is_not_compressed(browser: BrowserClient) -> None:
    for site, expected in (
        ("cross-site", False),
        ("same-site", False),
        ("same-origin", True),
        ("none", True),
    ):
        headers, _ = await raw(browser, PAGE, {**GZIP, "sec-fetch-site": site})
        assert ("content-encoding" in headers) is expected, site


@on_one_store
async def test_the_token_of_a_page_differs_in_each_response_and_each_is_valid(
    ask: ApiClient, browser: BrowserClient
) -> None:
    tokens = set()
    for _ in range(3):
        page = await browser("GET", PAGE)
        found = re.search(r'<meta name="csrf" content="([0-9a-f]{128})"', page.body)
        assert found is not None
        tokens.add(found[1])
    assert len(tokens) == 3
    assert len({token[:64] for token in tokens} | {token[64:] for token in tokens}) == 6
    for token in tokens:
        changed = await browser(
            "POST", f"{HOME}/agents/default/jobs/job-1/run", {}, headers={"x-wakeful-csrf": token}
        )
        assert changed.status < 300, changed.body
    wrong = {"x-wakeful-csrf": "0" * 128}
    assert (await browser("POST", f"{HOME}/agents/default/jobs/job-1/run", {}, headers=wrong)).status == 403


@on_one_store
async def test_an_event_stream_is_not_compressed(browser: BrowserClient) -> None:
    cookie = {"cookie": f"wakeful_session={browser.token}"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(f"{browser.url}{HOME}/events?after=0", headers={**GZIP, **cookie}) as response,
    ):
        assert "content-encoding" not in response.headers
        assert await response.content.readline() == b"retry: 1000\n"


@on_one_store
async def test_assets_are_compressed_and_kept_by_the_browser(browser: BrowserClient) -> None:
    page = await browser("GET", "/sign-in")
    address = next(path for path in re.findall(r'href="(/assets/[^"]+)"', page.body) if "app.css" in path)
    headers, body = await raw(browser, address, GZIP)
    plain_headers, plain = await raw(browser, address, {"accept-encoding": "gzip;q=0"})
    assert gzip.decompress(body) == plain
    assert "content-encoding" not in plain_headers
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert vary(headers) == vary(plain_headers) == {"accept-encoding"}
