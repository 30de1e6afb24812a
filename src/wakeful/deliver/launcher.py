"""Channel targets: a message to people, sent as a run, so that it is recorded, retried and can be replayed.

    {"kind": "channel", "channel": "telegram", "to": "@ada"}

The payload is the message: `{"title": …, "body": …, "kind": "failure"}`. Only the internal alert jobs have
such a target. A manual run of one, without a payload, sends a test message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

from wakeful.deliver.channels import KINDS, ChannelMessage, ChannelSender
from wakeful.deliver.sender_threads import MAX_PER_CHANNEL, SenderThreads
from wakeful.errors import InvalidArgument
from wakeful.launch.port import Launch, Launcher, truncate
from wakeful.logs import get_logger
from wakeful.run.outcome import Failed, Outcome, Succeeded
from wakeful.values.json_value import Json

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
        self._threads = SenderThreads()
        #: the number of messages that are being sent, by channel
        self._sending: Counter[str] = Counter()

    async def close(self) -> None:
        """Stop the threads. One that waits for a service ends with its socket timeout."""
        self._threads.close()

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

        if self._sending[name] >= MAX_PER_CHANNEL:  # a run that waited would hold a slot of its lane
            why = f"channel '{name}': {MAX_PER_CHANNEL} others wait for its service; it is tried again"
            return Failed(truncate(why), reason="busy", counted=False)
        self._sending[name] += 1
        try:
            result = await self._threads.send(
                partial(self._channels.send, name, to, channel_message(run)),
                _TIMEOUT_S,
                on_error=lambda: log.exception("channel.error"),
                abandoned=warn_abandoned,
            )
        finally:
            self._sending[name] -= 1
        if result.outcome == "unknown":
            # It is not sent again. A replay of the run sends a second copy.
            return Failed(truncate(f"channel '{name}': {result.error}"), permanent=True, reason="unknown")
        if result.outcome == "not_sent":
            return Failed(truncate(f"channel '{name}': {result.error}"), reason="not_delivered")
        return Succeeded(truncate(f"sent to the channel '{name}'"))


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
