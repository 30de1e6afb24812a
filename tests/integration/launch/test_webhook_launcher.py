"""Webhook requests and the handling of responses, with real servers on 127.0.0.1."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from tests.support.receiver import (
    OLD_SECRET,
    OPEN,
    SECRET,
    Receiver,
    Secrets,
    failed,
    launching,
    serving,
    to,
)
from tests.unit.launch.launches import launch
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.launch.port import MAX_OUTPUT, Launch
from wakeful.launch.secrets import format_secret
from wakeful.launch.webhook import WebhookLauncher
from wakeful.run.outcome import AwaitingCallback, Failed, Succeeded
from wakeful.values.clock import SystemClock
from wakeful.values.json_value import Json


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
async def launcher() -> AsyncIterator[WebhookLauncher]:
    async with launching() as launcher:
        yield launcher


# --- requests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        (None, b'{"job":"digest","payload":null}'),
        ('{"to":"me"}', b'{"job":"digest","payload":{"to":"me"}}'),
        ('{"b":1,"a":1.0,"n":1e400}', b'{"job":"digest","payload":{"b":1,"a":1.0,"n":1e400}}'),
        ('"gr\u00fcn \\u00fc"', '{"job":"digest","payload":"gr\u00fcn \\u00fc"}'.encode()),
    ],
)
async def test_the_body_is_the_job_and_its_payload_byte_for_byte(
    receiver: Receiver, launcher: WebhookLauncher, payload: str | None, body: bytes
):
    assert await launcher.start(to(receiver.url, payload)) == Succeeded('{"ok": true}', response_code=200)
    assert receiver.bodies == [body]


async def test_the_job_is_null_for_a_run_without_a_job(receiver: Receiver, launcher: WebhookLauncher):
    await launcher.start(launch({"kind": "webhook", "url": receiver.url}, job=None, job_id=None))
    assert receiver.bodies == [b'{"job":null,"payload":null}']


async def test_both_signatures_verify_with_third_party_code(receiver: Receiver, launcher: WebhookLauncher):
    await launcher.start(to(receiver.url, '{"gr\u00fcn":true}'))
    body, headers = receiver.bodies[0], receiver.headers
    assert hmac.compare_digest(
        headers["x-wakeful-signature"], hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    )
    assert Webhook(format_secret(SECRET)).verify(body, headers) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(format_secret(OLD_SECRET)).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(format_secret(SECRET)).verify(body + b" ", headers)


async def test_during_a_rotation_both_secrets_verify(receiver: Receiver):
    async with launching(OPEN, SECRET, OLD_SECRET) as launcher:
        await launcher.start(to(receiver.url))
    assert len(receiver.headers["webhook-signature"].split(" ")) == 2
    for secret in (SECRET, OLD_SECRET):
        Webhook(format_secret(secret)).verify(receiver.bodies[0], receiver.headers)
    newest = hmac.new(SECRET, receiver.bodies[0], hashlib.sha256).hexdigest()
    assert receiver.headers["x-wakeful-signature"] == newest


async def test_without_a_secret_the_request_is_unsigned(receiver: Receiver):
    launcher = WebhookLauncher(Secrets(), OPEN, SystemClock(), lambda status: None)
    await launcher.open()
    assert isinstance(await launcher.start(to(receiver.url)), Succeeded)
    await launcher.close()
    assert "webhook-id" in receiver.headers
    assert "webhook-signature" not in receiver.headers
    assert "x-wakeful-signature" not in receiver.headers


async def test_an_unreadable_secret_fails_the_attempt_and_nothing_is_sent(receiver: Receiver):
    class Unreadable:
        def find_secrets(self, run: Launch) -> tuple[bytes, ...]:
            raise FailedPrecondition("WAKEFUL_SECRET_KEY is not set")

    launcher = WebhookLauncher(Unreadable(), OPEN, SystemClock(), lambda status: None)
    await launcher.open()
    outcome = failed(await launcher.start(to(receiver.url)))
    await launcher.close()
    assert not outcome.permanent
    assert (outcome.error, outcome.reason) == ("WAKEFUL_SECRET_KEY is not set", "secret_unreadable")
    assert receiver.requests == []


async def test_the_headers_describe_the_run(receiver: Receiver, launcher: WebhookLauncher):
    target = {"kind": "webhook", "url": receiver.url}
    await launcher.start(launch(target, attempt=3, scheduled_ms=1_741_392_000_250))
    headers = receiver.headers
    assert receiver.requests[0].method == "POST"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("wakeful/")
    assert headers["x-wakeful-run-id"] == "r1"
    assert headers["x-wakeful-attempt"] == "3"
    assert headers["x-wakeful-scheduled-at"] == "2025-03-08T00:00:00.250Z"
    assert headers["webhook-id"] == "5f" * 32
    assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 5
    await launcher.start(launch(target))
    assert receiver.headers["x-wakeful-scheduled-at"] == "2025-03-08T00:00:00Z"


@pytest.mark.parametrize("key", ["5f" * 32, "f" * 64, "manual:0190"])
async def test_retries_share_an_id_and_a_trace_but_not_a_span(
    receiver: Receiver, launcher: WebhookLauncher, key: str
):
    for attempt in (1, 2):
        await launcher.start(launch({"kind": "webhook", "url": receiver.url}, attempt=attempt, key=key))
    first, second = (request.headers for request in receiver.requests)
    assert first["webhook-id"] == second["webhook-id"] == key
    one, two = (headers["traceparent"].split("-") for headers in (first, second))
    assert [len(part) for part in one] == [2, 32, 16, 2]
    assert one[1] == two[1] != "0" * 32
    assert one[2] != two[2]
    assert int(one[2], 16)
    assert int(two[2], 16)


async def test_a_job_can_add_headers(receiver: Receiver, launcher: WebhookLauncher):
    run = to(receiver.url, headers={"Authorization": "Bearer x", "USER-AGENT": "mine"})
    launcher.check(run.target)
    await launcher.start(run)
    assert receiver.headers["authorization"] == "Bearer x"
    assert receiver.requests[0].headers.getall("user-agent") == ["mine"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Webhook-Id": "x"},
        {"X-Wakeful-Signature": "x"},
        {"traceparent": "x"},
        {"Host": "inside"},
        {"Content-Length": "0"},
        {"transfer-encoding": "chunked"},
        {"content-type": "text/plain"},
        {"Proxy-Authorization": "x"},
        {"a b": "x"},
        {"": "x"},
        {"x": "a\r\nhost: inside"},
        {"x": "\u00fc"},
        {"x": 7},
        {"x": "y" * 5000},
        {f"x{n}": "y" for n in range(33)},
        ["x"],
    ],
)
async def test_a_reserved_or_invalid_header_is_rejected_on_save_and_on_launch(
    receiver: Receiver, launcher: WebhookLauncher, headers: Json
):
    run = to(receiver.url, headers=headers)
    with pytest.raises(InvalidArgument, match="header"):
        launcher.check(run.target)
    outcome = failed(await launcher.start(run))
    assert outcome.permanent
    assert outcome.reason == "invalid_target"
    assert receiver.requests == []


async def test_credentials_in_the_url_become_an_authorization_header(
    receiver: Receiver, launcher: WebhookLauncher
):
    url = receiver.url.replace("//", "//me:secret@")
    await launcher.start(to(url))
    assert receiver.headers["authorization"] == "Basic bWU6c2VjcmV0"
    both = to(url, headers={"authorization": "x"})
    with pytest.raises(InvalidArgument, match="authorization"):
        launcher.check(both.target)
    assert failed(await launcher.start(both)).permanent


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"url": 7},
        {"url": ""},
        {"url": "example.com/hook"},
        {"url": "ftp://example.com"},
        {"url": "file:///etc/passwd"},
        {"url": "http://"},
        {"url": "http://example.com:0/"},
        {"url": "http://example.com:99999/"},
        {"url": "http://[::1"},
        {"url": "https://example.com", "completion": "later"},
        {"url": "https://example.com", "uri": "x"},
    ],
)
async def test_an_invalid_target_is_rejected(launcher: WebhookLauncher, target: dict[str, Json]):
    with pytest.raises(InvalidArgument, match="target"):
        launcher.check({"kind": "webhook", **target})


async def test_an_invalid_stored_url_fails_permanently(launcher: WebhookLauncher):
    for url in ("ftp://example.com", "http://[::1", "nowhere", "http://2130706433/"):
        outcome = failed(await launcher.start(to(url)))
        assert (outcome.permanent, outcome.reason) == (True, "invalid_target")


# --- response statuses -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_succeeds(receiver: Receiver, launcher: WebhookLauncher, status: int):
    receiver.answers(status)
    assert await launcher.start(to(receiver.url)) == Succeeded(None, response_code=status)


@pytest.mark.parametrize("status", [400, 401, 404, 408, 418, 422, 429, 500, 502, 503, 504, 599])
async def test_other_statuses_are_retryable_failures(
    receiver: Receiver, launcher: WebhookLauncher, status: int
):
    receiver.answers(status, "no\n  room " + "x" * 500)
    outcome = failed(await launcher.start(to(receiver.url)))
    assert (outcome.permanent, outcome.pause_job, outcome.retry_after_ms) == (False, False, None)
    assert outcome.error.startswith(f"HTTP {status}")
    assert "no room xxx" in outcome.error
    assert len(outcome.error) < 260


async def test_status_410_is_permanent_and_pauses_the_job(receiver: Receiver, launcher: WebhookLauncher):
    receiver.answers(410, "moved out", retry_after="5")
    assert await launcher.start(to(receiver.url)) == Failed(
        "HTTP 410 Gone: moved out",
        permanent=True,
        pause_job=True,
        reason="gone",
        response_code=410,
        output="moved out",
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_and_is_not_followed(
    receiver: Receiver, launcher: WebhookLauncher, status: int
):
    receiver.answers(status, location=receiver.url)
    outcome = failed(await launcher.start(to(receiver.url)))
    assert not outcome.permanent
    assert receiver.url in outcome.error
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("value", "wait_ms"), [("7", 7_000), ("0", 0), ("9" * 30, 86_400_000), ("soon", None), ("-1", None)]
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_in_seconds_is_returned(
    receiver: Receiver, launcher: WebhookLauncher, status: int, value: str, wait_ms: int | None
):
    receiver.answers(status, retry_after=value)
    assert failed(await launcher.start(to(receiver.url))).retry_after_ms == wait_ms


async def test_retry_after_as_a_date_is_returned(receiver: Receiver, launcher: WebhookLauncher):
    def http_date(ahead: timedelta) -> str:
        return (datetime.now(UTC) + ahead).strftime("%a, %d %b %Y %H:%M:%S GMT")

    for ahead, low, high in ((60, 55_000, 60_000), (-60, 0, 0), (10**6, 86_400_000, 86_400_000)):
        receiver.answers(503, retry_after=http_date(timedelta(seconds=ahead)))
        wait_ms = failed(await launcher.start(to(receiver.url))).retry_after_ms
        assert wait_ms is not None
        assert low <= wait_ms <= high


async def test_a_run_awaits_its_callback_for_the_timeout_of_the_job(
    receiver: Receiver, launcher: WebhookLauncher
):
    target: dict[str, Json] = {"kind": "webhook", "url": receiver.url, "completion": "callback"}
    launcher.check(target)
    receiver.answers(202)
    assert await launcher.start(launch(target)) == AwaitingCallback(600_000, 202)
    assert await launcher.start(launch(target, timeout_ms=3_600_000)) == AwaitingCallback(3_600_000, 202)
    receiver.answers(500)
    assert isinstance(await launcher.start(launch(target)), Failed)


async def test_the_request_of_a_callback_run_has_the_default_timeout(
    receiver: Receiver, launcher: WebhookLauncher
):
    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.answer = hang
    launcher.default_timeout_ms = 50
    outcome = failed(await launcher.start(to(receiver.url, completion="callback")))
    assert (outcome.reason, outcome.permanent) == ("timeout", False)


# --- response bodies ---------------------------------------------------------------------------------


async def test_a_long_response_is_truncated_and_does_not_affect_the_next_run(
    receiver: Receiver, launcher: WebhookLauncher
):
    receiver.answers(200, "x" * 10_000_000)
    assert await launcher.start(to(receiver.url)) == Succeeded("x" * MAX_OUTPUT, response_code=200)
    receiver.answers(200, "y")
    assert await launcher.start(to(receiver.url)) == Succeeded("y", response_code=200)


@pytest.mark.parametrize("status", [200, 500])
async def test_usage_is_read_from_a_body_that_is_longer_than_the_output(
    receiver: Receiver, launcher: WebhookLauncher, status: int
):
    said = json.dumps({"result": "x" * 5 * MAX_OUTPUT, "usage": {"tokens": 1200}})
    receiver.answers(status, said)
    outcome = await launcher.start(to(receiver.url))
    assert isinstance(outcome, Succeeded | Failed)
    assert outcome.usage == '{"tokens":1200}'
    if isinstance(outcome, Succeeded):
        assert outcome.output == said[:MAX_OUTPUT]


async def test_an_endless_response_is_truncated(receiver: Receiver, launcher: WebhookLauncher):
    async def forever(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 1000)

    receiver.answer = forever
    assert await launcher.start(to(receiver.url)) == Succeeded("x" * MAX_OUTPUT, response_code=200)


async def test_a_compressed_response_is_decompressed_only_up_to_the_limit(
    receiver: Receiver, launcher: WebhookLauncher
):
    bomb = gzip.compress(b"x" * 50_000_000)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"content-encoding": "gzip"})

    receiver.answer = answer
    assert await launcher.start(to(receiver.url)) == Succeeded("x" * MAX_OUTPUT, response_code=200)
    assert receiver.headers["accept-encoding"] == "identity"
    bomb = b"this is not gzip"
    assert await launcher.start(to(receiver.url)) == Succeeded(None, response_code=200)


async def test_undecodable_bytes_in_a_response_are_replaced(receiver: Receiver, launcher: WebhookLauncher):
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"a\xff\x00b")

    receiver.answer = answer
    assert await launcher.start(to(receiver.url)) == Succeeded("a\ufffd\ufffdb", response_code=200)
