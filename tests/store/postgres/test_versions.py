"""The supported versions of PostgreSQL: the store suite runs on each that is installed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

import asyncpg
import pytest

from tests.support.doc_pages import DOCS
from tests.support.paths import ROOT
from tests.support.postgres_cluster import cluster, installations
from tests.support.postgres_server import server
from tests.support.tools import skip_without
from wakeful.errors import FailedPrecondition
from wakeful.store.postgres import PostgresStore
from wakeful.store.postgres.connect import OLDEST_SERVER

_ALL = "WAKEFUL_TEST_ALL_VERSIONS" in os.environ
_VERSIONS = [number for number in installations() if number >= OLDEST_SERVER]
#: Planning, taking, finishing, retries, notifications, migrations; with all versions also locks and upgrades.
SUITE = [
    "test_announcements.py",
    "test_finishing.py",
    "test_migrations.py",
    "test_planning.py",
    "test_taking.py",
    "postgres/test_postgres.py",
    *(["test_exactly_once.py", "test_schema_upgrade.py", "postgres/test_contention.py"] if _ALL else []),
]


async def _own_version() -> int:
    connection = await asyncpg.connect(server())
    try:
        return connection.get_server_version().major
    finally:
        await connection.close()


@pytest.mark.skipif("WAKEFUL_TEST_POSTGRES" in os.environ, reason="the tests run on a given server")
@pytest.mark.parametrize("version", _VERSIONS or [OLDEST_SERVER])
async def test_the_store_works_on_each_installed_version(version: int) -> None:
    if version not in _VERSIONS:
        skip_without("postgresql")
    if version == await _own_version():
        pytest.skip("the other tests run on this version")
    if version != OLDEST_SERVER and not _ALL:
        pytest.skip("only the oldest version, unless WAKEFUL_TEST_ALL_VERSIONS is set")
    await asyncio.to_thread(_run_suite, version)


def _run_suite(version: int) -> None:
    with cluster(version, {"autovacuum": "off"}) as running:  # it would visit each of the many databases
        url = f"postgresql://postgres:@/postgres?host={running.folder}&port={running.port}"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not sqlite"]
            + [f"tests/store/{file}" for file in SUITE],
            cwd=ROOT,
            env={
                **_environment(),
                "WAKEFUL_TEST_POSTGRES": url,
                "WAKEFUL_TEST_POSTGRES_TEMPORARY": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) > 100, "the suite is not empty"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


async def test_an_older_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.store.postgres.connect.OLDEST_SERVER", 99)
    store = PostgresStore(url)
    with pytest.raises(FailedPrecondition, match=r"runs PostgreSQL \d+\.\d+; Wakeful needs PostgreSQL 99 or"):
        await store.open()
    await store.close()


def test_the_documentation_names_the_oldest_version() -> None:
    page = (DOCS / "operations/postgresql.md").read_text()
    assert f"PostgreSQL {OLDEST_SERVER} to " in page
