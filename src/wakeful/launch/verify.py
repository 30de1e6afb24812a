"""Verification: check after a launch whether the work was done.

    {"kind": "http", "url": "https://example.com/report.html", "contains": "Monday", "newerThanMs": 3600000}
    {"kind": "function", "name": "is-published"}

A check returns a `Verdict`, or `Failed` if it could not be made: then it is tried again. The verifier
(`wakeful.engine.verifier`) runs the checks of runs that were reported as done. Only the run of an agent class
is checked before its outcome is written, because the directives of its handler are part of that outcome.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from wakeful.document.guards import timeout_ms
from wakeful.job.job import Work
from wakeful.launch.port import Launch, Launcher, launch_ids, truncate
from wakeful.launch.user_code import NoAnswer, isolate
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.run.verification import MAX_TRIES, Verdict, evidence_object, judge_success, verified_outcome
from wakeful.values.json_value import Json, compact
from wakeful.values.stored_text import clean_text

log = get_logger("wakeful.launch.verify")


class VerifyLaunch(Launch):
    """A run that was reported as done: what a check gets. A verify function receives it as `run`."""

    __slots__ = ("evidence", "output")

    def __init__(self, run: Launch, output: str | None, evidence: str | None) -> None:
        for name in Launch.__slots__:
            setattr(self, name, getattr(run, name))
        #: what the target returned
        self.output = output
        #: what it reported as evidence; empty if there is none
        self.evidence = evidence_object(evidence)
        self.traceparent = run.traceparent or launch_ids(run.idempotency_key, run.attempt).traceparent()
        # A receiver that acts once per key does not take the check for a duplicate of the run.
        self.idempotency_key = f"{run.idempotency_key}-verify"

    @property
    def report(self) -> str:
        """The JSON that a webhook or a command gets: job, payload, output and evidence."""
        content = {"job": self.job, "payload": self.payload, "output": self.output, "evidence": self.evidence}
        return clean_text(compact(content))  # the output of an agent class is not stored yet


@runtime_checkable
class VerifyLauncher(Protocol):
    """A launcher that can verify runs."""

    async def verify(self, run: VerifyLaunch, verify: Mapping[str, Json]) -> Verdict | Failed:
        """Return whether the work was done. Let CancelledError pass."""
        ...


async def verify_run(
    checker: Launcher | None, run: VerifyLaunch, verify: Mapping[str, Json]
) -> Verdict | Failed:
    """Return the result of the check, at the latest after its timeout."""
    launcher: object = checker
    if not isinstance(launcher, VerifyLauncher):
        return Failed(f"no launcher for '{verify.get('kind')}' in this process")
    limit_ms = timeout_ms(verify)
    try:
        result = await isolate(lambda: launcher.verify(run, verify), limit_ms / 1000)
    except NoAnswer:
        return Failed(f"no answer within {limit_ms / 1000:g} s")
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        log.exception("launcher.error", **run.log_fields, kind=verify.get("kind"))
        return Failed(truncate(f"{type(error).__name__}: {error}"))
    if isinstance(result, Failed):
        return result._replace(error=truncate(result.error))
    return result._replace(reason=truncate(result.reason))


class VerifiedLauncher(Launcher):
    """A launcher whose successes are judged by the evidence and the `verify` of the job."""

    def __init__(self, launcher: Launcher, checker: Launcher | None, work: Work) -> None:
        self.kind = launcher.kind
        self._launcher = launcher
        self._checker = checker
        self._work = work
        #: only the run of an agent class is checked within its attempt
        self.default_timeout_ms = launcher.default_timeout_ms
        if work.instance is not None and work.verify is not None:
            self.default_timeout_ms += MAX_TRIES * timeout_ms(work.verify)

    async def start(self, run: Launch) -> Outcome:
        """Launch, and judge a success."""
        outcome = await self._launcher.start(run)
        if not isinstance(outcome, Succeeded):
            return outcome
        judged = judge_success(self._work, outcome)
        verify = self._work.verify
        if not isinstance(judged, Succeeded) or verify is None:
            return judged
        # An agent class: its handler runs again in any case if this process dies before the outcome.
        request = VerifyLaunch(run, judged.output, judged.evidence)
        for tries in range(1, MAX_TRIES + 1):
            result = verified_outcome(await verify_run(self._checker, request, verify), judged, tries)
            if result is not None:
                return result
        raise AssertionError("not reached")


def verdict_of_value(value: object) -> Verdict | Failed:
    """Return the verdict of a verify function by its return value.

    >>> verdict_of_value(True), verdict_of_value("the page is empty").reason
    (Verdict(verified=True, reason=''), 'the page is empty')
    """
    if isinstance(value, bool):
        return Verdict(value)
    if isinstance(value, str):
        return Verdict(False, value)
    if isinstance(value, Mapping):
        return _verdict(value, "it returned an object without a boolean `verified`")
    return Failed(
        f"it returned {type(value).__name__}; return True, False, or a text with the reason why not"
    )


def verdict_of_response(text: str) -> Verdict | Failed:
    """Return the verdict of a verify webhook by its 2xx response.

    >>> verdict_of_response('{"verified": false, "reason": "no such invoice"}')
    Verdict(verified=False, reason='no such invoice')
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    return _verdict(body, 'the response is neither {"verified": true} nor {"verified": false}')


def _verdict(value: object, otherwise: str) -> Verdict | Failed:
    verified = value.get("verified") if isinstance(value, Mapping) else None
    if not isinstance(verified, bool) or not isinstance(value, Mapping):
        return Failed(otherwise)
    reason = value.get("reason")
    return Verdict(verified, reason if isinstance(reason, str) else "")
