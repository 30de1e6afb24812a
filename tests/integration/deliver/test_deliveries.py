"""What runs say, delivered through channels to services that are there: HTTP and SMTP on 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
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
from tests.support.receiver import Receiver, serving
from tests.support.waiting import eventually, over
from wakeful import Function, Permanent, Wakeful
from wakeful.deliver.deliverer import ATTEMPTS
from wakeful.model import Run
from wakeful.policy import Backoff
from wakeful.service.auth.access import LOCAL


@pytest.fixture
async def service() -> AsyncIterator[Receiver]:
    """A service that a channel leads to."""
    async with serving(Receiver()) as service:
        yield service


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose no time between the attempts at a delivery."""
    monkeypatch.setattr("wakeful.deliver.deliverer._BACKOFF", Backoff(1, 1))


def saying(app: Wakeful, answer: str | None = "Good morning.") -> None:
    """Give the app a function that answers so."""

    @app.function()
    async def say() -> str | None:
        return answer


async def say(app: Wakeful, **fields: Any) -> Run:
    """A run of a job that is to be delivered, once it is over and it is known what became of the delivery."""
    await app.jobs.upsert("digest", schedule=SELDOM, target=Function("say"), **{"deliver": True, **fields})
    run = await app.jobs.run("digest")

    async def known() -> Run | None:
        found = await app.runs.get(run.id)
        return found if found.delivery != "pending" else None

    await over(app, run.id)
    found = await eventually(known)
    assert found is not None
    return found


async def test_what_a_run_says_is_delivered_as_it_is(
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


async def test_a_job_that_names_nobody_is_delivered_where_its_agent_says(new_app: NewApp, service: Receiver):
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
async def test_an_answer_that_says_nothing_bothers_nobody(
    new_app: NewApp, service: Receiver, answer: str | None, becomes: str, why: str | None
):
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app, answer)
    async with app:
        run = await say(app, channel="team")
    assert (run.state, run.delivery, run.delivery_error) == ("succeeded", becomes, why)
    assert len(messages(service)) == (becomes == "delivered")


async def test_what_does_not_arrive_is_tried_again_and_the_run_stays_a_success(
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


async def test_a_delivery_that_never_arrives_has_failed_and_the_run_has_not(
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
async def test_what_could_never_arrive_has_failed_at_once_and_says_what_to_do(
    new_app: NewApp, fields: Mapping[str, str], why: str
):
    app = new_app(settings=to_channels(phone="ntfy://127.0.0.1:9/{to}"))
    saying(app)
    async with app:
        run = await say(app, **fields)
    assert (run.state, run.delivery) == ("succeeded", "failed")
    assert why in str(run.delivery_error)


async def test_a_failure_is_not_delivered_and_neither_is_what_nobody_asked_for(
    new_app: NewApp, service: Receiver
):
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


async def test_what_an_executor_completes_is_delivered_too(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(team=posts(service)))
    async with app:
        await app.jobs.create("digest", schedule=SELDOM, deliver=True, channel="team", message="what is new?")
        run = await app.jobs.run("digest")
        (claimed,) = await app.services.pull.claim(LOCAL, "default", "me")
        assert claimed["id"] == run.id
        await app.runs.complete(run.id, "succeeded", attempt=1, output="nothing much")
        await eventually(lambda: messages(service))
    assert messages(service)[0]["message"] == "nothing much"


async def test_it_waits_in_the_database_for_somebody_who_sends_it(new_app: NewApp, service: Receiver):
    ended_elsewhere = new_app()
    await ended_elsewhere.store.open()
    await ended_elsewhere.jobs.create(
        "digest", schedule=SELDOM, deliver=True, channel="team", message="hello"
    )
    run = await ended_elsewhere.jobs.run("digest")
    await ended_elsewhere.services.pull.claim(LOCAL, "default", "me")
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
async def test_a_run_is_shown_with_what_became_of_its_delivery(new_app: NewApp, service: Receiver):
    app = new_app(settings=to_channels(team=posts(service)))
    saying(app)
    async with app, served(app) as ask:
        shown = (await ask("GET", f"/runs/{(await say(app, channel='team')).id}")).body
        assert (shown["state"], shown["delivery"], shown["deliveryError"]) == ("succeeded", "delivered", None)
        other = await app.jobs.run((await app.jobs.create("b", schedule=SELDOM)).name)
        assert (await ask("GET", f"/runs/{other.id}")).body["delivery"] == "not_requested"


@on_one_store
async def test_those_on_their_way_are_not_cut_off_when_the_process_ends(new_app: NewApp, service: Receiver):
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
