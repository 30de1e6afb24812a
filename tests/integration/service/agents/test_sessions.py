"""The history of sessions, over HTTP, the client and the embedded API: every kind of turn adds to it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, over
from wakeful import Agent, AsyncClient, Function, Launch, NotFound, Permanent, on
from wakeful.document import work_from_text, work_to_text
from wakeful.job.job import Origin
from wakeful.model import SessionInfo
from wakeful.store.rows import JobChange, JobRow

SAY = "/agents/default/messages"
SESSIONS = "/agents/default/sessions"
AT_ONCE = {"queue": {"debounceMs": 0}}


async def history(ask: ApiClient, session: str = "main") -> list[tuple[str, str]]:
    """Return what was said, oldest first."""
    reply = await ask("GET", f"{SESSIONS}/{session}", limit=500)
    if reply.status == 404:
        return []
    return [(each["role"], each["content"]) for each in reversed(reply.body["history"])]


async def answered(ask: ApiClient, *expected: tuple[str, str], session: str = "main") -> None:
    async def there() -> bool:
        return await history(ask, session) == list(expected)

    await eventually(there)


async def ended(ask: ApiClient, run_id: str, state: str) -> None:
    async def there() -> bool:
        return bool((await ask("GET", f"/runs/{run_id}")).body["state"] == state)

    await eventually(there)


async def claim(ask: ApiClient) -> dict[str, Any]:
    (run,) = (await ask("POST", "/runs/claim", {"worker": "w", "waitMs": 30_000})).body["runs"]
    assert isinstance(run, dict)
    return run


async def test_a_completed_turn_adds_to_the_history_and_a_failed_one_does_not(ask: ApiClient):
    await ask("PUT", "/agents/default", AT_ONCE)
    await ask("POST", SAY, {"message": "hello"})
    run = await claim(ask)
    done = {"status": "succeeded", "attempt": 1, "output": "hi"}
    await ask("POST", f"/runs/{run['id']}/complete", done)
    assert await history(ask) == [("user", "hello"), ("assistant", "hi")]

    await ask("POST", SAY, {"message": "and now?"})
    run = await claim(ask)
    await ask("POST", f"/runs/{run['id']}/complete", {"status": "failed", "attempt": 1, "error": "no"})
    await ask("POST", SAY, {"message": "/stop"})
    assert await history(ask) == [("user", "hello"), ("assistant", "hi")]


async def test_a_turn_that_ends_with_a_callback_adds_to_the_history(ask: ApiClient, receiver: Receiver):
    target = {"kind": "webhook", "url": receiver.url, "completion": "callback"}
    await ask("PUT", "/agents/default", {"target": target, **AT_ONCE})
    run_id = (await ask("POST", SAY, {"message": "hello"})).body["runId"]
    await ended(ask, run_id, "running")
    reply = await ask("POST", f"/runs/{run_id}/complete", {"status": "succeeded", "output": "later"})
    assert reply.status == 200, reply
    assert await history(ask) == [("user", "hello"), ("assistant", "later")]


async def test_a_turn_of_a_function_adds_to_the_history(new_app: NewApp):
    app = new_app()

    @app.function("think")
    async def think(run: Launch) -> str:
        said = str(run.message)
        assert isinstance(run.payload, dict)
        run.payload["message"] = "changed by the function"
        assert run.session == "main"
        return f"you said {said}"

    async with app, served(app) as ask:
        await ask("PUT", "/agents/default", {"target": {"kind": "function", "name": "think"}, **AT_ONCE})
        await ask("POST", SAY, {"message": "hello"})
        await answered(ask, ("user", "hello"), ("assistant", "you said hello"))


async def test_a_turn_of_an_agent_class_adds_to_the_history(new_app: NewApp):
    app = new_app()

    class Echo(Agent):
        name = "default"

        @on("wakeful.message")
        async def heard(self, signal: Any, ctx: Any) -> str:
            return f"heard {signal.data['message']}"

    app.agent(Echo)
    async with app, served(app) as ask:
        await ask("PUT", "/agents/default", {"target": {"kind": "agent"}, **AT_ONCE})
        await ask("POST", SAY, {"message": "hello"})
        await answered(ask, ("user", "hello"), ("assistant", "heard hello"))


async def test_the_replay_of_a_failed_turn_adds_once(new_app: NewApp):
    app = new_app()
    works = False

    @app.function("think")
    async def think(run: Launch) -> str:
        if not works:
            raise Permanent("not yet")
        return f"{run.session}: at last"

    async with app, served(app) as ask:
        await ask("PUT", "/agents/default", {"target": {"kind": "function", "name": "think"}, **AT_ONCE})
        run_id = (await ask("POST", SAY, {"message": "hello", "session": "a"})).body["runId"]
        await ended(ask, run_id, "failed")
        assert await history(ask, "a") == []
        works = True
        await ask("POST", f"/runs/{run_id}/replay")
        await answered(ask, ("user", "hello"), ("assistant", "a: at last"), session="a")


async def test_a_stopped_turn_adds_nothing(ask: ApiClient):
    await ask("PUT", "/agents/default", AT_ONCE)
    run_id = (await ask("POST", SAY, {"message": "write a novel"})).body["runId"]
    await claim(ask)
    await ask("POST", SAY, {"message": "/stop"})
    late = {"status": "succeeded", "attempt": 1, "output": "Once upon a time"}
    assert (await ask("POST", f"/runs/{run_id}/complete", late)).status == 409
    assert await history(ask) == []


async def test_two_turns_at_once_add_question_and_answer_together(ask: ApiClient):
    await ask("PUT", "/agents/default", {"queue": {"debounceMs": 0, "turns": 2}})
    await ask("POST", SAY, {"message": "one?"})
    await ask("POST", SAY, {"message": "two?"})
    first, second = await claim(ask), await claim(ask)
    for run in (second, first):
        said = run["payload"]["message"]
        done = {"status": "succeeded", "attempt": 1, "output": said.replace("?", "!")}
        assert (await ask("POST", f"/runs/{run['id']}/complete", done)).status == 200
    assert [content for _, content in await history(ask)] == ["two?", "two!", "one?", "one!"]


async def test_a_session_is_deleted_while_a_turn_runs(ask: ApiClient):
    await ask("PUT", "/agents/default", AT_ONCE)
    await ask("POST", SAY, {"message": "hello"})
    run = await claim(ask)
    await ask("POST", f"/runs/{run['id']}/complete", {"status": "succeeded", "attempt": 1, "output": "hi"})
    run_id = (await ask("POST", SAY, {"message": "my secret"})).body["runId"]
    await claim(ask)
    await ask("POST", SAY, {"message": "it waits"})
    assert (await ask("DELETE", f"{SESSIONS}/main")).status == 204
    stopped = (await ask("GET", f"/runs/{run_id}")).body
    assert (stopped["state"], stopped["reason"]) == ("cancelled", "session_deleted")
    late = {"status": "succeeded", "attempt": 1, "output": "I know"}
    assert (await ask("POST", f"/runs/{run_id}/complete", late)).status == 409
    for method in ("GET", "DELETE"):
        reply = await ask(method, f"{SESSIONS}/main")
        assert (reply.status, reply.code) == (404, "not-found")
        assert reply.body["detail"] == (
            "agent 'default' has no session 'main'; list its sessions to see their names"
        )
    (entry,) = [
        each for each in (await ask("GET", "/audit")).body["entries"] if each["action"] == "session.delete"
    ]
    assert (entry["subject"], entry["details"]) == ("default", {"session": "main"})


async def test_a_session_shows_its_state_and_its_history_in_pages(ask: ApiClient):
    await ask("PUT", "/agents/default", AT_ONCE)
    for number in range(3):
        await ask("POST", SAY, {"message": f"{number}?", "channel": "telegram", "to": "123"})
        run = await claim(ask)
        done = {"status": "succeeded", "attempt": 1, "output": f"{number}!"}
        await ask("POST", f"/runs/{run['id']}/complete", done)
    run_id = (await ask("POST", SAY, {"message": "last"})).body["runId"]
    page = (await ask("GET", f"{SESSIONS}/main", limit=4)).body
    assert (page["channel"], page["to"], page["turns"]) == ("telegram", "123", [run_id])
    assert [each["content"] for each in page["history"]] == ["2!", "2?", "1!", "1?"]
    assert page["history"][0] == {
        "sequence": 6, "role": "assistant", "content": "2!", "tokens": 1, "runId": run["id"], "job": None,
        "at": page["history"][0]["at"],
    }  # fmt: skip
    rest = (await ask("GET", f"{SESSIONS}/main", limit=4, cursor=page["cursor"])).body
    assert ([each["content"] for each in rest["history"]], rest["cursor"]) == (["0!", "0?"], None)
    other = await ask("GET", f"{SESSIONS}/other", cursor=page["cursor"])
    assert other.code == "invalid-argument", "a cursor of another session"


async def test_the_embedded_api_and_the_client_return_equal_sessions(new_app: NewApp):
    app = new_app()

    @app.function("think")
    async def think(run: Launch) -> str:
        return f"{run.message}!"

    async with app, served(app) as ask, AsyncClient(ask.url, ask.key) as client:
        await app.agents.put("default", {"target": Function("think"), "queue": {"debounce_ms": 0}})
        for number in range(3):
            receipt = await app.agents.say("default", str(number), channel="telegram", to="1")
            assert receipt.run_id is not None
            await over(app, receipt.run_id)
        here, there = [await each.agents.session("default") for each in (app, client)]
        assert here == there
        assert [entry.content for entry in here.history] == ["2!", "2", "1!", "1", "0!", "0"]
        assert here.history == there.history
        assert (here.channel, here.to, here.cursor, there.cursor) == ("telegram", "1", None, None)
        for each in (app, client):
            contents: list[str] = []
            page = await each.agents.session("default", "main", limit=4)
            contents += [entry.content for entry in page.history]
            page = await each.agents.session("default", "main", limit=4, cursor=page.cursor)
            assert (contents + [entry.content for entry in page.history], page.cursor) == (
                ["2!", "2", "1!", "1", "0!", "0"], None
            )  # fmt: skip
        (listed,) = await client.agents.sessions("default")
        assert isinstance(listed, SessionInfo)
        assert (listed, listed.history) == (here, ())
        await client.agents.delete_session("default")
        for each in (app, client):
            with pytest.raises(NotFound, match="agent 'default' has no session 'main'"):
                await each.agents.delete_session("default", "main")


def _made_in(session: str) -> Any:
    def change(row: JobRow) -> JobChange:
        work = replace(work_from_text(row.work), origin=Origin(session, "telegram", "123"))
        return JobChange(row._replace(work=work_to_text(work)))

    return change


async def test_a_job_answers_in_the_conversation_that_it_comes_from(new_app: NewApp):
    app = new_app()
    answers = ["3 new issues", "NO_REPLY", "", "[SILENT]", "all quiet"]

    @app.function("look")
    async def look() -> str:
        return answers.pop(0)

    async with app, served(app) as ask:
        job = await app.jobs.create("triage", schedule=SELDOM, target=Function("look"), message="look")
        await app.store.change_job(job.id, _made_in("telegram:123"))
        while answers:
            run = await app.jobs.run("triage")
            assert (await over(app, run.id)).state == "succeeded"
        session = await app.agents.session("default", "telegram:123")
        assert [(each.role, each.content, each.job) for each in session.history] == [
            ("assistant", "all quiet", "triage"), ("assistant", "3 new issues", "triage")
        ]  # fmt: skip
        names = [each["name"] for each in (await ask("GET", SESSIONS)).body["sessions"]]
        assert names == ["telegram:123"], "only chat jobs have a session of their own"
        edited = await app.jobs.upsert("triage", schedule=SELDOM, target=Function("look"), message="again")
        answers.append("after the edit")
        await over(app, (await app.jobs.run(edited.name)).id)
        assert (await history(ask, "telegram:123"))[-1] == ("assistant", "after the edit")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"session": "job:digest"}, "session: 'job:digest' is the session of a job, which takes no messages"),
        ({"to": "123"}, "to: it is a recipient on a channel; give the channel too"),
        ({"channel": ""}, "channel: it is empty"),
        ({"channel": 5}, "channel: 5 is not text"),
        ({"channel": "telegram", "to": "x" * 2_000}, "to: it has"),
    ],
)
@on_one_store
async def test_an_invalid_address_of_a_message_is_refused(ask: ApiClient, body: Any, sentence: str):
    reply = await ask("POST", SAY, {"message": "hello", **body})
    assert (reply.status, reply.code) == (422, "invalid-argument")
    assert sentence in reply.body["detail"]
    assert (await ask("GET", SESSIONS)).body["sessions"] == []


async def test_the_address_of_a_session_is_that_of_its_last_message_with_a_channel(ask: ApiClient):
    for body in (
        {"channel": "telegram", "to": "123"},
        {},
        {"channel": "slack"},
        {"message": "/stop", "channel": "telegram"},
    ):
        assert (await ask("POST", SAY, {"message": "hello", **body})).status == 202
    (session,) = (await ask("GET", SESSIONS)).body["sessions"]
    assert (session["channel"], session["to"]) == ("slack", None)


async def test_an_agents_key_names_only_channels_where_it_may_deliver(ask: ApiClient):
    document = {"channel": "slack", "deliverTo": [{"channel": "telegram", "to": "123"}]}
    await ask("PUT", "/agents/ada", document)
    ada = await ask.new("agent", agent="ada")
    for address in ({"channel": "slack"}, {"channel": "telegram", "to": "123"}):
        reply = await ada("POST", "/agents/ada/messages", {"message": "hello", **address})
        assert reply.status == 202, reply
    reply = await ada("POST", "/agents/ada/messages", {"message": "hello", "channel": "telegram", "to": "4"})
    assert (reply.status, reply.code) == (403, "permission-denied")
    reply = await ask("POST", "/agents/ada/messages", {"message": "hello", "channel": "telegram", "to": "4"})
    assert reply.status == 202, "a person's key may name any"


async def test_an_interruption_starts_its_turn_at_once(new_app: NewApp):
    app = new_app()
    seen: list[str | None] = []

    @app.function("write")
    async def write(run: Launch) -> str:
        seen.append(run.message)
        if run.message == "write a novel":
            await asyncio.Event().wait()
        return "a poem"

    async with app:
        target = Function("write")
        await app.agents.put("default", {"target": target, "queue": {"debounce_ms": 0}})
        await app.agents.say("default", "write a novel")
        await eventually(lambda: seen == ["write a novel"])
        queue = {"mode": "interrupt", "debounce_ms": 60_000}
        await app.agents.put("default", {"target": target, "queue": queue})
        receipt = await app.agents.say("default", "no, a poem")
        assert (receipt.state, len(receipt.stopped)) == ("started", 1)
        assert receipt.run_id is not None
        await over(app, receipt.run_id)
        (answer, question) = (await app.agents.session("default")).history
        assert question.content == "write a novel\nno, a poem", "within the debounce"
        assert answer.content == "a poem"
