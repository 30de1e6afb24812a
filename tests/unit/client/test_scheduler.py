"""A wait for a run survives a restart of the server; the embedded classes make no request."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable

import pytest

import wakeful.app.admin
import wakeful.app.agents
import wakeful.app.jobs
import wakeful.app.runs
import wakeful.client.runs
from tests.support.waiting import PATIENCE
from wakeful import app
from wakeful.client.runs import poll_until
from wakeful.errors import ResourceExhausted, Unavailable

#: A reply that refuses the request, because there are too many.
_BUSY = 429


async def _wait(replies: Iterable[int | None], *, reached: bool = False) -> int:
    """Wait for the reply 3; None is a server that does not respond, and so is the end of the replies."""
    following = iter(replies)

    async def read() -> int:
        reply = next(following, None)
        if reply is None:
            raise Unavailable("no response")
        if reply == _BUSY:
            raise ResourceExhausted("too many requests of the workspace")
        return reply

    async with asyncio.timeout(PATIENCE):
        return await poll_until(read, lambda value: value == 3, poll=0.001, longest=0.002, reached=reached)


@pytest.mark.parametrize(
    ("replies", "reached"), [([1, None, None, 2, _BUSY, None, 3], False), ([None, 3], True)]
)
async def test_a_wait_survives_a_restart_and_the_load_of_the_server(replies: list[int | None], reached: bool):
    assert await _wait(replies, reached=reached) == 3


async def test_a_wait_ends_if_the_server_stays_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wakeful.client.runs, "POLL_PATIENCE", 0.01)
    with pytest.raises(Unavailable):
        await _wait([1])


async def test_a_wait_ends_at_once_if_the_server_was_never_reached():
    with pytest.raises(Unavailable):
        await _wait([None, 3])


@pytest.mark.parametrize(
    "embedded",
    [app.jobs.Jobs, app.runs.Runs, app.agents.Agents, app.admin.Incidents, app.admin.Suggestions],
)
def test_no_method_of_the_embedded_api_makes_a_request(embedded: type):
    methods = inspect.getmembers(embedded, inspect.isfunction)
    assert [name for name, method in methods if "_rest" in method.__code__.co_names] == []
    assert [name for name, method in methods if name[0] != "_" and not inspect.getdoc(method)] == []
