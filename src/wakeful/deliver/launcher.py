"""Channel targets: a message to people, as a run, so that it is recorded, tried again and can be replayed.

    {"kind": "channel", "channel": "telegram", "to": "@ada"}

The payload is the message: `{"title": …, "body": …, "kind": "failure"}`. Jobs that people make cannot have
such a target: it is that of the jobs by which alerts are sent. One that is run by hand, without a payload,
says that it was: so a channel can be tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from wakeful.deliver.channels import KINDS, Channels, Message
from wakeful.errors import InvalidArgument, ResourceExhausted
from wakeful.job import Json
from wakeful.launch.port import Failed, Launch, Outcome, Succeeded, kept
from wakeful.launch.threads import Threads
from wakeful.logs import get_logger

#: How many messages are on their way at a time: Apprise blocks, and each takes a thread.
PLACES: Final = 4

log = get_logger("wakeful.deliver")


class ChannelLauncher:
    """Takes messages to channels."""

    kind = "channel"
    default_timeout_ms = 30_000

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._threads: Threads | None = None

    async def open(self) -> None:
        """Nothing to get ready: threads are started when they are needed."""

    async def close(self) -> None:
        """Let the threads end. One that waits for a service is left behind, until its socket gives up."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None

    def check(self, target: Mapping[str, Json]) -> None:
        """Refuse a channel that there is not, and a recipient that it does not take."""
        name, to = _named(target)
        self._channels.check(name, to)

    async def start(self, run: Launch) -> Outcome:
        """Send the message, in a thread, and say whether it was taken."""
        try:
            name, to = _named(run.target)
        except InvalidArgument as error:
            return Failed(kept(error.message), permanent=True, reason="invalid_target")
        if self._threads is None:
            self._threads = Threads(PLACES)

        def abandoned() -> None:
            log.warning(
                "channel.abandoned",
                run=run.id,
                job=run.job,
                channel=name,
                reason="it was stopped or timed out, but a thread cannot be stopped: it may still arrive",
            )

        send = partial(self._channels.send, name, to, message_of(run))
        try:
            why = await self._threads.run(send, abandoned)
        except ResourceExhausted:
            why = "too many messages wait for services that do not answer"
        if why is not None:
            return Failed(kept(f"channel '{name}': {why}"), reason="not_delivered")
        return Succeeded(kept(f"sent to the channel '{name}'"))


def message_of(run: Launch) -> Message:
    """What a run says: its payload, or that somebody tries the channel."""
    payload = run.payload if isinstance(run.payload, dict) else {}
    title, body, kind = payload.get("title"), payload.get("body"), payload.get("kind")
    title = title if isinstance(title, str) else ""
    body = body if isinstance(body, str) else run.message or ""
    if not title and not body:
        title = f"Wakeful: job '{run.job}' of agent '{run.agent}' was run by hand"
        return Message(title, "Nothing is wrong.")
    return Message(title, body, kind if isinstance(kind, str) and kind in KINDS else KINDS[0])


def _named(target: Mapping[str, Json]) -> tuple[str, str | None]:
    """The channel's name, and the recipient."""
    name, to = target.get("channel"), target.get("to")
    if not isinstance(name, str) or not name:
        raise InvalidArgument("target: a channel target needs a channel, such as 'team-ops'")
    if to is not None and not isinstance(to, str):
        raise InvalidArgument("target: the recipient of a channel, `to`, is text")
    return name, to
