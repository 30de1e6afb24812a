"""Write a database of the current schema as a fixture, before a migration changes it.

`python -m scripts.schema_fixture` runs `wakeful serve` on both databases, makes typical requests, and writes
the rows to `tests/store/fixtures/schema_N_sqlite.sql` and `schema_N_postgres.sql`. With the `src` directory
of another version as its argument, it does that with the code of that version.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.support.postgres_server import empty_database
from tests.support.served_replica import ServedReplica

FIXTURES: Final = Path(__file__).parents[1] / "tests/store/fixtures"
_SELDOM: Final = "0 0 29 2 *"
_NOT_COPIED: Final = ("schema_version", "sqlite_sequence")
_SQLITE_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
_TABLES: Final = """
    SELECT tablename FROM pg_tables WHERE schemaname = 'wakeful' ORDER BY tablename"""
_COLUMNS: Final = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'wakeful' AND table_name = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position"""

_COUNTED: Final = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'wakeful' AND table_name = $1 AND is_identity = 'YES'"""


async def _fill(url: str, home: Path, source: Path | None) -> None:
    """Fill a database by requests to a server."""
    replica = await ServedReplica(home, url, source=source).started()

    async def ask(method: str, path: str, body: object = None, key: str = "") -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else {}
        status, said = await replica.request(method, path, body, headers)
        if status >= 300 or status == 0:
            raise SystemExit(f"{method} {path}: {status} {said}")
        return dict(said) if isinstance(said, dict) else {}

    async def job(name: str, schedule: str | None = _SELDOM, **fields: object) -> None:
        document = {"name": name, "schedule": schedule, "target": {"kind": "pull"}, **fields}
        await ask("POST", "/agents/default/jobs", document)

    async def claim(job_name: str) -> dict[str, Any]:
        await ask("POST", f"/agents/default/jobs/{job_name}/run")
        found = await ask("POST", "/runs/claim", {"worker": "gpu", "limit": 1, "waitMs": 10_000})
        (run,) = found["runs"]
        return dict(run)

    async def complete(run: dict[str, Any], status: str, **fields: object) -> None:
        outcome = {"attempt": run["attempt"], "status": status, **fields}
        await ask("POST", f"/runs/{run['id']}/complete", outcome)

    try:
        await ask("PUT", "/agents/scribe", {"tz": "Europe/Berlin", "description": "writes"})
        await ask("POST", "/keys", {"name": "ci", "role": "member"})
        await ask("PUT", "/workflows/etl/1", {"nodes": []})
        await job("digest", "0 9 * * 1-5", tz="Europe/Berlin", description="daily", labels={"team": "a"})
        await job("hourly", schedule="every 1h", overlapPolicy="queue")
        await job("pull", maxAttempts=2, backoff={"baseMs": 3_600_000, "maxMs": 3_600_000})
        await job("final", maxAttempts=1)
        await job("then", schedule=None, after={"job": "pull", "on": "succeeded"})
        await job("hook", target={"kind": "webhook", "url": "http://127.0.0.1:9/"}, maxAttempts=1)
        await job("paused", "every 5m")
        await ask("POST", "/agents/default/jobs/paused/pause", {"note": "holiday"})
        keyed = {"name": "keyed", "schedule": _SELDOM}
        await ask("POST", "/agents/default/jobs", keyed, "fixture")
        await complete(await claim("pull"), "failed", error="out of memory")  # is retried
        await complete(await claim("final"), "failed", error="broken")
        await claim("final")  # stays claimed
        # The next one is followed by a run of `then`, which stays pending.
        await complete(await claim("pull"), "succeeded", output="done", usage={"tokens": 7, "cost": 0.1})
        await ask("POST", "/agents/default/jobs/hook/run")
        while len((await ask("GET", "/dead-letters"))["deadLetters"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await ask("POST", "/agents/scribe/messages", {"session": "s1", "message": "hello"})
    finally:
        await replica.stop()
        replica.kill()


def _sqlite_dump(path: Path) -> tuple[int, str]:
    db = sqlite3.connect(path)
    number = db.execute("SELECT max(version) FROM schema_version").fetchone()[0]
    parts = []
    for (table,) in db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    ).fetchall():
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        quoted = ", ".join(f"quote({column})" for column in columns)
        parts.append(_inserts(table, columns, db.execute(f"SELECT {quoted} FROM {table}").fetchall(), ""))
    db.close()
    return number, "\n".join(filter(None, parts))


async def _postgres_dump(url: str) -> tuple[int, str]:
    connection = await asyncpg.connect(url)
    number = await connection.fetchval("SELECT max(version) FROM wakeful.schema_version")
    parts = []
    for (table,) in await connection.fetch(_TABLES):
        columns = [row[0] for row in await connection.fetch(_COLUMNS, table)]
        quoted = ", ".join(f"quote_nullable({column}::text)" for column in columns)
        rows = await connection.fetch(f"SELECT {quoted} FROM wakeful.{table}")
        parts.append(_inserts(table, columns, [tuple(row) for row in rows], "OVERRIDING SYSTEM VALUE "))
        for (column,) in await connection.fetch(_COUNTED, table) if rows else ():
            newest = f"(SELECT max({column}) FROM {table})"
            parts.append(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {newest});\n")
    await connection.close()
    return number, "\n".join(filter(None, parts))


def _inserts(table: str, columns: list[str], rows: Sequence[tuple[str, ...]], how: str) -> str:
    if table in _NOT_COPIED:
        return ""
    text = f"DELETE FROM {table};\n"
    if rows:
        values = ",\n".join(f"    ({', '.join(row)})" for row in rows)
        text += f"INSERT INTO {table} ({', '.join(columns)}) {how}VALUES\n{values};\n"
    return text


def _write(database: str, number: int, text: str) -> None:
    file = FIXTURES / f"schema_{number}_{database}.sql"
    head = f"-- Rows as the code of schema {number} wrote them. Applied after the migrations 1 to {number}."
    file.write_text(f"{head}\n\n{text}".replace(socket.gethostname(), "host"))
    sys.stdout.write(f"{file}\n")


async def main(source: Path | None) -> None:
    """Write the fixtures of both databases."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wakeful.db"
        await _fill(f"sqlite:///{path}", Path(folder) / "sqlite", source)
        _write("sqlite", *_sqlite_dump(path))
        url = empty_database()
        await _fill(url, Path(folder) / "postgres", source)
        _write("postgres", *await _postgres_dump(url))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None))
