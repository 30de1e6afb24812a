"""A backup is whole, of one moment, and replaces nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.databases import Database, PostgresDatabase, SqliteDatabase
from tests.support.factories import job
from tests.support.postgres_cluster import installations, newest
from tests.support.postgres_server import fresh_database
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from wakeful.service.admin.backup import back_up_database
from wakeful.store.backup import ShowProgress, _without_password, back_up
from wakeful.store.port import Store
from wakeful.store.postgres import PostgresStore
from wakeful.store.rows import JobFilter
from wakeful.store.sqlite import SqliteStore

#: So many rows that a copy takes several steps.
_ROWS = 30_000


@contextmanager
def quiet(total: int) -> Iterator[Callable[[int], None]]:
    """Show no progress."""
    yield lambda done: None


def calling(action: Callable[[], object]) -> ShowProgress:
    """Return a display of progress that calls `action` at the first step."""

    @contextmanager
    def show(total: int) -> Iterator[Callable[[int], None]]:
        left = [action]

        def advance(done: int) -> None:
            if left:
                left.pop()()

        yield advance

    return show


def pairs(path: Path, rows: int = _ROWS) -> Path:
    """Create a database whose writers change two tables together."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for table in ("one", "two"):
            db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, text TEXT)")
            numbers = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            db.execute(f"{numbers} INSERT INTO {table} SELECT i, hex(randomblob(100)) FROM n", (rows,))
    return path


def write_pairs(path: Path, stop: threading.Event, written: threading.Event) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as db:
        while not stop.is_set():
            db.execute("BEGIN IMMEDIATE")
            for table in ("one", "two"):
                db.execute(f"INSERT INTO {table} (text) VALUES (hex(randomblob(100)))")
            db.execute("COMMIT")
            written.set()


def counts(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("one", "two")]


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty directory for backups."""
    made = tmp_path / "backups"
    made.mkdir()
    return made


def test_a_copy_ends_and_is_of_one_moment_while_others_write(tmp_path: Path, folder: Path):
    source, stop, written = pairs(tmp_path / "source.db"), threading.Event(), threading.Event()
    writer = threading.Thread(target=write_pairs, args=(source, stop, written))
    writer.start()
    try:
        assert written.wait(30)

        def wait_for_a_write() -> None:
            written.clear()
            assert written.wait(30)

        done = back_up(f"sqlite:///{source}", folder / "copy.db", calling(wait_for_a_write))
    finally:
        stop.set()
        writer.join()

    one, two = counts(done.file)
    assert one == two >= _ROWS
    assert counts(source)[0] > one, "rows were written during the copy"
    assert stat.S_IMODE(done.file.stat().st_mode) == 0o600
    assert files(folder) == ["copy.db"]


def test_a_file_that_appears_during_the_copy_is_not_replaced(tmp_path: Path, folder: Path):
    source, file = pairs(tmp_path / "source.db"), folder / "copy.db"
    with pytest.raises(AlreadyExists, match="replaces no file"):
        back_up(f"sqlite:///{source}", file, calling(lambda: file.write_text("mine")))
    assert (file.read_text(), files(folder)) == ("mine", ["copy.db"])


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path, folder: Path):
    source = pairs(tmp_path / "source.db")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(f"sqlite:///{source}", folder / "copy.db", calling(interrupt))
    assert files(folder) == []


_FULL = """
import resource, sys
from contextlib import nullcontext
from pathlib import Path
from wakeful.store.backup import back_up

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
back_up(sys.argv[1], Path(sys.argv[2]), lambda total: nullcontext(lambda done: None))
"""


def test_a_copy_without_room_leaves_nothing(tmp_path: Path, folder: Path):
    source = pairs(tmp_path / "source.db")
    command = [sys.executable, "-c", _FULL, f"sqlite:///{source}", str(folder / "copy.db")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "Unavailable: cannot copy the database file" in done.stderr
    assert files(folder) == []


def test_a_file_system_without_hard_links_has_backups(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*args: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    source, file = pairs(tmp_path / "source.db", 10), folder / "copy.db"
    done = back_up(f"sqlite:///{source}", file, quiet)
    assert (counts(file), stat.S_IMODE(done.file.stat().st_mode)) == ([10, 10], 0o600)
    file.unlink()
    large = pairs(tmp_path / "large.db")
    with pytest.raises(AlreadyExists, match="replaces no file"):
        back_up(f"sqlite:///{large}", file, calling(lambda: file.write_text("mine")))
    assert (file.read_text(), files(folder)) == ("mine", ["copy.db"])


@pytest.mark.parametrize("name", [".", "/", ""])
def test_a_folder_is_no_name_of_a_backup(tmp_path: Path, name: str):
    with pytest.raises(AlreadyExists, match="is a folder; give the name of a new file"):
        back_up_database(f"sqlite:///{tmp_path / 'source.db'}", Path(name), quiet)


def test_options_of_an_address_keep_their_spaces():
    dsn = "postgresql://ada:s@db/main?options=-c%20work_mem%3D4MB"
    assert _without_password(dsn) == ("postgresql://ada@db/main?options=-c%20work_mem%3D4MB", "s")


_KILLED = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from wakeful.store.backup import back_up

@contextmanager
def kill(total):
    yield lambda done: os.kill(os.getpid(), signal.SIGKILL)

back_up(sys.argv[1], Path(sys.argv[2]), kill)
"""


def test_a_killed_copy_has_no_name_and_can_be_repeated(tmp_path: Path, folder: Path):
    source, file = pairs(tmp_path / "source.db"), folder / "copy.db"
    done = subprocess.run([sys.executable, "-c", _KILLED, f"sqlite:///{source}", file], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not file.exists()

    back_up(f"sqlite:///{source}", file, quiet)
    assert counts(file) == [_ROWS, _ROWS]


def test_a_damaged_database_gives_no_backup(tmp_path: Path, folder: Path):
    source = pairs(tmp_path / "source.db", rows=2_000)
    with closing(sqlite3.connect(source)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with source.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(os.urandom(4096))
    with pytest.raises(Unavailable, match="damaged"):
        back_up(f"sqlite:///{source}", folder / "copy.db", quiet)
    assert files(folder) == []


def test_what_is_no_database_is_refused_with_the_reason(tmp_path: Path, folder: Path):
    with pytest.raises(NotFound, match="no database file"):
        back_up(f"sqlite:///{tmp_path}/none.db", folder / "copy.db", quiet)
    (tmp_path / "text.db").write_text("not a database, but longer than its header needs to be" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        back_up(f"sqlite:///{tmp_path}/text.db", folder / "copy.db", quiet)
    with pytest.raises(InvalidArgument, match="in memory"):
        back_up("sqlite://", folder / "copy.db", quiet)
    with pytest.raises(Unavailable, match="cannot write"):
        back_up(f"sqlite:///{pairs(tmp_path / 'a.db', 10)}", folder / "none" / "copy.db", quiet)
    assert files(folder) == []


def test_the_key_file_is_copied_and_an_existing_one_stops_the_backup(tmp_path: Path, folder: Path):
    source = pairs(tmp_path / "source.db", rows=10)
    (tmp_path / "source.db.key").write_text("key")
    (folder / "copy.db.key").write_text("of another database")
    with pytest.raises(AlreadyExists, match=r"copy\.db\.key"):
        back_up_database(f"sqlite:///{source}", folder / "copy.db", quiet)
    assert files(folder) == ["copy.db.key"]

    done = back_up_database(f"sqlite:///{source}", folder / "other.db", quiet)
    assert done.key_file == folder / "other.db.key"
    assert done.key_file.read_text() == "key"
    assert stat.S_IMODE(done.key_file.stat().st_mode) == 0o600


async def test_a_restored_backup_has_the_jobs(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    store = await database.connect()
    await store.create_jobs([job("digest")])
    if isinstance(database, SqliteDatabase):
        await asyncio.to_thread(back_up, f"sqlite:///{database.path}", folder / "copy.db", quiet)
        restored: Store = SqliteStore(folder / "copy.db", clock=database.clock)
    else:
        assert isinstance(database, PostgresDatabase)
        programs = installations()[newest()]
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        await asyncio.to_thread(back_up, database.url, folder / "copy.dump", quiet)
        empty = fresh_database()
        await PostgresDatabase(empty).remove_schema()
        restore = [str(programs / "pg_restore"), "--dbname", empty, str(folder / "copy.dump")]
        await asyncio.to_thread(lambda: subprocess.run(restore, check=True))
        restored = PostgresStore(empty, clock=database.clock)
    await restored.open()
    try:
        assert [row.name for row in await restored.jobs(JobFilter("default"))] == ["digest"]
    finally:
        await restored.close()


async def test_without_pg_dump_the_error_has_its_command_and_no_password(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(FailedPrecondition) as refused:
        back_up("postgresql://ada:s3cret@db/main?schema=night&pool_size=5", folder / "copy.dump", quiet)
    assert "pg_dump --format=custom --schema=night --file='" in refused.value.message
    assert "'postgresql://ada@db/main?" in refused.value.message
    assert "s3cret" not in refused.value.message
    assert files(folder) == []


async def test_a_failed_pg_dump_leaves_nothing_and_tells_no_password(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{installations()[newest()]}:{os.environ['PATH']}")
    with pytest.raises(Unavailable, match="pg_dump failed: ") as failed:
        back_up("postgresql://ada:s3cret@127.0.0.1:1/main", folder / "copy.dump", quiet)
    assert "s3cret" not in failed.value.message
    assert files(folder) == []
