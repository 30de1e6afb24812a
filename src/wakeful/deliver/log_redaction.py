"""Keeps URLs out of the logs while a message is sent: a URL is a credential.

Apprise and its HTTP clients report errors only in their logs, which may contain the URL. So these records are
captured and not logged. Outside of `capture_logs` nothing changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

#: The packages whose loggers may log URLs.
_PACKAGES: Final = ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib", "paho", "slixmpp")

_captured: ContextVar[list[str] | None] = ContextVar("wakeful_captured", default=None)


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
