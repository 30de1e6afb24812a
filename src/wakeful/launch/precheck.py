"""Prechecks: decide before each launch whether there is anything to do.

    {"kind": "function", "name": "anything-new"}
    {"kind": "webhook", "url": "https://example.com/anything-new", "timeoutMs": 5000}

A run that has nothing to do costs no tokens: it ends as skipped, which is no failure. If the precheck itself
fails, the attempt has failed and is retried like any other.

Each attempt is prechecked until the target has been launched once: a run that has started is not skipped
half-way. A forced manual run has no precheck.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from wakeful.document.guards import DEFAULT_PRECHECK_MS
from wakeful.job import Json
from wakeful.launch.port import Launch, Launcher, truncate
from wakeful.outcome import Failed, Outcome, Skipped

#: The reason of an attempt whose precheck failed or returned an invalid result.
PRECHECK_FAILED: Final = "precheck_failed"
#: The reason of a manual run of mode `due`: it is prechecked like a tick.
DUE: Final = "due"
_MANUAL: Final = ("user", "agent")

#: None: there is something to do.
PrecheckResult = Skipped | Failed | None


@dataclass(frozen=True, slots=True)
class Skip:
    """Returned by a precheck function if there is nothing to do, with the reason.

    >>> def anything_new():
    ...     return Skip("the inbox is empty")
    """

    reason: str = ""


@runtime_checkable
class PrecheckLauncher(Protocol):
    """A launcher that can run prechecks."""

    async def precheck(self, run: Launch, precheck: Mapping[str, Json]) -> PrecheckResult:
        """Return whether there is anything to do for this run. Let CancelledError pass."""
        ...


class PrecheckedLauncher:
    """A launcher that runs the precheck first."""

    def __init__(
        self,
        launcher: Launcher,
        checker: Launcher | None,
        precheck: Mapping[str, Json],
        lease_valid: Callable[[], bool],
    ) -> None:
        self.kind = launcher.kind
        self._lease_valid = lease_valid
        self._launcher = launcher
        self._checker = checker
        self._precheck = precheck
        timeout_ms = precheck.get("timeoutMs")
        self._timeout_ms = timeout_ms if isinstance(timeout_ms, int) else DEFAULT_PRECHECK_MS
        #: the precheck does not shorten the time of the launch
        self.default_timeout_ms = launcher.default_timeout_ms + self._timeout_ms

    async def open(self) -> None:
        """Do nothing: the launchers behind it are opened on their own."""

    async def close(self) -> None:
        """Do nothing."""

    def check(self, target: Mapping[str, Json]) -> None:
        """Check the target with its launcher."""
        self._launcher.check(target)

    async def start(self, run: Launch) -> Outcome:
        """Run the precheck, then launch unless there is nothing to do."""
        checker: object = self._checker
        if not isinstance(checker, PrecheckLauncher):
            kind = self._precheck.get("kind")
            return Failed(
                f"precheck: no launcher for '{kind}' in this process", reason=PRECHECK_FAILED, counted=False
            )
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as limit:
                result = await checker.precheck(run, self._precheck)
        except TimeoutError:
            if not limit.expired():
                raise
            result = Failed(f"no answer within {self._timeout_ms / 1000:g} s")
        if isinstance(result, Failed):
            return result._replace(
                error=truncate(f"precheck: {result.error}"),
                pause_job=False,
                reason=PRECHECK_FAILED,
                response_code=None,  # it is the one of the precheck, not of the target
            )
        if result is not None:
            return result
        if not self._lease_valid():
            return Failed("the lease ended during its precheck", reason=PRECHECK_FAILED, counted=False)
        return await self._launcher.start(run)


def needs_precheck(trigger: str, reason: str | None) -> bool:
    """Return whether an attempt is prechecked: `reason` is why the attempt before it failed, or `DUE`.

    >>> [needs_precheck("schedule", reason) for reason in (None, "network", PRECHECK_FAILED)]
    [True, False, True]
    >>> needs_precheck("user", None), needs_precheck("user", DUE)
    (False, True)
    """
    return reason in (DUE, PRECHECK_FAILED) or (reason is None and trigger not in _MANUAL)


def result_of_value(value: object) -> PrecheckResult:
    """Return the result of a precheck function by its return value.

    >>> result_of_value(True), result_of_value(None), result_of_value("the inbox is empty")
    (None, None, Skipped(output='the inbox is empty', reason='precheck'))
    """
    if value is None or value is True:
        return None
    if value is False:
        return Skipped()
    if isinstance(value, Skip):
        return _skipped(value.reason)
    if isinstance(value, str):
        return _skipped(value)
    return Failed(f"it returned {type(value).__name__}; return True, False, or a text with the reason")


def result_of_response(status: int, text: str) -> PrecheckResult:
    """Return the result of a precheck webhook by its 2xx response.

    >>> result_of_response(200, ""), result_of_response(204, "")
    (None, Skipped(output=None, reason='precheck'))
    >>> result_of_response(200, '{"run": false, "reason": "all read"}')
    Skipped(output='all read', reason='precheck')
    """
    if status == 204:
        return Skipped()
    if not text.strip():
        return None
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    run = body.get("run") if isinstance(body, dict) else None
    if not isinstance(run, bool):
        return Failed('the response is neither {"run": true} nor {"run": false} nor empty')
    reason = body.get("reason")
    return None if run else _skipped(reason if isinstance(reason, str) else "")


def _skipped(reason: str) -> Skipped:
    return Skipped(truncate(reason) or None)
