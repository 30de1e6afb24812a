"""The example of Celery beat, with its worker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.celery_commands import celery_command
from tests.support.paths import ROOT
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually, runs_of
from wakeful import EngineConfig, Run, Wakeful


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with the example."""
    shutil.copy(ROOT / "examples" / "celery_beat.py", tmp_path)
    return tmp_path


async def test_the_example_of_beat_records_the_result_of_each_tick(directory: Path, redis: RedisServer):
    programs = [_celery(directory, redis, *each) for each in (("worker", "--pool", "solo"), ("beat",))]
    try:
        await eventually(lambda: (directory / "wakeful.db").exists())
        reader = Wakeful(f"sqlite:///{directory / 'wakeful.db'}", config=EngineConfig())
        async with reader:
            # Only `beat` launches tasks: this process has no Celery app.
            ended = await eventually(lambda: _ended(reader))
            names = sorted(job.name for job in await reader.jobs.list())
        assert {(run.state, run.output) for run in ended} == {("succeeded", "the check is done")}
        assert names == ["digest", "each-second"]
    finally:
        for program in programs:
            program.send_signal(signal.SIGTERM)
        for program in programs:
            with suppress(subprocess.TimeoutExpired):
                program.wait(60)
            program.kill()
            program.wait()


async def _ended(app: Wakeful) -> list[Run]:
    """Return the runs that have ended, once there are two."""
    runs = [run for run in await runs_of(app, "each-second") if run.finished_at is not None]
    return runs if len(runs) >= 2 else []


def _celery(directory: Path, redis: RedisServer, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WAKEFUL_")}
    with (directory / f"{arguments[0]}.log").open("wb") as log:
        return subprocess.Popen(
            celery_command("-A", "celery_beat", *arguments),
            cwd=directory,
            env={**environment, "REDIS_URL": redis.url},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
