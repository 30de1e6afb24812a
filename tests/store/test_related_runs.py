"""Runs that follow from a run, and bounded searches through runs, in every store."""

from __future__ import annotations

import pytest

from tests.support.factories import NOW, asked, asleep, given_job
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import RunFilter
from wakeful.values.ids import first_id, id_at, new_id


def ids(runs: list[NewRun]) -> list[str]:
    return [run.id for run in runs]


async def test_the_runs_that_a_run_caused_and_its_replays_are_found(store: Store) -> None:
    digest = await given_job(store)
    first = asked(digest)
    caused = [
        asked(digest, trigger=trigger, triggered_by=first.id) for trigger in ("chain", "heartbeat", "alert")
    ]
    replay = asked(digest, trigger="replay", triggered_by="key:1", replay_of=first.id)
    other = asked(digest, trigger="chain", triggered_by=caused[0].id)
    await store.add_runs([first, *caused, replay, other])
    assert [run.id for run in await store.follow_up_runs(first.id)] == ids([*caused, replay])
    assert [run.id for run in await store.follow_up_runs(first.id, 2)] == ids(caused[:2])
    assert await store.follow_up_runs(other.id) == []
    assert await store.follow_up_runs("nothing") == []


async def test_the_signals_that_a_run_sent_are_found_near_its_end(store: Store) -> None:
    digest = await given_job(store)
    first = asked(digest)
    # Not new_id: its ids never go back, also after another test.
    near = sorted(id_at(NOW + 10) for _ in range(3))
    sent = [asked(digest, id=each, trigger="signal", triggered_by=first.id) for each in near]
    other = asked(digest, id=id_at(NOW + 10), trigger="signal", triggered_by=sent[0].id)
    later = asked(digest, id=id_at(NOW + 60_000), trigger="signal", triggered_by=first.id)
    await store.add_runs([first, *sent, other, later])
    assert [run.id for run in await store.sent_signals("default", first.id, NOW)] == ids(sent)
    assert [run.id for run in await store.sent_signals("default", first.id, NOW, 1)] == ids(sent[:1])
    assert await store.sent_signals("other", first.id, NOW) == []


async def test_the_horizon_is_so_many_runs_back(store: Store) -> None:
    digest = await given_job(store)
    runs = [asked(digest) for _ in range(5)]
    await store.add_runs(runs)
    end = first_id(NOW * 2)
    assert await store.run_horizon("default", end, 2) == runs[2].id
    assert await store.run_horizon("default", runs[3].id, 2) == runs[0].id
    assert await store.run_horizon("default", end, 5) is None
    assert await store.run_horizon("other", end, 0) is None
    assert await store.run_horizon("default", "nothing", 0) is None


@pytest.mark.parametrize("states", [(), ("pending",), ("pending", "failed"), ("failed",)])
async def test_a_list_begins_with_the_lowest_id(store: Store, states: tuple[str, ...]) -> None:
    digest = await given_job(store)
    runs = [asked(digest) for _ in range(4)]
    await store.add_runs(runs)
    wanted = [] if states == ("failed",) else list(reversed(ids(runs[1:3])))
    for agent, job_id in ((None, None), ("default", None), (None, digest.id)):
        only = RunFilter("default", agent, job_id, states, before=runs[3].id, since=runs[1].id)
        assert [run.id for run in await store.runs(only)] == wanted
    assert await store.runs(RunFilter("default", since=new_id(NOW + 1))) == []


async def test_the_jobs_that_follow_a_job_are_found_by_name(store: Store) -> None:
    for name, agent, after in (
        ("b", "default", "digest"),
        ("a", "default", "digest"),
        ("c", "default", "other"),
        ("d", "writer", "digest"),
        ("e", "default", "digest"),
    ):
        await store.create_jobs([asleep(name, agent=agent, after_job=after, after_on="succeeded")])
    gone = await store.job("default", "default", "e")
    assert gone is not None
    await store.delete_job(gone.id, NOW, "no longer wanted")
    assert await store.followers("default", "default", "digest", 10) == ["a", "b"]
    assert len(await store.followers("default", "default", "digest", 1)) == 1
    assert await store.followers("other", "default", "digest", 10) == []
