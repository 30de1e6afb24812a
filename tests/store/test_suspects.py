"""Runs that were lost together are suspects: `take` leaves them, and `take_suspects` takes few at a time."""

from __future__ import annotations

from tests.support.factories import MINUTE, NOW, alone, asked, ended, given_job, held, look
from wakeful.run.outcome import Finished
from wakeful.store.port import Store
from wakeful.store.rows import UnfinishedRun

DEAD = NOW + MINUTE


def _suspect(run: UnfinishedRun) -> Finished:
    return Finished(
        run.id, run.job_id, run.attempt, "retrying", NOW, DEAD, due_ms=DEAD, reason="lost",
        failed_attempts=run.failed_attempts, suspect=True if run.companions else None,
    )  # fmt: skip


async def test_runs_that_were_lost_together_are_taken_one_at_a_time_and_others_go_on(store: Store) -> None:
    job = await given_job(store)
    together = [held(asked(job, serial=False), "w1", NOW + n) for n in range(3)]
    single = held(asked(job, serial=False), "w2")
    waiting = asked(job, serial=False)
    await store.add_runs([*together, single, waiting])
    seen: dict[str, tuple[int, int]] = {}

    def judge(run: UnfinishedRun) -> Finished:
        seen[run.id] = run.losses, run.companions
        return _suspect(run)

    await store.rescue(DEAD, DEAD - 1, 10, judge, alone)
    assert seen == {**{run.id: (0, 2) for run in together}, single.id: (0, 0)}
    taken = await store.take(DEAD, "w3", {"cron": 10})
    assert {run.id for run in taken} == {single.id, waiting.id}
    assert await store.take_suspects(DEAD, "w3", ["main"]) == []
    assert await store.take_suspects(DEAD - 1, "w3", ["cron"]) == []
    (first,) = await store.take_suspects(DEAD, "w3", ["main", "cron"])
    (second,) = await store.take_suspects(DEAD, "w4", ["cron"])
    assert {first.id, second.id} < {run.id for run in together}
    assert (first.attempt, second.attempt) == (2, 2)
    assert (await look(store, first)).worker == "w3"

    # A failure that is not a loss ends the suspicion; a stop does not.
    failed = ended(first, "retrying", due_ms=DEAD)._replace(suspect=False)
    await store.finish("w6", [failed], alone)  # not the worker that holds it
    await store.finish("w3", [failed], alone)
    await store.release("w4", DEAD)
    again = [run for _ in range(4) for run in await store.take_suspects(DEAD, "w5", ["cron"])]
    assert {run.id for run in again} == {run.id for run in together} - {first.id}
    assert [run.id for run in await store.take(DEAD, "w5", {"cron": 10})] == [first.id]
    await store.rescue(DEAD + MINUTE, DEAD + 1, 10, judge, alone)
    assert {run.id: seen[run.id] for run in together} == {
        run.id: (0 if run.id == first.id else 1, 2) for run in together
    }


async def test_several_are_taken_at_once_if_they_were_lost_once(store: Store) -> None:
    job = await given_job(store)
    twice = held(asked(job, serial=False), "w1")
    await store.add_runs([twice, held(asked(job, serial=False), "w1")])
    await store.rescue(DEAD, DEAD - 1, 10, _suspect, alone)
    await store.take_suspects(DEAD, "w2", ["cron"])
    await store.take_suspects(DEAD, "w2", ["cron"])
    more = [held(asked(job, serial=False), "w3", NOW + n) for n in range(4)]
    await store.add_runs(more)
    late = DEAD + MINUTE
    await store.rescue(late, late - 1, 10, _suspect, alone)
    taken = await store.take_suspects(late, "w4", ["cron"], limit=3)
    assert len(taken) == 3
    rest = await store.take_suspects(late, "w4", ["cron"], limit=3)
    assert {run.id for run in [*taken, *rest]} == {run.id for run in more}
    assert await store.take_suspects(late, "w4", ["cron"], limit=3) == []
    singly = [run for _ in range(3) for run in await store.take_suspects(late, "w4", ["cron"])]
    assert len(singly) == 2
    assert twice.id in {run.id for run in singly}
