"""Silence while a message is on its way: whoever carries it may log its URL, and that is a credential.

Apprise, and what it speaks to services with, tell why something went wrong only in their logs. So these are
heard here, and go no further; what they say at other times is none of our business.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

#: Whose loggers hear of URLs: those of these packages.
_TALKATIVE: Final = ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib", "paho", "slixmpp")

_heard: ContextVar[list[str] | None] = ContextVar("wakeful_heard", default=None)


class _Hush(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        heard = _heard.get()
        if heard is None:
            return True
        if record.levelno >= logging.WARNING:
            try:
                heard.append(record.getMessage())
            except Exception:  # a line that cannot be written says nothing, and harms nobody
                heard.append("")
        return False


_HUSH: Final = _Hush()


@contextmanager
def capture_logs() -> Iterator[list[str]]:
    """Nothing is logged meanwhile, in this context; the warnings that would have been are in the list.

    They may hold credentials: they are for judging what went wrong, never for showing.
    """
    # A logger is made when its module is loaded, which may be only now: so each time we look anew. Filters
    # hold for one logger and not for those below it.
    for name in [*logging.root.manager.loggerDict, *_TALKATIVE]:
        if name.partition(".")[0] in _TALKATIVE:
            logging.getLogger(name).addFilter(_HUSH)
    heard: list[str] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)
