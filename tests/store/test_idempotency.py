"""A keyed operation and its response are one transaction, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.databases import Database
from tests.support.factories import DAY, NOW, FalseClock, alone, asleep, ended, held, jobless
from wakeful.errors import AlreadyExists, InvalidArgument, ResourceExhausted
from wakeful.store.audit import AuditEntry
from wakeful.store.idempotency import (
    ABANDONED_MS,
    AlreadyPerformed,
    Claim,
    InProgress,
    Keyed,
    StoredResponse,
    current_claim,
)
from wakeful.store.port import Store
from wakeful.store.quotas import Allowance
from wakeful.store.rows import JobFilter, RunFilter
from wakeful.store.sessions import SessionKey, SessionMessage, SessionState, SessionUpdate

_ENTRY = AuditEntry("default", "key:1", "job.create", "default/digest", "{}", None)
_KEY = SessionKey("default", "default", "main")


def keyed(key: str = "k1", fingerprint: str = "create digest", body: str = "done") -> Keyed[object]:
    return Keyed("default", key, fingerprint, lambda result: (201, f"{body} {type(result).__name__}"))


async def stored(store: Store, key: str = "k1") -> str | None:
    found = await store.stored_response("default", key)
    return None if found is None else found.body


def arrived(talk: SessionState) -> SessionUpdate:
    return SessionUpdate(
        arrived=SessionMessage("01890000-0000-7000-8000-000000000001", "hello", "key:1", "user", NOW)
    )


async def _dead_letter(store: Store) -> str:
    run = held(jobless())
    await store.add_runs([run])
    await store.finish("w1", [ended(run, "failed", error="no")], alone)
    return run.id


async def test_the_response_is_stored_with_the_operation(store: Store) -> None:
    await store.create_jobs([asleep()], [_ENTRY], None, keyed())
    assert await store.stored_response("default", "k1") == StoredResponse(
        "default", "k1", "create digest", 201, "done NoneType", NOW
    )
    assert await store.stored_response("acme", "k1") is None


async def test_an_operation_is_performed_once_per_key(store: Store) -> None:
    dead = await _dead_letter(store)
    operations: dict[str, Callable[[Keyed[object]], Awaitable[object]]] = {
        "create": lambda key: store.create_jobs([asleep("new")], [_ENTRY], None, key),
        "run": lambda key: store.add_runs([jobless()], [_ENTRY], key),
        "nothing due": lambda key: store.add_runs([], (), key),
        "message": lambda key: store.update_session(_KEY, NOW, arrived, [_ENTRY], key),
        "replay": lambda key: store.replay_runs(
            "default", [dead], lambda letter: jobless(), lambda _: _ENTRY, key
        ),
    }
    for name, operation in operations.items():
        await operation(keyed(name, name))
        before = await store.audit_head("default"), await store.runs(RunFilter("default"))
        with pytest.raises(AlreadyPerformed) as again:
            await operation(keyed(name, name, "other"))
        assert again.value.response.body == await stored(store, name)
        assert again.value.response.body.startswith("done ")
        with pytest.raises(InvalidArgument, match="another request"):
            await operation(keyed(name, "another fingerprint"))
        assert (await store.audit_head("default"), await store.runs(RunFilter("default"))) == before
    assert len(await store.jobs(JobFilter("default"))) == 1
    (session,) = await store.sessions("default", "default", None, 10)
    assert session.messages == 1


async def test_a_rejected_operation_stores_no_response(store: Store) -> None:
    await store.create_jobs([asleep()])
    with pytest.raises(AlreadyExists):
        await store.create_jobs([asleep()], [_ENTRY], None, keyed())
    with pytest.raises(ResourceExhausted):
        await store.create_jobs([asleep("b")], [_ENTRY], Allowance(create_per_agent=0), keyed())
    assert await stored(store) is None
    await store.create_jobs([asleep("b")], [_ENTRY], None, keyed())
    assert await stored(store) == "done NoneType"


async def test_a_response_that_cannot_be_rendered_rolls_back_the_operation(store: Store) -> None:
    def refuse(result: object) -> tuple[int, str]:
        raise ResourceExhausted("no more today")

    with pytest.raises(ResourceExhausted):
        await store.create_jobs([asleep()], [_ENTRY], None, Keyed("default", "k1", "f", refuse))
    assert await store.job("default", "default", "digest") is None
    assert await store.audit_head("default") == (0, "")
    assert await stored(store) is None


async def test_concurrent_requests_with_one_key_all_get_the_response_of_one(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]

    async def create(number: int, store: Store) -> str:
        try:
            await store.create_jobs([asleep(f"job-{number}")], [_ENTRY], None, keyed(body=str(number)))
        except AlreadyPerformed as performed:
            return performed.response.body
        return str(await stored(store))

    bodies = await asyncio.gather(*(create(number, store) for number, store in enumerate(stores * 5)))
    (made,) = await stores[0].jobs(JobFilter("default"))
    assert set(bodies) == {f"{made.name.removeprefix('job-')} NoneType"}


async def test_a_response_expires_after_a_day(store: Store, clock: FalseClock) -> None:
    await store.create_jobs([asleep()], [_ENTRY], None, keyed())
    clock.ms = NOW + DAY
    assert await stored(store) is not None
    clock.ms = NOW + DAY + 1
    assert await stored(store) is None
    await store.create_jobs([asleep("b")], [_ENTRY], None, keyed(fingerprint="create b", body="later"))
    assert await stored(store) == "later NoneType"


@pytest.mark.parametrize("step_ms", [DAY - 60_000, -60_000, -DAY, -400 * DAY])
async def test_a_clock_that_is_set_within_the_day_frees_no_key(
    store: Store, clock: FalseClock, step_ms: int
) -> None:
    await store.create_jobs([asleep()], [_ENTRY], None, keyed())
    for ms in (NOW + step_ms, NOW):
        clock.ms = ms
        with pytest.raises(AlreadyPerformed):
            await store.create_jobs([asleep("b")], [_ENTRY], None, keyed())
        assert await stored(store) == "done NoneType"


async def test_an_abandoned_key_of_an_earlier_version_is_free_after_a_minute(
    store: Store, database: Database, clock: FalseClock
) -> None:
    await store.create_jobs([asleep()], [_ENTRY], None, keyed())
    await database.execute(f"UPDATE {_table(database)} SET status = NULL")
    clock.ms = NOW + ABANDONED_MS
    with pytest.raises(InProgress):
        await store.create_jobs([asleep("b")], [_ENTRY], None, keyed())
    clock.ms += 1
    await store.create_jobs([asleep("b")], [_ENTRY], None, keyed(body="later"))
    assert await stored(store) == "later NoneType"


def _table(database: Database) -> str:
    return "idempotency_keys" if hasattr(database, "path") else "wakeful.idempotency_keys"


async def test_a_claimed_key_stays_if_some_of_its_outcomes_are_refused(store: Store) -> None:
    runs = [held(jobless()), held(jobless())]
    await store.add_runs(runs)
    claim = Claim("default", "k1", "complete")
    outcomes = [ended(runs[0], "succeeded"), ended(runs[1], "succeeded")._replace(attempt=7)]
    token = current_claim.set(claim)
    try:
        assert await store.complete_runs("w1", outcomes, alone) == {runs[0].id}
    finally:
        current_claim.reset(token)
    assert not claim.is_open
    assert (await store.stored_response("default", "k1")) is not None  # also if the process dies here
    await store.keep_response(claim, 200, "one of two")
    assert await stored(store) == "one of two"
