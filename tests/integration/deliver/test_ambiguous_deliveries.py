"""A message that was not sent is sent again; one that may have arrived is not."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.service.admin.test_alerts import failing, fails, put_agent
from tests.integration.service.admin.test_channel_alerts import SENDER, to_channels, try_again_at_once
from tests.support.misbehaving import (
    HttpBehaviour,
    SmtpBehaviour,
    misbehaving_http,
    misbehaving_smtp,
)
from tests.support.waiting import eventually, over, the_run_of
from wakeful import Function, Wakeful
from wakeful.deliver.channels import ChannelMessage, ChannelSender, SendResult
from wakeful.job.policy import Backoff
from wakeful.model import Run

_SHORT = "?rto=0.5"


def _unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def unthrottled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the pause of 5.5 s between two parts of a message."""
    monkeypatch.setattr("apprise.plugins.base.NotifyBase.request_rate_per_sec", 0)


async def _send(url: str, body: str = "Good morning.") -> SendResult:
    return await asyncio.to_thread(ChannelSender({"team": url}).send, "team", None, ChannelMessage("", body))


@pytest.mark.parametrize(
    ("behaviours", "outcome", "says"),
    [
        (["accept"], "accepted", ""),
        (["refuse"], "not_sent", "the service responded with HTTP 503"),
        (["close"], "unknown", "it was sent without a response"),
        (["late"], "unknown", "it was sent without a response"),
        (["half"], "unknown", "it was sent without a response"),
    ],
)
async def test_the_outcome_of_a_message_sent_over_http(
    behaviours: list[HttpBehaviour], outcome: str, says: str
) -> None:
    async with misbehaving_http(*behaviours) as service:
        result = await _send(f"json://127.0.0.1:{service.port}/{_SHORT}")
    assert result.outcome == outcome
    assert result.error.startswith(says)
    assert len(service.received) == 1


async def test_a_message_is_not_sent_if_the_connection_is_refused() -> None:
    for scheme in ("json", "mailto"):
        result = await _send(f"{scheme}://127.0.0.1:{_unused_port()}/?from=a@example.com&to=b@example.com")
        assert result.outcome == "not_sent", result


async def test_a_message_is_not_sent_if_the_connection_is_reset_during_the_request() -> None:
    # Far more than socket buffers hold: the reset arrives while the body is being written.
    async with misbehaving_http("unread") as service:
        result = await _send(f"json://127.0.0.1:{service.port}/?overflow=upstream", "x" * 20_000_000)
    assert result.outcome == "not_sent", result
    assert service.received == []


@pytest.mark.parametrize(
    ("behaviours", "outcome", "received"),
    [
        (["accept", "accept", "accept"], "accepted", 3),
        (["accept", "close"], "unknown", 2),
        (["accept", "refuse", "refuse"], "accepted", 5),
        (["accept", "accept", "refuse", "refuse", "refuse", "refuse"], "unknown", 6),
        (["accept", "late"], "unknown", 2),
        (["close"], "unknown", 1),
        (["refuse"], "not_sent", 1),
    ],
)
async def test_the_outcome_of_a_message_in_three_parts(
    unthrottled: None,
    monkeypatch: pytest.MonkeyPatch,
    behaviours: list[HttpBehaviour],
    outcome: str,
    received: int,
) -> None:
    monkeypatch.setattr("wakeful.deliver.channels._PART_PAUSES_S", (0, 0, 0))
    async with misbehaving_http(*behaviours) as service:
        url = f"ntfy://127.0.0.1:{service.port}/topic{_SHORT}"
        result = await _send(url, "word " * 4_000)
    assert result.outcome == outcome
    assert len(service.received) == received


@pytest.mark.parametrize(
    ("behaviour", "outcome", "received"),
    [
        ("accept", "accepted", 1),
        ("refuse", "not_sent", 1),
        ("close before", "not_sent", 0),
        ("close", "unknown", 1),
        ("late", "unknown", 1),
        ("one recipient", "unknown", 1),
    ],
)
async def test_the_outcome_of_a_message_sent_over_smtp(
    behaviour: SmtpBehaviour, outcome: str, received: int
) -> None:
    async with misbehaving_smtp(behaviour) as server:
        url = f"mailto://127.0.0.1:{server.port}?from=a@example.com&to=b@example.com&cc=c@example.com&cto=0.5"
        result = await _send(url)
    assert result.outcome == outcome
    assert len(server.received) == received


async def test_other_requests_in_this_process_are_not_intercepted() -> None:
    import requests

    async with misbehaving_http("accept", "close") as service:
        await _send(f"json://127.0.0.1:{service.port}")
        with pytest.raises(requests.ConnectionError):
            await asyncio.to_thread(requests.post, f"http://127.0.0.1:{service.port}", b"{}", timeout=10)


# --- deliveries -----------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the backoff between delivery attempts."""
    monkeypatch.setattr("wakeful.deliver.deliverer._BACKOFF", Backoff(1, 1))


async def _deliver(app: Wakeful) -> Run:
    """Run a job that delivers to the channel `team`; return the run when its delivery is over."""

    async def done() -> Run | None:
        found = await app.runs.get(run.id)
        return None if found.delivery == "pending" else found

    await app.jobs.upsert("digest", schedule=SELDOM, target=Function("say"), deliver=True, channel="team")
    run = await app.jobs.run("digest")
    await over(app, run.id)
    found = await eventually(done)
    assert found is not None
    return found


def _saying(app: Wakeful) -> Wakeful:
    @app.function()
    async def say() -> str:
        return "Good morning."

    return app


@pytest.mark.parametrize("behaviour", ["close", "late", "half"])
async def test_a_delivery_that_may_have_arrived_is_unknown_and_sent_once(
    new_app: NewApp, at_once: None, behaviour: HttpBehaviour
) -> None:
    async with misbehaving_http("refuse", behaviour) as service:
        url = f"json://127.0.0.1:{service.port}/{_SHORT}"
        async with _saying(new_app(settings=to_channels(team=url))) as app:
            run = await _deliver(app)
            other = await _deliver(app)  # a resend of the first would arrive before it
            counted = app.services.metrics.deliveries
    assert (run.state, run.delivery) == ("succeeded", "unknown")
    assert run.delivery_error == "channel 'team': it was sent without a response, so it may have arrived"
    assert other.delivery == "delivered"
    assert len(service.received) == 3
    assert counted == {"retrying": 1, "unknown": 1, "delivered": 1}


async def test_a_delivery_is_pending_between_two_attempts(new_app: NewApp) -> None:
    async with misbehaving_http("refuse") as service:
        settings = to_channels(team=f"json://127.0.0.1:{service.port}/")
        async with _saying(new_app(settings=settings)) as app:
            await app.jobs.create(
                "digest", schedule=SELDOM, target=Function("say"), deliver=True, channel="team"
            )
            run = await app.jobs.run("digest")

            async def refused() -> Run | None:
                found = await app.runs.get(run.id)
                return found if found.delivery_error else None

            waiting = await eventually(refused)  # the next attempt is seconds away
    assert waiting is not None
    assert waiting.delivery == "pending"
    assert waiting.delivery_error == "channel 'team': the service responded with HTTP 503"


# --- alerts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", ["close", "late", "half"])
async def test_an_alert_that_may_have_arrived_is_not_sent_again(
    new_app: NewApp, behaviour: HttpBehaviour
) -> None:
    async with misbehaving_http("refuse", behaviour) as service:
        app = new_app(settings=to_channels(ops=f"json://127.0.0.1:{service.port}/{_SHORT}"))
        failing(app)
        async with app:
            await put_agent(app, {"channel": "ops", "failures": 1, "deadLetter": False})
            await try_again_at_once(app)
            await app.jobs.create("digest", schedule=SELDOM, target=Function("fail"))
            await fails(app)
            run = await over(app, (await the_run_of(app, SENDER)).id)
    assert (run.state, run.attempt, run.reason) == ("failed", 2, "unknown")
    assert run.error == "channel 'ops': it was sent without a response, so it may have arrived"
    assert len(service.received) == 2


@on_one_store
async def test_an_alert_whose_worker_died_is_not_sent_again(new_app: NewApp) -> None:
    async with new_app(settings=to_channels(ops="json://127.0.0.1:9/")) as app:
        await put_agent(app, {"url": "http://127.0.0.1:9/", "channel": "ops"})
        channel, webhook = await app.jobs.get(SENDER), await app.jobs.get("wakeful-alerts")
    assert channel.on_lost == "fail"
    assert webhook.on_lost == "retry"
