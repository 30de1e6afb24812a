"""Settings for all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Exclude the loaded modules and tests from garbage collection, for speed."""
    gc.collect()
    gc.freeze()
