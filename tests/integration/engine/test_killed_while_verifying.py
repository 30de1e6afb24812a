"""A replica that is killed during a check: another one checks the run again, and does not launch it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM
from tests.support.verifying_replica import build, replica
from tests.support.waiting import eventually, over
from wakeful import Function

CHECK: Any = {"kind": "function", "name": "check", "timeoutMs": 1_000}


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


@pytest.mark.slow
async def test_a_run_is_verified_again_and_not_launched_again(database: str, tmp_path: Path):
    journal = tmp_path / "journal"
    (tmp_path / f"journal.{os.getpid()}").touch()  # the check of this process ends at once
    observer = build(database, journal)
    await observer.store.open()  # without an engine
    await observer.jobs.create("report", schedule=SELDOM, target=Function("work"), verify=CHECK)
    with replica(database, journal) as process:
        run = await observer.jobs.run("report")
        await eventually(lambda: f"check {process.pid}" in lines(journal))
        process.kill()
        process.wait()
    await observer.store.close()
    async with build(database, journal) as other:
        ended = await over(other, run.id)
    assert (ended.state, ended.attempt, ended.output) == ("succeeded", 1, "done")
    assert lines(journal) == [
        f"launch {process.pid}", f"check {process.pid}", f"check {os.getpid()}",
    ]  # fmt: skip
