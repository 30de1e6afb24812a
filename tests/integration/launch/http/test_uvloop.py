"""The HTTP client with uvloop: the other tests of this directory that need no fixture."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.integration.launch.http import test_connections, test_framing

CASES = [
    function
    for module in (test_connections, test_framing)
    for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
    if name.startswith("test_") and not inspect.signature(function).parameters
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
def test_with_uvloop(case: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(case())


def test_there_are_cases() -> None:
    assert len(CASES) >= 11
