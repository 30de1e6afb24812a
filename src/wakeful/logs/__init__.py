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
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, cast

from wakeful.logs.redaction import redact_fields

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

#: The indent of every line of a record after the first.
_INDENT: Final = "    "
_LEVELS: Final = {
    **{name.lower(): level for name, level in logging.getLevelNamesMapping().items()},
    "exception": logging.ERROR,
}


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


def get_logger(name: str) -> BoundLogger:
    """Return the logger of that name."""
    return cast("BoundLogger", _LazyLogger(name))


class _LazyLogger:
    """A logger of structlog that is made when the first event is written.

    structlog imports rich, which takes as long as the rest of Wakeful. Every module has a logger, and a
    program that only declares jobs or enqueues calls writes no event.
    """

    __slots__ = ("_bound", "_logger")

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self._bound: BoundLogger | None = None

    def __getattr__(self, method: str) -> Any:
        level = _LEVELS.get(method)
        if level is not None and not self._logger.isEnabledFor(level):
            return _ignore
        if self._bound is None:
            self._bound = _wrap(self._logger)
        return getattr(self._bound, method)


def _ignore(event: str | None = None, *args: object, **fields: object) -> None:
    """Write no event: its level is off."""


def prepare_loggers() -> None:
    """Import structlog now: in a process that launches runs, the first event must not hold them up."""
    import structlog  # noqa: F401


def _wrap(logger: logging.Logger) -> BoundLogger:
    import structlog

    bound: BoundLogger = structlog.wrap_logger(
        logger,
        processors=[structlog.stdlib.filter_by_level, _to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return bound


def _to_record(
    logger: object, method: str, fields: MutableMapping[str, Any]
) -> tuple[tuple[LogEvent], dict[str, Any]]:
    """Return the arguments for the logger of the standard library. Fields that are None are left out.

    An exception stays the record's own, as handlers expect it; formatters add its traceback.
    """
    exc_info = fields.pop("exc_info", None) or False
    name = str(fields.pop("event", ""))
    known = redact_fields({key: value for key, value in fields.items() if value is not None})
    return (LogEvent(name, known),), {"exc_info": exc_info}


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
