"""Rules for every page: status, escaping, security headers, roles, and that reading changes nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from html.parser import HTMLParser

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.dashboard_pages import HOSTILE, PLAIN, World, fill
from wakeful import Permanent

pytestmark = on_one_store
#: Pages that only admins may open.
_ADMIN_PAGES = frozenset(
    {"audit", "keys", "channels", "settings", "workers", "new-agent", "agents/writer/edit"}
)
_LINK = re.compile(r'href="/workspaces/default/([^"#?]*)')


class _Reader(HTMLParser):
    """Collects what a page must not contain."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.headings = 0
        self._script = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.headings += tag == "h1"
        self._script = tag == "script"
        if tag == "style" or "style" in given:
            self.problems.append(f"inline style: <{tag}>")
        self.problems += [f"inline handler: <{tag} {name}>" for name in given if name.startswith("on")]
        for name in ("src", "href", "action"):
            value = given.get(name) or ""
            outside = value.startswith(("//", "javascript:", "data:text")) or "://" in value.partition("?")[0]
            if outside and not (tag == "a" and value.startswith(("http://", "https://"))):
                self.problems.append(f"address outside: <{tag} {name}={value[:60]}>")
        if tag == "script" and not (given.get("src") or "").startswith("/assets/"):
            self.problems.append("inline script")

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.problems.append("inline script")
        self._script = False


def problems_of(text: str) -> list[str]:
    """Return what the page must not contain."""
    reader = _Reader()
    reader.feed(text)
    if reader.headings != 1:
        reader.problems.append(f"{reader.headings} h1 headings")
    return reader.problems


@pytest.fixture
async def hostile(new_app: NewApp) -> AsyncIterator[tuple[ApiClient, World]]:
    """Serve a workspace in which every text is hostile."""
    app = new_app()

    @app.function()
    async def nothing() -> str:
        return HOSTILE

    @app.function()
    async def failing() -> None:
        raise Permanent(HOSTILE)

    async with app, served(app) as ask:
        yield ask, await fill(ask, HOSTILE)


async def _get(ask: ApiClient, path: str, workspace: str = "default") -> tuple[int, str, dict[str, str]]:
    headers = {"authorization": f"Bearer {ask.key}"} if ask.key else {}
    address = f"{ask.url}/workspaces/{workspace}/{path}"
    async with ask.session.get(address, headers=headers, allow_redirects=False) as response:
        return (
            response.status,
            await response.text(),
            {key.lower(): value for key, value in response.headers.items()},
        )


async def test_every_page_escapes_hostile_values(hostile: tuple[ApiClient, World]) -> None:
    ask, world = hostile
    shown = 0
    for path in world.pages:
        status, text, headers = await _get(ask, path)
        assert status == 200, (path, text[:300])
        assert not problems_of(text), (path, problems_of(text))
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy, path
        assert headers["cache-control"] == "no-store", path
        assert headers["x-content-type-options"] == "nosniff", path
        shown += "window.hacked" in text
    assert shown >= 8  # the values are really on the pages


async def test_every_page_of_an_empty_workspace_opens(ask: ApiClient) -> None:
    for path in PLAIN:
        status, text, _ = await _get(ask, path)
        assert status == 200, (path, text[:300])
        assert not problems_of(text), (path, problems_of(text))


async def test_pages_show_only_what_the_role_may_see(hostile: tuple[ApiClient, World]) -> None:
    ask, world = hostile
    await ask("PUT", "/agents/other", {})
    member, other = await ask.new("member"), await ask.new("agent", agent="other")
    for path in world.pages:
        expected = 403 if path in _ADMIN_PAGES else 200
        status, text, _ = await _get(member, path)
        assert status == (200 if path == "keys" else expected), (path, text[:300])
        status, text, _ = await _get(other, path)
        if path in PLAIN:
            assert status == expected, (path, text[:300])
            assert world.job not in text, path
        else:
            assert status == 404, (path, text[:300])
        assert not problems_of(text), path


async def test_every_link_of_every_page_leads_to_a_page_that_the_role_may_see(
    hostile: tuple[ApiClient, World],
) -> None:
    ask, world = hostile
    for client in (ask, await ask.new("member"), await ask.new("agent", agent=world.agent)):
        links: dict[str, str] = {}
        for path in world.pages:
            _, text, _ = await _get(client, path)
            links |= {unescape(link): path for link in _LINK.findall(text)}
        assert len(links) > 15
        for link, path in links.items():
            status, text, _ = await _get(client, link)
            assert status == 200, (client.key, path, link, text[-300:])


async def test_pages_of_another_workspace_are_not_found(hostile: tuple[ApiClient, World]) -> None:
    ask, world = hostile
    stranger = await ask.new("admin", "default")
    for path in world.pages:
        status, text, _ = await _get(stranger, path, "elsewhere")
        assert status in (403, 404), path
        assert "writer" not in text, path


async def test_pages_without_a_session_lead_to_the_sign_in(hostile: tuple[ApiClient, World]) -> None:
    ask, world = hostile
    for path in world.pages:
        status, _, headers = await _get(ask.with_key(None), path)
        assert status == 303, path
        assert headers["location"].startswith("/sign-in?next=%2Fworkspaces%2Fdefault%2F"), path


async def test_looking_at_pages_changes_nothing(hostile: tuple[ApiClient, World]) -> None:
    ask, world = hostile
    store = ask.app.services.store
    jobs = (await ask("GET", "/jobs", include_disabled="true")).body
    before = await store.last_change(), (await ask("GET", "/audit")).body
    for path in world.pages:
        await _get(ask, path)
    assert (await store.last_change(), (await ask("GET", "/audit")).body) == before
    assert (await ask("GET", "/jobs", include_disabled="true")).body == jobs


async def test_unknown_things_are_pages_too(hostile: tuple[ApiClient, World]) -> None:
    ask, _ = hostile
    for path in ("runs/nothing", "agents/nobody", "agents/writer/jobs/nothing", "incidents/nothing"):
        status, text, headers = await _get(ask, path)
        assert status == 404, path
        assert headers["content-type"].startswith("text/html"), path
        assert not problems_of(text), path
