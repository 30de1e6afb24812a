"""Cost, suggestions, audit, keys, quotas, channels and workspaces in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.browser.conftest import QUICK, NewTab, Tab
from tests.support.api_client import ApiClient
from tests.support.databases import SqliteDatabase
from tests.support.receiver import Receiver
from tests.support.sqlite_files import fresh_file
from tests.support.suggestions import suggest
from wakeful import Wakeful
from wakeful.settings import Settings

PAGES = ("cost", "suggestions", "audit", "keys", "quotas", "channels", "workers", "workspace", "settings")
SECRET = "Sw0rdf1sh"
HOSTILE = "</td><script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>"
SELDOM = "0 0 29 2 *"


@pytest_asyncio.fixture(loop_scope="session")
async def app(tmp_path: Path, receiver: Receiver) -> AsyncIterator[Wakeful]:
    """Return a running scheduler with channels."""
    made = Wakeful(
        f"sqlite:///{fresh_file(tmp_path / 'wakeful.db')}",
        config=QUICK,
        secret_key="a key for tests",
        allow_private_targets=True,
        settings=Settings(
            channels={
                "ops": f"json://u:{SECRET}@127.0.0.1:{receiver.port}/{SECRET}",
                "person": f"json://127.0.0.1:{receiver.port}/{{to}}?-token={SECRET}",
            }
        ),
    )
    async with made:
        yield made


async def _fill(ask: ApiClient) -> None:
    """Give every page something to show."""
    await ask("PUT", "/agents/writer", {"budget": {"tokensPerDay": 50}})
    document = {"schedule": SELDOM, "target": {"kind": "pull"}}
    for job in ("digest", "other"):
        await ask("PUT", f"/agents/writer/jobs/{job}", document)
        await ask("POST", f"/agents/writer/jobs/{job}/run")
    runs = (await ask("POST", "/runs/claim", {"worker": HOSTILE, "agents": ["writer"], "limit": 2})).body[
        "runs"
    ]
    body = {"attempt": 1, "status": "succeeded", "usage": {"tokens": 90, "cost": 1.5}}
    await ask("POST", f"/runs/{runs[0]['id']}/complete", body)
    await ask("POST", "/keys", {"name": HOSTILE, "role": "member"})
    await ask("PUT", "/api/workspaces/default", {"description": HOSTILE, "budget": {"costPerDay": 9}})
    await suggest(ask.app.services.store, "writer", "digest")


async def test_all_pages_follow_the_rules(new_tab: NewTab, ask: ApiClient) -> None:
    await _fill(ask)
    tab = await new_tab(phone=True)
    for path in PAGES:
        await tab.open(path)
        await tab.audit()
        assert SECRET not in await tab.page.content(), path


async def test_a_key_is_created_shown_once_and_revoked(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    tab.expected += ["status of 422"]
    await tab.open("keys")
    await page.get_by_role("button", name="New key").click()
    await page.get_by_label("Name").fill("laptop")
    await page.get_by_label("Role").select_option("agent")
    await page.get_by_role("button", name="Create").click()
    await page.get_by_text("a key of the role agent is bound to one agent").wait_for()
    await page.get_by_label("Agent", exact=True).fill("writer")
    await page.get_by_role("button", name="Create").click()
    text = await page.get_by_role("dialog").locator("pre", has_text="wk_").inner_text()
    assert (await ask.with_key(text.strip())("GET", "/jobs")).status == 200
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
    row = page.get_by_role("row", name="laptop")
    await row.wait_for()
    assert text not in await page.content()
    await row.get_by_role("button", name="Revoke").click()
    await page.locator("dialog[open] button[value=ok]").click()
    await row.wait_for(state="detached")
    assert (await ask.with_key(text.strip())("GET", "/jobs")).status == 401


async def test_a_sign_in_session_of_a_key_is_ended(new_tab: NewTab, ask: ApiClient) -> None:
    member = await ask.new("member", name="laptop")
    await new_tab(member)
    tab = await new_tab()
    await tab.open("keys")
    await tab.page.get_by_role("link", name="laptop").click()
    await tab.page.get_by_role("button", name="End", exact=True).click()
    await tab.page.locator("dialog[open] button[value=ok]").click()
    await tab.page.get_by_text("No one is signed in with this key").wait_for()


async def test_the_audit_is_verified_and_a_change_is_found(tab: Tab, ask: ApiClient, app: Wakeful) -> None:
    for number in range(3):
        await ask("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": number})
    await tab.open("audit")
    await tab.page.get_by_role("button", name="Verify").click()
    await tab.page.get_by_text("none was changed, removed or reordered").wait_for()
    database = SqliteDatabase.__new__(SqliteDatabase)
    database.path = Path(app.services.store._connection._path)  # type: ignore[attr-defined]
    await database.execute("UPDATE audit SET subject = 'other' WHERE seq = 2")
    await tab.page.get_by_role("button", name="Verify").click()
    await tab.page.get_by_text("The chain is broken: entry 2").wait_for()


async def test_entries_are_filtered_and_their_details_open_by_keyboard(tab: Tab, ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"tz": "Asia/Tokyo"})
    await tab.open("audit")
    await tab.page.get_by_label("Action").fill("agent")
    await tab.page.keyboard.press("Enter")
    await tab.page.wait_for_url("**action=agent**")
    summary = tab.page.locator("tbody summary").first
    await summary.focus()
    await tab.page.keyboard.press("Enter")
    await tab.page.locator("details[open] pre", has_text='"tz"').wait_for()
    assert await tab.page.locator("tbody tr").count() == 1


async def test_a_test_message_is_sent_to_a_channel(tab: Tab, receiver: Receiver) -> None:
    await tab.open("channels")
    row = tab.page.get_by_role("row", name="ops")
    await row.get_by_role("button", name="Send a test").click()
    await row.get_by_text("Accepted").wait_for()
    assert "test message" in receiver.bodies[0].decode()
    receiver.answers(500)
    await row.get_by_role("button", name="Send a test").click()
    await row.get_by_text("the service responded with HTTP 500").wait_for()
    person = tab.page.get_by_role("row", name="person")
    await person.get_by_label("Recipient").fill("ada")
    receiver.answers(200)
    await person.get_by_role("button", name="Send a test").click()
    await person.get_by_text("Accepted").wait_for()
    assert receiver.requests[-1].path == "/ada"
    assert SECRET not in await tab.page.content()


async def test_a_suggestion_is_applied_and_rolled_back(tab: Tab, ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer/jobs/digest", {"schedule": SELDOM, "target": {"kind": "pull"}})
    await suggest(ask.app.services.store, "writer", "digest")

    async def timeout() -> object:
        return (await ask("GET", "/agents/writer/jobs/digest")).body.get("timeoutMs")

    before = await timeout()
    await tab.open("suggestions")
    await tab.page.get_by_text("+ timeoutMs: 1 m").wait_for()
    await tab.page.get_by_role("button", name="Apply").click()
    await tab.page.locator("dialog[open] button[value=ok]").click()
    await tab.page.get_by_text("No open suggestions").wait_for()
    assert await timeout() == 60_000
    await tab.page.get_by_role("link", name="Applied").click()
    await tab.page.get_by_role("button", name="Roll back").click()
    await tab.page.locator("dialog[open] button[value=ok]").click()
    await tab.page.get_by_text("Nothing here").wait_for()
    assert await timeout() == before
    await tab.page.get_by_role("link", name="Rolled back").click()
    await tab.page.get_by_role("link", name="digest").wait_for()


async def test_a_limit_is_set_and_removed(tab: Tab, ask: ApiClient) -> None:
    await tab.open("quotas")
    await tab.page.get_by_role("button", name="Change the limit of the workspace: Jobs that exist").click()
    await tab.page.get_by_label("Limit", exact=True).fill("7")
    await tab.page.get_by_role("button", name="Save").click()
    row = tab.page.get_by_role("row", name="scheduler.liveJobs")
    await row.get_by_role("cell", name="7", exact=True).wait_for()
    await row.get_by_role("button").click()
    await tab.page.get_by_label("Limit", exact=True).fill("")
    await tab.page.get_by_role("button", name="Save").click()
    await row.get_by_role("cell", name="none").wait_for()


async def test_a_limit_that_another_person_changed_is_not_overwritten_unseen(
    tab: Tab, ask: ApiClient
) -> None:
    tab.expected += ["status of 412"]
    await tab.open("quotas")
    await tab.page.get_by_role("button", name="Set a limit").click()
    await tab.page.get_by_label("Bucket").select_option("scheduler.liveJobs")
    await tab.page.get_by_label("Limit", exact=True).fill("7")
    await ask("PUT", "/quotas", {"bucket": "scheduler.liveJobs", "limit": 5})
    await tab.page.get_by_role("button", name="Save").click()
    await tab.page.get_by_text("the limit is 5 now; read it again. Save again to replace it.").wait_for()
    await tab.page.get_by_role("button", name="Save").click()
    row = tab.page.get_by_role("row", name="scheduler.liveJobs")
    await row.get_by_role("cell", name="7", exact=True).wait_for()


async def test_a_workspace_is_created_edited_and_switched(tab: Tab, ask: ApiClient) -> None:
    tab.expected += ["status of 404", "status of 422"]
    page = tab.page
    await tab.open("workspace")
    await page.get_by_label("Name", exact=True).fill("acme")
    await page.get_by_role("button", name="Create").click()
    await page.wait_for_url("**/workspaces/acme/workspace")
    await page.get_by_label("Zone of jobs").fill("Mars/Olympus")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("Mars/Olympus").wait_for()
    await page.get_by_label("Zone of jobs").fill("Asia/Tokyo")
    await page.get_by_label("Budget: cost a day").fill("2.5")
    await page.get_by_role("button", name="Save").click()
    await page.locator("dd", has_text="Asia/Tokyo").wait_for()
    stored = (await ask("GET", "/api/workspaces/acme")).body
    assert (stored["tz"], stored["budget"]) == ("Asia/Tokyo", {"costPerDay": 2.5})
    await page.locator(".switcher summary").click()
    await page.get_by_label("Find a workspace").fill("def")
    names = page.locator("[data-names] a")
    await page.locator("[data-names] a[href='/workspaces/acme/']").wait_for(state="detached")
    await names.first.click()
    await page.wait_for_url("**/workspaces/default/")


async def test_only_the_edited_fields_of_a_workspace_change(tab: Tab, ask: ApiClient) -> None:
    page = tab.page
    tab.expected += ["status of 412"]
    path = "/api/workspaces/default"
    await ask("PUT", path, {"budget": {"costPerDay": 2.5}})
    await tab.open("workspace")
    cap = page.get_by_label("Budget: cost a day")
    await cap.fill("")
    await cap.press_sequentially("3e")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_text("write a number, such as 2.5").wait_for()
    assert (await ask("GET", path)).body["budget"] == {"costPerDay": 2.5}, "no number does not remove the cap"
    await cap.fill("2.5")
    await page.get_by_label("Description").fill("ACME")
    await ask("PUT", path, {"budget": {"costPerDay": 1}, "tz": "Asia/Tokyo"})
    await page.get_by_role("button", name="Save").click()
    row = page.locator(".conflict tr", has_text="Budget: cost a day")
    await row.wait_for()
    assert await row.locator(".changed").all_inner_texts() == ["1"]
    await page.get_by_role("button", name="Save both changes").click()
    await page.locator("dd", has_text="ACME").wait_for()
    stored = (await ask("GET", path)).body
    assert (stored["description"], stored["tz"]) == ("ACME", "Asia/Tokyo")
    assert stored["budget"] == {"costPerDay": 1}


async def test_the_range_of_the_cost_is_chosen_and_downloaded(tab: Tab, ask: ApiClient) -> None:
    await _fill(ask)
    await tab.open("cost")
    await tab.page.get_by_role("link", name="7 days").click()
    await tab.page.wait_for_url("**days=7**")
    assert await tab.page.locator(".chart-columns").first.locator("rect").count() == 1
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("link", name="Download CSV").click()
    assert (await download.value).suggested_filename.startswith("wakeful-cost-default-")
    await tab.page.locator("#by-job").locator("..").get_by_role("link", name="digest").wait_for()


async def test_a_member_sees_no_controls(new_tab: NewTab, ask: ApiClient) -> None:
    await _fill(ask)
    tab = await new_tab(await ask.new("member"))
    for path in ("cost", "suggestions", "quotas", "workspace"):
        await tab.open(path)
        assert (
            await tab.page.locator("main [data-action], main [data-set-limit], main [data-save]").count() == 0
        )
    menu = await tab.page.locator("#navigation").inner_text()
    assert "Keys" not in menu
    assert "Cost" in menu
