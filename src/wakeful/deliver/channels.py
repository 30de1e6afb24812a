"""Channels: names that the operator gives to the Apprise URLs of messaging services.

    WAKEFUL_CHANNEL_TEAM_OPS=slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnl/#ops
    WAKEFUL_CHANNEL_TELEGRAM=tgram://123456789:abcdefg/{to}

`{to}` in a URL is replaced by the recipient, encoded so that it changes nothing else. A URL is a credential:
it appears in no log, no error and no repr, and log messages of Apprise are not shown.

Apprise is loaded only if there is a channel: it is large, and optional (`wakeful[deliver]`).
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import quote

from wakeful.deliver.transport import capture_logs, is_watched, watch
from wakeful.errors import InvalidArgument
from wakeful.logs import get_logger
from wakeful.settings import PREFIX
from wakeful.values.package import install_command

if TYPE_CHECKING:
    from apprise import AppriseAsset, NotifyBase

#: The kinds of messages, which services show as colours or icons.
KINDS: Final = ("info", "success", "warning", "failure")
#: The placeholder of the recipient in a URL.
TO: Final = "{to}"
#: Users of the server see it, so it names no directory of the server.
NOT_INSTALLED: Final = (
    "channels need Apprise, which is not installed; the operator of the server installs the extra 'deliver'"
)
#: The connect and read timeouts in seconds, unless the URL sets them (`cto`, `rto`).
_TIMEOUT_S: Final = 10.0
#: Sample recipients: a URL is valid if it accepts one of them.
_SAMPLES: Final = ("someone", "someone@example.com", "+15551234567", "123456789", "0123456789abcdef")
#: Seconds before each further try of a part that was not accepted, after others were.
_PART_PAUSES_S: Final = (1.0, 5.0, 15.0)
_PARTLY: Final = "only {} of {} parts were accepted: {}; it is not sent again"
#: The most characters in a block of Slack, which Apprise does not count (`blocks=yes`).
_SLACK_BLOCK: Final = 3_000
#: The scheme of Telegram, for which Apprise counts HTML that it does not send.
_TELEGRAM: Final = "tgram"
_HTML_BREAK: Final = re.compile(r"<br ?/>(\r\n)?")
#: Entities that Telegram does not know, and what they stand for.
_NOT_OF_TELEGRAM: Final = {"&nbsp;": " ", "&emsp;": "\t", "&apos;": "'"}
#: The room for what Apprise writes behind a title that is the first line of the message.
_TITLE_END: Final = 16
_STATUS: Final = re.compile(r"\berror=([1-5]\d\d)\b")
#: log messages of Apprise if nothing was sent, of services that use neither HTTP nor SMTP
_NO_CONNECTION: Final = re.compile(
    r"could not (connect|be established)|failed to (establish|connect)|unable to connect|no \w+ targets", re.I
)
_REFUSED: Final = (
    "the service did not accept it; try the URL with Apprise's command line, which shows the reason"
)
_UNREACHED: Final = re.compile(r"\b(connection error|socket error|timed? ?out|could not connect)\b", re.I)
#: The most parts of a message: more of them take longer to send than a delivery may.
MAX_PARTS: Final = 20
#: The end of the last part if the message is longer than all parts.
CUT: Final = "… (cut)"
_JOINER: Final = "\u200d"
#: How far a part is shortened so that it does not end inside a character of several code points.
_LONGEST_CHARACTER: Final = 32
#: Characters that are longer where the service takes markup, which most do.
_SIZES: Final = {"\n": 2, "&": 5, "<": 4, ">": 4}
#: The same for services that take HTML.
_HTML_SIZES: Final = {**_SIZES, "\n": 6, " ": 6, "\t": 6, '"': 6, "'": 6}

log = get_logger("wakeful.deliver")


class ChannelMessage(NamedTuple):
    """A message. A service without titles shows the title as the first line."""

    title: str
    body: str
    #: of `KINDS`
    kind: str = "info"
    #: the subject of a mail without a title
    subject: str = ""


class SendResult(NamedTuple):
    """The result of sending a message."""

    #: `not_sent`: it did not arrive, and can be sent again. `unknown`: it may have arrived, or a part of it
    outcome: Literal["accepted", "not_sent", "unknown"]
    error: str = ""


ACCEPTED: Final = SendResult("accepted")


class ChannelSender:
    """The channels of this process, by name. Raises InvalidArgument for a URL that Apprise does not know."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = dict(urls)
        if not self._urls:
            return
        if not apprise_installed():
            fix = install_command("deliver")
            log.warning("channels.unavailable", channels=self.names, reason=NOT_INSTALLED, fix=fix)
            return
        for name, url in self._urls.items():
            samples = _SAMPLES if TO in url else (None,)
            if all(parse_service(url, sample)[0] is None for sample in samples):
                raise InvalidArgument(
                    f"{setting_name(name)}: Apprise does not understand this URL (not shown: it is a "
                    "credential); see https://appriseit.com for the URLs of services"
                )

    @property
    def names(self) -> list[str]:
        """The names of the channels, sorted."""
        return sorted(self._urls)

    def check(self, name: str, to: str | None) -> None:
        """Raise InvalidArgument for an unknown channel, or a recipient that it does not accept."""
        if not apprise_installed():
            raise InvalidArgument(f"channel: {NOT_INSTALLED}")
        url = self._urls.get(name)
        if url is None:
            known = f"there are {', '.join(self.names)}" if self._urls else "none is set"
            raise InvalidArgument(
                f"channel: there is no '{name[:64]}'; {known} (the operator sets them: {setting_name('…')})"
            )
        if TO not in url:
            if to is not None:
                raise InvalidArgument(
                    f"to: the channel '{name}' has a fixed recipient; leave `to` out, or have the operator "
                    f"write {TO} into its URL"
                )
            return
        if to is None:
            raise InvalidArgument(f"to: the channel '{name}' needs a recipient; set `to`")
        # Dots are not encoded, and a path of dots would lead elsewhere.
        service, warnings = (
            (None, []) if not to.isprintable() or not to.strip(". ") else parse_service(url, to)
        )
        pieces = [piece for piece in re.split(r"[\s,;]+", to) if piece]
        if service is None or any(piece in warning for piece in pieces for warning in warnings):
            raise InvalidArgument(f"to: the channel '{name}' does not take '{to[:64]}' as a recipient")

    def send(self, name: str, to: str | None, message: ChannelMessage) -> SendResult:
        """Send a message and wait for the response of the service. Errors contain no secret.

        A message that is too long for the service is sent in parts, in order. It blocks up to the socket
        timeouts of each part: call it in a thread.
        """
        if not apprise_installed():
            return SendResult("not_sent", NOT_INSTALLED)
        url = self._urls.get(name)
        if url is None:
            return SendResult("not_sent", f"it is not set in this process ({setting_name(name)})")
        try:
            self.check(name, to)  # the operator may have changed the URL since the job was saved
            service, _ = parse_service(url, to)
        except InvalidArgument as error:
            return SendResult("not_sent", error.message)
        if service is None:
            return SendResult("not_sent", _REFUSED)
        # Wakeful retries on its own, and only if nothing can arrive twice.
        service.retry = 0
        parts = _parts(service, url, message)
        for number, part in enumerate(parts):
            result = _send_part(service, url, part)
            for pause_s in _PART_PAUSES_S if number else ():
                if result.outcome != "not_sent":
                    break
                time.sleep(pause_s)
                result = _send_part(service, url, part)
            if result.outcome != "accepted" and number:
                return SendResult("unknown", _PARTLY.format(number, len(parts), result.error))
            if result.outcome != "accepted":
                return result
        return ACCEPTED


def apprise_installed() -> bool:
    """Return whether Apprise is installed, without loading it."""
    return find_spec("apprise") is not None


def setting_name(name: str) -> str:
    """Return the name of the setting of a channel.

    >>> setting_name("team-ops")
    'WAKEFUL_CHANNEL_TEAM_OPS'
    """
    return f"{PREFIX}CHANNEL_{name.upper().replace('-', '_')}"


def url_with_recipient(url: str, to: str | None) -> str:
    """Return the URL with its recipient, encoded.

    >>> url_with_recipient("mailto://me:secret@example.com?to={to}", "ada@example.org&cc=eve@example.org")
    'mailto://me:secret@example.com?to=ada%40example.org%26cc%3Deve%40example.org'
    """
    return url.replace(TO, quote(to or "", safe=""))


def parse_service(url: str, to: str | None) -> tuple[NotifyBase | None, list[str]]:
    """Return the Apprise service of a URL, and the warnings. Both may contain credentials."""
    from apprise import Apprise

    with capture_logs() as logged:
        try:
            service = Apprise.instantiate(url_with_recipient(url, to), asset=_asset())
        except Exception:  # its text may contain the URL
            service = None
    if service is not None:
        if not re.search(r"[?&]cto=", url):
            service.socket_connect_timeout = max(service.socket_connect_timeout, _TIMEOUT_S)
        if not re.search(r"[?&]rto=", url):
            service.socket_read_timeout = max(service.socket_read_timeout, _TIMEOUT_S)
    return service, logged


def _parts(service: NotifyBase, url: str, message: ChannelMessage) -> list[ChannelMessage]:
    """Return the parts of a message in which the service accepts it. Only the first has the title.

    Mail and JSON have no limit that Apprise knows. `overflow` in a URL sets what Apprise does instead.
    """
    from apprise import NotifyBase, NotifyFormat, OverflowMode

    telegram = url.lower().startswith(_TELEGRAM)
    if telegram:
        _keep_blank_lines(service)
    if service.body_maxlen == NotifyBase.body_maxlen or re.search(
        r"[?&]overflow=(upstream|truncate)", url, re.I
    ):
        return [message]
    html = service.resolve_format("text") == NotifyFormat.HTML and not telegram
    if not telegram:
        # Apprise splits what becomes longer when it converts the text to the format of the service.
        service.overflow_mode = OverflowMode.SPLIT
    limit = service.body_maxlen
    if getattr(service, "use_blocks", False):
        limit = min(limit, _SLACK_BLOCK)
        service.body_maxlen = limit
    room = max(1, limit - len(message.title) - _TITLE_END if message.title else limit)
    first, *others = split_message(message.body, room, html=html)
    return [message._replace(body=first), *(message._replace(title="", body=other) for other in others)]


def _keep_blank_lines(service: NotifyBase) -> None:
    """Let the service of Telegram send text line by line; Apprise drops blank lines and indentation."""
    from apprise import NotifyFormat

    convert = service.dialect_convert

    def convert_text(
        body: str, body_format: NotifyFormat | None = None, *args: object, **options: object
    ) -> str:
        if body_format != NotifyFormat.HTML:
            return str(convert(body, body_format, *args, **options))
        body = _HTML_BREAK.sub("\n", body)
        for entity, text in _NOT_OF_TELEGRAM.items():
            body = body.replace(entity, text)
        return body

    service.dialect_convert = convert_text  # type: ignore[method-assign]


def _send_part(service: NotifyBase, url: str, message: ChannelMessage) -> SendResult:
    """Send one part and wait for the response of the service."""
    with capture_logs() as logged, watch(service) as transport:
        try:
            if _notify(service, url, message):
                return ACCEPTED
            why = _reason(logged)
        except Exception as error:
            # Its text, and its cause, may contain the URL.
            why = f"the channel cannot be used: {type(error).__name__}"
    if transport.accepted:
        return SendResult("unknown", "only a part was accepted; it is not sent again")
    if transport.unanswered:
        return SendResult("unknown", "it was sent without a response, so it may have arrived")
    if not is_watched(service) and not any(_NO_CONNECTION.search(line) for line in logged):
        return SendResult("unknown", f"{why}; it may have arrived")
    return SendResult("not_sent", why)


def _notify(service: NotifyBase, url: str, message: ChannelMessage) -> bool:
    from apprise import Apprise

    title = message.title or (message.subject if url.lower().startswith("mailto") else "")
    with Apprise(service, asset=_asset()).notify(
        message.body, title, notify_type=message.kind, body_format="text"
    ) as result:
        return bool(result)


def _asset() -> AppriseAsset:
    """Return the Apprise settings: this thread only, no images, nothing on disk."""
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


def _reason(logged: Sequence[str]) -> str:
    """Return why a message was not accepted, by the log of Apprise: only parts that contain no secret.

    >>> _reason(["Failed to send JSON notification: Page not found., error=404."])
    'the service responded with HTTP 404'
    """
    for line in logged:
        status = _STATUS.search(line)
        if status:
            return f"the service responded with HTTP {status[1]}"
    if any(_UNREACHED.search(line) for line in logged):
        return "the service could not be reached, or closed the connection"
    return _REFUSED


def split_message(text: str, limit: int, *, html: bool = False) -> list[str]:
    """Return the parts of a text, each at most `limit` long: whole lines, or else whole words, if possible.

    Lengths are those of escaped text in UTF-16, which services count, or which are longer than what they
    count; with `html`, those of the text as HTML. A text of more than `MAX_PARTS` parts is cut.

    >>> split_message("one\\ntwo three\\nfour", 10)
    ['one', 'two three', 'four']
    """
    parts: list[str] = []
    start = 0
    while (end := _window_end(text, start, limit, html=html)) < len(text):
        if len(parts) == MAX_PARTS - 1:
            end = _window_end(text, start, max(1, limit - len(CUT)), html=html)
            return [*parts, text[start:end].rstrip() + CUT]
        end = _cut(text, start, end)
        part = text[start:end].rstrip()
        if part:
            parts.append(part)
        start = end
        while start < len(text) and text[start] in "\r\n":
            start += 1
    rest = text[start:].rstrip()
    return [*parts, rest] if rest or not parts else parts


def _window_end(text: str, start: int, limit: int, *, html: bool) -> int:
    """Return the end of the longest part that starts here: at least one character."""
    sizes = _HTML_SIZES if html else _SIZES
    size, end = 0, start
    while end < len(text):
        char = text[end]
        size += sizes.get(char, 2 if char > "\uffff" else 1)
        if size > limit and end > start:
            break
        end += 1
    return end


def _cut(text: str, start: int, end: int) -> int:
    """Return where to end a part: after a line, after a word, or between two characters."""
    if text[end] in "\r\n":
        return end
    first = start
    while first < end and text[first].isspace():
        first += 1
    line = text.rfind("\n", first, end)
    if line >= 0:
        return line + 1
    for at in range(end, first, -1):
        if text[at].isspace():
            return at + 1
    for at in range(end, max(start, end - _LONGEST_CHARACTER), -1):
        if not _joins(text, at):
            return at
    return end


def _joins(text: str, at: int) -> bool:
    """Return whether the code points before and after this position are parts of one character."""
    before, after = text[at - 1], text[at]
    return (
        unicodedata.category(after).startswith("M")
        or _JOINER in (before, after)
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= after <= "\U000e007f"  # tags of flags
        or all("\U0001f1e6" <= each <= "\U0001f1ff" for each in (before, after))  # flags
    )
