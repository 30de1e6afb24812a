"""Brokers: a launch leaves a message with a broker, and the run awaits the report of a worker.

A launcher for a broker sends the run and returns `await_report(run)` once the broker has the message. The id
of the message is `message_id(run)`, the same for each launch of one attempt: if the process dies before the
acceptance is recorded, another one launches the same attempt again, and adopts the message by its id.

Workers report progress and outcome with the id and the attempt of the run. The launcher receives the reports
and applies each one with `apply_report` before it acknowledges it. A report of an earlier attempt, or about a
run that has ended, is refused and changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch
from wakeful.launch.webhook_response import MAX_RETRY_AFTER_MS, MAX_USAGE
from wakeful.run.outcome import AwaitingCallback
from wakeful.run.verification import write_evidence
from wakeful.values.ids import is_id
from wakeful.values.json_value import compact, json_value

ReportStatus = Literal["running", "waiting", "succeeded", "failed", "skipped"]

_REASON: Final = re.compile(r"[a-z_]{1,64}")
_STATUSES: Final[tuple[str, ...]] = get_args(ReportStatus)


class Report(NamedTuple):
    """What a worker reports about a run: that it is running, why it waits, or how its attempt ended."""

    run_id: str
    attempt: int
    status: ReportStatus
    output: str | None = None
    #: of a failure, and of a run that waits for another worker: why
    error: str | None = None
    #: compact JSON of what it used, and of the evidence that the work was done
    usage: str | None = None
    evidence: str | None = None
    #: why evidence that it reported could not be read
    evidence_error: str | None = None
    #: of a failure: a retry cannot succeed
    permanent: bool = False
    #: of a failure: how long to wait before the next attempt
    retry_after_ms: int | None = None
    #: of a failure, and of a run that was skipped: a machine-readable reason
    reason: str | None = None
    #: the workspace in which the worker may report; None: any
    workspace: str | None = None


class ReportResult(NamedTuple):
    """Whether a report was applied. A refused one stays refused: its worker must stop."""

    applied: bool
    #: why it was refused
    why: str = ""


#: Applies a report about a run of a target of that kind. Raises Unavailable if it cannot be applied now: then
#: it is not acknowledged, and applied later.
ApplyReport = Callable[[str, Report], Awaitable[ReportResult]]


#: Counts a launch for a target of that kind: whether the broker has the message.
RecordMessage = Callable[[str, bool], None]


def not_recorded(kind: str, sent: bool) -> None:
    """Count nothing: `record` of a launcher without metrics."""


async def no_services(kind: str, report: Report) -> ReportResult:
    """Apply no report: `apply_report` of a launcher without services."""
    raise Unavailable("no services of this process apply reports")


@runtime_checkable
class BrokerLauncher(Protocol):
    """A launcher for a broker."""

    kind: str
    #: set by the services of the process before `open`
    apply_report: ApplyReport

    def run_stopped(self, run_id: str) -> None:
        """Withdraw the message of a run that was stopped, if possible. Do not wait for the broker."""
        ...


def await_report(run: Launch) -> AwaitingCallback:
    """Return the outcome of a launch whose message the broker has."""
    return AwaitingCallback(run.timeout_ms or DEFAULT_TIMEOUT_MS)


def message_id(run: Launch) -> str:
    """Return the id of the message of this attempt. Brokers drop repeated ids, so each attempt has its own.

    >>> message_id(Launch("r1", "digest", None, "default", "default", None, 0, 0, 2, "user", "9f2c", {}))
    '9f2c-2'
    """
    return f"{run.idempotency_key}-{run.attempt}"


def read_report(data: bytes) -> Report:
    """Return the report in a JSON message. Raises InvalidArgument.

    >>> read_report(b'{"run":"0199c1de-7a4f-7000-8000-000000000001","attempt":1,"status":"running"}').status
    'running'
    >>> read_report(b'{"run":"0199c1de-7a4f-7000-8000-000000000001","status":"running"}')
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: attempt: write the number that the message of the run has
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as invalid:
        raise InvalidArgument(f"the report is not JSON: {invalid}") from invalid
    if not isinstance(value, dict):
        raise InvalidArgument("the report is not a JSON object")
    run_id, attempt, status = value.get("run"), value.get("attempt"), value.get("status")
    if not isinstance(run_id, str) or not is_id(run_id):
        raise InvalidArgument("run: write the id of the run that the message has")
    if not isinstance(attempt, int) or isinstance(attempt, bool) or not 1 <= attempt < 2**31:
        raise InvalidArgument("attempt: write the number that the message of the run has")
    if status not in _STATUSES:
        raise InvalidArgument(f"status: it is one of {', '.join(_STATUSES)}")
    error, permanent, retry_after_ms = value.get("error"), value.get("permanent"), value.get("retryAfterMs")
    if error is not None and not isinstance(error, str):
        raise InvalidArgument("error: write text")
    if permanent not in (None, True, False):
        raise InvalidArgument("permanent: write true or false")
    if retry_after_ms is not None and (
        not isinstance(retry_after_ms, int) or isinstance(retry_after_ms, bool) or retry_after_ms < 0
    ):
        raise InvalidArgument("retryAfterMs: write a whole number of milliseconds")
    reason = value.get("reason")
    if reason is not None and (not isinstance(reason, str) or not _REASON.fullmatch(reason)):
        raise InvalidArgument("reason: write lowercase letters and _, such as 'no_disk'")
    output, evidence, evidence_error = value.get("output"), None, None
    if value.get("evidence") is not None:
        try:
            evidence = write_evidence(value["evidence"])
        except InvalidArgument as refused:
            evidence_error = refused.message
    return Report(
        run_id,
        attempt,
        status,
        output if output is None or isinstance(output, str) else _text(output),
        error,
        _usage(value.get("usage")),
        evidence,
        evidence_error,
        bool(permanent),
        None if retry_after_ms is None else min(retry_after_ms, MAX_RETRY_AFTER_MS),
        reason,
    )


def _text(output: object) -> str:
    """Return output as compact JSON, as that of a function: with NaN, which JSON does not have."""
    return json.dumps(output, ensure_ascii=False, separators=(",", ":"))


def _usage(value: object) -> str | None:
    """Return usage as compact JSON. What cannot be stored is left out: the outcome counts nevertheless."""
    if not isinstance(value, dict):
        return None
    try:
        return compact(json_value(value, MAX_USAGE))
    except InvalidArgument:
        return None
