"""The database roles of the documentation: what an owner and a role with few rights can do."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support import postgres_server
from tests.support.doc_pages import DOCS, blocks
from tests.support.postgres_cluster import Cluster, cluster
from tests.support.waiting import over
from wakeful import EngineConfig, Wakeful
from wakeful.errors import FailedPrecondition
from wakeful.store.migrations import Migration, load
from wakeful.store.postgres import PostgresStore


def _statements(name: str) -> str:
    (text,) = [each.text for each in blocks(DOCS / "operations/postgresql.md") if each.value == name]
    return text


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """Run a server: roles belong to the whole server."""
    with cluster() as made:
        yield made


async def test_the_documented_roles_can_do_their_work_and_no_more(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.execute(_statements("owner.sql"), _statements("rights.sql"))
    await server.execute("REVOKE ALL ON DATABASE postgres FROM PUBLIC")
    await server.execute("GRANT CONNECT ON DATABASE postgres TO wakeful, wakeful_app")
    owner = PostgresStore(server.url(user="wakeful"))
    await owner.open()
    assert await owner.schema() == load("postgres")[-1].number
    await owner.close()
    app = Wakeful(server.url(user="wakeful_app"), config=EngineConfig(tick_ms=100, heartbeat_ms=200))

    @app.function()
    async def work() -> str:
        return "done"

    async with app:
        await app.jobs.create("job", schedule="every 1s", target={"kind": "function", "name": "work"})
        run = await app.jobs.run("job")
        assert (await over(app, run.id)).output == "done"
        assert await app.services.admin.status.ready() is None
        await app.jobs.delete("job")
    (changed,) = await server.query(
        "SELECT has_schema_privilege('wakeful_app', 'wakeful', 'CREATE')"
        " OR has_table_privilege('wakeful_app', 'wakeful.jobs', 'TRUNCATE')"
    )
    assert not changed
    pending = [*load("postgres"), Migration(load("postgres")[-1].number + 1, "next", "SELECT 1")]
    monkeypatch.setattr("wakeful.store.postgres.connection.load", lambda _: pending)
    store = PostgresStore(server.url(user="wakeful_app"))
    with pytest.raises(FailedPrecondition, match=r"schema 'wakeful' .* must be brought up to date"):
        await store.open()
    await store.close()


@pytest.mark.parametrize(
    "table", ["jobs (id integer)", "schema_version (installed text)", "runs (id integer)"]
)
async def test_a_schema_of_another_application_is_refused(table: str) -> None:
    url = postgres_server.empty_database()
    await _execute(url, f"CREATE TABLE public.{table}")
    store = PostgresStore(_with(url, "schema=public"))
    with pytest.raises(FailedPrecondition, match=r"schema 'public' .* tables of another .*\?schema="):
        await store.open()
    await store.close()


@pytest.mark.parametrize("schema", ["select", "user", "_x9", "a" * 48])
async def test_key_words_and_long_names_are_schemas(schema: str) -> None:
    store = PostgresStore(_with(postgres_server.empty_database(), f"schema={schema}"))
    await store.open()
    await store.ping()
    await store.close()


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{option}"


async def _execute(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
