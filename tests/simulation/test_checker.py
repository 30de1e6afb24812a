"""Tests of the checker: hand-written records break each rule once, and the checker must report it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from tests.simulation.checker import check
from tests.simulation.journal import Awake, Era, Journal, Launched, Life, Plain, Rules
from tests.simulation.records import Attempt, Records, Run, Step

MINUTE = 60_000
T0 = 1_800_000_000_000  # a whole minute
JOB = "j1"


def minute(number: float) -> int:
    return T0 + round(number * MINUTE)


class Tale:
    """A job with a tick per minute from T0 and its records; `complaints` lists the violations."""

    def __init__(self, minutes: float = 3, **rules: object) -> None:
        self.journal = Journal(end_ms=minute(minutes))
        era = Era(Plain(every_ms=MINUTE), Rules(**rules), T0, T0)  # type: ignore[arg-type]
        self.life = Life(JOB, "digest", [era])
        self.journal.lives[JOB] = self.life
        self.records = Records()
        self._worker = "w1"

    def run(self, tick: float, state: str = "succeeded", **fields: object) -> Run:
        """Record a run with the usual steps and launches up to this state."""
        run = Run(
            id=f"run-{len(self.records.runs)}",
            job_id=JOB,
            scheduled_ms=minute(tick),
            fire_ms=minute(tick),
            trigger="schedule",
            triggered_by=None,
            state=state,
            reason=None,
            covers=1,
            until_ms=None,
            attempt=1,
            serial=True,
            started_ms=None,
            finished_ms=None,
            key=sha256(f"{JOB}:{minute(tick) // 1000}".encode()).hexdigest(),
            replay_of=None,
            dead=state == "failed",
        )
        run = replace(run, **fields)  # type: ignore[arg-type]
        self.records.runs.append(run)
        if state in ("skipped", "missed"):
            self.step(run, None, state)
            return run
        self.step(run, None, "running")
        if state == "running":
            return run
        self.launch(run, end=state)
        self.step(run, "running", state)
        return run

    def step(self, run: Run, was: str | None, state: str | None, attempt: int | None = None) -> Step:
        seq = len(self.records.steps) + 1
        step = Step(seq, run.id, was, state, attempt or run.attempt, self._worker, None)
        self.records.steps.append(step)
        return step

    def launch(self, run: Run, attempt: int | None = None, **fields: object) -> Launched:
        at = len(self.journal.launches) * 10.0
        launch = Launched(
            run.id, JOB, attempt or run.attempt, run.key, self._worker, len(self.records.steps), run.fire_ms,
            run.fire_ms, at, at + 5, "succeeded",
        )  # fmt: skip
        self.journal.launches.append(replace(launch, **fields))  # type: ignore[arg-type]
        return launch

    @property
    def complaints(self) -> list[str]:
        return check(self.journal, self.records)

    def only_complains_that(self, *words: str) -> None:
        assert len(self.complaints) == 1, self.complaints
        assert all(word in self.complaints[0] for word in words), self.complaints


def fine() -> Tale:
    tale = Tale()
    for number in (1, 2, 3):
        tale.run(number)
    return tale


def test_a_job_with_a_run_for_each_tick_is_valid():
    assert fine().complaints == []


def test_a_lost_tick_is_reported():
    tale = Tale()
    tale.run(1)
    tale.run(3)
    tale.only_complains_that("1 ticks have no record", "2")


def test_a_lost_last_tick_is_reported():
    tale = Tale()
    tale.run(1)
    tale.run(2)
    tale.only_complains_that("1 ticks have no record")


def test_a_duplicate_tick_is_reported():
    tale = fine()
    tale.run(3)
    tale.only_complains_that("two records")


def test_a_tick_with_a_run_and_a_missed_row_is_reported():
    tale = fine()
    tale.run(2, "missed", until_ms=minute(3), covers=2)
    assert [complaint for complaint in tale.complaints if "two records" in complaint]


def test_a_missed_row_that_covers_its_ticks_is_valid():
    tale = Tale(10)
    tale.run(1, "missed", until_ms=minute(9), covers=9, reason="downtime")
    tale.run(10)
    assert tale.complaints == []


@pytest.mark.parametrize("covers", [1, 8, 10])
def test_a_missed_row_that_covers_too_few_or_too_many_ticks_is_reported(covers: int):
    tale = Tale(10)
    tale.run(1, "missed", until_ms=minute(9), covers=covers, reason="downtime")
    tale.run(10)
    tale.only_complains_that(f"covers {covers} ticks, not 9")


def test_a_missed_row_that_ends_between_two_ticks_is_reported():
    tale = Tale(3)
    tale.run(1, "missed", until_ms=minute(3) - 1, covers=2, reason="downtime")
    tale.run(2)
    tale.run(3)
    tale.only_complains_that("which is no tick")


def test_a_tick_missed_while_a_replica_was_awake_is_reported():
    tale = Tale(3)
    tale.run(1, "missed", until_ms=minute(3), covers=3, reason="downtime")
    tale.journal.awake.append(Awake(minute(1.5), minute(2.5)))
    tale.only_complains_that("though a replica was running")


def test_a_missed_tick_of_a_job_that_catches_up_is_reported():
    tale = Tale(3, catchup="fire_immediately")
    tale.run(1, "missed", until_ms=minute(3), covers=3, reason="downtime")
    tale.only_complains_that("though it catches up")


def test_a_run_without_a_tick_is_reported():
    tale = fine()
    tale.run(2.5)
    complaints = tale.complaints
    assert [complaint for complaint in complaints if "run without a tick" in complaint], complaints


def test_a_run_during_a_pause_is_a_run_without_a_tick():
    tale = Tale(9)
    tale.life.eras[0].until_ms = minute(2)
    tale.life.eras.append(Era(Plain(every_ms=MINUTE), Rules(), T0, minute(6)))
    for number in (1, 2, 7, 8, 9):
        tale.run(number)
    assert tale.complaints == []
    tale.run(4)
    assert "run without a tick" in tale.complaints[0]


def test_an_edit_moves_the_ticks():
    tale = Tale(9)
    tale.life.eras[0].until_ms = minute(2.5)
    tale.life.eras.append(Era(Plain(every_ms=2 * MINUTE), Rules(), minute(2.5), minute(2.5)))
    for number in (1, 2, 4.5, 6.5, 8.5):
        tale.run(number)
    assert tale.complaints == []


def test_jitter_allows_a_tick_to_fire_early_or_late():
    tale = Tale(3.2, jitter_ms=20_000)
    for number in (1, 2):
        tale.run(number)
    assert tale.complaints == [], "the third may still be to come"
    tale = Tale(2.8, jitter_ms=20_000)
    for number in (1, 2, 3):
        tale.run(number)
    assert tale.complaints == [], "the third may have come"


def test_more_runs_than_max_runs_are_reported():
    tale = Tale(9, max_runs=2)
    tale.run(1)
    tale.run(2)
    assert tale.complaints == []
    tale.run(3)
    tale.only_complains_that("ran 3 times")


def test_a_run_that_never_ends_is_reported():
    tale = Tale(1)
    tale.run(1, "running")
    tale.only_complains_that("is running for ever")


def test_a_deleted_run_is_reported():
    tale = fine()
    run = tale.records.runs.pop()
    tale.step(run, "succeeded", None)
    assert any("vanished" in complaint for complaint in tale.complaints)


@pytest.mark.parametrize(
    ("was", "state"), [("succeeded", "running"), ("succeeded", "failed"), ("failed", "retrying")]
)
def test_a_change_of_a_terminal_run_is_reported(was: str, state: str):
    tale = Tale(1)
    run = tale.run(1, was)
    tale.step(run, was, state)
    assert any("was changed though it was" in complaint for complaint in tale.complaints)


def test_an_invalid_state_transition_is_reported():
    tale = Tale(1)
    run = tale.run(1, "running")
    tale.step(run, "running", "pending")
    assert any("went from running to pending" in complaint for complaint in tale.complaints)


def test_a_change_of_worker_during_a_run_is_reported():
    tale = Tale(1)
    run = tale.run(1, "running")
    tale._worker = "w2"
    tale.step(run, "running", "running")
    assert any("changed hands" in complaint for complaint in tale.complaints)


def test_an_attempt_that_is_launched_twice_is_reported():
    tale = Tale(1)
    run = tale.run(1, "running")
    tale.launch(run)
    tale.launch(run)
    tale.step(run, "running", "succeeded")
    tale.records.runs[0] = replace(run, state="succeeded")
    tale.only_complains_that("was launched twice")


def test_a_launch_with_another_key_is_reported():
    tale = fine()
    tale.journal.launches[1].key = "another"
    tale.only_complains_that("another key")


def test_a_run_whose_key_does_not_match_its_tick_is_reported():
    tale = Tale(1)
    tale.run(1, key="another")
    tale.only_complains_that("another key than its tick")


def test_a_launch_before_its_time_is_reported():
    tale = fine()
    tale.journal.launches[1].high_ms -= 1
    tale.only_complains_that("1 ms too early")


def test_a_retry_before_its_time_is_reported():
    tale = Tale(1)
    run = tale.run(1, "running")
    tale.launch(run, end="failed")
    tale.records.steps.append(Step(2, run.id, "running", "retrying", 1, None, minute(2)))
    tale.step(run, "retrying", "running", attempt=2)
    tale.launch(run, attempt=2, high_ms=minute(2) - 1)
    tale.step(run, "running", "succeeded", attempt=2)
    tale.records.runs[0] = replace(run, state="succeeded", attempt=2)
    tale.only_complains_that("1 ms too early")


def test_a_launch_by_a_worker_that_does_not_hold_the_run_is_reported():
    tale = fine()
    tale.journal.launches[1].worker = "w2"
    tale.only_complains_that("who never held it")


def test_a_launch_of_a_terminal_run_is_reported_unless_the_database_was_slow():
    tale = fine()
    tale.journal.launches[-1].seq += 1
    tale.only_complains_that("who did not hold it any more")
    tale.journal.slow = True
    assert tale.complaints == []


def test_two_concurrent_launches_of_a_serial_job_are_reported():
    tale = Tale(2)
    first, second = tale.run(1, "running"), tale.run(2, "running")
    tale.launch(first)
    tale.launch(second, began_at=3.0)
    for number, run in enumerate((first, second)):
        tale.step(run, "running", "succeeded")
        tale.records.runs[number] = replace(run, state="succeeded")
    tale.only_complains_that("was launched beside")


def test_a_launch_concurrent_with_one_of_a_failed_run_is_valid():
    tale = Tale(2)
    first = tale.run(1, "running")
    tale.launch(first, ended_at=100.0, end="cut short")
    tale.step(first, "running", "failed")
    tale.records.runs[0] = replace(first, state="failed", reason="timeout", dead=True)
    tale.run(2)
    assert tale.complaints == []


def test_a_second_start_of_work_that_must_not_start_twice_is_reported():
    tale = Tale(1, on_lost="fail")
    run = tale.run(1, "running")
    tale.launch(run, end="crashed")
    tale.step(run, "running", "retrying")
    tale.step(run, "retrying", "running", attempt=2)
    tale.launch(run, attempt=2)
    tale.step(run, "running", "succeeded", attempt=2)
    tale.records.runs[0] = replace(run, state="succeeded", attempt=2)
    tale.only_complains_that("not to start twice")


def test_a_success_without_a_launch_is_reported():
    tale = fine()
    tale.journal.launches.pop()
    tale.only_complains_that("succeeded, and its attempt 1 was None")


def test_a_success_whose_launch_failed_is_reported():
    tale = fine()
    tale.journal.launches[-1].end = "failed"
    tale.only_complains_that("succeeded, and its attempt 1 was failed")


def test_a_launch_of_a_skipped_tick_is_reported():
    tale = Tale(2)
    run = tale.run(1, "running")
    skipped = tale.run(2, "skipped", reason="overlap")
    tale.launch(run)
    tale.step(run, "running", "succeeded")
    tale.records.runs[0] = replace(run, state="succeeded")
    assert tale.complaints == []
    tale.launch(skipped)
    assert any("never ran, and was launched" in complaint for complaint in tale.complaints)


def test_a_skip_for_an_overlap_without_a_live_run_is_reported():
    tale = Tale(2)
    tale.run(1)
    tale.run(2, "skipped", reason="overlap")
    tale.only_complains_that("while nothing was live")


def test_more_attempts_than_allowed_are_reported():
    tale = Tale(1, max_attempts=1)
    run = tale.run(1, "running")
    tale.launch(run, end="failed")
    tale.step(run, "running", "retrying")
    tale.step(run, "retrying", "running", attempt=2)
    tale.launch(run, attempt=2)
    tale.step(run, "running", "succeeded", attempt=2)
    tale.records.runs[0] = replace(run, state="succeeded", attempt=2)
    tale.only_complains_that("had 2 attempts of 1")
    tale.records.attempts.append(Attempt(run.id, 1, "released"))
    assert tale.complaints == [], "one that was given back does not count"


def test_a_failure_that_is_not_a_dead_letter_is_reported():
    tale = Tale(1)
    tale.run(1, "failed", reason="timeout", dead=False)
    tale.only_complains_that("no dead letter")


def test_a_later_tick_that_starts_first_is_reported():
    tale = Tale(2)
    tale.run(2)
    tale.run(1)
    tale.only_complains_that("a later tick")


def test_a_follower_that_does_not_fire_or_fires_twice_is_reported():
    tale = fine()
    tale.journal.lives["j2"] = Life("j2", "after", [Era(None, Rules(), T0, T0)], after="digest")
    tale.only_complains_that("did not fire after 3 runs")
    for leader in ("run-0", "run-1", "run-2"):
        tale.run(3, job_id="j2", trigger="chain", triggered_by=leader, serial=False)
    assert tale.complaints == []
    tale.run(3, job_id="j2", trigger="chain", triggered_by="run-2", serial=False)
    tale.only_complains_that("fired twice")


@pytest.mark.parametrize(
    ("cron", "ticks"),
    [
        ("*/20 * * * *", ["2027-01-15T08:20", "2027-01-15T08:40", "2027-01-15T09:00"]),
        ("0 9 * * *", ["2027-01-15T09:00", "2027-01-16T09:00", "2027-01-17T09:00"]),
        ("0 9 * * 1-5", ["2027-01-15T09:00", "2027-01-18T09:00", "2027-01-19T09:00"]),
        ("5,35 8-9 * * 0", ["2027-01-17T08:05", "2027-01-17T08:35", "2027-01-17T09:05"]),
    ],
)
def test_the_ticks_of_a_cron_are_computed(cron: str, ticks: list[str]):
    from datetime import datetime

    after = round(datetime.fromisoformat("2027-01-15T08:00+00:00").timestamp() * 1000)
    expected = [round(datetime.fromisoformat(f"{tick}+00:00").timestamp() * 1000) for tick in ticks]
    assert Plain(cron=cron).ticks(0, after, after + 8 * 86_400_000)[:3] == expected
