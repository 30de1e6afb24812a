"""A replica takes only runs whose function it has; a run that no replica can take says so."""

from __future__ import annotations

import asyncio
import threading

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import JOBS, served
from tests.support.waiting import eventually, in_state, over, starting_soon, the_run_of
from wakeful import Function, Wakeful

ADVICE = "no running replica has the function 'work'; start a process that registers it"


def _register(app: Wakeful, name: str = "work") -> list[str]:
    calls: list[str] = []

    @app.function(name)
    async def work() -> str:
        calls.append(name)
        return "done"

    return calls


async def test_a_run_waits_for_a_replica_that_has_its_function(new_app: NewApp):
    without, having = new_app(), new_app()
    calls = _register(having)
    async with without:
        job = await without.jobs.create("job", schedule=SELDOM, target=Function("work"), max_attempts=1)
        assert job.warnings == (f"the runs of job 'job' wait: {ADVICE}",)
        run = await without.jobs.run("job")
        assert (run.state, (await without.runs.get(run.id)).waiting_for) == ("pending", ADVICE)
        async with having:
            run = await over(without, run.id)
    assert (run.state, run.output, run.attempt, len(calls)) == ("succeeded", "done", 1, 1)


@on_one_store
async def test_jobs_that_are_created_together_are_warned_of_one_by_one(new_app: NewApp):
    app = new_app()
    _register(app, "present")
    async with app:
        created = await app.jobs.create_many(
            {"name": f"{function}-{number}", "schedule": SELDOM, "target": Function(function)}
            for number in range(2)
            for function in ("present", "work")
        )
        assert [(job.name, job.warnings) for job in created] == [
            ("present-0", ()),
            ("work-0", (f"the runs of job 'work-0' wait: {ADVICE}",)),
            ("present-1", ()),
            ("work-1", (f"the runs of job 'work-1' wait: {ADVICE}",)),
        ]


async def test_a_planner_without_the_function_leaves_the_tick_to_another_replica(new_app: NewApp):
    without, having = new_app(), new_app()
    calls = _register(having)
    async with without:
        await starting_soon(
            lambda start: without.jobs.upsert(
                "job", schedule="every 1h", start_at=start, target=Function("work")
            )
        )
        run = await the_run_of(without, "job")
        await eventually(lambda: _waits(without, run.id, ADVICE))
        async with having:
            run = await over(without, run.id)
    assert (run.state, run.trigger, run.attempt, len(calls)) == ("succeeded", "schedule", 1, 1)


async def test_a_function_registered_after_the_start_takes_waiting_runs(new_app: NewApp):
    app = new_app()
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("work"))
        run = await app.jobs.run("job")
        assert (await app.runs.get(run.id)).waiting_for == ADVICE
        threading.Thread(target=_register, args=(app,)).start()
        assert (await over(app, run.id)).state == "succeeded"
        await eventually(lambda: _publishes(app, "function:work"))


async def _publishes(app: Wakeful, name: str) -> bool:
    return any(name in capabilities for capabilities in await app.store.capabilities(0))


@on_one_store
async def test_a_workflow_to_a_function_waits_for_a_replica_with_the_function(new_app: NewApp):
    app = new_app()
    target = {
        "kind": "workflow",
        "workflowId": "etl",
        "version": 1,
        "to": {"kind": "function", "name": "work"},
    }
    async with app, served(app) as ask:
        await ask("PUT", "/workflows/etl/1", {"nodes": []})
        saved = (await ask("PUT", f"{JOBS}/job", {"schedule": SELDOM, "target": target})).body
        assert saved["warnings"] == [f"the runs of job 'job' wait: {ADVICE}"]
        run_id = str((await ask("POST", f"{JOBS}/job/run", {})).body["id"])
        assert (await ask("GET", f"/runs/{run_id}")).body["waitingFor"] == ADVICE
        _register(app)
        assert (await over(app, run_id)).state == "succeeded"


@on_one_store
async def test_a_waiting_run_follows_an_edit_to_a_function_that_a_replica_has(new_app: NewApp):
    app = new_app()
    _register(app)
    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("missing"))
        run = await app.jobs.run("job")
        edited = await app.jobs.update("job", target=Function("work"))
        assert edited.warnings == ()
        assert (await over(app, run.id)).output == "done"


@on_one_store
async def test_an_edit_while_a_run_is_running_changes_where_its_next_attempt_starts(new_app: NewApp):
    app = new_app()
    _register(app)
    failed = asyncio.Event()

    @app.function()
    async def fails() -> None:
        await failed.wait()
        raise RuntimeError("no")

    async with app:
        await app.jobs.create("job", schedule=SELDOM, target=Function("fails"), backoff={"base": "10ms"})
        run = await app.jobs.run("job")
        await in_state(app, run.id, "running")
        await app.jobs.update("job", target=Function("missing"))
        failed.set()
        await in_state(app, run.id, "retrying")
        await eventually(lambda: _waits(app, run.id, "the function 'missing'"))
        await app.jobs.update("job", target=Function("work"))
        assert (await over(app, run.id)).output == "done"


async def _waits(app: Wakeful, run_id: str, text: str) -> bool:
    return text in str((await app.runs.get(run_id)).waiting_for)


@on_one_store
async def test_the_target_of_an_agent_that_no_replica_has_is_a_warning(new_app: NewApp):
    app = new_app()
    async with app, served(app) as ask:
        saved = (await ask("PUT", "/agents/scribe", {"target": {"kind": "function", "name": "work"}})).body
        assert saved["warnings"] == [f"runs with the target of agent 'scribe' wait: {ADVICE}"]
        run_id = str((await ask("POST", "/agents/scribe/runs", {})).body["id"])
        assert (await ask("GET", f"/runs/{run_id}")).body["waitingFor"] == ADVICE
        checks = {check["name"]: check for check in (await ask("GET", "/doctor")).body["checks"]}
        assert checks["functions"]["message"] == "no running replica has the function 'work' (1 run due)"
        _register(app)
        assert (await over(app, run_id)).state == "succeeded"


@on_one_store
async def test_functions_with_long_and_unprintable_names_run(new_app: NewApp):
    app = new_app()
    names = ["x" * 3_000, "tab\there", "größe", "a,b 'c' {d}"]
    calls: list[list[str]] = [_register(app, name) for name in names]
    async with app:
        for number, name in enumerate(names):
            job = await app.jobs.create(f"job-{number}", schedule=SELDOM, target=Function(name))
            assert job.warnings == ()
            assert (await over(app, (await app.jobs.run(f"job-{number}")).id)).state == "succeeded"
    assert list(map(len, calls)) == [1] * len(names)
