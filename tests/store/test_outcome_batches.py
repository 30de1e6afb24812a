"""Random batches of outcomes leave every database in the same state."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from tests.support.databases import SqliteDatabase, postgres
from tests.support.factories import DAY, NOW, SECOND, FalseClock, asked, asleep, ended, held, tick
from wakeful.job.start_rules import BudgetOwner
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished
from wakeful.run.run import NewRun
from wakeful.store.port import Store
from wakeful.store.rows import JobFilter, JobRow, RunFilter
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS

STATES = ["succeeded", "succeeded", "failed", "failed", "retrying", "skipped", "cancelled", "running"]


@pytest_asyncio.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[tuple[Store, FalseClock]]]:
    """Yield a store on each database."""
    databases = [SqliteDatabase(tmp_path / "wakeful.db"), postgres()]
    yield [(await database.connect(), database.clock) for database in databases]
    for database in databases:
        await database.close()


def _jobs() -> list[JobRow]:
    beat = asleep(HEARTBEAT, labels=HEARTBEAT_LABELS)
    jobs = [asleep(f"job-{number}", failures=number % 3) for number in range(4)]
    no_tick = {"next_ms": None, "wake_ms": None}
    return [
        *jobs, beat, asleep("once", **no_tick),
        asleep("then", after_job="job-0", after_on="succeeded", **no_tick),
        asleep("job-4", after_job="job-1", after_on="failed"),
        asleep("always", after_job="job-1", after_on="finished", **no_tick),
    ]  # fmt: skip


def _batch(random: Random, runs: list[NewRun]) -> list[Finished]:
    batch = []
    for number, run in enumerate(random.sample(runs, len(runs) * 2 // 3)):
        state = random.choice(STATES)
        failed, succeeded = state == "failed", state == "succeeded"
        batch.append(
            ended(
                run, state, finished_ms=NOW + SECOND + number, due_ms=NOW + DAY,
                delete_job=state in ("succeeded", "skipped") and random.random() < 0.15,
                disable_job="gone" if failed and random.random() < 0.15 else None,
                disable_after=random.choice([None, 2, 3]) if failed else None,
                deliver=("slack", "ada") if succeeded and random.random() < 0.3 else None,
                wake_heartbeat=succeeded and random.random() < 0.3,
                usage=json.dumps({"tokens": random.randrange(9)}) if random.random() < 0.3 else None,
            )
        )  # fmt: skip
    return batch


async def _state(store: Store, clock: FalseClock) -> object:
    """Return everything that outcomes can change, without the ids of new runs."""
    runs = await store.runs(RunFilter("default", limit=10_000))
    jobs = await store.jobs(JobFilter("default"))
    shown = [
        (run.job_name, run.scheduled_ms, run.trigger, run.triggered_by, run.state, run.reason, run.worker,
         run.due_ms, run.started_ms, run.finished_ms, run.dead, run.delivery, run.attempt,
         len(await store.attempts(run.id)))
        for run in runs
    ]  # fmt: skip
    used = await store.read_spent(BudgetOwner("default"), clock.now_ms() // DAY)
    return sorted(map(repr, shown)), [job._replace(version=0) for job in jobs], used


async def _begin(store: Store, clock: FalseClock, jobs: list[JobRow], runs: list[NewRun]) -> None:
    await store.create_jobs(jobs)
    await store.add_runs(runs)
    clock.ms = NOW + SECOND


@pytest.mark.parametrize("seed", range(12))
async def test_both_databases_end_in_the_same_state(
    stores: list[tuple[Store, FalseClock]], seed: int
) -> None:
    random, jobs = Random(seed), _jobs()
    runs = [held(asked(random.choice(jobs))) for _ in range(30)]
    ahead = [held(tick(each, NOW + 2 * SECOND), since=NOW + 2 * SECOND) for each in jobs[:3]]
    waiting = [asked(random.choice(jobs)) for _ in range(6)] + [tick(each, NOW + DAY) for each in jobs[1:4]]
    batches = [_batch(random, runs) for _ in range(2)]
    states = []
    for store, clock in stores:
        await _begin(store, clock, jobs, [*runs, *ahead, *waiting])
        for batch in batches:
            await store.finish("w1", batch, consequences)
        states.append(await _state(store, clock))
    assert states[0] == states[1]
