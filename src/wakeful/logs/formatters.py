"""The two formats of a server's log: text for people, and one JSON object per line for collectors.

Both format the records of all loggers, also of other libraries: no message can forge a record. Tracebacks do
not show variables: they may contain secrets.
"""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import Final

from wakeful.logs.events import LogEvent, escape, indented
from wakeful.logs.redaction import redact
from wakeful.values.process_share import current_share

#: The event of records of other libraries.
FOREIGN: Final = "log"


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
        return "\n".join([escape(first), *indented(others)])


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
