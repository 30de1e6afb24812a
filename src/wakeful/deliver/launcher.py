"""Channel targets: a message to people, sent as a run, so that it is recorded, retried and can be replayed.

    {"kind": "channel", "channel": "telegram", "to": "@ada"}

The payload is the message: `{"title": …, "body": …, "kind": "failure"}`. Only the internal alert jobs have
such a target. A manual run of one, without a payload, sends a test message.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from wakeful.deliver.channels import KINDS, ChannelMessage, ChannelSender, SendResult
from wakeful.errors import InvalidArgument, ResourceExhausted
from wakeful.launch.port import Launch, Launcher, truncate
from wakeful.launch.user_code import Threads
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.values.json_value import Json

#: The most messages at once: Apprise blocks, so each takes a thread. The runs of further messages to a
#: channel do not wait for it, because they have slots of a lane: they are tried again later.
MAX_CONCURRENT: Final = 32
MAX_PER_CHANNEL: Final = 8
#: The timeout of a message, including the wait for a thread.
_TIMEOUT_S: Final = 300.0

log = get_logger("wakeful.deliver")


class ChannelLauncher(Launcher):
    """Sends messages to channels."""

    kind = "channel"
    #: longer than `_TIMEOUT_S`, because only the launcher knows whether a message may have arrived
    default_timeout_ms = 330_000

    def __init__(self, channels: ChannelSender) -> None:
        self._channels = channels
        self._threads: Threads | None = None
        #: the number of messages that are being sent, by channel
        self._sending: Counter[str] = Counter()

    async def close(self) -> None:
        """Stop the threads. One that waits for a service ends with its socket timeout."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for an unknown channel, or a recipient that it does not accept."""
        name, to = _channel_and_recipient(target)
        self._channels.check(name, to)

    async def start(self, run: Launch) -> Outcome:
        """Send the message in a thread and return the outcome."""
        try:
            name, to = _channel_and_recipient(run.target)
        except InvalidArgument as error:
            return Failed(truncate(error.message), permanent=True, reason="invalid_target")

        def warn_abandoned() -> None:
            log.warning(
                "channel.abandoned",
                **run.log_fields,
                channel=name,
                reason="it was stopped or timed out, but a thread cannot be stopped: it may still arrive",
            )

        if self._sending[name] >= MAX_PER_CHANNEL:
            why = f"channel '{name}': {MAX_PER_CHANNEL} others wait for its service; it is tried again"
            return Failed(truncate(why), reason="busy", counted=False)
        self._sending[name] += 1
        try:
            result = await self._send(
                partial(self._channels.send, name, to, channel_message(run)), warn_abandoned
            )
        finally:
            self._sending[name] -= 1
        if result.outcome == "unknown":
            # It is not sent again. A replay of the run sends a second copy.
            return Failed(truncate(f"channel '{name}': {result.error}"), permanent=True, reason="unknown")
        if result.outcome == "not_sent":
            return Failed(truncate(f"channel '{name}': {result.error}"), reason="not_delivered")
        return Succeeded(truncate(f"sent to the channel '{name}'"))

    async def _send(self, send: Callable[[], SendResult], abandoned: Callable[[], None]) -> SendResult:
        if self._threads is None:
            self._threads = Threads(MAX_CONCURRENT)
        began = False

        def begin() -> SendResult:
            nonlocal began
            began = True
            return send()

        try:
            async with asyncio.timeout(_TIMEOUT_S):
                result = await self._threads.run(begin, abandoned)
            assert isinstance(result, SendResult)
        except (ResourceExhausted, TimeoutError):
            if began:
                return SendResult("unknown", f"no response within {_TIMEOUT_S:.0f} s; it may have arrived")
            return SendResult("not_sent", "too many messages wait for services that do not respond")
        except asyncio.CancelledError:
            raise
        except BaseException:  # of a plugin
            if not began:
                raise
            log.exception("channel.error")
            return SendResult("unknown", "an unexpected error, see the log; it may have arrived")
        return result


def channel_message(run: Launch) -> ChannelMessage:
    """Return the message of a run: its payload, or a test message."""
    payload = run.payload if isinstance(run.payload, dict) else {}
    title, body, kind = payload.get("title"), payload.get("body"), payload.get("kind")
    title = title if isinstance(title, str) else ""
    body = body if isinstance(body, str) else run.message or ""
    if not title and not body:
        title = f"Wakeful: job '{run.job}' of agent '{run.agent}' was run by hand"
        return ChannelMessage(title, "Nothing is wrong.")
    return ChannelMessage(title, body, kind if isinstance(kind, str) and kind in KINDS else KINDS[0])


def _channel_and_recipient(target: Mapping[str, Json]) -> tuple[str, str | None]:
    """Return the name of the channel, and the recipient."""
    name, to = target.get("channel"), target.get("to")
    if not isinstance(name, str) or not name:
        raise InvalidArgument("target: a channel target needs a channel, such as 'team-ops'")
    if to is not None and not isinstance(to, str):
        raise InvalidArgument("target: the recipient of a channel, `to`, is text")
    return name, to
