"""The details of runs: columns that few runs have, written after the insert."""

from __future__ import annotations

from tests.support.factories import NOW, asked, asleep, job, look, plan_of, tick
from tests.support.instances import taken
from wakeful.run.instances import instance_id
from wakeful.run.run import RunDetails
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import RunView

DETAILS = RunDetails("telegram:1", 2, '{"upstream":1}')


def _details(run: RunView) -> RunDetails:
    return RunDetails(run.session, run.depth, run.context)


async def test_the_details_of_a_run_are_stored_and_taken_with_it(store: Store) -> None:
    digest = asleep()
    await store.create_jobs([digest])
    plain, detailed = (asked(digest, serial=False, details=each) for each in (None, DETAILS))
    added = {run.id: run for run in await store.add_runs([plain, detailed])}
    assert _details(added[detailed.id]) == _details(await look(store, detailed)) == DETAILS
    assert _details(added[plain.id]) == _details(await look(store, plain)) == RunDetails()
    found = {run.id: run for run in await store.take(NOW, "w1", {"cron": 10})}
    assert (found[detailed.id].session, found[detailed.id].context) == (DETAILS.session, DETAILS.context)
    assert (found[plain.id].session, found[plain.id].context) == (None, None)


async def test_the_details_of_a_tick_are_stored_with_it(store: Store) -> None:
    await store.create_jobs([job()])

    def decide(due: DueJob) -> JobPlan:
        assert (due.precheck_state, due.precheck_revision) == (None, 0)
        return plan_of(due, tick(due, details=DETAILS))

    await store.plan(NOW, 10, decide)
    (run,) = await store.take(NOW, "w1", {"cron": 1})
    assert _details(await look(store, run)) == DETAILS


async def test_the_details_of_a_signal_are_stored_with_it(store: Store) -> None:
    digest = asleep(agent="report")
    await store.create_jobs([digest])
    run = asked(
        digest, agent="report", serial=False, due_ms=None, requires="agent:default/report", details=DETAILS,
        instance_id=instance_id("default", "report", "eu"), instance="eu", signal="wakeful.job",
    )  # fmt: skip
    await store.add_runs([run])
    assert _details(await look(store, run)) == DETAILS
    (found,) = await taken(store)
    assert (found.session, found.context, found.instance) == (DETAILS.session, DETAILS.context, "eu")
