"""Prechecks: whether there is anything to do, asked before a target is launched.

    {"kind": "function", "name": "anything-new"}
    {"kind": "webhook", "url": "https://example.com/anything-new", "timeoutMs": 5000}

No tokens are spent on a run that has nothing to do: it ends as skipped, which is no failure. Where nobody can
be asked the attempt has failed, and is tried again as any other.

Each attempt asks, until the target has been launched once: what was begun is not called off because it is
half done. A run that somebody forces by hand asks nobody.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from wakeful.document.guards import DEFAULT_PRECHECK_MS
from wakeful.job import Json
from wakeful.launch.port import Launch, Launcher, kept
from wakeful.outcome import Failed, Outcome, Skipped

#: Why an attempt failed whose precheck could not be asked, or did not answer what can be understood.
PRECHECK_FAILED: Final = "precheck_failed"
#: On a run that somebody asked for by hand, if it was due: it asks as a tick would.
DUE: Final = "due"
_BY_HAND: Final = ("user", "agent")

#: None: there is something to do.
Answer = Skipped | Failed | None


@dataclass(frozen=True, slots=True)
class Skip:
    """What a function that is asked returns to say: nothing to do, and why.

    >>> def anything_new():
    ...     return Skip("the inbox is empty")
    """

    reason: str = ""


@runtime_checkable
class Asker(Protocol):
    """A launcher that can also ask."""

    async def ask(self, run: Launch, precheck: Mapping[str, Json]) -> Answer:
        """Whether there is anything to do for this run. Lets CancelledError pass."""
        ...


class Prechecked:
    """A launcher that asks first."""

    def __init__(
        self,
        launcher: Launcher,
        asker: Launcher | None,
        precheck: Mapping[str, Json],
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self.kind = launcher.kind
        self._may_start = may_start
        self._launcher = launcher
        self._asker = asker
        self._precheck = precheck
        timeout_ms = precheck.get("timeoutMs")
        self._timeout_ms = timeout_ms if isinstance(timeout_ms, int) else DEFAULT_PRECHECK_MS
        #: the launch has all the time that it would have without being asked for
        self.default_timeout_ms = launcher.default_timeout_ms + self._timeout_ms

    async def open(self) -> None:
        """Nothing to get ready: the launchers behind are opened for themselves."""

    async def close(self) -> None:
        """Nothing to let go."""

    def check(self, target: Mapping[str, Json]) -> None:
        """Its launcher's business."""
        self._launcher.check(target)

    async def start(self, run: Launch) -> Outcome:
        """Ask, and launch unless there is nothing to do."""
        asker: object = self._asker
        if not isinstance(asker, Asker):
            kind = self._precheck.get("kind")
            return Failed(
                f"precheck: no launcher for '{kind}' in this process", reason=PRECHECK_FAILED, counted=False
            )
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as limit:
                answer = await asker.ask(run, self._precheck)
        except TimeoutError:
            if not limit.expired():
                raise
            answer = Failed(f"no answer within {self._timeout_ms / 1000:g} s")
        if isinstance(answer, Failed):
            return answer._replace(
                error=kept(f"precheck: {answer.error}"),
                pause_job=False,
                reason=PRECHECK_FAILED,
                response_code=None,  # of the precheck, and not of the target
            )
        if answer is not None:
            return answer
        if not self._may_start():
            return Failed("the lease ended during its precheck", reason=PRECHECK_FAILED, counted=False)
        return await self._launcher.start(run)


def asks(trigger: str, reason: str | None) -> bool:
    """Whether an attempt asks first: `reason` is why the one before it did not work, or `DUE`.

    >>> asks("schedule", None), asks("schedule", "network"), asks("schedule", PRECHECK_FAILED)
    (True, False, True)
    >>> asks("user", None), asks("user", DUE)
    (False, True)
    """
    return reason in (DUE, PRECHECK_FAILED) or (reason is None and trigger not in _BY_HAND)


def answer_of(value: object) -> Answer:
    """What a function means by what it returned.

    >>> answer_of(True), answer_of(None), answer_of("the inbox is empty")
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
    return Failed(f"it returned {type(value).__name__}; return True or False, or in a text why not")


def answer_in(status: int, text: str) -> Answer:
    """What a webhook means by its answer, which is 2xx.

    >>> answer_in(200, ""), answer_in(204, ""), answer_in(200, '{"run": false, "reason": "all read"}')
    (None, Skipped(output=None, reason='precheck'), Skipped(output='all read', reason='precheck'))
    """
    if status == 204:
        return Skipped()
    if not text.strip():
        return None
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    run = said.get("run") if isinstance(said, dict) else None
    if not isinstance(run, bool):
        return Failed('it answered neither {"run": true} nor {"run": false}, nor nothing at all')
    reason = said.get("reason")
    return None if run else _skipped(reason if isinstance(reason, str) else "")


def _skipped(reason: str) -> Skipped:
    return Skipped(kept(reason) or None)
