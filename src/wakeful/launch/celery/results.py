"""What the state of a task in a result backend means for its run. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from wakeful.launch.broker import Report

#: The task was revoked, or expired before a worker started it.
REVOKED: Final = "revoked"
#: The state of a task whose result cannot be read.
UNREADABLE: Final = "UNREADABLE"
_LOST: Final = frozenset({"WorkerLostError"})
#: How much of the end of a traceback is kept.
_TRACEBACK: Final = 2_000


class TaskState(NamedTuple):
    """A task as its result backend has it."""

    #: `status`, `result` and `traceback`, as the backend decodes them
    meta: Mapping[str, Any]
    #: equal if nothing has changed
    fingerprint: object


def report_of(run_id: str, attempt: int, meta: Mapping[str, Any]) -> Report:
    """Return what the state of a task reports about its run.

    >>> report_of("r1", 1, {"status": "SUCCESS", "result": {"sum": 3}}).output
    '{"sum":3}'
    >>> failed = {"status": "FAILURE", "result": {"exc_type": "ValueError", "exc_message": ["no such user"]}}
    >>> report_of("r1", 1, failed).error
    'ValueError: no such user'
    >>> report_of("r1", 1, {"status": "STARTED"}).status
    'running'
    """
    status, result = meta.get("status"), meta.get("result")
    if status == "SUCCESS":
        return Report(run_id, attempt, "succeeded", output=_output(result))
    if status == "FAILURE":
        kind, message = _exception(result)
        traceback = meta.get("traceback")
        return Report(
            run_id,
            attempt,
            "failed",
            output=traceback[-_TRACEBACK:] if isinstance(traceback, str) else None,
            error=": ".join(filter(None, (kind, message))) or "the task failed",
            permanent=kind == "Permanent",
            reason="lost" if kind in _LOST else None,
        )
    if status == UNREADABLE:  # it may have succeeded: it is not executed again
        error = f"the result of the task cannot be read: {result}; let the Celery app accept its content"
        return Report(run_id, attempt, "failed", error=error, permanent=True, reason="bad_response")
    if status == "REVOKED":
        _, message = _exception(result)
        why = f" ({message})" if message and message != REVOKED else ""
        return Report(
            run_id, attempt, "failed", error=f"the task was revoked{why}", permanent=True, reason=REVOKED
        )
    return Report(run_id, attempt, "running")


def _output(result: object) -> str | None:
    if result is None or isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a serializer other than JSON
        return repr(result)


def _exception(result: object) -> tuple[str, str]:
    """Return the type and the message of an exception, as text."""
    if isinstance(result, BaseException):
        return type(result).__name__, str(result)
    if not isinstance(result, Mapping):
        return "", "" if result is None else str(result)
    message = result.get("exc_message")
    parts = message if isinstance(message, list | tuple) else [message]
    return str(result.get("exc_type") or ""), " ".join(str(each) for each in parts if each not in (None, ""))
