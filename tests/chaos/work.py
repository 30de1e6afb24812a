"""What a replica does: one function that all jobs have for their target, as quick or slow as they say."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.launches import Journal
from wakeful import EngineConfig, Launch, Wakeful
from wakeful.planning import Limits

LEAD_MS = 50
BEAT_MS = 200
LEASE_MS = 1_500
#: Leases so short, and passes so small, that a run of seconds sees what otherwise takes hours.
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
    """A replica that journals its launches, by a clock that tells the truth.

    A job's payload says how its function behaves: `ms` is how long it takes, `fails` is how many attempts
    of a hundred fail.
    """
    app = Wakeful(url, config=config, grace=1.0)
    journal = Journal(journal_file, clock_ns)

    @app.function("work")
    async def work(run: Launch) -> None:
        assert app._engine is not None
        journal.begin(run, app._engine.worker_name)
        payload: Any = run.payload or {}
        end = "cut"
        try:
            await asyncio.sleep(payload.get("ms", 0) / 1000)
            if fails(run.idempotency_key, run.attempt, payload.get("fails", 0)):
                end = "failed"
                raise RuntimeError("it was to fail")
            end = "succeeded"
        finally:
            journal.end(run, end)

    return app


def fails(key: str, attempt: int, of_a_hundred: int) -> bool:
    """Whether this attempt is one that fails."""
    return hashlib.sha256(f"{key} {attempt}".encode()).digest()[0] * 100 < of_a_hundred * 256
