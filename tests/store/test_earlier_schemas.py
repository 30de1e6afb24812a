"""Databases of earlier versions: no row is lost, and what waited in them continues.

`test_schema_upgrade.py` has what is special about schema 8.
"""

from __future__ import annotations

import pytest

from tests.support.databases import Database, SqliteDatabase
from tests.support.earlier_schemas import FIRST, FIXTURES, Rows, at_schema, tables_of
from tests.support.effort import part
from tests.support.factories import DAY, alone, ended, look, plan_of, tick
from tests.support.pull_runs import claim_pairs
from wakeful import Wakeful
from wakeful.service.auth.access import LOCAL
from wakeful.store.migrations import load
from wakeful.store.rows import JobFilter, RunFilter

EARLIER = range(FIRST, load("sqlite")[-1].number)
#: Columns whose values a later migration changes on purpose, by table.
CHANGED: dict[str, set[str]] = {}
JOBS = ("digest", "hourly", "pull", "final", "then", "hook", "paused", "keyed")


def test_every_earlier_schema_has_a_fixture() -> None:
    names = {f"schema_{number}_{database}.sql" for number in EARLIER for database in ("sqlite", "postgres")}
    missing = names - {file.name for file in FIXTURES.iterdir()}
    assert not missing, (
        f"run `python -m scripts.schema_fixture` on the commit before the migration: {missing}"
    )


@pytest.mark.parametrize("number", part(EARLIER[1:]))
async def test_a_migration_keeps_every_row(database: Database, number: int) -> None:
    before = await at_schema(database, number)
    await database.connect()
    after = await tables_of(database)
    assert sum(map(len, before.values())) > 50
    for name, rows in before.items():
        if rows and name not in ("schema_version", "sqlite_sequence"):
            kept = (rows[0].keys() & after[name][0].keys()) - CHANGED.get(name, set())
            assert _sorted(rows, kept) == _sorted(after[name], kept), name


def _sorted(rows: Rows, columns: set[str]) -> list[str]:
    return sorted(repr([row[column] for column in sorted(columns)]) for row in rows)


@pytest.mark.parametrize("number", part(EARLIER[1:]))
async def test_jobs_can_be_read_and_waiting_runs_continue(database: Database, number: int) -> None:
    await at_schema(database, number)
    store = await database.connect()
    services = Wakeful(store=store, secret_key="a key for tests").services
    jobs = {name: await services.jobs.get(LOCAL, "default", "default", name) for name in JOBS}
    assert [name for name, job in jobs.items() if not job.enabled] == ["paused"]
    assert (await services.admin.audit.verify(LOCAL, "default")).flaw is None
    runs = await store.runs(RunFilter("default", limit=100))
    assert {run.job_name for run in runs if run.state == "failed"} == {"final", "hook"}
    now_ms = max(run.created_ms for run in runs) + 1
    ((claimed, _),) = await claim_pairs(store, now_ms, "gpu", "default", None, None, 9)
    assert claimed.job_name == "then"
    assert await store.complete_run(ended(claimed, output="done"), alone)
    assert (await look(store, claimed)).state == "succeeded"
    due = (await store.plan(now_ms + DAY, 100, lambda due: plan_of(due, tick(due)))).runs
    assert {run.job_name for run in due} == {"digest", "hourly"}


async def test_the_kind_of_a_target_with_any_text_is_found(database: Database) -> None:
    await at_schema(database, 13)
    work = '{"target":{"kind":"function","name":"digest","text":"a\\u0000b"}}'
    await database.execute(f"UPDATE jobs SET work = '{work}' WHERE name = 'pull'")
    store = await database.connect()
    (found,) = await store.jobs(JobFilter("default", target_kind="function", name="pull"))
    assert found.work == work


async def test_waiting_runs_of_function_jobs_require_their_function(database: Database) -> None:
    await at_schema(database, 10)
    works = {
        "pull": '{"target":{"kind":"function","name":"digest"}}',
        "final": '{"target":{"kind":"workflow","to":{"kind":"function","name":"etl"},"workflowId":"a"}}',
        "then": '{"target":{"kind":"function","name":"no json"}',
    }
    for name, work in works.items():
        await database.execute(f"UPDATE jobs SET work = '{work}' WHERE name = '{name}'")
    flag = "0" if isinstance(database, SqliteDatabase) else "false"
    await database.execute(f"UPDATE runs SET is_pull = {flag}")
    store = await database.connect()
    runs = await store.runs(RunFilter("default", states=("pending", "retrying", "running"), limit=100))
    assert {run.job_name: run.requires for run in runs} == {
        "pull": "function:digest",
        "final": "function:etl",
        "then": "",
    }
    if not isinstance(database, SqliteDatabase):
        live = (await tables_of(database))["live_runs"]
        assert sorted(row["requires"] for row in live) == ["", "function:digest", "function:etl"]
