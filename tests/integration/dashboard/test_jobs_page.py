"""The list of jobs, without a browser: content, filters, roles and hostile values."""

from __future__ import annotations

import html
import re

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient

PAGE = "/workspaces/default/jobs"
_OPS = f"{HOME}/agents/ops/jobs"
_NOTHING = {"kind": "function", "name": "nothing"}
HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}"


async def page(ask: ApiClient, query: str = "", **headers: str) -> str:
    async with ask.session.get(
        f"{ask.url}{PAGE}{query}", headers={"Authorization": f"Bearer {ask.key}", **headers}
    ) as response:
        text = await response.text()
        assert response.status == 200, text
        return text


def rows(text: str) -> list[str]:
    return re.findall(r'aria-label="Select (\w[^" ]*)"', text)


async def some_jobs(ask: ApiClient) -> None:
    await ask("POST", JOBS, {"name": "digest", "schedule": "0 9 * * 1-5", "target": _NOTHING})
    await ask("POST", _OPS, {"name": "backup", "schedule": "every 1h", "labels": {"team": HOSTILE[:60]}})
    await ask("POST", _OPS, {"name": "tidy", "schedule": SELDOM, "description": HOSTILE})
    await ask("POST", f"{_OPS}/tidy/pause", {"note": HOSTILE})


async def test_the_list_shows_jobs_with_their_schedule_and_outcomes(ask: ApiClient):
    await some_jobs(ask)
    done = await ask("POST", f"{JOBS}/digest/run")
    text = await page(ask)
    assert rows(text) == ["default/digest", "ops/backup", "ops/tidy"]
    assert "At 09:00, Monday through Friday (UTC)" in text
    assert f'/workspaces/default/runs/{done.body["id"]}"' in text
    assert "3 jobs" in text
    assert "Paused" in text and "Active" in text  # noqa: PT018


async def test_filters_of_the_address_are_applied_and_kept_in_the_form(ask: ApiClient):
    await some_jobs(ask)
    assert rows(await page(ask, "?q=TID")) == ["ops/tidy"]
    assert rows(await page(ask, "?state=paused")) == ["ops/tidy"]
    assert rows(await page(ask, "?schedule=every&agent=ops")) == ["ops/backup"]
    due = [job for job in (await ask("GET", "/jobs")).body["jobs"] if job["enabled"]]
    due.sort(key=lambda job: int(job["nextAtMs"]))
    assert rows(await page(ask, "?sort=next")) == [f"{job['agentId']}/{job['name']}" for job in due]
    assert rows(await page(ask, "?target=function")) == ["default/digest"]
    kept = await page(ask, "?q=tid&state=paused")
    assert 'value="tid"' in kept
    assert '<option value="paused" selected>' in kept
    assert '{"internal": "hide", "q": "tid", "state": "paused"}' in html.unescape(kept)


async def test_a_page_has_some_jobs_and_leads_to_the_next(ask: ApiClient):
    await ask.app.jobs.create_many([{"name": f"job-{n:03d}", "schedule": SELDOM} for n in range(120)])
    met: list[str] = []
    query = ""
    for _ in range(4):
        text = await page(ask, query)
        assert "120 jobs" in text
        met += rows(text)
        found = re.search(r'rel="next" href="[^"?]*(\?[^"]*)"', text)
        if not found:
            break
        query = html.unescape(found[1])
    assert met == [f"default/job-{n:03d}" for n in range(120)]


@on_one_store
async def test_the_page_is_small_with_many_jobs_that_ran(ask: ApiClient):
    labels = {"team": "operations", "tier": "gold"}
    job = {"schedule": "30 9 * * 1-5", "tz": "Europe/Berlin", "labels": labels, "target": {"kind": "pull"}}
    await ask.app.jobs.create_many([{**job, "name": f"nightly-report-{n}"} for n in range(75)])
    for _ in range(3):
        await ask("POST", "/jobs/run", {"all": True})
    text = await page(ask)
    assert text.count("stroke-pending") == len(rows(text)) > 30
    assert len(text.encode()) < 100_000


async def test_a_wrong_filter_is_explained_on_the_page(ask: ApiClient):
    text = await page(ask, "?state=asleep")
    assert "is not one of active, paused" in text


@on_one_store
async def test_hostile_values_are_escaped(ask: ApiClient):
    await some_jobs(ask)
    for query in ("", f"?q={HOSTILE.replace('&', '%26')}", "?label=a%3D%3Cscript%3E", "?agent=%3Cscript%3E"):
        text = await page(ask, query)
        assert "<script>alert" not in text
        assert "<script>" not in text.replace('<script type="module"', "")
        assert "49" not in re.findall(r"&#39;&amp;(\d+)", text)


@on_one_store
async def test_a_role_sees_only_the_actions_that_it_may_use(ask: ApiClient):
    await some_jobs(ask)
    member = await page(await ask.new("member"))
    assert 'data-bulk="run"' in member
    assert 'data-bulk="delete"' not in member
    assert "New job" not in member
    admin = await page(ask)
    for action in ("run", "pause", "resume", "delete"):
        assert f'data-bulk="{action}"' in admin
    own = await page(await ask.new("agent", agent="ops"))
    assert rows(own) == ["ops/backup", "ops/tidy"]


@on_one_store
async def test_a_region_is_the_list_alone(ask: ApiClient):
    await some_jobs(ask)
    text = await page(ask, "?q=tid", **{"x-wakeful-region": "list"})
    assert rows(text) == ["ops/tidy"]
    assert "<html" not in text
    assert "<form" not in text


@on_one_store
async def test_without_jobs_the_page_says_what_to_do(ask: ApiClient):
    assert "wakeful add digest" in html.unescape(await page(ask))
    assert "No job matches" in await page(ask, "?q=nothing")
