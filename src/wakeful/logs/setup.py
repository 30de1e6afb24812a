"""Configures the log of a server process: one handler on stderr for all that the process reports.

With the JSON format this includes warnings, errors that end the process or a thread, and the errors of the
command line, so that every line on stderr is an object.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Literal

from wakeful.logs.events import get_logger
from wakeful.logs.formatters import ConsoleFormatter, JsonFormatter

Format = Literal["console", "json"]

_CONSOLE: Final = "%(asctime)s %(levelname)-7s %(process_number)s%(name)s %(message)s"
#: Libraries whose details are of no use to an operator, and may contain credentials.
_QUIET: Final = (
    *("aiohttp", "apprise", "asyncio", "asyncpg", "h11", "httpcore", "httpx", "mcp", "opentelemetry"),
    *("requests", "sse_starlette", "urllib3", "uvicorn", "websockets", "wsproto"),
)

log = get_logger("wakeful.process")
_handler: logging.Handler | None = None


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
