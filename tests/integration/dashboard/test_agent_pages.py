"""Pages about agents, chats, instances, dead letters and incidents: content, roles, hostile values."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.waiting import eventually
from wakeful import Agent, Launch, Permanent, Schedule, SetState, on
from wakeful.agents.sessions import start_turns
from wakeful.dashboard import markdown
from wakeful.service.agents import sessions as session_service
from wakeful.store.sessions import SessionKey, SessionState, SessionUpdate
from wakeful.values.ids import new_id

PAGES = "/workspaces/default"
HOSTILE = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


class Report(Agent):
    """An agent class."""

    name = "report"
    version = 3
    state = {"count": 0, "text": HOSTILE}
    schedules = [Schedule("0 6 * * *", "report.generate", job_id="daily")]

    @on("report.generate")
    async def generate(self, signal, ctx):
        return [SetState(count=ctx.state["count"] + 1)]


@pytest.fixture
async def ask(new_app: NewApp) -> AsyncIterator[ApiClient]:
    app = new_app()
    app.agent(Report)

    @app.function()
    async def picky(run: Launch) -> str:
        assert isinstance(run.payload, dict)
        if run.payload.get("fine"):
            return HOSTILE
        raise Permanent(str(run.payload.get("error", HOSTILE)))

    async with app, served(app) as client:
        yield client


async def _page(ask: ApiClient, *parts: str, status: int = 200, **query: str | int) -> str:
    where = "/".join(quote(part, safe="") for part in parts)
    reply = await ask("GET", f"{PAGES}/{where}", **query)  # type: ignore[arg-type]
    assert reply.status == status, reply
    assert "<script>alert" not in reply.body
    assert "<img src=x" not in reply.body
    return str(reply.body)


async def _region(ask: ApiClient, name: str, *parts: str) -> str:
    reply = await ask("GET", f"{PAGES}/{'/'.join(parts)}", headers={"x-wakeful-region": name})
    assert (reply.status, "<html" in reply.body) == (200, False), reply
    return str(reply.body)


async def _failed(ask: ApiClient, *errors: str, job: str = "orders") -> list[str]:
    target = {"kind": "function", "name": "picky"}
    await ask("PUT", f"{JOBS}/{job}", {"schedule": SELDOM, "target": target})
    ids = [
        (await ask("POST", f"{JOBS}/{job}/run", {"payload": {"error": error}})).body["id"] for error in errors
    ]

    async def over() -> bool:
        return len((await ask("GET", "/dead-letters", job=job)).body["deadLetters"]) == len(errors)

    await eventually(over)
    return ids


async def _talked(ask: ApiClient, agent: str, session: str, entries: int) -> None:
    """Wait until the history of a session has this many entries."""

    async def there() -> bool:
        reply = await ask("GET", f"/agents/{agent}/sessions/{session}")
        return reply.status == 200 and len(reply.body["history"]) >= entries

    await eventually(there)


async def test_the_list_and_the_page_of_an_agent(ask: ApiClient) -> None:
    document = {
        "description": HOSTILE,
        "target": {
            "kind": "webhook",
            "url": "https://me:pa55word@a.example/hook",
            "headers": {"x-key": "pa55word"},
        },
        "tz": "Asia/Tokyo",
        "budget": {"tokensPerDay": 1000, "costPerDay": 2},
        "heartbeat": {"every": "45m", "activeHours": "08:00-20:00", "message": HOSTILE},
        "approval": "required",
    }
    assert (await ask("PUT", "/agents/writer", document)).status == 201
    await ask("POST", "/agents/writer/jobs", {"name": "digest", "schedule": SELDOM})
    listed = await _page(ask, "agents")
    for text in (
        "Asia/Tokyo",
        "webhook",
        "every 45 m",
        "0 of 1,000 tokens",
        html.escape(HOSTILE[:20], quote=False),
    ):
        assert text in listed, text
    assert "version 3" in listed
    shown = await _page(ask, "agents", "writer")
    for text in (
        "required",
        "08:00-20:00",
        "Next heartbeat",
        "Tokens left today",
        "Rotate secret",
        "Wake now",
    ):
        assert text in shown, text
    assert "pa55word" not in shown, "a page that is read shows no credentials, to admins neither"
    member = await ask.new("member")
    seen = await _page(member, "agents", "writer")
    assert "pa55word" not in seen
    for text in ("Rotate secret", "Wake now", "Deactivate", f"{PAGES}/agents/writer/edit"):
        assert text not in seen, text
    assert (await ask("GET", f"{PAGES}/agents/nobody")).status == 404


async def test_agents_are_searched_and_paged(ask: ApiClient) -> None:
    for number in range(55):
        await ask("PUT", f"/agents/team-{number:02}", {})
    first = await _page(ask, "agents", q="team")
    assert "team-49" in first
    assert "team-50" not in first
    assert "report" not in re.findall(r"agents/([a-z0-9-]+)\"", first)
    assert "team-54" in await _page(ask, "agents", q="team", cursor="team-49")
    assert "No agent has this text" in await _page(ask, "agents", q=HOSTILE)


@on_one_store
async def test_forms_are_for_admins_and_have_all_fields(ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"queue": {"mode": "interrupt"}, "description": HOSTILE})
    form = await _page(ask, "agents", "writer", "edit")
    assert 'data-version="1"' in form
    assert "interrupt" in form
    await _page(ask, "new-agent")
    member = await ask.new("member")
    await _page(member, "new-agent", status=403)
    await _page(member, "agents", "writer", "edit", status=403)


async def test_a_conversation_shows_messages_answers_and_failures(ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"target": {"kind": "echo"}, "queue": {"debounceMs": 0}})
    session = "telegram:1"
    await ask("POST", "/agents/writer/messages", {"message": HOSTILE, "session": session})
    await _talked(ask, "writer", session, 2)
    shown = await _page(ask, "agents", "writer", "sessions", session)
    assert HOSTILE in html.unescape(shown)
    assert HOSTILE[:20] not in shown
    assert shown.count("bubble assistant") == 1
    # The agent fails from now on.
    await ask(
        "PUT", "/agents/writer", {"target": {"kind": "function", "name": "picky"}, "queue": {"debounceMs": 0}}
    )
    await ask("POST", "/agents/writer/messages", {"message": "again", "session": session})

    async def failed() -> bool:
        return "turn-failed" in await _region(ask, "chat", "agents", "writer", "sessions", quote(session))

    await eventually(failed)
    region = await _region(ask, "chat", "agents", "writer", "sessions", quote(session))
    assert "again" in region, "a message whose turn failed is not lost"


async def test_each_message_of_a_turn_is_a_bubble_also_in_an_old_turn(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask("PUT", "/agents/writer", {"target": {"kind": "echo"}, "queue": {"debounceMs": 60_000}})
    for message in ("good morning", "two\n\nparagraphs", "bye"):
        await ask("POST", "/agents/writer/messages", {"message": message, "session": "main"})
    store, key = ask.app.services.store, SessionKey("default", "writer", "main")
    now_ms = store.clock.now_ms()

    def start_now(talk: SessionState) -> SessionUpdate:
        messages = [message._replace(at_ms=now_ms - 60_000) for message in talk.messages]
        return start_turns(talk._replace(messages=messages), now_ms)

    await store.update_session(key, now_ms, start_now)
    await _talked(ask, "writer", "main", 2)
    for read in (50, 0):  # the turn is one of the newest, or none of them
        monkeypatch.setattr(session_service, "_TURNS", read)
        shown = await _page(ask, "agents", "writer", "sessions", "main")
        found = re.findall(r'bubble user.*?bubble-text markdown">(.*?)</div>', shown, re.DOTALL)
        texts = [" ".join(re.sub("<[^>]+>", " ", each).split()) for each in found]
        assert texts == ["good morning", "two paragraphs", "bye"], texts


async def test_waiting_messages_and_running_turns_are_shown(ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"target": {"kind": "pull"}, "queue": {"debounceMs": 0}})
    await ask("POST", "/agents/writer/messages", {"message": "first", "session": "main"})

    async def begun() -> bool:
        return bool((await ask("GET", "/agents/writer/sessions/main")).body["turns"])

    await eventually(begun)
    await ask("POST", "/agents/writer/messages", {"message": "second", "session": "main"})
    shown = await _region(ask, "chat", "agents", "writer", "sessions", "main")
    assert "turn-pending" in shown
    assert re.search(r"bubble user waiting.*second", shown, re.DOTALL)
    assert 'data-busy="true"' in shown


@on_one_store
async def test_long_texts_are_not_rendered_in_the_event_loop(
    ask: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def parse(text: str) -> list[Token]:
        threads.append(threading.current_thread())
        return MarkdownIt().parse(text)

    monkeypatch.setattr(markdown, "_PARSER", SimpleNamespace(**vars(markdown._PARSER) | {"parse": parse}))
    await ask("PUT", "/agents/writer", {"target": {"kind": "echo"}, "queue": {"debounceMs": 0}})
    said = f"# {new_id(0)}\n" + "- a\n" * 1_000
    await ask("POST", "/agents/writer/messages", {"message": said, "session": "main"})
    await _talked(ask, "writer", "main", 2)
    await _page(ask, "agents", "writer", "sessions", "main")
    (run,) = (await ask("GET", "/agents/writer/runs")).body["runs"]
    await _page(ask, "runs", run["id"])
    assert threads
    assert threading.main_thread() not in threads


@on_one_store
async def test_long_histories_have_pages(ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {"target": {"kind": "echo"}, "queue": {"debounceMs": 0}})
    for number in range(30):
        await ask("POST", "/agents/writer/messages", {"message": f"message-{number:02}", "session": "main"})
        await _talked(ask, "writer", "main", min(2 * number + 2, 50))

    async def all_are_written() -> bool:
        key = SessionKey("default", "writer", "main")
        return len(await ask.app.services.store.history(key, None, 99)) == 60

    await eventually(all_are_written)
    newest = await _page(ask, "agents", "writer", "sessions", "main")
    assert "message-29" in newest
    assert "message-04" not in newest
    (cursor,) = re.findall(r"sessions/main\?cursor=(\d+)", newest)
    older = await _page(ask, "agents", "writer", "sessions", "main", cursor=cursor)
    assert "message-04" in older
    assert "message-29" not in older
    assert "data-region" not in older, "older pages are not live"


@on_one_store
async def test_a_conversation_can_be_new_and_that_of_a_job_takes_no_messages(ask: ApiClient) -> None:
    assert "Write the first one below" in await _page(ask, "agents", "default", "sessions", "new-one")
    assert "takes no messages" in await _page(ask, "agents", "default", "sessions", "job:digest")
    await _page(ask, "agents", "default", "sessions", "not a name", status=422)
    await _page(ask, "agents", "nobody", "sessions", "main", status=404)


async def test_an_instance_with_its_state_for_admins_only(ask: ApiClient) -> None:
    await ask("POST", "/agents/report/instances/eu/start")
    await ask("POST", "/agents/report/instances/eu/pause", {"note": HOSTILE[:200]})
    event = {"specversion": "1.0", "source": "/x", "type": "report.generate"}
    for number in range(2):
        await ask("POST", "/agents/report/signals?instance=eu", {**event, "id": str(number)})
    shown = await _page(ask, "agents", "report", "instances", "eu")
    for text in ("Paused", "report.generate", "declared", "&#34;count&#34;: 0", "Resume"):
        assert text in shown, text
    assert "instances/eu" in await _page(ask, "agents", "report", "instances", status=200)
    for query, number in (("agent=report&amp;instance=eu", 2), ("agent=report&amp;instance=us", 0)):
        listed = (await ask("GET", f"{PAGES}/runs?{html.unescape(query)}")).body
        assert (f"/runs?{query}" in shown, len(re.findall('data-key="', listed))) == (number > 0, number)
    member = await ask.new("member")
    seen = await _page(member, "agents", "report", "instances", "eu")
    assert "count" not in seen
    assert "/resume" not in seen
    assert (await ask("GET", f"{PAGES}/agents/report/instances/nothing")).status == 404


async def test_dead_letters_by_cause_and_the_runs_of_a_group(ask: ApiClient) -> None:
    ids = await _failed(ask, "order 17 refused", "order 18 refused", HOSTILE)
    groups = await _page(ask, "dead-letters")
    assert groups.count('class="card group"') == 2
    assert "order # refused" in groups
    assert 'data-count="2"' in groups
    (link,) = re.findall(r'href="([^"]*cause=order[^"]*)"', groups)
    runs = await ask("GET", html.unescape(link))
    assert [each for each in ids if each in runs.body] == ids[:2]
    everything = await _page(ask, "dead-letters", view="runs")
    assert all(each in everything for each in ids)
    member = await ask.new("member")
    assert "data-bulk" not in await _page(member, "dead-letters")
    assert "order # refused" in await _region(ask, "groups", "dead-letters")


async def test_incidents(ask: ApiClient) -> None:
    await _failed(ask, HOSTILE)

    async def opened() -> list[dict[str, str]]:
        found: list[dict[str, str]] = (await ask("GET", "/incidents")).body["incidents"]
        return found

    (incident,) = await eventually(opened)
    listed = await _page(ask, "incidents")
    assert incident["id"] in listed
    shown = await _page(ask, "incidents", incident["id"])
    assert "Acknowledge" in shown
    assert f"{PAGES}/agents/default/jobs/orders" in shown
    await ask("POST", f"/incidents/{incident['id']}/ack", {"note": HOSTILE[:500]})
    shown = await _page(ask, "incidents", incident["id"])
    assert "Acknowledged" in shown
    assert 'data-form="acknowledge"' not in shown
    assert incident["id"] in await _page(ask, "incidents", state="acknowledged")
    assert incident["id"] not in await _page(ask, "incidents", state="open")
    assert "incidents" in await _page(ask, "incidents", state="nonsense", cursor="nonsense")
    await ask("DELETE", f"{JOBS}/orders")
    assert "(deleted)" in await _page(ask, "incidents", incident["id"])


@on_one_store
async def test_an_agent_sees_its_own_pages_only(ask: ApiClient) -> None:
    await ask("PUT", "/agents/writer", {})
    await _failed(ask, "refused")
    agent = await ask.new("agent", agent="writer")
    listed = await _page(agent, "agents")
    assert re.findall(r'agents/([a-z]+)"', listed) == ["writer"]
    assert "No dead letters" in await _page(agent, "dead-letters")
    assert "No incidents" in await _page(agent, "incidents")
    await _page(agent, "agents", "default", status=404)
    await _page(agent, "agents", "default", "sessions", "main", status=404)
