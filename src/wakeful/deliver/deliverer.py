"""The deliverer: takes what runs said to the channels where people read it. The run itself is over by then.

A delivery that was not sent, or was refused, is tried again for some two minutes, by its time in the database
(`pending`), then given up (`failed`); one that could never arrive, because there is no such channel or
recipient, fails at once. One that may have arrived is not sent again (`unknown`): the service did not answer,
accepted only a part of it, or the process died while it was sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from wakeful.clock import Clock
from wakeful.deliver.channels import ChannelMessage, Channels, SendResult
from wakeful.deliver.suppression import suppression_reason
from wakeful.engine.loop import Loop
from wakeful.errors import InvalidArgument, ResourceExhausted
from wakeful.ids import new_id
from wakeful.launch.threads import Threads
from wakeful.logs import get_logger
from wakeful.policy import Backoff
from wakeful.store.deliveries import Delivery, DeliveryResult
from wakeful.store.port import Store

#: How many are on their way at a time: Apprise blocks, and each takes a thread.
PLACES: Final = 8
#: How often one is tried: over some two minutes.
ATTEMPTS: Final = 6
#: How long somebody who sends has to say how it went: far longer than any service may take.
_LEASE_MS: Final = 300_000
#: How long nobody looks where nobody says that there is something to send.
_LOOK_MS: Final = 10_000
#: How long those that are on their way may take when the process ends.
_GRACE_S: Final = 5.0
_BACKOFF: Final = Backoff(base_ms=5_000, max_ms=60_000)
_NO_CHANNEL: Final = "there is no channel to send it to: neither the job nor its agent names one (`channel`)"

log = get_logger("wakeful.deliver")


class Deliverer(Loop):
    """Sends, so many at once, and writes how it went."""

    name = "deliverer"

    def __init__(
        self, store: Store, clock: Clock, channels: Channels, on_attempt: Callable[[str], None]
    ) -> None:
        super().__init__(clock, _LOOK_MS)
        self._store = store
        self._channels = channels
        self._worker = f"deliverer:{new_id(clock.now_ms())[-12:]}"
        self._threads = Threads(PLACES)
        self._sending: set[asyncio.Task[None]] = set()
        self._carried: list[DeliveryResult] = []
        #: called with the new state of the delivery after each attempt
        self._on_attempt = on_attempt
        store.listen(self._heard)

    async def run(self) -> None:
        """Until cancelled; then those that are on their way have a moment, and how they went is written."""
        try:
            await super().run()
        finally:
            if self._sending:
                await asyncio.wait(self._sending, timeout=_GRACE_S)
            for task in self._sending:
                task.cancel()
            self._threads.close()
            await self._write()

    async def step(self) -> int | None:
        """Write how those went that are done, and take on as many as there are places for."""
        await self._write()
        free = PLACES - len(self._sending)
        if free <= 0:
            return None  # whichever is done first says so
        now_ms = self.clock.now_ms()
        taken, given_up = await self._store.take_deliveries(now_ms, self._worker, now_ms + _LEASE_MS, free)
        if given_up:
            log.warning("deliveries.unknown", count=given_up)
        for delivery in taken:
            task = asyncio.create_task(self._carry(delivery), name="wakeful-delivery")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return None if len(taken) == free else await self._store.next_delivery_ms()

    async def _write(self) -> None:
        while self._carried:
            batch = list(self._carried)
            written = await self._store.finish_deliveries(self.clock.now_ms(), self._worker, batch)
            del self._carried[: len(batch)]
            for each in batch:
                if each.run_id in written:
                    self._on_attempt(each.became)

    async def _carry(self, delivery: Delivery) -> None:
        """One attempt at one; whatever happens, something is said of it."""
        try:
            carried = await self._attempt(delivery)
        except Exception:
            log.exception("delivery.error", run=delivery.run_id, channel=delivery.channel)
            carried = self._not_sent(delivery, "it could not be sent, and the log says why")
        self._carried.append(carried)
        self.wake()

    async def _attempt(self, delivery: Delivery) -> DeliveryResult:
        run_id, attempt, channel = delivery.run_id, delivery.attempt, delivery.channel
        why = suppression_reason(delivery.output, delivery.job_name)
        if why is not None:
            log.info("delivery.suppressed", run=run_id, job=delivery.job_name, reason=why)
            return DeliveryResult(run_id, attempt, "suppressed", error=why)
        if channel is None:
            return self._refused(delivery, _NO_CHANNEL)
        try:
            self._channels.check(channel, delivery.to)
        except InvalidArgument as error:
            return self._refused(delivery, error.message)
        send = partial(self._channels.send, channel, delivery.to, _message(delivery))
        try:
            result = await self._threads.run(send, lambda: None)
        except ResourceExhausted:
            return self._not_sent(delivery, "too many messages wait for services that do not answer")
        assert isinstance(result, SendResult)
        if result.outcome == "unknown":
            return self._unknown(delivery, result.error)
        if result.outcome == "not_sent":
            return self._not_sent(delivery, result.error)
        log.info("delivery.delivered", run=run_id, job=delivery.job_name, channel=channel, attempt=attempt)
        return DeliveryResult(run_id, attempt, "delivered")

    def _refused(self, delivery: Delivery, why: str) -> DeliveryResult:
        log.warning("delivery.failed", run=delivery.run_id, job=delivery.job_name, error=why)
        return DeliveryResult(delivery.run_id, delivery.attempt, "failed", error=why)

    def _unknown(self, delivery: Delivery, why: str) -> DeliveryResult:
        """It may have arrived: do not send it again."""
        error = f"channel '{delivery.channel}': {why}"
        log.warning("delivery.unknown", run=delivery.run_id, job=delivery.job_name, error=error)
        return DeliveryResult(delivery.run_id, delivery.attempt, "unknown", error=error)

    def _not_sent(self, delivery: Delivery, why: str) -> DeliveryResult:
        """It did not arrive: try again, if there are attempts left."""
        error = f"channel '{delivery.channel}': {why}"
        if delivery.attempt >= ATTEMPTS:
            return self._refused(delivery, error)
        due_ms = self.clock.now_ms() + _BACKOFF.delay_ms(delivery.attempt, delivery.run_id)
        log.info("delivery.retrying", run=delivery.run_id, job=delivery.job_name, error=error)
        return DeliveryResult(delivery.run_id, delivery.attempt, "pending", due_ms, error)

    def _heard(self, topic: str) -> None:
        if topic == "deliveries":
            self.wake()


def _message(delivery: Delivery) -> ChannelMessage:
    """What is sent is what was said, and nothing else; mail has a subject too."""
    subject = f"{delivery.job_name or 'Wakeful'} ({delivery.agent})"
    return ChannelMessage("", (delivery.output or "").strip(), subject=subject)
