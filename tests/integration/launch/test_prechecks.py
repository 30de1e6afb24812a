"""Prechecks through the engine: a run with nothing to do is skipped, which is not a failure."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import NewApp, on_one_store
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, gone, runs_of, soon, the_run_of
from wakeful import Function, InvalidArgument, Launch, Skip, Wakeful, Webhook

ASK = {"kind": "function", "name": "anything-new"}


class Inbox:
    """A precheck function that checks for mail, and the target function that reads it."""

    def __init__(self, app: Wakeful) -> None:
        self.mail: object = Skip("the inbox is empty")
        self.asked = 0
        self.read = 0
        app.function("anything-new")(self._anything_new)
        app.function("read")(self._read)

    async def _anything_new(self) -> object:
        self.asked += 1
        if isinstance(self.mail, Exception):
            raise self.mail
        return self.mail

    async def _read(self) -> None:
        self.read += 1


JOB: Any = {"target": Function("read"), "precheck": ASK}


async def test_a_tick_with_nothing_to_do_is_skipped_with_the_reason(new_app: NewApp):
    app = new_app()
    inbox = Inbox(app)
    async with app:
        await app.jobs.create("inbox", schedule="every 1s", start_at=soon(), disable_after=1, **JOB)
        await app.jobs.create("cleanup", after={"job": "inbox", "on": "finished"}, target=Function("read"))
        first = await eventually(lambda: _ended(app, "inbox"))
        inbox.mail = True
        await eventually(lambda: inbox.read)
        job = await app.jobs.get("inbox")
        dead = await app.runs.dead_letters()
    assert (first.state, first.reason, first.output, first.error) == (
        "skipped", "precheck", "the inbox is empty", None,
    )  # fmt: skip
    assert (job.failures, job.enabled, list(dead)) == (0, True, [])


async def test_a_skipped_run_triggers_no_follow_up_run(new_app: NewApp):
    app = new_app()
    Inbox(app)
    async with app:
        await app.jobs.create("inbox", schedule="in 1s", delete_after_run=False, **JOB)
        for on in ("succeeded", "failed", "finished"):
            await app.jobs.create(f"on-{on}", after={"job": "inbox", "on": on}, target=Function("read"))
        run = await eventually(lambda: _ended(app, "inbox"))
        others = [each for each in await app.runs.list(limit=100) if each.id != run.id]
    assert (run.state, others) == ("skipped", [])


async def test_delete_after_run_counts_only_launched_runs(new_app: NewApp):
    app = new_app()
    inbox = Inbox(app)
    async with app:
        await app.jobs.create("inbox", schedule="every 1s", start_at=soon(), delete_after_run=True, **JOB)
        await eventually(lambda: inbox.asked >= 2)
        assert (await app.jobs.get("inbox")).enabled
        inbox.mail = True
        await gone(app, "inbox")
        runs = await runs_of(app, "inbox")
    assert inbox.read == 1
    # A busy machine may miss ticks.
    *skipped, launched = [run.state for run in runs if run.state != "missed"]
    assert (set(skipped), launched) == ({"skipped"}, "succeeded")


async def test_a_one_time_job_is_deleted_after_a_skipped_run(new_app: NewApp):
    app = new_app()
    inbox = Inbox(app)
    async with app:
        await app.jobs.create("inbox", schedule="in 1s", **JOB)
        await gone(app, "inbox")
        run = await the_run_of(app, "inbox")
    assert (run.state, run.reason, inbox.read) == ("skipped", "precheck", 0)


async def test_a_failing_precheck_is_retried_and_then_dead_lettered(new_app: NewApp):
    app = new_app()
    inbox = Inbox(app)
    inbox.mail = OSError("no connection")
    async with app:
        await app.jobs.create(
            "inbox", schedule="in 1s", max_attempts=2, backoff={"base": "1ms", "max": "1ms"}, **JOB
        )
        run = await eventually(lambda: _ended(app, "inbox"))
        dead = await app.runs.dead_letters()
    assert (run.state, run.reason, run.attempt, run.error) == (
        "failed", "precheck_failed", 2, "precheck: OSError: no connection",
    )  # fmt: skip
    assert [each.id for each in dead] == [run.id]
    assert (inbox.asked, inbox.read) == (2, 0)


async def test_a_retry_after_a_launch_has_no_precheck(new_app: NewApp):
    app = new_app()
    inbox = Inbox(app)
    inbox.mail = True
    tries: list[int] = []

    @app.function("stumble")
    async def stumble(run: Launch) -> None:
        tries.append(run.attempt)
        inbox.mail = Skip("it is half done: nobody is to say so")
        if run.attempt < 3:
            raise RuntimeError("not yet")

    async with app:
        await app.jobs.create(
            "inbox", schedule="in 100ms", target=Function("stumble"), precheck=ASK, backoff={"baseMs": 1}
        )
        await gone(app, "inbox")
    assert (tries, inbox.asked) == ([1, 2, 3], 1)


async def test_a_precheck_webhook_is_signed_and_has_its_own_id(new_app: NewApp, receiver: Receiver):
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "x-wakeful-precheck" in request.headers:
            return web.json_response({"run": len(receiver.requests) > 1, "reason": "not yet"})
        return web.json_response({"ok": True})

    receiver.answer = answer
    async with new_app() as app:
        await app.jobs.create(
            "hook",
            schedule="every 1s",
            start_at=soon(),
            target=Webhook(receiver.url),
            payload={"to": "me"},
            precheck={"kind": "webhook", "url": receiver.url},
        )
        await eventually(lambda: len(receiver.requests) >= 3)
        runs = await runs_of(app, "hook")
    first, second, launched = receiver.requests[:3]
    assert runs[0].output == "not yet"
    assert [each.headers.get("x-wakeful-precheck") for each in (first, second, launched)] == ["1", "1", None]
    assert second.headers["webhook-id"] == launched.headers["webhook-id"] + "-precheck"
    assert {"x-wakeful-signature", "webhook-signature"} <= {name.lower() for name in first.headers}
    assert receiver.bodies[0] == b'{"job":"hook","payload":{"to":"me"}}'


@on_one_store
async def test_a_precheck_webhook_skips_on_204_and_fails_on_an_error_status(
    new_app: NewApp, receiver: Receiver
):
    receiver.answers(204)
    app = new_app()
    inbox = Inbox(app)
    precheck = {"kind": "webhook", "url": receiver.url}
    async with app:
        await app.jobs.create("quiet", schedule="in 1s", target=Function("read"), precheck=precheck)
        skipped = await eventually(lambda: _ended(app, "quiet"))
        receiver.answers(410)
        await app.jobs.create(
            "gone", schedule="in 1s", target=Function("read"), precheck=precheck, max_attempts=1
        )
        failed = await eventually(lambda: _ended(app, "gone"))
    assert (skipped.state, skipped.reason) == ("skipped", "precheck")
    assert (failed.state, failed.reason) == ("failed", "precheck_failed")
    assert failed.error is not None
    assert failed.error.startswith("precheck: HTTP 410 Gone")
    assert inbox.read == 0


@on_one_store
async def test_a_precheck_is_validated_when_the_job_is_saved(new_app: NewApp):
    app = new_app(allow_private_targets=False)
    Inbox(app)
    async with app:
        with pytest.raises(InvalidArgument, match=r"precheck: .*127\.0\.0\.1"):
            await app.jobs.create(
                "a",
                schedule="@daily",
                target=Function("read"),
                precheck={"kind": "webhook", "url": "http://127.0.0.1/any"},
            )
        with pytest.raises(InvalidArgument, match="precheck: no commands are allowed"):
            await app.jobs.create(
                "a",
                schedule="@daily",
                target=Function("read"),
                precheck={"kind": "command", "argv": ["true"], "timeout": "1s"},
            )
        with pytest.raises(InvalidArgument, match="precheck: a precheck of the kind 'function' needs a name"):
            await app.jobs.create("a", schedule="@daily", precheck={"kind": "function"})


async def _ended(app: Wakeful, name: str):
    runs = [run for run in await runs_of(app, name) if run.finished_at is not None]
    return runs[0] if runs else None
