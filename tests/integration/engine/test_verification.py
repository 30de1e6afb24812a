"""`verify` and `evidence` through the engine: a run that is reported as done succeeds when it is verified."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.waiting import PATIENCE, eventually, over, runs_of, soon
from wakeful import (
    Agent,
    Context,
    EngineConfig,
    Function,
    Launch,
    Permanent,
    Run,
    SetState,
    Signal,
    Wakeful,
    on,
)
from wakeful.engine import verifier
from wakeful.run.outcome import Succeeded
from wakeful.run.verification import conclude_verified
from wakeful.service.auth.access import LOCAL
from wakeful.store.port import Store

CHECK = {"kind": "function", "name": "check"}
ONCE: Any = {"schedule": SELDOM, "max_attempts": 1}


class Work:
    """A target function that counts its launches, and a check with a configured answer."""

    def __init__(self, app: Wakeful, answer: object = True, output: object = "done") -> None:
        self.answer = answer
        self.output = output
        self.launches = 0
        self.checks: list[tuple[str, str | None, Mapping[str, Any]]] = []
        self.app = app
        app.function("work")(self._work)
        app.function("check")(self._check)

    async def _work(self) -> object:
        self.launches += 1
        return self.output

    async def _check(self, run: Launch, output: str | None, evidence: Mapping[str, Any]) -> object:
        self.checks.append((run.id, output, evidence))
        answer = self.answer
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run(self, name: str = "report", **fields: Any) -> Run:
        """Create a job with the function as its target, run it, and return the run when it is over."""
        fields = {**ONCE, "target": Function("work"), **fields}
        await self.app.jobs.create(name, **fields)
        return await over(self.app, (await self.app.jobs.run(name)).id)


async def verifying(app: Wakeful, run_id: str) -> Run:
    """Wait until a run is being verified."""

    async def look() -> Run | None:
        run = await app.runs.get(run_id)
        return run if run.verifying else None

    found = await eventually(look)
    assert found is not None
    return found


# --- checks -------------------------------------------------------------------------------------------------


async def test_a_run_succeeds_when_the_check_confirms_it(new_app: NewApp):
    app = new_app()
    work = Work(app, output={"external_id": "inv-17", "rows": 3})
    async with app:
        run = await work.run(verify=CHECK)
        job = await app.jobs.get("report")
    assert (run.state, run.reason, run.attempt, run.verifying) == ("succeeded", None, 1, False)
    assert json.loads(run.output or "") == {"external_id": "inv-17", "rows": 3}
    assert run.evidence == {"external_id": "inv-17"}
    assert work.launches == 1
    assert work.checks == [(run.id, run.output, {"external_id": "inv-17"})]
    assert job.verify == CHECK
    assert [attempt.worker for attempt in run.attempts] == [run.worker]
    assert run.worker not in (None, "verifying")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (False, "not verified"),
        ("the page is empty", "not verified: the page is empty"),
        ({"verified": False, "reason": "no invoice"}, "not verified: no invoice"),
        (Permanent("the account is closed"), "verify: the account is closed"),
    ],
)
@on_one_store
async def test_a_check_that_says_no_fails_the_attempt(new_app: NewApp, answer: object, error: str):
    app = new_app()
    work = Work(app, answer)
    async with app:
        run = await work.run(verify=CHECK)
        dead = await app.runs.dead_letters()
    assert (run.state, run.reason, run.error, run.output) == ("failed", "unverified", error, None)
    assert [each.id for each in dead] == [run.id]
    assert len(work.checks) == 1


async def test_an_attempt_that_is_not_verified_is_retried_with_the_backoff(new_app: NewApp):
    app = new_app()
    work = Work(app, [False, True])
    async with app:
        run = await work.run(verify=CHECK, max_attempts=3, backoff={"base": "1ms", "max": "1ms"})
    assert (run.state, run.attempt, run.failed_attempts, work.launches) == ("succeeded", 2, 1, 2)
    assert [attempt.error for attempt in run.attempts] == ["not verified", None]
    assert "verifying" not in {attempt.worker for attempt in run.attempts}


async def test_a_check_that_fails_itself_is_tried_again_without_a_launch(new_app: NewApp):
    app = new_app()
    work = Work(app, [OSError("no connection"), None, True])
    async with app:
        run = await work.run(verify=CHECK)
    assert (run.state, run.attempt, work.launches, len(work.checks)) == ("succeeded", 1, 1, 3)


@on_one_store
async def test_a_check_that_always_fails_itself_ends_unverified(new_app: NewApp):
    app = new_app()
    work = Work(app, OSError("no connection"))
    async with app:
        run = await work.run(verify=CHECK)
    assert (run.state, run.reason, run.error) == (
        "failed", "unverified", "verify: OSError: no connection",
    )  # fmt: skip
    assert (work.launches, len(work.checks)) == (1, 3)


@pytest.mark.parametrize(("times", "state"), [(1, "succeeded"), (99, "failed")])
@on_one_store
async def test_an_unexpected_error_after_a_check_does_not_repeat_it_for_ever(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch, times: int, state: str
):
    failures = 0

    def fail(*args: Any) -> Any:
        nonlocal failures
        if isinstance(args[4], Succeeded) and failures < times:
            failures += 1
            raise TypeError("a value of another type")
        return conclude_verified(*args)

    monkeypatch.setattr(verifier, "conclude_verified", fail)
    monkeypatch.setattr(verifier, "retry_ms", lambda tries, run_id: 1)
    app = new_app()
    work = Work(app)
    async with app:
        run = await work.run(verify=CHECK)
    assert (run.state, run.attempt, work.launches) == (state, 1, 1)
    assert len(work.checks) == min(times + 1, 3)
    assert run.error == (None if state == "succeeded" else "its outcome could not be stored (TypeError)")


@on_one_store
async def test_a_stored_check_that_cannot_be_read_fails_its_run_and_others_are_verified(
    new_app: NewApp, monkeypatch: pytest.MonkeyPatch
):
    take: Any = Store.take_verifications

    async def damage(self: Any, *args: Any) -> Any:
        *before, limit_ms, without = args
        taken = await take(self, *before, lambda verify: limit_ms("{"), without)
        return [due._replace(verify="{") if due.view.job_name == "bad" else due for due in taken]

    monkeypatch.setattr(Store, "take_verifications", damage)
    app = new_app()
    work = Work(app)
    async with app:
        bad = await work.run("bad", verify=CHECK)
        good = await work.run("good", verify=CHECK)
    assert (bad.state, bad.reason, good.state) == ("failed", "unverified", "succeeded")
    assert "cannot be read" in (bad.error or "")


@on_one_store
async def test_a_check_that_takes_too_long_is_stopped(new_app: NewApp):
    app = new_app()
    work = Work(app)

    @app.function("hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    async with app:
        run = await work.run(verify={"kind": "function", "name": "hang", "timeout": "1ms"})
    assert (run.reason, run.error) == ("unverified", "verify: no answer within 0.001 s")


async def test_checks_of_one_workspace_that_hang_hold_up_no_other(new_app: NewApp):
    app = new_app()
    Work(app)
    release = asyncio.Event()
    app.function("hang")(release.wait)
    async with app:
        await app.services.agents.workspaces.put(LOCAL, "calm", {})
        jobs: Any = {"schedule": SELDOM, "target": Function("work"), "overlap_policy": "allow"}
        await app.jobs.create(
            "hanging", **jobs, verify={"kind": "function", "name": "hang", "timeout": "10m"}
        )
        calm = app.jobs.of("default", "calm")
        await calm.create("checked", **jobs, verify=CHECK)
        hanging = [await app.jobs.run("hanging") for _ in range(40)]
        for run in hanging:
            await verifying(app, run.id)
        for _ in range(3):
            run = await calm.run("checked")
            async with asyncio.timeout(PATIENCE):  # far less than the checks that hang have
                assert (await app.runs.of("default", "calm").wait(run.id, poll=0.03)).state == "succeeded"
        release.set()
        for run in hanging:
            assert (await over(app, run.id)).state == "succeeded"


async def test_what_follows_from_a_success_follows_from_the_verification(new_app: NewApp):
    app = new_app()
    work = Work(app)
    go_on = asyncio.Event()

    @app.function("slow-check")
    async def slow_check() -> bool:
        await go_on.wait()
        return True

    @app.function("usage")
    async def usage() -> object:
        return Succeeded("done", '{"tokens":7}')

    async with app:
        await app.jobs.create("next", after="report", target=Function("work"))
        await app.jobs.create(
            "report", target=Function("usage"), verify={"kind": "function", "name": "slow-check"},
            delete_after_run=True, budget={"tokensPerDay": 1000}, deliver=True, channel="ops",
            schedule=SELDOM,
        )  # fmt: skip
        started = await app.jobs.run("report")
        run = await verifying(app, started.id)
        assert (run.state, run.output, run.worker, run.delivery) == (
            "running", "done", None, "not_requested",
        )  # fmt: skip
        assert "its verification by function" in (run.waiting_for or "")
        assert await runs_of(app, "next") == []
        assert (await app.jobs.get("report")).enabled
        spent = await app.services.admin.budgets.spent("default", "default", run.job_id or "")
        go_on.set()
        run = await over(app, run.id)
        await eventually(lambda: runs_of(app, "next"))
        assert "report" not in {job.name for job in await app.jobs.list()}
        after = await app.services.admin.budgets.spent("default", "default", run.job_id or "")
        await eventually(lambda: work.launches == 1)
    assert (run.state, run.usage, run.delivery == "not_requested") == ("succeeded", {"tokens": 7}, False)
    assert (spent["tokens"], after["tokens"]) == (7, 7)


# --- agent classes ------------------------------------------------------------------------------------------


class Reporter(Agent):
    """An agent class whose job is verified before its state changes."""

    name = "reporter"
    state = {"count": 0}

    @on("wakeful.job")
    async def report(self, signal: Signal, ctx: Context) -> list[SetState]:
        return [SetState(count=ctx.state["count"] + 1)]


@on_one_store
async def test_what_a_handler_returns_takes_effect_only_if_it_is_verified(new_app: NewApp):
    app = new_app()
    work = Work(app, [False, True])
    app.agent(Reporter)
    async with app:
        jobs = app.jobs.of("reporter")
        await jobs.create(
            "daily", schedule=SELDOM, target={"kind": "agent"}, verify=CHECK, message="report", max_attempts=1
        )
        states = []
        for _ in range(2):
            run = await over(app, (await jobs.run("daily")).id)
            states.append((run.state, run.reason, (await app.agents.state("reporter", "default"))["count"]))
    assert states == [("failed", "unverified", 0), ("succeeded", None, 1)]
    assert len(work.checks) == 2


async def test_a_check_that_a_shutdown_interrupts_is_made_by_the_next_process(new_app: NewApp):
    began = asyncio.Event()
    first, second = new_app(), new_app()
    work = Work(first)

    @first.function("slow-check")
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    @second.function("slow-check")
    async def confirm() -> bool:
        return True

    verify = {"kind": "function", "name": "slow-check", "timeout": "10m"}
    async with first:
        await first.jobs.create("report", target=Function("work"), verify=verify, **ONCE)
        run = await first.jobs.run("report")
        async with asyncio.timeout(60):
            await began.wait()
    async with second:
        ended = await over(second, run.id)
    assert (ended.state, ended.attempt, ended.output, work.launches) == ("succeeded", 1, "done", 1)


@on_one_store
async def test_the_state_of_a_precheck_is_kept_when_the_run_is_verified(new_app: NewApp):
    app = new_app()
    Work(app)
    seen: list[object] = []

    @app.function("watch")
    async def watch(run: Launch) -> dict[str, Any]:
        seen.append(run.state)
        return {"run": len(seen) == 1, "state": len(seen)}

    async with app:
        await app.jobs.create(
            "report", schedule="every 1s", start_at=soon(), target=Function("work"), verify="manual",
            precheck={"kind": "function", "name": "watch"}, overlap_policy="queue",
        )  # fmt: skip
        (run,) = await eventually(lambda: runs_of(app, "report"))
        await verifying(app, run.id)
        assert seen == [None]
        await app.runs.verify(run.id)
        await eventually(lambda: len(seen) >= 2)
    assert seen[1] == 1


async def test_no_run_starts_after_a_stop_although_a_check_is_under_way(new_app: NewApp):
    app, starts = new_app(config=EngineConfig(lanes={"cron": 2})), 0
    checking, go = asyncio.Event(), asyncio.Event()

    @app.function()
    async def wait() -> None:
        nonlocal starts
        starts += 1
        await go.wait()

    @app.function()
    async def done() -> None: ...

    @app.function()
    async def check() -> bool:
        checking.set()
        await asyncio.sleep(60)
        return True

    async with app:
        await app.jobs.create("checked", schedule=SELDOM, target=Function("done"), verify=CHECK)
        await app.jobs.create("waits", schedule=SELDOM, target=Function("wait"), overlap_policy="allow")
        await app.jobs.run("checked")
        async with asyncio.timeout(PATIENCE):
            await checking.wait()
        for _ in range(50):
            await app.jobs.run("waits")
        await eventually(lambda: starts == 2)
        go.set()
        await app.stop(0)
    assert starts <= 4, "others than those in flight have started"
