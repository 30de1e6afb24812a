"""The server while another process holds the write lock of its SQLite file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.conftest import QUICK, SELDOM
from tests.support.api_client import HOME, JOBS, served
from tests.support.lock_holder import lock_held
from wakeful import Wakeful
from wakeful.store.sqlite import SqliteStore


async def test_reads_are_answered_and_writes_are_unavailable(tmp_path: Path):
    path = tmp_path / "wakeful.db"
    app = Wakeful(store=SqliteStore(path, busy_ms=500), config=QUICK, secret_key="a key for tests")
    async with app, served(app) as ask:
        await ask("POST", JOBS, {"name": "before", "schedule": SELDOM})
        with lock_held(path):
            writes = [
                asyncio.create_task(ask("POST", JOBS, {"name": f"job-{n}", "schedule": SELDOM}))
                for n in range(20)
            ]
            for path_ in (JOBS, f"{JOBS}/before", f"{HOME}/runs", f"{HOME}/status", "/readyz"):
                assert (await ask("GET", path_)).status == 200
            for answer in await asyncio.gather(*writes):
                assert (answer.status, answer.body["code"]) == (503, "unavailable")
        assert (await ask("POST", JOBS, {"name": "after", "schedule": SELDOM})).status == 201
        listed = (await ask("GET", JOBS)).body["jobs"]
    assert {job["name"] for job in listed} == {"before", "after"}
