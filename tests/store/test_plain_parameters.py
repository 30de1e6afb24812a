"""The store with plain parameters, as on Python 3.12.0 to 3.12.3, on whichever release runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.factories import FalseClock, job
from wakeful import Wakeful
from wakeful.store.rows import JobFilter
from wakeful.store.sqlite import SqliteStore, connection
from wakeful.store.sqlite.numbered_parameters import PlainParameters


@pytest.fixture(autouse=True)
def old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the connections of an old release."""
    monkeypatch.setattr(connection, "connection_class", lambda: PlainParameters)


async def test_jobs_are_written_in_batches_of_each_size_and_read(tmp_path: Path):
    store = SqliteStore(tmp_path / "wakeful.db", clock=FalseClock())
    await store.open()
    try:
        names = [f"job-{number}" for number in range(170)]
        await store.create_jobs([job(name) for name in names])
        found = await store.jobs(JobFilter("default"))
        assert sorted(row.name for row in found) == sorted(names)
    finally:
        await store.close()


async def test_a_job_is_changed_and_run(tmp_path: Path):
    app = Wakeful(f"sqlite:///{tmp_path}/wakeful.db")

    @app.function()
    def greet(name: str) -> str:
        return f"hello {name}"

    async with app:
        saved = await app.jobs.upsert("digest", schedule="0 0 29 2 *", target={"kind": "echo"})
        changed = await app.jobs.update("digest", name="renamed")
        assert (changed.id, changed.name) == (saved.id, "renamed")
        run = await app.runs.wait((await app.jobs.run("renamed")).id)
        assert run.state == "succeeded"
        assert await app.enqueue(greet, "ada").result(timeout=60) == "hello ada"
