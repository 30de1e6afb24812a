"""The event loop of the server: asyncio's own, or uvloop, which is faster with many connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

from wakeful.errors import InvalidArgument
from wakeful.settings import PREFIX, Settings

T = TypeVar("T")


def run(settings: Settings, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop, as `asyncio.run`."""
    factory = None
    if settings.event_loop == "uvloop":
        try:
            factory = import_module("uvloop").new_event_loop
        except ImportError as error:
            main.close()
            raise InvalidArgument(
                f"{PREFIX}EVENT_LOOP=uvloop: uvloop is not installed; run: pip install 'wakeful[uvloop]'"
            ) from error
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
