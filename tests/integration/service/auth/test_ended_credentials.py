"""Credentials that have ended: each call with them is refused, and so is the replay of an earlier one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import HOME, ApiClient, served
from tests.support.rpc_client import calling
from tests.support.sse_client import Stream, listening
from tests.support.waiting import PATIENCE, eventually
from wakeful import Wakeful
from wakeful.api.http import events
from wakeful.api.rpc import connection
from wakeful.errors import PermissionDenied, Unauthenticated
from wakeful.service.auth import connections
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.keys import KeyRow
from wakeful.service.idempotency import Reply
from wakeful.store.idempotency import Keyed

_KEY = {"Idempotency-Key": "17"}
_JOB = "/agents/ada/jobs/digest"
_RUN = f"{_JOB}/run"
_PULL = {"schedule": SELDOM, "target": {"kind": "pull"}}


async def _revoke(ask: ApiClient, key_id: str) -> None:
    assert (await ask("DELETE", f"/keys/{key_id}")).status == 204


async def _delete_agent(ask: ApiClient, key_id: str) -> None:
    await ask("DELETE", "/agents/ada/jobs/digest")
    assert (await ask("DELETE", "/agents/ada")).status == 204


async def _expire(ask: ApiClient, key_id: str) -> None:
    clock = ask.app.store.clock
    ask.app.store.clock = _Later(clock)


class _Later:
    """A clock two hours ahead of another."""

    def __init__(self, clock: object) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return int(self._clock.now_ms()) + 7_200_000  # type: ignore[attr-defined]


async def _agent(ask: ApiClient) -> tuple[ApiClient, str]:
    """Create a job of an agent; return a client with a key of it, and the id of the key."""
    await ask("PUT", _JOB, _PULL)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    made = await ask("POST", "/keys", {"role": "agent", "agent": "ada", "expiresAt": until})
    return ask.with_key(made.body["key"]), made.body["id"]


_every_end = pytest.mark.parametrize("end", [_revoke, _expire, _delete_agent])


@_every_end
async def test_a_key_that_has_ended_is_refused_at_once_in_the_process_that_ended_it(
    new_app: NewApp, end: Callable[[ApiClient, str], Awaitable[None]]
):
    app = new_app()
    async with app, served(app) as ask:
        agent, key_id = await _agent(ask)
        first = await agent("POST", _RUN, headers=_KEY)
        assert first.status == 201
        assert (await agent("POST", _RUN, headers=_KEY)).body == first.body
        hook = (await ask("POST", "/agents/ada/jobs/digest/hook")).body["url"]
        assert (await ask.with_key(None)("POST", "/hooks/" + hook.rpartition("/")[2])).status == 202
        sessions = app.services.auth.web_sessions
        token = (await sessions.sign_in(agent.key or "")).token
        assert (await sessions.authenticate(token)).agent == "ada"
        link = (await agent("POST", "/api/sign-in-links")).body["url"].rpartition("wl_")
        await end(ask, key_id)
        with pytest.raises(Unauthenticated):
            await sessions.authenticate(token)
        for credential in (agent.key or "", "".join(link[1:])):
            with pytest.raises(Unauthenticated):
                await sessions.sign_in(credential)
        job = {"name": "again", "schedule": "0 0 29 2 *"}
        calls: list[tuple[str, str, object, dict[str, str]]] = [
            ("GET", "/jobs", None, {}),
            ("GET", "/events", None, {}),
            ("POST", "/agents/ada/jobs", job, {}),
            ("POST", _RUN, None, {}),
            ("POST", _RUN, None, _KEY),
            ("POST", "/runs/claim", {"worker": "w"}, {}),
            ("POST", "/runs/claim", {"worker": "w"}, {"x-wakeful-run-id": first.body["id"]}),
            ("POST", "/api/sign-in-links", None, {}),
        ]
        for method, path, body, headers in calls:
            reply = await agent(method, path, body, headers=headers)
            assert (reply.status, reply.code) == (401, "unauthenticated"), (path, headers)
        if end is _delete_agent:
            assert await app.store.agent("default", "ada") is None, "it was not added again"
            gone = await ask.with_key(None)("POST", "/hooks/" + hook.rpartition("/")[2])
            assert gone.status == 404
            # An agent of that name that is added again has other keys.
            await ask("PUT", "/agents/ada", {})
            assert (await agent("GET", "/jobs")).status == 401


@_every_end
async def test_what_a_key_has_open_when_it_ends_gets_nothing_more(
    new_app: NewApp, end: Callable[[ApiClient, str], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
):
    """What ends without a notification, such as by its time, is found by a check."""
    monkeypatch.setattr(connections, "POLL_S", 0.05)
    monkeypatch.setattr(connections, "NOTIFIED_POLL_S", 0.05)
    app = new_app()
    async with app, served(app) as ask:
        agent, key_id = await _agent(ask)
        async with (
            listening(agent) as stream,
            listening(agent, coalesceMs=250) as summaries,
            calling(agent) as idle,
            calling(agent) as subscribed,
        ):
            await subscribed("events.subscribe")
            waiting = asyncio.create_task(
                agent("POST", "/runs/claim", {"worker": "w", "waitMs": 20_000}), name="claim"
            )
            await asyncio.sleep(0.1)
            await end(ask, key_id)
            for each in (stream, summaries):
                await _rest(each)
            await ask("PUT", _JOB, _PULL)
            run = await ask("POST", _RUN)
            assert run.status == 201
            async with asyncio.timeout(PATIENCE):
                reply = await waiting
            assert (reply.status, reply.code) == (401, "unauthenticated")
            assert (await subscribed.closed())[0] == connection.UNAUTHENTICATED
            assert (await idle.closed())[0] == connection.UNAUTHENTICATED

        async def claimed() -> bool:
            other = await ask("POST", "/runs/claim", {"worker": "other"})
            return [each["id"] for each in other.body["runs"]] == [run.body["id"]]

        await eventually(claimed)  # at once: the claim has returned it
        await eventually(lambda: not app.services.auth.connection_limits.open().total())


async def test_what_is_open_ends_at_once_in_all_processes(new_app: NewApp, monkeypatch: pytest.MonkeyPatch):
    """Only processes on one SQLite file need checks: they send each other no notifications."""
    for module, name in ((events, "KEY_S"), (events, "CHECK_S"), (connection, "KEY_CHECK_S")):
        monkeypatch.setattr(module, name, 3_600.0)
    monkeypatch.setattr(connections, "NOTIFIED_POLL_S", 3_600.0)
    app, replica = new_app(), new_app()
    async with app, replica, served(app) as ask, served(replica) as there, AsyncExitStack() as stack:
        monkeypatch.setattr(app.services.auth.open_uses, "_poll_s", 3_600.0)
        agent, key_id = await _agent(ask)
        session = (await app.services.auth.web_sessions.sign_in(agent.key or "")).token
        pages, streams, sockets, claims = [], [], [], []
        for client in (agent, there.with_key(agent.key)):
            url, cookie = f"{client.url}{HOME}/events", {"Cookie": f"wakeful_session={session}"}
            pages.append(Stream(await stack.enter_async_context(client.session.get(url, headers=cookie))))
            streams.append(await stack.enter_async_context(listening(client)))
            streams.append(await stack.enter_async_context(listening(client, coalesceMs=250)))
            sockets.append(await stack.enter_async_context(calling(client)))
            wait = client("POST", "/runs/claim", {"worker": "w", "waitMs": 20_000})
            claims.append(asyncio.create_task(wait))
            await eventually(partial(_has_open, app if client is agent else replica, 5))
        assert (await ask("DELETE", f"/keys/{key_id}/sessions")).status == 204
        for page in pages:
            await _rest(page)
        assert not any(claim.done() for claim in claims)
        await _revoke(ask, key_id)
        for stream in streams:
            await _rest(stream)
        for socket in sockets:
            assert (await socket.closed())[0] == connection.UNAUTHENTICATED
        async with asyncio.timeout(PATIENCE):
            assert [(await claim).status for claim in claims] == [401, 401]
        assert (await there.with_key(agent.key)("GET", "/jobs")).status == 401
        for each in (app, replica):
            await eventually(partial(_has_open, each, 0))


async def test_a_revoked_key_is_the_only_one_that_is_checked(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    """Otherwise a tenant that revokes keys in a loop would slow down all others."""
    app = new_app()
    async with app, served(app) as ask:
        monkeypatch.setattr(app.services.auth.open_uses, "_poll_s", 3_600.0)
        others = [await ask.new("member") for _ in range(3)]
        agent, key_id = await _agent(ask)
        async with AsyncExitStack() as stack:
            for other in others:
                await stack.enter_async_context(listening(other))
            stream = await stack.enter_async_context(listening(agent))
            read, key_by_hash = list[bytes](), app.store.key_by_hash

            async def count(hash: bytes) -> KeyRow | None:
                read.append(hash)
                return await key_by_hash(hash)

            monkeypatch.setattr(app.store, "key_by_hash", count)
            known = set(app.services.auth.keys._known)
            await app.services.auth.keys.revoke(LOCAL, "default", key_id)
            await _rest(stream)
            own = hashlib.sha256((agent.key or "").encode()).digest()
            assert read == [own]
            assert set(app.services.auth.keys._known) - {own} == known - {own}  # its row may be read again


async def _has_open(app: Wakeful, number: int) -> bool:
    return len(app.services.auth.open_uses) == number


async def _rest(stream: Stream) -> str:
    """Return what a stream sends until it ends."""
    received = ""
    async with asyncio.timeout(PATIENCE):
        while event := await stream.next_event():
            received += str(event)
    return received


async def test_the_response_of_an_admin_is_not_replayed_to_a_token_with_a_lower_role(new_app: NewApp):
    app = new_app()
    async with app:
        services = app.services
        await services.jobs.create(LOCAL, "default", "ada", {"name": "digest", "schedule": "0 0 29 2 *"})

        async def create_key(role: str) -> Reply:
            who = Principal("jwt:ada", role, "default")  # type: ignore[arg-type]

            async def create(*, keyed: Keyed[tuple[KeyRow, str]] | None) -> tuple[KeyRow, str]:
                return await services.auth.keys.create(who, "default", {"role": "admin"}, keyed=keyed)

            return await services.idempotency.perform(
                who, "default", "17", ["keys"], create, lambda made: Reply(201, {}, f'{{"key":"{made[1]}"}}')
            )

        first = await create_key("admin")
        assert (await create_key("admin")).body == first.body
        with pytest.raises(PermissionDenied, match="made with other rights"):
            await create_key("member")
