"""Webhooks end to end: a job, the engine, a real server and the resulting run."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook as StandardWebhook
from standardwebhooks import WebhookVerificationError

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.receiver import Receiver
from tests.support.waiting import epoch_ms, eventually, in_state, over, the_run_of
from wakeful import FailedPrecondition, Function, InvalidArgument, Launch, Wakeful, Webhook
from wakeful.errors import Unavailable
from wakeful.model import Run
from wakeful.store.rows import JobChange
from wakeful.values.instants import iso_utc

QUICKLY = {"base": "20ms", "max": "20ms"}


def verifies(receiver: Receiver, secret: str | None, number: int = -1) -> None:
    """Verify both signatures of a request, with hmac and with the standardwebhooks library."""
    assert secret is not None
    body, request = receiver.bodies[number], receiver.requests[number]
    key = b64decode(secret.removeprefix("whsec_"))
    assert request.headers["x-wakeful-signature"] == hmac.new(key, body, hashlib.sha256).hexdigest()
    accepts(receiver, secret, number)


def accepts(receiver: Receiver, secret: str | None, number: int = -1) -> None:
    """Verify the standard signature of a request with this secret."""
    headers = {name.lower(): value for name, value in receiver.requests[number].headers.items()}
    StandardWebhook(str(secret)).verify(receiver.bodies[number], headers)


def values(receiver: Receiver, header: str) -> list[str]:
    return [request.headers[header] for request in receiver.requests]


def first_answers(receiver: Receiver, *answers: str | int, **headers: str) -> None:
    """Send these responses in order, then 200. `close` and `hang` send none."""
    left = list(answers)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        how = left.pop(0) if left else 200
        if how == "hang":
            await asyncio.sleep(3_600)
        if how == "close":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        status = int(how) if isinstance(how, int) else 200
        return web.Response(status=status, headers=headers if status >= 400 else {})

    receiver.answer = answer


async def posted(app: Wakeful, receiver: Receiver, **fields: Any) -> Run:
    """Create a job with this webhook and start a run of it."""
    fields = {"schedule": SELDOM, "target": Webhook(receiver.url), "backoff": QUICKLY, **fields}
    await app.jobs.create("digest", **fields)
    return await app.jobs.run("digest")


# --- requests and secrets ----------------------------------------------------------------------------


async def test_the_body_arrives_byte_for_byte_and_both_signatures_verify(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        payload = {"to": "Zoë", "b": 1, "a": [1.0, None, True], "quote": '"</script>'}
        saved = await app.jobs.create(
            "digest", schedule="in 100ms", target=Webhook(receiver.url), payload=payload
        )
        run = await over(app, (await the_run_of(app, "digest")).id)
    text = '{"job":"digest","payload":{"to":"Zoë","b":1,"a":[1.0,null,true],"quote":"\\"</script>"}}'
    assert receiver.bodies == [text.encode()]
    verifies(receiver, saved.secret)
    assert (run.state, run.output) == ("succeeded", '{"ok": true}')
    assert receiver.headers["webhook-id"] == run.idempotency_key
    assert receiver.headers["x-wakeful-run-id"] == run.id
    assert receiver.headers["x-wakeful-attempt"] == "1"


@on_one_store
async def test_a_message_is_the_payload_of_a_job_without_one(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        await over(app, (await posted(app, receiver, message="wake up")).id)
    assert receiver.bodies == [b'{"job":"digest","payload":{"message":"wake up"}}']


async def test_the_secret_is_shown_once_and_stored_encrypted(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        fields: Any = {"schedule": SELDOM, "target": Webhook(receiver.url)}
        saved = await app.jobs.create("digest", **fields)
        assert (await app.jobs.upsert("digest", **fields)).secret is None
        assert (await app.jobs.update("digest", description="new")).secret is None
        row = await app.store.job("default", "default", "digest")
    assert row is not None
    assert row.secret is not None
    assert b64decode(str(saved.secret).removeprefix("whsec_")) not in row.secret


@on_one_store
async def test_each_job_has_its_own_secret(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        first = await app.jobs.create("first", schedule=SELDOM, target=Webhook(receiver.url))
        second = await app.jobs.create("second", schedule=SELDOM, target=Webhook(receiver.url))
        await over(app, (await app.jobs.run("first")).id)
    verifies(receiver, first.secret)
    with pytest.raises(WebhookVerificationError):
        accepts(receiver, second.secret)


async def test_changing_the_target_to_a_webhook_creates_a_secret(new_app: NewApp, receiver: Receiver):
    app = new_app()

    @app.function()
    async def local() -> None: ...

    async with app:
        before = await app.jobs.create("digest", schedule=SELDOM, target=Function("local"))
        await over(app, (await app.jobs.run("digest")).id)
        after = await app.jobs.update("digest", target=Webhook(receiver.url))
        await over(app, (await app.jobs.run("digest")).id)
    assert before.secret is None
    verifies(receiver, after.secret)


async def test_after_a_rotation_both_secrets_verify(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        old = await app.jobs.create("digest", schedule=SELDOM, target=Webhook(receiver.url))
        await over(app, (await app.jobs.run("digest")).id)
        new = await app.jobs.rotate_secret("digest")
        await over(app, (await app.jobs.run("digest")).id)
    assert new.secret not in (None, old.secret)
    verifies(receiver, old.secret, 0)
    verifies(receiver, new.secret, 1)
    accepts(receiver, old.secret, 1)
    with pytest.raises(WebhookVerificationError):
        accepts(receiver, new.secret, 0)


@on_one_store
async def test_rotating_without_a_webhook_is_rejected(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("local"))
        with pytest.raises(FailedPrecondition, match="no secret to rotate"):
            await app.jobs.rotate_secret("digest")


@on_one_store
async def test_a_private_address_is_rejected_when_the_job_is_created(new_app: NewApp, receiver: Receiver):
    async with new_app(allow_private_targets=False) as app:
        with pytest.raises(InvalidArgument, match="WAKEFUL_ALLOW_PRIVATE_TARGETS"):
            await app.jobs.create("digest", schedule=SELDOM, target=Webhook(receiver.url))
    assert receiver.requests == []


# --- retries -----------------------------------------------------------------------------------------


async def test_the_webhook_id_is_the_same_in_retries_and_replays(new_app: NewApp, receiver: Receiver):
    first_answers(receiver, 500, 503, 500)
    async with new_app() as app:
        run = await posted(app, receiver, max_attempts=3)
        dead = await over(app, run.id)
        replayed = await over(app, (await app.runs.replay(dead.id)).id)
    assert (dead.state, dead.error, replayed.state) == (
        "failed",
        "HTTP 500 Internal Server Error",
        "succeeded",
    )
    assert values(receiver, "webhook-id") == [run.idempotency_key] * 4
    assert values(receiver, "x-wakeful-attempt") == ["1", "2", "3", "4"]
    assert values(receiver, "x-wakeful-run-id") == [run.id] * 3 + [replayed.id]
    assert len(set(receiver.bodies)) == 1


@pytest.mark.parametrize("how", [500, 408, 302, "close", "hang"])
async def test_a_failed_request_is_retried_after_a_restart(
    new_app: NewApp, receiver: Receiver, how: str | int
):
    first_answers(receiver, how)
    async with new_app() as app:
        run = await posted(app, receiver, backoff={"base": "600ms"}, timeout="2s")
        waiting = await in_state(app, run.id, "retrying")
    assert waiting.due_at is not None
    async with new_app() as app:
        run = await over(app, run.id)
        first, last = await app.runs.attempts(run.id)
    assert (run.state, run.attempt) == ("succeeded", 2)
    assert first.error
    assert values(receiver, "webhook-id")[-1] == run.idempotency_key
    assert epoch_ms(last.started_at) >= epoch_ms(waiting.due_at)


async def test_retry_after_is_respected_after_a_restart(new_app: NewApp, receiver: Receiver):
    first_answers(receiver, 429, **{"retry-after": "1"})
    async with new_app() as app:
        run = await posted(app, receiver)
        await in_state(app, run.id, "retrying")
    async with new_app() as app:
        run = await over(app, run.id)
        first, last = await app.runs.attempts(run.id)
    assert run.state == "succeeded"
    assert first.error == "HTTP 429 Too Many Requests"
    assert epoch_ms(last.started_at) - epoch_ms(first.finished_at) >= 1000


async def test_a_payload_that_is_too_large_for_the_receiver_is_not_sent_again(
    new_app: NewApp, receiver: Receiver
):
    receiver.answers(413, "at most 1 KB")
    async with new_app() as app:
        run = await posted(app, receiver)
        run = await over(app, run.id)
    assert (run.state, run.attempt, run.reason) == ("failed", 1, "too_large")
    assert run.error == "HTTP 413 Request Entity Too Large: at most 1 KB"


async def test_status_410_fails_the_run_without_retries_and_pauses_the_job(
    new_app: NewApp, receiver: Receiver
):
    receiver.answers(410)
    async with new_app() as app:
        run = await over(app, (await posted(app, receiver)).id)
        job = await app.jobs.get("digest")
        assert [letter.id for letter in await app.runs.dead_letters()] == [run.id]
        assert (job.enabled, job.disabled_reason, job.next_at) == (False, "gone", None)
        resumed = await app.jobs.resume("digest")
    assert (run.state, run.attempt, run.reason) == ("failed", 1, "gone")
    assert resumed.enabled
    assert len(receiver.requests) == 1


async def test_a_run_of_a_deleted_job_is_signed(new_app: NewApp, receiver: Receiver):
    first_answers(receiver, 500, 500)
    async with new_app() as app:
        saved = await app.jobs.create(
            "digest",
            schedule=SELDOM,
            target=Webhook(receiver.url),
            max_attempts=2,
            backoff={"base": "300ms"},
        )
        run = await in_state(app, (await app.jobs.run("digest")).id, "retrying")
        await app.jobs.delete("digest")
        assert (await over(app, run.id)).state == "failed"
    async with new_app() as app:
        assert (await over(app, (await app.runs.replay(run.id)).id)).state == "succeeded"
    for number in range(3):
        verifies(receiver, saved.secret, number)


# --- callbacks ---------------------------------------------------------------------------------------


@pytest.fixture
async def parked(new_app: NewApp, receiver: Receiver) -> AsyncIterator[tuple[Wakeful, Run]]:
    """Start an app with a run that awaits its callback."""
    app = new_app()

    @app.function()
    async def note(run: Launch) -> None: ...

    async with app:
        target = Webhook(receiver.url, completion="callback")
        run = await posted(app, receiver, target=target, timeout="30s")
        await app.jobs.create("then", after="digest", target=Function("note"))
        await eventually(lambda: receiver.requests)

        async def waits() -> bool:
            return (await app.runs.get(run.id)).due_at is not None

        await eventually(waits)
        yield app, run


async def test_a_callback_run_is_running_until_it_is_completed(parked: tuple[Wakeful, Run]):
    app, run = parked
    assert (await app.runs.get(run.id)).state == "running"
    done = await app.runs.complete(run.id, "succeeded", output="all sent")
    assert (done.state, done.output, done.attempt) == ("succeeded", "all sent", 1)
    with pytest.raises(FailedPrecondition, match="does not wait to be completed"):
        await app.runs.complete(run.id, "failed")
    chained = await over(app, (await the_run_of(app, "then")).id)
    assert (chained.state, chained.triggered_by) == ("succeeded", run.id)


async def test_a_run_completed_as_failed_is_retried(parked: tuple[Wakeful, Run], receiver: Receiver):
    app, run = parked
    await app.runs.complete(run.id, "failed", error="out of paper")
    await eventually(lambda: len(receiver.requests) == 2)
    assert values(receiver, "webhook-id") == [run.idempotency_key] * 2
    first, *_ = await app.runs.attempts(run.id)
    assert (first.attempt, first.error) == (1, "out of paper")


async def test_a_stopped_callback_run_cannot_be_completed(parked: tuple[Wakeful, Run]):
    app, run = parked
    assert (await app.runs.stop(run.id)).state == "cancelled"
    with pytest.raises(FailedPrecondition):
        await app.runs.complete(run.id, "succeeded")


async def test_a_callback_run_survives_a_restart(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        target = Webhook(receiver.url, completion="callback")
        run = await posted(app, receiver, target=target, timeout="30s")
        await eventually(lambda: receiver.requests)
    async with new_app() as app:
        assert (await app.runs.get(run.id)).state == "running"
        assert (await app.runs.complete(run.id, "succeeded")).state == "succeeded"
    assert len(receiver.requests) == 1


async def test_a_callback_timeout_fails_the_attempt(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        target = Webhook(receiver.url, completion="callback")
        run = await posted(app, receiver, target=target, timeout="2s", max_attempts=2)
        run = await over(app, run.id)
    assert (run.state, run.attempt, run.error) == ("failed", 2, "not completed in time")
    assert values(receiver, "x-wakeful-attempt") == ["1", "2"]


@on_one_store
async def test_an_error_status_fails_the_attempt_of_a_callback_run(new_app: NewApp, receiver: Receiver):
    first_answers(receiver, 500)
    async with new_app() as app:
        run = await posted(app, receiver, target=Webhook(receiver.url, completion="callback"))
        await eventually(lambda: len(receiver.requests) == 2)
        first, *_ = await app.runs.attempts(run.id)
    assert first.error == "HTTP 500 Internal Server Error"
    assert json.loads(receiver.bodies[1]) == {"job": "digest", "payload": None}


# --- recorded response statuses ----------------------------------------------------------------------


async def test_the_response_status_of_every_attempt_is_recorded(new_app: NewApp, receiver: Receiver):
    first_answers(receiver, 503, "close", 429)
    async with new_app() as app:
        run = await over(app, (await posted(app, receiver)).id)
        attempts = await app.runs.attempts(run.id)
    assert (run.state, run.response_code, run.failed_attempts) == ("succeeded", 200, 3)
    assert [attempt.response_code for attempt in attempts] == [503, None, 429, 200]


async def test_completing_a_callback_run_keeps_its_response_status(
    parked: tuple[Wakeful, Run],
):
    app, run = parked
    assert (await app.runs.get(run.id)).response_code == 200
    assert (await app.runs.complete(run.id, "succeeded")).response_code == 200


# --- database outages and headers ----------------------------------------------------------------------


def away_after_claims(app: Wakeful, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail every read of a single row from the claim of a run until its request arrives."""
    away = False

    def cut_off(name: str) -> None:
        read = getattr(app.store, name)

        async def reading(*given: Any, **named: Any) -> Any:
            if away:
                raise Unavailable("the database is away")
            return await read(*given, **named)

        monkeypatch.setattr(app.store, name, reading)

    def claiming(name: str) -> None:
        claim = getattr(app.store, name)

        async def claimed(*given: Any) -> Any:
            nonlocal away
            runs = await claim(*given)
            away = bool(runs.runs if name == "plan" else runs)
            return runs

        monkeypatch.setattr(app.store, name, claimed)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal away
        away = False
        return web.Response()

    for name in ("job_by_id", "job", "run", "agent", "workflow"):
        cut_off(name)
    for name in ("plan", "take"):
        claiming(name)
    receiver.answer = answer


@pytest.mark.parametrize("tick", [True, False])
async def test_a_database_outage_between_claim_and_launch_fails_no_run(
    new_app: NewApp, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tick: bool
):
    app = new_app()
    async with app:
        saved = await app.jobs.create(
            "digest", schedule="in 300ms" if tick else SELDOM, target=Webhook(receiver.url), max_attempts=1
        )
        away_after_claims(app, receiver, monkeypatch)
        if not tick:
            await app.jobs.run("digest")
        await eventually(lambda: receiver.requests)
        monkeypatch.undo()
        run = await over(app, (await the_run_of(app, "digest")).id)
    assert (run.state, run.failed_attempts) == ("succeeded", 0)
    verifies(receiver, saved.secret)


async def test_the_headers_have_the_trigger_previous_tick_and_missed_count(
    new_app: NewApp, receiver: Receiver
):
    first_answers(receiver, 500)
    async with new_app() as app:
        saved = await app.jobs.create(
            "digest",
            schedule="every 1s",
            target=Webhook(receiver.url),
            backoff=QUICKLY,
            misfire_grace="1s",
            max_runs=1,
        )
        assert saved.next_at is not None
        an_hour_ago = epoch_ms(saved.next_at) - 3_600_000
        await app.services.store.change_job(
            saved.id,
            lambda row: JobChange(
                row._replace(next_ms=an_hour_ago, wake_ms=an_hour_ago, anchor_ms=an_hour_ago - 1_000)
            ),
        )
        await eventually(lambda: len(receiver.requests) == 2)
        runs = await app.runs.list(job_id=saved.id)
        missed = sum(run.covers for run in runs if run.state == "missed")
        (run,) = [run for run in runs if run.state != "missed"]
        assert missed >= 3_597
        assert run.missed == missed
        assert values(receiver, "x-wakeful-attempt") == ["1", "2"]
        assert values(receiver, "x-wakeful-missed") == [str(missed)] * 2, "the same in a retry"
        assert values(receiver, "x-wakeful-trigger") == ["schedule"] * 2
        assert (
            values(receiver, "x-wakeful-previous-tick") == [iso_utc(epoch_ms(run.scheduled_at) - 1_000)] * 2
        )


async def test_the_headers_of_a_manual_run(new_app: NewApp, receiver: Receiver):
    async with new_app() as app:
        await app.jobs.create("daily", schedule="0 7 * * *", target=Webhook(receiver.url))
        await app.jobs.create("first", schedule="in 2h", target=Webhook(receiver.url))
        for name in ("daily", "first"):
            await over(app, (await app.jobs.run(name)).id)
        assert values(receiver, "x-wakeful-trigger") == ["user"] * 2
        assert values(receiver, "x-wakeful-missed") == ["0"] * 2
        assert receiver.requests[0].headers["x-wakeful-previous-tick"].endswith("T07:00:00Z")
        assert "x-wakeful-previous-tick" not in receiver.requests[1].headers
