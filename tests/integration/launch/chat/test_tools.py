"""Tool calls of a model: with the rights of its agent, once, audited and bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.chat_endpoint import KEY, ChatStandIn
from tests.support.chat_jobs import MODEL, SELDOM, add, run, settings, used
from tests.support.waiting import over
from wakeful import Chat, PermissionDenied
from wakeful.service.auth.access import LOCAL, Principal


async def test_a_tool_call_is_done_with_the_rights_of_the_agent_and_audited(
    new_app: NewApp, endpoint: ChatStandIn
):
    job = {"name": "look-again", "schedule": "in 2 hours", "message": "Look at the build again."}
    endpoint.call(("cron", {"action": "add", "job": job}))
    endpoint.say("I look again in two hours.")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
        made = await app.jobs.get("look-again")
        entries = await app.services.store.audit("default")
    assert (done.state, done.output) == ("succeeded", "I look again in two hours.")
    assert (used(done)["tokens"], used(done)["steps"]) == (240, 1)
    assert made.message == "Look at the build again."
    (created,) = [entry for entry in entries if entry.subject == "default/look-again"]
    assert (created.actor, created.action) == (f"run:{done.id}", "job.create")
    assert (made.created_by, made.created_by_name) == (f"agent:run:{done.id}", "default")
    assistant, result = endpoint.requests[1]["messages"][-2:]
    assert (assistant["role"], result["role"], result["tool_call_id"]) == ("assistant", "tool", "call_0")
    assert result["content"].startswith("Added 'look-again'")


@on_one_store
async def test_a_model_cannot_reach_another_agent(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.call(("cron", {"action": "list", "agent": "writer"}))
    async with new_app(settings=settings()) as app:
        await app.agents.put("writer", {})
        await add(app, endpoint)
        done = await run(app)
    assert done.state == "succeeded"
    assert "no agent 'writer'" in endpoint.requests[1]["messages"][-1]["content"]


@on_one_store
async def test_wrong_calls_are_answered_and_do_not_fail_the_run(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.call(("cron", "{broken"), ("mail", {}), ("cron", {"action": "add"}))
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
    assert done.state == "succeeded"
    broken, unknown, empty = (each["content"] for each in endpoint.requests[1]["messages"][-3:])
    assert broken.startswith("the arguments are not valid JSON")
    assert unknown == "there is no tool 'mail'; there is cron"
    assert "schedule" in empty


@on_one_store
async def test_after_the_last_round_the_model_must_answer(new_app: NewApp, endpoint: ChatStandIn):
    for _ in range(3):
        endpoint.call(("cron", {"action": "status"}))
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"max_steps": 2})
        done = await run(app)
    assert ["tool_choice" in request for request in endpoint.requests] == [False, False, True]
    assert (done.state, done.reason) == ("failed", "max_steps")
    assert (used(done)["tokens"], used(done)["steps"]) == (360, 2)


@on_one_store
async def test_a_turn_does_not_grow_without_end(new_app: NewApp, endpoint: ChatStandIn):
    for _ in range(9):
        endpoint.call(("cron", {"action": "status"}), text="x" * 3_000_000)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"max_steps": 8})
        done = await run(app)
    assert (done.state, done.reason, done.attempt) == ("failed", "context_length", 1)
    assert len(endpoint.requests) == 3


@on_one_store
@pytest.mark.parametrize("how", [{"tools": False}, {"max_steps": 0}])
async def test_tools_can_be_left_out(new_app: NewApp, endpoint: ChatStandIn, how: dict[str, Any]):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat=how)
        assert (await run(app)).state == "succeeded"
    assert "tools" not in endpoint.requests[0]


async def test_a_retry_that_repeats_a_call_creates_nothing_twice(new_app: NewApp, endpoint: ChatStandIn):
    call = {"action": "add", "schedule": "in 20 minutes", "message": "Look at the build."}
    endpoint.call(("cron", call))
    endpoint.refuse(503, "overloaded")
    endpoint.call(("cron", call))
    endpoint.say("Done.")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
        names = [job.name for job in await app.jobs.list()]
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert sorted(names) == ["digest", "look-at-the-build"]
    assert endpoint.requests[1]["messages"][-1]["content"].startswith("Added 'look-at-the-build'")
    assert endpoint.requests[3]["messages"][-1]["content"].startswith("Added 'look-at-the-build'")


@on_one_store
async def test_an_agents_key_may_not_choose_a_chat_target_unless_the_operator_allows_it(
    new_app: NewApp, endpoint: ChatStandIn
):
    target = Chat(endpoint.url, MODEL, key="test").to_json()
    document = {"name": "mine", "schedule": SELDOM, "target": target, "message": "hello"}
    writer = Principal("key:1", "agent", "default", "writer")
    async with new_app(settings=settings()) as app:
        await app.agents.put("writer", {})
        with pytest.raises(PermissionDenied, match="may not set what is sent to a chat"):
            await app.services.jobs.create(writer, "default", "writer", document)
        await app.agents.put("writer", {"target": target})
        await app.services.jobs.create(writer, "default", "writer", document)
    async with new_app(settings=settings(agent_targets=("chat",))) as app:
        await app.agents.put("writer", {})
        await app.services.jobs.create(writer, "default", "writer", {**document, "name": "other"})


@on_one_store
async def test_a_job_of_a_model_has_the_target_of_its_agent_unless_the_operator_allows_others(
    new_app: NewApp, endpoint: ChatStandIn
):
    hook = {"kind": "webhook", "url": "https://elsewhere.example/"}
    tried: list[dict[str, Any]] = [
        {"target": hook},
        {"target": {"kind": "echo"}},
        {"target": {"kind": "workflow", "workflowId": "w", "version": 1, "to": hook}},
        {"precheck": hook},
        {"verify": {"kind": "http", "url": hook["url"]}},
        {"deliver": True, "channel": "elsewhere"},
    ]
    jobs = [
        {"name": f"job-{n}", "schedule": "in 2h", "message": "go", **each} for n, each in enumerate(tried)
    ]
    for allowed in ((), ("*",)):
        endpoint.call(*(("cron", {"action": "add", "job": job}) for job in jobs))
        channels = {"elsewhere": "json://127.0.0.1:1/"}
        secret_key = "x" * 40
        async with new_app(
            settings=settings(chat_targets=allowed, channels=channels, secret_key=secret_key)
        ) as app:
            await app.agents.put("default", {"selfScheduling": {"perRun": 50}})
            if not allowed:
                await add(app, endpoint)
            assert (await run(app)).state == "succeeded"
            made = {job.name for job in await app.jobs.list()} - {"digest"}
        assert made == ({f"job-{n}" for n in range(5)} if allowed else set())
        results = [each["content"] for each in endpoint.requests[-1]["messages"][-len(jobs) :]]
        assert ["WAKEFUL_CHAT_TARGETS" in result for result in results[:-1]] == [not allowed] * 5, results
        assert "channel: a key of the role 'agent' may deliver" in results[-1]


@on_one_store
async def test_a_key_that_an_endpoint_repeats_in_a_call_is_stored_nowhere(
    new_app: NewApp, endpoint: ChatStandIn
):
    job = {"name": "leak", "schedule": "in 2h", "message": f"use {KEY}", "labels": {"note": KEY}}
    endpoint.call(("cron", {"action": "add", "job": {**job, "payload": {"deep": [KEY]}}}))
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        assert (await run(app)).state == "succeeded"
        row = await app.services.store.job("default", "default", "leak")
    assert row is not None
    assert KEY not in repr(row)
    assert "use ***" in repr(row)


@on_one_store
async def test_a_call_that_an_attempt_repeats_is_another_call(new_app: NewApp, endpoint: ChatStandIn):
    job = {"action": "add", "name": "look", "schedule": "in 2 hours", "message": "Look at the build."}
    endpoint.call(("cron", job))
    endpoint.call(("cron", {"action": "remove", "jobId": "look"}))
    endpoint.call(("cron", job))
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        assert (await run(app)).state == "succeeded"
        assert (await app.jobs.get("look")).message == "Look at the build."


async def test_a_job_made_in_a_conversation_reports_there(new_app: NewApp, endpoint: ChatStandIn):
    job = {"name": "look-again", "schedule": "in 2 hours", "message": "Look at the build."}
    endpoint.call(("cron", {"action": "add", "job": job}))
    endpoint.say("I look again in two hours.")
    endpoint.say("The build is green.")
    endpoint.say("You are welcome.")
    channels = {"chat": "json://127.0.0.1:1/"}
    async with new_app(settings=settings(channels=channels)) as app:
        target = Chat(endpoint.url, MODEL, key="test")
        await app.agents.put("helper", {"target": target, "queue": {"debounce": "0s"}})
        helper = "default", "helper"

        async def say(text: str) -> None:
            document = {"message": text, "session": "ada", "channel": "chat"}
            receipt = await app.services.agents.messages.send(LOCAL, *helper, document)
            assert receipt.run_id is not None
            await over(app, receipt.run_id)

        await say("Look at the build later.")
        made = await app.services.jobs.get(LOCAL, *helper, "look-again")
        work = made.definition.work
        assert (work.deliver, work.channel, work.depth) == (True, "chat", 1)
        begun = await app.services.jobs.trigger(LOCAL, *helper, "look-again")
        assert begun is not None
        await over(app, begun.id)
        await say("Thank you.")
    assert endpoint.texts(2) == [("user", "Look at the build.")], "the job runs outside the conversation"
    assert endpoint.texts(3) == [
        ("user", "Look at the build later."),
        ("assistant", "I look again in two hours."),
        ("user", "[The job 'look-again' reported:]"),
        ("assistant", "The build is green."),
        ("user", "Thank you."),
    ]


async def test_a_scheduled_turn_adds_few_jobs_and_none_that_recur(new_app: NewApp, endpoint: ChatStandIn):
    def remind(name: str, schedule: str) -> tuple[str, object]:
        return "cron", {"action": "add", "name": name, "schedule": schedule, "message": "Remind Ada."}

    endpoint.call(
        remind("weekly", "every monday at 9"), *(remind(f"once-{n}", "in 2 hours") for n in range(7))
    )
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, "daily")
        await app.jobs.backfill("daily", datetime(2024, 2, 28, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))
        (begun,) = await app.runs.list()
        done = await over(app, begun.id)
        names = sorted(job.name for job in await app.jobs.list())
    assert done.state == "succeeded"
    assert names == ["daily", "once-0", "once-1", "once-2", "once-3", "once-4"]
    results = [each["content"] for each in endpoint.requests[1]["messages"] if each["role"] == "tool"]
    assert "one-time" in results[0]
    assert [result.startswith("Added") for result in results] == [False, *5 * [True], False, False]
