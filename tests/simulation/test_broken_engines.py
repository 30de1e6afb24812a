"""The simulation notices: the engine is broken here on purpose, a promise at a time, and histories must fail.

A simulation that passes whatever the engine does would prove nothing. Each test takes away one thing that
exactly-once rests on, lets histories happen, and expects the checker to say what that thing was for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.simulation.faults import Odds
from tests.simulation.history import History
from tests.simulation.journal import Plain, Rules
from tests.simulation.virtual_loop import Stuck, run_virtually
from tests.simulation.world import World, takes
from wakeful import outcome, planning
from wakeful.engine import dispatcher, planner, rescuer, worker
from wakeful.engine.engine import EngineConfig
from wakeful.errors import WakefulError
from wakeful.store.sqlite import outcomes as sqlite_outcomes
from wakeful.store.sqlite import planning as sqlite_planning
from wakeful.store.sqlite import statements as sqlite_statements

SEEDS = range(100, 140)


def fails(seed: int, tweak: Callable[[History], None] | None = None) -> str:
    """What is said of a history, or nothing."""
    history = History(seed)
    if tweak is not None:
        tweak(history)
    with TemporaryDirectory() as folder:
        try:
            run_virtually(history.tell(Path(folder)))
        except (AssertionError, Stuck, WakefulError) as error:
            return str(error)
    return ""


def complains_that(words: str, tweak: Callable[[History], None] | None = None) -> bool:
    """Whether a history is found in which that is so."""
    return any(words in fails(seed, tweak) for seed in SEEDS)


def complains_of_nothing(tweak: Callable[[History], None] | None = None) -> bool:
    """Whether a few histories are fine."""
    return not any(fails(seed, tweak) for seed in SEEDS[:6])


def unanswered(history: History) -> None:
    """A database that does what it is asked, and often does not say so."""
    history.odds = Odds(doubt=20)


def troubled(history: History) -> None:
    """More of everything that goes wrong between a replica and its database."""
    history.odds = Odds(crash=4, doubt=4, stall=4, stall_s=40 * history.unit)
    history.want = 2


def test_histories_are_fine_while_the_engine_is():
    assert complains_of_nothing(troubled)


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that now and then does not move a job on, as if another had planned it at the same time."""
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
def test_the_unique_index_alone_keeps_two_planners_from_making_a_tick_twice(
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


def test_without_the_fence_a_worker_that_comes_back_has_the_last_word(monkeypatch: pytest.MonkeyPatch):
    fence = sqlite_statements._FENCE
    for name in ("SUCCEED", "SUCCEED_WITH_OUTPUT", "FINISH"):
        statement = getattr(sqlite_statements, name).replace(fence, "WHERE id = ? AND ? > 0 AND ? > ''")
        monkeypatch.setattr(sqlite_statements, name, statement)
    monkeypatch.setattr(sqlite_outcomes, "_held", lambda db, worker, finished: list(finished))
    assert complains_that("was changed though it was", troubled)


def test_without_leases_the_runs_of_the_dead_never_end(monkeypatch: pytest.MonkeyPatch):
    async def only_beat(self: rescuer.Rescuer) -> int:
        return await self.heartbeat() + self._heartbeat_ms

    monkeypatch.setattr(rescuer.Rescuer, "step", only_beat)
    assert complains_that("for ever", troubled)


def test_without_giving_back_a_claim_whose_answer_was_lost_is_held_for_ever(monkeypatch: pytest.MonkeyPatch):
    async def nothing(self: dispatcher.Dispatcher) -> None:
        self._worker.claims_uncertain = False

    monkeypatch.setattr(dispatcher.Dispatcher, "_release_unknown", nothing)
    assert complains_that("for ever", unanswered)


def test_a_planner_that_looks_only_ahead_loses_ticks(monkeypatch: pytest.MonkeyPatch):
    def forward(self: planning._JobPlanner, first: int, last: int) -> None:
        self.cursor = self.job.ticks.next(last)

    monkeypatch.setattr(planning._JobPlanner, "_catch_up", forward)
    assert complains_that("have no record")


def test_a_planner_that_counts_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch):
    real = planning._JobPlanner._miss

    def one_too_many(self: planning._JobPlanner, *rest: Any) -> None:
        real(self, *rest)
        self.verdicts[-1] = self.verdicts[-1]._replace(covers=self.verdicts[-1].covers + 1)

    monkeypatch.setattr(planning._JobPlanner, "_miss", one_too_many)
    assert complains_that("ticks, not")


def test_a_planner_that_does_not_look_what_runs_launches_two_at_once(monkeypatch: pytest.MonkeyPatch):
    def blind(job: Any, facts: Any, *rest: Any) -> Any:
        return planning.decide(job, planning.Facts(), *rest)

    monkeypatch.setattr(planner, "decide", blind)
    assert complains_that("was launched beside")


def test_a_worker_that_does_not_wait_for_the_instant_is_early(monkeypatch: pytest.MonkeyPatch):
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


def test_work_that_must_not_start_twice_does_where_that_is_forgotten(monkeypatch: pytest.MonkeyPatch):
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
