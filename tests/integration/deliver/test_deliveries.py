"""Delivery of run outputs through channels to real HTTP and SMTP servers on 127.0.0.1."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Mapping
from html import unescape
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.admin.test_channel_alerts import (
    SECRET,
    a_post_office,
    messages,
    posts,
    to_channels,
)
from tests.support.api_client import served
from tests.support.message_services import URLS, serving_messages
from tests.support.receiver import Receiver, serving
from tests.support.waiting import eventually, over
from wakeful import Function, Permanent, Wakeful
from wakeful.deliver.channels import ChannelMessage, ChannelSender, SendResult
from wakeful.deliver.deliverer import ATTEMPTS
from wakeful.deliver.sender_threads import MAX_PER_CHANNEL
from wakeful.job.policy import Backoff
from wakeful.model import Run
from wakeful.service.auth.access import LOCAL


@pytest.fixture
async def service() -> AsyncIterator[Receiver]:
    """Run an HTTP service for a channel."""
    async with serving(Receiver()) as service:
        yield service


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the backoff between delivery attempts."""
    monkeypatch.setattr("wakeful.deliver.deliverer._BACKOFF", Backoff(1, 1))


def saying(app: Wakeful, answer: str | None = "Good morning.") -> None:
    """Register a function that returns `answer`."""

    @app.function()
    async def say() -> str | None:
        return answer


async def say(app: Wakeful, **fields: Any) -> Run:
    """Run a job with delivery; return the run when its delivery is over."""
    await app.jobs.upsert("digest", schedule=SELDOM, target=Function("say"), **{"deliver": True, **fields})
    run = await app.jobs.run("digest")

    async def known() -> Run | None:
        found = await app.runs.get(run.id)
        return found if found.delivery != "pending" else None

    await over(app, run.id)
    found = await eventually(known)
    assert found is not None
    return found


async def test_the_output_of_a_run_is_delivered_unchanged(
    new_app: NewApp, service: Receiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(1)
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)
    async with app:
        run = await say(app, channel="team")
        metrics = app.services.metrics.deliveries
    (message,) = messages(service)
    assert (message["title"], message["message"], message["type"]) == ("", "Good morning.", "info")
    assert (run.state, run.delivery, run.delivery_error) == ("succeeded", "delivered", None)
    assert metrics == {"delivered": 1}
    logged = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]
    assert [line for line in logged if "delivery.delivered" in line]
    assert not [line for line in logged if SECRET in line]


async def test_a_job_without_a_recipient_is_delivered_to_that_of_its_agent(
    new_app: NewApp, service: Receiver
):
    url = f"ntfy://ada:{SECRET}@127.0.0.1:{service.port}/{{to}}"
    app = new_app(settings=to_channels(phone=url))
    saying(app)
    async with app:
        await app.services.agents.put(LOCAL, "default", "default", {"channel": "phone", "to": "ada"})
        assert (await say(app)).delivery == "delivered"
        assert (await say(app, to="bob")).delivery == "delivered"
    assert [message["topic"] for message in messages(service)] == ["ada", "bob"]


@on_one_store
@pytest.mark.parametrize(
    ("answer", "becomes", "why"),
    [
        ("NO_REPLY", "suppressed", "its answer was NO_REPLY"),
        (" `NO_REPLY`.\n", "suppressed", "its answer was NO_REPLY"),
        ("NO_REPLYING", "delivered", None),
        ("I would say NO_REPLY", "delivered", None),
        ("HEARTBEAT_OK", "delivered", None),
        ("", "suppressed", "it said nothing"),
        (None, "suppressed", "it said nothing"),
    ],
)
async def test_empty_and_no_reply_outputs_are_suppressed(
    new_app: NewApp, service: Receiver, answer: str | None, becomes: str, why: str | None
):
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app, answer)
    async with app:
        run = await say(app, channel="team")
    assert (run.state, run.delivery, run.delivery_error) == ("succeeded", becomes, why)
    assert len(messages(service)) == (becomes == "delivered")


async def test_a_failed_delivery_is_retried_and_the_run_stays_succeeded(
    new_app: NewApp, service: Receiver, at_once: None
):
    answers = iter([503, 500])

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=next(answers, 200))

    service.answer = answer
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)
    async with app:
        run = await say(app, channel="team")
        metrics = app.services.metrics.deliveries
    assert (run.state, run.delivery, run.delivery_error) == ("succeeded", "delivered", None)
    assert metrics == {"retrying": 2, "delivered": 1}
    assert len(service.bodies) == 3


async def test_a_delivery_fails_after_its_last_attempt_and_the_run_stays_succeeded(
    new_app: NewApp, service: Receiver, at_once: None
):
    service.answers(500)
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)
    async with app:
        run = await say(app, channel="team")
        assert await app.runs.dead_letters() == []
    assert (run.state, run.dead, run.error) == ("succeeded", False, None)
    assert run.delivery == "failed"
    assert run.delivery_error == "channel 'team': the service responded with HTTP 500"
    assert len(service.bodies) == ATTEMPTS


@on_one_store
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"channel": "telegram", "to": "123456789"}, "there is no 'telegram'; there are phone"),
        ({"channel": "phone"}, "the channel 'phone' needs a recipient"),
        ({}, "neither the job nor its agent sets"),
    ],
)
async def test_an_undeliverable_output_fails_immediately_with_a_reason(
    new_app: NewApp, fields: Mapping[str, str], why: str
):
    app = new_app(settings=to_channels(phone="ntfy://127.0.0.1:9/{to}"))
    saying(app)
    async with app:
        run = await say(app, **fields)
    assert (run.state, run.delivery) == ("succeeded", "failed")
    assert why in str(run.delivery_error)


async def test_failed_runs_and_runs_without_deliver_are_not_delivered(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)

    @app.function()
    async def fail() -> None:
        raise Permanent("no")

    async with app:
        await app.jobs.create("quiet", schedule=SELDOM, target=Function("say"), channel="team")
        await app.jobs.create(
            "failing", schedule=SELDOM, target=Function("fail"), channel="team", deliver=True
        )
        runs = [await over(app, (await app.jobs.run(name)).id) for name in ("quiet", "failing")]
        assert (await say(app, channel="team")).delivery == "delivered"
    assert [(run.state, run.delivery) for run in runs] == [
        ("succeeded", "not_requested"),
        ("failed", "not_requested"),
    ]
    assert len(messages(service)) == 1


async def test_the_output_of_a_run_completed_by_an_executor_is_delivered(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(team=posts(service)))
    async with app:
        await app.jobs.create("digest", schedule=SELDOM, deliver=True, channel="team", message="what is new?")
        run = await app.jobs.run("digest")
        (claimed,) = await app.services.runs.pull.claim(LOCAL, "default", "me")
        assert claimed["id"] == run.id
        await app.runs.complete(run.id, "succeeded", attempt=1, output="nothing much")
        await eventually(lambda: messages(service))
    assert messages(service)[0]["message"] == "nothing much"


async def test_a_pending_delivery_is_sent_by_another_process(new_app: NewApp, service: Receiver):
    ended_elsewhere = new_app()
    await ended_elsewhere.store.open()
    await ended_elsewhere.jobs.create(
        "digest", schedule=SELDOM, deliver=True, channel="team", message="hello"
    )
    run = await ended_elsewhere.jobs.run("digest")
    await ended_elsewhere.services.runs.pull.claim(LOCAL, "default", "me")
    done = await ended_elsewhere.runs.complete(run.id, "succeeded", attempt=1, output="good morning")
    await ended_elsewhere.store.close()
    assert (done.state, done.delivery) == ("succeeded", "pending")
    async with new_app(settings=to_channels(team=posts(service))) as app:

        async def arrived() -> bool:
            return (await app.runs.get(run.id)).delivery == "delivered"

        await eventually(arrived)
    assert len(messages(service)) == 1


@on_one_store
async def test_a_mail_has_a_subject(new_app: NewApp):
    async with a_post_office() as postman:
        url = f"mailto://127.0.0.1:{postman.port}?from=wakeful@example.com&to={{to}}"
        app = new_app(settings=to_channels(mail=url))
        saying(app)
        async with app:
            assert (await say(app, channel="mail", to="ada@example.org")).delivery == "delivered"
    ((recipients, mail),) = postman.mail
    assert (recipients, mail["subject"]) == (["ada@example.org"], "digest (default)")
    text = mail.get_body(("plain",))
    assert text is not None
    assert text.get_content().strip() == "Good morning."


@on_one_store
async def test_a_run_shows_the_state_of_its_delivery(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)
    async with app, served(app) as ask:
        shown = (await ask("GET", f"/runs/{(await say(app, channel='team')).id}")).body
        assert (shown["state"], shown["delivery"], shown["deliveryError"]) == ("succeeded", "delivered", None)
        other = await app.jobs.run((await app.jobs.create("b", schedule=SELDOM)).name)
        assert (await ask("GET", f"/runs/{other.id}")).body["delivery"] == "not_requested"


@on_one_store
async def test_active_deliveries_finish_when_the_process_stops(new_app: NewApp, service: Receiver):
    go_on = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await go_on.wait()
        return web.Response()

    service.answer = answer
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)
    async with app:
        await app.jobs.create("digest", schedule=SELDOM, target=Function("say"), deliver=True, channel="team")
        run = await app.jobs.run("digest")
        await eventually(lambda: service.bodies)
        ending = asyncio.create_task(app.stop())
        await eventually(lambda: not app.alive)
        go_on.set()
        await ending
    async with new_app() as other:
        assert (await other.runs.get(run.id)).delivery == "delivered"


@on_one_store
async def test_services_that_never_respond_do_not_stop_other_deliveries(
    new_app: NewApp, service: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("wakeful.deliver.deliverer._LEASE_MS", 500)
    release, send = threading.Event(), ChannelSender.send

    def hanging(self: ChannelSender, name: str, to: str | None, message: ChannelMessage) -> SendResult:
        if name == "hangs":
            release.wait()
        return send(self, name, to, message)

    monkeypatch.setattr(ChannelSender, "send", hanging)
    app = new_app(settings=to_channels(team=posts(service), hangs=posts(service)))
    saying(app)
    try:
        async with app:
            fields: dict[str, Any] = {"deliver": True, "channel": "hangs", "overlap_policy": "allow"}
            await app.jobs.create("hanging", schedule=SELDOM, target=Function("say"), **fields)
            stuck = [await app.jobs.run("hanging") for _ in range(MAX_PER_CHANNEL)]
            for run in stuck:
                await over(app, run.id)
            assert (await say(app, channel="team")).delivery == "delivered"

            async def deliveries() -> bool:
                return {(await app.runs.get(run.id)).delivery for run in stuck} == {"unknown"}

            await eventually(deliveries)
    finally:
        release.set()


@on_one_store
@pytest.mark.parametrize("name", ["telegram", "discord", "slack"])
async def test_a_long_output_is_delivered_in_parts_that_the_service_accepts(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch, name: str
):
    lines = [f"{number}. Tom & Ada 👍 {'word ' * (number % 30)}".rstrip() for number in range(150)]
    monkeypatch.setattr("apprise.plugins.base.NotifyBase.request_rate_per_sec", 0)
    monkeypatch.setattr("apprise.plugins.slack.NotifySlack.request_rate_per_sec", 0)
    async with serving_messages(monkeypatch, name) as service:
        app = new_app(settings=to_channels(team=URLS[name]))
        saying(app, "\n".join(lines))
        async with app:
            run = await say(app, channel="team")
    assert (run.delivery, run.delivery_error) == ("delivered", None)
    assert len(service.texts) > 1
    assert service.refused == []
    arrived = [line for text in service.texts for line in text.replace("&amp;", "&").splitlines()]
    assert arrived == lines


@on_one_store
async def test_telegram_shows_the_lines_of_an_output_as_they_are(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    text = 'Tom & Ada\'s <list>:\n\n- a\n  - b\n\n\n\tend  "here"'
    async with serving_messages(monkeypatch, "telegram") as service:
        app = new_app(settings=to_channels(team=URLS["telegram"]))
        saying(app, text)
        async with app:
            run = await say(app, channel="team")
    assert (run.delivery, service.refused) == ("delivered", [])
    assert [unescape(each) for each in service.texts] == [text]
    assert not re.search(r"&(?!(lt|gt|amp|quot);)", service.texts[0])  # Telegram knows no other entities
