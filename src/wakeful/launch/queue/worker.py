"""A worker for the messages of queue targets: calls registered functions and reports the results.

Each message is acknowledged after its outcome is in the stream of results. If the worker dies, NATS delivers
the message to another one. A message whose run was stopped, has timed out, or is at a later attempt is not
executed: the worker reports the start first, and a replica refuses it. The worker does not retry: the policy
of the job decides that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.launch.broker import Report, ReportResult, read_report
from wakeful.launch.function import FunctionLauncher, error_text
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, truncate
from wakeful.launch.queue.connection import FETCH_S, NatsConnection, take_messages, without_cancel
from wakeful.launch.queue.messages import (
    MESSAGE_ID,
    REPLY,
    deliveries,
    read_message,
    report_body,
    result_id,
    result_subject,
)
from wakeful.launch.queue.target import (
    ACK_WAIT_S,
    TOO_LARGE,
    WORK_STREAM,
    WORK_SUBJECT,
    consumer_config,
    create_stream,
    stream_name,
)
from wakeful.launch.user_code import NoAnswer, isolate
from wakeful.logs import get_logger
from wakeful.run.outcome import AwaitingCallback, Failed, Outcome, Skipped, Succeeded

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

#: The subjects of messages that name none.
ALL_WORK: Final = f"{WORK_SUBJECT}.>"
#: Seconds for which the worker waits for the answer to a report. Without one it goes on.
_ANSWER_S: Final = 5.0
#: Seconds until a message is delivered again whose function this worker does not have.
_UNKNOWN_S: Final = 10.0
#: A function that this worker does not have is reported at each such delivery of a message: every minute.
_REPORTED: Final = 6
_PAUSE_S: Final = 1.0
_CONFIRM_S: Final = 5.0
_LONGEST_NOTE: Final = 500

log = get_logger("wakeful.queue")


class WorkerOptions(NamedTuple):
    """What a worker takes, and how much at once."""

    subject: str = ALL_WORK
    #: None: the stream that has the subject
    stream: str | None = None
    concurrency: int = 10
    #: seconds that running functions have to end when the worker stops
    grace_s: float = 10.0
    create_streams: bool = True
    replicas: int = 1
    #: seconds after which a message is delivered again if its worker is silent
    ack_wait_s: float = ACK_WAIT_S


class _TooLarge(Exception):
    """NATS accepts no message of this size."""


class _Refused(Exception):
    """A replica refused a report: the run has ended, or is at another attempt."""


class _Answers:
    """The answers of replicas to reports. They arrive on one subscription of the connection."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._subscribing = asyncio.Lock()
        self._prefix, self._numbers = "", count()
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    async def subscribe(self, client: Client) -> str:
        """Return the subject on which the answer to one report is expected."""
        async with self._subscribing:
            if self._client is not client:
                self._prefix = client.new_inbox()
                await without_cancel(client.subscribe(f"{self._prefix}.*", cb=self._receive))
                self._client = client
        subject = f"{self._prefix}.{next(self._numbers)}"
        self._waiting[subject] = asyncio.get_running_loop().create_future()
        return subject

    async def wait(self, subject: str, seconds: float) -> bytes:
        """Return the answer. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            return await self._waiting[subject]

    def forget(self, subject: str) -> None:
        """Ignore an answer that is still to come."""
        self._waiting.pop(subject, None)

    async def _receive(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject)
        if answer is not None and not answer.done():
            answer.set_result(message.data)


class QueueWorker:
    """Takes messages and executes them until it is stopped."""

    def __init__(
        self, connection: NatsConnection, functions: FunctionLauncher, options: WorkerOptions
    ) -> None:
        self._connection = connection
        self._functions = functions
        functions.max_threads = max(functions.max_threads, options.concurrency)
        self._options = options
        self._heartbeat_s = options.ack_wait_s / 3
        self._running: set[asyncio.Task[None]] = set()
        #: the runs and attempts that it executes
        self._executing: set[tuple[str, int]] = set()
        self._stopping = asyncio.Event()
        self._answers = _Answers()
        #: whether it takes messages
        self.ready = False

    @property
    def running(self) -> int:
        """The number of messages that it executes."""
        return len(self._running)

    def stop(self) -> None:
        """Take no more messages, and end `run` when those that are running have ended."""
        self._stopping.set()

    async def run(self) -> None:
        """Take and execute messages until `stop`. Returns when all of them are settled."""
        await self._connection.open()
        await self._functions.open()
        taking = asyncio.create_task(self._take(), name="wakeful-queue")
        try:
            await self._stopping.wait()
        finally:
            self.ready = False
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            await self._drain()
            await self._functions.close()
            await self._connection.close()

    async def _drain(self) -> None:
        """Let running functions end in the grace period; the messages of others go to other workers."""
        if self._running:
            log.info("queue.draining", running=len(self._running))
            await asyncio.wait(self._running, timeout=self._options.grace_s)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CONFIRM_S)

    async def _take(self) -> None:
        shown = ""
        while True:
            try:
                await without_cancel(self._consume(await self._connection.jetstream(FETCH_S)))
            except Exception as error:
                cause = error.message if isinstance(error, WakefulError) else f"{error}"
                if self._connection.connected and cause != shown:
                    log.warning("queue.work_unavailable", subject=self._options.subject, error=cause)
                shown = cause
            self.ready = False
            await asyncio.sleep(_PAUSE_S)

    async def _consume(self, js: JetStreamContext) -> None:
        """Subscribe, and take messages until the connection ends."""
        options = self._options
        if options.create_streams and options.subject == ALL_WORK:
            await create_stream(js, WORK_STREAM, ALL_WORK, options.replicas)
        stream = options.stream or await js.find_stream_name_by_subject(options.subject)
        durable = f"wakeful-worker-{stream_name(options.subject)}"
        config = consumer_config(durable, options.subject, options.ack_wait_s)
        subscription = await js.pull_subscribe(options.subject, durable=durable, stream=stream, config=config)
        log.info("queue.taking", subject=options.subject, stream=stream, concurrency=options.concurrency)
        self.ready = True
        await take_messages(self._connection, subscription, self._handle, self._running, options.concurrency)

    async def _handle(self, message: Msg) -> None:
        try:
            run = read_message(message.data, message.headers)
        except Exception as error:
            if not isinstance(error, InvalidArgument):
                log.exception("queue.error", subject=message.subject)
            log.warning("queue.message_invalid", subject=message.subject, error=str(error))
            await self._reply(message, b"+TERM")
            return
        if run.target.get("name") not in self._functions:
            log.warning(
                "queue.function_unknown",
                **run.log_fields,
                function=run.target.get("name"),
                retry_s=_UNKNOWN_S,
            )
            # After the timeout of its run no worker may execute it. It would be delivered for days, and NATS
            # delivers no other message if too many wait.
            tries = deliveries(message) - 1
            waited_ms = 1000 * _UNKNOWN_S * tries
            if waited_ms > (run.timeout_ms or DEFAULT_TIMEOUT_MS):
                await self._reply(message, b"+TERM")
            else:
                if tries % _REPORTED == 0:
                    await self._report_unknown(run)
                await self._put_back(message, _UNKNOWN_S)
            return
        if (run.id, run.attempt) in self._executing:  # heartbeats were lost; its outcome ends the message too
            log.info("queue.repeated", **run.log_fields)
            await self._put_back(message, self._heartbeat_s)
            return
        self._executing.add((run.id, run.attempt))
        try:
            await self._execute(run, message)
        except _Refused as refused:
            log.info("queue.refused", **run.log_fields, reason=str(refused))
            await self._reply(message, b"+ACK")
        except asyncio.CancelledError:  # the worker stops
            log.warning("queue.put_back", **run.log_fields, reason="the worker stops")
            await self._put_back(message, 0)
        except Unavailable as error:
            log.warning("queue.put_back", **run.log_fields, reason=error.message)
            await self._put_back(message, _UNKNOWN_S)
        except Exception:  # an error in this program: another worker tries it
            log.exception("queue.error", **run.log_fields)
            await self._put_back(message, _UNKNOWN_S)
        finally:
            self._executing.discard((run.id, run.attempt))

    async def _report_unknown(self, run: Launch) -> None:
        """Report that this worker does not have the function, so that the run shows it."""
        why = (
            f"the last worker that got its message does not have the function '{run.target.get('name')}'; "
            "start a worker that registers it"
        )
        with contextlib.suppress(Unavailable, _TooLarge):
            report = Report(run.id, run.attempt, "waiting", error=truncate(why, _LONGEST_NOTE))
            await self._report(report, run.workspace, wait=False)

    async def _execute(self, run: Launch, message: Msg) -> None:
        """Report the start, call the function, report the outcome, acknowledge the message."""
        answer = await self._report(Report(run.id, run.attempt, "running"), run.workspace, wait=True)
        if answer is not None and not answer.applied:
            raise _Refused(answer.why)
        call = asyncio.create_task(self._call_and_report(run), name=f"wakeful-run-{run.id}")
        beating = asyncio.create_task(self._beat(run, message), name="wakeful-progress")
        try:
            await asyncio.wait({call, beating}, return_when=asyncio.FIRST_COMPLETED)
            await (call if call.done() else beating)  # only a refusal ends the heartbeats
            await self._reply(message, b"+ACK")
        finally:
            for task in (call, beating):
                task.cancel()
            await asyncio.gather(call, beating, return_exceptions=True)

    async def _call_and_report(self, run: Launch) -> None:
        outcome = await self._call(run)
        if isinstance(outcome, AwaitingCallback):
            return
        if isinstance(outcome, Failed) and not outcome.counted:  # not started: another worker may do so
            raise Unavailable(outcome.error)
        report = build_report(run, outcome)
        try:
            read_report(report_body(report))
        except Exception as error:  # it would be discarded as invalid, and the run would wait in vain
            why = f"the outcome of the function cannot be reported: {type(error).__name__}: {error}"
            report = Report(run.id, run.attempt, "failed", error=truncate(why), reason="bad_response")
        await self._deliver(report, run.workspace)

    async def _call(self, run: Launch) -> Outcome:
        limit_ms = run.timeout_ms or DEFAULT_TIMEOUT_MS
        try:
            return await isolate(lambda: self._functions.start(run), limit_ms / 1000)
        except NoAnswer:
            return Failed(f"timed out after {limit_ms / 1000:g} s", reason="timeout")
        except Exception as error:  # it cancelled itself
            return Failed(error_text(error))

    async def _beat(self, run: Launch, message: Msg) -> None:
        """Keep the message and the run, until a replica refuses the progress: raises _Refused."""
        progress = Report(run.id, run.attempt, "running")
        while True:
            await asyncio.sleep(self._heartbeat_s)
            await self._reply(message, b"+WPI")
            with contextlib.suppress(Unavailable):  # the message is kept; the run has its whole timeout
                answer = await self._report(progress, run.workspace, wait=True)
                if answer is not None and not answer.applied:
                    raise _Refused(answer.why)

    async def _deliver(self, report: Report, workspace: str) -> None:
        """Report an outcome until it is in the stream. Heartbeats keep the message meanwhile."""
        while True:
            try:
                await self._report(report, workspace, wait=False)
                return
            except _TooLarge:
                log.warning("queue.report_too_large", run_id=report.run_id, size=len(report_body(report)))
                report = _without_content(report)
            except Unavailable:
                pass
            await asyncio.sleep(_PAUSE_S)

    async def _report(self, report: Report, workspace: str, *, wait: bool) -> ReportResult | None:
        """Publish a report; with `wait`, return whether a replica applied it. None: no replica answered.

        Raises Unavailable if it is not in the stream, and _TooLarge if it can never be.
        """
        import nats.errors
        from nats.js.errors import APIError

        client = await self._connection.client()
        headers = {}
        identity = result_id(report)
        if identity is not None:
            headers[MESSAGE_ID] = identity
        reply: str | None = None
        try:
            if wait:
                reply = headers[REPLY] = await self._answers.subscribe(client)
            publishing = client.jetstream().publish(
                result_subject(workspace), report_body(report), timeout=_CONFIRM_S, headers=headers
            )
            await without_cancel(publishing)
            return None if reply is None else _read_answer(await self._answers.wait(reply, _ANSWER_S))
        except TimeoutError as error:
            if wait:
                return None
            raise Unavailable("NATS did not confirm the report") from error
        except nats.errors.MaxPayloadError as error:
            raise _TooLarge from error
        except Exception as error:  # of the client, or a confirmation that cannot be read
            if isinstance(error, APIError) and error.err_code == TOO_LARGE:
                raise _TooLarge from error
            raise Unavailable(f"the report is not in the stream: {error}") from error
        finally:
            if reply is not None:
                self._answers.forget(reply)

    async def _put_back(self, message: Msg, delay_s: float) -> None:
        """Have the message delivered again."""
        delay = f' {{"delay": {round(delay_s * 1_000_000_000)}}}' if delay_s else ""
        await self._reply(message, f"-NAK{delay}".encode())

    async def _reply(self, message: Msg, content: bytes) -> None:
        """Settle a message on the present connection, which may be newer than the message.

        Without a connection it is delivered again, and refused if its outcome was reported.
        """
        with contextlib.suppress(Exception):
            client = await self._connection.client()
            await without_cancel(client.publish(message.reply, content))


def _read_answer(data: bytes) -> ReportResult | None:
    """Return the answer of a replica to a report; None if it cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(data)
        if isinstance(answer, dict) and isinstance(answer.get("applied"), bool):
            return ReportResult(answer["applied"], str(answer.get("why", "")))
    return None


def _without_content(report: Report) -> Report:
    """Return a report with the outcome only. Its message is as small as one can be."""
    note = "the NATS server or the stream accepts no message of this size"
    shortened = Report(report.run_id, report.attempt, report.status)._replace(
        permanent=report.permanent, retry_after_ms=report.retry_after_ms, reason=report.reason
    )
    if report.status == "failed":
        return shortened._replace(error=f"{(report.error or '')[:100]} (shortened: {note})")
    return shortened._replace(output=f"(no output: {note})")


def build_report(run: Launch, outcome: Outcome) -> Report:
    """Return the report of an outcome."""
    report = Report(run.id, run.attempt, "succeeded")
    if isinstance(outcome, Succeeded):
        return report._replace(output=outcome.output, usage=outcome.usage, evidence=outcome.evidence or None)
    if isinstance(outcome, Failed):
        return report._replace(
            status="failed",
            error=outcome.error,
            permanent=outcome.permanent,
            retry_after_ms=outcome.retry_after_ms,
            reason=outcome.reason,
            usage=outcome.usage,
            output=outcome.output,
        )
    if isinstance(outcome, Skipped):
        return report._replace(status="skipped", output=outcome.output, reason=outcome.reason)
    return report if isinstance(outcome, AwaitingCallback) else report._replace(output=outcome.output)
