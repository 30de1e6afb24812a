"""How pytest collects: quickly, since every worker of a run collects all tests, and the longest first."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

#: How many new objects start a garbage collection, and how many of those a thorough one.
_SELDOM = (20_000, 20, 20)

#: Tests that take half a minute.
_LONGEST = (
    "tests/store/postgres/test_versions.py",
    "tests/integration/docs/test_docs.py::test_the_examples_of_a_page_run_in_order[README.md]",
    "tests/chaos/",
)


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests: else one worker runs them at the end while the others have no work."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out the modules without examples in their docstrings: importing and searching them takes long."""
    return [each for each in (yield) if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text()]
