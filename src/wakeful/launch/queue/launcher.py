"""Publishes runs as messages in NATS JetStream.

A launch ends when a stream has the message: the run then awaits the report of a worker. Until NATS confirms
it, the same message is published again with the same id, which NATS stores once. If NATS is not reachable,
the attempt fails and is retried. It counts as an attempt only if NATS may have the message.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from wakeful.errors import FailedPrecondition, InvalidArgument, Unavailable, WakefulError
from wakeful.launch.broker import (
    ApplyReport,
    RecordMessage,
    Report,
    ReportResult,
    await_report,
    no_services,
    not_recorded,
)
from wakeful.launch.port import Launch, truncate
from wakeful.launch.queue.connection import NatsConnection, nats_options, without_cancel
from wakeful.launch.queue.messages import ResultConsumer, message_subject, write_message
from wakeful.launch.queue.target import TOO_LARGE, QueueTarget, choose_stream, create_stream, read_queue
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome
from wakeful.settings import Settings
from wakeful.values.json_value import Json

if TYPE_CHECKING:
    from nats.js.api import PubAck

#: Seconds to wait for a connection, for one confirmation, and for the message to be stored in total.
_CONNECT_S: Final = 3.0
_CONFIRM_S: Final = 5.0
_TOTAL_S: Final = 20.0
#: Seconds between two attempts to publish.
_PAUSE_S: Final = 0.2
#: How many messages are remembered, so that they can be deleted when their run is stopped.
_REMEMBERED: Final = 50_000
_NOT_CONFIGURED: Final = "queue targets need NATS; the operator sets WAKEFUL_NATS_URL"

log = get_logger("wakeful.queue")


class _Sent(NamedTuple):
    """Where the message of a run is."""

    attempt: int
    stream: str
    sequence: int


class QueueLauncher:
    """Publishes runs, and receives what workers report about them."""

    kind = "queue"
    default_timeout_ms = round(1_000 * (_TOTAL_S + 10))

    def __init__(
        self,
        connection: NatsConnection,
        *,
        subjects: Sequence[str] = (),
        create_streams: bool = True,
        replicas: int = 1,
        record: RecordMessage = not_recorded,
    ) -> None:
        self.connection = connection
        self._record = record
        self.apply_report: ApplyReport = no_services
        self._subjects = subjects
        self._create_streams = create_streams
        self._replicas = replicas
        self._results = ResultConsumer(connection, self._apply, create_streams, replicas)
        self._sent: OrderedDict[str, _Sent] = OrderedDict()
        self._deletions: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to connect, and to receive reports."""
        await self.connection.open()
        if self.connection.configured:
            self._results.start()

    async def close(self) -> None:
        """Stop receiving reports, and disconnect."""
        await self._results.stop()
        if self._deletions:
            await asyncio.wait(self._deletions, timeout=_CONFIRM_S)
        await self.connection.close()

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for a target that is invalid, not allowed, or without NATS."""
        read_queue(target, self._subjects)
        if not self.connection.configured:
            raise InvalidArgument(f"target: {_NOT_CONFIGURED}")

    async def start(self, run: Launch) -> Outcome:
        """Publish the run; it awaits its report once a stream has the message."""
        if not self.connection.configured:  # another replica may have it
            return Failed(_NOT_CONFIGURED, reason="not_registered", counted=False)
        try:
            target = read_queue(run.target, self._subjects)
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")
        ack = await self._publish(run, target)
        self._record(self.kind, not isinstance(ack, Failed))
        if isinstance(ack, Failed):
            return ack
        if ack.duplicate:
            log.info("queue.adopted", **run.log_fields, stream=ack.stream, sequence=ack.seq)
        self._remember(run, ack)
        return await_report(run)

    def run_stopped(self, run_id: str) -> None:
        """Delete the message of a run that was stopped, if this process published it."""
        sent = self._sent.pop(run_id, None)
        if sent is not None:
            self._delete(sent)

    async def _apply(self, report: Report) -> ReportResult:
        return await self.apply_report(self.kind, report)

    async def _publish(self, run: Launch, target: QueueTarget) -> PubAck | Failed:
        """Publish the message until NATS confirms it. Returns the confirmation, or why there is none."""
        import nats.errors
        from nats.js.errors import APIError, NoStreamResponseError

        subject = message_subject(run, target)
        body, headers = write_message(run, target)
        loop = asyncio.get_running_loop()
        until = loop.time() + _TOTAL_S
        ambiguous, created = False, False
        while True:
            sending = False
            try:
                js = await self.connection.jetstream(_CONNECT_S)
                publishing = js.publish(
                    subject, body, timeout=_CONFIRM_S, stream=target.stream, headers=headers
                )
                sending = True
                return await without_cancel(publishing)
            except NoStreamResponseError:
                ambiguous = False
                failed = await self._no_stream(target, subject, created)
                if failed is not None:
                    return failed
                created = True
            except nats.errors.MaxPayloadError:
                return _too_large(body)
            except APIError as error:
                if error.err_code == TOO_LARGE:
                    return _too_large(body)
                if error.code is None or error.code < 500:
                    return Failed(truncate(f"NATS refused the message: {error.description}"), reason="broker")
                await asyncio.sleep(_PAUSE_S)  # it starts, or elects a leader
            except Unavailable as error:
                ambiguous = ambiguous or sending
                if not ambiguous:
                    return _unavailable(error.message, sent=False)
            except Exception:  # no confirmation, or one that cannot be read
                ambiguous = True
                await asyncio.sleep(_PAUSE_S)  # it may be stored: publish it again with the same id
            if loop.time() >= until:
                return _unavailable(f"NATS did not confirm the message within {_TOTAL_S:.0f} s", ambiguous)

    async def _no_stream(self, target: QueueTarget, subject: str, created: bool) -> Failed | None:
        """Create the stream of a target. Returns why there is none."""
        if created or not self._create_streams:
            return Failed(
                f"no NATS stream has the subject '{subject}'; create one, or correct the target",
                reason="no_stream",
            )
        try:
            js = await self.connection.jetstream()
            await without_cancel(create_stream(js, *choose_stream(target), self._replicas))
        except FailedPrecondition as error:
            return Failed(truncate(error.message), reason="no_stream")
        except WakefulError as error:
            return _unavailable(error.message, sent=False)
        except Exception as error:  # of the client, or a response that cannot be read
            return Failed(
                truncate(f"the NATS stream of '{subject}' cannot be created: {error}"), reason="no_stream"
            )
        return None

    def _remember(self, run: Launch, ack: PubAck) -> None:
        """Remember the message, and delete that of an earlier attempt, which no report can count for."""
        before = self._sent.pop(run.id, None)
        if before is not None and before.attempt < run.attempt:
            self._delete(before)
        self._sent[run.id] = _Sent(run.attempt, ack.stream, ack.seq)
        if len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _delete(self, sent: _Sent) -> None:
        task = asyncio.get_running_loop().create_task(self._delete_message(sent), name="wakeful-nats-delete")
        self._deletions.add(task)
        task.add_done_callback(self._deletions.discard)

    async def _delete_message(self, sent: _Sent) -> None:
        try:
            js = await self.connection.jetstream()
            await js.delete_msg(sent.stream, sent.sequence)
        except Exception as error:  # a worker has taken it already, or its report is refused later
            log.debug("queue.not_deleted", stream=sent.stream, sequence=sent.sequence, error=str(error))


def _unavailable(why: str, sent: bool) -> Failed:
    """Return the failure of an attempt that NATS did not confirm. It counts if the message may be stored."""
    return Failed(truncate(why), reason="broker_unavailable", counted=sent)


def _too_large(body: bytes) -> Failed:
    return Failed(
        f"the message has {len(body)} bytes, more than the NATS server or the stream accepts",
        permanent=True,
        reason="too_large",
    )


def queue_launcher(settings: Settings, record: RecordMessage = not_recorded) -> QueueLauncher:
    """Return the launcher of queue targets with the operator's settings. `record` counts the messages."""
    return QueueLauncher(
        NatsConnection(nats_options(settings)),
        subjects=settings.nats_subjects,
        create_streams=settings.nats_create_streams,
        replicas=settings.nats_replicas,
        record=record,
    )
