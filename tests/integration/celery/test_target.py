"""Runs as tasks of a Celery app, with a real Redis and a real worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery, _state

from tests.integration.celery.conftest import celery_app, celery_check, lines
from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.celery_worker import CeleryWorker
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually, in_state, over
from wakeful import CeleryTask, InvalidArgument, Run, Wakeful
from wakeful.settings import Settings


async def _held(app: Wakeful, journal: Path) -> Run:
    """Return a run of the new job `long` whose task has started; it ends when `journal.go` exists."""
    await app.jobs.create("long", schedule=SELDOM, target=CeleryTask("tests.hold", args=[str(journal)]))
    run = await app.jobs.run("long")
    await eventually(lambda: lines(journal))
    return run


async def test_the_result_of_a_task_is_the_output_of_its_run(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    async with new_app(celery=celery_app(shared_redis)) as app:
        await app.jobs.create("sum", schedule=SELDOM, target=CeleryTask("tests.add", args=[1, 2]))
        run = await over(app, (await app.jobs.run("sum")).id)
        assert (run.state, run.output, run.attempt) == ("succeeded", '{"sum":3}', 1)
        run = await over(app, (await app.jobs.run("sum", payload={"carry": 10})).id)
        assert run.output == '{"sum":13}', "the fields of the payload are keyword arguments"


@on_one_store
async def test_a_task_knows_the_key_the_run_and_the_attempt(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    async with new_app(celery=celery_app(shared_redis)) as app:
        target = CeleryTask("tests.headers", options={"headers": {"tenant": "a"}})
        await app.jobs.create("who", schedule=SELDOM, target=target)
        run = await over(app, (await app.jobs.run("who")).id)
        assert run.output is not None
        assert f'"id":"{run.idempotency_key}-1"' in run.output
        for part in (
            f'"wakeful-key":"{run.idempotency_key}"',
            f'"wakeful-run-id":"{run.id}"',
            '"wakeful-attempt":1',
            '"tenant":"a"',
        ):
            assert part in run.output


@on_one_store
async def test_a_task_that_fails_is_retried_and_then_a_dead_letter(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    async with new_app(celery=celery_app(shared_redis)) as app:
        await app.jobs.create(
            "broken",
            schedule=SELDOM,
            target=CeleryTask("tests.fail", args=["no such user"]),
            max_attempts=2,
            backoff={"baseMs": 1, "maxMs": 1},
        )
        run = await over(app, (await app.jobs.run("broken")).id)
        assert (run.state, run.attempt, run.error) == ("failed", 2, "ValueError: no such user")
        assert run.output is not None
        assert "Traceback" in run.output


@on_one_store
async def test_a_stopped_run_terminates_its_task(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    app_of_celery = celery_app(shared_redis)
    async with new_app(celery=app_of_celery) as app:
        run = await _held(app, tmp_path / "journal")
        await app.runs.stop(run.id)
        assert (await over(app, run.id)).state == "cancelled"
        task_id = f"{run.idempotency_key}-1"
        await eventually(lambda: app_of_celery.AsyncResult(task_id).state == "REVOKED")


@on_one_store
async def test_a_run_that_times_out_terminates_its_task_and_is_retried(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    app_of_celery = celery_app(shared_redis)
    async with new_app(celery=app_of_celery) as app:
        journal = tmp_path / "journal"
        await app.jobs.create(
            "long",
            schedule=SELDOM,
            target=CeleryTask("tests.hold", args=[str(journal)]),
            timeout="1s",
            backoff={"baseMs": 1, "maxMs": 1},
        )
        run = await app.jobs.run("long")
        first = f"{run.idempotency_key}-1"
        await eventually(lambda: app_of_celery.AsyncResult(first).state == "REVOKED")
        await eventually(lambda: len(lines(journal)) >= 2)
        (tmp_path / "journal.go").touch()
        ended = await over(app, run.id)
        assert (ended.state, ended.output) == ("succeeded", "held")
        assert ended.attempt >= 2
        sent = [line.split()[0] for line in lines(journal)]
        assert len(set(sent)) == len(sent), "each attempt has a task of its own, which starts once"


@on_one_store
async def test_a_task_that_someone_else_revokes_fails_clearly(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    app_of_celery = celery_app(shared_redis)
    async with new_app(celery=app_of_celery) as app:
        run = await _held(app, tmp_path / "journal")
        app_of_celery.control.revoke(f"{run.idempotency_key}-1", terminate=True)
        ended = await over(app, run.id)
        assert (ended.state, ended.reason, ended.attempt) == ("failed", "revoked", 1)
        assert ended.error == "the task was revoked (terminated)"


@on_one_store
async def test_without_a_result_backend_a_run_succeeds_when_its_task_is_sent(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    async with new_app(celery=celery_app(shared_redis, results=False)) as app:
        journal = tmp_path / "journal"
        await app.jobs.create("sent", schedule=SELDOM, target=CeleryTask("tests.record", args=[str(journal)]))
        run = await over(app, (await app.jobs.run("sent")).id)
        assert run.state == "succeeded"
        assert run.output == (
            f"sent as task {run.idempotency_key}-1; the Celery app keeps no result of it, so its outcome is "
            "not known"
        )
        assert await eventually(lambda: lines(journal)) == ["done"]


@on_one_store
async def test_a_process_without_the_app_leaves_the_runs_to_one_that_has_it(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    async with new_app() as without:
        await without.jobs.create("sum", schedule=SELDOM, target=CeleryTask("tests.add", args=[1, 2]))
        run = await without.jobs.run("sum")
        assert (await without.runs.get(run.id)).state == "pending"
        async with new_app(celery=celery_app(shared_redis)):
            assert (await over(without, run.id)).output == '{"sum":3}'


@on_one_store
async def test_two_apps_on_one_database_take_only_the_runs_that_name_them(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    other = Celery("other", broker="memory://", set_as_current=False)
    async with new_app(celery=other) as first:
        own, theirs = CeleryTask("other.send", app="other"), CeleryTask("tests.add", args=[1, 2], app="tests")
        await first.jobs.create("own", schedule=SELDOM, target=own)
        await first.jobs.create("theirs", schedule=SELDOM, target=theirs)
        waiting = [(await first.jobs.run("theirs", overlap_policy="allow")).id for _ in range(5)]
        sent = await over(first, (await first.jobs.run("own")).id)
        assert sent.state == "succeeded"
        assert {(await first.runs.get(run)).state for run in waiting} == {"pending"}
        tested = await first.jobs.test_target(target=theirs)
        assert tested["message"] == (
            "no running replica has the Celery app 'tests'; start one with WAKEFUL_CELERY_APP"
        )
        async with new_app(celery=celery_app(shared_redis)):
            waiting.append((await first.jobs.run("theirs", overlap_policy="allow")).id)
            assert {(await over(first, run)).output for run in waiting} == {'{"sum":3}'}


async def test_the_result_of_a_task_is_found_after_its_sender_has_died(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    journal = tmp_path / "journal"
    async with new_app(celery=celery_app(shared_redis)) as first:
        run = await _held(first, journal)
        await in_state(first, run.id, "running")
    (tmp_path / "journal.go").touch()
    async with new_app(celery=celery_app(shared_redis)) as second:
        ended = await over(second, run.id)
        assert (ended.state, ended.output, ended.attempt) == ("succeeded", "held", 1)
    assert len(lines(journal)) == 1


@on_one_store
async def test_a_run_that_is_replaced_terminates_its_task(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker, tmp_path: Path
):
    app_of_celery = celery_app(shared_redis)
    async with new_app(celery=app_of_celery) as app:
        journal = tmp_path / "journal"
        first = await _held(app, journal)
        second = await app.jobs.run("long", overlap_policy="replace")
        assert (await over(app, first.id)).state == "cancelled"
        task_id = f"{first.idempotency_key}-1"
        await eventually(lambda: app_of_celery.AsyncResult(task_id).state == "REVOKED")
        (tmp_path / "journal.go").touch()
        assert (await over(app, second.id)).output == "held"
        assert [line.split()[0] for line in lines(journal)] == [task_id, f"{second.idempotency_key}-1"]


def _settings(redis: RedisServer, *tasks: str) -> Settings:
    """Return settings with the addresses of an app whose code is not installed here."""
    return Settings(celery_broker=redis.url, celery_results=redis.url, celery_tasks=tasks)


@on_one_store
async def test_only_tasks_that_the_operator_allows_are_saved_and_launched(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    add, fail = CeleryTask("tests.add", args=[1, 2]), CeleryTask("tests.fail", args=["x"])
    async with new_app() as without:  # it has no app, so it cannot check the task
        await without.jobs.create("refused", schedule=SELDOM, target=fail)
        async with new_app(settings=_settings(shared_redis, "tests.add")) as app:
            with pytest.raises(InvalidArgument, match=r"'tests.fail' is not an allowed task"):
                await app.jobs.create("fail", schedule=SELDOM, target=fail)
            await app.jobs.create("sum", schedule=SELDOM, target=add)
            assert (await over(app, (await app.jobs.run("sum")).id)).output == '{"sum":3}'
            run = await over(app, (await app.jobs.run("refused")).id)
            assert (run.state, run.reason, run.attempt) == ("failed", "not_allowed", 1)
            check = await celery_check(app)
            assert check["state"] == "error"
            assert check["message"].startswith("1 celery target cannot be launched: default/refused (")


@on_one_store
async def test_an_app_known_by_its_broker_does_not_have_the_tasks_of_other_apps_in_the_process(
    new_app: NewApp, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    # Celery registers a task in all apps of the process; the patch ends this after the test.
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    Celery("other", set_as_current=False).task(name="tests.fail")(lines)
    async with new_app(settings=_settings(shared_redis)) as app:
        for task in ("tests.fail", "tests.add"):
            with pytest.raises(InvalidArgument, match="its tasks are not known"):
                await app.jobs.create("refused", schedule=SELDOM, target=CeleryTask(task))


@on_one_store
async def test_the_doctor_and_the_test_of_a_target_name_the_broker_and_whether_a_worker_answers(
    new_app: NewApp, shared_redis: RedisServer, worker: CeleryWorker
):
    async with new_app(celery=celery_app(shared_redis)) as app:
        tested = await app.jobs.test_target(target=CeleryTask("tests.add"))
        assert tested["ok"]
        assert str(tested["message"]).endswith(" is connected; a worker answers; a test sends no task")
        check = await celery_check(app)
        assert (check["state"], check["message"].rpartition("; ")[2]) == ("ok", "no celery targets")
    async with new_app(celery=celery_app(shared_redis, results=False)) as app:
        check = await celery_check(app)
        assert check["state"] == "warning"
        assert "the app keeps no results" in check["message"]
