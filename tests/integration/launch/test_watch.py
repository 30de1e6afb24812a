"""Watches: prechecks with a context, a state and `once`, for every kind of target, on every store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp import web

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.receiver import Receiver
from tests.support.waiting import eventually, in_state, over, runs_of
from wakeful import (
    Agent,
    Command,
    EngineConfig,
    FailedPrecondition,
    Function,
    Launch,
    Run,
    Wakeful,
    Webhook,
    on,
)
from wakeful.job.job import Chain
from wakeful.service.auth.access import LOCAL
from wakeful.service.runs.manual_runs import triggered_run
from wakeful.store.row_mapping import job_from_row
from wakeful.values.json_value import Json

PRICE: Any = {"kind": "function", "name": "price"}


class Market:
    """A precheck function that reports a price if it changed, and the target that is woken."""

    def __init__(self, app: Wakeful) -> None:
        self.price = 100
        self.states: list[Json] = []
        #: replaces the answer
        self.answer: Callable[[Launch], object] | None = None
        self.woken: list[Launch] = []
        #: what the target raises or returns
        self.wake: Callable[[Launch], object] = lambda run: "woken"
        app.function("price")(self._check)
        app.function("wake")(self._wake)
        app.function("go")(lambda: None)

    async def _check(self, run: Launch) -> object:
        self.states.append(run.state)
        if self.answer is not None:
            answer = self.answer(run)
            return await answer if asyncio.iscoroutine(answer) else answer
        if run.state == self.price:
            return {"run": False, "reason": "no change"}
        return {"run": True, "context": {"was": run.state, "now": self.price}, "state": self.price}

    async def _wake(self, run: Launch) -> object:
        self.woken.append(run)
        answer = self.wake(run)
        return await answer if asyncio.iscoroutine(answer) else answer

    @property
    def contexts(self) -> list[Json]:
        """What the target was woken with."""
        return [run.context for run in self.woken]


async def given(app: Wakeful, **options: Any) -> None:
    """Create the watch, which fires after each run of the job `go`."""
    await app.jobs.create("go", schedule=SELDOM, target=Function("go"))
    options = {"target": Function("wake"), "precheck": PRICE, "backoff": {"baseMs": 1, "maxMs": 1}, **options}
    await app.jobs.create("watch", after="go", **options)


async def fired(app: Wakeful) -> Run:
    """Fire the watch and return its new run."""
    go = await app.jobs.run("go")

    async def look() -> Run | None:
        return next((run for run in await runs_of(app, "watch") if run.triggered_by == go.id), None)

    found = await eventually(look)
    assert found is not None
    return found


async def fire(app: Wakeful) -> Run:
    """Fire the watch and return its run when it is over."""
    return await over(app, (await fired(app)).id)


async def test_a_watch_wakes_its_target_only_when_something_changed(new_app: NewApp):
    app = new_app()
    market = Market(app)
    async with app:
        await given(app, payload={"to": "me"})
        states = [(await fire(app)).state for _ in range(2)]
        market.price = 90
        states += [(await fire(app)).state for _ in range(2)]
        last = (await runs_of(app, "watch"))[-2]
        assert (await app.jobs.get("watch")).precheck_state == 90
        assert (await app.jobs.get("go")).precheck_state is None
    assert states == ["succeeded", "skipped", "succeeded", "skipped"]
    assert market.states == [None, 100, 100, 90]
    assert market.contexts == [{"was": None, "now": 100}, {"was": 100, "now": 90}]
    assert [run.payload for run in market.woken] == [
        {"to": "me", "context": context} for context in market.contexts
    ]
    assert last.context == {"was": 100, "now": 90}


async def test_a_retry_carries_the_context_of_the_check_and_writes_the_state_once(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.wake = _fails_until(3)
    async with app:
        await given(app)
        run = await fire(app)
        assert (run.state, run.attempt) == ("succeeded", 3)
        assert market.contexts == [{"was": None, "now": 100}] * 3
        assert len(market.states) == 1, "a run that was launched is not checked again"
        assert (await fire(app)).state == "skipped"
    assert market.states == [None, 100]


async def test_a_failed_run_writes_no_state_so_that_the_change_is_found_again(new_app: NewApp):
    app = new_app()
    market = Market(app)

    def fail(run: Launch) -> object:
        raise RuntimeError("no")

    market.wake = fail
    async with app:
        await given(app, max_attempts=2)
        assert (await fire(app)).state == "failed"
        market.wake = lambda run: "woken"
        assert (await fire(app)).state == "succeeded"
    assert market.states == [None, None]
    assert market.contexts == [{"was": None, "now": 100}] * 3


async def test_a_skipped_run_writes_its_state(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.answer = lambda run: {"run": False, "state": len(market.states)}
    async with app:
        await given(app)
        for _ in range(3):
            assert (await fire(app)).state == "skipped"
    assert market.states == [None, 1, 2]


async def test_null_removes_the_state(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.answer = lambda run: {"run": True, "state": None if run.state else 5}
    async with app:
        await given(app)
        for _ in range(3):
            await fire(app)
    assert market.states == [None, 5, None]


async def test_once_disables_the_job_after_its_success_also_after_retries(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.wake = _fails_until(2)
    market.answer = lambda run: {"run": True, "once": True, "state": 7}
    async with app:
        await given(app)
        run = await fire(app)
        job = await app.jobs.get("watch")
        assert (run.state, run.attempt) == ("succeeded", 2)
        assert (job.enabled, job.disabled_reason) == (False, "once")
        await app.jobs.resume("watch")
        await fire(app)
    assert market.states == [None, 7]


async def test_once_does_nothing_if_the_run_fails_or_is_skipped(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.wake = _fails_until(9)
    market.answer = lambda run: {"run": len(market.states) == 1, "once": True}
    async with app:
        await given(app, max_attempts=1)
        assert [(await fire(app)).state for _ in range(2)] == ["failed", "skipped"]
        assert (await app.jobs.get("watch")).enabled


async def test_another_precheck_starts_without_a_state(new_app: NewApp):
    app = new_app()
    market = Market(app)
    seen: list[Json] = []

    @app.function("other")
    def other(run: Launch) -> bool:
        seen.append(run.state)
        return True

    async with app:
        await given(app)
        await fire(app)
        await app.jobs.update("watch", precheck={**PRICE, "timeoutMs": 5_000})
        await fire(app)
        await app.jobs.update("watch", precheck={"kind": "function", "name": "other"})
        await fire(app)
    assert (market.states, seen) == ([None, 100], [None])


async def test_a_run_that_was_lost_during_its_precheck_is_checked_again(new_app: NewApp):
    """And one that was lost after it is launched again with its context, without another check."""
    app = new_app()
    market = Market(app)
    stuck = asyncio.Event()

    async def hang(run: Launch) -> None:
        await stuck.wait()

    market.answer = hang
    async with app:
        await given(app)
        run = await fired(app)
        await eventually(lambda: market.states)
        await app.stop(grace=0)
    second = new_app()
    market = Market(second)
    market.wake = hang
    async with second:
        await eventually(lambda: market.woken)
        assert market.states == [None]
        await second.stop(grace=0)
    third = new_app()
    market = Market(third)
    async with third:
        assert (await over(third, run.id)).state == "succeeded"
        assert market.states == [], "its answer is recorded"
        assert market.contexts == [{"was": None, "now": 100}]
        assert (await fire(third)).state == "skipped"
    assert market.states == [100]


async def test_a_forced_run_has_no_precheck_and_a_due_one_has(new_app: NewApp):
    app = new_app()
    market = Market(app)
    async with app:
        await given(app)
        forced = await over(app, (await app.jobs.run("watch")).id)
        assert (forced.state, forced.context, market.states) == ("succeeded", None, [])
        row = await app.store.job("default", "default", "watch")
        assert row is not None
        now_ms = app.store.clock.now_ms()
        due = triggered_run(LOCAL, job_from_row(row), now_ms, due_only=True, payload='{"to":"me"}')
        await app.store.add_runs([due])
        assert (await over(app, due.id)).state == "succeeded"
    assert market.states == [None]
    assert market.woken[-1].payload == {"to": "me", "context": {"was": None, "now": 100}}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"run": True, "state": "x" * 20_000}, "state: it has 20002 bytes as JSON; at most 16384"),
        ({"run": True, "context": {"at": object()}}, "context: at: object is not JSON"),
        ({"context": {}}, "run: it is missing; write true or false"),
    ],
)
@on_one_store
async def test_an_invalid_answer_fails_the_attempt_and_says_why(
    new_app: NewApp, answer: Mapping[str, object], error: str
):
    app = new_app()
    market = Market(app)
    market.answer = lambda run: answer
    async with app:
        await given(app, max_attempts=1)
        run = await fire(app)
    assert (run.state, run.reason, market.woken) == ("failed", "precheck_failed", [])
    assert run.error is not None
    assert error in run.error


# --- every kind of target ------------------------------------------------------------------------------


async def test_a_webhook_gets_the_context_and_the_state_goes_to_the_precheck(
    new_app: NewApp, receiver: Receiver
):
    prices = iter([100, 100, 90])

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "x-wakeful-precheck" not in request.headers:
            return web.json_response({"ok": True})
        body, price = json.loads(receiver.bodies[-1]), next(prices)
        if body.get("state") == price:
            return web.json_response({"run": False})
        return web.json_response({"run": True, "context": [price], "state": price})

    receiver.answer = answer
    app = new_app()
    Market(app)
    precheck = {"kind": "webhook", "url": receiver.url}
    async with app:
        await given(app, target=Webhook(receiver.url), precheck=precheck, payload={"to": "me"})
        assert [(await fire(app)).state for _ in range(3)] == ["succeeded", "skipped", "succeeded"]
    assert receiver.bodies == [
        b'{"job":"watch","payload":{"to":"me"}}',
        b'{"job":"watch","payload":{"to":"me","context":[100]}}',
        b'{"job":"watch","payload":{"to":"me"},"state":100}',
        b'{"job":"watch","payload":{"to":"me"},"state":100}',
        b'{"job":"watch","payload":{"to":"me","context":[90]}}',
    ]


async def test_the_state_of_a_callback_run_is_written_when_it_is_completed(
    new_app: NewApp, receiver: Receiver
):
    app = new_app()
    market = Market(app)
    async with app:
        await given(app, target=Webhook(receiver.url, completion="callback"))
        run = await fired(app)
        await eventually(lambda: receiver.bodies)
        await in_state(app, run.id, "running")
        assert json.loads(receiver.bodies[0])["payload"] == {"context": {"was": None, "now": 100}}
        await app.runs.complete(run.id, "succeeded", output="done")
        assert (await fire(app)).state == "skipped"
    assert market.states == [None, 100]


async def test_a_failed_callback_run_writes_no_state(new_app: NewApp, receiver: Receiver):
    app = new_app()
    market = Market(app)
    async with app:
        await given(app, target=Webhook(receiver.url, completion="callback"), max_attempts=1)
        run = await fired(app)
        await eventually(lambda: receiver.bodies)
        await app.runs.complete(run.id, "failed", error="no")
        second = await fired(app)
        await eventually(lambda: len(receiver.bodies) == 2)
        await app.runs.complete(second.id, "succeeded")
    assert market.states == [None, None]


@on_one_store
async def test_a_command_reads_the_context_and_a_precheck_command_the_state(new_app: NewApp):
    app = new_app(commands=["sh", "cat"])
    Market(app)
    script = """
        if [ "$WAKEFUL_PRECHECK_STATE" = 2 ]; then echo '{"run": false, "reason": "two"}'; exit 1; fi
        echo "{\\"run\\": true, \\"context\\": {\\"n\\": $((WAKEFUL_PRECHECK_STATE + 1))},"
        echo "\\"state\\": $((WAKEFUL_PRECHECK_STATE + 1))}"
    """
    precheck = {"kind": "command", "argv": ["sh", "-c", script]}
    async with app:
        await given(app, target=Command("cat"), precheck=precheck, payload=[1])
        runs = [await fire(app) for _ in range(3)]
    assert [(run.state, run.output) for run in runs] == [
        ("succeeded", '{"payload":[1],"context":{"n":1}}'),
        ("succeeded", '{"payload":[1],"context":{"n":2}}'),
        ("skipped", "two"),
    ]


@on_one_store
async def test_an_echo_gets_the_context(new_app: NewApp):
    app = new_app()
    market = Market(app)
    async with app:
        await given(app, target={"kind": "echo"}, message="hello")
        runs = [await fire(app) for _ in range(2)]
    assert [(run.state, run.output) for run in runs] == [
        ("succeeded", '{"message":"hello","context":{"was":null,"now":100}}'),
        ("skipped", "no change"),
    ]
    assert market.states == [None, 100]


@on_one_store
async def test_a_workflow_gets_the_context_with_its_payload(new_app: NewApp, receiver: Receiver):
    app = new_app()
    market = Market(app)
    to: Json = {"kind": "webhook", "url": receiver.url}
    async with app:
        await app.services.admin.workflows.put(LOCAL, "default", "flow", 1, {"nodes": []})
        target = {"kind": "workflow", "workflowId": "flow", "version": 1, "to": to}
        await given(app, target=target, payload={"to": "me"})
        assert [(await fire(app)).state for _ in range(2)] == ["succeeded", "skipped"]
        await app.jobs.update("watch", target={**target, "to": {"kind": "pull"}})
        market.price = 90
        await fired(app)
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
        await app.runs.complete(claimed, "succeeded")
    sent = json.loads(receiver.bodies[0])["payload"]
    assert sent["meta"]["payload"] == {"to": "me", "context": {"was": None, "now": 100}}
    assert isinstance(claimed.payload, dict)
    assert claimed.payload["meta"]["payload"]["context"] == {"was": 100, "now": 90}  # type: ignore[index, call-overload]


async def test_an_agent_class_gets_the_context_in_its_signal(new_app: NewApp):
    app = new_app(agent="trader")
    market = Market(app)
    heard: list[Json] = []

    class Trader(Agent):
        name = "trader"

        @on("wakeful.job")
        async def job(self, signal: Any) -> None:
            heard.append(signal.data)
            if len(heard) == 1:
                raise RuntimeError("not yet")

    app.agent(Trader)
    async with app:
        await given(app, target={"kind": "agent"}, payload={"to": "me"})
        assert [(await fire(app)).state for _ in range(2)] == ["succeeded", "skipped"]
    assert heard == [{"to": "me", "context": {"was": None, "now": 100}}] * 2
    assert market.states == [None, 100]


def _fails_until(attempt: int) -> Callable[[Launch], object]:
    def wake(run: Launch) -> str:
        if run.attempt < attempt:
            raise RuntimeError("not yet")
        return "woken"

    return wake


# --- runs that executors claim ---------------------------------------------------------------------------


async def test_a_claim_runs_the_precheck_and_hands_on_the_context(new_app: NewApp):
    app = new_app()
    market = Market(app)
    async with app:
        await given(app, target={"kind": "pull"}, payload={"to": "me"})
        run = await fired(app)
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
        assert (claimed.id, claimed.context) == (run.id, {"was": None, "now": 100})
        assert claimed.payload == {"to": "me", "context": {"was": None, "now": 100}}
        await app.runs.complete(claimed, "failed", error="no")

        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
        assert (claimed.id, claimed.attempt, claimed.context) == (run.id, 2, {"was": None, "now": 100})
        assert market.states == [None], "its answer is recorded"
        await app.runs.complete(claimed, "succeeded", output="done")

        run = await fired(app)
        assert await app.runs.claim("laptop") == []
        assert (await over(app, run.id)).reason == "precheck"
    assert market.states == [None, 100]


async def test_a_claim_goes_on_to_others_after_a_skip(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.answer = lambda run: {"run": False, "state": 1}
    async with app:
        await given(app, target={"kind": "pull"})
        skipped = await fired(app)
        await app.jobs.create("other", schedule=SELDOM, target={"kind": "pull"})
        other = await app.jobs.run("other")
        (claimed,) = await app.runs.claim("laptop")
        assert claimed.id == other.id
        assert (await app.runs.get(skipped.id)).state == "skipped"
        assert (await app.runs.get(skipped.id)).worker == "laptop"
    assert market.states == [None]


async def test_once_disables_a_pull_job_when_its_run_is_completed(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.answer = lambda run: {"run": True, "once": True}
    async with app:
        await given(app, target={"kind": "pull"})
        await fired(app)
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
        assert (await app.jobs.get("watch")).enabled
        await app.runs.complete(claimed, "succeeded")
        job = await app.jobs.get("watch")
    assert (job.enabled, job.disabled_reason) == (False, "once")


async def test_a_failed_precheck_of_a_claim_is_retried(new_app: NewApp):
    app = new_app()
    market = Market(app)

    def fail(run: Launch) -> object:
        raise OSError("no connection")

    market.answer = fail
    async with app:
        await given(app, target={"kind": "pull"}, backoff={"baseMs": 500, "maxMs": 500})
        run = await fired(app)
        assert await app.runs.claim("laptop") == []
        failed = await app.runs.get(run.id)
        assert (failed.state, failed.reason, failed.failed_attempts) == ("retrying", "precheck_failed", 1)
        assert failed.error == "precheck: OSError: no connection"
        market.answer = None
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
    assert (claimed.id, claimed.attempt) == (run.id, 2)


async def test_a_lease_is_renewed_while_its_precheck_runs(new_app: NewApp):
    app = new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=100, lease_ms=1_000))
    market = Market(app)
    go_on = asyncio.Event()

    async def wait(run: Launch) -> bool:
        await go_on.wait()
        return True

    market.answer = wait
    app.services.runs.pull.claims.renew_s = 0.05
    async with app:
        await given(app, target={"kind": "pull"})
        run = await fired(app)
        claiming = asyncio.create_task(app.runs.claim("laptop", wait_ms=60_000))
        await eventually(lambda: market.states)
        expiry_ms = app.store.clock.now_ms() + 1_500
        await eventually(lambda: app.store.clock.now_ms() > expiry_ms)
        assert (await app.runs.get(run.id)).state == "running"
        go_on.set()
        (claimed,) = await claiming
        assert (claimed.id, claimed.attempt) == (run.id, 1)
        await app.runs.complete(claimed, "succeeded")


async def test_a_run_whose_executor_disconnects_during_the_precheck_is_due_again(new_app: NewApp):
    app = new_app()
    market = Market(app)

    async def hang(run: Launch) -> None:
        await asyncio.Event().wait()

    market.answer = hang
    async with app:
        await given(app, target={"kind": "pull"})
        run = await fired(app)
        claiming = asyncio.create_task(app.runs.claim("laptop", wait_ms=60_000))
        await eventually(lambda: market.states)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        left = await in_state(app, run.id, "retrying")
        assert left.failed_attempts == 0
        market.answer = None
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
    assert (claimed.id, claimed.context) == (run.id, {"was": None, "now": 100})


@on_one_store
async def test_a_forced_run_stays_forced_if_its_executor_disconnects(new_app: NewApp):
    app = new_app()
    market = Market(app)

    async def hang(run: Launch) -> None:
        await asyncio.Event().wait()

    market.answer = hang
    async with app:
        await given(app, target={"kind": "pull"}, overlap_policy="allow")
        forced = await app.jobs.run("watch")
        await fired(app)
        claiming = asyncio.create_task(app.runs.claim("laptop", limit=2))
        await eventually(lambda: market.states)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await in_state(app, forced.id, "retrying")
        market.answer = lambda run: {"run": False, "reason": "no change"}
        (claimed,) = await app.runs.claim("laptop", limit=2, wait_ms=60_000)
    assert claimed.id == forced.id


async def test_an_executor_that_lost_its_run_writes_no_state(new_app: NewApp):
    app = new_app(config=EngineConfig(tick_ms=100, heartbeat_ms=100, lease_ms=1_000))
    market = Market(app)
    async with app:
        await given(app, target={"kind": "pull"})
        run = await fired(app)
        (first,) = await app.runs.claim("laptop", wait_ms=60_000)
        await in_state(app, run.id, "retrying")
        with pytest.raises(FailedPrecondition):
            await app.runs.complete(first, "succeeded")
        (second,) = await app.runs.claim("other", wait_ms=60_000)
        assert (second.id, second.context) == (run.id, {"was": None, "now": 100})
        await app.runs.complete(second, "succeeded")
        await fired(app)
        assert await app.runs.claim("other") == []
    assert market.states == [None, 100]


# --- the output of the run before ------------------------------------------------------------------------


async def test_after_hands_the_output_of_the_run_before_on(new_app: NewApp):
    app = new_app()
    market = Market(app)
    app.function("extract")(lambda: "12 rows")
    async with app:
        await app.jobs.create("extract", schedule=SELDOM, target=Function("extract"))
        after: Mapping[str, str | bool] = {"job": "extract", "output": True}
        await app.jobs.create("load", after=after, target=Function("wake"), payload={"to": "me"})
        await app.jobs.create("plain", after="extract", target=Function("wake"))
        job = await app.jobs.get("load")
        assert (job.after, (await app.jobs.get("plain")).after) == (
            Chain("extract", output=True), Chain("extract"),
        )  # fmt: skip
        run = await app.jobs.run("extract")
        await eventually(lambda: len(market.woken) == 2)
        found = {woken.job: woken.payload for woken in market.woken}
        (load,) = await runs_of(app, "load")
    upstream = {"job": "extract", "run": run.id, "state": "succeeded", "output": "12 rows"}
    assert found == {"load": {"to": "me", "context": {"upstream": upstream}}, "plain": None}
    assert load.context == {"upstream": upstream}


async def test_after_a_failure_the_error_is_handed_on_also_to_an_executor(new_app: NewApp):
    app = new_app()
    market = Market(app)

    @app.function("extract")
    def extract() -> None:
        raise ValueError("no rows")

    async with app:
        await app.jobs.create("extract", schedule=SELDOM, target=Function("extract"), max_attempts=1)
        after: Mapping[str, str | bool] = {"job": "extract", "on": "failed", "output": True}
        await app.jobs.create("repair", after=after, target={"kind": "pull"}, precheck=PRICE)
        run = await app.jobs.run("extract")
        (claimed,) = await app.runs.claim("laptop", wait_ms=60_000)
        await app.runs.complete(claimed, "succeeded")
        await app.jobs.update("repair", after={"job": "extract", "on": "failed"})
        assert (await app.jobs.get("repair")).after == Chain("extract", "failed")
    upstream = {
        "job": "extract", "run": run.id, "state": "failed", "output": None, "error": "ValueError: no rows",
    }  # fmt: skip
    assert claimed.context == {"upstream": upstream, "was": None, "now": 100}
    assert market.states == [None]


async def test_a_replay_carries_the_output_of_the_run_before(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.wake = _fails_until(2)
    app.function("extract")(lambda: "12 rows")
    async with app:
        await app.jobs.create("extract", schedule=SELDOM, target=Function("extract"))
        after: Mapping[str, str | bool] = {"job": "extract", "output": True}
        await app.jobs.create("load", after=after, target=Function("wake"), max_attempts=1)
        await app.jobs.run("extract")
        await eventually(lambda: market.woken)
        (failed,) = await eventually(app.runs.dead_letters)
        replay = await app.runs.replay(failed.id)
        assert (await over(app, replay.id)).state == "succeeded"
    assert market.contexts[0] is not None
    assert market.contexts == [market.contexts[0]] * 2


async def test_a_replay_is_checked_again_and_carries_nothing_of_the_first_check(new_app: NewApp):
    app = new_app()
    market = Market(app)
    market.wake = _fails_until(2)
    market.answer = lambda run: {"run": True, "context": {"price": market.price, "first": len(market.states)}}
    app.function("extract")(lambda: "12 rows")
    async with app:
        await app.jobs.create("extract", schedule=SELDOM, target=Function("extract"))
        after: Mapping[str, str | bool] = {"job": "extract", "output": True}
        await app.jobs.create("load", after=after, target=Function("wake"), max_attempts=1, precheck=PRICE)
        await app.jobs.run("extract")
        (failed,) = await eventually(app.runs.dead_letters)
        market.answer = lambda run: {"run": True, "context": {"price": 90}}
        replay = await app.runs.replay(failed.id)
        assert (await over(app, replay.id)).state == "succeeded"
        assert len(market.states) == 2
    first, second = market.contexts
    assert isinstance(first, dict)
    assert second == {"upstream": first["upstream"], "price": 90}
