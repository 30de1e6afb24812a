"""Settings for all tests."""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

# On a busy machine, an example or its generation may take any time.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_collection_finish() -> None:
    """Exclude the loaded modules and tests from garbage collection, for speed."""
    gc.collect()
    gc.freeze()
