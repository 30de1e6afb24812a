"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.effort import FULL, cases

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
