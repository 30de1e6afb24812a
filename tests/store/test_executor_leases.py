"""Each claimed run has its own lease; run and attempt are the fence."""

from __future__ import annotations

from tests.store.test_audit import actions, entry
from tests.support.factories import NOW, SECOND, alone, asked, ended, given_held, held, jobless, look
from tests.support.notifications import NotificationRecorder
from tests.support.pull_runs import HOUR, ME, YOU, claim, claim_pairs, new_job, pulled, refuse, retry_later
from wakeful.store.changelog import claim_topic
from wakeful.store.port import Store
from wakeful.store.rows import AttemptView, JobChange, Move, Renewal, UnfinishedRun, WorkflowRow


async def renew(
    store: Store,
    *named: tuple[str, int],
    now: int = NOW,
    agent: str | None = None,
    worker: str | None = None,
) -> list[str]:
    renewals = [Renewal(*each, agent, worker) for each in named]
    return [run.id for run in await store.renew(now, "default", renewals)]


async def test_a_claim_starts_a_lease_that_a_heartbeat_renews(store: Store) -> None:
    run = pulled(await new_job(store))
    await store.add_runs([run])
    await claim(store)
    late = NOW + 31 * SECOND
    assert await renew(store, (run.id, 1), now=NOW + 20 * SECOND) == [run.id]
    assert await store.rescue(late, NOW + SECOND, 10, refuse, alone) == []
    assert await store.rescue(late, NOW + 21 * SECOND, 10, retry_later, alone) == [run.id]
    assert await renew(store, (run.id, 1), now=late) == []
    assert await store.attempts(run.id) == [AttemptView(1, ME, NOW, NOW, None)]


async def test_runs_claimed_before_an_instant_can_be_spared(store: Store) -> None:
    run = pulled(await new_job(store))
    await store.add_runs([run])
    await claim(store)
    late = NOW + HOUR
    assert await store.rescue(late, late, 10, refuse, alone, NOW + 1) == []
    assert await store.rescue(late, late, 10, retry_later, alone, NOW) == [run.id]


async def test_runs_with_callbacks_that_started_before_an_instant_can_be_spared(store: Store) -> None:
    _, run = await given_held(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + SECOND)], alone)
    late = NOW + HOUR
    assert await store.rescue(late, late, 10, refuse, alone, NOW + 1) == []
    assert await store.rescue(late, late, 10, retry_later, alone, NOW) == [run.id]


async def test_a_heartbeat_returns_the_fields_that_decide_a_timeout(store: Store) -> None:
    digest = await new_job(store)
    run = pulled(digest)
    await store.add_runs([run])
    await claim(store)
    renewed = await store.renew(NOW + SECOND, "default", [Renewal(run.id, 1)])
    assert renewed == [UnfinishedRun(run.id, digest.id, 1, digest.policy, NOW, ME, is_pull=True)]


async def test_the_work_of_a_run_that_waits_starts_when_the_wait_ends(store: Store) -> None:
    digest = await new_job(store)
    waiting, other = pulled(digest), pulled(digest)
    await store.add_runs([waiting, other])
    await claim(store)

    async def beat(now: int, note: str | None) -> list[tuple[str | None, int | None]]:
        held = [Renewal(waiting.id, 1, waiting=note), Renewal(other.id, 1)]
        assert len(await store.renew(now, "default", held)) == 2
        views = [await look(store, run.id) for run in (waiting, other)]
        return [(view.waiting, view.started_ms) for view in views]

    assert await beat(NOW + 10, "a node") == [("a node", NOW + 10), (None, NOW)]
    assert await beat(NOW + 20, "a quota, 'é'") == [("a quota, 'é'", NOW + 20), (None, NOW)]
    assert await beat(NOW + 30, None) == [(None, NOW + 20), (None, NOW)]

    await beat(NOW + 40, "a node")
    late = NOW + HOUR
    assert len(await store.rescue(late, late, 10, retry_later, alone)) == 2
    await claim(store, now=late + HOUR)
    assert (await look(store, waiting.id)).waiting is None


async def test_a_run_that_its_executor_leaves_to_a_worker_waits_for_nothing(store: Store) -> None:
    digest = await new_job(store)
    run = pulled(digest)
    await store.add_runs([run])
    await claim(store)
    await store.renew(NOW, "default", [Renewal(run.id, 1, waiting="a machine")])
    await store.release_claims(NOW, "default", ME, [(run.id, 1)])
    move = Move("cron", None, "", None, serial=False)
    await store.change_job(digest.id, lambda row: JobChange(row, move=move))
    assert [run.id for run in await store.take(NOW, "w1", {"cron": 1})] == [run.id]
    assert (await look(store, run)).waiting is None


async def test_a_heartbeat_for_one_run_does_not_renew_the_other_leases_of_its_executor(
    store: Store,
) -> None:
    digest, theirs = await new_job(store), await new_job(store, workspace="acme")
    runs = [pulled(digest), pulled(digest), pulled(theirs)]
    await store.add_runs(runs)
    assert len(await claim(store)) == 2
    assert len(await claim(store, workspace="acme")) == 1, "an executor of the same name"
    assert await renew(store, (runs[0].id, 1), now=NOW + 20 * SECOND) == [runs[0].id]
    await store.beat(ME, NOW + 20 * SECOND, [])
    lost = await store.rescue(NOW + 31 * SECOND, NOW + SECOND, 10, retry_later, alone)
    assert set(lost) == {runs[1].id, runs[2].id}


async def test_a_heartbeat_renews_only_the_runs_and_attempts_it_names(store: Store) -> None:
    digest, theirs = await new_job(store), await new_job(store, workspace="acme")
    mine, other, waits = pulled(digest), pulled(digest, agent="ada"), pulled(digest, NOW + HOUR)
    away, worked = pulled(theirs), held(asked(digest, serial=False))
    await store.add_runs([mine, other, waits, away, worked])
    await claim(store)
    await claim(store, workspace="acme")
    named = [(run.id, 1) for run in (mine, other, waits, away, worked, jobless())]
    assert set(await renew(store, *named)) == {mine.id, other.id}
    assert await renew(store, *named, agent="ada") == [other.id]
    assert set(await renew(store, *named, worker=ME)) == {mine.id, other.id}
    assert await renew(store, *named, worker=YOU) == []
    assert await renew(store, (mine.id, 2), (other.id, 0)) == []
    assert await renew(store) == []
    assert await renew(store, ("nobody", 1), ("", 1)) == []


async def test_an_executor_that_lost_its_run_cannot_renew_or_complete_the_next_attempt(
    store: Store,
) -> None:
    await store.add_runs([pulled(await new_job(store))])
    (first,) = await claim(store)
    late = NOW + 31 * SECOND
    again = ended(first, "retrying", due_ms=late)
    await store.rescue(late, NOW + SECOND, 10, lambda lost: again, alone)
    (second,) = await claim(store, now=late)
    assert (second.id, second.attempt) == (first.id, 2)
    assert await renew(store, (first.id, 1), now=late + 20 * SECOND) == []
    assert not await store.complete_run(ended(first, output="late"), alone)
    assert await store.rescue(late + 31 * SECOND, late + SECOND, 10, retry_later, alone) == [first.id], (
        "the heartbeat of attempt 1 must not have renewed the lease of attempt 2"
    )


async def test_a_worker_keeps_a_run_that_an_executor_held_before(
    store: Store,
) -> None:
    digest = await new_job(store)
    await store.add_runs([pulled(digest)])
    (run,) = await claim(store)
    await store.finish(ME, [ended(run, "retrying", due_ms=NOW)], alone)
    await store.change_job(
        digest.id, lambda row: JobChange(row._replace(updated_ms=NOW), move=Move("cron", None))
    )
    await store.take(NOW + HOUR, "w1", {"cron": 1})
    await store.beat("w1", NOW + HOUR, [run.id])
    assert await store.rescue(NOW + HOUR, NOW + HOUR - 1, 10, refuse, alone) == []


async def test_a_claim_adds_an_executor_but_no_worker(store: Store) -> None:
    await store.add_runs([pulled(await new_job(store))])
    assert len(await claim(store)) == 1
    assert await store.workers(0) == []
    assert (await store.workspace_stats("default")).executors == 1
    assert (await store.workspace_stats("acme")).executors == 0


async def test_a_claimed_run_is_completed_once_with_its_audit_entry(store: Store) -> None:
    digest = await new_job(store)
    await store.add_runs([pulled(digest)])
    (run,) = await claim(store)
    said = [entry("run.complete")]
    assert not await store.complete_run(ended(run, attempt=2), alone, said)
    assert await store.complete_run(ended(run, output="done", usage='{"tokens":3}'), alone, said)
    assert not await store.complete_run(ended(run, "failed"), alone, said)
    seen = await look(store, run)
    assert (seen.state, seen.worker, seen.output, seen.usage) == ("succeeded", ME, "done", '{"tokens":3}')
    assert await actions(store) == ["run.complete"]


async def test_workflow_versions_are_read_in_bulk(store: Store) -> None:
    rows = [WorkflowRow("default", "etl", n, f'{{"n":{n}}}', NOW) for n in (1, 2)]
    for row in (*rows, WorkflowRow("acme", "etl", 3, "{}", NOW)):
        await store.put_workflow(row)
    wanted = [("etl", 2), ("etl", 1), ("etl", 3), ("nothing", 1)]
    assert sorted(await store.workflows("default", wanted)) == rows


async def release(
    store: Store,
    *named: tuple[str, int],
    worker: str = ME,
    claim_id: str | None = None,
    agent: str | None = None,
) -> set[str]:
    return set(await store.release_claims(NOW + SECOND, "default", worker, named, claim_id, agent))


async def test_an_executor_returns_the_attempts_that_it_names_and_no_others(store: Store) -> None:
    digest = await new_job(store)
    mine, second, other, worked = pulled(digest), pulled(digest), pulled(digest, agent="ada"), pulled(digest)
    await store.add_runs([mine, second, other])
    await claim(store)
    await store.add_runs([held(worked._replace(claim_timeout_ms=None))])
    named = [(run.id, 1) for run in (mine, other, worked, jobless())]
    assert await release(store, *named, worker=YOU) == set()
    assert await release(store, (mine.id, 2), (second.id, 0), ("nothing", 1)) == set()
    assert await release(store, *named, agent="ada") == {other.id}
    assert await release(store, *named) == {mine.id}
    assert await release(store, *named) == set()
    view = await look(store, mine)
    assert (view.state, view.worker, view.due_ms, view.error) == ("retrying", None, NOW + SECOND, "released")
    assert view.claim_deadline_ms == NOW + SECOND + HOUR
    assert await store.attempts(mine.id) == [AttemptView(1, ME, NOW, NOW + SECOND, "released")]
    assert {run.id: run.attempt for run in await claim(store, YOU, NOW + SECOND)} == {mine.id: 2, other.id: 2}
    assert (await look(store, mine)).failed_attempts == 0


async def test_an_executor_returns_all_that_a_claim_gave_it(store: Store) -> None:
    digest = await new_job(store)
    first, second, again = pulled(digest), pulled(digest), pulled(digest)
    await store.add_runs([first, second])
    await claim_pairs(store, NOW, ME, "default", None, None, 10, "a")
    await store.add_runs([again])
    await claim_pairs(store, NOW, ME, "default", None, None, 10, "b")
    await store.finish(ME, [ended(second)], alone)
    assert await release(store, claim_id="a", worker=YOU) == set()
    assert await release(store, claim_id="a", agent="ada") == set()
    assert await release(store, (first.id, 1), claim_id="a") == {first.id}
    assert await release(store, claim_id="a") == set()
    await claim_pairs(store, NOW + SECOND, ME, "default", None, None, 10, "c")
    assert await release(store, claim_id="a") == set(), "another claim has it"
    assert (await look(store, again)).state == "running"


async def test_a_returned_claim_is_published(store: Store, recorder: NotificationRecorder) -> None:
    run = pulled(await new_job(store))
    await store.add_runs([run])
    await claim_pairs(store, NOW, ME, "default", None, None, 10, "a")
    assert await release(store, claim_id="a") == {run.id}
    over = claim_topic("default", ME, "a")
    assert {"runs", over} <= await recorder.next_event("runs", over)
