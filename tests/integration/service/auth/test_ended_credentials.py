"""Credentials that have ended: each call with them is refused, and so is the replay of an earlier one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.conftest import NewApp
from tests.support.api_client import ApiClient, served
from wakeful.errors import PermissionDenied
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.keys import KeyRow
from wakeful.service.idempotency import Reply
from wakeful.store.idempotency import Keyed

_KEY = {"Idempotency-Key": "17"}
_RUN = "/agents/ada/jobs/digest/run"


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


@pytest.mark.parametrize("end", [_revoke, _expire, _delete_agent])
async def test_a_key_that_has_ended_is_refused_at_once_in_the_process_that_ended_it(
    new_app: NewApp, end: Callable[[ApiClient, str], Awaitable[None]]
):
    app = new_app()
    async with app, served(app) as ask:
        await ask("PUT", "/agents/ada/jobs/digest", {"schedule": "0 0 29 2 *", "target": {"kind": "pull"}})
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        made = await ask("POST", "/keys", {"role": "agent", "agent": "ada", "expiresAt": until})
        agent = ask.with_key(made.body["key"])
        first = await agent("POST", _RUN, headers=_KEY)
        assert first.status == 201
        assert (await agent("POST", _RUN, headers=_KEY)).body == first.body
        hook = (await ask("POST", "/agents/ada/jobs/digest/hook")).body["url"]
        assert (await ask.with_key(None)("POST", "/hooks/" + hook.rpartition("/")[2])).status == 202
        await end(ask, made.body["id"])
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


async def test_the_response_of_an_admin_is_not_replayed_to_a_token_with_a_lower_role(new_app: NewApp):
    app = new_app()
    async with app:
        services = app.services
        await services.jobs.create(LOCAL, "default", "ada", {"name": "digest", "schedule": "0 0 29 2 *"})

        async def create_key(role: str) -> Reply:
            who = Principal("jwt:ada", role, "default")  # type: ignore[arg-type]

            async def create(*, keyed: Keyed[tuple[KeyRow, str]] | None) -> tuple[KeyRow, str]:
                return await services.keys.create(who, "default", {"role": "admin"}, keyed=keyed)

            return await services.idempotency.perform(
                who, "default", "17", ["keys"], create, lambda made: Reply(201, {}, f'{{"key":"{made[1]}"}}')
            )

        first = await create_key("admin")
        assert (await create_key("admin")).body == first.body
        with pytest.raises(PermissionDenied, match="made with other rights"):
            await create_key("member")
