"""Prechecks: decide before each launch whether there is anything to do.

    {"kind": "function", "name": "anything-new"}
    {"kind": "webhook", "url": "https://example.com/anything-new", "timeoutMs": 5000}

A run that has nothing to do costs no tokens: it ends as skipped, which is no failure. If the precheck itself
fails, the attempt has failed and is retried like any other. A precheck gets the state that the last one left,
and may return a context for the run and a new state (`wakeful.run.prechecks`).

Each attempt is prechecked until the answer to launch is recorded, which is before the launch: a run that has
started is not skipped half-way, and every later attempt carries the same context. A forced manual run has no
precheck.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from wakeful.document.guards import DEFAULT_PRECHECK_MS
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.launch.port import Launch, Launcher, truncate
from wakeful.launch.user_code import NoAnswer, isolate
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Skipped
from wakeful.run.prechecks import (
    MAX_BYTES,
    Checked,
    PrecheckAnswer,
    Watch,
    apply_answer,
    check_to_text,
    merge_contexts,
    read_answer,
)
from wakeful.store.port import Store
from wakeful.values.json_value import Json

#: The reason of an attempt whose precheck failed or returned an invalid result.
PRECHECK_FAILED: Final = "precheck_failed"
#: The reason of a manual run of mode `due`: it is prechecked like a tick.
DUE: Final = "due"
#: The trigger of runs that may be forced. An agent cannot force a run: the precheck may restrict that agent.
_FORCED: Final = "user"

#: The longest answer of a precheck that is read, in bytes. Escapes make a context and a state three times as
#: long as they are stored.
MAX_ANSWER: Final = 8 * MAX_BYTES


PrecheckResult = PrecheckAnswer | Failed
#: Stores the context of a run and what its precheck decided, if this attempt is still running here. Returns
#: whether it is. Raises WakefulError.
RecordCheck = Callable[[Launch, str | None, Checked], Awaitable[bool]]

_RUN: Final = PrecheckAnswer(True)
_SKIP: Final = PrecheckAnswer(False)
_RETURNED: Final = (
    'return True, False, a text with the reason, or a dict such as {"run": True, "context": …, "state": …}'
)

log = get_logger("wakeful.launch.precheck")


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


class PrecheckedLauncher(Launcher):
    """A launcher that runs the precheck first."""

    def __init__(
        self,
        launcher: Launcher,
        checker: Launcher | None,
        precheck: Mapping[str, Json],
        lease_valid: Callable[[], bool],
        record: RecordCheck,
    ) -> None:
        self.kind = launcher.kind
        self._lease_valid = lease_valid
        self._launcher = launcher
        self._checker = checker
        self._precheck = precheck
        self._record = record
        #: the precheck does not shorten the time of the launch
        self.default_timeout_ms = launcher.default_timeout_ms + precheck_timeout(precheck)

    async def start(self, run: Launch) -> Outcome:
        """Run the precheck, then launch unless there is nothing to do."""
        refused = await check_run(run, self._checker, self._precheck, self._record)
        if refused is not None:
            return refused
        if not self._lease_valid():
            return Failed("the lease ended during its precheck", reason=PRECHECK_FAILED, counted=False)
        return await self._launcher.start(run)


async def check_run(
    run: Launch, checker: Launcher | None, precheck: Mapping[str, Json], record: RecordCheck
) -> Skipped | Failed | None:
    """Run the precheck of a run and record the answer to launch. Returns the outcome of one that does not.

    The context is added to the run; what its outcome changes at the job is in `run.watch`.
    """
    result = await _ask(run, checker, precheck)
    if isinstance(result, Failed):
        return result._replace(
            error=truncate(f"precheck: {result.error}"),
            pause_job=False,
            reason=PRECHECK_FAILED,
            response_code=None,  # it is the one of the precheck, not of the target
        )
    watch = run.watch or Watch()
    checked = apply_answer(result, watch)
    if not result.run:
        run.watch = watch._replace(checked=checked._replace(once=False))
        return Skipped(truncate(result.reason) or None)
    context = merge_contexts(watch.context, result.context)
    try:
        if not await record(run, context, checked):
            error = "the run was ended, or taken by another worker, during its precheck"
            return Failed(error, reason=PRECHECK_FAILED, counted=False)
    except WakefulError as error:
        message = truncate(f"the answer of the precheck could not be stored: {error.message}")
        return Failed(message, reason=PRECHECK_FAILED, counted=False)
    run.watch = watch._replace(checked=checked)
    if result.context is not None and context is not None:
        run.add_context(context)
    return None


async def _ask(run: Launch, checker: object, precheck: Mapping[str, Json]) -> PrecheckResult:
    """Run the precheck, for as long as it may take."""
    if not isinstance(checker, PrecheckLauncher):
        return Failed(f"no launcher for '{precheck.get('kind')}' in this process", counted=False)
    timeout_ms = precheck_timeout(precheck)
    try:
        return await isolate(lambda: checker.precheck(run, precheck), timeout_ms / 1000)
    except NoAnswer:
        return Failed(f"no answer within {timeout_ms / 1000:g} s")
    except Exception as error:  # the reason of the failure lets the next attempt ask again
        log.exception("launcher.error", **run.log_fields, kind=precheck.get("kind"))
        return Failed(truncate(f"{type(error).__name__}: {error}"))


def precheck_timeout(precheck: Mapping[str, Json]) -> int:
    """Return how long a precheck may take, in milliseconds."""
    timeout_ms = precheck.get("timeoutMs")
    return timeout_ms if isinstance(timeout_ms, int) else DEFAULT_PRECHECK_MS


def needs_precheck(trigger: str, reason: str | None, checked: bool = False) -> bool:
    """Return whether an attempt is prechecked: unless the answer to launch is recorded, or the run is forced.

    `reason` of a manual run is `DUE` if it is prechecked, else why its last attempt failed.

    >>> needs_precheck("schedule", None), needs_precheck("schedule", "network", checked=True)
    (True, False)
    >>> [needs_precheck("user", reason) for reason in (None, DUE, PRECHECK_FAILED, "network")]
    [False, True, True, False]
    """
    return not checked and (trigger != _FORCED or reason in (DUE, PRECHECK_FAILED))


def result_of_value(value: object) -> PrecheckResult:
    """Return the answer of a precheck function by its return value.

    >>> result_of_value(True).run, result_of_value(None).run, result_of_value("the inbox is empty").reason
    (True, True, 'the inbox is empty')
    >>> result_of_value({"run": True, "context": {"unread": 3}}).context
    '{"unread":3}'
    """
    if value is None or value is True:
        return _RUN
    if value is False:
        return _SKIP
    if isinstance(value, Skip):
        return PrecheckAnswer(False, str(value.reason))
    if isinstance(value, str):
        return PrecheckAnswer(False, value)
    if not isinstance(value, Mapping):
        return Failed(f"it returned {type(value).__name__}; {_RETURNED}")
    try:
        return read_answer(value)
    except InvalidArgument as error:
        return Failed(truncate(f"it returned a dict whose {error.message}"))


def result_of_response(status: int, text: str) -> PrecheckResult:
    """Return the answer of a precheck webhook by its 2xx response.

    >>> result_of_response(200, "").run, result_of_response(204, "").run
    (True, False)
    >>> result_of_response(200, '{"run": false, "reason": "all read"}').reason
    'all read'
    """
    if status == 204:
        return _SKIP
    if not text.strip():
        return _RUN
    value = _object(text)
    if value is None or "run" not in value:
        why = f", or longer than {MAX_ANSWER} bytes" if _is_cut(text) else ""
        return Failed(f'the response is neither {{"run": true}} nor {{"run": false}} nor empty{why}')
    try:
        return read_answer(value)
    except InvalidArgument as error:
        return Failed(truncate(f"the response is not valid: {error.message}"))


def result_of_output(code: int, out: str, err: str) -> PrecheckResult:
    """Return the answer of a precheck command by its exit code, 0 or 1, and its output.

    A JSON object with `run` on stdout is the whole answer, as long as it does not contradict the exit code.

    >>> result_of_output(0, "", "").run, result_of_output(1, "all read", "").reason
    (True, 'all read')
    >>> result_of_output(0, '{"run": false, "reason": "all read"}', "").reason
    'all read'
    """
    value = _object(out)
    if value is None or "run" not in value:
        if _is_cut(out) and out.lstrip()[:1] == "{" and '"run"' in out:
            return Failed(f"its output is not valid JSON, or longer than {MAX_ANSWER} bytes")
        return PrecheckAnswer(False, out.strip() or err) if code else _RUN
    try:
        answer = read_answer(value)
    except InvalidArgument as error:
        return Failed(truncate(f"its output is not valid: {error.message}"))
    if code and answer.run:
        return Failed('it exits with 1, which means skip, and prints {"run": true}; exit with 0')
    return answer


def _is_cut(text: str) -> bool:
    """Return whether only the beginning of an answer was read."""
    return len(text.encode("utf-8", "replace")) >= MAX_ANSWER


def _object(text: str) -> dict[str, object] | None:
    """Return the JSON object of a text; None if it is something else."""
    if text.lstrip()[:1] != "{":
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def recorder(store: Store, worker: str) -> RecordCheck:
    """Return what records answers for the runs of this worker or executor."""

    async def record(run: Launch, context: str | None, checked: Checked) -> bool:
        return await store.record_check(run.id, run.attempt, worker, context, check_to_text(checked))

    return record
