"""Runs of jobs, wakes, messages and replays of an agent class are signals to one of its instances."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.agents.test_declared_schedules import DAILY, first_jobs
from wakeful.agents.sessions import start_turns
from wakeful.document import policy_to_text, work_to_text
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.job.job import Definition, JobRecord, Work
from wakeful.job.policy import DEFAULT_POLICY
from wakeful.run.factory import follow_up_run, tick_run
from wakeful.run.instances import instance_id
from wakeful.run.outcome import Failed
from wakeful.run.planning import Becomes, TickVerdict
from wakeful.run.run import Follower, NewRun
from wakeful.service.auth.access import LOCAL
from wakeful.service.runs.manual_runs import apply_overlap, replay_run, triggered_run
from wakeful.store.plans import LiveRuns
from wakeful.store.row_mapping import job_from_row, view_of_new_run
from wakeful.store.rows import DeadLetter
from wakeful.store.sessions import SessionKey, SessionMessage, SessionState

NOW = 1_800_000_000_000
TO_CLASS: Any = {"kind": "agent"}
TO_EU: Any = {"kind": "agent", "instance": "eu", "signal": "report.generate"}
PULL: Any = {"kind": "pull"}


def job(target: Any = TO_CLASS, name: str = "digest") -> JobRecord:
    work = Work(target, payload={"n": 1})
    return JobRecord(
        "j1", "default", "report", Definition(name, None, work=work), True, NOW, None, None, NOW, NOW
    )


def tick(target: Any = TO_CLASS, name: str = "digest", becomes: Becomes = Becomes.STARTED) -> NewRun:
    verdict = TickVerdict(NOW, NOW, becomes, "overlap" if becomes is Becomes.SKIPPED else None)
    return tick_run(job(target, name), DEFAULT_POLICY, Work(target), verdict, NOW, None)


def is_signal(run: NewRun, signal: str, instance: str = "default") -> bool:
    assert run.instance_id == instance_id("default", "report", instance)
    assert (run.requires, run.serial, run.due_ms) == ("agent:default/report", False, None)
    return (run.instance, run.signal) == (instance, signal)


@pytest.mark.parametrize(
    ("target", "name", "signal", "instance"),
    [
        (TO_CLASS, "digest", "wakeful.job", "default"),
        (TO_CLASS, "heartbeat", "wakeful.heartbeat", "default"),
        (TO_EU, "digest", "report.generate", "eu"),
    ],
)
def test_a_tick_is_a_signal_that_waits_in_the_mailbox(target: Any, name: str, signal: str, instance: str):
    run = tick(target, name)
    assert is_signal(run, signal, instance)
    assert (run.state, run.fire_ms, run.trigger) == ("pending", NOW, "schedule")


def test_a_tick_that_is_skipped_shows_its_instance():
    run = tick(TO_EU, becomes=Becomes.SKIPPED)
    assert (run.state, run.reason, run.instance) == ("skipped", "overlap", "eu")


def test_other_targets_have_no_instance():
    assert tick(PULL).instance_id is None
    assert tick({"kind": "function", "name": "f"}).instance_id is None


def test_a_run_by_hand_is_a_signal_with_its_payload():
    run = triggered_run(LOCAL, job(), NOW, due_only=False, payload='{"n":2}')
    assert is_signal(run, "wakeful.job")
    assert (run.payload, run.trigger) == ('{"n":2}', "user")
    queued = apply_overlap(run, LiveRuns(), "queue", 10, NOW).run
    assert is_signal(queued, "wakeful.job")


def test_a_follow_up_run_is_a_signal():
    work, policy = work_to_text(Work(TO_CLASS)), policy_to_text(DEFAULT_POLICY)
    after = Follower("j1", "default", "report", "digest", policy, work, "r0", NOW)
    assert is_signal(follow_up_run(after), "wakeful.job")
    beat = after._replace(name="heartbeat", trigger="heartbeat")
    assert is_signal(follow_up_run(beat), "wakeful.heartbeat")


def test_a_message_is_a_signal():
    message = SessionMessage("m1", "hello", "key:1", "user", NOW - 10_000)
    state = SessionState(
        SessionKey("default", "report", "main"), [message], [], None, None, "j1",
        work_to_text(Work(TO_CLASS, lane="main")), policy_to_text(DEFAULT_POLICY),
    )  # fmt: skip
    (run,) = start_turns(state, NOW).begun
    assert is_signal(run, "wakeful.message")
    assert run.lane == "main"


def dead(run: NewRun, target: Any = TO_CLASS) -> DeadLetter:
    view = view_of_new_run(run, NOW)._replace(state="failed", dead=True)
    return DeadLetter(view, policy_to_text(DEFAULT_POLICY), work_to_text(Work(target)))


def test_a_replay_goes_to_the_same_instance_behind_those_that_wait():
    old = tick(TO_EU)._replace(attempt=5)
    run = replay_run(LOCAL, dead(old), NOW + 60_000)  # the job names another instance now
    assert is_signal(run, "report.generate", "eu")
    assert (run.fire_ms, run.scheduled_ms, run.attempt) == (NOW + 60_000, NOW, 6)
    assert (run.idempotency_key, run.replay_of) == (old.idempotency_key, old.id)


def test_a_replay_of_a_signal_without_a_job_keeps_its_event():
    old = tick(TO_EU)._replace(
        job_id=None, job_name=None, payload='{"type":"report.generate"}', trigger="signal"
    )
    run = replay_run(LOCAL, dead(old), NOW + 1)
    assert is_signal(run, "report.generate", "eu")
    assert (run.payload, run.trigger) == (old.payload, "replay")


def test_a_replay_follows_its_job_to_another_target_and_to_a_class():
    assert replay_run(LOCAL, dead(tick(TO_EU), {"kind": "echo"}), NOW).instance_id is None
    assert is_signal(replay_run(LOCAL, dead(tick({"kind": "echo"}), TO_EU), NOW), "report.generate", "eu")


def test_the_job_of_a_schedule_makes_signals_of_its_type():
    row = first_jobs(DAILY)[0]
    run = tick_run(
        row,
        DEFAULT_POLICY,
        job_from_row(row).definition.work,
        TickVerdict(NOW, NOW, Becomes.STARTED),
        NOW,
        None,
    )
    assert is_signal(run, "report.generate", "eu")


async def test_a_run_that_was_recorded_for_another_target_fails_with_advice():
    class AnyLease:
        valid = True

    run = tick({"kind": "echo"})
    launchers = LauncherRegistry([])
    ready = launchers.prepare(run, DEFAULT_POLICY, Work(TO_CLASS), None, None, AnyLease())  # type: ignore[arg-type]
    outcome = await ready.launcher.start(ready.launch)
    assert "replay the run to send it as a signal" in str(outcome)


@pytest.mark.parametrize("target", [PULL, None, {"kind": "workflow", "workflowId": "w", "version": 1}])
async def test_a_run_that_only_an_executor_can_execute_is_not_tried_for_ever_by_a_worker(target: Any):
    class AnyLease:
        valid = True

    launchers = LauncherRegistry([])
    run = tick({"kind": "echo"})
    ready = launchers.prepare(run, DEFAULT_POLICY, Work(target), None, None, AnyLease())  # type: ignore[arg-type]
    outcome = await ready.launcher.start(ready.launch)
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.reason) == (True, "target_changed")
