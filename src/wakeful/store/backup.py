"""A backup of a database in one file, made while servers use it.

SQLite: a copy through its online backup, of one moment, verified. PostgreSQL: `pg_dump` of the schema of our
tables, read back with `pg_restore`. The file appears under its name only when it is complete, and never
replaces another.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from wakeful.store.connect import sqlite_path

#: How many pages are copied at a time.
_PAGES: Final = 1_000
#: Seconds to wait for a lock of another process.
_LOCK_S: Final = 30.0

#: Takes a number of pages, and returns a function that is told how many were copied.
ShowProgress = Callable[[int], AbstractContextManager[Callable[[int], None]]]


class Backup(NamedTuple):
    """A complete backup."""

    file: Path
    size: int


def back_up(url: str, file: Path, show_progress: ShowProgress) -> Backup:
    """Write a backup of a database to a new file.

    Raises AlreadyExists if there is such a file, NotFound if there is no such SQLite database,
    FailedPrecondition if `pg_dump` is not installed, and Unavailable if the copy fails.
    """
    source = sqlite_path(url)
    if source == ":memory:":
        raise InvalidArgument("a database in memory has no backup; name its file with --db")
    with _new_file(file) as draft:
        if source is None:
            _dump_postgres(url, draft, file)
        else:
            _copy_sqlite(Path(source), draft, show_progress)
    return Backup(file, file.stat().st_size)


def copy_file(source: Path, copy: Path) -> None:
    """Copy a small secret file to a new file. AlreadyExists: there is such a file."""
    with _new_file(copy) as draft:
        draft.write_bytes(source.read_bytes())


@contextmanager
def _new_file(file: Path) -> Iterator[Path]:
    """Yield a draft that only this user can read. It gets its name at the end, if nothing has it."""
    try:
        if file.exists() or file.is_symlink():
            raise FileExistsError
        number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        os.close(number)
        try:
            yield Path(name)
            with open(name, "rb") as draft:
                os.fsync(draft.fileno())
            _give_name(name, file)
        finally:
            for suffix in ("", "-journal", "-wal", "-shm"):  # SQLite leaves some if the disk is full
                with suppress(FileNotFoundError):
                    os.unlink(f"{name}{suffix}")
    except FileExistsError as error:
        raise AlreadyExists(f"'{file}' exists; a backup replaces no file, so give another name") from error
    except OSError as error:
        raise Unavailable(f"cannot write '{file}': {error.strerror or error}") from error


def _give_name(draft: str, file: Path) -> None:
    """Give a draft its name. FileExistsError: something has it."""
    try:
        os.link(draft, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, such as FAT or a share: reserve the name instead
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.replace(draft, file)
        except BaseException:
            os.unlink(file)
            raise


def _copy_sqlite(source: Path, draft: Path, show_progress: ShowProgress) -> None:
    if not source.is_file():
        raise NotFound(f"there is no database file '{source}'; name it with --db")
    try:
        uri = f"{source.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_LOCK_S, isolation_level=None)) as db:
            # The transaction keeps one moment of the database. Without it, each write of another process
            # would start the copy again.
            db.execute("BEGIN")
            (pages,) = db.execute("SELECT page_count FROM pragma_page_count()").fetchone()
            with closing(sqlite3.connect(draft)) as copy, show_progress(pages) as advance:
                left = pages

                def report(status: int, remaining: int, total: int) -> None:
                    nonlocal left
                    advance(left - remaining)
                    left = remaining

                db.backup(copy, pages=_PAGES, progress=report)
        with closing(sqlite3.connect(draft)) as copy:
            problems = [row[0] for row in copy.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        raise Unavailable(f"cannot copy the database file '{source}': {error}") from error
    if problems != ["ok"]:
        raise Unavailable(f"the copy of '{source}' is damaged, as the database may be: {'; '.join(problems)}")


def _dump_postgres(url: str, draft: Path, file: Path) -> None:
    from wakeful.store.postgres.address import parse_address

    address = parse_address(url)
    dsn, password = _without_password(address.dsn)
    options = ["--format=custom", f"--schema={address.schema}"]
    dump, restore = shutil.which("pg_dump"), shutil.which("pg_restore")
    if dump is None or restore is None:
        raise FailedPrecondition(
            "a backup of PostgreSQL needs its client programs; run this where they are installed: "
            f"pg_dump {' '.join(options)} --file='{file}' '{dsn}'"
        )
    environment = os.environ if password is None else {**os.environ, "PGPASSWORD": password}
    for command in ([dump, *options, f"--file={draft}", dsn], [restore, "--list", str(draft)]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise Unavailable(f"{Path(command[0]).name} failed: {said}")


def _without_password(dsn: str) -> tuple[str, str | None]:
    """Return the address without its password, which other users could read in a list of processes.

    >>> _without_password("postgresql://ada:s%20t@db/main?sslmode=require")
    ('postgresql://ada@db/main?sslmode=require', 's t')
    """
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    secret = options.pop("password", None) or unquote(password) or None
    query = urlencode(options, safe="/,", quote_via=quote)  # libpq reads + as it is, not as a space
    return parts._replace(netloc=f"{name}{at}{hosts}", query=query).geturl(), secret
