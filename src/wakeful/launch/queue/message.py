"""The messages of runs, as they are in a stream: written by the launcher, read by workers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument
from wakeful.launch.broker import Report, message_id
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch
from wakeful.launch.queue.target import RESULT_SUBJECT, WORK_SUBJECT, QueueTarget
from wakeful.launch.webhook import body_of, traceparent
from wakeful.values.ids import is_id
from wakeful.values.instants import iso_utc

#: The header by which NATS drops repeated messages.
MESSAGE_ID: Final = "Nats-Msg-Id"
#: In a report: the subject on which the worker wants to know whether it was applied.
REPLY: Final = "x-wakeful-reply"
_PREFIX: Final = "x-wakeful-"


def subject_of(run: Launch, target: QueueTarget) -> str:
    """Return the subject of a run's message: that of its target, else that of its workspace."""
    return target.subject or f"{WORK_SUBJECT}.{run.workspace}"


def result_subject(workspace: str) -> str:
    """Return the subject on which workers report about runs of a workspace."""
    return f"{RESULT_SUBJECT}.{workspace}"


def workspace_of(subject: str) -> str:
    """Return the workspace in which a report on this subject may be.

    >>> workspace_of(result_subject("default"))
    'default'
    """
    return subject.removeprefix(f"{RESULT_SUBJECT}.")


def message_of(run: Launch, target: QueueTarget) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a run's message. The body is that of a webhook."""
    headers = {
        **target.headers,
        MESSAGE_ID: message_id(run),
        "content-type": "application/json",
        "traceparent": traceparent(run),
        "x-wakeful-key": run.idempotency_key,
        "x-wakeful-run-id": run.id,
        "x-wakeful-attempt": str(run.attempt),
        "x-wakeful-scheduled-at": iso_utc(run.scheduled_ms),
        "x-wakeful-trigger": run.trigger,
        "x-wakeful-missed": str(run.missed),
        "x-wakeful-workspace": run.workspace,
        "x-wakeful-agent": run.agent,
        "x-wakeful-timeout-ms": str(run.timeout_ms or DEFAULT_TIMEOUT_MS),
        "x-wakeful-results": result_subject(run.workspace),
    }
    function = target.function or run.job
    if function is not None:
        headers["x-wakeful-function"] = function
    return body_of(run), headers


def launch_of(body: bytes, headers: Mapping[str, str] | None) -> Launch:
    """Return the run of a message, for a worker. Its target is the function to call. Raises InvalidArgument.

    Names of headers are read in any case, as other publishers may write them.
    """
    given = {name.lower(): value for name, value in (headers or {}).items()}

    def header(name: str) -> str:
        value = given.get(_PREFIX + name)
        if not value:
            raise InvalidArgument(f"the message has no header {_PREFIX}{name}")
        return value

    run_id = header("run-id")
    if not is_id(run_id):
        raise InvalidArgument(f"{_PREFIX}run-id: '{run_id[:64]}' is not the id of a run")
    try:
        attempt, timeout_ms = int(header("attempt")), int(header("timeout-ms"))
        missed = int(given.get(f"{_PREFIX}missed", "0"))
        scheduled_ms = round(datetime.fromisoformat(header("scheduled-at")).timestamp() * 1000)
        content = json.loads(body)
        job, payload = content["job"], payload_to_text(content["payload"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"the message cannot be read: {type(error).__name__}: {error}") from error
    if not 1 <= attempt < 2**31 or not 1 <= timeout_ms < 2**53 or not isinstance(job, str | None):
        raise InvalidArgument("the message cannot be read: its attempt, timeout or job is not valid")
    launch = Launch(
        run_id,
        job,
        None,
        header("workspace"),
        header("agent"),
        payload,
        scheduled_ms,
        scheduled_ms,
        attempt,
        header("trigger"),
        header("key"),
        {"kind": "function", "name": given.get(f"{_PREFIX}function", "")},
        timeout_ms,
        missed=missed,
    )
    launch.traceparent = given.get("traceparent")
    return launch


def report_body(report: Report) -> bytes:
    """Return a report as the JSON that `broker.read_report` reads."""
    content: dict[str, object] = {"run": report.run_id, "attempt": report.attempt, "status": report.status}
    given: dict[str, object] = {
        "output": report.output,
        "error": report.error,
        "usage": None if report.usage is None else json.loads(report.usage),
        "evidence": None if report.evidence is None else json.loads(report.evidence),
        "permanent": report.permanent or None,
        "retryAfterMs": report.retry_after_ms,
        "reason": report.reason,
    }
    content |= {name: value for name, value in given.items() if value is not None}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def result_id(report: Report) -> str | None:
    """Return the message id of a report: an outcome is stored once, and progress has none.

    >>> result_id(Report("r1", 2, "succeeded")), result_id(Report("r1", 2, "running"))
    ('r1-2-outcome', None)
    """
    return None if report.status in ("running", "waiting") else f"{report.run_id}-{report.attempt}-outcome"
