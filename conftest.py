"""How pytest collects: quickly, since every worker of a run collects all tests."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

#: How many new objects start a garbage collection, and how many of those a thorough one.
_SELDOM = (20_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection; then exclude the loaded modules and tests from it.

    The tests keep few objects, so a rare collection is enough.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_SELDOM)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out the modules without examples in their docstrings: importing and searching them takes long."""
    return [each for each in (yield) if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text()]
