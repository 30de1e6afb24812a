"""Prechecks: what each answer means, and that the target is launched only where there is something to do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.unit.launch.launches import launch
from wakeful import Permanent, Skip
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import InvalidArgument
from wakeful.job import Json, Work
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.port import Launch
from wakeful.launch.precheck import PrecheckedLauncher, needs_precheck, result_of_response, result_of_value
from wakeful.launch.webhook_response import read_usage
from wakeful.outcome import Failed, Outcome, Skipped, Succeeded, conclude
from wakeful.policy import Policy

TARGET: dict[str, Json] = {"kind": "function", "name": "work"}
PRECHECK: dict[str, Json] = {"kind": "function", "name": "anything-new"}


class Agent:
    """A launcher with a function that counts its launches, and one that is asked first."""

    def __init__(self, asked: object) -> None:
        self.launches = 0
        self.launcher = FunctionLauncher()
        self.launcher.register("work", self._work)
        self.launcher.register("anything-new", asked)  # type: ignore[arg-type]

    async def _work(self) -> str:
        self.launches += 1
        return "done"

    async def start(self, precheck: Mapping[str, Json] = PRECHECK, *, lease_valid: bool = True) -> Outcome:
        prechecked = PrecheckedLauncher(self.launcher, self.launcher, precheck, lambda: lease_valid)
        return await prechecked.start(launch(TARGET))


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


@pytest.mark.parametrize("value", [0, 1, [], {"run": False}])
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
        (200, "", None),
        (202, " \n", None),
        (204, "", Skipped()),
        (200, '{"run": true}', None),
        (200, '{"run": false}', Skipped()),
        (200, '{"run": false, "reason": "all read"}', Skipped("all read")),
        (200, '{"run": false, "reason": 5}', Skipped()),
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
    assert not needs_precheck("schedule", "network")
    assert not needs_precheck("user", None)
    assert not needs_precheck("agent", None)
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
    for pulled in (Work(precheck=PRECHECK), Work({"kind": "pull"}, precheck=PRECHECK)):
        with pytest.raises(InvalidArgument, match="precheck: runs of this job wait for an executor"):
            targets.check_precheck(pulled)


def test_usage_is_read_from_the_header_before_the_body_and_nonsense_is_none():
    assert read_usage('{"tokens": 5}', '{"usage": {"tokens": 6}}') == '{"tokens":5}'
    assert read_usage(None, '{"usage": {"tokens": 6}, "text": "hello"}') == '{"tokens":6}'
    for header, text in [(None, ""), (None, '{"usage": 5}'), (None, '["usage"]'), ("[]", ""), ("{}", "")]:
        assert read_usage(header, text) is None
    assert read_usage(None, '{"usage": {"tokens": NaN}}') is None


def test_a_function_may_return_the_reason_as_text():
    assert result_of_value("x" * 20_000) == Skipped("x" * 16_384)


async def test_a_target_is_not_launched_if_the_lease_expired_during_the_precheck():
    agent = Agent(lambda: True)

    outcome = await agent.start(lease_valid=False)

    assert outcome == Failed("the lease ended during its precheck", reason="precheck_failed", counted=False)
    assert agent.launches == 0
