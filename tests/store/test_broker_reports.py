"""What the workers of brokers report: progress and outcomes, behind the fence of run and attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.support.factories import MINUTE, NOW, alone, ended, held, job, look, plan_of, tick, ticks_of
from wakeful.document import work_from_text
from wakeful.engine.metrics import Metrics
from wakeful.errors import Unavailable, Unstorable
from wakeful.job.start_rules import find_requirement
from wakeful.launch.broker import Report, ReportStatus, read_report
from wakeful.launch.port import Launch
from wakeful.launch.queue.messages import report_body
from wakeful.launch.queue.worker import build_report
from wakeful.run.consequences import consequences
from wakeful.run.outcome import Finished, Skipped, take_over
from wakeful.service.runs.broker_reports import BrokerReports
from wakeful.service.runs.telemetry import RunTelemetry
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, Move, RunView
from wakeful.values.ids import new_id

QUEUE = '{"target":{"kind":"queue","subject":"reports"}}'


async def _held(store: Store, work: str = QUEUE) -> RunView:
    """Return a run of a new job that is running under the worker w1."""
    row = job(name=new_id(NOW), work=work, policy="{}")
    await store.create_jobs([row])
    await store.plan(NOW, 10, lambda due: plan_of(due, held(tick(due), "w1")))
    (run,) = await ticks_of(store, row)
    return run


async def _awaiting(store: Store, work: str = QUEUE) -> RunView:
    """Return a run that its broker has accepted."""
    run = await _held(store, work)
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE)], alone)
    return await look(store, run)


def _reports(store: Store) -> BrokerReports:
    return BrokerReports(store, RunTelemetry(Metrics()), lambda kind, result: None)


def _report(run: RunView, status: ReportStatus, attempt: int = 1, **fields: Any) -> Report:
    return Report(run.id, attempt, status)._replace(**fields)


async def test_the_first_outcome_of_an_attempt_counts(store: Store) -> None:
    run, reports = await _awaiting(store), _reports(store)
    done = _report(run, "succeeded", output="sent", usage='{"tokens":7}')
    assert (await reports.apply("queue", done)).applied
    seen = await look(store, run)
    assert (seen.state, seen.output, seen.usage) == ("succeeded", "sent", '{"tokens":7}')
    again = await reports.apply("queue", _report(run, "failed", error="late"))
    assert (again.applied, again.why) == (False, "the run is succeeded")
    assert await look(store, run) == seen


async def test_an_outcome_counts_before_the_acceptance_is_recorded(store: Store) -> None:
    run, reports = await _held(store), _reports(store)
    assert (await reports.apply("queue", _report(run, "running"))).applied
    assert (await reports.apply("queue", _report(run, "succeeded"))).applied
    accepted = ended(run, "running", due_ms=NOW + MINUTE)
    assert await store.finish("w1", [accepted], alone) == set()
    assert (await look(store, run)).state == "succeeded"


@pytest.mark.parametrize("accepted", [True, False])
async def test_a_function_that_had_nothing_to_do_has_skipped_its_run(store: Store, accepted: bool) -> None:
    run = await (_awaiting if accepted else _held)(store)
    launch = Launch(run.id, "a", run.job_id, "default", "default", None, 0, 0, 1, "schedule", "k", {})
    report = read_report(report_body(build_report(launch, Skipped("no mail", "empty_inbox"))))
    assert (await _reports(store).apply("queue", report)).applied
    seen = await look(store, run)
    assert (seen.state, seen.output, seen.reason) == ("skipped", "no mail", "empty_inbox")


async def test_progress_extends_the_deadline_by_the_timeout(store: Store) -> None:
    run, reports = await _awaiting(store), _reports(store)
    assert (await reports.apply("queue", _report(run, "running"))).applied
    due_ms = (await look(store, run)).due_ms
    assert due_ms is not None
    assert due_ms >= store.clock.now_ms() + 9 * MINUTE


async def test_a_failure_is_retried_unless_it_is_permanent(store: Store) -> None:
    run, reports = await _awaiting(store), _reports(store)
    failed = _report(run, "failed", error="no disk", retry_after_ms=MINUTE)
    assert (await reports.apply("queue", failed)).applied
    seen = await look(store, run)
    assert (seen.state, seen.error, seen.failed_attempts) == ("retrying", "no disk", 1)
    assert seen.due_ms is not None
    await store.take(seen.due_ms, "w1", {"cron": 1})
    stale = await reports.apply("queue", failed)
    assert (stale.applied, stale.why) == (False, "the run is at attempt 2, not 1")
    lasting = _report(run, "failed", attempt=2, error="no such account", permanent=True)
    assert (await reports.apply("queue", lasting)).applied
    assert (await look(store, run)).state == "failed"


async def test_a_report_about_another_kind_of_target_or_workspace_is_refused(store: Store) -> None:
    run, reports = await _awaiting(store, CALLBACK), _reports(store)
    assert not (await reports.apply("queue", _report(run, "succeeded"))).applied
    elsewhere = _report(run, "succeeded", workspace="other")
    assert (await reports.apply("queue", elsewhere)).why == "there is no such run"
    missing = Report("0199c1de-7a4f-7000-8000-000000000001", 1, "running")
    assert not (await reports.apply("queue", missing)).applied
    assert (await look(store, run)).state == "running"


CALLBACK = '{"target":{"kind":"webhook","url":"https://a.example","completion":"callback"}}'
CELERY = '{"target":{"kind":"celery","task":"a"}}'
FUNCTION = '{"target":{"kind":"function","name":"a"}}'
LAUNCHED = [
    # how it was launched: the work of the job, the status of the response; who reports
    pytest.param(CALLBACK, 202, None, id="webhook"),
    pytest.param(QUEUE, None, "queue", id="queue"),
    pytest.param(CELERY, None, "celery", id="celery"),
]


@pytest.mark.parametrize("edited", [QUEUE, CALLBACK, CELERY, FUNCTION])
@pytest.mark.parametrize(("work", "code", "reporter"), LAUNCHED)
async def test_after_an_edit_the_target_that_has_the_attempt_reports(
    store: Store, work: str, code: int | None, reporter: str | None, edited: str
) -> None:
    row = job(name=new_id(NOW), work=work, policy="{}")
    await store.create_jobs([row])
    before, after = (find_requirement(work_from_text(each), "", "").name for each in (work, edited))
    await store.plan(NOW, 10, lambda due: plan_of(due, held(tick(due), "w1")._replace(requires=before)))
    (run,) = await ticks_of(store, row)
    move = None if before == after else Move(run.lane, None, after)
    await store.change_job(
        row.id, lambda old: JobChange(old._replace(work=edited, updated_ms=NOW + 1), move=move)
    )
    reports = _reports(store)
    for kind in ("queue", "celery"):
        with pytest.raises(Unavailable, match="not recorded yet"):
            await reports.apply(kind, _report(run, "succeeded"))
    await store.finish("w1", [ended(run, "running", due_ms=NOW + MINUTE, response_code=code)], alone)
    for kind in ("queue", "celery") if reporter is None else (reporter,):
        for status in ("running", "succeeded"):
            assert (await reports.apply(kind, _report(run, status))).applied == (kind == reporter)
    assert (await look(store, run)).state == ("running" if reporter is None else "succeeded")


async def test_errors_of_others_leave_no_report_without_a_result(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, metrics = [await _awaiting(store) for _ in range(4)], Metrics()
    reports = BrokerReports(store, RunTelemetry(metrics), lambda kind, result: None)

    def fail(*args: object) -> None:
        raise RuntimeError("an error in this program")

    monkeypatch.setattr(metrics, "record_finished", fail)
    async with asyncio.timeout(30):
        results = await asyncio.gather(*[reports.apply("queue", _report(run, "succeeded")) for run in runs])
        assert all(each.applied for each in results), "they are stored"
        other = await _awaiting(store)
        with monkeypatch.context() as patch:
            patch.setattr(reports, "_write", fail)
            with pytest.raises(RuntimeError):
                await reports.apply("queue", _report(other, "succeeded"))
        assert (await reports.apply("queue", _report(other, "succeeded"))).applied


async def test_a_report_during_a_takeover_is_applied_later(store: Store) -> None:
    run, reports = await _held(store), _reports(store)
    await store.rescue(
        NOW + MINUTE, NOW + MINUTE, 10,
        lambda lost: take_over(lost.id, lost.job_id, lost.attempt, "w1 died", NOW, NOW + MINUTE, 0),
        consequences,
    )  # fmt: skip
    with pytest.raises(Unavailable):
        await reports.apply("queue", _report(run, "succeeded"))
    await store.take(NOW + MINUTE, "w2", {"cron": 1})
    assert (await reports.apply("queue", _report(run, "succeeded"))).applied
    assert (await look(store, run)).state == "succeeded"


def _count_writes(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the size of each batch that is written."""
    sizes: list[int] = []
    write: Callable[..., Awaitable[set[str]]] = store.complete_runs

    async def counted(holder: str | None, finished: Sequence[Finished], *args: Any) -> set[str]:
        sizes.append(len(finished))
        return await write(holder, finished, *args)

    monkeypatch.setattr(store, "complete_runs", counted)
    return sizes


async def test_reports_that_arrive_together_are_written_in_one_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await _awaiting(store) for _ in range(5)]
    held_run, stopped, reports = await _held(store), await _awaiting(store), _reports(store)
    await store.cancel_run(stopped.id, NOW, "stopped", running=True)
    sizes = _count_writes(store, monkeypatch)
    results = await asyncio.gather(
        *[reports.apply("queue", _report(run, "succeeded", output=run.id)) for run in runs],
        reports.apply("queue", _report(runs[0], "failed", error="the same run again")),
        reports.apply("queue", _report(runs[1], "succeeded", attempt=2)),
        reports.apply("queue", _report(held_run, "succeeded")),
        reports.apply("queue", _report(stopped, "succeeded")),
    )
    assert sizes == [5]
    assert [each.applied for each in results] == [True] * 5 + [False, False, True, False]
    for run in runs:
        seen = await look(store, run)
        assert (seen.state, seen.output) == ("succeeded", run.id)


async def test_an_outcome_that_cannot_be_written_with_others_is_written_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, reports = [await _awaiting(store) for _ in range(3)], _reports(store)

    async def refuse(*args: object) -> set[str]:
        raise Unstorable("a value is out of range")

    monkeypatch.setattr(store, "complete_runs", refuse)
    results = await asyncio.gather(*[reports.apply("queue", _report(run, "succeeded")) for run in runs])
    assert all(each.applied for each in results)


async def test_reports_wait_while_the_database_is_not_available(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, reports = [await _awaiting(store) for _ in range(3)], _reports(store)

    async def fail(*args: object) -> set[str]:
        raise Unavailable("the database is down")

    with monkeypatch.context() as patch:
        patch.setattr(store, "complete_runs", fail)
        calls = [reports.apply("queue", _report(run, "succeeded")) for run in runs]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, Unavailable)
    assert [(await look(store, run)).state for run in runs] == ["running"] * 3
    results = await asyncio.gather(*[reports.apply("queue", _report(run, "succeeded")) for run in runs])
    assert all(each.applied for each in results)


async def test_a_cancelled_caller_does_not_affect_the_others(store: Store) -> None:
    runs, reports = [await _awaiting(store) for _ in range(2)], _reports(store)
    first, second = [asyncio.create_task(reports.apply("queue", _report(run, "succeeded"))) for run in runs]
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).applied
    assert first.cancelled() or (await first).applied
