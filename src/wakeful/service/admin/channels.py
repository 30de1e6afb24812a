"""Channels: their names and kinds, recent deliveries, and a test message. Their URLs are never shown."""

from __future__ import annotations

import asyncio
import builtins
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from wakeful.deliver.channels import TO, ChannelMessage, ChannelSender, SendResult, apprise_installed
from wakeful.errors import InvalidArgument, NotFound, ResourceExhausted
from wakeful.job.policy import DAY_MS
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.service.auth.rate_limits import RateLimiter
from wakeful.store.deliveries import DeliveryView
from wakeful.store.port import Store
from wakeful.values.json_value import compact
from wakeful.values.stored_text import UNSTORABLE, is_storable

#: How many test messages a channel takes per minute and process.
TESTS_PER_MINUTE: Final = 6
#: How long deliveries count as recent, how many are read, and how many are listed.
_RECENT_MS: Final = 7 * DAY_MS
_CONSIDERED: Final = 2_000
_LISTED: Final = 50
_COUNTED: Final = 1_000
_TIMEOUT_S: Final = 60.0
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.I)


class ChannelState(NamedTuple):
    """A channel."""

    name: str
    #: the service: the scheme of its URL, such as `slack`
    kind: str
    #: whether a message needs a recipient
    takes_recipient: bool
    #: the recent deliveries of the workspace by state
    deliveries: Mapping[str, int]


class TestResult(NamedTuple):
    """How a test message ended."""

    outcome: str
    error: str | None
    duration_ms: int


class ChannelService:
    """Lists channels and sends test messages."""

    def __init__(self, store: Store, accounts: Accounts, urls: Mapping[str, str]) -> None:
        self._store = store
        self._accounts = accounts
        self._urls = dict(urls)
        self._channels: ChannelSender | None = None
        self._limiter = RateLimiter[str](per_minute=TESTS_PER_MINUTE)

    @property
    def installed(self) -> bool:
        """Whether messages can be sent: Apprise is optional."""
        return apprise_installed()

    async def list(self, principal: Principal, workspace: str) -> list[ChannelState]:
        """List the channels, with the recent deliveries of the workspace."""
        await self._accounts.authorize(principal, "channel", workspace)
        since_ms = self._store.clock.now_ms() - DAY_MS
        counts: dict[str, dict[str, int]] = {}
        for name, state, number in await self._store.delivery_counts(workspace, since_ms, _COUNTED):
            counts.setdefault(name, {})[state] = number
        return [
            ChannelState(name, kind_of(url), TO in url, counts.get(name, {}))
            for name, url in sorted(self._urls.items())
        ]

    async def deliveries(self, principal: Principal, workspace: str) -> builtins.list[DeliveryView]:
        """List the newest deliveries of the workspace."""
        await self._accounts.authorize(principal, "channel", workspace)
        since_ms = self._store.clock.now_ms() - _RECENT_MS
        return await self._store.recent_deliveries(workspace, since_ms, _CONSIDERED, _LISTED)

    async def test(self, principal: Principal, workspace: str, name: str, to: str | None) -> TestResult:
        """Send a test message and wait for the result. Its error has no secrets.

        ResourceExhausted: too many test messages.
        """
        await self._accounts.authorize(principal, "channel", workspace)
        if name not in self._urls:
            raise NotFound(f"no channel '{name[:64]}'; list the channels to see their names")
        if to is not None and (len(to) > 1_024 or not is_storable(to)):
            raise InvalidArgument(f"to: {UNSTORABLE}" if len(to) <= 1_024 else "to: it is too long")
        channels = self._channels
        if channels is None:  # Apprise takes a while to load
            channels = self._channels = await asyncio.to_thread(ChannelSender, self._urls)
        await asyncio.to_thread(channels.check, name, to)
        wait_s = self._limiter.take(name, self._store.clock.now_ms())
        if wait_s:
            raise ResourceExhausted(
                f"the channel '{name}' takes {TESTS_PER_MINUTE} test messages a minute; "
                f"try again in {wait_s} s"
            )
        message = ChannelMessage(
            "Wakeful: test message",
            f"This is a test message to the channel '{name}', sent from the workspace '{workspace}'.",
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                sent = await asyncio.to_thread(channels.send, name, to, message)
        except TimeoutError:
            sent = SendResult("unknown", f"no response within {_TIMEOUT_S:.0f} s; it may have arrived")
        result = TestResult(sent.outcome, sent.error or None, round(1_000 * (loop.time() - began)))
        details = compact({"outcome": result.outcome, "error": result.error})
        await self._store.append_audit([principal.entry(workspace, "channel.test", name, details)])
        return result


def kind_of(url: str) -> str:
    """Return the service of a channel, which is no secret.

    >>> kind_of("slack://T1JJ3T3L2/A1BRTD4JD/secret"), kind_of("tgrams:secret")
    ('slack', 'unknown')
    """
    found = _SCHEME.match(url)
    return found[1].lower() if found else "unknown"
