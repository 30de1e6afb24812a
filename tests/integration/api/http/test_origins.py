"""Cross-origin pages cannot use /mcp and /ws, and unlisted hosts are rejected where hosts are listed."""

from __future__ import annotations

import aiohttp
import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import served
from wakeful import InvalidArgument
from wakeful.service.auth.connections import Origins
from wakeful.settings import Settings

_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
_ACCEPT = {"Accept": "application/json, text/event-stream"}


async def _statuses(url: str, key: str | None, headers: dict[str, str]) -> tuple[int, int, int]:
    """Return the statuses of requests with these headers to /mcp, /ws and the API."""
    headers = {"Authorization": f"Bearer {key}", **headers}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.post(f"{url}/mcp", json=_LIST, headers=_ACCEPT) as response:
            mcp = response.status
        try:
            async with session.ws_connect(f"{url}/ws") as socket:
                ws = 101
                await socket.close()
        except aiohttp.WSServerHandshakeError as error:
            ws = error.status
        async with session.get(f"{url}/api/workspaces/default/jobs") as response:
            return mcp, ws, response.status


@on_one_store
async def test_cross_origin_pages_are_rejected_and_programs_are_not(new_app: NewApp):
    async with new_app() as app, served(app) as caller:
        own = caller.url.removeprefix("http://")
        answers = {
            origin: await _statuses(caller.url, caller.key, {"Origin": origin} if origin else {})
            for origin in (
                "",
                caller.url,
                "https://evil.example",
                "null",
                "http://127.0.0.1:1",
                f"http://{own}.evil",
            )
        }
    assert answers.pop("") == answers.pop(caller.url) == (200, 101, 200)
    assert set(answers.values()) == {(403, 403, 200)}


@on_one_store
async def test_allowed_origins_and_hosts_are_configurable(new_app: NewApp):
    settings = Settings(
        allowed_origins=("https://app.example",),
        allowed_hosts=("wakeful.example", "localhost:1"),
        secret_key="k",
    )
    async with new_app(settings=settings) as app, served(app) as caller:
        good = {"Host": "wakeful.example:9253"}
        for headers, expected in (
            ({**good, "Origin": "https://app.example"}, (200, 101, 200)),
            ({**good, "Origin": "https://APP.example"}, (200, 101, 200)),
            ({**good, "Origin": "https://evil.example"}, (403, 403, 200)),
            ({"Host": "localhost:1"}, (200, 101, 200)),
            ({"Host": "localhost:2"}, (403, 403, 403)),
            ({"Host": "rebound.evil.example", "Origin": "http://rebound.evil.example"}, (403, 403, 403)),
            ({}, (403, 403, 403)),
        ):
            assert await _statuses(caller.url, caller.key, headers) == expected, headers
        async with aiohttp.ClientSession() as session, session.get(f"{caller.url}/healthz") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://a.example", "a.example", True),
        ("https://a.example", "a.example:443", True),
        ("http://a.example:80", "a.example", True),
        ("http://[::1]:9253", "[::1]:9253", True),
        ("https://A.example", "a.EXAMPLE", True),
        ("https://a.example:8443", "a.example", False),
        ("https://a.example", "b.example", False),
        ("https://a.example", None, False),
        ("file://", "", False),
        ("chrome-extension://a.example", "a.example", False),
        ("", "a.example", False),
    ],
)
def test_an_origin_is_accepted_if_it_matches_the_host(origin: str, host: str | None, allowed: bool):
    try:
        Origins((), ()).check_origin(origin, host)
    except Exception:
        assert not allowed
    else:
        assert allowed


def test_an_invalid_setting_is_rejected_at_startup(new_app: NewApp):
    for settings, name in (
        (Settings(allowed_origins=("app.example",)), "WAKEFUL_ALLOWED_ORIGINS: 'app.example'"),
        (Settings(allowed_origins=("https://app.example/path",)), "WAKEFUL_ALLOWED_ORIGINS"),
        (Settings(allowed_hosts=("https://app.example",)), "WAKEFUL_ALLOWED_HOSTS: 'https://app.example'"),
    ):
        with pytest.raises(InvalidArgument, match=name):
            new_app(settings=settings)
