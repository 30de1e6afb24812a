"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# On a busy machine, an example or its generation may take any time.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
