"""A run that was reported as done awaits its verification, which one worker at a time holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.store.test_audit import actions, entry
from tests.support.databases import Database
from tests.support.factories import NOW, SECOND, alone, asked, ended, given_held, look
from tests.support.notifications import NotificationRecorder
from tests.support.pull_runs import ME, claim, new_job, pulled, refuse
from wakeful.job.start_rules import NO_CAPABILITIES
from wakeful.run.outcome import Finished, Verification
from wakeful.store.plans import ManualRunPlan
from wakeful.store.port import Store
from wakeful.store.rows import Renewal, RunFilter, RunView
from wakeful.store.sql.verifications import DueVerification, VerificationView

CHECK = '{"kind":"http","url":"https://a.example"}'
LEASE = 30 * SECOND
NEVER = 0


def report(
    run: RunView, requires: str = "", delay_ms: int = 0, check: str = CHECK, **fields: object
) -> Finished:
    """Return the report of a run that is done and awaits its verification."""
    verification = Verification(check, requires, delay_ms)
    found = ended(run, "running", output="done", usage='{"tokens":7}', evidence='{"id":1}', **fields)
    return found._replace(verification=verification, due_ms=None)


async def given_reported(
    store: Store, requires: str = "", delay_ms: int = 0, check: str = CHECK, name: str = "digest"
) -> RunView:
    """Return a run that a worker reported as done."""
    _, run = await given_held(store, name=name)
    assert await store.finish("w1", [report(run, requires, delay_ms, check)], alone) == {run.id}
    return await look(store, run)


async def take(store: Store, now: int = NOW, worker: str = "w2", **given: object) -> list[DueVerification]:
    capabilities = given.get("capabilities", NO_CAPABILITIES)
    since = given.get("since", NEVER)
    return await store.take_verifications(
        now, worker, capabilities, since, 10, lambda verify: now + LEASE,  # type: ignore[arg-type]
    )  # fmt: skip


async def test_a_report_leaves_the_run_running_until_it_is_verified(
    store: Store, recorder: NotificationRecorder
):
    run = await given_reported(store)
    assert (run.state, run.verifying, run.shown_worker, run.due_ms) == ("running", True, None, None)
    assert (run.output, run.usage, run.evidence) == ("done", '{"tokens":7}', '{"id":1}')
    assert "verifications" in await recorder.next_event("verifications")
    assert await store.verification(run.id) == VerificationView(CHECK, NOW, 0, NOW)
    (due,) = await take(store)
    assert (due.run.id, due.view.output, due.verify, due.tries) == (run.id, "done", CHECK, 1)
    final = ended(run, output="done", usage=run.usage, usage_counted=True)
    assert await store.finish_verification(final, alone, ("w2", 1), [entry("run.verify")])
    over = await look(store, run)
    assert (over.state, over.verifying, over.worker, over.evidence) == ("succeeded", False, "w1", '{"id":1}')
    assert await store.verification(run.id) is None
    assert await actions(store) == ["run.verify"]


async def test_runs_that_a_person_confirms_are_listed(store: Store):
    runs = [await given_reported(store, check='{"kind":"manual"}', name=name) for name in "abc"]
    await given_reported(store)
    await given_reported(store, check='{"kind":"function","name":"\\u0000"}', name="unusual")
    await given_held(store, name="other")
    newest = [run.id for run in runs[::-1]]

    async def listed(**only: object) -> list[str]:
        return [run.id for run in await store.runs(RunFilter("default", to_confirm=True, **only))]  # type: ignore[arg-type]

    assert await listed() == newest
    assert await listed(limit=2) == newest[:2]
    assert await listed(before=newest[0], states=("running",), agent="default") == newest[1:]
    assert await listed(job_id=runs[0].job_id) == newest[2:]
    assert await listed(dead=True) == await listed(states=("failed",)) == await listed(agent="nobody") == []
    assert await store.runs(RunFilter("other", to_confirm=True)) == []
    assert await store.finish_verification(ended(runs[0]), alone)
    assert await store.cancel_run(runs[1].id, NOW, "stopped", running=True)
    assert await listed() == newest[:1]


async def test_runs_to_confirm_that_older_replicas_added_are_listed_in_their_workspace(database: Database):
    store = await database.connect()
    older, newer = [await given_reported(store, check='{"kind":"manual"}', name=name) for name in "ab"]
    await database.execute(f"UPDATE verifications SET workspace = NULL WHERE run_id = '{older.id}'")
    found = await store.runs(RunFilter("default", to_confirm=True))
    assert [run.id for run in found] == [newer.id, older.id]
    assert await store.runs(RunFilter("other", to_confirm=True)) == []


async def test_nothing_else_ends_or_renews_a_run_that_is_verified(store: Store):
    job = await new_job(store)
    run = pulled(job)
    await store.add_runs([run])
    await claim(store)
    view = await look(store, run)
    assert await store.complete_run(report(view), alone)
    later = NOW + 10 * 24 * 3600 * SECOND
    assert await store.renew(NOW, "default", [Renewal(run.id, 1)]) == []
    for state in ("succeeded", "failed"):
        assert not await store.complete_run(ended(view, state), alone), "a second report"
    assert await store.finish(ME, [ended(view)], alone) == set()
    assert await store.rescue(later, later, 10, refuse, alone) == []
    assert await store.release(ME, later) == 0
    assert (await look(store, run)).verifying


async def test_another_worker_takes_it_when_the_lease_has_ended(store: Store):
    run = await given_reported(store)
    (first,) = await take(store, worker="w2")
    assert await take(store, NOW + LEASE - 1, "w3") == []
    assert await store.next_verification_ms(NOW) == NOW + LEASE
    (second,) = await take(store, NOW + LEASE, "w3")
    assert (first.tries, second.tries, second.run.id) == (1, 2, run.id)
    failed = ended(run, "failed", reason="unverified")
    assert not await store.finish_verification(failed, alone, ("w2", 1)), "the first one is too late"
    assert not await store.postpone_verification(run.id, ("w2", 1), NOW, counts=True)
    assert (await look(store, run)).verifying
    assert await store.finish_verification(ended(run), alone, ("w3", 2))
    assert not await store.finish_verification(failed, alone, ("w3", 2))
    assert (await look(store, run)).state == "succeeded"


async def test_the_fence_of_one_worker_counts_its_tries(store: Store):
    run = await given_reported(store)
    await take(store)
    await take(store, NOW + LEASE)
    assert not await store.finish_verification(ended(run), alone, ("w2", 1))
    assert await store.finish_verification(ended(run), alone, ("w2", 2))


async def test_a_postponed_one_is_due_again(store: Store):
    run = await given_reported(store)
    await take(store)
    assert await store.postpone_verification(run.id, ("w2", 1), NOW + SECOND, counts=True)
    assert await take(store) == []
    (again,) = await take(store, NOW + SECOND)
    assert await store.postpone_verification(run.id, ("w2", again.tries), NOW, counts=False)
    (again,) = await take(store, NOW)
    assert again.tries == 2


async def test_it_is_taken_by_a_process_that_can_do_it(store: Store):
    run = await given_reported(store, requires="function:check")
    assert await take(store) == []
    assert await take(store, since=NOW - 1) == []
    (found,) = await take(store, capabilities={"": 0, "function:check": 0})
    assert (found.run.id, found.requires, found.reported_ms) == (run.id, "function:check", NOW)
    (overdue,) = await take(store, NOW + LEASE, since=NOW)
    assert overdue.run.id == run.id, "no process can do it for too long"


async def test_a_manual_one_is_due_at_its_deadline(store: Store):
    run = await given_reported(store, delay_ms=LEASE)
    assert await take(store, NOW + LEASE - 1) == []
    (due,) = await take(store, NOW + LEASE)
    assert due.run.id == run.id
    assert await store.finish_verification(ended(run), alone), "a person decides meanwhile"


async def test_a_cancelled_run_is_not_verified(store: Store):
    run = await given_reported(store)
    cancelled = await store.cancel_run(run.id, NOW, "stopped", running=True)
    assert cancelled is not None
    assert cancelled.state == "cancelled"
    assert await store.verification(run.id) is None
    assert await take(store) == []
    assert not await store.finish_verification(ended(run), alone)
    over = await look(store, run)
    assert (over.state, over.worker) == ("cancelled", None)


async def test_a_run_of_a_deleted_job_is_verified_by_what_the_job_was(store: Store):
    job, run = await given_held(store)
    assert await store.finish("w1", [report(run)], alone)
    await store.delete_job(job.id, NOW, "job_deleted")
    assert (await look(store, run)).verifying
    (due,) = await take(store)
    assert due.run.work == job.work


async def test_the_verification_of_a_run_that_was_replaced_is_deleted_when_it_is_due(store: Store):
    job, run = await given_held(store)
    assert await store.finish("w1", [report(run)], alone)
    newer = asked(job)
    await store.add_manual_run(newer, lambda new, live: ManualRunPlan(new, ((run.id, "replaced"),)))
    assert await store.verification(run.id) is not None
    assert await take(store) == []
    assert await store.verification(run.id) is None
    over = await look(store, run)
    assert (over.state, over.verifying, over.shown_worker) == ("cancelled", False, None)


async def test_a_retry_keeps_the_name_of_the_worker_that_reported_it(store: Store):
    run = await given_reported(store)
    await take(store)
    again = ended(run, "retrying", due_ms=NOW, reason="unverified", error="not verified")
    assert await store.finish_verification(again, alone, ("w2", 1))
    waiting = await look(store, run)
    assert (waiting.state, waiting.worker, waiting.reason) == ("retrying", None, "unverified")
    assert [each.worker for each in await store.attempts(run.id)] == ["w1"]
    assert waiting.evidence == '{"id":1}', "of the last attempt"


async def test_evidence_of_an_earlier_attempt_does_not_stay(store: Store):
    run = await given_reported(store)
    await take(store)
    assert await store.finish_verification(ended(run, evidence=""), alone, ("w2", 1))
    assert (await look(store, run)).evidence is None


@pytest.mark.parametrize("name", ["x", "01910000-0000-7000-8000-000000000009"])
async def test_an_unknown_run_has_no_verification(store: Store, name: str):
    assert await store.verification(name) is None
    unknown = Finished(name, None, 1, "succeeded", NOW, NOW)
    assert not await store.finish_verification(unknown, alone)


async def test_of_two_reports_at_once_one_counts(database: Database):
    first, second = await database.connect(), await database.connect()
    job = await new_job(first)
    runs = [pulled(job) for _ in range(10)]
    await first.add_runs(runs)
    await claim(first, limit=10)
    for run in runs:
        view = await look(first, run)
        reported, failed = await asyncio.gather(
            first.complete_run(report(view), alone), second.complete_run(ended(view, "failed"), alone)
        )
        state = (await look(second, run)).state
        assert (reported, failed, state) in [(True, False, "running"), (False, True, "failed")]


async def test_a_run_that_a_replica_of_schema_17_reported_is_verified(database: Database) -> None:
    store = await database.connect()
    run = await given_reported(store)
    assert run.verifying_attempt == run.attempt
    await database.execute("UPDATE runs SET verifying_attempt = NULL")
    assert (await look(store, run)).verifying
    (due,) = await take(store)
    assert await store.finish_verification(ended(run), alone, ("w2", due.tries))
    assert not (await look(store, run)).verifying


async def test_a_run_that_ends_while_its_verification_is_taken_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = [await given_reported(store, name=name) for name in ("first", "second")]
    read: Any = store._operations.executors.taken_runs

    async def without_first(db: Any, ids: list[str]) -> Any:
        return [each for each in await read(db, ids) if each[0].id != run.id]

    with monkeypatch.context() as patch:
        patch.setattr(store._operations.executors, "taken_runs", without_first)
        assert [each.run.id for each in await take(store)] == [other.id]
    assert {each.run.id for each in await take(store, NOW + LEASE)} == {run.id, other.id}
