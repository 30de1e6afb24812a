"""What a list shows of its jobs: last outcomes, cost per day, open incidents."""

from __future__ import annotations

from tests.support.factories import NOW, alone, asked, asleep, ended, held, over
from wakeful.run.usage import utc_day
from wakeful.store.port import Store
from wakeful.store.stats import DayCost, JobOverview
from wakeful.values.ids import new_id

TODAY = utc_day(NOW)


async def test_a_job_without_runs_has_an_empty_overview(store: Store) -> None:
    quiet = asleep("quiet")
    await store.create_jobs([quiet])
    assert await store.job_overviews([quiet.id], 20, TODAY) == {quiet.id: JobOverview()}
    assert await store.job_overviews([], 20, TODAY) == {}


async def test_the_last_runs_are_in_order_with_their_durations(store: Store) -> None:
    busy, other = asleep("busy"), asleep("other")
    await store.create_jobs([busy, other])
    runs = [
        over(asked(busy, id=new_id(NOW + n), started_ms=NOW + n, finished_ms=NOW + 3 * n)) for n in range(30)
    ]
    await store.add_runs([*runs, asked(other)])
    found = await store.job_overviews([busy.id, other.id], 20, TODAY)
    shown = found[busy.id].runs
    assert [run.id for run in shown] == [run.id for run in runs[10:]]
    assert {run.state for run in shown} == {"succeeded"}
    (waiting,) = found[other.id].runs
    assert (waiting.state, waiting.trigger, waiting.duration_ms) == ("pending", "user", None)


async def test_costs_are_by_day_and_incidents_are_open_ones(store: Store) -> None:
    failing = asleep("failing")
    await store.create_jobs([failing])
    run = held(asked(failing))
    await store.add_runs([run])
    usage = '{"tokens":7,"cost":0.25}'
    await store.finish("w1", [ended(run, "failed", reason="timeout", usage=usage)], alone)
    found = (await store.job_overviews([failing.id], 20, TODAY - 6))[failing.id]
    assert found.costs == (DayCost(utc_day(NOW), 7, 0.25),)
    assert len(found.incidents) == 1
    later = (await store.job_overviews([failing.id], 20, TODAY + 1))[failing.id]
    assert later.costs == ()
