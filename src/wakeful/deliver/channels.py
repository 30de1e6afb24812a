"""Channels: the ways to people, each a name that the operator gives to the Apprise URL of a service.

    WAKEFUL_CHANNEL_TEAM_OPS=slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnl/#ops
    WAKEFUL_CHANNEL_TELEGRAM=tgram://123456789:abcdefg/{to}

Where a URL has `{to}`, the recipient goes there, encoded so that it changes nothing else. A URL is a
credential: it is in no log, no error and no repr, and nothing that Apprise says of it gets out.

Apprise is loaded when there is a channel, and not before: it is large, and an extra (`wakeful[deliver]`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import quote

from wakeful.deliver.log_redaction import hushed
from wakeful.deliver.transport import is_watched, watch
from wakeful.errors import InvalidArgument
from wakeful.logs import get_logger
from wakeful.settings import PREFIX

if TYPE_CHECKING:
    from apprise import AppriseAsset, NotifyBase

#: What a message may be, as services show it by colour or by picture.
KINDS: Final = ("info", "success", "warning", "failure")
#: Where the recipient goes in a URL.
TO: Final = "{to}"
#: What is to be done where Apprise is not to be had.
NOT_INSTALLED: Final = "channels take Apprise, which is not installed here: pip install 'wakeful[deliver]'"
#: Seconds that a service may take to be reached, and to say something, unless its URL says (`cto`, `rto`).
_PATIENCE: Final = 10.0
#: Recipients of the kinds there are: a URL that takes one of them is understood.
_SAMPLES: Final = ("someone", "someone@example.com", "+15551234567", "123456789", "0123456789abcdef")
_STATUS: Final = re.compile(r"\berror=([1-5]\d\d)\b")
#: what Apprise says where nothing was sent, of services that are reached neither by HTTP nor by SMTP
_NO_CONNECTION: Final = re.compile(
    r"could not (connect|be established)|failed to (establish|connect)|unable to connect|no \w+ targets", re.I
)
_REFUSED: Final = (
    "the service did not take it; try its URL by hand with Apprise's own command line, which says why"
)
_UNREACHED: Final = re.compile(r"\b(connection error|socket error|timed? ?out|could not connect)\b", re.I)

log = get_logger("wakeful.deliver")


class Message(NamedTuple):
    """What somebody is told. A service without titles shows the title as the first line."""

    title: str
    body: str
    #: of `KINDS`
    kind: str = "info"
    #: what mail is about, where there is no title
    subject: str = ""


class SendResult(NamedTuple):
    """What became of a message that was sent."""

    #: `not_sent`: it did not arrive, and can be sent again. `unknown`: it may have arrived, or a part of it
    outcome: Literal["accepted", "not_sent", "unknown"]
    error: str = ""


ACCEPTED: Final = SendResult("accepted")


class Channels:
    """The channels of this process, by name.

    InvalidArgument, naming the setting, where Apprise does not understand one of the URLs.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = dict(urls)
        if not self._urls:
            return
        if not installed():
            log.warning("channels.unavailable", channels=self.names, reason=NOT_INSTALLED)
            return
        for name, url in self._urls.items():
            samples = _SAMPLES if TO in url else (None,)
            if all(service_of(url, sample)[0] is None for sample in samples):
                raise InvalidArgument(
                    f"{setting(name)}: Apprise does not understand this URL (which is not shown, for it is "
                    "a credential); see https://appriseit.com for how those of the service are written"
                )

    @property
    def names(self) -> list[str]:
        """What they are called; that is no secret."""
        return sorted(self._urls)

    def check(self, name: str, to: str | None) -> None:
        """Refuse a channel that there is not, and a recipient that it does not take."""
        if not installed():
            raise InvalidArgument(f"channel: {NOT_INSTALLED}")
        url = self._urls.get(name)
        if url is None:
            there = f"there are {', '.join(self.names)}" if self._urls else "none is set"
            raise InvalidArgument(
                f"channel: there is no '{name[:64]}'; {there} (the operator sets them: {setting('…')})"
            )
        if TO not in url:
            if to is not None:
                raise InvalidArgument(
                    f"to: the channel '{name}' has its recipient already; leave `to` out, or have the "
                    f"operator write {TO} into its URL"
                )
            return
        if to is None:
            raise InvalidArgument(f"to: the channel '{name}' needs a recipient; say who is told")
        # Dots are not encoded, and a path that is all dots is one that leads elsewhere.
        service, warned = (None, []) if not to.isprintable() or not to.strip(". ") else service_of(url, to)
        pieces = [piece for piece in re.split(r"[\s,;]+", to) if piece]
        if service is None or any(piece in said for piece in pieces for said in warned):
            raise InvalidArgument(f"to: the channel '{name}' does not take '{to[:64]}' as a recipient")

    def send(self, name: str, to: str | None, message: Message) -> SendResult:
        """Send a message, and wait for the service's answer. An error holds no secret.

        It blocks: call it in a thread. How long is bounded by the time that sockets are given.
        """
        if not installed():
            return SendResult("not_sent", NOT_INSTALLED)
        url = self._urls.get(name)
        if url is None:
            return SendResult("not_sent", f"it is not set in this process ({setting(name)})")
        try:
            self.check(name, to)  # the operator may have changed the URL since the alerts were written
            service, _ = service_of(url, to)
        except InvalidArgument as error:
            return SendResult("not_sent", error.message)
        if service is None:
            return SendResult("not_sent", _REFUSED)
        # Wakeful tries again by itself, and only where nothing can arrive twice.
        service.retry = 0
        with hushed() as heard, watch(service) as transport:
            try:
                if _sent(service, url, message):
                    return ACCEPTED
                why = _why(heard)
            except Exception as error:
                # Its text may hold the URL, and so may what it was raised from.
                why = f"it cannot be used: {type(error).__name__}"
        if transport.accepted:
            return SendResult("unknown", "only a part of it was accepted, and it is not sent again")
        if transport.unanswered:
            return SendResult("unknown", "it was sent and not answered, so it may have arrived")
        if not is_watched(service) and not any(_NO_CONNECTION.search(said) for said in heard):
            return SendResult("unknown", f"{why}; it may have arrived")
        return SendResult("not_sent", why)


def installed() -> bool:
    """Whether Apprise is to be had, without loading it."""
    return find_spec("apprise") is not None


def setting(name: str) -> str:
    """The setting of a channel.

    >>> setting("team-ops")
    'WAKEFUL_CHANNEL_TEAM_OPS'
    """
    return f"{PREFIX}CHANNEL_{name.upper().replace('-', '_')}"


def addressed(url: str, to: str | None) -> str:
    """The URL with its recipient in it, which can be nothing but that.

    >>> addressed("mailto://me:secret@example.com?to={to}", "ada@example.org&cc=eve@example.org")
    'mailto://me:secret@example.com?to=ada%40example.org%26cc%3Deve%40example.org'
    """
    return url.replace(TO, quote(to or "", safe=""))


def service_of(url: str, to: str | None) -> tuple[NotifyBase | None, list[str]]:
    """The service that Apprise sees in a URL, and what it warned of. Neither is for showing."""
    from apprise import Apprise

    with hushed() as heard:
        try:
            service = Apprise.instantiate(addressed(url, to), asset=_asset())
        except Exception:  # what it says may hold the URL: that it is not understood is all we tell
            service = None
    if service is not None:
        if not re.search(r"[?&]cto=", url):
            service.socket_connect_timeout = max(service.socket_connect_timeout, _PATIENCE)
        if not re.search(r"[?&]rto=", url):
            service.socket_read_timeout = max(service.socket_read_timeout, _PATIENCE)
    return service, heard


def _sent(service: NotifyBase, url: str, message: Message) -> bool:
    from apprise import Apprise

    title = message.title or (message.subject if url.lower().startswith("mailto") else "")
    with Apprise(service, asset=_asset()).notify(
        message.body, title, notify_type=message.kind, body_format="text"
    ) as result:
        return bool(result)


def _asset() -> AppriseAsset:
    """How Apprise is to go about it: in this thread alone, without pictures, and leaving nothing on disk."""
    from apprise import AppriseAsset

    return AppriseAsset(
        app_id="Wakeful",
        app_desc="Wakeful",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        image_path_mask="",
        async_mode=False,
        service_timeout=0,
        storage_mode="memory",
        allow_templates=False,
    )


def _why(heard: Sequence[str]) -> str:
    """Why a service did not take a message, of what Apprise says: only what cannot hold a secret.

    >>> _why(["Failed to send JSON notification: Page not found., error=404."])
    'the service answered HTTP 404'
    """
    for said in heard:
        status = _STATUS.search(said)
        if status:
            return f"the service answered HTTP {status[1]}"
    if any(_UNREACHED.search(said) for said in heard):
        return "the service could not be reached, or broke off"
    return _REFUSED
