"""Structured logs through the standard library's loggers.

`log.info("run.skipped", reason="overlap", job="digest")`: the event is machine-readable, the fields are its
details. A program that embeds Wakeful configures the loggers `wakeful.…` by `logging`, as with any library.
Tracebacks do not show variables: they may contain secrets.

Values may come from users: names, errors, responses. Control characters are escaped and values with spaces
are quoted, so that no value can start a line, add a field or control a terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import structlog

#: The indent of every line of a record after the first.
_INDENT: Final = "    "


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of that name."""
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
    """Return a line `event=… key=value …`; a traceback follows on indented lines.

    >>> render(None, "info", {"job": "a", "event": "run.failed", "error": "exit 3\\nevent=forged"})
    'event=run.failed job=a error="exit 3\\\\nevent=forged"'
    """
    exception = fields.pop("exception", None)
    ordered = {"event": fields.pop("event", ""), **fields}
    line = " ".join(f"{escape(key)}={_value(value)}" for key, value in ordered.items())
    return line if exception is None else "\n".join([line, *_indented(str(exception).split("\n"))])


def escape(text: str) -> str:
    """Return the text on one line, with control characters and invisible characters escaped.

    >>> escape("grün\\x1b[31m\\n")
    'grün\\\\x1b[31m\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


class ConsoleFormatter(logging.Formatter):
    """Formats records of all loggers, also of other libraries. No message can forge a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record: its first line, and the others indented."""
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
