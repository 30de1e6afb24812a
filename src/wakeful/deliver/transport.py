"""Watches the network and the logs while Apprise sends a message.

Apprise returns only whether a service accepted a message. A message that was not accepted can be sent again;
one that was sent without a response may have arrived, and must not be. So the HTTP and SMTP clients of
Apprise (`requests`, `smtplib`) are patched once, when the first message is sent. Calls outside of `watch`
are unchanged.

Apprise and its HTTP clients report errors only in their logs, which may contain the URL, and a URL is a
credential. So these records are captured and not logged. Outside of `capture_logs` nothing changes.
"""

from __future__ import annotations

import logging
import smtplib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from apprise import NotifyBase

#: The clients that are watched, as plugins import them.
_CLIENTS: Final = ("requests", "smtplib")
_OK: Final = 250
#: The packages whose loggers may log URLs.
_PACKAGES: Final = ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib", "paho", "slixmpp")

_captured: ContextVar[list[str] | None] = ContextVar("wakeful_captured", default=None)


@dataclass(slots=True)
class Transport:
    """The network facts about one message."""

    #: a service accepted the message, one part of it, or it for one recipient
    accepted: bool = False
    #: a request was sent whole, and no whole response came back
    unanswered: bool = False
    #: of the request that is in progress: whether it was sent whole
    sent: bool = False
    #: of the SMTP command that is in progress: how often something was sent
    writes: int = 0


_current: Final[ContextVar[Transport | None]] = ContextVar("wakeful_transport", default=None)
_lock: Final = Lock()
_patched = False


@contextmanager
def watch(service: NotifyBase) -> Iterator[Transport]:
    """Record what this service sends, in this thread, until the end of the block."""
    _patch()
    transport = Transport()
    mark_delivered = service.mark_delivered

    def mark(*args: Any, **kwargs: Any) -> None:
        # Apprise calls it for each part of a message, and each recipient, that a service accepted.
        transport.accepted = True
        mark_delivered(*args, **kwargs)

    service.mark_delivered = mark  # type: ignore[method-assign]
    token = _current.set(transport)
    try:
        yield transport
    finally:
        _current.reset(token)
        service.mark_delivered = mark_delivered  # type: ignore[method-assign]


def is_watched(service: NotifyBase) -> bool:
    """Return whether this service uses a client that is watched."""
    modules = (sys.modules.get(each.__module__) for each in type(service).__mro__)
    return any(hasattr(module, client) for module in modules for client in _CLIENTS)


def _patch() -> None:
    global _patched
    with _lock:
        if _patched:
            return
        from requests import Session
        from urllib3.connection import HTTPConnection

        Session.send = _session_send(Session.send)  # type: ignore[method-assign]
        HTTPConnection.request = _connection_request(HTTPConnection.request)  # type: ignore[method-assign]
        smtplib.SMTP.data = _smtp_data(smtplib.SMTP.data)  # type: ignore[method-assign]
        smtplib.SMTP.send = _smtp_send(smtplib.SMTP.send)  # type: ignore[method-assign]
        _patched = True


def _session_send(original: Any) -> Any:
    @wraps(original)
    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        transport = _current.get()
        if transport is None:
            return original(self, *args, **kwargs)
        transport.sent = False
        try:
            return original(self, *args, **kwargs)
        except BaseException:
            transport.unanswered = transport.unanswered or transport.sent
            raise

    return send


def _connection_request(original: Any) -> Any:
    @wraps(original)
    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)  # connects, and sends the headers and the body
        transport = _current.get()
        if transport is not None:
            transport.sent = True
        return result

    return request


def _smtp_data(original: Any) -> Any:
    @wraps(original)
    def data(self: Any, *args: Any, **kwargs: Any) -> Any:
        transport = _current.get()
        if transport is None:
            return original(self, *args, **kwargs)
        transport.writes = 0
        try:
            code, reply = original(self, *args, **kwargs)
        except BaseException:
            # First the command is sent, then the mail. Without its last line the server drops the mail.
            transport.unanswered = transport.unanswered or transport.writes > 1
            raise
        transport.accepted = transport.accepted or code == _OK
        return code, reply

    return data


def _smtp_send(original: Any) -> Any:
    @wraps(original)
    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        original(self, *args, **kwargs)
        transport = _current.get()
        if transport is not None:
            transport.writes += 1

    return send


class _CaptureFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        captured = _captured.get()
        if captured is None:
            return True
        if record.levelno >= logging.WARNING:
            try:
                captured.append(record.getMessage())
            except Exception:  # a record that cannot be formatted
                captured.append("")
        return False


_FILTER: Final = _CaptureFilter()


@contextmanager
def capture_logs() -> Iterator[list[str]]:
    """Capture the records of these packages in this context; the list gets the warnings.

    They may contain credentials: use them to find the cause, and do not show them.
    """
    # A logger is created when its module is loaded, which may be only now, so the filter is added each time.
    # It applies to one logger, not to those below it.
    for name in [*logging.root.manager.loggerDict, *_PACKAGES]:
        if name.partition(".")[0] in _PACKAGES:
            logging.getLogger(name).addFilter(_FILTER)
    captured: list[str] = []
    token = _captured.set(captured)
    try:
        yield captured
    finally:
        _captured.reset(token)
