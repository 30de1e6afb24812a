"""A launch for a broker that is lost is repeated in the same attempt once; then the attempt is lost."""

from __future__ import annotations

from tests.integration.conftest import SELDOM, NewApp
from tests.support.factories import asked, held
from wakeful import CeleryTask, Wakeful
from wakeful.job.start_rules import CELERY
from wakeful.run.consequences import consequences
from wakeful.run.outcome import TAKEN_OVER
from wakeful.store.rows import RunView


async def _lose(app: Wakeful, run_id: str) -> RunView:
    """End the launch of a run by a worker that died, as the rescuer does after a lease."""
    assert app._engine is not None
    now_ms = app.store.clock.now_ms() + 10_000
    assert await app.store.rescue(now_ms, now_ms, 10, app._engine._rescuer._judge, consequences) == [run_id]
    run = await app.store.run(run_id)
    assert run is not None
    return run


async def _launched_again(app: Wakeful, worker: str) -> int:
    """Have another worker take the run. Returns the attempt."""
    (taken,) = await app.store.take(app.store.clock.now_ms() + 1_000, worker, {"cron": 1}, {CELERY: 0})
    return taken.attempt


async def test_an_attempt_whose_second_launch_is_lost_too_counts_as_lost(new_app: NewApp):
    async with new_app() as app:  # without a Celery app: no worker of this process takes the run
        await app.jobs.create("sum", schedule=SELDOM, target=CeleryTask("tests.add"), max_attempts=2)
        now_ms = app.store.clock.now_ms()
        row = await app.store.job_by_id((await app.jobs.get("sum")).id)
        assert row is not None
        run = held(asked(row, now_ms, requires=CELERY), "w1", since=now_ms)
        await app.store.add_runs([run])

        seen = await _lose(app, run.id)
        assert (seen.state, seen.reason, seen.failed_attempts) == ("retrying", TAKEN_OVER, 0)
        assert await _launched_again(app, "w2") == 1

        seen = await _lose(app, run.id)
        assert (seen.state, seen.reason, seen.failed_attempts) == ("retrying", "lost", 1)
        assert await _launched_again(app, "w3") == 2

        assert (await _lose(app, run.id)).reason == TAKEN_OVER, "each attempt is taken over once"
        assert await _launched_again(app, "w4") == 2
        seen = await _lose(app, run.id)
        assert (seen.state, seen.reason, seen.attempt) == ("failed", "lost", 2)
