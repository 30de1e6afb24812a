"""For every test: what is there before the first of them stays to the end."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from looking through thousands of tests and modules again and again."""
    gc.collect()
    gc.freeze()
