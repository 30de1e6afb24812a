"""Start and end of a job: start_at, end_at, max_runs, one-time jobs and disable_after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.waiting import (
    epoch_ms,
    eventually,
    gone,
    in_state,
    over,
    runs_of,
    soon,
    starting_soon,
    the_run_of,
)
from wakeful import FailedPrecondition, Function, Launch, Wakeful
from wakeful.model import Job

QUICKLY = {"base": "20ms", "max": "20ms"}


class Work:
    """A function that records its calls and fails if `fails` is set."""

    def __init__(self, app: Wakeful, *, fails: bool = False) -> None:
        self.fails = fails
        self.calls: list[Launch] = []
        app.function("work")(self)

    async def __call__(self, run: Launch) -> None:
        self.calls.append(run)
        if self.fails:
            raise RuntimeError("no")


async def disabled(app: Wakeful, name: str) -> Job:
    """Wait until the job is disabled and return it."""

    async def look() -> Job | None:
        job = await app.jobs.get(name)
        return None if job.enabled else job

    job = await eventually(look)
    assert job is not None
    return job


# --- ticks -------------------------------------------------------------------------------------------


async def test_a_job_is_disabled_after_max_runs(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        await app.jobs.create(
            "job",
            schedule="every 1s",
            target=Function("work"),
            max_runs=2,
            start_at=soon(),
            overlap_policy="allow",
        )
        job = await disabled(app, "job")
        runs = [await over(app, run.id) for run in await runs_of(app, "job")]
    assert (job.disabled_reason, job.next_at, job.run_count) == ("max_runs", None, 2)
    assert [run.state for run in runs] == ["succeeded", "succeeded"]
    assert len(work.calls) == 2


async def test_the_first_tick_is_at_start_at_and_the_last_at_end_at(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        start = await starting_soon(
            lambda start: app.jobs.upsert(
                "job",
                schedule="every 1s",
                target=Function("work"),
                start_at=start,
                end_at=start + 1000,
                overlap_policy="allow",
            )
        )
        job = await disabled(app, "job")
        # A tick of the job as it was first saved may have run, if it was saved again.
        await eventually(lambda: len([call for call in work.calls if call.scheduled_ms >= start]) == 2)
    assert (job.disabled_reason, job.next_at) == ("no_more_ticks", None)
    assert [call.scheduled_ms for call in work.calls][-2:] == [start, start + 1000]


async def test_start_at_may_be_a_datetime_and_no_tick_precedes_it(new_app: NewApp):
    async with new_app() as app:
        start = datetime.now(UTC) + timedelta(days=3)
        saved = await app.jobs.create("job", schedule="every 1s", target=Function("work"), start_at=start)
        assert epoch_ms(saved.next_at) == int(start.timestamp() * 1000)


async def test_no_tick_falls_on_an_excluded_day(new_app: NewApp):
    async with new_app() as app:
        today = datetime.now(UTC).date()
        tomorrow = today + timedelta(days=1)
        saved = await app.jobs.create(
            "job", schedule="* * * * *", target=Function("work"), exclude=[str(today), str(tomorrow)]
        )
        assert saved.next_at is not None
        first = datetime.fromtimestamp(epoch_ms(saved.next_at) / 1000, UTC)
        assert first == datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=UTC) + timedelta(days=1)


# --- one-time jobs ------------------------------------------------------------------------------------


async def test_a_one_time_job_is_deleted_when_its_run_succeeds_and_the_run_remains(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        saved = await app.jobs.create("job", schedule="in 100ms", target=Function("work"))
        await gone(app, "job")
        (run,) = await runs_of(app, "job")
        assert (run.state, run.job_id) == ("succeeded", saved.id)
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
    assert [call.scheduled_ms for call in work.calls] == [epoch_ms(saved.next_at)]


async def test_a_one_time_job_whose_run_fails_is_disabled_and_keeps_its_dead_letter(new_app: NewApp):
    app = new_app()
    work = Work(app, fails=True)
    async with app:
        await app.jobs.create(
            "job", schedule="in 100ms", target=Function("work"), max_attempts=2, backoff=QUICKLY
        )
        job = await disabled(app, "job")
        (letter,) = await app.runs.dead_letters()
        assert (job.disabled_reason, job.next_at, letter.job_id) == ("failed", None, job.id)
        with pytest.raises(FailedPrecondition, match="no tick left"):
            await app.jobs.resume("job")
        work.fails = False
        assert (await over(app, (await app.runs.replay(letter.id)).id)).state == "succeeded"
        await gone(app, "job")


async def test_a_one_time_job_is_kept_until_its_last_attempt(new_app: NewApp):
    app = new_app()
    Work(app, fails=True)
    async with app:
        await app.jobs.create("job", schedule="in 100ms", target=Function("work"), backoff={"base": "1h"})
        run = await the_run_of(app, "job")
        await in_state(app, run.id, "retrying")
        assert (await app.jobs.get("job")).enabled


async def test_a_one_time_job_with_delete_after_run_false_is_kept(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        await app.jobs.create("job", schedule="in 100ms", target=Function("work"), delete_after_run=False)
        job = await disabled(app, "job")
        await eventually(lambda: work.calls)
    assert (job.disabled_reason, job.next_at) == ("no_more_ticks", None)


async def test_a_recurring_job_can_be_deleted_after_its_first_success(new_app: NewApp):
    app = new_app()
    work = Work(app)
    async with app:
        await app.jobs.create(
            "job", schedule="every 1s", target=Function("work"), delete_after_run=True, start_at=soon()
        )
        await gone(app, "job")
        started = [run for run in await runs_of(app, "job") if run.state != "skipped"]
        assert [run.state for run in started] == ["succeeded"]
    assert len(work.calls) == 1


async def test_a_recurring_job_with_delete_after_run_is_disabled_if_its_run_fails(
    new_app: NewApp,
):
    app = new_app()
    Work(app, fails=True)
    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), delete_after_run=True, max_attempts=1
        )
        run = await over(app, (await app.jobs.run("job")).id)
        job = await disabled(app, "job")
    assert (run.dead, job.disabled_reason) == (True, "failed")


async def test_a_one_time_job_that_reschedules_itself_is_not_deleted(new_app: NewApp):
    app = new_app()
    calls: list[Launch] = []

    @app.function()
    async def remind(run: Launch) -> None:
        calls.append(run)
        if len(calls) < 3:
            # Long enough for this run to end first: otherwise the new tick would overlap it.
            await app.jobs.upsert("job", schedule="in 1s", target=Function("remind"))

    async with app:
        await app.jobs.create("job", schedule="in 50ms", target=Function("remind"))
        await eventually(lambda: len(calls) == 3)
        await gone(app, "job")
        assert [run.state for run in await runs_of(app, "job")] == ["succeeded"] * 3
    assert len({call.job_id for call in calls}) == 1


async def test_a_job_may_delete_itself_while_it_runs(new_app: NewApp):
    app = new_app()

    @app.function()
    async def resign() -> str:
        await app.jobs.delete("job")
        return "gone"

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("resign"))
        run = await over(app, (await app.jobs.run("job")).id)
        assert (run.state, run.output) == ("succeeded", "gone")
        assert await app.jobs.list() == []


# --- failures ----------------------------------------------------------------------------------------


async def test_consecutive_failures_disable_a_job_and_resuming_resets_the_count(new_app: NewApp):
    app = new_app()
    work = Work(app, fails=True)
    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), max_attempts=1, disable_after=2
        )
        for fails, failures, enabled in (
            (True, 1, True), (False, 0, True), (True, 1, True), (True, 2, False),
        ):  # fmt: skip
            work.fails = fails
            await over(app, (await app.jobs.run("job")).id)
            job = await app.jobs.get("job")
            assert (job.failures, job.enabled) == (failures, enabled)
        assert (job.disabled_reason, job.next_at) == ("failed", None)
        resumed = await app.jobs.resume("job")
    assert (resumed.enabled, resumed.failures, resumed.disabled_reason) == (True, 0, None)
    assert resumed.next_at is not None


async def test_failed_attempts_of_a_run_that_succeeds_do_not_count_as_failures(new_app: NewApp):
    app = new_app()

    @app.function()
    async def work(run: Launch) -> None:
        if run.attempt < 3:
            raise RuntimeError("not yet")

    async with app:
        await app.jobs.create(
            "job", schedule=SELDOM, target=Function("work"), disable_after=1, backoff=QUICKLY
        )
        assert (await over(app, (await app.jobs.run("job")).id)).state == "succeeded"
        job = await app.jobs.get("job")
    assert (job.enabled, job.failures) == (True, 0)
