"""The application of a replica: one function that is the target of all jobs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.launches import Journal
from wakeful import EngineConfig, Launch, Wakeful
from wakeful.run.planning import Limits

LEAD_MS = 50
BEAT_MS = 200
#: The exit code of a process that a function has ended.
POISONED = 66
LEASE_MS = 1_500
#: Short leases and small passes, so that a test of seconds covers what otherwise takes hours.
PACE = EngineConfig(
    lanes={"cron": 50, "narrow": 3},
    limits=Limits(lookahead_ms=2_000, max_catchup=20, lead_ms=LEAD_MS),
    batch=200,
    heartbeat_ms=BEAT_MS,
    lease_ms=LEASE_MS,
)


def build(
    url: str, journal_file: Path, *, config: EngineConfig = PACE, clock_ns: Callable[[], int] = time.time_ns
) -> Wakeful:
    """Return a replica that journals its launches with the real time.

    The payload of a job sets the behavior of its function: `ms` is the duration, `fails` the percentage of
    failed attempts, `kills` that of attempts that end the process.
    """
    app = Wakeful(url, config=config, grace=1.0, allow_private_targets=True, secret_key="a key for tests")
    journal = Journal(journal_file, clock_ns)

    @app.function("work")
    async def work(run: Launch) -> None:
        assert app._engine is not None
        journal.begin(run, app._engine.worker_name)
        payload: Any = run.payload or {}
        end = "cut"
        try:
            await asyncio.sleep(payload.get("ms", 0) / 1000)
            if fails(f"kill {run.idempotency_key}", run.attempt, payload.get("kills", 0)):
                os._exit(POISONED)
            if fails(run.idempotency_key, run.attempt, payload.get("fails", 0)):
                end = "failed"
                raise RuntimeError("it was to fail")
            end = "succeeded"
        finally:
            journal.end(run, end)

    return app


def fails(key: str, attempt: int, of_a_hundred: int) -> bool:
    """Whether this attempt fails."""
    return hashlib.sha256(f"{key} {attempt}".encode()).digest()[0] * 100 < of_a_hundred * 256
