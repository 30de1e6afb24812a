"""Settings for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.effort import FULL, cases
from wakeful.values import ids

# On a busy machine, an example or its generation may take any time. Each run of `make test` tries the
# same examples, so that a change is judged by what it changes; `make test-full` looks for new ones.
settings.register_profile(
    "busy",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not FULL,
    max_examples=cases(100, 100),
)
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _ids_of_now() -> Iterator[None]:
    """Let the ids that a test creates have its time, whatever the clock of the test before it showed."""
    yield
    ids._last_ms, ids._count, ids._prefix = 0, 0, ""
