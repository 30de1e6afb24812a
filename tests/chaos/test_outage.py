"""An unavailable database is polled at a limited rate."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from wakeful import EngineConfig, Wakeful
from wakeful.errors import Unavailable


async def test_calls_to_an_unavailable_database_are_retried_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def away(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise Unavailable("the database is away")

    async with Wakeful(f"sqlite:///{tmp_path}/wakeful.db", config=EngineConfig(tick_ms=100)) as app:
        for call in ("plan", "take", "release"):
            monkeypatch.setattr(app.store, call, away)
        await asyncio.sleep(1)
        monkeypatch.undo()
    assert 1 <= asked <= 40
