"""The limit of open files: raised at the start, and divided between HTTP and the engine.

Each connection is an open file, and the engine needs open files for database connections, webhooks and the
pipes of commands. A share of the limit is reserved for the engine, so that clients cannot use it up.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Final

from wakeful.logs import get_logger
from wakeful.settings import Settings

if sys.platform != "win32":  # Windows has no such limit
    import resource

#: Open files of the engine beside those of runs: databases, logs, listeners, libraries.
_ENGINE_FILES: Final = 128
#: A larger limit is useless, and some programs close every possible file when they start.
_MOST_FILES: Final = 1 << 20
#: Open files of one run, at most: the three pipes of a command.
_FILES_PER_RUN: Final = 3

log = get_logger("wakeful.server")


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files of this process to the hard limit, or to a million."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return
    with contextlib.suppress(OSError, ValueError):  # macOS refuses more than its own maximum
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        log.info("server.open_files", limit=limit, was=soft)


def connection_limit(settings: Settings) -> int | None:
    """Return the limit of open HTTP connections; None: unlimited.

    It is `max_http_connections`, or what the limit of open files leaves besides the engine, if that is less.
    """
    configured = settings.max_http_connections or None
    if sys.platform == "win32":
        return configured
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return configured
    free = files - min(files // 2, engine_files(settings))
    return free if configured is None else min(configured, free)


def engine_files(settings: Settings) -> int:
    """Return the number of open files that the engine needs when every lane is full."""
    lanes = [settings.lane_main, settings.lane_subagent, settings.lane_team, settings.lane_cron]
    return _ENGINE_FILES + _FILES_PER_RUN * sum([*lanes, *settings.lanes.values()])
