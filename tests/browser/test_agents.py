"""Agents and incidents in a real browser: create, edit with a conflict, deactivate, wake, delete."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import Tab
from tests.support.api_client import ApiClient
from tests.support.dashboard_pages import fill
from tests.support.waiting import eventually
from wakeful import Agent, Schedule, SetState, on

#: JavaScript has no such number.
LARGE = 2**60 + 1


async def test_an_agent_is_created_edited_and_deleted(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    tab.expected += ["status of 412", "status of 422"]
    await tab.open("agents")
    await page.get_by_role("link", name="New agent").click()
    await page.get_by_label("Name", exact=True).fill("writer")
    await page.get_by_label("Description").fill("Writes reports")
    await page.get_by_label("Time zone").fill("Mars/Olympus")
    await page.get_by_label("Target (JSON)").fill('{"kind": "webhook", "url": "https://example.com/wake"}')
    await page.get_by_role("button", name="Create").click()
    await page.locator("#tz-error", has_text="Mars/Olympus").wait_for()
    await page.get_by_label("Time zone").fill("Asia/Tokyo")
    await page.get_by_role("button", name="Create").click()
    # The secret of a new webhook is shown once.
    await page.get_by_role("dialog").locator("pre", has_text="whsec_").wait_for()
    await page.get_by_role("button", name="I have saved it").click()
    await page.wait_for_url("**/agents/writer")
    stored = (await ask("GET", "/agents/writer")).body
    assert (stored["tz"], stored["description"]) == ("Asia/Tokyo", "Writes reports")

    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("Budget: tokens per day").fill("5000")
    await ask("PUT", "/agents/writer", {**stored, "description": "Changed elsewhere"})
    await page.get_by_role("button", name="Save").click()
    await page.locator(".conflict td.changed", has_text="Changed elsewhere").wait_for()
    await page.get_by_role("button", name="Save both changes").click()
    await page.wait_for_url("**/agents/writer")
    stored = (await ask("GET", "/agents/writer")).body
    assert (stored["budget"], stored["description"]) == ({"tokensPerDay": 5000}, "Changed elsewhere")

    await page.get_by_role("button", name="Deactivate").click()
    await page.locator("dialog[open] button[value=ok]").click()
    await page.get_by_role("button", name="Activate", exact=True).wait_for()
    after = (await ask("GET", "/agents/writer")).body
    assert after["active"] is False
    assert after["target"] == stored["target"], "the switch keeps all other fields"

    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_label("Type writer to confirm").fill("writer")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await page.wait_for_url("**/agents")
    await page.locator(".toast", has_text="writer is deleted").wait_for()
    assert (await ask("GET", "/agents/writer")).status == 404


async def test_a_form_that_is_saved_as_it_is_changes_nothing(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    budget = {"tokensPerDay": 5_000, "costPerDay": 1.25, "tokensPerRun": 900, "costPerRun": 0.5}
    alerts = {"url": "https://example.com/alerts", "failures": 3}
    agent = {
        "target": {
            "kind": "chat",
            "url": "https://example.com/v1",
            "model": "small",
            "options": {"seed": LARGE, "top_p": 1.0},
        },
        "tz": "Asia/Tokyo",
        "channel": "ops",
        "to": "@ada",
        "description": "Writes\nreports",
        "budget": budget,
        "active": False,
        "alerts": alerts,
        "queue": {"mode": "followup", "cap": 3},
        "heartbeat": {"every": "30m", "activeHours": "08:00-20:00"},
        "deliverTo": [{"channel": "telegram", "to": "123"}],
        "approval": "required",
        "selfScheduling": {"recurring": True},
        "evolution": "suggest",
    }
    assert (await ask("PUT", "/agents/writer", agent)).status == 201
    whole = {
        "tz": "Asia/Tokyo",
        "description": "ACME\nTokyo",
        "budget": budget,
        "alerts": alerts,
        "laneWeight": 1.2345678,
    }
    assert (await ask("PUT", "/api/workspaces/default", whole)).status == 200

    async def stored(path: str) -> dict[str, object]:
        document = (await ask("GET", path)).body
        return {name: document[name] for name in document if name not in ("version", "updatedAt", "spent")}

    for path, form, done in (
        ("/agents/writer", "agents/writer/edit", "**/agents/writer"),
        ("/api/workspaces/default", "workspace", "**/workspace"),
    ):
        before = await stored(path)
        assert set(agent if "agents" in path else whole) <= {name for name in before if before[name]} | {
            "active"
        }
        await tab.open(form)
        await page.get_by_role("button", name="Save").click()
        await page.wait_for_url(done)
        await page.locator(".toast").wait_for()  # after the page has loaded again
        assert await stored(path) == before

    before = await stored("/agents/writer")
    await tab.open("agents", "writer")
    await page.get_by_role("button", name="Activate").click()
    await page.get_by_role("button", name="Deactivate").wait_for()
    assert await stored("/agents/writer") == {**before, "active": True}


async def test_a_new_agent_does_not_replace_another(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["status of 412"]
    await ask("PUT", "/agents/writer", {"description": "the first"})
    await tab.open("new-agent")
    await tab.page.get_by_label("Name", exact=True).fill("writer")
    await tab.page.get_by_role("button", name="Create").click()
    await tab.page.locator("#name-error", has_text="There is an agent writer already").wait_for()
    assert (await ask("GET", "/agents/writer")).body["description"] == "the first"


class Report(Agent):
    """Counts what it generates."""

    name = "report"
    state = {"count": 0}
    schedules = [Schedule("0 6 * * *", "report.generate", job_id="daily")]

    @on("report.generate")
    async def generate(self, signal, ctx):
        return [SetState(count=ctx.state["count"] + signal.data["by"])]


async def test_an_instance_gets_a_signal_and_is_paused_stopped_and_started(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    ask.app.agent(Report)
    assert (await ask("POST", "/agents/report/instances/eu/start")).status == 200
    await tab.open("agents", "report")
    await page.get_by_text("Send a signal").click()
    await page.get_by_label("Type", exact=True).fill("report.generate")
    await page.get_by_label("Instance", exact=True).fill("eu")
    await page.get_by_label("Data (JSON)").fill("{")
    await page.get_by_role("button", name="Send").click()
    await page.locator("#signal-data-error", has_text="This is not JSON").wait_for()
    await page.get_by_label("Data (JSON)").fill(f'{{"by": {LARGE}}}')
    await page.get_by_role("button", name="Send").click()
    await page.wait_for_url("**/runs/*")

    async def counted() -> bool:
        return bool((await ask("GET", "/agents/report/instances/eu")).body["state"]["count"] == LARGE)

    await eventually(counted)
    await tab.open("agents", "report", "instances", "eu")
    assert f'"count": {LARGE}' in await page.locator("#instance pre").first.inner_text()
    assert await page.get_by_role("link", name="eu-daily").count() == 1
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_label("Note").fill("maintenance")
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await page.locator(".notice", has_text="maintenance").wait_for()
    await page.get_by_role("button", name="Resume").click()
    await page.get_by_role("button", name="Hibernate").wait_for()
    await page.get_by_role("button", name="Stop").click()
    await page.locator("dialog[open] button[value=ok]").click()
    await page.get_by_role("button", name="Start").click()
    await page.get_by_role("button", name="Pause").wait_for()
    assert (await ask("GET", "/agents/report/instances/eu")).body["state"] == {"count": 0}


async def test_the_secret_of_an_agent_is_rotated_and_shown_once(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    target = {"kind": "webhook", "url": "https://example.com/wake"}
    first = (await ask("PUT", "/agents/writer", {"target": target})).body["secret"]
    await tab.open("agents", "writer")
    await page.get_by_label("More actions").click()
    await page.get_by_role("button", name="Rotate secret").click()
    await page.locator("dialog[open] button[value=ok]").click()
    shown = await page.get_by_role("dialog").locator("pre").inner_text()
    assert shown.startswith("whsec_")
    assert shown != first
    async with page.expect_navigation():
        await page.get_by_role("button", name="I have saved it").click()
    await tab.loaded()
    assert "whsec_" not in await page.content()


async def test_an_agent_is_woken(tab: Tab, ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"target": {"kind": "echo"}})
    await tab.open("agents", "writer")
    await tab.page.get_by_label("Message").fill("look at this")
    await tab.page.get_by_role("button", name="Wake").click()
    await tab.page.wait_for_url("**/runs/*")
    (run,) = (await ask("GET", "/agents/writer/runs")).body["runs"]
    assert (run["trigger"], run["payload"]) == ("user", {"message": "look at this"})


async def test_what_another_decides_changes_the_heading_and_the_buttons_of_an_open_page(
    tab: Tab, ask: ApiClient
) -> None:
    world = await fill(ask)
    await tab.open("incidents", world.incident)
    await tab.page.get_by_role("button", name="Acknowledge").wait_for()
    await ask("POST", f"/incidents/{world.incident}/ack", {})
    await tab.page.locator("h1 .state", has_text="Acknowledged").wait_for()
    await tab.page.get_by_role("button", name="Acknowledge").wait_for(state="detached")

    ask.app.agent(Report)
    instance = "/agents/report/instances/eu"
    await ask("POST", f"{instance}/start")
    await tab.open("agents", "report", "instances", "eu")
    await tab.page.get_by_role("button", name="Pause").wait_for()
    reply = await ask("POST", f"{instance}/pause")
    assert reply.status == 200, reply
    await tab.page.locator("h1 .state", has_text="Paused").wait_for()
    await tab.page.get_by_role("button", name="Resume").wait_for()


async def test_a_part_of_a_page_that_the_server_fails_to_render_is_fetched_again(
    tab: Tab, ask: ApiClient
) -> None:
    world = await fill(ask)
    await tab.open("incidents", world.incident)
    failures: list[str] = []

    async def fail_once(route: Any) -> None:
        if "x-wakeful-region" in route.request.headers and not failures:
            failures.append(route.request.url)
            await route.fulfill(status=503, body="busy")
        else:
            await route.continue_()

    tab.expected.append("503")
    await tab.page.route("**/incidents/*", fail_once)
    await ask("POST", f"/incidents/{world.incident}/ack", {})
    await tab.page.locator("h1 .state", has_text="Acknowledged").wait_for()
    assert failures


async def test_an_incident_is_acknowledged_with_a_note(tab: Tab, ask: ApiClient) -> None:
    world = await fill(ask)
    await tab.open("incidents")
    await tab.page.get_by_role("link", name="it never works").click()
    await tab.page.get_by_label("Note").fill("known, wait for the vendor")
    await tab.page.get_by_role("button", name="Acknowledge").click()
    await tab.page.locator("dd", has_text="known, wait for the vendor").wait_for()
    incident = (await ask("GET", f"/incidents/{world.incident}")).body
    assert (incident["state"], incident["note"]) == ("acknowledged", "known, wait for the vendor")
