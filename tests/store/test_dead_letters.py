"""Dead letters: replayed or discarded, singly or in bulk, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    NOW,
    SECOND,
    alone,
    asked,
    ended,
    given_held,
    given_job,
    held,
    jobless,
    look,
    over,
)
from tests.support.notifications import NotificationRecorder
from wakeful.errors import AlreadyExists
from wakeful.run.run import NewRun
from wakeful.store.audit import AuditEntry
from wakeful.store.port import Store
from wakeful.store.rows import DeadLetter, JobRow, RunFilter, RunView


async def _dead_letter(store: Store) -> RunView:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "failed", error="refused")], alone)
    return await look(store, run)


async def _dead_letters(store: Store, of: JobRow, many: int, **fields: object) -> list[str]:
    """Create so many dead letters of a job. Returns their ids, oldest first."""
    runs = [held(asked(of, NOW + n, serial=False, **fields)) for n in range(many)]
    await store.add_runs(runs)
    await store.finish("w1", [ended(run, "failed") for run in runs], alone)
    return sorted(run.id for run in runs)


def _again(letter: DeadLetter) -> NewRun:
    dead = letter.run
    return jobless(
        job_id=dead.job_id,
        job_name=dead.job_name,
        scheduled_ms=dead.scheduled_ms,
        trigger="replay",
        attempt=dead.attempt + 1,
        idempotency_key=dead.idempotency_key,
    )


def _told(run_id: str) -> AuditEntry:
    return AuditEntry("default", "key:1", "told", run_id, "{}", None)


async def _audited(store: Store) -> list[str]:
    return [row.subject for row in await store.audit("default")]


async def _dead(store: Store) -> Sequence[str]:
    return [run.id for run in reversed(await store.runs(RunFilter("default", dead=True, limit=5_000)))]


# --- one ------------------------------------------------------------------------------------------------


async def test_a_dead_letter_is_replayed_as_a_new_run(store: Store, recorder: NotificationRecorder) -> None:
    dead = await _dead_letter(store)
    made: list[DeadLetter] = []

    def make(letter: DeadLetter) -> NewRun:
        made.append(letter)
        return _again(letter)

    (created,) = await store.replay_runs("default", [dead.id], make)
    await recorder.next_event("runs")
    row = await store.job_by_id(str(dead.job_id))
    assert row is not None
    assert made == [DeadLetter(dead, row.policy, row.work)]
    replay = await look(store, created)
    assert (replay.state, replay.replay_of, replay.attempt) == ("pending", dead.id, 2)
    assert await look(store, dead) == dead._replace(dead=False)
    (taken,) = await store.take(NOW, "w1", {"cron": 5})
    assert (taken.id, taken.attempt, taken.idempotency_key) == (replay.id, 2, dead.idempotency_key)


async def test_a_dead_letter_is_replayed_once(store: Store) -> None:
    dead = await _dead_letter(store)
    assert len(await store.replay_runs("default", [dead.id, dead.id], _again)) == 1
    assert await store.replay_runs("default", [dead.id], _again) == []
    assert len(await store.runs(RunFilter("default", trigger="replay"))) == 1


async def test_a_replay_that_fails_keeps_the_dead_letter(store: Store) -> None:
    dead = await _dead_letter(store)

    def fail(letter: DeadLetter) -> NewRun:
        raise ValueError("its job is gone")

    with pytest.raises(ValueError, match="its job is gone"):
        await store.replay_runs("default", [dead.id], fail)
    with pytest.raises(AlreadyExists):
        await store.replay_runs("default", [dead.id], lambda letter: jobless(id=dead.id), _told)
    assert await store.replay_runs("default", [dead.id], lambda letter: None, _told) == []
    assert await look(store, dead) == dead
    assert await _audited(store) == []


async def test_a_dead_letter_of_a_deleted_job_or_without_a_job_is_replayed(store: Store) -> None:
    dead = await _dead_letter(store)
    await store.delete_job(str(dead.job_id), NOW + SECOND, "gone")
    free = held(jobless())
    await store.add_runs([free])
    await store.finish("w1", [ended(free, "failed")], alone)
    letters: list[DeadLetter] = []
    await store.replay_runs("default", [free.id, dead.id], lambda letter: letters.append(letter))
    assert [(letter.run.id, letter.work == "{}") for letter in letters] == [
        (free.id, True),
        (dead.id, False),
    ]


@pytest.mark.parametrize(
    "state", ["pending", "running", "retrying", "succeeded", "failed", "cancelled", "skipped", "missed"]
)
async def test_only_a_dead_letter_is_replayed_or_discarded(store: Store, state: str) -> None:
    digest = await given_job(store)
    run = asked(digest)
    created = {"pending": run, "running": held(run), "retrying": run._replace(state="retrying")}
    await store.add_runs([created.get(state, over(run, state))])
    for which in ([run.id], [jobless().id], [], 5):
        assert await store.replay_runs("default", which, _again, _told) == []
        assert await store.discard_runs("default", which, _told) == []
    assert await _audited(store) == []


async def test_a_discarded_run_is_no_longer_a_dead_letter(store: Store) -> None:
    dead = await _dead_letter(store)
    assert await store.discard_runs("default", [dead.id], _told) == [dead.id]
    assert await store.discard_runs("default", [dead.id], _told) == []
    assert await look(store, dead) == dead._replace(dead=False)
    assert await _dead(store) == []
    assert await store.replay_runs("default", [dead.id], _again) == []
    assert await _audited(store) == [dead.id]


# --- many -----------------------------------------------------------------------------------------------


async def test_many_are_replayed_in_the_order_given_and_each_is_audited(store: Store) -> None:
    digest = await given_job(store)
    ids = await _dead_letters(store, digest, 30)
    wanted = [*reversed(ids[:20]), "nobody", jobless().id, ids[0]]
    created = await store.replay_runs("default", wanted, _again, _told)
    assert [run.replay_of for run in created] == wanted[:20]
    assert await _audited(store) == wanted[:20]
    assert await _dead(store) == ids[20:]
    assert {(await look(store, run)).state for run in created} == {"pending"}


async def test_without_ids_the_oldest_are_replayed_and_skipped_ones_stay(store: Store) -> None:
    digest = await given_job(store)
    ids = await _dead_letters(store, digest, 10)
    stays = set(ids[:2])

    def make(letter: DeadLetter) -> NewRun | None:
        return None if letter.run.id in stays else _again(letter)

    created = await store.replay_runs("default", 5, make, _told)
    assert [run.replay_of for run in created] == ids[2:5]
    assert await store.discard_runs("default", 3, _told) == [*ids[:2], ids[5]]
    assert await _dead(store) == ids[6:]
    assert await _audited(store) == [*ids[2:5], *ids[:2], ids[5]]


async def test_dead_letters_of_another_workspace_are_not_affected(store: Store) -> None:
    digest = await given_job(store)
    theirs = await _dead_letters(store, digest, 3, workspace="acme")
    for which in (theirs, 10):
        assert await store.replay_runs("default", which, _again) == []
        assert await store.discard_runs("default", which) == []
    assert await store.discard_runs("acme", 10) == theirs


async def test_concurrent_replays_replay_each_dead_letter_once(database: Database) -> None:
    stores = [await database.connect() for _ in range(3)]
    digest = await given_job(stores[0])
    ids = await _dead_letters(stores[0], digest, 60)
    created = await asyncio.gather(
        *(store.replay_runs("default", order, _again) for store in stores for order in (ids, ids[::-1], 60))
    )
    assert sorted(str(run.replay_of) for runs in created for run in runs) == ids
    assert await _dead(stores[0]) == []


async def test_dead_letters_are_listed_from_an_id_on(store: Store) -> None:
    digest = await given_job(store)
    ids = await _dead_letters(store, digest, 4)
    since = RunFilter("default", dead=True, since=ids[1], before=ids[3])
    for only in (since, since._replace(agent=digest.agent), since._replace(job_id=digest.id)):
        assert [run.id for run in await store.runs(only)] == [ids[2], ids[1]]
