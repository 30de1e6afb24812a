"""Logs: an event, and what is known of it, through the standard library's loggers.

`log.info("run.skipped", reason="overlap", job="digest")`: the event is a word for machines, the rest is
its reason. A program that embeds Wakeful decides where they go, by `logging`, as with any library; loggers
are named `wakeful.…`. Nothing of a traceback's variables is shown: they may hold secrets.
"""

from __future__ import annotations

import logging

import structlog


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of that name, under `wakeful`."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(
                key_order=["event"], drop_missing=True, repr_native_str=False
            ),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger
