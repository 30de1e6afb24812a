"""Chains: a job fires after another job of its agent, in the transaction that ends that job's run."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.databases import Database
from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asked,
    ended,
    given_held,
    held,
    job,
    jobless,
    look,
    look_at_job,
    rules,
    start,
    ticks_of,
)
from wakeful.engine.completer import Completer
from wakeful.errors import InvalidArgument, ResourceExhausted, TooManyFollowUps
from wakeful.run.consequences import consequences
from wakeful.run.factory import follow_up_run
from wakeful.run.run import Follower, NewRun, Upstream
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, NewRevision, RunFilter
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS
from wakeful.store.sql import chains


async def _follower(store: Store, name: str, on: str, **fields: object) -> JobRow:
    row = job(
        name,
        **{"timing": None, "next_ms": None, "wake_ms": None, "after_job": "first", "after_on": on, **fields},
    )
    await store.create_jobs([row])
    return row


async def test_a_follower_gets_the_run_that_the_rule_returns(store: Store, clock: FalseClock) -> None:
    _, run = await given_held(store, name="first")
    then = await _follower(store, "then", "succeeded")
    asked_for: list[Follower] = []

    def follow(follower: Follower) -> NewRun:
        asked_for.append(follower)
        return follow_up_run(follower)

    clock.ms = NOW + MINUTE
    assert await store.finish("w1", [ended(run)], rules(follow)) == {run.id}
    assert asked_for == [
        Follower(
            then.id, "default", "default", "then", then.policy, then.work, run.id, NOW + SECOND,
            upstream=Upstream("first", run.id, "succeeded", None, None),
        )
    ]  # fmt: skip
    (made,) = await ticks_of(store, then)
    assert (made.trigger, made.triggered_by, made.state, made.due_ms, made.created_ms) == (
        "chain", run.id, "pending", NOW + SECOND, NOW + MINUTE,
    )  # fmt: skip
    (taken,) = await store.take(NOW + MINUTE, "w1", {"cron": 5})
    assert taken.id == made.id


@pytest.mark.parametrize(
    ("state", "fired"),
    [
        ("succeeded", ["on-finished", "on-succeeded"]),
        ("failed", ["on-failed", "on-finished"]),
        ("cancelled", []),
        ("retrying", []),
        ("running", []),
    ],
)
async def test_a_follower_fires_only_after_the_states_it_names(
    store: Store, state: str, fired: list[str]
) -> None:
    _, run = await given_held(store, name="first")
    rows = [await _follower(store, f"on-{on}", on) for on in ("succeeded", "failed", "finished")]
    await store.finish("w1", [ended(run, state, due_ms=NOW + MINUTE)], consequences)
    assert sorted([row.name for row in rows if await ticks_of(store, row)]) == fired


async def test_only_an_enabled_job_of_the_same_agent_and_workspace_follows(store: Store) -> None:
    _, run = await given_held(store, name="first")
    await _follower(store, "paused", "succeeded", enabled=False)
    await _follower(store, "other-agent", "succeeded", agent="other")
    await _follower(store, "other-workspace", "succeeded", workspace="other")
    await _follower(store, "other-job", "succeeded", after_job="second")
    deleted = await _follower(store, "deleted", "succeeded")
    await store.delete_job(deleted.id, NOW, "no longer wanted")
    assert await store.finish("w1", [ended(run)], alone) == {run.id}


async def test_a_fenced_outcome_fires_no_follower(store: Store) -> None:
    _, run = await given_held(store, name="first")
    await _follower(store, "then", "succeeded")
    assert await store.finish("w2", [ended(run)], alone) == set()


async def test_every_follower_fires_once_for_each_run(store: Store) -> None:
    await store.create_jobs([job("first"), job("second")])
    created = (await store.plan(NOW, 10, start("w1"))).runs
    rows = [await _follower(store, f"then-{n}", "succeeded") for n in range(3)]
    by_hand = held(
        asked(job("first", id=created[0].job_id if created[0].job_name == "first" else created[1].job_id))
    )
    await store.add_runs([by_hand])
    await store.finish("w1", [ended(run) for run in (*created, by_hand)], consequences)
    first = next(run for run in created if run.job_name == "first")
    for row in rows:
        assert sorted(str(run.triggered_by) for run in await ticks_of(store, row)) == sorted(
            [first.id, by_hand.id]
        )


async def test_followers_fire_after_a_run_that_deletes_its_job(store: Store) -> None:
    _, run = await given_held(store, name="first")
    then = await _follower(store, "then", "succeeded")
    await store.finish("w1", [ended(run, delete_job=True)], consequences)
    assert len(await ticks_of(store, then)) == 1


async def test_a_run_without_a_job_fires_no_follower(store: Store) -> None:
    await _follower(store, "then", "finished")
    run = held(jobless())
    await store.add_runs([run])
    assert await store.finish("w1", [ended(run)], alone) == {run.id}


async def test_followers_fire_after_completed_and_rescued_runs(store: Store) -> None:
    _, parked = await given_held(store, name="first")
    then = await _follower(store, "then", "finished")
    await store.finish("w1", [ended(parked, "running", due_ms=NOW + MINUTE)], alone)
    await store.complete_run(ended(parked), consequences)
    lost = held(asked(job("first", id=parked.job_id)), "dead")
    await store.add_runs([lost])
    await store.rescue(NOW + MINUTE, NOW + 1, 10, lambda run: ended(lost, "failed"), consequences)
    assert (await look(store, lost)).state == "failed"
    assert [run.triggered_by for run in await ticks_of(store, then)] == [parked.id, lost.id]


async def test_jobs_that_fire_each_other_end_after_a_hundred_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, run = await given_held(store, name="first")
    then = await _follower(store, "then", "finished")

    async def accept(*_: object) -> None:
        """As a database may hold them that an earlier version wrote."""

    monkeypatch.setattr(chains, "check", accept)
    cycle = first._replace(after_job="then", after_on="finished")
    await store.change_job(first.id, lambda old: JobChange(cycle))

    def follow(follower: Follower) -> NewRun:
        made = follow_up_run(follower)
        return held(made) if made.state == "pending" else made

    number, latest = 0, run
    while latest.state == "running" and number < 200:
        await store.finish("w1", [ended(latest)], rules(follow))
        (latest,) = await store.follow_up_runs(latest.id)
        number += 1
    assert (number, latest.state, latest.reason, latest.job_id) == (101, "skipped", "chain_limit", then.id)


async def test_a_run_of_a_job_that_was_renamed_fires_the_followers(store: Store) -> None:
    first, run = await given_held(store, name="first")
    then = await _follower(store, "then", "succeeded")

    def follow(follower: JobRow, renamed: JobRow) -> JobChange:
        return JobChange(follower._replace(after_job=renamed.name), revision=NewRevision("{}", "[]", "ada"))

    await store.change_job(first.id, lambda row: JobChange(row._replace(name="start")), follow=follow)
    assert (await look_at_job(store, then)).after_job == "start"
    assert [each.replaced_by for each in await store.revisions(then.id)] == ["ada"]
    await store.finish("w1", [ended(run)], consequences)
    assert len(await ticks_of(store, then)) == 1


async def test_a_cycle_is_refused_with_the_names_after_the_change(store: Store) -> None:
    one, two = _after("a", "b"), _after("c", "a")
    await store.create_jobs([one, two])
    with pytest.raises(InvalidArgument, match="'b', which comes after 'a', which comes after 'b'"):
        await store.change_job(two.id, lambda row: JobChange(row._replace(name="b")))
    with pytest.raises(InvalidArgument, match="'b', which comes after 'a'"):
        await store.create_jobs([_after("b", "a")])
    with pytest.raises(InvalidArgument, match="'x', which comes after 'y', which comes after 'x'"):
        await store.create_jobs([_after("x", "y"), _after("y", "x")])
    assert await store.jobs_before("default", "default", ["c", "x"]) == {"c": "a", "a": "b"}
    assert await store.dangling_jobs(None, 10) == [("default", "default", "a", "b")]
    assert await store.dangling_jobs("other", 10) == []
    assert await store.chained_jobs(None, 10) == [("default", "default", "c", "a")]


async def test_two_changes_at_once_make_no_cycle(database: Database) -> None:
    stores = [await database.connect(), await database.connect()]
    for number in range(10):
        jobs = [job(f"a{number}"), job(f"b{number}")]
        await stores[0].create_jobs(jobs)

        async def follow(store: Store, row: JobRow, after: JobRow) -> bool:
            try:
                await store.change_job(
                    row.id, lambda old: JobChange(old._replace(after_job=after.name, after_on="finished"))
                )
            except InvalidArgument:
                return False
            return True

        done = await asyncio.gather(follow(stores[0], *jobs), follow(stores[1], *jobs[::-1]))
        assert sorted(done) == [False, True]


def _after(name: str, before: str) -> JobRow:
    return job(name, timing=None, next_ms=None, wake_ms=None, after_job=before, after_on="finished")


# --- heartbeats --------------------------------------------------------------------------------------


async def _heartbeat(store: Store, **fields: object) -> JobRow:
    row = job(HEARTBEAT, **{"next_ms": NOW + DAY, "wake_ms": NOW + DAY, "labels": HEARTBEAT_LABELS, **fields})
    await store.create_jobs([row])
    return row


async def test_a_success_with_wake_heartbeat_wakes_only_the_heartbeat_of_its_agent(store: Store) -> None:
    _, run = await given_held(store)
    theirs = await _heartbeat(store, agent="other")
    ours = await _heartbeat(store)
    await store.finish("w1", [ended(run, wake_heartbeat=True)], consequences)
    (made,) = await ticks_of(store, ours)
    assert (made.triggered_by, made.state) == (run.id, "pending")
    assert await ticks_of(store, theirs) == []


async def test_a_heartbeat_follow_up_has_its_own_trigger(store: Store) -> None:
    _, run = await given_held(store)
    beat = await _heartbeat(store)
    asked_for: list[Follower] = []

    def follow(follower: Follower) -> NewRun:
        asked_for.append(follower)
        return follow_up_run(follower)

    await store.finish("w1", [ended(run, wake_heartbeat=True)], rules(follow))
    assert [(each.job_id, each.trigger) for each in asked_for] == [(beat.id, "heartbeat")]


async def test_a_heartbeat_that_is_already_woken_is_not_woken_again(store: Store) -> None:
    runs = [(await given_held(store, name=name))[1] for name in ("a", "b", "c")]
    beat = await _heartbeat(store)
    await store.finish("w1", [ended(run, wake_heartbeat=True) for run in runs[:2]], consequences)
    assert len(await ticks_of(store, beat)) == 1
    await store.finish("w1", [ended(runs[2], wake_heartbeat=True)], consequences)
    assert len(await ticks_of(store, beat)) == 1, "for it has been woken, and has not begun"


@pytest.mark.parametrize("fields", [{"enabled": False}, {"labels": "{}"}])
async def test_a_paused_heartbeat_and_a_user_job_of_that_name_are_not_woken(
    store: Store, fields: dict[str, object]
) -> None:
    _, run = await given_held(store)
    beat = await _heartbeat(store, **fields)
    await store.finish("w1", [ended(run, wake_heartbeat=True)], consequences)
    assert await ticks_of(store, beat) == []


async def test_outcomes_that_too_many_runs_follow_are_not_written_at_once(
    store: Store, clock: FalseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all other outcomes, and in SQLite all other writes, would wait for them."""
    monkeypatch.setattr(chains, "MOST_FOLLOW_UPS", 5)
    first = job("first", timing=None, next_ms=None, wake_ms=None)
    await store.create_jobs([first])
    for name in ("a", "b", "c"):
        await _follower(store, name, "finished")
    await store.add_runs([asked(first, serial=False) for _ in range(5)])
    runs = await store.take(NOW, "w1", {"cron": 5})
    assert len(runs) == 5
    with pytest.raises(TooManyFollowUps):
        await store.finish("w1", [ended(run) for run in runs[:2]], consequences)
    assert await store.take(NOW + MINUTE, "w2", {"cron": 5}) == []
    assert await store.finish("w1", [ended(runs[0])], consequences) == {runs[0].id}
    # The completer writes fewer at once, and so does the rescuer.
    completer = Completer("w1", store, clock, 1_000, consequences)
    for run in runs[1:3]:
        completer.add(ended(run))
    await completer.step()
    assert completer.unwritten == 0
    followed = await store.runs(RunFilter("default", trigger="chain"))
    assert sorted(run.job_name or "" for run in followed) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


async def test_one_job_has_a_limited_number_of_followers(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "MOST_FOLLOWERS", 2)
    for name in ("a", "b"):
        await _follower(store, name, "finished")
    with pytest.raises(ResourceExhausted, match="2 jobs come after 'first' already"):
        await _follower(store, "c", "finished")
    await _follower(store, "c", "finished", after_job="other")
