"""Cost, suggestions, audit, keys, quotas, channels, workers, settings and workspace over HTTP."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.suggestions import suggest
from wakeful import Wakeful
from wakeful.settings import Settings

PAGES = "/workspaces/default"
HOSTILE = "</td><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
SECRET = "Sw0rdf1sh"
#: page: who may see it
ROLES = {
    "cost": ("operator", "admin", "member", "agent"),
    "suggestions": ("operator", "admin", "member", "agent"),
    "quotas": ("operator", "admin", "member", "agent"),
    "workspace": ("operator", "admin", "member", "agent"),
    "audit": ("operator", "admin"),
    "keys": ("operator", "admin", "member"),
    "subscriptions": ("operator", "admin", "member", "agent"),
    "channels": ("operator", "admin"),
    "workers": ("operator", "admin"),
    "settings": ("operator",),
}


@pytest.fixture
async def site(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Return a client of a server with a channel."""
    app = new_app(settings=Settings(channels={"ops": f"json://u:{SECRET}@127.0.0.1:1/{SECRET}"}))

    @app.function()
    async def nothing() -> None: ...

    async with app, served(app) as client:
        yield client


async def used(ask: ApiClient, agent: str, job: str, tokens: int, cost: float, **fields: object) -> str:
    """Run a job of an agent once, with this usage; return the id of the run."""
    document = {"schedule": SELDOM, "target": {"kind": "pull"}, **fields}
    assert (await ask("PUT", f"/agents/{agent}/jobs/{job}", document)).status in (200, 201)
    assert (await ask("POST", f"/agents/{agent}/jobs/{job}/run")).status == 201
    (run,) = (await ask("POST", "/runs/claim", {"worker": "w", "agents": [agent]})).body["runs"]
    body = {"attempt": run["attempt"], "status": "succeeded", "usage": {"tokens": tokens, "cost": cost}}
    assert (await ask("POST", f"/runs/{run['id']}/complete", body)).status == 200
    return str(run["id"])


async def shown(ask: ApiClient, path: str) -> str:
    page = await ask("GET", f"{PAGES}/{path}")
    assert page.status == 200, page
    return str(page.body)


@on_one_store
async def test_every_page_is_shown_to_the_roles_that_may_see_it(site: ApiClient) -> None:
    await site("PUT", "/agents/writer", {})
    people = {
        "operator": site,
        "admin": await site.new("admin"),
        "member": await site.new("member"),
        "agent": await site.new("agent", agent="writer"),
    }
    found = {}
    for page in ROLES:
        replies = {who: await client("GET", f"{PAGES}/{page}") for who, client in people.items()}
        assert {reply.status for reply in replies.values()} <= {200, 403}, page
        found[page] = tuple(who for who, reply in replies.items() if reply.status == 200)
        for who, client in people.items():
            linked = f'href="{PAGES}/{page}"' in await shown(client, "cost")
            assert linked == (who in ROLES[page]), f"{page} in the menu of {who}"
    assert found == ROLES


@on_one_store
async def test_the_pages_are_not_found_in_another_workspace(site: ApiClient) -> None:
    await site("PUT", "/api/workspaces/acme", {})
    other = await site.new("admin", "acme")
    for page in ROLES:
        assert (await other("GET", f"{PAGES}/{page}")).status == 404, page
        assert (await site("GET", f"/workspaces/nowhere/{page}")).status == 404, page


@on_one_store
async def test_every_page_says_what_to_do_when_it_is_empty(ask: ApiClient) -> None:
    assert "Nothing was used in this time" in await shown(ask, "cost")
    assert "No budgets" in await shown(ask, "cost")
    assert "No open suggestions" in await shown(ask, "suggestions")
    assert "Nothing here" in await shown(ask, "suggestions?status=applied")
    assert "No entry matches" in await shown(ask, "audit?actor=nobody")
    assert "No channels" in await shown(ask, "channels")
    assert "No executor holds a run" in await shown(ask, "workers")


# --- cost -----------------------------------------------------------------------------------------


async def test_the_cost_page_shows_sums_and_budgets(ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"budget": {"tokensPerDay": 50}})
    await used(ask, "writer", "dear", 100, 2.0)
    await used(ask, "painter", "cheap", 7, 1.0)
    body = await shown(ask, "cost")
    assert "$3.00" in body
    assert f'href="{PAGES}/agents/writer/jobs/dear"' in body
    assert "66.7 %" in body
    assert "Used up" in body
    assert 'role="img"' in body
    one = await shown(ask, "cost?agent=painter&days=7")
    assert "jobs/cheap" in one
    assert "jobs/dear" not in one


@on_one_store
async def test_the_cost_is_downloaded_as_csv(ask: ApiClient) -> None:
    await used(ask, "writer", "dear", 100, 2.0)
    reply = await ask("GET", f"{PAGES}/cost?format=csv&days=90")
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in reply.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(reply.body)))
    assert [(row["level"], row["agent"], row["job"], row["cost"]) for row in rows] == [
        ("workspace", "", "", "2.0"),
        ("agent", "writer", "", "2.0"),
        ("job", "writer", "dear", "2.0"),
    ]


@on_one_store
async def test_a_wrong_parameter_is_explained(ask: ApiClient) -> None:
    wrong = {
        "cost?days=8": 422, "cost?days=x": 422, "cost?agent=nobody": 404, "suggestions?status=x": 422,
        "suggestions?cursor=x": 422, "audit?cursor=99999999999": 200, "audit?since=soon": 200,
        "audit?action=Job%20x": 200, "keys?show=x": 422, "keys/none": 404,
    }  # fmt: skip
    replies = {path: await ask("GET", f"{PAGES}/{path}") for path in wrong}
    assert {path: reply.status for path, reply in replies.items()} == wrong
    for path, reply in replies.items():
        assert 'role="alert"' in reply.body or reply.status != 200, path


# --- suggestions ----------------------------------------------------------------------------------


@on_one_store
async def test_a_suggestion_shows_its_change_and_who_may_decide(site: ApiClient) -> None:
    await site("PUT", "/agents/writer/jobs/digest", {"schedule": SELDOM, "target": {"kind": "pull"}})
    found = await suggest(site.app.services.store, "writer", "digest")
    body = await shown(site, "suggestions")
    assert "Raise the timeout" in body
    assert "timeoutMs: 1 m" in body
    assert f"/api{PAGES}/suggestions/{found}/apply" in body
    member = await site.new("member")
    seen = await shown(member, "suggestions")
    assert "Raise the timeout" in seen
    assert "data-action" not in seen
    await site("POST", f"/suggestions/{found}/apply")
    assert f"/api{PAGES}/suggestions/{found}/rollback" in await shown(site, "suggestions?status=applied")


# --- audit ----------------------------------------------------------------------------------------


async def test_the_audit_page_lists_filters_and_pages(ask: ApiClient) -> None:
    for number in range(60):
        await ask("PUT", f"/agents/writer/jobs/j{number}", {"schedule": SELDOM, "target": {"kind": "pull"}})
    body = await shown(ask, "audit")
    assert "writer/j59" in body
    assert "writer/j1<" not in body
    assert "cursor=" in body
    assert "writer/j1<" in await shown(ask, "audit?subject=writer/j1")
    assert "key.create" in await shown(ask, "audit?action=key")
    assert "job.create" not in (await shown(ask, "audit?action=key")).partition("<tbody>")[2]


async def test_the_chain_is_verified_in_parts(ask: ApiClient) -> None:
    for number in range(5):
        await ask("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": number})
    whole = (await ask("GET", "/audit/verify")).body
    first = (await ask("GET", "/audit/verify", limit=2)).body
    assert (first["count"], first["complete"], first["ok"]) == (2, False, True)
    rest = (await ask("GET", "/audit/verify", after=2, hash=first["hash"], limit=1000)).body
    assert (rest["count"], rest["complete"], rest["ok"]) == (whole["count"], True, True)
    wrong = (await ask("GET", "/audit/verify", after=2, hash="0" * 64, limit=1000)).body
    assert not wrong["ok"]
    assert "entry 3" in wrong["flaw"]


# --- keys, quotas, workspace ----------------------------------------------------------------------


@on_one_store
async def test_keys_are_listed_without_their_text(site: ApiClient) -> None:
    made = (await site("POST", "/keys", {"name": "laptop", "role": "member"})).body
    await site("POST", "/keys", {"name": "gone", "role": "member"})
    gone = next(key for key in (await site("GET", "/keys")).body["keys"] if key["name"] == "gone")
    await site("DELETE", f"/keys/{gone['id']}")
    body = await shown(site, "keys")
    assert "laptop" in body
    assert "gone" not in body
    assert "Revoked" in await shown(site, "keys?show=all")
    one = await shown(site, f"keys/{made['id']}")
    for text in (body, one):
        assert made["key"] not in text
        assert site.key is not None
        assert site.key not in text


@on_one_store
async def test_quotas_show_use_and_only_operators_set_them(site: ApiClient) -> None:
    await site("PUT", "/agents/writer/jobs/digest", {"schedule": SELDOM, "target": {"kind": "pull"}})
    await site("PUT", "/quotas", {"agent": "writer", "bucket": "scheduler.liveJobs", "limit": 4})
    assert "data-set-limit" in await shown(site, "quotas")
    body = await shown(await site.new("admin"), "quotas")
    assert "25 %" in body
    assert "data-set-limit" not in body


@on_one_store
async def test_the_workspace_is_edited_by_operators_only(site: ApiClient) -> None:
    await site("PUT", "/api/workspaces/default", {"tz": "Asia/Tokyo", "budget": {"costPerDay": 5}})
    await site("PUT", "/api/workspaces/acme", {})
    body = await shown(site, "workspace")
    assert "Asia/Tokyo" in body
    assert 'href="/workspaces/acme/"' in body
    assert 'href="/workspaces/acme/"' not in await shown(site, "workspace?search=de")
    seen = await shown(await site.new("admin"), "workspace")
    assert "Asia/Tokyo" in seen
    assert "acme" not in seen
    assert "<form data-module" not in seen


@on_one_store
async def test_workspaces_are_searched_by_the_beginning_of_their_name(site: ApiClient) -> None:
    for name in ("acme", "acorn", "beta"):
        await site("PUT", f"/api/workspaces/{name}", {})

    async def names(client: ApiClient, query: str) -> list[str]:
        reply = await client("GET", f"/api/workspaces?{query}")
        return [each["name"] for each in reply.body["workspaces"]]

    assert await names(site, "prefix=ac") == ["acme", "acorn"]
    assert await names(site, "prefix=ac&limit=1") == ["acme"]
    assert await names(site, "prefix=~") == []
    member = await site.new("member")
    assert await names(member, "prefix=") == ["default"]
    assert await names(member, "prefix=ac") == []


# --- hostile values -------------------------------------------------------------------------------


async def hostile(site: ApiClient) -> Wakeful:
    """Fill the server with texts that break pages that do not escape them."""
    await site("PUT", "/api/workspaces/default", {"description": HOSTILE})
    await site("POST", "/keys", {"name": HOSTILE, "role": "member"})
    await site("PUT", "/agents/writer/jobs/digest", {"schedule": SELDOM, "target": {"kind": "pull"}})
    await site("POST", "/agents/writer/jobs/digest/run")
    await site("POST", "/runs/claim", {"worker": HOSTILE, "agents": ["writer"]})
    await site("POST", "/channels/ops/test")
    return site.app


async def test_hostile_values_are_escaped(site: ApiClient) -> None:
    await hostile(site)
    escaped = html.escape(HOSTILE, quote=False)[:30]
    seen = 0
    for page in (*ROLES, "keys?show=all", "audit?action=key", f"audit?actor={HOSTILE.replace(' ', '%20')}"):
        body = await shown(site, page)
        assert "<script>alert" not in body, page
        assert "<img src=x" not in body, page
        assert SECRET not in body, page
        seen += escaped in body
    assert seen >= 5
    for query in ("search", "status", "agent", "days", "subject", "since", "cursor", "show"):
        for page in ROLES:
            reply = await site("GET", f"{PAGES}/{page}?{urlencode({query: HOSTILE})}")
            assert "<script>alert" not in reply.body, (page, query)
            assert reply.status < 500, (page, query)


@on_one_store
async def test_a_hostile_audit_detail_is_escaped(site: ApiClient) -> None:
    name = json.dumps(HOSTILE)[1:-1][:150]
    await site("POST", "/keys", {"name": name, "role": "member"})
    assert "<script>alert" not in await shown(site, "audit?action=key.create")
