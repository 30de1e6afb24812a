"""Structured logs: events with fields, redaction, and the formats of a server.

`log.info("run.skipped", reason="overlap", run_id=…)` goes through the standard library's loggers. A program
that embeds Wakeful configures the loggers `wakeful.…` by `logging`, as with any library: importing Wakeful
configures nothing. `wakeful.logs.setup` configures the process of `wakeful serve` and `wakeful worker`.

Events name the things that they concern by the same fields: `run_id`, `job_id`, `job` (its name), `agent`,
`workspace`, `attempt`, `worker` and, with tracing, `trace_id`. `docs/reference/logs.md` lists all events.

Values may come from users: names, errors, responses. In text, control characters are escaped and values with
spaces are quoted, so that no value can start a line, add a field or control a terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from wakeful.logs.redaction import redact_fields

#: The indent of every line of a record after the first.
_INDENT: Final = "    "
_NO_FIELDS: Final[Mapping[str, object]] = MappingProxyType({})


class LogEvent:
    """The message of a log record: `str` returns it as text, and formatters read its fields.

    >>> event = LogEvent("run.failed", {"job": "a", "error": "exit 3\\nevent=forged"})
    >>> str(event)
    'event=run.failed job=a error="exit 3\\\\nevent=forged"'
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        """Return `event=… key=value …`."""
        named = {"event": self.name, **self.fields}
        return " ".join(f"{escape(key)}={_value(value)}" for key, value in named.items())


class EventLogger:
    """Writes events to a logger of the standard library, with the fields that it is bound to.

    `log.info("run.skipped", reason="overlap")`. A field that is None is left out. Values are redacted before
    any handler sees them. `exc_info` is that of the record, as handlers expect it; formatters add its
    traceback.
    """

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object] = _NO_FIELDS) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, /, **fields: object) -> EventLogger:
        """Return a logger whose events have these fields too."""
        return EventLogger(self._logger, {**self._fields, **fields})

    def new(self, /, **fields: object) -> EventLogger:
        """Return a logger whose events have these fields only."""
        return EventLogger(self._logger, fields)

    def unbind(self, *names: str) -> EventLogger:
        """Return a logger whose events have these fields no more."""
        return EventLogger(self._logger, {key: self._fields[key] for key in self._fields if key not in names})

    def debug(self, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an event that only shows how the program works."""
        self._write(logging.DEBUG, event, args, fields)

    def info(self, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an ordinary event."""
        self._write(logging.INFO, event, args, fields)

    def warning(self, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an event that somebody should know of."""
        self._write(logging.WARNING, event, args, fields)

    def error(self, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an error."""
        self._write(logging.ERROR, event, args, fields)

    def exception(self, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, args, {"exc_info": True, **fields})

    def critical(self, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an error that ends the process."""
        self._write(logging.CRITICAL, event, args, fields)

    #: The other names that loggers of Python have.
    warn, fatal, try_unbind = warning, critical, unbind

    def log(self, level: int, event: str = "", /, *args: object, **fields: object) -> None:
        """Write an event at a level of the standard library."""
        self._write(level, event, args, fields)

    def isEnabledFor(self, level: int) -> bool:
        """Return whether events of this level are written."""
        return self._logger.isEnabledFor(level)

    def _write(self, level: int, event: str, args: tuple[object, ...], fields: Mapping[str, object]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        given = {key: value for key, value in {**self._fields, **fields}.items() if value is not None}
        named = given.pop("event", "")  # a field cannot replace the name of the event
        if args:
            given["positional_args"] = args
        exc_info: Any = given.pop("exc_info", None) or False
        stack_info = bool(given.pop("stack_info", False))
        record = LogEvent(str(event or named), redact_fields(given))
        self._logger.log(level, record, exc_info=exc_info, stack_info=stack_info, stacklevel=3)


def get_logger(name: str) -> EventLogger:
    """Return the logger of that name."""
    return EventLogger(logging.getLogger(name))


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


def indent_lines(lines: list[str]) -> Iterator[str]:
    """Return the lines after the first of a record: escaped and indented, so that none starts a record."""
    for line in lines:
        text = escape(line)
        yield text if text.startswith(_INDENT) else _INDENT + text


def _value(value: object) -> str:
    if not isinstance(value, str):
        return escape(repr(value))
    text = escape(value)
    if text and " " not in text and '"' not in text:
        return text
    return '"' + text.replace('"', '\\"') + '"'
