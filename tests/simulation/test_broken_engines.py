"""Mutation tests of the simulation: each breaks one guarantee of the engine, and histories must fail.

Each test removes one mechanism that exactly-once depends on, runs histories, and expects the checker to
report the violation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.simulation.faults import Odds
from tests.simulation.fences import without_fences
from tests.simulation.history import History
from tests.simulation.journal import Plain, Rules
from tests.simulation.virtual_loop import Stuck, run_virtually
from tests.simulation.world import World, takes
from wakeful.engine import dispatcher, planner, rescuer, worker
from wakeful.engine.engine import EngineConfig
from wakeful.errors import WakefulError
from wakeful.run import outcome, planning
from wakeful.store.sqlite import planning as sqlite_planning

SEEDS = range(100, 140)


def fails(seed: int, tweak: Callable[[History], None] | None = None) -> str:
    """Run a history. Returns its error, or an empty string."""
    history = History(seed)
    if tweak is not None:
        tweak(history)
    with TemporaryDirectory() as folder:
        try:
            run_virtually(history.tell(Path(folder)))
        except (AssertionError, Stuck, WakefulError, sqlite3.IntegrityError) as error:
            return str(error)
    return ""


def complains_that(
    words: str, tweak: Callable[[History], None] | None = None, seeds: Sequence[int] = SEEDS
) -> bool:
    """Whether some history fails with these words."""
    return any(words in fails(seed, tweak) for seed in seeds)


def complains_of_nothing(tweak: Callable[[History], None] | None = None) -> bool:
    """Whether a few histories pass."""
    return not any(fails(seed, tweak) for seed in SEEDS[:6])


def unanswered(history: History) -> None:
    """Make the database often execute a call without a response."""
    history.odds = Odds(doubt=20)


def troubled(history: History) -> None:
    """Raise the fault rates between replicas and database."""
    history.odds = Odds(crash=4, doubt=4, stall=4, stall_s=40 * history.unit)
    history.want = 2


def test_histories_pass_with_the_unbroken_engine():
    assert complains_of_nothing(troubled)


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the planner sometimes not advance a job, as if another planner had planned it concurrently."""
    real, calls = sqlite_planning.plan, 0

    async def plan(db: sqlite3.Connection, *rest: Any) -> Any:
        nonlocal calls
        jobs = db.execute("SELECT next_at, wake_at, run_count, id FROM jobs").fetchall()
        planned = await real(db, *rest)
        calls += bool(planned.runs)
        if planned.runs and calls % 5 == 0:
            db.executemany("UPDATE jobs SET next_at = ?, wake_at = ?, run_count = ? WHERE id = ?", jobs)
        return planned

    monkeypatch.setattr(sqlite_planning, "plan", plan)


@pytest.mark.parametrize("overlap", ["allow", "skip", "queue"])
def test_the_unique_index_prevents_two_planners_from_recording_a_tick_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, overlap: str
):
    forgetful(monkeypatch)

    async def story(index: bool) -> list[str]:
        folder = tmp_path / str(index)
        folder.mkdir()
        async with World(folder, config=EngineConfig(tick_ms=10_000, retention_days=36_500)) as world:
            if not index:
                world.recorder.execute("DROP INDEX runs_tick")
            job = await world.create("job", Plain(cron="* * * * *"), Rules(overlap=overlap), body=takes(0.5))
            await world.start()
            await world.start()
            await world.sleep(30 * 60 + 30)
            world.check()
            return [run.state for run in world.recorded(job)]

    assert run_virtually(story(index=True)) == ["succeeded"] * 30
    with pytest.raises(AssertionError, match="two records"):
        run_virtually(story(index=False))


def test_without_the_fence_a_stalled_worker_overwrites_a_terminal_run(monkeypatch: pytest.MonkeyPatch):
    without_fences(monkeypatch)
    # Without the fence, some earlier histories rescue a run again and again, which takes minutes.
    assert complains_that("was changed though it was", troubled, range(116, 140))


def test_without_rescues_the_runs_of_dead_workers_never_end(monkeypatch: pytest.MonkeyPatch):
    async def only_beat(self: rescuer.Rescuer) -> int:
        return await self.heartbeat() + self._heartbeat_ms

    monkeypatch.setattr(rescuer.Rescuer, "step", only_beat)
    assert complains_that("for ever", troubled)


def test_without_the_release_of_unknown_claims_a_lost_claim_is_held_forever(monkeypatch: pytest.MonkeyPatch):
    async def nothing(self: dispatcher.Dispatcher) -> None:
        self._worker.uncertain_claims = 0

    monkeypatch.setattr(dispatcher.Dispatcher, "_release_unknown", nothing)
    assert complains_that("for ever", unanswered)


def test_a_planner_without_catch_up_loses_ticks(monkeypatch: pytest.MonkeyPatch):
    def forward(self: planning._JobPlanner, first: int, last: int) -> None:
        self.cursor = self.job.ticks.next(last)

    monkeypatch.setattr(planning._JobPlanner, "_catch_up", forward)
    assert complains_that("have no record")


def test_a_planner_that_miscounts_missed_ticks_is_detected(monkeypatch: pytest.MonkeyPatch):
    real = planning._JobPlanner._miss

    def one_too_many(self: planning._JobPlanner, *rest: Any) -> None:
        real(self, *rest)
        self.verdicts[-1] = self.verdicts[-1]._replace(covers=self.verdicts[-1].covers + 1)

    monkeypatch.setattr(planning._JobPlanner, "_miss", one_too_many)
    assert complains_that("ticks, not")


def test_a_planner_that_ignores_running_runs_launches_two_concurrently(monkeypatch: pytest.MonkeyPatch):
    def blind(job: Any, facts: Any, *rest: Any) -> Any:
        return planning.decide(job, planning.PlanningFacts(), *rest)

    monkeypatch.setattr(planner, "decide", blind)
    assert complains_that("was launched beside")


def test_a_worker_that_does_not_wait_for_the_fire_time_launches_early(monkeypatch: pytest.MonkeyPatch):
    real = worker.Worker.submit

    def at_once(self: worker.Worker, runs: Any) -> None:
        runs = list(runs)
        for run in runs:
            run.launch.fire_ms = 0
        real(self, runs)

    def leading(history: History) -> None:
        limits = history.config.limits._replace(lead_ms=history.unit * 500)
        history.config = replace(history.config, limits=limits)

    assert complains_of_nothing(leading)
    monkeypatch.setattr(worker.Worker, "submit", at_once)
    assert complains_that("too early", leading)


def test_a_rescuer_that_ignores_on_lost_starts_work_twice(monkeypatch: pytest.MonkeyPatch):
    real = outcome.conclude

    def always_again(
        run_id: str, job_id: Any, attempt: int, policy: Any, verdict: Any, *rest: Any, **named: Any
    ) -> Any:
        return real(
            run_id,
            job_id,
            attempt,
            replace(policy, max_attempts=99),
            verdict._replace(permanent=False),
            *rest,
            **named,
        )

    monkeypatch.setattr(rescuer, "conclude", always_again)
    assert complains_that("not to start twice", troubled)
