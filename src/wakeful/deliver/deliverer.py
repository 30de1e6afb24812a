"""The deliverer: sends the output of runs to channels, after the runs have ended.

A delivery that was not sent, or was refused, is retried for about two minutes (`pending`), then it fails
(`failed`). One without a valid channel or recipient fails at once. One that may have arrived is not sent
again (`unknown`): the service did not respond, accepted only a part, or the process died while sending.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from wakeful.deliver.channels import ChannelMessage, ChannelSender
from wakeful.deliver.sender_threads import MAX_CONCURRENT, MAX_PER_CHANNEL, SenderThreads
from wakeful.engine.loop import Loop
from wakeful.engine.tracing import Tracing
from wakeful.errors import InvalidArgument
from wakeful.job.policy import Backoff
from wakeful.logs import get_logger
from wakeful.run.conversations import suppression_reason
from wakeful.store.deliveries import DeliveryResult, TakenDelivery
from wakeful.store.port import Store
from wakeful.values.clock import Clock
from wakeful.values.ids import new_id
from wakeful.values.instants import iso_utc

#: The most attempts at a delivery, over about two minutes.
ATTEMPTS: Final = 6
#: The lease of a delivery: far longer than any service takes.
_LEASE_MS: Final = 300_000
#: The longest sleep without a notification.
_MAX_SLEEP_MS: Final = 10_000
#: Seconds that deliveries have to end when the process stops.
_GRACE_S: Final = 5.0
_BACKOFF: Final = Backoff(base_ms=5_000, max_ms=60_000)
_NO_CHANNEL: Final = "no channel: neither the job nor its agent sets `channel`"

log = get_logger("wakeful.deliver")


class Deliverer(Loop):
    """Sends deliveries and writes their results."""

    name = "deliverer"
    follows_time = True

    def __init__(
        self,
        store: Store,
        clock: Clock,
        channels: ChannelSender,
        on_attempt: Callable[[str], None],
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__(clock, _MAX_SLEEP_MS)
        self._tracing = tracing
        self._store = store
        self._channels = channels
        self._worker = f"deliverer:{new_id(clock.now_ms())[-12:]}"
        self._threads = SenderThreads()
        #: the last take: it is not cancelled, because its deliveries may be marked as being sent already
        self._taking: asyncio.Task[int] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        #: the number of deliveries that are being sent, by channel
        self._by_channel: Counter[str] = Counter()
        self._results: list[DeliveryResult] = []
        #: called with the new state of the delivery after each attempt
        self._on_attempt = on_attempt
        store.listen(self._on_notify)

    @property
    def is_busy(self) -> bool:
        """Whether deliveries are being sent, or their results are to be written."""
        return bool(self._sending or self._results)

    async def run(self) -> None:
        """Run until cancelled; then give running deliveries a moment, and write their results."""
        try:
            await super().run()
        finally:
            if self._taking is not None:
                await asyncio.wait({self._taking}, timeout=_GRACE_S)
            if self._sending:
                await asyncio.wait(self._sending, timeout=_GRACE_S)
            for task in self._sending:
                task.cancel()
            self._threads.close()
            await self._write()

    async def step(self) -> int | None:
        """Write results, and start as many deliveries as there are free slots."""
        await self._write()
        counts = self._by_channel
        full = [channel for channel, count in counts.items() if count >= MAX_PER_CHANNEL]
        # All that are taken may be for one channel.
        most = max((count for count in counts.values() if count < MAX_PER_CHANNEL), default=0)
        free = min(MAX_CONCURRENT - len(self._sending), MAX_PER_CHANNEL - most)
        if free <= 0:
            return None  # the first that ends wakes the loop
        now_ms = self.clock.now_ms()
        self._taking = asyncio.create_task(self._take(now_ms, free, full), name="wakeful-deliveries")
        taken = await asyncio.shield(self._taking)
        return now_ms if taken == free else await self._store.next_delivery_ms(now_ms)

    async def _take(self, now_ms: int, free: int, full: Sequence[str]) -> int:
        """Start up to so many deliveries, none for channels that are `full`. Returns how many."""
        taken, given_up = await self._store.take_deliveries(
            now_ms, self._worker, now_ms + _LEASE_MS, free, full
        )
        if given_up:
            log.warning("deliveries.unknown", count=given_up)
        for delivery in taken:
            task = asyncio.create_task(self._deliver(delivery), name="wakeful-delivery")
            self._sending.add(task)
            self._by_channel[delivery.channel or ""] += 1
            task.add_done_callback(partial(self._forget, delivery.channel or ""))
        return len(taken)

    def _forget(self, channel: str, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._by_channel[channel] -= 1
        if not self._by_channel[channel]:
            del self._by_channel[channel]
        self.wake()

    async def _write(self) -> None:
        while self._results:
            batch = list(self._results)
            written = await self._store.finish_deliveries(self.clock.now_ms(), self._worker, batch)
            del self._results[: len(batch)]
            for each in batch:
                if each.run_id in written:
                    self._on_attempt(each.became)

    async def _deliver(self, delivery: TakenDelivery) -> None:
        """Make one attempt at a delivery. It always has a result."""
        if self._tracing is None:
            result = await self._attempt_safely(delivery)
        else:
            with self._tracing.delivery(delivery) as span:
                result = await self._attempt_safely(delivery)
                self._tracing.record_delivery(span, result.became, result.error)
        self._results.append(result)

    async def _attempt_safely(self, delivery: TakenDelivery) -> DeliveryResult:
        try:
            return await self._attempt(delivery)
        except Exception:
            log.exception("delivery.error", **delivery.log_fields)
            return self._not_sent(delivery, "it could not be sent; see the log")

    async def _attempt(self, delivery: TakenDelivery) -> DeliveryResult:
        run_id, attempt, channel = delivery.run_id, delivery.attempt, delivery.channel
        text = delivery_text(delivery)
        reason = suppression_reason(text, delivery.job_name)
        if reason is not None:
            log.info("delivery.suppressed", **delivery.log_fields, reason=reason)
            return DeliveryResult(run_id, attempt, "suppressed", error=reason)
        if channel is None:
            return self._fail(delivery, _NO_CHANNEL)
        try:
            self._channels.check(channel, delivery.to)
        except InvalidArgument as error:
            return self._fail(delivery, error.message)
        message = _message(delivery, text)
        result = await self._threads.send(
            partial(self._channels.send, channel, delivery.to, message),
            _LEASE_MS / 1000,
            on_error=lambda: log.exception("delivery.error", **delivery.log_fields),
        )
        if result.outcome == "unknown":
            return self._report_unknown(delivery, result.error)
        if result.outcome == "not_sent":
            return self._not_sent(delivery, result.error)
        log.info("delivery.delivered", **delivery.log_fields)
        return DeliveryResult(run_id, attempt, "delivered")

    def _fail(self, delivery: TakenDelivery, why: str) -> DeliveryResult:
        log.warning("delivery.failed", **delivery.log_fields, error=why)
        return DeliveryResult(delivery.run_id, delivery.attempt, "failed", error=why)

    def _report_unknown(self, delivery: TakenDelivery, why: str) -> DeliveryResult:
        """Return the result of a delivery that may have arrived: it is not sent again."""
        error = f"channel '{delivery.channel}': {why}"
        log.warning("delivery.unknown", **delivery.log_fields, error=error)
        return DeliveryResult(delivery.run_id, delivery.attempt, "unknown", error=error)

    def _not_sent(self, delivery: TakenDelivery, why: str) -> DeliveryResult:
        """Return the result of a delivery that did not arrive: retry it, if attempts are left."""
        error = f"channel '{delivery.channel}': {why}"
        if delivery.attempt >= ATTEMPTS:
            return self._fail(delivery, error)
        due_ms = self.clock.now_ms() + _BACKOFF.delay_ms(delivery.attempt, delivery.run_id)
        log.info("delivery.retrying", **delivery.log_fields, error=error, next_at=iso_utc(due_ms))
        return DeliveryResult(delivery.run_id, delivery.attempt, "pending", due_ms, error)

    def _on_notify(self, topic: str) -> None:
        if topic == "deliveries":
            self.wake()


def _message(delivery: TakenDelivery, text: str) -> ChannelMessage:
    """Return the message of a delivery: its text, and a subject for mail."""
    subject = f"{delivery.job_name or 'Wakeful'} ({delivery.agent})"
    return ChannelMessage("", text, subject=subject)


def delivery_text(delivery: TakenDelivery) -> str:
    """Return what is sent: the output, then a paragraph for each emitted signal.

    An output that is not delivered by itself does not precede the signals.
    """
    output = (delivery.output or "").strip()
    if delivery.emitted is None:
        return output
    signals = [_signal_text(each) for each in json.loads(delivery.emitted)]
    own = [] if suppression_reason(output, delivery.job_name) else [output]
    return "\n\n".join([*own, *signals])


def _signal_text(signal: dict[str, object]) -> str:
    """Return the message of a signal if its data has one, else the data; without data, its type."""
    data = signal.get("data")
    message = data.get("message") if isinstance(data, dict) else data
    if isinstance(message, str) and message.strip():
        return message.strip()
    if data is None:
        return str(signal.get("type", ""))
    return json.dumps(data, ensure_ascii=False)
