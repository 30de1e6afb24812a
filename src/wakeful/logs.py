"""Logs: an event, and what is known of it, through the standard library's loggers.

`log.info("run.skipped", reason="overlap", job="digest")`: the event is a word for machines, the rest is
its reason. A program that embeds Wakeful decides where they go, by `logging`, as with any library; loggers
are named `wakeful.…`. Nothing of a traceback's variables is shown: they may hold secrets.

Values may be text of anybody: a name, an error, an answer. Control characters in them are escaped and values
with spaces are quoted, so that no value can start a line of its own, add a field or command a terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import structlog

#: Starts every line of a record after the first: a line of the log without it starts a record.
_INDENT: Final = "    "


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of that name, under `wakeful`."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger


def render(logger: object, method: str, fields: MutableMapping[str, Any]) -> str:
    """One line `event=… key=value …`; a traceback follows on indented lines.

    >>> render(None, "info", {"job": "a", "event": "run.failed", "error": "exit 3\\nevent=forged"})
    'event=run.failed job=a error="exit 3\\\\nevent=forged"'
    """
    exception = fields.pop("exception", None)
    ordered = {"event": fields.pop("event", ""), **fields}
    line = " ".join(f"{escape(key)}={_value(value)}" for key, value in ordered.items())
    return line if exception is None else "\n".join([line, *_indented(str(exception).split("\n"))])


def escape(text: str) -> str:
    """Text on one line, without characters that command a terminal or cannot be seen.

    >>> escape("grün\\x1b[31m\\n")
    'grün\\\\x1b[31m\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


class ConsoleFormatter(logging.Formatter):
    """Formats records of all loggers, other libraries' too; no message can forge a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record: its first line, and the others indented."""
        first, *others = super().format(record).split("\n")
        return "\n".join([escape(first), *_indented(others)])


def _value(value: object) -> str:
    if not isinstance(value, str):
        return escape(repr(value))
    text = escape(value)
    if text and " " not in text and '"' not in text:
        return text
    return '"' + text.replace('"', '\\"') + '"'


def _indented(lines: list[str]) -> Iterator[str]:
    for line in lines:
        text = escape(line)
        yield text if text.startswith(_INDENT) else _INDENT + text
