"""Jobs counted by timing, on every store, and what the statement visits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.factories import NOW, FalseClock, asleep
from tests.support.query_plans import visited
from wakeful.document import Defaults, read_definition, timing_to_text
from wakeful.forecast.peaks import TimingCount
from wakeful.store.port import Store
from wakeful.store.rows import JobChange, JobRow
from wakeful.store.sql import stats
from wakeful.store.sqlite import SqliteStore
from wakeful.store.sqlite.session import translate

_MINUTE = 60_000


def _timing(schedule: object) -> str:
    document = {"name": "a", "schedule": schedule}
    timing = read_definition(document, now_ms=NOW, defaults=Defaults()).timing
    assert timing is not None
    return timing_to_text(timing)


def _job(name: str, schedule: object, **fields: object) -> JobRow:
    return asleep(name)._replace(timing=_timing(schedule), **fields)  # type: ignore[arg-type]


async def test_enabled_jobs_are_counted_by_timing_policy_and_phase(store: Store) -> None:
    nine, every = _timing("0 9 * * *"), _timing("every 5m")
    jobs = [
        *(_job(f"nine-{number}", "0 9 * * *", policy="{}", anchor_ms=NOW + number) for number in range(3)),
        _job("jittered", "0 9 * * *", policy='{"jitterMs":60000}'),
        *(_job(f"every-{n}", "every 5m", policy="{}", anchor_ms=NOW + n * _MINUTE) for n in range(7)),
        _job("other", "0 9 * * *", policy="{}", agent="other"),
        asleep("chained")._replace(timing=None),
    ]
    await store.create_jobs(jobs)
    await store.change_job(jobs[0].id, lambda row: JobChange(row._replace(enabled=False, next_ms=None)))
    await store.delete_job(jobs[1].id, NOW, "deleted")
    phase = NOW // _MINUTE % 5
    expected = Counter(
        {
            TimingCount(nine, "{}", 0, 2, "default/nine-2"): 1,
            TimingCount(nine, '{"jitterMs":60000}', 0, 1, "default/jittered"): 1,
            **{
                TimingCount(every, "{}", (phase + n) % 5, 2 if n < 2 else 1, f"default/every-{n}"): 1
                for n in range(5)
            },
        }
    )
    assert Counter(await store.timings("default")) == expected
    assert await store.timings("default", "other") == [TimingCount(nine, "{}", 0, 1, "other/other")]
    assert await store.timings("default", "nobody") == await store.timings("nowhere") == []


_ARGUMENTS = {
    "TIMINGS": ("ws-1", "", "", 2_000),
    "TIMINGS_OF_AGENT": ("ws-1", "agent-1", "", 2_000),
}
_COUNT = 5_000


def _many() -> list[JobRow]:
    return [
        _job(f"job-{number}", "0 9 * * *", workspace=f"ws-{number % 10}", agent=f"agent-{number % 100}")
        for number in range(_COUNT)
    ]


async def test_sqlite_reads_the_jobs_of_the_workspace_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "big.db", clock=FalseClock(), inline=True)
    await store.open()
    await store.create_jobs(_many())
    db = store._connection._write_connection()
    for name, given in _ARGUMENTS.items():
        text = translate(getattr(stats, name))
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {text}", given)]
        columns = "workspace=? AND agent=?" if "AGENT" in name else "workspace=? AND (agent,name)>(?,?)"
        assert any("jobs_name" in step and f"({columns}" in step for step in plan), plan
        assert not any(step.startswith("SCAN jobs") for step in plan), plan
    await store.close()


async def test_postgres_reads_the_jobs_of_the_workspace_only() -> None:
    server = pytest.importorskip("tests.support.postgres_server")
    from wakeful.store.postgres import PostgresStore

    store = PostgresStore(server.fresh_database(), clock=FalseClock())
    await store.open()
    await store.create_jobs(_many())
    async with store._pool._acquire() as db:
        await db.execute("ANALYZE")
        for name, given in _ARGUMENTS.items():
            rows, _ = await visited(db, getattr(stats, name), *given)
            assert rows <= 3 * _COUNT / (100 if "AGENT" in name else 10), name
    await store.close()


async def test_jobs_of_several_pages_are_counted_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "TIMINGS_AT_ONCE", 3)
    jobs = [_job(f"job-{number}", "0 9 * * *", agent=f"agent-{number % 2}") for number in range(10)]
    # `agent-0-b` is after `agent-0`, and `agent-0-b/…` before `agent-0/…`. A page may have no timing.
    between = [
        _job(f"job-{number}", "0 9 * * *", agent="agent-0-b", enabled=number > 6) for number in range(9)
    ]
    await store.create_jobs([*jobs, *between, _job("other", "0 8 * * *")])
    found = await store.timings("default")
    assert sorted((count.jobs, count.example) for count in found) == [
        (1, "default/other"),
        (12, "agent-0-b/job-7"),
    ]
    assert [count.jobs for count in await store.timings("default", "agent-1")] == [5]
