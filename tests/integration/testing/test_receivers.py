"""The servers for tests of users: they record what arrives, check signatures, and answer as a test says."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook as StandardWebhook

from wakeful import Chat, InvalidArgument, Webhook
from wakeful.testing import ChatEndpoint, Harness, WebhookReceiver

START = "2030-01-01T00:00:00Z"
PATIENCE = 10.0


async def test_retries_of_a_webhook_reach_the_receiver_signed():
    with WebhookReceiver() as receiver:
        async with Harness(at=START) as harness:
            job = await harness.app.jobs.create(
                "digest",
                schedule="0 9 * * *",
                target=Webhook(receiver.url),
                payload={"to": "grün"},
                max_attempts=3,
            )
            assert job.secret is not None
            receiver.secret = job.secret
            receiver.respond(503, times=2)
            receiver.respond(200, {"sent": 1})
            await harness.advance("10h")
            (run,) = await harness.enqueued("digest")
            assert (run.state, run.attempt, run.output) == ("succeeded", 3, '{"sent": 1}')
            assert [request.json()["payload"] for request in receiver.requests] == [{"to": "grün"}] * 3
            assert {request.headers["x-wakeful-attempt"] for request in receiver.requests} == {"1", "2", "3"}
            for request in receiver.requests:  # as another implementation signs it
                sent_at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
                signature = StandardWebhook(job.secret).sign(
                    request.headers["webhook-id"], sent_at, request.body.decode()
                )
                assert request.headers["webhook-signature"] == signature
            await harness.app.jobs.rotate_secret("digest")
            await harness.advance("1d")
            assert len(receiver.requests) == 4, "both secrets sign for a day"
            await harness.advance("2d")
            assert len(receiver.requests) == 4
            assert receiver.refused


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-signature": ""},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-timestamp": "soon"},
        {"webhook-timestamp": "1"},
        {"webhook-id": "another"},
        {"body": b"{}"},
    ],
)
def test_a_request_that_is_not_signed_is_refused(change: dict[str, str | bytes]):
    secret = "whsec_" + "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
    body, now = b'{"job": "digest"}', int(time.time())
    signature = StandardWebhook(secret).sign("id-1", datetime.fromtimestamp(now, UTC), body.decode())
    headers = {"webhook-id": "id-1", "webhook-timestamp": str(now), "webhook-signature": signature}
    with WebhookReceiver() as receiver:
        receiver.secret = secret
        assert _post(receiver.url, body, headers)[0] == 200
        changed = {name: value for name, value in {**headers, **change}.items() if isinstance(value, str)}
        sent = change.get("body", body)
        assert isinstance(sent, bytes)
        assert _post(receiver.url, sent, changed)[0] == 401
        assert (len(receiver.requests), len(receiver.refused)) == (1, 1)
        with pytest.raises(InvalidArgument, match="secret"):
            receiver.requests[0].is_signed_with("whsec_garbage")


def test_answers_are_used_in_order_and_by_path():
    with WebhookReceiver() as receiver:
        receiver.respond(204, path="/check")
        receiver.respond(500, "first", headers={"retry-after": "9"})
        receiver.respond(202, b"\xff", times=None)
        base = receiver.url.removesuffix("/hook")
        assert [_post(f"{base}{path}")[0] for path in ("/hook", "/check", "/check")] == [500, 204, 202]
        assert _post(receiver.url) == (202, b"\xff")
        assert [request.path for request in receiver.requests] == ["/hook", "/check", "/check", "/hook"]
    with pytest.raises(RuntimeError, match="does not listen"):
        _ = receiver.url


def test_many_requests_at_once_are_all_recorded_and_close_waits_for_none():
    with WebhookReceiver() as receiver:
        receiver.respond(times=100, delay=0.05)
        with ThreadPoolExecutor(20) as pool:
            statuses = list(pool.map(lambda _: _post(receiver.url)[0], range(100)))
        assert statuses == [200] * 100
        assert len(receiver.requests) == 100
        idle = http.client.HTTPConnection("127.0.0.1", receiver.port)
        idle.request("POST", "/hook", b"{}")
        assert idle.getresponse().read() == b""
        with socket.create_connection(("127.0.0.1", receiver.port)) as garbage:
            garbage.sendall(b"\x00\x01 garbage\r\n\r\n")
            assert b"Error" in garbage.recv(1000)
        receiver.respond(delay=3600)
        waiting = threading.Thread(target=lambda: _post(receiver.url, refused=True))
        waiting.start()
        while len(receiver.requests) < 102:
            time.sleep(0.005)
        before = time.monotonic()
    assert time.monotonic() - before < PATIENCE
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    idle.close()
    assert not [each for each in threading.enumerate() if each.name == "wakeful-receiver"]


async def test_a_model_of_a_test_calls_tools_and_reports_usage():
    with ChatEndpoint() as model:
        async with Harness(at=START) as harness:
            app = harness.app
            target = Chat(model.url, "test")
            await app.agents.put("writer", {"target": target.to_json()})
            await app.jobs.of("writer").create("plan", schedule="0 9 * * *", message="Plan the day.")
            follow_up = {"name": "again", "schedule": "in 2h", "message": "Look again."}
            model.call(("cron", {"action": "add", "job": follow_up}))
            model.say("planned", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
            await harness.advance("9h")
            (run,) = await app.runs.of("writer").list()
            assert (run.state, run.output) == ("succeeded", "planned")
            assert isinstance(run.usage, dict)
            assert run.usage["tokens"] == 130
            assert model.texts(0) == [("user", "Plan the day.")]
            model.refuse(429, "slow down", {"retry-after": "60"})
            await harness.advance("2h")
            assert len(model.requests) == 3
            await harness.advance("2m")
            later = (await app.runs.of("writer").list())[0]
            assert (later.job, later.state, later.attempt) == ("again", "succeeded", 2)
            assert later.output == "You said: Look again."


def test_the_endpoint_refuses_a_wrong_key_and_a_wrong_path():
    with ChatEndpoint() as model:
        model.key = "sk-test"
        request = json.dumps({"model": "test", "messages": [{"role": "user", "content": "hi"}]}).encode()
        url = f"{model.url}/chat/completions"
        assert _post(url, request)[0] == 401
        assert _post(f"{model.url}/embeddings", request)[0] == 404
        status, body = _post(url, request, {"authorization": "Bearer sk-test"})
        assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "You said: hi")
        model.raw("not json")
        assert _post(url, request, {"authorization": "Bearer sk-test"}) == (200, b"not json")
        assert len(model.requests) == 2


def _post(
    url: str, body: bytes = b"{}", headers: dict[str, str] | None = None, *, refused: bool = False
) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except (OSError, http.client.HTTPException):
        if not refused:
            raise
        return 0, b""
