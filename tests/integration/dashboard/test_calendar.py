"""The calendar page over HTTP: upcoming and finished runs by hour, zones, filters, and one hour."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.api_client import ApiClient
from tests.support.waiting import eventually, over
from wakeful.service.admin.calendar_weeks import find_monday
from wakeful.service.auth.access import LOCAL

_PULL = {"kind": "pull"}


async def page(ask: ApiClient, query: str = "", **headers: str) -> str:
    """Return the calendar, when everything in it is computed."""

    async def look() -> str | None:
        reply = await ask("GET", f"/workspaces/default/calendar?{query}", headers=headers)
        assert reply.status == 200, reply
        return None if "data-pending" in reply.body else str(reply.body)

    found = await eventually(look)
    assert found is not None
    return found


def next_monday() -> date:
    return find_monday(datetime.now(UTC).date()) + timedelta(weeks=1)


async def test_upcoming_runs_are_shown_by_hour(ask: ApiClient) -> None:
    jobs = [{"name": f"job-{n}", "schedule": "0 9 * * *", "target": _PULL} for n in range(12)]
    await ask.app.services.jobs.create_many(LOCAL, "default", "default", jobs)
    week = next_monday()
    text = await page(ask, f"week={week}")
    assert text.count("09:00: 12 upcoming") == 7  # the labels of the links
    assert "About 84 upcoming runs" in text
    berlin = await page(ask, f"week={week}&tz=Europe/Berlin")
    offset = datetime.fromisoformat(f"{week}T12:00+00:00").astimezone().utcoffset()
    assert offset is not None
    assert "About 84 upcoming runs" in berlin
    assert "Times in Europe/Berlin" in berlin


async def test_an_hour_names_its_schedules_and_jobs(ask: ApiClient) -> None:
    jobs = [{"name": f"job-{n}", "schedule": "0 9 * * *", "target": _PULL} for n in range(12)]
    await ask.app.services.jobs.create_many(LOCAL, "default", "default", jobs)
    hour = round(datetime.fromisoformat(f"{next_monday()}T09:00+00:00").timestamp() * 1_000)
    text = await page(ask, f"week={next_monday()}&hour={hour}")
    assert "At 09:00, every day (UTC)" in text
    assert "/workspaces/default/agents/default/jobs/job-0" in text
    assert "and 11 more" in text
    region = await page(ask, f"week={next_monday()}&hour={hour}", **{"x-wakeful-region": "calendar"})
    assert "<html" not in region
    assert "At 09:00, every day (UTC)" in region


async def test_finished_runs_are_shown_with_failures_marked(ask: ApiClient) -> None:
    app = ask.app
    for name in ("nothing", "failing"):
        await app.jobs.create(name, schedule="0 0 29 2 *", target={"kind": "function", "name": name})
        run = await app.jobs.run(name)
        await over(app, run.id)

    async def counted() -> Any:
        found = re.findall(r'aria-label="([^"]*1 failed, 1 succeeded)"', await page(ask))
        return found or None

    assert await eventually(counted)
    text = await page(ask)
    assert "heat-mark" in text
    (hour,) = re.findall(r'href="[^"]*hour=(\d+)[^"]*" aria-label="[^"]*1 failed, 1 succeeded"', text)
    link = re.search(r'<a href="([^"]+)">Show the runs', await page(ask, f"hour={hour}"))
    assert link is not None
    assert f"since={hour}&amp;until={int(hour) + 3_600_000}" in link[1]


@on_one_store
async def test_the_calendar_is_limited_to_an_agent(ask: ApiClient) -> None:
    for agent, number in (("default", 3), ("ada", 2)):
        await ask("PUT", f"/agents/{agent}", {})
        jobs = [{"name": f"job-{n}", "schedule": "0 9 * * *", "target": _PULL} for n in range(number)]
        await ask.app.services.jobs.create_many(LOCAL, "default", agent, jobs)
    week = next_monday()
    assert "About 35 upcoming runs" in await page(ask, f"week={week}")
    assert "About 14 upcoming runs this week of ada" in await page(ask, f"week={week}&agent=ada")
    ada = await ask.new("agent", agent="ada")
    own = await page(ada, f"week={week}")
    assert "About 14 upcoming runs" in own
    assert "default" not in re.findall(r'<option value="([^"]*)"></option>', own)
    reply = await ada("GET", "/workspaces/default/calendar?agent=default")
    assert reply.status == 404


@on_one_store
async def test_wrong_parameters_get_an_error_page(ask: ApiClient) -> None:
    far = next_monday() + timedelta(weeks=8)
    for query, status in (
        ("week=x", 400),
        (f"week={far}", 400),
        ("tz=Nowhere/Else", 400),
        ("agent=unknown", 404),
        ("hour=x", 200),
        ("hour=99999999999999999999", 200),
        ("hour=1", 200),
    ):
        reply = await ask("GET", f"/workspaces/default/calendar?{query}")
        assert reply.status in (status, 422 if status == 400 else status), (query, reply.status)
        assert "text/html" in reply.headers["content-type"]


@on_one_store
async def test_a_page_does_not_wait_for_a_long_computation(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask.app.jobs.create("digest", schedule="0 9 * * *", target=_PULL)
    monkeypatch.setattr("wakeful.service.admin.calendar.WAIT_S", 0.0)
    reply = await ask("GET", f"/workspaces/default/calendar?week={next_monday()}")
    assert "data-pending" in reply.body
    assert "being computed" in reply.body
    assert "About 7 upcoming runs" in await page(ask, f"week={next_monday()}")


@on_one_store
async def test_excluded_days_and_clock_changes_are_noted(new_app: NewApp, ask: ApiClient) -> None:
    friday = next_monday() + timedelta(days=4)
    await ask.app.jobs.create("digest", schedule="0 9 * * *", target=_PULL, exclude=[str(friday)])
    text = await page(ask, f"week={next_monday()}")
    assert f"Excluded: 1 job has no ticks ({friday})." in text
    assert "About 6 upcoming runs" in text
