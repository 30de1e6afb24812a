"""The home page over HTTP: what needs attention, the next hour, and today, by role."""

from __future__ import annotations

import re

from tests.integration.conftest import SELDOM
from tests.support.api_client import ApiClient
from tests.support.waiting import eventually

HOME = "/workspaces/default/"
NOTHING = {"kind": "function", "name": "nothing"}
FAILING = {"kind": "function", "name": "failing"}


async def _home(ask: ApiClient, **headers: str) -> str:
    reply = await ask("GET", HOME, headers=headers)
    assert reply.status == 200, reply
    return str(reply.body)


def _figure(html: str, label: str) -> str:
    """Return the value of a figure."""
    found = re.search(
        rf'figure-label">{re.escape(label)}</span>\s*<span class="figure-value"[^>]*>([^<]*)<', html
    )
    assert found, label
    return found[1]


async def _run(ask: ApiClient, agent: str, name: str, target: object, schedule: str = SELDOM) -> None:
    document = {"name": name, "schedule": schedule, "target": target}
    assert (await ask("POST", f"/agents/{agent}/jobs", document)).status == 201
    run = (await ask("POST", f"/agents/{agent}/jobs/{name}/run", {})).body["id"]

    async def ended() -> bool:
        return (await ask("GET", f"/runs/{run}")).body["state"] in ("succeeded", "failed")

    await eventually(ended)


async def test_a_new_workspace_shows_the_first_steps_and_nothing_that_needs_attention(ask: ApiClient) -> None:
    html = await _home(ask)
    assert "First steps" in html
    assert "All good" in html
    assert _figure(html, "Succeeded") == "0"
    assert _figure(html, "Live workers") == "1"


async def test_outcomes_of_today_are_counted_and_every_figure_leads_to_its_list(ask: ApiClient) -> None:
    await _run(ask, "writer", "report", NOTHING)
    await _run(ask, "writer", "broken", FAILING)
    html = await _home(ask)
    assert "First steps" not in html
    assert (_figure(html, "Succeeded"), _figure(html, "Failed")) == ("1", "1")
    assert _figure(html, "Start delay p50").endswith("ms")
    for path in ("runs?state=failed", "runs?state=running", "workers", "cost", "calendar"):
        assert f'href="/workspaces/default/{path}"' in html, path
    assert re.search(r'href="/workspaces/default/dead-letters">.*1 dead letter<', html)
    assert re.search(r'href="/workspaces/default/jobs\?state=failing">.*1 failing job<', html)


async def test_the_next_runs_have_names(ask: ApiClient) -> None:
    await ask("POST", "/agents/writer/jobs", {"name": "soon", "schedule": "every 10m", "target": NOTHING})
    html = await _home(ask)
    assert 'aria-label="The next runs"' in html
    assert "/agents/writer/jobs/soon" in html


async def test_an_agents_key_sees_the_figures_of_its_agent(ask: ApiClient) -> None:
    await _run(ask, "writer", "report", NOTHING)
    await _run(ask, "other", "broken", FAILING, "every 30m")
    html = await _home(await ask.new("agent", agent="writer"))
    assert (_figure(html, "Succeeded"), _figure(html, "Failed")) == ("1", "0")
    assert "dead letter<" not in html
    assert "broken" not in html


async def test_a_blocked_run_names_what_its_own_workspace_lacks(ask: ApiClient) -> None:
    assert (await ask("PUT", "/api/workspaces/acme", {})).status == 201
    for workspace, function in (("acme", "theirs"), ("default", "ours"), ("default", "ours")):
        jobs = f"/api/workspaces/{workspace}/agents/default/jobs"
        target = {"kind": "function", "name": function}
        await ask(
            "PUT", f"{jobs}/{function}", {"schedule": SELDOM, "target": target, "overlapPolicy": "allow"}
        )
        assert (await ask("POST", f"{jobs}/{function}/run")).status == 201
    html = await _home(ask)
    assert "2 due runs that no process can launch" in html
    assert "the function &#39;ours&#39;" in html
    assert "theirs" not in html


async def test_a_member_gets_no_button_to_create_a_job(ask: ApiClient) -> None:
    assert "New job" in await _home(ask)
    assert "New job" not in await _home(await ask.new("member"))


async def test_the_day_begins_in_the_zone_of_the_cookie_and_an_unknown_zone_is_utc(ask: ApiClient) -> None:
    for zone in ("Asia/Tokyo", "../../etc/passwd", "%00"):
        assert "Today" in await _home(ask, cookie=f"wakeful_tz={zone}")


async def test_each_region_can_be_fetched_alone(ask: ApiClient) -> None:
    for region, text in (
        ("attention", "All good"),
        ("next", "The next hour"),
        ("today", "Succeeded"),
        ("now", "p99"),
    ):
        html = await _home(ask, **{"x-wakeful-region": region})
        assert text in html
        assert "<html" not in html
