"""Deliveries of MCP events: what becomes of failures, and the messages about lost events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.support.receiver import OPEN, SECRET, Receiver, Secrets, failed
from tests.unit.launch.launches import launch
from wakeful.errors import Unavailable
from wakeful.launch import event_callback
from wakeful.launch.event_callback import MAX_ATTEMPTS, EventLauncher
from wakeful.launch.port import Launch
from wakeful.launch.secrets import is_signed
from wakeful.run.outcome import Succeeded
from wakeful.values.clock import SystemClock

EVENT = '{"eventId":"evt_1","name":"run.finished","timestamp":"2026-01-01T00:00:00Z","data":{}}'
GAP = '{"type":"gap","cursor":"7"}'


class Launcher(EventLauncher):
    """A launcher whose subscriptions are all active, and which keeps what it reports."""

    def __init__(self, url: str) -> None:
        super().__init__(Secrets(SECRET), OPEN, SystemClock(), lambda status: None)
        self.url = url
        self.lost: list[str] = []
        self.find_url, self.lose = self._find, self._lose

    async def _find(self, identity: str) -> str:
        return self.url

    async def _lose(self, identity: str) -> None:
        self.lost.append(identity)


def delivery(payload: str | None, failed_attempts: int = 0, missed: int = 0) -> Launch:
    """Return an attempt. Its number says nothing: attempts that do not count raise it too."""
    run = launch({"kind": "event", "subscription": "sub_1", "sinceMs": 5}, payload, attempt=40)
    run.missed, run.failed_attempts = missed, failed_attempts
    return run


@pytest.fixture
async def launcher(receiver: Receiver) -> AsyncIterator[Launcher]:
    launcher = Launcher(receiver.url)
    await launcher.open()
    yield launcher
    await launcher.close()


async def test_an_event_is_lost_after_its_last_attempt_or_if_it_is_too_large(
    launcher: Launcher, receiver: Receiver
) -> None:
    receiver.answers(503)
    assert not failed(await launcher.start(delivery(EVENT))).permanent
    assert launcher.lost == []
    await launcher.start(delivery(EVENT, MAX_ATTEMPTS - 1))
    assert launcher.lost == ["sub_1"]
    receiver.answers(413)
    assert failed(await launcher.start(delivery(EVENT))).permanent
    assert launcher.lost == ["sub_1"] * 2


async def test_a_callback_that_never_answers_loses_the_last_attempt_and_holds_up_no_gap(
    launcher: Launcher, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    receiver.answer = hang
    for failures in (0, MAX_ATTEMPTS - 1):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(launcher.start(delivery(EVENT, failures)), 0.2)
    assert launcher.lost == ["sub_1"]
    monkeypatch.setattr(event_callback, "_CONTROL_S", 0.1)
    assert not failed(await launcher.start(delivery(GAP))).permanent
    assert isinstance(await launcher.start(delivery(GAP, 4)), Succeeded)


async def test_a_tick_after_missed_ones_reports_that_once(launcher: Launcher) -> None:
    async def fail(identity: str) -> None:
        raise Unavailable("the database does not respond")

    launcher.lose = fail
    first = failed(await launcher.start(delivery(None, 0, 3)))
    assert (first.counted, launcher.lost) == (False, [])
    launcher.lose = launcher._lose
    for failures, missed in ((0, 0), (0, 3), (1, 3)):
        assert isinstance(await launcher.start(delivery(None, failures, missed)), Succeeded)
    assert launcher.lost == ["sub_1"]


async def test_a_gap_is_signed_and_has_the_cursor(launcher: Launcher, receiver: Receiver) -> None:
    for payload, cursor in ((GAP, "7"), ('{"type":"gap","cursor":null}', f"5.{delivery(GAP).scheduled_ms}")):
        assert isinstance(await launcher.start(delivery(payload)), Succeeded)
        assert json.loads(receiver.bodies[-1]) == {"type": "gap", "cursor": cursor}
        assert receiver.headers["webhook-id"].startswith("msg_gap_")
        assert is_signed([SECRET], receiver.headers, receiver.bodies[-1], SystemClock().now_ms())


async def test_a_gap_holds_up_no_events_if_the_callback_does_not_take_it(
    launcher: Launcher, receiver: Receiver
) -> None:
    receiver.answers(503)
    assert not failed(await launcher.start(delivery(GAP))).permanent
    assert isinstance(await launcher.start(delivery(GAP, 4)), Succeeded)
    receiver.answers(400)
    assert isinstance(await launcher.start(delivery(GAP)), Succeeded)
    assert launcher.lost == []
    launcher.url = "https://hooks.chatgpt.com/events"
    sent = len(receiver.bodies)
    assert isinstance(await launcher.start(delivery(GAP)), Succeeded)
    assert len(receiver.bodies) == sent
