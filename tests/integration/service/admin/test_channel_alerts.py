"""Alerts to channels through Apprise, to real HTTP and SMTP servers on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import pytest
from aiohttp import web
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.admin.test_alerts import (
    failing,
    fails,
    put_agent,
    put_workspace,
    settled,
    told,
)
from tests.support.api_client import served
from tests.support.receiver import Receiver, serving
from tests.support.waiting import PATIENCE, eventually, over, runs_of, the_run_of
from tests.unit.launch.launches import launch
from wakeful import Function, InvalidArgument, NotFound, Wakeful
from wakeful.deliver.channels import ACCEPTED, ChannelSender, SendResult
from wakeful.deliver.launcher import ChannelLauncher
from wakeful.deliver.sender_threads import MAX_PER_CHANNEL
from wakeful.document import policy_to_text
from wakeful.job.policy import Backoff, Policy
from wakeful.run.outcome import Failed, Succeeded
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings
from wakeful.store.rows import JobChange

SECRET = "Sw0rdf1sh"
SENDER = "wakeful-channel-alerts"


@pytest.fixture
async def service() -> AsyncIterator[Receiver]:
    """Run an HTTP service for a channel."""
    async with serving(Receiver()) as service:
        yield service


def to_channels(**urls: str) -> Settings:
    return Settings(channels=urls)


def posts(service: Receiver) -> str:
    """Return the Apprise URL of a service that receives JSON."""
    return f"json://ada:{SECRET}@127.0.0.1:{service.port}/{SECRET}"


def messages(service: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for body in service.bodies]


async def try_again_at_once(app: Wakeful, attempts: int = 10) -> None:
    """Remove the backoff between attempts of the alert job."""
    quick = policy_to_text(Policy(overlap="allow", max_attempts=attempts, backoff=Backoff(1, 1)))
    job = await app.jobs.get(SENDER)
    await app.store.change_job(job.id, lambda row: JobChange(row._replace(policy=quick)))


async def test_an_alert_is_sent_to_a_channel_as_readable_text(
    new_app: NewApp, service: Receiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(1)
    app = new_app(settings=to_channels(ops=posts(service)))
    failing(app)
    async with app:
        await put_agent(app, {"channel": "ops", "failures": 2, "deadLetter": False})
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
        await fails(app)
        await fails(app)
        sent = await over(app, (await the_run_of(app, SENDER)).id)
        (failed, last) = await runs_of(app, "digest")
    (message,) = messages(service)
    assert message["title"] == "Wakeful: job 'digest' of agent 'default' has failed 2 times in a row"
    error, blank, where, incident, run, at = message["message"].split("\n")
    assert (error, blank, where, run) == ("It never works", "", "workspace default", f"run {last.id}")
    assert incident.startswith("incident ")
    assert at.endswith(" UTC")
    assert message["type"] == "failure"
    assert (sent.state, sent.trigger, sent.triggered_by) == ("succeeded", "alert", last.id)
    assert sent.output == "sent to the channel 'ops'"
    assert failed.id != last.id
    logged = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]
    assert logged
    assert not [line for line in logged if SECRET in line]


async def test_an_alert_is_sent_to_the_recipient_on_a_channel(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(phone=f"ntfy://ada:{SECRET}@127.0.0.1:{service.port}/{{to}}"))
    failing(app)
    async with app:
        await put_workspace(app, alerts={"channel": "phone", "to": "night-shift"})
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
        await fails(app)
        await eventually(lambda: messages(service))
        await settled(app, "wakeful-workspace-channel-alerts")
    (message,) = messages(service)
    assert message["topic"] == "night-shift"
    assert message["title"] == "Wakeful: a run of job 'digest' of agent 'default' is a dead letter"
    assert message["message"].startswith("It never works\nReplay or discard it\n\nworkspace default\n")


class Postman:
    """An SMTP handler that records mail."""

    def __init__(self) -> None:
        self.mail: list[tuple[list[str], EmailMessage]] = []
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        read = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(read, EmailMessage)
        self.mail.append((envelope.rcpt_tos, read))
        return "250 kept"


@asynccontextmanager
async def a_post_office() -> AsyncIterator[Postman]:
    postman = Postman()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(postman, loop=loop), "127.0.0.1", 0)
    postman.port = server.sockets[0].getsockname()[1]
    async with server:
        yield postman


async def test_an_alert_is_sent_by_mail(new_app: NewApp):
    async with a_post_office() as postman:
        url = f"mailto://127.0.0.1:{postman.port}?from=wakeful@example.com&to={{to}}"
        app = new_app(settings=to_channels(mail=url))
        failing(app)
        async with app:
            await put_agent(
                app, {"channel": "mail", "to": "ada@example.org", "deadLetter": False, "failures": 1}
            )
            await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
            await fails(app)
            await over(app, (await the_run_of(app, SENDER)).id)
    ((recipients, mail),) = postman.mail
    assert recipients == ["ada@example.org"]
    assert mail["subject"] == "Wakeful: job 'digest' of agent 'default' has failed 1 time in a row"
    text = mail.get_body(("plain",))
    assert text is not None
    assert "It never works" in text.get_content()


async def test_a_rejected_message_is_retried_until_it_is_accepted(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(ops=posts(service)))
    failing(app)
    answers = iter([500, 429])

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=next(answers, 200))

    service.answer = answer
    async with app:
        await put_agent(app, {"channel": "ops", "failures": 1, "deadLetter": False})
        await try_again_at_once(app)
        await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
        await fails(app)
        run = await over(app, (await the_run_of(app, SENDER)).id)
        attempts = await app.runs.attempts(run.id)
    assert (run.state, run.attempt) == ("succeeded", 3)
    assert [each.error for each in attempts][:2] == [
        "channel 'ops': the service responded with HTTP 500",
        "channel 'ops': the service responded with HTTP 429",
    ]
    assert len({message["title"] for message in messages(service)}) == 1
    assert len(messages(service)) == 3


async def test_webhook_and_channel_alerts_are_retried_independently(
    new_app: NewApp, receiver: Receiver, service: Receiver
):
    app = new_app(settings=to_channels(ops=posts(service)))
    failing(app)
    service.answers(500)
    async with app:
        await put_agent(app, {"url": receiver.url, "channel": "ops", "failures": 1, "deadLetter": False})
        await try_again_at_once(app, 4)
        for name in ("digest", "report"):
            await app.jobs.create(name, schedule=SELDOM, target=Function("fail"))
        await fails(app, "digest")
        lost = await over(app, (await the_run_of(app, SENDER)).id)
        service.answers(200)
        again = await over(app, (await app.runs.replay(lost.id)).id)
        await fails(app, "digest")  # its incident is open: neither destination gets another alert
        await fails(app, "report")
        await eventually(lambda: len(told(receiver)) >= 2 and len(messages(service)) >= 6)
        await settled(app)
        await settled(app, SENDER)
    assert (lost.state, lost.attempt, again.state) == ("failed", 4, "succeeded")
    assert [alert["job"] for alert in told(receiver)] == ["digest", "report"]
    titles = [message["title"] for message in messages(service)]
    assert ["'digest'" in title for title in titles] == [True] * 5 + [False]


async def test_two_replicas_send_each_alert_once_per_destination(
    new_app: NewApp, receiver: Receiver, service: Receiver
):
    settings = to_channels(ops=posts(service))
    one, other = new_app(settings=settings), new_app(settings=settings)
    failing(one, other)
    async with one, other:
        await put_workspace(one, alerts={"url": receiver.url, "channel": "ops"})
        for number in range(3):
            await one.jobs.create(f"job-{number}", schedule=SELDOM, target=Function("fail"))
        for run in [await app.jobs.run(f"job-{number}") for number in range(3) for app in (one, other)]:
            await over(one, run.id)
        await eventually(lambda: len(told(receiver)) >= 3 and len(messages(service)) >= 3)
        await settled(one, "wakeful-workspace-alerts")
        await settled(one, "wakeful-workspace-channel-alerts")
    assert len(told(receiver)) == len(messages(service)) == 3
    assert len({message["title"] for message in messages(service)}) == 3


async def test_a_used_up_budget_sends_an_alert_to_a_channel(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(ops=posts(service)))

    @app.function("think")
    async def think() -> Succeeded:
        return Succeeded("done", '{"tokens":60}')

    async with app:
        await put_agent(app, {"channel": "ops"}, budget={"tokensPerDay": 50})
        await app.jobs.create("think", schedule=SELDOM, target=Function("think"))
        await over(app, (await app.jobs.run("think")).id)
        await eventually(lambda: messages(service))
    (message,) = messages(service)
    assert message["title"] == (
        "Wakeful: agent 'default' has used 60 tokens today; its budget is 50 (tokensPerDay)"
    )
    assert message["message"].startswith("Its ticks are skipped until midnight UTC\n\nworkspace default\n")
    assert message["type"] == "warning"


async def test_alert_jobs_are_created_and_deleted_with_the_alert_settings(
    new_app: NewApp, receiver: Receiver
):
    async def senders() -> dict[str, object]:
        return {job.name: job.target for job in await app.jobs.list()}

    webhook = {"kind": "webhook", "url": receiver.url}
    channel = {"kind": "channel", "channel": "phone", "to": "ada"}
    async with new_app(settings=to_channels(phone="ntfy://127.0.0.1/{to}")) as app:
        await put_agent(app, {"url": receiver.url})
        assert await senders() == {"wakeful-alerts": webhook}
        await put_agent(app, {"url": receiver.url, "channel": "phone", "to": "ada"})
        assert await senders() == {"wakeful-alerts": webhook, SENDER: channel}
        await put_agent(app, {"channel": "phone", "to": "eve"})
        assert await senders() == {SENDER: {**channel, "to": "eve"}}
        await put_agent(app, None)
        assert await senders() == {}


async def test_a_channel_alert_needs_no_encryption_key(new_app: NewApp, service: Receiver):
    async with new_app(settings=to_channels(ops=posts(service)), secret_key=None) as app:
        await put_agent(app, {"channel": "ops"})
        run = await over(app, (await app.jobs.run(SENDER)).id)
    (message,) = messages(service)
    assert run.state == "succeeded"
    assert message["title"] == f"Wakeful: job '{SENDER}' of agent 'default' was run by hand"
    assert message["message"] == "Nothing is wrong."


async def test_an_alert_configured_over_http_is_sent_and_no_response_shows_the_url(
    new_app: NewApp, service: Receiver
):
    app = new_app(settings=to_channels(ops=posts(service), phone="ntfy://127.0.0.1/{to}"))
    failing(app)
    async with app, served(app) as ask:
        made = await ask("PUT", "/agents/writer", {"alerts": {"channel": "ops", "failures": 1}})
        assert (made.status, made.body["alerts"]["channel"]) == (201, "ops")
        job = {"name": "digest", "schedule": SELDOM, "target": {"kind": "function", "name": "fail"}}
        assert (await ask("POST", "/agents/writer/jobs", job)).status == 201
        assert (await ask("POST", "/agents/writer/jobs/digest/run", {})).status == 201
        await eventually(lambda: messages(service))

        async def sent() -> list[dict[str, Any]]:
            runs = (await ask("GET", f"/agents/writer/jobs/{SENDER}/runs")).body["runs"]
            return runs if runs and all(run["state"] == "succeeded" for run in runs) else []

        runs = await eventually(sent)
        assert {run["trigger"] for run in runs} == {"alert"}
        for path in ("/agents/writer", f"/agents/writer/jobs/{SENDER}", f"/runs/{runs[0]['id']}", "/audit"):
            answer = await ask("GET", path)
            assert answer.status == 200
            assert SECRET not in json.dumps(answer.body)
    assert [message["title"] for message in messages(service)] == [
        "Wakeful: job 'digest' of agent 'writer' has failed 1 time in a row",
    ]


@on_one_store
async def test_invalid_channel_settings_are_rejected(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(ops=posts(service), phone="ntfy://127.0.0.1/{to}"))
    async with app, served(app) as ask:
        for alerts, said in [
            ({"channel": "pager"}, "alerts: channel: there is no 'pager'; there are ops, phone"),
            ({"channel": "ops", "to": "ada"}, "alerts: to: the channel 'ops' has a fixed recipient"),
            ({"channel": "phone"}, "alerts: to: the channel 'phone' needs a recipient"),
            ({"channel": "phone", "to": "a/b"}, "alerts: to: the channel 'phone' does not take 'a/b'"),
            ({"channel": "ops", "secret": "whsec_"}, "alerts: secret: it has no effect without a url"),
        ]:
            answer = await ask("PUT", "/agents/writer", {"alerts": alerts})
            assert (answer.status, answer.code) == (422, "invalid-argument")
            assert said in answer.body["detail"]
            assert SECRET not in json.dumps(answer.body)
        with pytest.raises(NotFound):
            await app.services.agents.get(LOCAL, "default", "writer")
        target = {"kind": "channel", "channel": "ops"}
        with pytest.raises(InvalidArgument, match="a channel receives alerts and deliveries"):
            await app.jobs.create("digest", schedule=SELDOM, target=target)


@on_one_store
async def test_a_replica_without_the_channel_leaves_the_alert_to_one_that_has_it(
    new_app: NewApp, service: Receiver
):
    one = new_app(settings=to_channels(ops=posts(service)))
    async with one:
        await put_agent(one, {"channel": "ops"})
        await try_again_at_once(one, 10_000)
    other = new_app()
    async with other:
        run = await other.jobs.run(SENDER)

        async def error() -> str | None:
            return next((each.error for each in await other.runs.attempts(run.id)), None)

        assert await eventually(error) == "channel 'ops': it is not set in this process (WAKEFUL_CHANNEL_OPS)"
        async with new_app(settings=to_channels(ops=posts(service))):
            await eventually(lambda: messages(service))


async def test_a_service_that_does_not_respond_does_not_block_other_sends(service: Receiver):
    asked, end = asyncio.Event(), asyncio.Event()

    async def never(request: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await end.wait()
        return web.Response()

    service.answer = never
    launcher = ChannelLauncher(ChannelSender({"ops": posts(service)}))
    started = asyncio.create_task(launcher.start(launch({"kind": "channel", "channel": "ops"})))
    await asked.wait()  # the thread does not block the event loop
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started
    service.answer = Receiver.ok
    assert isinstance(await launcher.start(launch({"kind": "channel", "channel": "ops"})), Succeeded)
    end.set()
    await launcher.close()


async def test_alerts_to_a_service_that_does_not_respond_leave_slots_to_other_runs(
    monkeypatch: pytest.MonkeyPatch,
):
    release = threading.Event()

    def send(self: ChannelSender, name: str, *args: object) -> SendResult:
        if name == "hangs":
            release.wait()
        return ACCEPTED

    monkeypatch.setattr(ChannelSender, "send", send)
    launcher = ChannelLauncher(ChannelSender({}))
    hanging = [
        asyncio.create_task(launcher.start(launch({"kind": "channel", "channel": "hangs"})))
        for _ in range(30)
    ]
    try:
        async with asyncio.timeout(PATIENCE):
            while sum(task.done() for task in hanging) < 20:
                await asyncio.sleep(0.01)
            assert isinstance(await launcher.start(launch({"kind": "channel", "channel": "ops"})), Succeeded)
    finally:
        release.set()
    outcomes = await asyncio.gather(*hanging)
    later = [each for each in outcomes if isinstance(each, Failed)]
    assert {(each.reason, each.counted, each.permanent) for each in later} == {("busy", False, False)}
    assert len(later) == len(hanging) - MAX_PER_CHANNEL
    await launcher.close()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(1)])
async def test_an_alert_whose_sending_fails_unexpectedly_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    def send(*args: object) -> None:
        raise error

    monkeypatch.setattr(ChannelSender, "send", send)
    launcher = ChannelLauncher(ChannelSender({}))
    outcome = await launcher.start(launch({"kind": "channel", "channel": "ops"}))
    await launcher.close()
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.reason) == (True, "unknown")


async def test_the_error_of_an_unreachable_service_does_not_contain_its_url(service: Receiver):
    launcher = ChannelLauncher(ChannelSender({"ops": f"json://ada:{SECRET}@127.0.0.1:1/{SECRET}"}))
    outcome = await launcher.start(launch({"kind": "channel", "channel": "ops"}))
    assert outcome == Failed(
        "channel 'ops': the service could not be reached, or closed the connection", reason="not_delivered"
    )
    assert (await launcher.start(launch({"kind": "channel"}))).permanent  # type: ignore[union-attr]
    await launcher.close()
