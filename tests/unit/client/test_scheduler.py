"""A wait for a run: it survives a restart of the server, and ends if the server stays away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

import wakeful.client.scheduler
from tests.support.waiting import PATIENCE
from wakeful.client.scheduler import poll_until
from wakeful.errors import Unavailable


async def _wait(replies: Iterable[int | None], *, reached: bool = False) -> int:
    """Wait for the reply 3; None is a server that does not respond, and so is the end of the replies."""
    following = iter(replies)

    async def read() -> int:
        reply = next(following, None)
        if reply is None:
            raise Unavailable("no response")
        return reply

    async with asyncio.timeout(PATIENCE):
        return await poll_until(read, lambda value: value == 3, poll=0.001, longest=0.002, reached=reached)


@pytest.mark.parametrize(("replies", "reached"), [([1, None, None, 2, None, 3], False), ([None, 3], True)])
async def test_a_wait_survives_a_restart_of_the_server(replies: list[int | None], reached: bool):
    assert await _wait(replies, reached=reached) == 3


async def test_a_wait_ends_if_the_server_stays_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wakeful.client.scheduler, "POLL_PATIENCE", 0.01)
    with pytest.raises(Unavailable):
        await _wait([1])


async def test_a_wait_ends_at_once_if_the_server_was_never_reached():
    with pytest.raises(Unavailable):
        await _wait([None, 3])
