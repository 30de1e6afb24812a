"""Chat targets against a stand-in for an OpenAI-compatible endpoint, with a real engine and database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.chat_endpoint import KEY, ChatStandIn, chat_endpoint
from tests.support.waiting import over
from wakeful import Chat, InvalidArgument, ResourceExhausted, Wakeful
from wakeful.chat_settings import ChatModel
from wakeful.model import Run
from wakeful.settings import Settings

MODEL = "gpt-test"
#: 1 USD per million input tokens, 10 USD per million output tokens
PRICED = {MODEL: ChatModel(input=1, output=10, context_window=8_000)}
QUICK_RETRY = {"baseMs": 1, "maxMs": 1}


@pytest.fixture
async def endpoint() -> AsyncIterator[ChatStandIn]:
    """Serve the stand-in."""
    async with chat_endpoint() as stand_in:
        yield stand_in


def settings(**given: Any) -> Settings:
    return Settings(
        **{"chat_keys": {"test": KEY}, "chat_models": PRICED, "allow_private_targets": True, **given}
    )


async def add(app: Wakeful, endpoint: ChatStandIn, name: str = "digest", **fields: Any) -> None:
    target = Chat(endpoint.url, MODEL, **{"key": "test", **fields.pop("chat", {})})
    fields = {"message": "What is new?", "backoff": QUICK_RETRY, **fields}
    await app.jobs.create(name, schedule=SELDOM, target=target, **fields)


def used(of: Run) -> dict[str, Any]:
    assert isinstance(of.usage, dict)
    return of.usage


async def run(app: Wakeful, name: str = "digest", **given: Any) -> Run:
    return await over(app, (await app.jobs.run(name, **given)).id)


async def test_the_answer_is_the_output_and_usage_is_recorded(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.say("Nothing.")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"system": "Be brief.", "temperature": 0.5, "max_tokens": 64})
        done = await run(app)
    assert (done.state, done.output, done.response_code) == ("succeeded", "Nothing.", 200)
    assert done.usage == {
        "tokens": 120, "inputTokens": 100, "outputTokens": 20, "cost": 0.0003, "contextTokens": 120,
        "contextWindow": 8000, "steps": 0,
    }  # fmt: skip
    (request,) = endpoint.requests
    assert (request["model"], request["temperature"], request["max_tokens"]) == (MODEL, 0.5, 64)
    assert request["messages"][0]["content"].startswith("Be brief.\n\nYou run as the job 'digest'")
    assert endpoint.texts() == [("user", "What is new?")]
    headers = endpoint.headers[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-wakeful-run-id"] == done.id


async def test_a_job_continues_with_its_previous_answer_only(new_app: NewApp, endpoint: ChatStandIn):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        for answer in ("one", "two", "NO_REPLY", "three"):
            endpoint.say(answer)
            await run(app)
    assert endpoint.texts(0) == [("user", "What is new?")]
    for number, previous in ((1, "one"), (2, "two"), (3, "two")):
        (_, mark), *rest = endpoint.texts(number)
        assert mark.startswith("[Your previous answer for this job, planned for ")
        assert rest == [("assistant", previous), ("user", "What is new?")]


@on_one_store
@pytest.mark.parametrize(
    "how", [{"stateless": True}, {"continuity": "none"}, {"chat": {"continuity": "none"}}]
)
async def test_a_job_without_continuity_starts_afresh(
    new_app: NewApp, endpoint: ChatStandIn, how: dict[str, Any]
):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, **how)
        await run(app)
        await run(app)
    assert endpoint.texts(0) == endpoint.texts(1) == [("user", "What is new?")]


@on_one_store
async def test_the_job_decides_before_the_target(new_app: NewApp, endpoint: ChatStandIn):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, continuity="output", chat={"continuity": "none"})
        await run(app)
        await run(app)
    assert len(endpoint.texts(1)) == 3


async def test_a_conversation_remembers_what_was_said_in_it_and_nothing_else(
    new_app: NewApp, endpoint: ChatStandIn
):
    async with new_app(settings=settings()) as app:
        target = Chat(endpoint.url, MODEL, key="test")
        await app.agents.put("helper", {"target": target, "queue": {"debounce": "0s"}})

        async def say(text: str, session: str, answer: str) -> None:
            endpoint.say(answer)
            receipt = await app.agents.say("helper", text, session=session)
            assert receipt.run_id is not None
            await over(app, receipt.run_id)

        await say("My name is Ada.", "ada", "Hello Ada.")
        await say("My name is Bob.", "bob", "Hello Bob.")
        await say("What is my name?", "ada", "Ada.")
    assert endpoint.texts() == [
        ("user", "My name is Ada."),
        ("assistant", "Hello Ada."),
        ("user", "What is my name?"),
    ]
    assert endpoint.requests[-1]["messages"][0]["content"].startswith("Today is ")


async def test_a_job_with_a_session_has_its_own_history(new_app: NewApp, endpoint: ChatStandIn):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, continuity="session")
        for answer in ("one", "two", "three"):
            endpoint.say(answer)
            done = await run(app)
    asked = ("user", "What is new?")
    assert endpoint.texts() == [asked, ("assistant", "one"), asked, ("assistant", "two"), asked]
    assert used(done)["dropped"] == 0


@on_one_store
async def test_the_oldest_entries_are_left_out_beyond_the_context_window(
    new_app: NewApp, endpoint: ChatStandIn
):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, continuity="session", chat={"context_window": 2_000, "tools": False})
        for number in range(4):
            endpoint.say(f"{number} " + "word " * 500)  # about 600 tokens
            done = await run(app)
    texts = [content.split()[0] for _, content in endpoint.texts()]
    assert texts == ["What", "1", "What", "2", "What"]
    assert (used(done)["dropped"], used(done)["contextWindow"]) == (2, 2000)


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
async def test_429_and_5xx_are_retried_after_the_time_that_the_endpoint_names(
    new_app: NewApp, endpoint: ChatStandIn
):
    endpoint.refuse(429, "slow down", {"retry-after-ms": "1500"})
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        begun = await app.jobs.run("digest")
        done = await over(app, begun.id)
        first = (await app.services.store.attempts(begun.id))[0]
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert first.error == "HTTP 429 Too Many Requests: slow down"
    assert done.started_at is not None
    assert first.finished_ms is not None
    assert done.started_at.timestamp() * 1000 - first.finished_ms >= 1500


@on_one_store
async def test_a_wrong_key_fails_at_once_and_is_not_shown(new_app: NewApp, endpoint: ChatStandIn):
    wrong = "sk-wrong-secret-42"
    async with new_app(settings=settings(chat_keys={"test": wrong})) as app:
        await add(app, endpoint)
        done = await run(app)
        shown = repr(await app.jobs.get("digest")) + repr(done) + repr(await app.runs.get(done.id))
    assert (done.state, done.attempt, done.response_code) == ("failed", 1, 401)
    assert done.error is not None
    assert "check WAKEFUL_CHAT_KEY_TEST" in done.error
    assert wrong not in shown


@on_one_store
async def test_an_overflow_leaves_out_the_previous_answer_and_tries_again(
    new_app: NewApp, endpoint: ChatStandIn
):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        await run(app)
        message = "This model's maximum context length is 8192 tokens."
        endpoint.refuse(400, message, code="context_length_exceeded")
        done = await run(app)
        assert (done.state, done.attempt) == ("succeeded", 1)
        assert (len(endpoint.texts(1)), endpoint.texts(2)) == (3, [("user", "What is new?")])
        assert used(done)["dropped"] == 2
        endpoint.refuse(400, message)
        endpoint.refuse(400, message)
        done = await run(app)
    assert (done.state, done.attempt, done.reason) == ("failed", 1, "context_length")


@on_one_store
async def test_an_endpoint_without_max_tokens_or_tools_is_adapted_to(new_app: NewApp, endpoint: ChatStandIn):
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
    )
    endpoint.refuse(400, message, param="max_tokens", code="unsupported_parameter")
    endpoint.refuse(400, "registry.example/tiny:1b does not support tools")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"max_tokens": 64})
        assert (await run(app)).attempt == 1
        await run(app)
    sent = [
        (each.get("max_tokens"), each.get("max_completion_tokens"), "tools" in each)
        for each in endpoint.requests
    ]
    assert sent == [(64, None, True), (None, 64, True), (None, 64, False), (None, 64, False)]


@on_one_store
async def test_a_slow_answer_times_out_and_what_was_used_is_recorded(new_app: NewApp, endpoint: ChatStandIn):
    never = asyncio.Event()
    endpoint.call(("cron", {"action": "status"}))
    endpoint.hang(never)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, timeout="2s", max_attempts=1)
        done = await run(app)
    assert (done.state, done.reason, done.error) == ("failed", "timeout", "timed out after 2 s")
    assert used(done)["tokens"] == 120
    never.set()


@on_one_store
async def test_what_a_chat_costs_counts_towards_the_budget(new_app: NewApp, endpoint: ChatStandIn):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, budget={"costPerDay": 0.0003})
        assert (await run(app)).state == "succeeded"
        with pytest.raises(ResourceExhausted, match="budget"):
            await app.jobs.run("digest")


@on_one_store
async def test_a_key_goes_only_to_its_hosts(new_app: NewApp, endpoint: ChatStandIn):
    bound = settings(chat_hosts={"test": ("api.openai.com",)})
    async with new_app(settings=bound) as app:
        with pytest.raises(InvalidArgument, match=r"the key 'test' may not be sent to 127\.0\.0\.1"):
            await add(app, endpoint)
        with pytest.raises(
            InvalidArgument, match="there is no key 'other'; the operator sets it as WAKEFUL_"
        ):
            await add(app, endpoint, chat={"key": "other"})
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
    async with new_app(settings=bound) as app:  # the operator binds the key after the job was made
        done = await run(app)
    assert (done.state, done.reason) == ("failed", "chat_key")
    assert endpoint.requests == []


@on_one_store
async def test_the_address_guard_applies(new_app: NewApp, endpoint: ChatStandIn):
    closed = settings(allow_private_targets=False, chat_hosts={"test": ("127.0.0.1",)})
    async with new_app(settings=closed, allow_private_targets=False) as app:
        with pytest.raises(InvalidArgument, match="loopback"):
            await add(app, endpoint)


@on_one_store
async def test_a_message_and_its_fields_are_sent(new_app: NewApp, endpoint: ChatStandIn):
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, stateless=True)
        await run(app, payload={"message": "Review it.", "pull": 7})
        await run(app, payload=["a", 1])
    assert endpoint.texts(0) == [("user", 'Review it.\n\n{"pull": 7}')]
    assert endpoint.texts(1) == [("user", '["a", 1]')]
