"""Errors, slow and broken answers of endpoints."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.chat_endpoint import ChatStandIn
from tests.support.chat_jobs import MODEL, QUICK_RETRY, SELDOM, add, run, settings, used
from tests.support.waiting import eventually, over
from wakeful import Chat
from wakeful.errors import ResourceExhausted
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.usage import utc_day
from wakeful.service.auth.access import LOCAL
from wakeful.store.accounts import WorkspaceRow


@on_one_store
@pytest.mark.parametrize(
    ("answer", "reason", "attempts"),
    [
        ({"text": None, "refusal": "I cannot help with that."}, "refused", 1),
        ({"text": None, "finish_reason": "content_filter"}, "content_filter", 1),
        ({"text": None, "finish_reason": "length"}, "answer_length", 1),
        ({"text": None}, "empty_answer", 2),
    ],
)
async def test_an_answer_without_text_fails_with_its_reason(
    new_app: NewApp, endpoint: ChatStandIn, answer: dict[str, Any], reason: str, attempts: int
):
    for _ in range(2):
        endpoint.say(**answer)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, max_attempts=2)
        done = await run(app)
    assert (done.state, done.reason, done.attempt) == ("failed", reason, attempts)
    assert used(done)["tokens"] == 120, "the usage of a failed attempt is recorded"


@on_one_store
async def test_a_cut_answer_says_so(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.say("Once upon a", finish_reason="length")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
    assert done.output == "Once upon a\n[cut off: the answer reached its limit of tokens]"


@on_one_store
async def test_nothing_to_add_after_a_tool_call_is_a_success(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.call(("cron", {"action": "status"}))
    endpoint.say(None)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
    assert (done.state, done.output) == ("succeeded", None)


@on_one_store
@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("{broken", 200, "the response is not JSON: {broken"),
        ('{"choices": []}', 200, "the response has no choices"),
        ('{"error": {"message": "overloaded", "code": 502}}', 200, "HTTP 502 Bad Gateway: overloaded"),
        ("x" * (5 * 1024 * 1024), 200, "the response is larger than 4096 KB"),
        ("upstream gone", 504, "HTTP 504 Gateway Timeout: upstream gone"),
    ],
)
async def test_a_broken_response_is_retried(
    new_app: NewApp, endpoint: ChatStandIn, body: str, status: int, error: str
):
    endpoint.raw(body, status)
    endpoint.say("Fine.")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
        first = (await app.services.store.attempts(done.id))[0]
    assert (done.state, done.attempt, done.output) == ("succeeded", 2, "Fine.")
    assert first.error is not None
    assert error in first.error


@on_one_store
async def test_a_redirect_is_not_followed(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.raw("{}", 307, {"location": "https://evil.example/v1/chat/completions"})
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        done = await run(app)
    assert (done.state, done.attempt, done.response_code) == ("failed", 1, 307)
    assert done.error is not None
    assert "redirects are not followed" in done.error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", "the connection was closed before a response arrived"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{", "the response was cut off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n{", "the response is not valid HTTP"),
    ],
)
@on_one_store
async def test_an_endpoint_that_ends_the_connection_is_tried_again_and_counts_towards_budgets(
    new_app: NewApp, answer: bytes, error: str
):
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, new_app(settings=settings()) as app:
        await app.jobs.create(
            "digest", schedule=SELDOM, target=Chat(url, MODEL), message="hello", max_attempts=2,
            backoff=QUICK_RETRY, budget={"tokensPerDay": 1_000_000},
        )  # fmt: skip
        done = await run(app)
        spent = await app.store.read_spent(BudgetOwner("default"), utc_day(app.store.clock.now_ms()))
    assert (done.state, done.reason, done.attempt) == ("failed", "network", 2)
    assert error in (done.error or "")
    assert used(done)["estimated"] is True  # the model may have been used
    assert spent.tokens == 2 * used(done)["tokens"]


@on_one_store
async def test_usage_that_is_missing_is_estimated(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.usage = None
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"tools": False}, message="word " * 1_000)
        done = await run(app)
    assert used(done)["estimated"] is True
    assert 1_000 < used(done)["inputTokens"] < 2_000


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
async def test_runs_wait_for_the_rate_limit_of_the_endpoint(new_app: NewApp, endpoint: ChatStandIn):
    endpoint.rate = 2, 1.5
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"tools": False}, overlap_policy="allow", max_attempts=10)
        runs = [await app.jobs.run("digest") for _ in range(4)]
        ended = [await over(app, each.id) for each in runs]
    assert [each.state for each in ended] == ["succeeded"] * 4
    assert len(endpoint.requests) <= 4 + 4, "no request is sent before the time that the endpoint names"


@on_one_store
async def test_a_request_that_is_too_large_for_the_endpoint_is_not_repeated(
    new_app: NewApp, endpoint: ChatStandIn
):
    endpoint.max_bytes = 2_000
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, chat={"tools": False}, message="word " * 1_000)
        done = await run(app)
    assert (done.state, done.attempt, done.response_code) == ("failed", 1, 413)
    assert "too large" in (done.error or "").lower()


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
    assert used(done)["tokens"] > 120  # and an estimate of the request that was not answered
    assert used(done)["estimated"] is True
    never.set()


@on_one_store
async def test_requests_that_are_never_answered_in_time_reach_the_budget(
    new_app: NewApp, endpoint: ChatStandIn
):
    never = asyncio.Event()
    endpoint.hang(never)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, timeout="1s", max_attempts=1, budget={"tokensPerDay": 20})
        assert (await run(app)).reason == "timeout"
        with pytest.raises(ResourceExhausted, match="has used its budget of 20 tokens a day"):
            await run(app)
    assert len(endpoint.requests) == 1
    never.set()


@on_one_store
async def test_the_request_of_a_stopped_run_counts_towards_budgets(new_app: NewApp, endpoint: ChatStandIn):
    never = asyncio.Event()
    endpoint.hang(never)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, budget={"tokensPerDay": 20})
        started = await app.jobs.run("digest")
        await eventually(lambda: endpoint.requests)
        await app.runs.stop(started.id)
        assert (await over(app, started.id)).state == "cancelled"
        owner = BudgetOwner("default")

        async def is_counted() -> bool:
            return (await app.store.read_spent(owner, utc_day(app.store.clock.now_ms()))).tokens > 0

        await eventually(is_counted)
        with pytest.raises(ResourceExhausted, match="has used its budget of 20 tokens a day"):
            await run(app)
    never.set()


@on_one_store
async def test_a_request_that_was_not_sent_counts_for_nothing(new_app: NewApp, endpoint: ChatStandIn):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:  # it accepts no connection
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        endpoint.url = f"http://127.0.0.1:{full.getsockname()[1]}"
        async with new_app(settings=settings()) as app:
            await add(app, endpoint, timeout="1s", max_attempts=1)
            done = await run(app)
        for each in waiting:
            each.close()
    assert (done.reason, done.usage) == ("timeout", None)


@on_one_store
async def test_what_one_workspace_is_refused_does_not_change_the_requests_of_another(
    new_app: NewApp, endpoint: ChatStandIn
):
    """The options of a job can cause an error that is about tools."""
    endpoint.refuse(400, "Invalid value: 'tool_choice' is not supported with this option")
    async with new_app(settings=settings()) as app:
        await add(app, endpoint)
        await run(app)
        await app.services.store.put_workspace(WorkspaceRow("other", None, "", 0, 0))
        target = Chat(endpoint.url, MODEL, key="test").to_json()
        jobs, document = app.services.jobs, {"schedule": SELDOM, "target": target, "message": "Hello"}
        await jobs.create(LOCAL, "other", "default", {"name": "digest", **document})
        await jobs.trigger(LOCAL, "other", "default", "digest")
        await eventually(lambda: len(endpoint.requests) == 3)
    assert ["tools" in each for each in endpoint.requests] == [True, False, True]


@on_one_store
@pytest.mark.parametrize(
    "answer", ['data: {"choices": []}\n\ndata: [DONE]\n', '{"id": 1}', "x" * 5 * 1024 * 1024]
)
async def test_answers_that_cannot_be_read_count_towards_the_budget(
    new_app: NewApp, endpoint: ChatStandIn, answer: str
):
    for _ in range(6):
        endpoint.raw(answer)
    async with new_app(settings=settings()) as app:
        await add(app, endpoint, budget={"tokensPerDay": 100}, max_attempts=6)
        done = await run(app)
        spent = await app.services.admin.budgets.spent("default")
    assert (done.state, done.reason, len(endpoint.requests)) == ("failed", "budget", 1)
    assert isinstance(spent["tokens"], int)
    assert spent["tokens"] > 100
