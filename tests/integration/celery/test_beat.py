"""`celery beat` with `wakeful.celery:Scheduler`, in processes of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.celery.conftest import lines
from tests.integration.conftest import STORES, NewApp, on_one_store
from tests.support.celery_commands import celery_command
from tests.support.celery_worker import CeleryWorker
from tests.support.paths import ROOT
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually, over, runs_of
from wakeful import CeleryTask, Echo, Wakeful
from wakeful.errors import NotFound


class Beats:
    """Starts `celery beat` on one database."""

    def __init__(self, database: str, redis: RedisServer, directory: Path) -> None:
        self._database = database
        self._redis = redis
        self._directory = directory
        self._count = 0
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, schedule: Mapping[str, Any]) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a beat with these entries. Returns it, and its log."""
        self._count += 1
        base = self._directory / f"beat-{self._count}"
        base.with_suffix(".json").write_text(json.dumps(schedule))
        log = base.with_suffix(".log")
        with log.open("wb") as file:
            process = subprocess.Popen(
                celery_command(
                    *("-A", "tests.support.beat_schedule:app", "beat", "--loglevel", "info"),
                    *("--pidfile", ""),
                ),
                cwd=ROOT,
                env={
                    **os.environ,
                    "TEST_REDIS": self._redis.url,
                    "TEST_DATABASE": self._database,
                    "TEST_SCHEDULE": str(base.with_suffix(".json")),
                    "TEST_READY": str(base.with_suffix(".ready")),
                },
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process, log

    async def ready(self, schedule: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Start a beat, and wait until its engine runs."""
        process, log = self.start(schedule)

        def look() -> bool:
            assert process.poll() is None, log.read_text()
            return log.with_suffix(".ready").exists()

        await eventually(look)
        return process


@pytest.fixture
def beats(database: str, shared_redis: RedisServer, tmp_path: Path) -> Iterator[Beats]:
    started = Beats(database, shared_redis, tmp_path)
    yield started
    for process in started.processes:
        process.kill()
        process.wait()


async def _names(app: Wakeful) -> list[str]:
    return sorted(job.name for job in await app.jobs.list())


@on_one_store
async def test_two_beats_send_each_tick_once_also_if_one_is_killed(
    beats: Beats, new_app: NewApp, worker: CeleryWorker, tmp_path: Path
):
    journal = tmp_path / "journal"
    schedule = {"Each second": {"task": "tests.record", "schedule": 1, "args": [str(journal)]}}
    first = await beats.ready(schedule)
    second = await beats.ready(schedule)
    async with new_app() as app:
        assert await _names(app) == ["each-second", "morning"]
        morning = await app.jobs.get("morning")
        assert (morning.target, morning.labels) == (
            CeleryTask("tests.add", args=[1, 2]).to_json(),
            {"celery-beat": "beat-tests"},
        )
        assert morning.next_at is not None
        await eventually(lambda: len(lines(journal)) >= 1)
        first.kill()
        first.wait()
        seen = len(lines(journal))
        await eventually(lambda: len(lines(journal)) > seen)
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 0
        runs = await runs_of(app, "each-second")
        assert len({run.scheduled_at for run in runs}) == len(runs)
        assert len(lines(journal)) <= len(runs)


@on_one_store
async def test_a_beat_that_starts_again_after_a_pause_sends_one_task(
    beats: Beats, new_app: NewApp, worker: CeleryWorker, tmp_path: Path
):
    journal = tmp_path / "journal"
    schedule = {"Each second": {"task": "tests.record", "schedule": 1, "args": [str(journal)]}}
    first = await beats.ready(schedule)
    await eventually(lambda: len(lines(journal)) >= 1)
    first.kill()
    first.wait()
    killed = datetime.now(UTC)
    await asyncio.sleep(3)  # the pause, besides the time that the next beat takes to start
    sent = len(lines(journal))
    await beats.ready(schedule)
    await eventually(lambda: len(lines(journal)) > sent)
    async with new_app() as app:
        late = [run for run in await runs_of(app, "each-second") if run.scheduled_at > killed]
        began = min(run.started_at for run in late if run.started_at is not None)
        due = [run for run in late if run.scheduled_at <= began]
        assert began - killed > timedelta(seconds=3)
        assert len([run for run in due if run.started_at is not None]) == 1
        assert {run.reason for run in due if run.started_at is None} == {"newer_tick_runs"}


@on_one_store
async def test_entries_that_are_removed_lose_their_jobs_and_others_keep_their_pause(
    beats: Beats, new_app: NewApp, shared_redis: RedisServer
):
    entry = {"task": "tests.add", "schedule": 3_600, "args": [1, 2]}
    async with new_app() as app:
        await app.jobs.create("by-hand", schedule="@daily", target=Echo())
        beat = await beats.ready({"a": entry, "b": entry})
        assert await _names(app) == ["a", "b", "by-hand", "morning"]
        before = await app.jobs.pause("b", note="holidays")
        beat.send_signal(signal.SIGTERM)
        assert beat.wait() == 0
        await beats.ready({"b": entry, "c": entry})
        assert await _names(app) == ["b", "by-hand", "c", "morning"]
        after = await app.jobs.get("b")
        assert (after.enabled, after.pause_note, after.id) == (False, "holidays", before.id)
        with pytest.raises(NotFound):
            await app.jobs.get("a")


@on_one_store
async def test_beat_stops_with_an_error_that_names_all_entries_that_it_cannot_schedule(
    beats: Beats, new_app: NewApp, shared_redis: RedisServer
):
    async with new_app() as app:
        await app.jobs.create("taken", schedule="@daily", target=Echo())
        schedule = {"taken": {"task": "a", "schedule": 60}, "fine": {"task": "a", "schedule": 60}}
        beat, log = beats.start(schedule)
        assert beat.wait() == 1
        assert "Traceback" not in log.read_text()
        assert "beat_schedule: 1 entry cannot be scheduled:" in log.read_text()
        assert "'taken': there is a job 'taken' already" in log.read_text()
        assert await _names(app) == ["taken"], "nothing was saved"


@pytest.mark.slow
@pytest.mark.parametrize("database", STORES[1:], indirect=True)
async def test_a_beat_on_postgresql_sends_the_runs_of_its_jobs(
    beats: Beats, new_app: NewApp, worker: CeleryWorker
):
    await beats.ready({"sum": {"task": "tests.add", "schedule": 3_600, "args": [1, 2]}})
    async with new_app() as app:  # it has no Celery app: the beat launches the run
        run = await over(app, (await app.jobs.run("sum")).id)
        assert (run.state, run.output) == ("succeeded", '{"sum":3}')
