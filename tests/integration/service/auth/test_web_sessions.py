"""Sign-in sessions with a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.databases import Database, SqliteDatabase, postgres
from tests.support.factories import MINUTE, FalseClock
from tests.support.waiting import eventually
from wakeful.document import Defaults
from wakeful.errors import PermissionDenied, ResourceExhausted, Unauthenticated
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.keys import KeyService
from wakeful.service.auth.rate_limits import SignInLimits
from wakeful.service.auth.web_sessions import WebSessions
from wakeful.store.port import Store

HOUR = 60 * MINUTE
WRONG = "wk_wrong"


class Replica:
    """The services of one process."""

    def __init__(self, store: Store, per_minute: int = 10) -> None:
        accounts = Accounts(store, Defaults())
        self.store = store
        self.keys = KeyService(store, accounts, None)
        limits = SignInLimits(store, per_minute)
        self.sessions = WebSessions(
            store, accounts, self.keys, limits, idle_ms=12 * HOUR, max_ms=7 * 24 * HOUR
        )


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    made: Database = SqliteDatabase(tmp_path / "wakeful.db") if request.param == "sqlite" else postgres()
    yield made
    await made.close()


@pytest.fixture
def clock(database: Database) -> FalseClock:
    return database.clock


@pytest.fixture
async def replica(database: Database) -> Replica:
    return Replica(await database.connect())


async def _key(replica: Replica) -> tuple[str, str]:
    """Return the id and the text of an admin key."""
    row, text = await replica.keys.create(LOCAL, "default", {"role": "admin"})
    return row.id, text


async def _fails(replica: Replica, address: str, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(Unauthenticated):
            await replica.sessions.sign_in(WRONG, address)


async def _is_limited(replica: Replica, key: str, address: str) -> bool:
    try:
        await replica.sessions.sign_in(key, address)
    except ResourceExhausted as error:
        return error.retry_after_s is not None and 0 < error.retry_after_s <= 60
    return False


async def test_a_session_ends_to_the_millisecond(replica: Replica, clock: FalseClock):
    _, key = await _key(replica)
    token = (await replica.sessions.sign_in(key)).token
    clock.ms += 12 * HOUR - 1
    assert (await replica.sessions.authenticate(token)).role == "admin"
    await replica.sessions.close()  # writes the last request
    clock.ms += 12 * HOUR - 1
    await replica.sessions.authenticate(token)
    await replica.sessions.close()
    clock.ms += 12 * HOUR
    with pytest.raises(Unauthenticated, match="has ended; sign in again"):
        await replica.sessions.authenticate(token)


@pytest.mark.parametrize("ahead_ms", [MINUTE, 12 * HOUR, 400 * 24 * HOUR])
async def test_no_credential_of_a_wrong_clock_outlives_its_limits(
    replica: Replica, clock: FalseClock, ahead_ms: int
):
    """The clock is ahead while somebody signs in and creates a link, and then set right."""
    key_id, key = await _key(replica)
    principal = Principal(f"key:{key_id}", "admin", "default", None)
    clock.ms += ahead_ms
    token = (await replica.sessions.sign_in(key)).token
    link = (await replica.sessions.create_link(principal)).token
    clock.ms -= ahead_ms
    if ahead_ms <= 12 * HOUR:  # a small correction signs nobody out
        await replica.sessions.authenticate(token)
    clock.ms += 24 * HOUR
    for credential in (replica.sessions.authenticate(token), replica.sessions.sign_in(link)):
        with pytest.raises(Unauthenticated):
            await credential
    assert await replica.sessions.list(LOCAL, "default", key_id) == []


async def test_requests_do_not_extend_a_session_beyond_its_whole_time(replica: Replica, clock: FalseClock):
    _, key = await _key(replica)
    start_ms = clock.ms
    token = (await replica.sessions.sign_in(key)).token
    while clock.ms + 11 * HOUR < start_ms + 7 * 24 * HOUR:
        clock.ms += 11 * HOUR
        await replica.sessions.authenticate(token)
        await replica.sessions.close()
    clock.ms = start_ms + 7 * 24 * HOUR - 1
    await replica.sessions.authenticate(token)
    clock.ms += 1
    with pytest.raises(Unauthenticated):
        await replica.sessions.authenticate(token)


async def test_the_last_request_is_written_once_a_minute(replica: Replica, clock: FalseClock):
    key_id, key = await _key(replica)
    token = (await replica.sessions.sign_in(key)).token
    (before,) = await replica.sessions.list(LOCAL, "default", key_id)
    clock.ms += MINUTE - 1
    await replica.sessions.authenticate(token)
    await replica.sessions.close()
    assert await replica.sessions.list(LOCAL, "default", key_id) == [before]
    clock.ms += 1
    await replica.sessions.authenticate(token)
    await replica.sessions.close()
    (after,) = await replica.sessions.list(LOCAL, "default", key_id)
    assert (after.seen_ms, after.expires_ms) == (before.seen_ms + MINUTE, before.expires_ms + MINUTE)


async def test_shorter_limits_apply_to_sessions_that_exist(replica: Replica, clock: FalseClock):
    key_id, key = await _key(replica)
    token = (await replica.sessions.sign_in(key)).token
    accounts = Accounts(replica.store, Defaults())
    limits = SignInLimits(replica.store, 10)
    short = WebSessions(replica.store, accounts, replica.keys, limits, idle_ms=HOUR, max_ms=2 * HOUR)
    clock.ms += HOUR
    with pytest.raises(Unauthenticated):
        await short.authenticate(token)
    assert await short.list(LOCAL, "default", key_id) == []
    await replica.sessions.authenticate(token)


async def test_another_replica_sees_the_end_of_a_session_within_a_second(
    database: Database, clock: FalseClock
):
    one, two = Replica(await database.connect()), Replica(await database.connect())
    key_id, key = await _key(one)
    token = (await one.sessions.sign_in(key)).token
    other = (await one.sessions.sign_in(key)).token
    for replica in (one, two):
        await replica.sessions.authenticate(token)
        await replica.sessions.authenticate(other)
    await one.sessions.sign_out(token)
    with pytest.raises(Unauthenticated):
        await one.sessions.authenticate(token)
    clock.ms += 1_000
    with pytest.raises(Unauthenticated):
        await two.sessions.authenticate(token)
    await two.sessions.authenticate(other)
    await one.keys.revoke(LOCAL, "default", key_id)
    with pytest.raises(Unauthenticated, match="revoked"):
        await one.sessions.authenticate(other)
    clock.ms += 1_000
    with pytest.raises(Unauthenticated, match="revoked"):
        await two.sessions.authenticate(other)


async def test_failures_of_an_address_do_not_lock_out_another(replica: Replica, clock: FalseClock):
    _, key = await _key(replica)
    await _fails(replica, "192.0.2.1", 10)
    assert await _is_limited(replica, key, "192.0.2.1")
    assert not await _is_limited(replica, key, "192.0.2.2")
    clock.ms += 6_000  # a tenth of a minute: one more attempt
    await _fails(replica, "192.0.2.1")
    assert await _is_limited(replica, key, "192.0.2.1")
    clock.ms += MINUTE
    assert not await _is_limited(replica, key, "192.0.2.1")


async def test_after_many_failures_of_all_an_address_has_one(replica: Replica, clock: FalseClock):
    _, key = await _key(replica)
    for number in range(100):
        await _fails(replica, f"198.51.100.{number}")
    assert not await _is_limited(replica, key, "192.0.2.1")
    await _fails(replica, "192.0.2.1")
    assert await _is_limited(replica, key, "192.0.2.1")
    # The clients of one IPv6 network count as one, those of another network do not.
    await _fails(replica, "2001:db8::1")
    assert await _is_limited(replica, key, "2001:db8::2")
    assert not await _is_limited(replica, key, "2001:db8:0:1::1")
    clock.ms += MINUTE
    assert not await _is_limited(replica, key, "192.0.2.1")


async def test_without_a_limit_failures_are_not_counted(database: Database):
    replica = Replica(await database.connect(), per_minute=0)
    await _fails(replica, "192.0.2.1", 30)
    assert await replica.store.sign_in_limits(["192.0.2.1", "*"]) == {}


async def test_concurrent_failures_never_block_for_longer_than_a_minute(replica: Replica, clock: FalseClock):
    _, key = await _key(replica)
    await asyncio.gather(
        *(replica.sessions.sign_in(WRONG, "192.0.2.1") for _ in range(40)), return_exceptions=True
    )
    assert await _is_limited(replica, key, "192.0.2.1")
    clock.ms += MINUTE
    assert not await _is_limited(replica, key, "192.0.2.1")


async def test_a_link_needs_a_key_and_no_run(replica: Replica):
    _, key = await _key(replica)
    principal = await replica.keys.authenticate(key, run_id="some run")
    for other in (principal, LOCAL, Principal("jwt:ada", "admin", None)):
        with pytest.raises(PermissionDenied, match="with an API key"):
            await replica.sessions.create_link(other)


async def test_signing_out_everywhere_ends_links_too(replica: Replica):
    _, key = await _key(replica)
    principal = await replica.keys.authenticate(key)
    link = await replica.sessions.create_link(principal)
    await replica.sessions.sign_in(key)
    assert await replica.sessions.end_own(principal) == 1
    with pytest.raises(Unauthenticated, match="was used already or has expired"):
        await replica.sessions.sign_in(link.token)


async def test_a_session_counts_as_a_use_of_its_key(replica: Replica, clock: FalseClock):
    key_id, key = await _key(replica)
    token = (await replica.sessions.sign_in(key)).token
    clock.ms += HOUR
    await replica.sessions.authenticate(token)

    async def used() -> bool:
        rows = await replica.keys.list(LOCAL, "default")
        return any(row.id == key_id and row.last_used_ms == clock.ms for row in rows)

    await eventually(used)
