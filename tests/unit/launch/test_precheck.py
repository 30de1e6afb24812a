"""Prechecks: what each answer means, and that the target is launched only where there is something to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.simulation.virtual_loop import run_virtually
from tests.unit.launch.launches import launch
from wakeful import Permanent, Skip
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import InvalidArgument, Unavailable
from wakeful.job.job import Work
from wakeful.job.policy import Policy
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import Launch
from wakeful.launch.precheck import (
    MAX_ANSWER,
    PRECHECK_FAILED,
    PrecheckedLauncher,
    PrecheckResult,
    needs_precheck,
    result_of_output,
    result_of_response,
    result_of_value,
)
from wakeful.launch.webhook_response import read_usage
from wakeful.run.outcome import Failed, Outcome, Skipped, Succeeded, conclude
from wakeful.run.prechecks import Checked, PrecheckAnswer, Watch
from wakeful.values.json_value import Json

TARGET: dict[str, Json] = {"kind": "function", "name": "work"}
PRECHECK: dict[str, Json] = {"kind": "function", "name": "anything-new"}


class Agent:
    """A launcher with a function that counts its launches, and one that is asked first."""

    def __init__(self, asked: object, payload: str | None = None, watch: Watch | None = None) -> None:
        self.payload = payload
        self.watch = watch
        self.launches = 0
        self.records: list[tuple[str | None, Checked]] = []
        self.recorded: bool | Exception = True
        self.launcher = FunctionLauncher()
        self.launcher.register("work", self._work)
        self.launcher.register("anything-new", asked)  # type: ignore[arg-type]

    async def _work(self) -> str:
        self.launches += 1
        return "done"

    async def start(self, precheck: Mapping[str, Json] = PRECHECK, *, lease_valid: bool = True) -> Outcome:
        prechecked = PrecheckedLauncher(
            self.launcher, self.launcher, precheck, lambda: lease_valid, self._record
        )
        self.run = launch(TARGET, self.payload)
        self.run.watch = self.watch
        return await prechecked.start(self.run)

    async def _record(self, run: Launch, context: str | None, checked: Checked) -> bool:
        assert self.launches == 0, "the answer is recorded before the launch"
        if isinstance(self.recorded, Exception):
            raise self.recorded
        self.records.append((context, checked))
        return self.recorded


async def returning(value: object) -> tuple[Outcome, int]:
    """The outcome where the function that is asked returns this, and how often the target was launched."""
    agent = Agent(lambda: value)
    return await agent.start(), agent.launches


@pytest.mark.parametrize("value", [True, None])
async def test_the_target_is_launched_if_the_precheck_says_run(value):
    assert await returning(value) == (Succeeded("done"), 1)


@pytest.mark.parametrize(
    ("value", "why"),
    [(False, None), ("", None), (Skip(), None), ("all read", "all read"), (Skip("all read"), "all read")],
)
async def test_the_target_is_not_launched_if_the_precheck_says_skip(value, why):
    assert await returning(value) == (Skipped(why, "precheck"), 0)


@pytest.mark.parametrize("value", [0, 1, [], 5.5])
async def test_an_invalid_precheck_answer_is_a_failure(value):
    outcome, launches = await returning(value)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.permanent, launches) == ("precheck_failed", False, 0)
    assert outcome.error.startswith(f"precheck: it returned {type(value).__name__}; return True, False")


async def test_an_exception_in_a_precheck_is_permanent_only_if_it_is_permanent():
    def raising(error: Exception):
        async def asked(run: Launch) -> bool:
            raise error

        return asked

    failed = await Agent(raising(OSError("no mailbox"))).start()
    assert failed == Failed("precheck: OSError: no mailbox", reason="precheck_failed")
    failed = await Agent(raising(Permanent("no such mailbox"))).start()
    assert failed == Failed("precheck: no such mailbox", permanent=True, reason="precheck_failed")


async def test_a_precheck_timeout_is_a_failure():
    async def asked() -> bool:
        await asyncio.Event().wait()
        return True

    agent = Agent(asked)
    outcome = await agent.start({**PRECHECK, "timeoutMs": 10})
    assert outcome == Failed("precheck: no answer within 0.01 s", reason="precheck_failed")
    assert agent.launches == 0


async def test_an_unregistered_precheck_function_is_retried():
    outcome = await Agent(lambda: True).start({"kind": "function", "name": "elsewhere"})
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.permanent) == ("precheck_failed", False)


@pytest.mark.parametrize(
    ("status", "text", "answer"),
    [
        (200, "", PrecheckAnswer(True)),
        (202, " \n", PrecheckAnswer(True)),
        (204, "", PrecheckAnswer(False)),
        (200, '{"run": true}', PrecheckAnswer(True)),
        (200, '{"run": true, "context": [1], "once": true}', PrecheckAnswer(True, context="[1]", once=True)),
        (200, '{"run": false, "state": null}', PrecheckAnswer(False, sets_state=True)),
        (200, '{"run": false}', PrecheckAnswer(False)),
        (200, '{"run": false, "reason": "all read"}', PrecheckAnswer(False, "all read")),
        (200, '{"run": false, "reason": 5}', PrecheckAnswer(False)),
    ],
)
def test_webhook_responses_are_interpreted(status, text, answer):
    assert result_of_response(status, text) == answer


@pytest.mark.parametrize("text", ["ok", "{", "true", '{"run": "no"}', '{"ok": true}'])
def test_an_answer_that_says_neither_yes_nor_no_is_a_failure(text):
    assert isinstance(result_of_response(200, text), Failed)


def test_attempts_run_the_precheck_until_the_launch_and_manual_runs_only_with_due():
    assert needs_precheck("schedule", None)
    assert needs_precheck("chain", None)
    assert needs_precheck("schedule", "precheck_failed")
    assert needs_precheck("schedule", "lost"), "it may have been lost before its precheck ended"
    assert not needs_precheck("schedule", "network", checked=True)
    assert not needs_precheck("schedule", "lost", checked=True)
    assert not needs_precheck("user", "due", checked=True)
    assert not needs_precheck("user", None)
    assert needs_precheck("agent", "timeout"), "an agent cannot skip a precheck"
    assert needs_precheck("user", "due")
    assert needs_precheck("agent", "precheck_failed")


def test_a_skipped_run_is_no_failure_and_may_be_the_last_of_its_job():
    finished = conclude(
        "r", "j", 1, Policy(delete_after_run=True, disable_after=1), Skipped("all read"), 5, 9
    )
    assert (finished.state, finished.reason, finished.output) == ("skipped", "precheck", "all read")
    assert (finished.error, finished.disable_job, finished.disable_after) == (None, None, None)
    assert finished.delete_job


def test_a_precheck_without_a_launcher_is_refused():
    targets = LauncherRegistry([FunctionLauncher()])
    targets.check_precheck(Work(TARGET))
    targets.check_precheck(Work(TARGET, precheck={**PRECHECK, "timeoutMs": 5}))
    with pytest.raises(InvalidArgument, match="precheck: no launcher for 'webhook' here"):
        targets.check_precheck(Work(TARGET, precheck={"kind": "webhook", "url": "https://a.example"}))
    targets.check_precheck(Work({"kind": "pull"}, precheck=PRECHECK))


def test_usage_is_read_from_the_header_before_the_body_and_nonsense_is_none():
    assert read_usage('{"tokens": 5}', '{"usage": {"tokens": 6}}') == '{"tokens":5}'
    assert read_usage(None, '{"usage": {"tokens": 6}, "text": "hello"}') == '{"tokens":6}'
    for header, text in [(None, ""), (None, '{"usage": 5}'), (None, '["usage"]'), ("[]", ""), ("{}", "")]:
        assert read_usage(header, text) is None
    assert read_usage(None, '{"usage": {"tokens": NaN}}') is None


def test_a_function_may_return_the_reason_as_text():
    assert result_of_value("all read") == PrecheckAnswer(False, "all read")


async def test_a_long_reason_is_cut():
    assert await returning("x" * 20_000) == (Skipped("x" * 16_384), 0)


async def test_a_target_is_not_launched_if_the_lease_expired_during_the_precheck():
    agent = Agent(lambda: True)

    outcome = await agent.start(lease_valid=False)

    assert outcome == Failed("the lease ended during its precheck", reason="precheck_failed", counted=False)
    assert agent.launches == 0


async def test_the_context_is_recorded_and_added_to_what_the_run_carries():
    agent = Agent(
        lambda: {"run": True, "context": {"price": 90}, "state": 90}, '{"to":"me"}', Watch(revision=3)
    )

    assert await agent.start() == Succeeded("done")

    assert agent.records == [('{"price":90}', Checked(3, "90", True))]
    assert agent.run.payload == {"to": "me", "context": {"price": 90}}
    assert (agent.run.payload_text, agent.run.context) == (
        '{"to":"me","context":{"price":90}}', {"price": 90},
    )  # fmt: skip
    assert agent.run.watch is not None
    assert agent.run.watch.checked == Checked(3, "90", True)


async def test_a_precheck_gets_the_state_that_the_last_one_left():
    seen: list[Json] = []

    def asked(run: Launch) -> dict[str, Json]:
        seen.append(run.state)
        return {"run": False, "reason": "no change", "state": {"price": 91}, "once": True}

    agent = Agent(asked, watch=Watch(state='{"price":90}', revision=7))

    assert await agent.start() == Skipped("no change")

    assert seen == [{"price": 90}]
    assert agent.records == [], "a skipped run needs no record"
    assert agent.run.watch is not None
    assert agent.run.watch.checked == Checked(7, '{"price":91}', True), "once needs a success"


async def test_an_unchanged_state_is_not_written_again():
    agent = Agent(lambda: {"run": True, "state": 90}, watch=Watch(state="90", revision=7))
    await agent.start()
    assert agent.records == [(None, Checked(7))]


async def test_the_context_of_the_run_before_it_stays():
    watch = Watch(context='{"upstream":{"job":"a"}}')
    agent = Agent(lambda: {"run": True, "context": {"price": 90}}, watch=watch)
    await agent.start()
    assert agent.run.context == {"upstream": {"job": "a"}, "price": 90}
    assert agent.run.payload == {"context": {"upstream": {"job": "a"}, "price": 90}}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({}, "run: it is missing; write true or false"),
        ({"run": 1}, "run: 1 is not true or false"),
        ({"run": True, "once": "yes"}, "once: 'yes' is not true or false"),
        ({"run": True, "context": {1, 2}}, "context: set is not JSON"),
        ({"run": True, "state": float("nan")}, "state: nan is not a number in JSON"),
        ({"run": True, "state": "x" * 16_383}, "state: it has 16385 bytes as JSON; at most 16384"),
        ({"run": True, "context": "\ud800"}, "context: a text has half of a surrogate pair"),
    ],
)
async def test_an_invalid_answer_says_which_field_is_wrong(value, error):
    outcome, launches = await returning(value)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.permanent, launches) == ("precheck_failed", False, 0)
    assert outcome.error.startswith(f"precheck: it returned a dict whose {error}")


async def test_the_largest_state_is_accepted():
    largest = {"run": True, "state": "é" * 8_191, "context": "é" * 8_191}
    stored = '"' + "é" * 8_191 + '"'
    text = json.dumps(largest)
    assert len(text) < MAX_ANSWER
    for answer in (result_of_value(largest), result_of_response(200, text), result_of_output(0, text, "")):
        assert answer == PrecheckAnswer(True, "", stored, stored, True)


@pytest.mark.parametrize(
    ("code", "out", "answer"),
    [
        (0, "", PrecheckAnswer(True)),
        (0, "anything", PrecheckAnswer(True)),
        (0, '{"status": "ok"}', PrecheckAnswer(True)),
        (
            0,
            '{"run": true, "state": {"seen": 5}}\n',
            PrecheckAnswer(True, state='{"seen":5}', sets_state=True),
        ),
        (0, '{"run": false, "reason": "all read"}', PrecheckAnswer(False, "all read")),
        (1, "all read\n", PrecheckAnswer(False, "all read")),
        (1, '{"run": false, "state": 5}', PrecheckAnswer(False, state="5", sets_state=True)),
        (1, '{"unread": 0}', PrecheckAnswer(False, '{"unread": 0}')),
    ],
)
def test_the_output_of_a_command_is_interpreted(code, out, answer):
    assert result_of_output(code, out, "") == answer


@pytest.mark.parametrize(
    ("code", "out", "error"),
    [
        (0, '{"run": "no"}', "its output is not valid: run: 'no' is not true or false"),
        (1, '{"run": true}', 'it exits with 1, which means skip, and prints {"run": true}; exit with 0'),
        (
            0,
            '{"run": true, "context": "' + "x" * 140_000,
            "its output is not valid JSON, or longer than 131072",
        ),
    ],
)
def test_an_output_that_contradicts_itself_or_is_cut_is_a_failure(code, out, error):
    result = result_of_output(code, out, "")
    assert isinstance(result, Failed)
    assert result.error.startswith(error)


@pytest.mark.parametrize("recorded", [False, Unavailable("no database")])
async def test_a_run_whose_answer_is_not_recorded_is_not_launched(recorded):
    agent = Agent(lambda: {"run": True, "state": 1})
    agent.recorded = recorded

    outcome = await agent.start()

    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.counted, agent.launches) == ("precheck_failed", False, 0)


def test_only_a_success_and_a_precheck_that_skips_change_the_job():
    checked = Checked(3, "90", True, once=True)

    def finished(outcome: Outcome):
        done = conclude("r", "j", 1, Policy(max_attempts=1), outcome, 5, 9, checked=checked)
        return done.state, done.checked, done.disable_job

    assert finished(Succeeded()) == ("succeeded", checked, "once")
    assert finished(Skipped()) == ("skipped", checked, None)
    assert finished(Skipped(reason="budget")) == ("skipped", None, None)
    assert finished(Failed("no")) == ("failed", None, None)
    assert conclude("r", "j", 1, Policy(), Succeeded(), 5, 9, checked=Checked(3)).checked is None


class _Faulty(FunctionLauncher):
    """A launcher whose precheck does something else than it should."""

    def __init__(self, fault: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._fault = fault

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        found: PrecheckResult = await self._fault()
        return found


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "fault",
    [
        lambda: _raise(RuntimeError("a bug")),
        lambda: _raise(OSError("reset")),
        lambda: _raise(asyncio.CancelledError()),
        lambda: asyncio.sleep(31),
        lambda: asyncio.Event().wait(),
    ],
    ids=["error", "reset", "cancelled", "late", "hangs"],
)
def test_a_fault_of_a_precheck_is_its_failure_and_launches_nothing(fault: Callable[[], Awaitable[Any]]):
    async def story() -> tuple[Outcome, int]:
        agent = Agent(lambda: True)
        checked = PrecheckedLauncher(agent.launcher, _Faulty(fault), PRECHECK, lambda: True, agent._record)
        outcome = await checked.start(launch(TARGET))
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return outcome, agent.launches

    outcome, launches = run_virtually(story())
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.counted, launches) == (PRECHECK_FAILED, True, 0)
