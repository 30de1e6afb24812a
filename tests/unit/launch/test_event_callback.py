"""Deliveries of MCP events while the database is not available."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from tests.unit.launch.launches import launch
from wakeful.errors import Unavailable
from wakeful.launch.address_guard import AddressGuard
from wakeful.launch.event_callback import EventLauncher
from wakeful.launch.http.messages import Response
from wakeful.run.outcome import Failed
from wakeful.values.clock import SystemClock

TARGET = {"kind": "event", "subscription": "sub_1"}
EVENT = '{"eventId":"evt_1","name":"run.finished","timestamp":"2026-10-01T09:00:00Z","data":{},"cursor":null}'


class _Client:
    """A callback that is gone, and no secrets."""

    async def request(self, *_: object) -> Response:
        return Response(410, [], b"")

    def find_secrets(self, run: object) -> tuple[bytes, ...]:
        return ()


@pytest.mark.parametrize("fails", ["find_url", "end"])
async def test_an_outage_of_the_database_is_no_failed_delivery(fails: str):
    client: Any = _Client()
    launcher = EventLauncher(client, AddressGuard(allow_private=True), SystemClock(), lambda status: None)
    launcher._client = client

    async def find_url(identity: str) -> str:
        return "https://a.example/events"

    async def fail(identity: str, reason: str = "") -> NoReturn:
        raise Unavailable("the database does not respond")

    launcher.find_url, launcher.end = find_url, fail
    if fails == "find_url":
        launcher.find_url = fail
    outcome = await launcher.start(launch(TARGET, EVENT))
    assert outcome == Failed("the database does not respond", reason="unavailable", counted=False)
