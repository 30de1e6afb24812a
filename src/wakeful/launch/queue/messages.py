"""The messages of runs, and the reports about them.

A message is written by the launcher and read by workers. What workers report comes from the stream of
results. All replicas share one consumer, so each report goes to one of them. It is acknowledged after it was
applied or refused. If it cannot be applied now, because the database is unavailable, it is delivered again
later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from wakeful.document import payload_to_text
from wakeful.errors import InvalidArgument, WakefulError
from wakeful.launch.broker import Report, ReportResult, message_id, read_report
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch
from wakeful.launch.queue.connection import FETCH_S, NatsConnection, take_messages, without_cancel
from wakeful.launch.queue.target import (
    RESULT_STREAM,
    RESULT_SUBJECT,
    WORK_SUBJECT,
    QueueTarget,
    consumer_config,
    create_stream,
)
from wakeful.launch.webhook import traceparent, webhook_body
from wakeful.logs import get_logger
from wakeful.values.ids import is_id
from wakeful.values.instants import iso_utc

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

#: The header by which NATS drops repeated messages.
MESSAGE_ID: Final = "Nats-Msg-Id"
#: In a report: the subject on which the worker wants to know whether it was applied.
REPLY: Final = "x-wakeful-reply"
_PREFIX: Final = "x-wakeful-"
CONSUMER: Final = "wakeful-replicas"
#: How many reports are applied at once.
_BATCH: Final = 50
#: Seconds until a report that could not be applied is delivered again: the first time, and at most, which is
#: less than a lease: so long overdue runs are spared after an outage of the database.
_RETRY_S: Final = 2.0
_MAX_RETRY_S: Final = 15.0
#: Seconds between two attempts to subscribe.
_PAUSE_S: Final = 1.0
_INBOX: Final = "_INBOX."

log = get_logger("wakeful.queue")


def message_subject(run: Launch, target: QueueTarget) -> str:
    """Return the subject of a run's message: that of its target, else that of its workspace."""
    return target.subject or f"{WORK_SUBJECT}.{run.workspace}"


def result_subject(workspace: str) -> str:
    """Return the subject on which workers report about runs of a workspace."""
    return f"{RESULT_SUBJECT}.{workspace}"


def parse_workspace(subject: str) -> str:
    """Return the workspace in which a report on this subject may be.

    >>> parse_workspace(result_subject("default"))
    'default'
    """
    return subject.removeprefix(f"{RESULT_SUBJECT}.")


def write_message(run: Launch, target: QueueTarget) -> tuple[bytes, dict[str, str]]:
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
    return webhook_body(run), headers


def read_message(body: bytes, headers: Mapping[str, str] | None) -> Launch:
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


class ResultConsumer:
    """Receives reports and applies them with `apply`."""

    def __init__(
        self,
        connection: NatsConnection,
        apply: Callable[[Report], Awaitable[ReportResult]],
        create_streams: bool,
        replicas: int,
    ) -> None:
        self._connection = connection
        self._apply = apply
        self._create_streams = create_streams
        self._replicas = replicas
        self._task: asyncio.Task[None] | None = None
        self._applying: set[asyncio.Task[None]] = set()
        #: why no reports are received; None: they are
        self.error: str | None = "it has not subscribed yet"

    def start(self) -> None:
        """Begin to receive reports."""
        if self._task is None:
            self._task = asyncio.create_task(self._receive(), name="wakeful-results")

    async def stop(self) -> None:
        """Receive no more reports, and finish those that are being applied."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._applying:
            await asyncio.wait(self._applying, timeout=FETCH_S)

    async def _receive(self) -> None:
        while True:
            try:
                js = await self._connection.jetstream(FETCH_S)
                await without_cancel(self._consume(js))
            except Exception as error:
                cause = error.message if isinstance(error, WakefulError) else f"{error}"
                if self._connection.connected and cause != self.error:
                    log.warning("queue.results_unavailable", error=cause)
                self.error = cause
            await asyncio.sleep(_PAUSE_S)

    async def _consume(self, js: JetStreamContext) -> None:
        """Subscribe, and apply reports until the connection ends."""
        subject = f"{RESULT_SUBJECT}.>"
        if self._create_streams:
            await create_stream(js, RESULT_STREAM, subject, self._replicas)
        config = consumer_config(CONSUMER, subject)
        subscription = await js.pull_subscribe(subject, durable=CONSUMER, stream=RESULT_STREAM, config=config)
        self.error = None
        await take_messages(self._connection, subscription, self._handle, self._applying, _BATCH)

    async def _handle(self, message: Msg) -> None:
        """Apply a report and acknowledge it. If the acknowledgement is lost, its repetition is refused."""
        try:
            report = read_report(message.data)._replace(workspace=parse_workspace(message.subject))
        except Exception as error:
            if not isinstance(error, InvalidArgument):
                log.exception("queue.report_error", subject=message.subject)
            log.warning("queue.report_invalid", subject=message.subject, error=str(error))
            await self._settle(message.term())
            return
        try:
            result = await self._apply(report)
        except Exception as error:
            delay_s = min(_RETRY_S * 2 ** min(deliveries(message) - 1, 10), _MAX_RETRY_S)
            if isinstance(error, WakefulError):
                log.warning(
                    "queue.report_delayed", run_id=report.run_id, attempt=report.attempt, error=error.message,
                    retry_s=delay_s,
                )  # fmt: skip
            else:
                log.exception("queue.report_error", run_id=report.run_id, attempt=report.attempt)
            await self._settle(message.nak(delay=delay_s))
            return
        await self._settle(message.ack())
        await self._answer(message, result)

    async def _answer(self, message: Msg, result: ReportResult) -> None:
        """Tell the worker whether its report was applied, if it wants to know."""
        reply = (message.headers or {}).get(REPLY)
        if reply and reply.startswith(_INBOX):
            content = {"applied": result.applied, **({"why": result.why} if result.why else {})}
            with contextlib.suppress(Exception):
                client = await self._connection.client()
                await without_cancel(client.publish(reply, json.dumps(content).encode()))

    @staticmethod
    async def _settle(call: Awaitable[object]) -> None:
        """Acknowledge. If the connection ended, the report is delivered again, and refused."""
        with contextlib.suppress(Exception):
            await without_cancel(call)


def deliveries(message: Msg) -> int:
    """Return how often a message was delivered, from 1."""
    try:
        return message.metadata.num_delivered or 1
    except Exception:
        return 1
