"""The form of a job over HTTP: content, roles, hostile values."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import JOBS, ApiClient
from tests.support.suggestions import suggest
from wakeful.document.fields import DECLARED

NEW = "/workspaces/default/jobs/new"
HOSTILE = "</textarea></script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


def edit(name: str) -> str:
    return f"/workspaces/default/agents/default/jobs/{name}/edit"


@on_one_store
async def test_the_form_has_every_field(ask: ApiClient):
    page = await ask("GET", NEW)
    assert page.status == 200
    for field in DECLARED:
        assert f'data-field="{field.duration_name or field.name}"' in page.body
    assert "Create job" in page.body
    assert "<style" not in page.body
    assert 'style="' not in page.body


@on_one_store
async def test_the_form_of_a_job_has_its_values(ask: ApiClient):
    job: dict[str, Any] = {
        "name": "digest",
        "schedule": "every 90s",
        "payload": {"n": 1.0, "big": 12345678901234567890},
        "target": {"kind": "webhook", "url": "http://127.0.0.1:9/x?a=b&c=d"},
        "timeout": "1m30s",
        "startAt": 1_900_000_000_000,
        "tz": "Asia/Tokyo",
    }
    assert (await ask("POST", JOBS, job)).status == 201
    body = (await ask("GET", edit("digest"))).body
    assert 'value="every 1m30s"' in body
    assert '{"n": 1.0, "big": 12345678901234567890}' in html.unescape(body)
    assert 'value="http://127.0.0.1:9/x?a=b&amp;c=d"' in body
    assert 'value="2030-03-18T02:46:40+09:00"' in body
    assert 'data-version="1"' in body
    assert "(1 set)" in body


@on_one_store
async def test_a_copy_has_the_values_and_another_name(ask: ApiClient):
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "message": "hello there"})
    for source in ("default/digest", "digest"):
        body = (await ask("GET", f"{NEW}?from={source}")).body
        assert 'value="digest-copy"' in body
        assert "hello there" in body
        assert "data-version" not in body
    assert (await ask("GET", f"{NEW}?from=default/none")).status == 404


@on_one_store
async def test_a_suggestion_is_proposed(ask: ApiClient):
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM})
    chosen = await suggest(ask.app.store, "default", "digest")
    body = (await ask("GET", f"{edit('digest')}?suggestion={chosen}")).body
    found = re.search(r'data-suggested="([^"]*)"', body)
    assert found is not None
    assert json.loads(html.unescape(found[1]))


@on_one_store
async def test_members_see_the_form_and_cannot_save(ask: ApiClient):
    secret = {
        "kind": "webhook",
        "url": "http://127.0.0.1:9/?token=not-for-members",
        "headers": {"x-key": "not-for-members"},
    }
    await ask("POST", JOBS, {"name": "digest", "schedule": SELDOM, "target": secret})
    member = await ask.new("member")
    body = (await member("GET", edit("digest"))).body
    assert "may not change this job" in body
    assert '<fieldset class="bare" disabled>' in body
    assert "data-save" not in body
    assert "not-for-members" not in body
    await ask("PUT", "/agents/hidden", {"target": secret})
    assert "not-for-members" not in (await member("GET", f"{NEW}?agent=hidden")).body
    other = await ask.new("agent", agent="writer")
    assert (await other("GET", edit("digest"))).status == 404


@on_one_store
async def test_hostile_values_are_escaped(ask: ApiClient):
    job = {
        "name": "hostile",
        "schedule": SELDOM,
        "description": HOSTILE,
        "message": HOSTILE,
        "payload": {HOSTILE: [HOSTILE]},
        "labels": {"a": HOSTILE, "b": "x"},
        "channel": HOSTILE,
        "to": HOSTILE,
        "target": {"kind": "function", "name": HOSTILE},
        "verify": {"kind": "http", "url": "http://127.0.0.1:9/", "contains": HOSTILE},
    }
    assert (await ask("POST", JOBS, job)).status == 201
    for page in (edit("hostile"), f"{NEW}?from=hostile", f"{NEW}?agent={HOSTILE}", f"{NEW}?from={HOSTILE}"):
        body = (await ask("GET", page)).body
        assert "<script>alert" not in body
        assert "<img" not in body
        assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(\d+)", body)
