"""Launches for tests: an attempt with everything filled in, all but what the test is about."""

from __future__ import annotations

from collections.abc import Mapping

from wakeful.launch.port import Launch
from wakeful.values.json_value import Json

SCHEDULED_MS = 1_741_392_000_000  # 2025-03-08T00:00:00Z


def launch(
    target: Mapping[str, Json],
    payload: str | None = None,
    *,
    job: str | None = "digest",
    job_id: str | None = "j1",
    run_id: str = "r1",
    attempt: int = 1,
    scheduled_ms: int = SCHEDULED_MS,
    key: str = "5f" * 32,
    timeout_ms: int | None = None,
) -> Launch:
    """One attempt of a run, on its way to a target."""
    return Launch(
        run_id, job, job_id, "default", "default", payload, scheduled_ms, scheduled_ms, attempt,
        "schedule", key, target, timeout_ms,
    )  # fmt: skip
