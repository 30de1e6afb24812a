"""Prechecks: what they decide is recorded before the launch and takes effect with the outcome."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    DAY,
    MINUTE,
    NOW,
    SECOND,
    FalseClock,
    alone,
    asleep,
    ended,
    fire,
    given_held,
    held,
    job,
    look,
    look_at_job,
    tick,
)
from wakeful.job.policy import Policy
from wakeful.run.outcome import Failed, Finished, conclude
from wakeful.run.prechecks import Checked, check_from_text, check_to_text
from wakeful.store.audit import AuditEntry
from wakeful.store.plans import DueJob, JobPlan
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow, RunView, TakenRun

WORK = '{"target":{"kind":"function","name":"digest"},"precheck":{"kind":"function","name":"new"}}'
OTHER = '{"target":{"kind":"function","name":"digest"},"precheck":{"kind":"function","name":"other"}}'
NONE = '{"target":{"kind":"function","name":"digest"}}'


async def _given(store: Store, **fields: Any) -> tuple[JobRow, list[RunView]]:
    """Store a watch with two running runs."""
    row = asleep("watch", **{"work": WORK, **fields})
    await store.create_jobs([row])
    runs = [held(tick(row, NOW + number, serial=False)) for number in range(2)]
    return row, await store.add_runs(runs)


async def _state(store: Store, row: JobRow) -> tuple[str | None, int]:
    """Return the state of the precheck and its revision, as the next run gets them."""
    at = NOW + 30 * MINUTE
    probe = tick(row, at, serial=False, trigger="user")
    await store.add_runs([probe])
    (taken,) = [each for each in await store.take(at, "probe", {"cron": 50}) if each.id == probe.id]
    await store.finish("probe", [ended(taken, "skipped")], alone)
    return taken.precheck_state, taken.precheck_revision


def _checked(run: RunView | TakenRun, checked: Checked, state: str = "succeeded", **fields: Any) -> Finished:
    return ended(run, state, checked=checked, **fields)


@pytest.mark.parametrize("state", ["succeeded", "skipped"])
async def test_the_state_is_written_with_the_outcome(store: Store, state: str) -> None:
    row, (run, _) = await _given(store)
    assert await _state(store, row) == (None, 0)
    assert await store.finish("w1", [_checked(run, Checked(0, '{"price":90}', True), state)], alone)
    assert await _state(store, row) == ('{"price":90}', 1)
    found = await store.job_with_runs(row.workspace, row.agent, row.id, 1)
    assert found is not None
    assert found.precheck_state == '{"price":90}'


async def test_a_state_can_be_removed(store: Store) -> None:
    row, (first, second) = await _given(store)
    await store.finish("w1", [_checked(first, Checked(0, "90", True))], alone)
    await store.finish("w1", [_checked(second, Checked(1, None, True))], alone)
    assert await _state(store, row) == (None, 2)


async def test_an_outcome_behind_its_fence_writes_no_state(store: Store) -> None:
    row, (run, _) = await _given(store)
    assert not await store.finish("w2", [_checked(run, Checked(0, "90", True))], alone)
    late = _checked(run, Checked(0, "90", True))._replace(attempt=2)
    assert not await store.finish("w1", [late], alone)
    assert await _state(store, row) == (None, 0)


async def test_of_two_runs_at_once_the_first_to_end_writes_its_state(store: Store) -> None:
    row, (first, second) = await _given(store)
    await store.finish("w1", [_checked(second, Checked(0, '"second"', True))], alone)
    await store.finish("w1", [_checked(first, Checked(0, '"first"', True))], alone)
    assert await _state(store, row) == ('"second"', 1)


async def test_two_runs_of_one_batch_decide_in_its_order(store: Store) -> None:
    row, (first, second) = await _given(store)
    batch = [_checked(first, Checked(0, "1", True)), _checked(second, Checked(0, "2", True))]
    assert len(await store.finish("w1", batch, alone)) == 2
    assert await _state(store, row) == ("1", 1)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"description": "another"}, "90"),
        ({"payload": '{"to":"me"}'}, "90"),
        ({"work": WORK.replace('"new"', '"new","timeoutMs":5')}, "90"),
        ({"work": OTHER}, None),
        ({"work": NONE}, None),
    ],
)
async def test_a_run_that_ends_after_an_edit_writes_no_state(
    store: Store, change: dict[str, Any], state: str | None
) -> None:
    row, (first, second) = await _given(store)
    await store.finish("w1", [_checked(first, Checked(0, "90", True))], alone)

    await store.change_job(row.id, lambda old: JobChange(old._replace(**change)))

    assert await _state(store, row) == (state, 2), "another precheck starts without a state"
    checked = Checked(1, "80", True, once=True)
    await store.finish("w1", [_checked(second, checked, disable_job="once")], alone)
    assert await _state(store, row) == (state, 2)
    assert (await look_at_job(store, row)).enabled


async def test_a_pause_is_not_an_edit(store: Store) -> None:
    row, (run, _) = await _given(store)
    paused: dict[str, Any] = {"enabled": False, "next_ms": None, "wake_ms": None, "updated_ms": NOW + 5}
    await store.change_job(row.id, lambda old: JobChange(old._replace(**paused)))
    await store.change_job(row.id, lambda old: JobChange(old._replace(enabled=True, updated_ms=NOW + 6)))
    await store.finish("w1", [_checked(run, Checked(0, "90", True))], alone)
    assert await _state(store, row) == ("90", 1)


async def test_an_edit_of_another_job_changes_nothing(store: Store) -> None:
    row, (run, _) = await _given(store)
    other = asleep("other", work=WORK)
    await store.create_jobs([other])
    await store.change_job(other.id, lambda old: JobChange(old._replace(description="another")))
    await store.finish("w1", [_checked(run, Checked(0, "90", True))], alone)
    assert await _state(store, row) == ("90", 1)
    assert await _state(store, other) == (None, 1)


async def test_many_jobs_are_edited_at_once(store: Store) -> None:
    rows = [asleep(f"job-{number}", work=work) for number, work in enumerate((WORK, WORK, NONE))]
    await store.create_jobs(rows)

    def change(old: JobRow) -> JobChange:
        return JobChange(old._replace(work=OTHER if old.name == "job-1" else old.work, description="another"))

    def entry(row: JobRow) -> AuditEntry:
        return AuditEntry("default", "python", "job.update", row.name, "{}", None)

    await store.change_jobs([row.id for row in rows], change, entry)
    assert [await _state(store, row) for row in rows] == [(None, 1), (None, 1), (None, 0)]


async def test_once_disables_the_job_when_the_run_succeeds(store: Store) -> None:
    row, (first, second) = await _given(store)
    checked = Checked(0, "90", True, once=True)
    await store.finish("w1", [_checked(first, checked, disable_job="once")], alone)
    after = await look_at_job(store, row)
    assert (after.enabled, after.disabled_reason, after.next_ms, after.wake_ms) == (False, "once", None, None)
    await store.finish("w1", [_checked(second, Checked(0, "80", True))], alone)
    assert await _state(store, row) == ("90", 1)


async def test_the_answer_is_recorded_before_the_launch_and_stays_through_retries(store: Store) -> None:
    row, (run, _) = await _given(store)
    decided = check_to_text(Checked(0, '{"price":90}', True, once=True))

    assert await store.record_check(run.id, 1, "w1", '{"price":90}', decided)

    failed = conclude(run.id, row.id, 1, Policy(), Failed("no"), NOW, NOW + SECOND)
    await store.finish("w1", [failed], alone)
    (taken,) = [each for each in await store.take(NOW + MINUTE, "w2", {"cron": 9}) if each.id == run.id]
    assert (taken.attempt, taken.context) == (2, '{"price":90}')
    assert taken.precheck is not None
    assert check_from_text(taken.precheck) == Checked(0, '{"price":90}', True, once=True)
    shown = await look(store, run)
    assert (shown.context, shown.precheck) == ('{"price":90}', decided)


async def test_an_answer_is_recorded_only_by_the_worker_that_holds_the_attempt(store: Store) -> None:
    _, (run, other) = await _given(store)
    decided = check_to_text(Checked(0))
    assert not await store.record_check(run.id, 1, "w2", "{}", decided)
    assert not await store.record_check(run.id, 2, "w1", "{}", decided)
    await store.finish("w1", [ended(other)], alone)
    assert not await store.record_check(other.id, 1, "w1", "{}", decided)
    for each in (run, other):
        shown = await look(store, each)
        assert (shown.context, shown.precheck) == (None, None)


async def test_the_state_is_written_when_a_callback_completes_the_run(store: Store) -> None:
    row, (run, _) = await _given(store)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    assert await store.complete_run(_checked(run, Checked(0, "90", True)), alone)
    assert await _state(store, row) == ("90", 1)


async def test_a_due_job_comes_with_the_state_of_its_precheck(store: Store, clock: FalseClock) -> None:
    row = job("watch", work=WORK)
    await store.create_jobs([row])
    found: list[DueJob] = []

    def plan(due: DueJob) -> JobPlan:
        found.append(due)
        return fire(due)

    await store.plan(NOW, 10, plan)
    (taken,) = await store.take(NOW, "w1", {"cron": 5})
    await store.finish("w1", [_checked(taken, Checked(0, "90", True))], alone)
    clock.ms = NOW + DAY
    await store.plan(clock.ms, 10, plan)
    assert [(due.precheck_state, due.precheck_revision) for due in found] == [(None, 0), ("90", 1)]


async def test_failures_and_states_of_one_batch_are_both_written(store: Store) -> None:
    failing, failed = await given_held(store, name="failing")
    row, (run, _) = await _given(store)
    batch = [ended(failed, "failed", error="no"), _checked(run, Checked(0, "90", True))]
    await store.finish("w1", batch, alone)
    assert (await look_at_job(store, failing)).failures == 1
    assert await _state(store, row) == ("90", 1)
