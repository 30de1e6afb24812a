"""Configures the log of a server process: one handler on stderr for all that the process reports.

There are two formats: text for people, and one JSON object per line for collectors. Both format the records
of all loggers, also of other libraries: no message can forge a record. Tracebacks do not show variables: they
may contain secrets. With the JSON format the log includes warnings, errors that end the process or a thread,
and the errors of the command line, so that every line on stderr is an object.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Literal

from wakeful.logs import LogEvent, escape, get_logger, indent_lines
from wakeful.logs.redaction import redact
from wakeful.values.process_share import current_share

Format = Literal["console", "json"]

_CONSOLE: Final = "%(asctime)s %(levelname)-7s %(process_number)s%(name)s %(message)s"
#: Libraries whose details are of no use to an operator, and may contain credentials.
_QUIET: Final = (
    *("aiohttp", "apprise", "asyncio", "asyncpg", "h11", "httpcore", "httpx", "mcp", "opentelemetry"),
    *("requests", "sse_starlette", "urllib3", "uvicorn", "websockets", "wsproto"),
)

_handler: logging.Handler | None = None
#: The event of records of other libraries.
FOREIGN: Final = "log"

log = get_logger("wakeful.process")


def configure(format: Format, level: str = "info") -> bool:
    """Log to stderr in this format from this level on. A second call replaces the first.

    A process that has configured its root logger already keeps that configuration. Returns whether the
    process logs JSON now: then all that it writes to stderr should go through the log.
    """
    global _handler
    root = logging.getLogger()
    if _handler is not None:
        root.removeHandler(_handler)
        _handler = None
    if root.handlers:
        return False
    _handler = logging.StreamHandler(sys.stderr)
    as_json = format == "json"
    _handler.setFormatter(JsonFormatter() if as_json else ConsoleFormatter(_CONSOLE))
    root.addHandler(_handler)
    number: int = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(number)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(True)
    if as_json:
        sys.excepthook = _process_crashed
        threading.excepthook = _thread_crashed
        sys.unraisablehook = _unraisable
    return as_json


def log_failure(message: str) -> None:
    """Log the error that ends the command."""
    log.error("process.failed", error=message)


def log_notice(message: str) -> None:
    """Log a warning of the command line."""
    log.warning("process.warning", message=message)


def _process_crashed(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.warning("process.interrupted")
        return
    log.critical("process.crashed", exc_info=(kind, error, traceback))


def _thread_crashed(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        about = (args.exc_type, args.exc_value, args.exc_traceback)
        log.error("thread.crashed", thread=args.thread.name if args.thread else None, exc_info=about)


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        about = (args.exc_type, args.exc_value, args.exc_traceback)
        log.error("process.unraisable", error=args.err_msg, object=repr(args.object), exc_info=about)


def requested_format(arguments: list[str], environment: Mapping[str, str]) -> str | None:
    """Return the format that the command line or the environment asks for, before either is checked.

    >>> requested_format(["serve", "--log-format=json"], {"WAKEFUL_LOG_FORMAT": "console"})
    'json'
    """
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option == "--log-format":
            return value
        if option.startswith("--log-format="):
            return option.partition("=")[2]
    return environment.get("WAKEFUL_LOG_FORMAT")


class ConsoleFormatter(logging.Formatter):
    """Formats a record as a line; a traceback follows on indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record: its first line, and the others indented."""
        share = current_share()
        record.__dict__["process_number"] = "" if share.alone else f"[{share.number}] "
        try:
            text = super().format(record)
        except Exception as error:  # a message that does not match its arguments
            text = f"{record.levelname} {record.name} {record.msg!r}: {type(error).__name__}"
        if not isinstance(record.msg, LogEvent) or record.exc_info:  # fields are redacted already
            text = redact(text)
        first, *others = text.split("\n")
        return "\n".join([escape(first), *indent_lines(others)])


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line: ASCII, so that no character can end the line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event = record.msg
        if isinstance(event, LogEvent):
            name, fields = event.name, dict(event.fields)
        else:
            name, fields = FOREIGN, {"message": redact(_message(record))}
        # These fields come first, and an event cannot set them.
        common: dict[str, object] = {
            "timestamp": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": name,
        }
        share = current_share()
        if not share.alone:
            common["process"] = share.number
        if traceback := self._traceback(record):
            fields["exception"] = redact(traceback)
        return _dumps(common | {key: value for key, value in fields.items() if key not in common})

    def _traceback(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info and record.exc_info[1] else ""
        return "\n".join(part for part in (trace or record.exc_text, record.stack_info) if part)


def _timestamp(created: float) -> str:
    """Return the time in UTC, in RFC 3339 with milliseconds.

    >>> _timestamp(1_741_392_000.0129)
    '2025-03-08T00:00:00.012Z'
    """
    seconds, millis = divmod(int(created * 1000), 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # a message that does not match its arguments
        return f"{record.msg!r}: {type(error).__name__}"


def _dumps(fields: dict[str, object]) -> str:
    try:
        return json.dumps(_finite(fields), default=repr)
    except Exception:  # circular or too deep
        return json.dumps({key: repr(value) for key, value in fields.items()})


def _finite(value: object) -> object:
    """Return the value without NaN and infinity, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
